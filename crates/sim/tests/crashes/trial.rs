//! A history run on a simulated machine that fails, and what must hold in the end.

use crate::source::{Again, Records};
use crate::support::Subject;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_audit::{prove, verify};
use tidemill_connect::{Patience, Patient, SinkDurability, WriteJsonl};
use tidemill_durability::{
    Bug, Head, Identity, OpenState, Planted, Recorded, StateDirectory, StateError, Storage, read_all,
};
use tidemill_histories::{History, Random};
use tidemill_io::{IoFailure, Sink, SinkConnection, Source};
use tidemill_model::Schema;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Origin, Program, TableId};
use tidemill_runtime::{
    Control, Durability, DurabilityOptions, Engine, Environment, EpochSize, Options, Policy, Request, RunError,
    Scheduling, Summary, Sync,
};
use tidemill_sim::{Fault, SimEnvironment, SimStorage, SimulatedClock, SteppedEnvironment, Trace, step_through};

/// A history with the bytes that its sinks must have written.
pub struct Expected {
    pub subject: Subject,
    outputs: BTreeMap<PathBuf, Vec<u8>>,
}

/// The content that a file under a final name must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// The whole output.
    There,
    /// The whole output, or the file is not there yet.
    IfThere,
    /// A prefix, as a run that was asked to end leaves it, or the file is not there yet.
    Prefix,
}

/// The way in which an engine is driven.
#[derive(Clone, Default)]
pub enum Drive {
    /// Each actor by a thread of its own.
    #[default]
    Threads,
    /// All by one thread, on this machine; each process leaves the trace of its steps.
    Steps(SimStorage, Traces),
}

/// The steps of the processes of a trial, in order.
pub type Traces = Arc<Mutex<Vec<Trace>>>;

/// The settings that are the same in every process of a trial.
#[derive(Clone)]
pub struct Setting {
    pub seed: u64,
    pub planted: Planted,
    pub workers: usize,
    pub scheduling: Scheduling,
    pub epoch: EpochSize,
    pub batch: usize,
    pub commit_age_max: std::time::Duration,
    /// Sinks wait for room on a full disk by this.
    pub patience: Option<Patience>,
    /// The moment when results are released.
    pub sync: Sync,
    /// A flag: whether the state records its program; it can be verified then.
    pub records: bool,
    /// Bytes that rows may take in memory: too few for any row, or about enough for the empty indexes and a few rows, so
    /// that rows are evicted again and again.
    pub memory: Option<usize>,
    /// The way in which the engine is driven.
    pub drive: Drive,
    /// A flag: whether the end of the input is the end for good. Otherwise it is a pause.
    pub is_final: bool,
    /// Has each source ask for the end of the run after this number of its records.
    pub stop: Option<usize>,
}

impl Setting {
    /// Returns the setting of a seed.
    pub fn random(seed: u64, planted: Planted) -> Setting {
        let mut random = Random::new(seed);
        let epoch = match random.below(4) {
            0 => EpochSize::Auto,
            1 => EpochSize::Events(1),
            _ => EpochSize::Events(2 + random.below(20)),
        };
        let age = std::time::Duration::from_micros([0, 100, 10_000][random.below(3)]);
        let workers = 1 + random.below(2);
        let batch = 1 + random.below(12);
        let memory = random.chance(30).then(|| [1, 16 << 10 | random.below(48 << 10)][random.below(2)]);
        Setting {
            seed,
            planted,
            workers,
            scheduling: scheduling(seed),
            epoch,
            batch,
            commit_age_max: age,
            patience: None,
            sync: Sync::Epoch,
            records: true,
            memory,
            drive: Drive::Threads,
            is_final: true,
            stop: None,
        }
    }
}

/// Returns the scheduling of a seed's epochs: by cost, which leaves epochs of few events to one worker, by
/// MorphStream's model, or by any policy.
fn scheduling(seed: u64) -> Scheduling {
    let mut random = Random::new(seed ^ 0x5ced_0000_0000);
    let policies = Policy::all();
    match random.below(3) {
        0 if random.chance(20) => Scheduling::MorphStream,
        0 => Scheduling::Auto,
        _ => {
            let ways = policies[random.below(policies.len())].in_ways_to_share();
            Scheduling::Fixed(if random.chance(50) { ways[0] } else { ways[random.below(ways.len())] })
        }
    }
}

