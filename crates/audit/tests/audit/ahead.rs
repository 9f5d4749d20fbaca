//! Sources whose events may not be far ahead of the clock, read by runs whose clocks are a year apart and that crash between:
//! what was refused stays refused, for replays and for the audit.

use crate::bank::open;
use crate::trials;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_audit::{show, verify};
use tidemill_connect::{SinkDurability, System, WriteJsonl};
use tidemill_durability::{Bug, Identity, OpenState, Planted, Recorded, StateDirectory, Storage};
use tidemill_histories::Random;
use tidemill_io::{BadRecord, IoFailure, Next, Resumed, Sink, SinkConnection, Source, SourceBatch, Splits};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, SourceBuilder, bad, cell, committed, event, late, literal, named};
use tidemill_plan::{Ahead, Plan, Stream, analyze};
use tidemill_runtime::{
    Bell, Durability, DurabilityOptions, Engine, Environment, EpochSize, Joined, Options, Request, RunError,
};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 60;
/// Runs of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 4;
const RECORDS: usize = 40;
/// The clock of the first run.
const NOW: i64 = 1_800_000_000_000_000;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
const YEAR: i64 = 365 * DAY;

/// A machine whose clock stands.
struct At {
    system: System,
    time: i64,
}

impl Environment for At {
    fn now(&self) -> u64 {
        self.system.now()
    }

    fn time(&self) -> Option<i64> {
        Some(self.time)
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        self.system.spawn(name, body)
    }

    fn parallelism(&self) -> usize {
        2
    }

    fn wait(&self, bell: &Bell, until: Option<u64>) {
        self.system.wait(bell, until);
    }
}

/// Two sources whose transactions do not commute.
fn plan() -> Plan {
    let source = |s: SourceBuilder| {
        s.event_time("at", Type::Time).field("n", Type::Int).lateness(5 * SECOND).ahead(Ahead::Most(DAY))
    };
    let mut plan = PlanBuilder::new("ahead")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("adds", source)
        .source("multiplies", source);
    for (name, source, factor) in [("add", "adds", 1), ("multiply", "multiplies", 31)] {
        plan = plan
            .transaction(name, [named(source)], |t| {
                t.create("row", "rows", [event("n") % literal(3)]).body(|b| {
                    b.set("row", "value", (cell("row", "value") * literal(factor) + event("n")) % literal(1_000_003));
                    b.give([("n", event("n")), ("value", cell("row", "value"))]);
                })
            })
            .sink(format!("{source}.done"), committed(name))
            .sink(format!("{source}.late"), late(source))
            .sink(format!("{source}.bad"), bad(source));
    }
    plan.build()
}

/// Returns the records of a source: some are half a year ahead of the first clock.
fn records(random: &mut Random) -> Vec<Vec<Value>> {
    let record = |n: usize| {
        let far = if random.chance(20) { YEAR / 2 + random.below(3) as i64 * SECOND } else { 0 };
        let at = NOW + (n as i64 - random.below(8) as i64) * SECOND + far;
        vec![Value::Time(at), Value::Int(n as i64)]
    };
    (0..RECORDS).map(record).collect()
}

/// Records, with a bad one before each seventh.
#[derive(Clone)]
struct Records {
    schema: Schema,
    records: Arc<Vec<Vec<Value>>>,
    next: usize,
    size: usize,
    /// A flag: it can be read again; otherwise it is given again.
    replays: bool,
}

impl Source for Records {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let end = (self.next + self.size).min(self.records.len());
        let batch = &self.records[self.next..end];
        let bad = (self.next..end).zip(0..).filter(|(n, _)| n % 7 == 3);
        let bad = bad.map(|(n, after)| BadRecord { line: Some(n as u64), after, ..BadRecord::default() }).collect();
        self.next = end;
        let batch = SourceBatch { events: batch_of(&self.schema, batch), bad };
        Ok(Some(batch).filter(|batch| batch.events.num_rows() > 0).into())
    }

    fn replays(&self) -> bool {
        self.replays
    }

    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::Anew)
    }
}

/// Several of them.
struct InSplits(Vec<Records>);

impl Splits for InSplits {
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure> {
        Ok((known.len()..self.0.len()).map(|number| number.to_string()).collect())
    }

    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        Ok(Box::new(self.0[name.parse::<usize>().expect("a number")].clone()))
    }
}

impl Source for InSplits {
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }

    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        panic!("its splits are read")
    }

    fn replays(&self) -> bool {
        self.0[0].replays
    }
}

/// The input of a trial: by source, the records of its splits.
struct Input {
    parts: Vec<Vec<Arc<Vec<Vec<Value>>>>>,
    seed: u64,
}

impl Input {
    fn of(seed: u64) -> Input {
        let mut random = Random::new(seed);
        let mut part = || Arc::new(records(&mut random));
        Input { parts: vec![vec![part()], vec![part(), part()]], seed }
    }

    fn source(&self, number: usize, stream: &Stream) -> Box<dyn Source> {
        let (replays, size) = (self.seed & (1 << number) != 0, 1 + self.seed as usize % 7);
        let part = |records: &Arc<Vec<Vec<Value>>>| Records {
            schema: stream.schema.clone(),
            records: Arc::clone(records),
            next: 0,
            size,
            replays,
        };
        let mut parts: Vec<Records> = self.parts[number].iter().map(part).collect();
        if number == 1 { Box::new(InSplits(parts)) } else { Box::new(parts.remove(0)) }
    }
}