fn file(sink: usize) -> WriteJsonl {
    WriteJsonl { path: path(sink), compression: None }
}

fn path(sink: usize) -> String {
    format!("out/{sink}")
}

/// Returns a machine with an empty directory for outputs.
pub fn new_machine(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed);
    storage.create_directory(Path::new("out")).expect("no fault");
    storage
}

impl Expected {
    pub fn new(subject: Subject) -> Expected {
        let machine = new_machine(0);
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        for (s, sink) in subject.program.sinks.iter().enumerate() {
            let schema = &subject.program.streams[sink.stream].schema;
            let durable = SinkDurability::at(storage.clone(), "none", Planted::default(), Path::new("out/.sinks"));
            let mut open = file(s).open(schema, Some(&durable)).expect("it opens");
            let mut write = || {
                open.recover()?;
                open.write(&batch_of(schema, &subject.expected.outputs[s]))?;
                open.prepare(1)?;
                open.commit(1)
            };
            write().expect("no fault");
            open.finish().expect("no fault");
        }
        let outputs = machine.files().into_iter().filter(|(path, _)| is_final(path)).collect();
        Expected { subject, outputs }
    }

    /// Returns the first output under its final name that is not as it must be.
    pub fn wrong_outputs(&self, read: impl Fn(&Path) -> io::Result<Vec<u8>>, whole: Whole) -> Option<String> {
        for (path, expected) in &self.outputs {
            match read(path) {
                Ok(bytes) if bytes == *expected => {}
                Ok(bytes) if whole == Whole::Prefix && expected.starts_with(&bytes) => {}
                Err(error) if error.kind() == ErrorKind::NotFound && whole != Whole::There => {}
                Err(error) => return Some(format!("{}: {error}", path.display())),
                Ok(bytes) => {
                    let (is, wanted) = (String::from_utf8_lossy(&bytes), String::from_utf8_lossy(expected));
                    let line = is.lines().zip(wanted.lines()).position(|(is, wanted)| is != wanted);
                    let (path, count, due) = (path.display(), is.lines().count(), wanted.lines().count());
                    let shown = |text: &str| line.and_then(|line| text.lines().nth(line)).map(str::to_owned);
                    let (is, wanted) = (shown(&is), shown(&wanted));
                    return Some(format!(
                        "{path} has {count} lines, expected {due}; the first to differ is {line:?}: {is:?} for {wanted:?}"
                    ));
                }
            }
        }
        None
    }

    /// Returns the number of bytes of outputs that were released, by the sinks' records; the error names the output
    /// that cannot be read or differs from what it must be.
    pub fn released(&self, storage: &SimStorage) -> Result<u64, String> {
        let record = match read_all(storage, Path::new("state/sinks")) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(format!("the record of the sinks: {error}")),
        };
        let line = record.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let mut released = 0;
        for (path, expected) in &self.outputs {
            let Some(entry) = record["sinks"].get(format!("../{}", path.display())) else { continue };
            let length = entry["length"].as_u64().ok_or("an entry has a length")? as usize;
            let name = path.file_name().expect("a file").to_string_lossy();
            let part = match read_all(storage, &path.with_file_name(format!(".{name}.tidemill-part"))) {
                Err(error) if error.kind() == ErrorKind::NotFound && length == 0 => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => read_all(storage, path),
                part => part,
            };
            let part = part.map_err(|error| format!("what was released of {}: {error}", path.display()))?;
            if length > expected.len() || part.get(..length) != Some(&expected[..length]) {
                return Err(format!("{length} bytes of {} are not those that must be there", path.display()));
            }
            released += length as u64;
        }
        Ok(released)
    }

    /// Returns a line of an output that is not there.
    pub fn missing_lines(&self, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Option<String> {
        for (path, expected) in &self.outputs {
            let bytes = read(path).unwrap_or_default();
            let is = String::from_utf8_lossy(&bytes);
            let is: std::collections::BTreeSet<&str> = is.lines().collect();
            let wanted = String::from_utf8_lossy(expected);
            if let Some(line) = wanted.lines().find(|line| !is.contains(line)) {
                return Some(format!("{} lacks {line}", path.display()));
            }
        }
        None
    }

    /// Returns the first table that is not as it must be.
    pub fn wrong_tables(&self, engine: &Engine) -> Option<String> {
        let program = engine.program();
        let table = |t: TableId| {
            let schema = Schema::scalars(program.tables[t].columns.iter().map(|c| (c.name.as_str(), c.ty)));
            rows(&engine.table(t).expect("no fault"), &schema)
        };
        let is_wrong =
            |t: &TableId| !tidemill_histories::same_rows(&table(*t), &self.subject.expected.tables[usize::from(*t)]);
        program.tables.keys().find(is_wrong).map(|t| format!("table {} differs", program.tables[t].name))
    }
}