fn run(machine: &SimStorage, input: &Input, time: i64, is_final: bool, planted: Planted) -> Result<u64, RunError> {
    let (plan, seed) = (plan(), input.seed);
    let program = analyze(&plan).expect("a right plan");
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let recorded = Recorded { plan, sources: BTreeMap::new(), sinks: BTreeMap::new() };
    let mut directory = StateDirectory::open(OpenState {
        storage: storage.clone(),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(&program),
        recorded: Some(recorded),
    })?;
    directory.plant(planted);
    if !directory.is_new() && directory.savepoint("start").is_err() {
        directory.create_savepoint("start")?;
    }
    let durable = SinkDurability::of(&directory, storage);
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for sink in &program.sinks {
        let file = WriteJsonl { path: format!("out/{}", sink.name), compression: None };
        let failed = |failure| RunError::Sink { name: sink.name.clone(), failure };
        sinks.push(file.open(&program.streams[sink.stream].schema, Some(&durable)).map_err(failed)?);
    }
    let sources = program.sources().enumerate().map(|(number, stream)| input.source(number, stream)).collect();
    let options = DurabilityOptions {
        savepoint: Some("start".into()),
        checkpoint_events: 40 + seed % 50,
        is_final,
        ..DurabilityOptions::default()
    };
    let epoch = if seed.is_multiple_of(2) { EpochSize::Auto } else { EpochSize::Events(1 + seed as usize % 9) };
    let request = Request {
        options: Options { workers: 2, epoch, ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(sources, sinks, Arc::new(At { system: System::new(), time }))
    };
    let summary = Engine::new(program).expect("it compiles").run(request, &mut || {})?;
    Ok(summary.durability.expect("it has a state").replayed_events)
}

/// The numbers of events and crashes in trials.
#[derive(Debug, Default)]
struct Counts {
    crashes: u64,
    replayed: u64,
    /// Events that were too far ahead.
    refused: u64,
}

/// Runs one trial. Returns what was wrong with it.
fn trial(seed: u64, planted: Planted, counts: &mut Counts) -> Result<(), String> {
    let (machine, input, mut random) = (SimStorage::new(seed), Input::of(seed), Random::new(seed));
    machine.create_directory(Path::new("out")).expect("no fault");
    for life in 0..LIVES {
        let is_last = life + 1 == LIVES;
        if !is_last {
            let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
            machine.fail(machine.call_count() + random.below(120), fault);
        }
        let time = if life == 0 { NOW } else { NOW + [0, YEAR, -YEAR / 4][random.below(3)] };
        let ended = run(&machine, &input, time, is_last, planted);
        machine.heal();
        match ended {
            Err(_) if machine.is_off() => {
                counts.crashes += 1;
                machine.cut_power();
            }
            Err(error) => return Err(error.to_string()),
            Ok(replayed) => counts.replayed += replayed,
        }
    }
    let again =
        |_: &StateDirectory, stream: &Stream| Ok(Some(input.source(usize::from(stream.name == "multiplies"), stream)));
    let verified = verify(&open(&machine), Some("start"), &again).map_err(|error| error.to_string())?;
    if !verified.tables_compared {
        return Err("no table was compared".into());
    }
    let lines = |name: &str| -> Vec<String> {
        let text = String::from_utf8(machine.files()[Path::new(&format!("out/{name}"))].clone()).expect("a text");
        text.lines().map(str::to_owned).collect()
    };
    for (source, parts) in ["adds", "multiplies"].into_iter().zip(&input.parts) {
        let [done, late, bad] = ["done", "late", "bad"].map(|what| lines(&format!("{source}.{what}")));
        let refused: Vec<&String> = bad.iter().filter(|line| line.contains("is too far ahead of the clock")).collect();
        counts.refused += refused.len() as u64;
        let undecodable = parts.len() * (0..RECORDS).filter(|n| n % 7 == 3).count();
        let found = [done.len() + late.len() + refused.len(), bad.len() - refused.len()];
        if found != [parts.len() * RECORDS, undecodable] {
            return Err(format!("{source} has {} records, and {found:?} are found", parts.len() * RECORDS));
        }
    }
    Ok(())
}

#[test]
fn what_was_too_far_ahead_of_a_clock_stays_so_whatever_later_clocks_show() {
    let mut counts = Counts::default();
    trials(TRIALS, |seed| {
        trial(seed, Planted::default(), &mut counts).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        counts.crashes > TRIALS / 2 && counts.replayed > 0 && counts.refused > 100
    });
}

/// The bug is found by its symptom, and the same trial passes without it.
#[test]
fn a_replay_that_asks_its_clock_is_found() {
    let run = |seed, planted| trial(seed, planted, &mut Counts::default());
    // If the log has no digest of the epoch, the audit alone notices.
    let shows = |wrong: &String| wrong.contains("comes to other results now than when it was logged");
    let found =
        (0..TRIALS).find(|&seed| run(seed, Planted::new(Bug::ReplayAsksClock)).err().as_ref().is_some_and(shows));
    let seed = found.expect("it is found");
    run(seed, Planted::default()).unwrap_or_else(|same| panic!("seed {seed} fails without the bug, too: {same}"));
}

#[test]
fn an_event_that_was_refused_is_shown_with_its_reason() {
    let (machine, input) = (SimStorage::new(2), Input::of(2));
    machine.create_directory(Path::new("out")).expect("no fault");
    run(&machine, &input, NOW, true, Planted::default()).expect("no fault");
    let again =
        |_: &StateDirectory, stream: &Stream| Ok(Some(input.source(usize::from(stream.name == "multiplies"), stream)));
    let mut kinds = [0; 2];
    for (offset, record) in input.parts[0][0].iter().enumerate() {
        let position = format!("adds:{offset}").parse().expect("a position");
        let text = show(&open(&machine), &position, &again).expect("it is there");
        let is_far = record[0].word() > Some(NOW + DAY);
        kinds[usize::from(is_far)] += 1;
        assert_eq!(text.contains("is a bad record: 2027-07-"), is_far, "{text}");
        assert!(text.starts_with(&format!("adds:{offset} ")) && text.contains(&format!("n = {offset}\n")), "{text}");
    }
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
}