fn is_final(path: &Path) -> bool {
    path.starts_with("out") && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

pub fn recorded(history: &History) -> Recorded {
    let plan = crate::support::with_all_sinks(&history.plan);
    Recorded { plan, sources: BTreeMap::new(), sinks: BTreeMap::new() }
}

/// The name of the savepoint that some trials begin with.
pub const START: &str = "start";

/// Opens the sources of a trial to be read again.
pub fn records_again(
    history: &History,
    setting: &Setting,
) -> impl Fn(&StateDirectory, &tidemill_plan::Stream) -> Result<Option<Box<dyn Source>>, IoFailure> {
    move |_, stream| {
        let Origin::Source { source, .. } = stream.origin else { unreachable!("a source's stream") };
        let s = source as usize;
        let again = Again::of(s + setting.seed as usize);
        let records = Records::new(&stream.schema, &history.sources[s], setting.batch, again);
        Ok(Some(Box::new(records) as Box<dyn Source>))
    }
}

/// Audits a state from its newest checkpoint and from the savepoint; the first difference. All heads that were shown are of its
/// one chain.
fn unverified(history: &History, storage: &SimStorage, setting: &Setting, shown: &[Head]) -> Option<String> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let directory = match StateDirectory::open_as_it_is(storage, Path::new("state"), "an auditor") {
        Ok(directory) => directory,
        Err(StateError::Refused(why)) if why.starts_with("there is no state") => return None,
        Err(error) => return Some(error.to_string()),
    };
    let open = records_again(history, setting);
    let starts = [None, directory.savepoint(START).is_ok().then_some(START)];
    starts.iter().enumerate().filter(|(i, start)| *i == 0 || start.is_some()).find_map(|(_, start)| {
        let wrong = verify(&directory, *start, &open).err().map(|error| format!("verified from {start:?}: {error}"));
        wrong.or_else(|| unproven(&directory, *start, shown))
    })
}

/// Returns a head that was shown and is not in the chain from a start on.
fn unproven(directory: &StateDirectory, start: Option<&str>, shown: &[Head]) -> Option<String> {
    let from = start.and_then(|name| directory.savepoint(name).ok());
    let from = from.map(|savepoint| directory.open_savepoint(&savepoint).expect("it is whole"));
    let first = from.as_ref().unwrap_or(directory).checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    shown.iter().filter(|head| head.epoch >= first).find_map(|head| {
        let wrong = prove(directory, from.as_ref(), Some(*head)).err()?;
        Some(format!("the head {head} was shown, and from {start:?}: {wrong}"))
    })
}

/// Returns the sinks of a program, each to a file of its own.
pub fn open_sinks(
    program: &Program,
    storage: &Arc<dyn Storage>,
    directory: &StateDirectory,
) -> Result<Vec<Box<dyn Sink>>, RunError> {
    let durable = SinkDurability::of(directory, storage.clone());
    let sink = |(s, sink): (usize, &tidemill_plan::Sink)| {
        let failed = |failure| RunError::Sink { name: sink.name.clone(), failure };
        file(s).open(&program.streams[sink.stream].schema, Some(&durable)).map_err(failed)
    };
    program.sinks.iter().enumerate().map(sink).collect()
}

/// Returns the number of events between checkpoints: two settings in three take them while epochs run.
pub fn checkpoint_events(seed: u64) -> Option<u64> {
    (!seed.is_multiple_of(3)).then_some(1 + seed % 17)
}

/// Runs one process, from its start to its end.
pub fn process(
    history: &History,
    engine: &Engine,
    storage: &Arc<dyn Storage>,
    setting: &Setting,
) -> Result<Summary, RunError> {
    process_under(history, engine, storage, setting, &Arc::default())
}

/// Runs a process, watched and asked to end through a control.
pub fn process_under(
    history: &History,
    engine: &Engine,
    storage: &Arc<dyn Storage>,
    setting: &Setting,
    control: &Arc<Control>,
) -> Result<Summary, RunError> {
    let program = engine.program();
    let mut directory = StateDirectory::open(OpenState {
        storage: storage.clone(),
        path: Path::new("state"),
        holder: "a trial",
        id: setting.seed,
        program: Identity::of(program),
        recorded: setting.records.then(|| recorded(history)),
    })?;
    directory.plant(setting.planted);
    if directory.is_new() {
        for (table, rows) in &history.preload {
            let schema = Schema::scalars(program.tables[*table].columns.iter().map(|c| (c.name.as_str(), c.ty)));
            engine.preload(*table, &batch_of(&schema, rows)).expect("histories preload distinct keys");
        }
    }
    let streams = program.streams.iter().filter(|stream| matches!(stream.origin, Origin::Source { .. }));
    let source = |(s, (stream, records)): (usize, (&tidemill_plan::Stream, &Vec<_>))| {
        let again = Again::of(s + setting.seed as usize);
        let records = Records::new(&stream.schema, records, setting.batch, again);
        match setting.stop {
            Some(at) => Box::new(records.stop_at(at, control.clone())) as Box<dyn Source>,
            None => Box::new(records),
        }
    };
    let sources = streams.zip(&history.sources).enumerate().map(source).collect();
    let sinks_storage: Arc<dyn Storage> = match &setting.patience {
        Some(patience) => Arc::new(Patient::new(storage.clone(), patience.clone())),
        None => storage.clone(),
    };
    let sinks = open_sinks(program, &sinks_storage, &directory)?;
    let mut options = DurabilityOptions {
        commit_age_max: setting.commit_age_max,
        sync: setting.sync,
        is_final: setting.is_final,
        ..DurabilityOptions::default()
    };
    options.savepoint = setting.seed.is_multiple_of(4).then(|| START.into());
    options.checkpoint_events = checkpoint_events(setting.seed).unwrap_or(options.checkpoint_events);
    let clock = Arc::new(SimulatedClock::default());
    let environment: Arc<dyn Environment> = match &setting.drive {
        Drive::Threads => Arc::new(SimEnvironment::new(setting.seed, setting.workers)),
        Drive::Steps(..) => Arc::new(SteppedEnvironment::new(clock.clone(), setting.workers)),
    };
    let request = Request {
        options: Options {
            workers: setting.workers,
            epoch: setting.epoch,
            scheduling: setting.scheduling,
            // A memory limit is refused where all rows of a table are read.
            memory: setting.memory.filter(|_| engine.program().scan().is_none()),
            ..Options::default()
        },
        control: control.clone(),
        durability: Some(Durability { directory, options }),
        ..Request::new(sources, sinks, environment)
    };
    let Drive::Steps(machine, traces) = &setting.drive else { return engine.run(request, &mut || {}) };
    let mut run = engine.begin(request, &mut || {})?;
    let mut traces = traces.lock();
    let seed = setting.seed ^ (traces.len() as u64).rotate_left(32);
    let trace = step_through(&mut run, seed, &clock, machine).unwrap_or_else(|stuck| panic!("{stuck}"));
    traces.push(trace);
    run.end()
}

/// Returns a fault that may end a process.
fn fault(random: &mut Random, planted: Planted) -> Fault {
    use ErrorKind::{Other, StorageFull, TimedOut};
    match random.below(14) {
        // This bug shows only where a checkpoint finds no room and the run goes on.
        _ if planted.is(Bug::SnapshotForgetsFailed) => Fault::Half(StorageFull),
        0..4 => Fault::CutBefore,
        4..8 => Fault::CutAfter,
        8 => Fault::Refused(Other),
        9 => Fault::Applied(TimedOut),
        10 => Fault::Half(StorageFull),
        11 | 12 => Fault::Flipped,
        _ => Fault::Dropped([Other, StorageFull][random.below(2)]),
    }
}

/// Counts of a trial.
#[derive(Default)]
pub struct Outcome {
    /// Processes that ended by a fault.
    pub crashes: u64,
    /// The crashed processes that had an earlier one to recover from.
    pub in_recovery: u64,
    /// Processes that were asked to end early.
    pub stops: u64,
    /// The number of epochs that several workers accessed, in processes that came to an end, by policy.
    pub shared: BTreeMap<String, u64>,
}

/// Runs a history to its end on a machine, which a stepped drive must name too: through up to three processes each of
/// which may end at any call, and then without a fault.
pub fn run(
    expected: &Expected,
    mut engine: Engine,
    mut setting: Setting,
    storage: &SimStorage,
) -> (Engine, Result<Outcome, String>) {
    let mut random = Random::new(setting.seed ^ 0x5eed);
    let mut outcome = Outcome::default();
    let lives = 1 + random.below(3);
    // The last head that each life has shown.
    let mut shown = Vec::new();
    let mut last_calls = 60 + 200 * random.below(2);
    // A flag: whether a file may hold a part of its output, as a life may have come to an end that was not for good.
    let mut stopped = false;
    // Until a life has come to the end of the input, that is a pause.
    let mut pauses = random.chance(30);
    for life in 0..lives + 8 {
        engine = engine.with_empty_tables();
        let start = storage.call_count();
        setting.stop = None;
        setting.is_final = !pauses || life >= lives;
        stopped |= !setting.is_final;
        if life < lives && random.chance(25) {
            setting.stop = Some(random.below(40));
        } else if life < lives {
            // Recovery is short: half of the later processes end in it.
            let span = if life > 0 && random.chance(50) { 40 } else { last_calls };
            // A fault that ends nothing, as a disk that is full for a moment, may be followed by another.
            for _ in 0..1 + random.below(2) {
                storage.fail(start + random.below(span), fault(&mut random, setting.planted));
            }
        }
        let (control, on) = (Arc::<Control>::default(), Arc::new(storage.clone()) as _);
        let ended = process_under(&expected.subject.history, &engine, &on, &setting, &control);
        shown.extend(control.head.lock().take());
        last_calls = (storage.call_count() - start).max(10);
        storage.heal();
        for ran in ended.iter().flat_map(|summary| &summary.policies).filter(|ran| ran.workers > 1) {
            *outcome.shared.entry(ran.policy.clone()).or_default() += ran.epochs;
        }
        let wrong = match ended {
            Ok(_) if setting.stop.is_some() && !storage.is_off() => {
                outcome.stops += 1;
                stopped = true;
                None
            }
            Ok(_) if !setting.is_final && !storage.is_off() => {
                pauses = false;
                None
            }
            Ok(_) if !storage.is_off() => {
                let wrong = expected
                    .wrong_outputs(|path| read_all(storage, path), Whole::There)
                    .or_else(|| expected.wrong_tables(&engine));
                if life >= lives || wrong.is_some() {
                    let audited = setting.records && random.chance(50);
                    let wrong = wrong.or_else(|| match audited {
                        true => unverified(&expected.subject.history, storage, &setting, &shown),
                        false => None,
                    });
                    // After a run has ended, a power cut loses nothing.
                    storage.cut_power();
                    let wrong = wrong.or_else(|| expected.wrong_outputs(|path| read_all(storage, path), Whole::There));
                    return (engine, wrong.map_or(Ok(outcome), Err));
                }
                None
            }
            Err(RunError::Panic(message)) => Some(format!("panic: {message}")),
            Ok(_) | Err(_) if life < lives => {
                outcome.crashes += 1;
                outcome.in_recovery += u64::from(life > 0);
                None
            }
            Ok(_) => Some("the power is off".into()),
            Err(error) => Some(format!("without a fault: {error}")),
        };
        match storage.is_off() && random.chance(75) {
            true => storage.cut_power(),
            false => storage.kill(),
        }
        let wrong = match setting.records && random.chance(20) {
            true => wrong.or_else(|| unverified(&expected.subject.history, storage, &setting, &shown)),
            false => wrong,
        };
        let check = if stopped { Whole::Prefix } else { Whole::IfThere };
        let wrong = wrong.or_else(|| expected.wrong_outputs(|path| read_all(storage, path), check));
        if let Some(wrong) = wrong {
            return (engine, Err(format!("life {life}: {wrong}")));
        }
    }
    (engine, Err("it does not come to an end".into()))
}
