//! The beginning of a durable run: opens the state, fills the tables, and creates the actors and shared data that keep
//! the state during the run.

use crate::buffer_manager::BufferManager;
use crate::checkpoint::{AtRest, Remembered, SourceAt, restore_sources, save};
use crate::checkpointer::{CheckpointState, Checkpointer, CopyPace, Work};
use crate::control::{Control, Failure, RunError};
use crate::digest::Digests;
use crate::end::Ending;
use crate::entry::LogSchemas;
use crate::eviction::{Demand, MemoryControl};
use crate::feed::{CheckpointTrigger, LogFeed};
use crate::intake::Intake;
use crate::lateness::keep_marks;
use crate::load::load;
use crate::log_room::LogRoom;
use crate::logger::{LogState, Logged, Logger};
use crate::packed::PackedCodec;
use crate::replay::{Replay, Start};
use crate::unkept::Unkept;
use crate::{Durability, DurabilityOptions, Proving, Sync};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Fit, Log, LogReader, Planted, StateDirectory, StateError};
use tidemill_io::{Recovered, Sink};
use tidemill_plan::Program;
use tidemill_stages::actor::{Bell, Inbox, Outbox, mailbox};
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::{Logging, Machine};
use tidemill_state::Generation;

/// The number of entries that may wait for the log; it bounds the memory that they take.
const ENTRIES_MAX: usize = 16;

/// The objects that the parts of a run share.
#[derive(Clone)]
pub struct Shared {
    /// Program, code and tables.
    pub machine: Arc<Machine>,
    /// Clock and threads.
    pub environment: Arc<dyn Environment>,
    /// Progress and requests.
    pub control: Arc<Control>,
    /// The first failure.
    pub failure: Arc<Failure>,
}

/// The bells of the actors in a durable run.
#[derive(Clone, Default)]
pub struct Bells {
    /// The gate's.
    pub gate: Arc<Bell>,
    /// The committer's.
    pub committer: Arc<Bell>,
    /// The logger's.
    pub logger: Arc<Bell>,
    /// The checkpointer's.
    pub checkpointer: Arc<Bell>,
}

/// A durable run before it begins.
pub struct Durable {
    directory: StateDirectory,
    options: DurabilityOptions,
    log: OpenLog,
    /// The positions of the sources in the checkpoint.
    sources: Vec<SourceAt>,
    furthest: Furthest,
    /// A flag: whether that may be later than the durable epochs.
    was_weak: bool,
    /// The last epoch that each sink has committed, by sink.
    released: Vec<u64>,
    /// The epoch of the newest checkpoint.
    checkpoint: u64,
    buffers: Option<Arc<BufferManager>>,
    /// The remembered results of the checkpoint's epochs.
    remembered: Arc<Remembered>,
}

enum OpenLog {
    New(Log),
    Old(LogReader),
}

/// The parts of a durable run.
pub struct Parts {
    /// The part of the gate.
    pub gate: GateSide,
    /// The part of the committer.
    pub commit: CommitSide,
    /// The actor that keeps the log.
    pub logger: Logger,
    /// The actor that takes checkpoints.
    pub checkpointer: Checkpointer,
    /// The part that ends the run.
    pub ending: Ending,
    /// The remembered results of the checkpoint's epochs, to which the committer adds.
    pub remembered: Arc<Remembered>,
}

/// The gate's part of a durable run.
pub struct GateSide {
    /// The beginning of the log; taken when the run begins.
    pub(crate) start: Option<Start>,
    /// The positions of the sources in the checkpoint; taken when the run begins.
    pub sources: Vec<SourceAt>,
    /// Logs the records that are taken.
    pub feed: LogFeed,
    /// Decides when a checkpoint is due.
    pub trigger: CheckpointTrigger,
    /// The memory control, with a memory limit.
    pub memory: Option<MemoryControl>,
    /// A flag: whether the run ends after the replay.
    pub replay_only: bool,
    /// The operators that are closed before it ends.
    pub ends: Vec<String>,
    /// A flag: whether what is taken from sources that can be read again is hashed.
    pub proves: bool,
    /// The bug that is planted, if any.
    pub planted: Planted,
}

/// The committer's part of a durable run.
pub struct CommitSide {
    /// The results of epochs that are needed after them: answers to repeated calls, and kept events of streams.
    pub remembered: Arc<Remembered>,
    /// The progress of the log.
    pub logged: Inbox<Logged>,
    /// The epoch up to which an earlier run has committed, by sink.
    pub released: Vec<u64>,
    /// Shared with gate and checkpointer.
    pub checkpoints: Arc<CheckpointState>,
    /// Shared with gate and logger.
    pub digests: Arc<Digests>,
    /// The channel to the checkpointer; dropped after the last epoch is committed.
    pub captured: Option<Outbox<crate::checkpointer::Captured>>,
    /// The options.
    pub options: DurabilityOptions,
    /// The epoch of the newest checkpoint.
    pub checkpoint: u64,
    /// The channel that tells the logger that results wait for their digests, with full logging. Dropped after the last
    /// one.
    pub results: Option<Outbox<()>>,
    /// The bug that is planted, if any.
    pub planted: Planted,
}

impl GateSide {
    /// Takes the beginning of the log. Call it once.
    pub fn take_start(&mut self) -> Start {
        self.start.take().expect("a run begins once")
    }
}

impl Durable {
    /// Fills the tables from the newest checkpoint, or makes the first checkpoint of them. With a limit of `memory`
    /// bytes the tables stay empty, and rows are read when they are needed. `tick` is called from time to time.
    pub fn open(
        durability: Durability,
        memory: Option<usize>,
        on: &Shared,
        sinks: &mut [Box<dyn Sink>],
        tick: &mut dyn FnMut(),
    ) -> Result<Durable, RunError> {
        let Shared { machine, environment, control, failure } = on;
        let Durability { mut directory, options } = durability;
        if options.proof == Proving::On {
            directory.hash_runs();
        }
        fit(&mut directory, &machine.program)?;
        let was_weak = directory.is_weak();
        if options.sync != Sync::Epoch {
            directory.weaken(true)?;
        }
        let (log, sources) = if directory.is_new() {
            (OpenLog::New(begin(&mut directory, machine, &options)?), Vec::new())
        } else {
            if memory.is_none() {
                load(&directory, machine, environment, control, tick)?;
            }
            let sources = restore_sources(&directory, &machine.program)?;
            machine.stand_after(directory.checkpoint().map_or(0, |checkpoint| checkpoint.passed_before));
            if options.proof == Proving::On {
                directory.begin_chain()?;
            }
            let mut log = directory.log()?;
            if options.proof == Proving::Off {
                log.prove(None);
            }
            (OpenLog::Old(log), sources)
        };
        let remembered = Arc::new(Remembered::read(&directory, machine, options.keys_in_memory)?);
        let buffers = memory.map(|limit| BufferManager::begin(limit, &directory, machine, failure)).transpose()?;
        let checkpoint = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let (released, furthest) = recover_sinks(&directory, machine, sinks)?;
        let buffers = buffers.map(Arc::new);
        Ok(Durable { directory, options, log, sources, furthest, was_weak, released, checkpoint, buffers, remembered })
    }

    /// Returns the number of the first epoch of the run.
    pub fn first_epoch(&self) -> u64 {
        self.checkpoint + 1
    }

    /// Returns whether the end of the sources' input is the end for good.
    pub fn is_final(&self) -> bool {
        self.options.is_final
    }

    /// Returns whether what is taken from sources that can be read again is hashed.
    pub fn proves(&self) -> bool {
        self.options.proof == Proving::On
    }

    /// Divides the run into the parts of its actors.
    pub fn divide(self, on: &Shared, bells: &Bells) -> Parts {
        let Durable { directory, options, log, sources, furthest, was_weak, mut released, checkpoint, .. } = self;
        let Durable { buffers, remembered, .. } = self;
        let program = &on.machine.program;
        let planted = directory.planted();
        if planted.is(Bug::ReplayReleasesAgain) {
            released.fill(0);
        }
        let before = directory.checkpoint().map(|checkpoint| &checkpoint.outputs);
        let total = |sink: &tidemill_plan::Sink| before.and_then(|b| b.get(&sink.name)).copied().unwrap_or_default();
        let digests = Arc::new(Digests::new(program.sinks.iter().map(total).collect()));
        let log_state = Arc::new(LogState::default());
        let checkpoints = Arc::new(CheckpointState::default());
        checkpoints.committed.store(checkpoint, Ordering::Release);
        let path = directory.path().to_owned();
        let directory = Arc::new(Mutex::new(directory));

        let (told, logged) = mailbox(None, &bells.committer, None);
        let (entries, to_log) = mailbox(Some(ENTRIES_MAX), &bells.logger, Some(&bells.gate));
        let (begin_log, log_begins) = mailbox(Some(1), &bells.logger, None);
        let (captured, to_keep) = mailbox(Some(1), &bells.checkpointer, None);
        let (spills, spilled) = mailbox(Some(1), &bells.checkpointer, None);
        let (results, to_note) = match on.machine.logging {
            Logging::Border => (None, None),
            Logging::Full => Some(mailbox(Some(1), &bells.logger, None)).unzip(),
        };

        let start = match log {
            OpenLog::New(log) => Start::New(Box::new(log)),
            OpenLog::Old(reader) => Start::Replay(Box::new(Replay {
                reader,
                schemas: LogSchemas::of(program),
                machine: on.machine.clone(),
                digests: digests.clone(),
                checkpoint,
                path: path.display().to_string(),
                released: furthest,
                was_weak,
            })),
        };
        let memory = buffers.clone().map(|buffers| MemoryControl {
            buffers,
            machine: on.machine.clone(),
            environment: on.environment.clone(),
            directory: directory.clone(),
            checkpoints: checkpoints.clone(),
            spilled: spills,
            planted,
            events_max: usize::MAX,
            demand: Demand::default(),
        });
        let feed = LogFeed {
            intake: Intake::new(0, []),
            entries: Some(entries),
            start: Some(begin_log),
            told: Some(told.clone()),
            log_state: log_state.clone(),
            room: LogRoom::of(directory.lock().storage().clone(), path),
        };
        let trigger = CheckpointTrigger {
            options: options.clone(),
            checkpoints: checkpoints.clone(),
            log_state: log_state.clone(),
            buffers: buffers.clone(),
            remembered: remembered.clone(),
            planted,
            unkept: Unkept::default(),
            tried: None,
            generation: Generation::default(),
            is_after_due: false,
        };
        let (replay_only, ends, proves) = (options.replay_only, options.ends.clone(), options.proof == Proving::On);
        Parts {
            gate: GateSide { start: Some(start), sources, feed, trigger, memory, replay_only, ends, proves, planted },
            commit: CommitSide {
                remembered: remembered.clone(),
                logged,
                released,
                checkpoints: checkpoints.clone(),
                digests: digests.clone(),
                captured: Some(captured),
                options: options.clone(),
                checkpoint,
                results,
                planted,
            },
            logger: Logger {
                start: log_begins,
                log: None,
                entries: to_log,
                results: to_note,
                results_epoch: 0,
                codec: PackedCodec::default(),
                payload: Vec::new(),
                told: Some(told),
                control: on.control.clone(),
                failure: on.failure.clone(),
                state: log_state.clone(),
                digests: digests.clone(),
                environment: on.environment.clone(),
                gate: bells.gate.clone(),
                options: options.clone(),
                pushed: None,
                synced: 0,
                waits: None,
                truncate: 0,
            },
            checkpointer: Checkpointer {
                directory: directory.clone(),
                machine: on.machine.clone(),
                environment: on.environment.clone(),
                control: on.control.clone(),
                begun: 0,
                captured: to_keep,
                spilled,
                state: checkpoints.clone(),
                log_state: log_state.clone(),
                buffers: buffers.clone(),
                remembered: remembered.clone(),
                failure: on.failure.clone(),
                pace: CopyPace::default(),
                work: Work::Nothing,
                savepoints: Vec::new(),
                lacks_room: false,
                merge: None,
                merges: false,
            },
            ending: Ending {
                directory,
                log_state,
                checkpoints,
                digests,
                buffers,
                sync: options.sync,
                remembered: remembered.clone(),
            },
            remembered,
        }
    }
}

/// Makes the first checkpoint of a new state, from the current tables; returns its log.
fn begin(directory: &mut StateDirectory, machine: &Machine, options: &DurabilityOptions) -> Result<Log, RunError> {
    let generation = Generation::default();
    let outputs = BTreeMap::new();
    let proof = (options.proof == Proving::On).then(|| directory.first_proof(0));
    let state = AtRest { epoch: 0, sources: Vec::new(), outputs, generation, whole: true, live: None, proof };
    let first = save(directory, machine, state, None)?;
    let mut log = directory.begin(first)?;
    assert_eq!(log.epoch(), 0, "a new log begins after the first checkpoint");
    if let Some(name) = &options.savepoint {
        directory.create_savepoint(name)?;
        log.hold(Some(0));
    }
    Ok(log)
}

/// The sink that has committed most, and its last epoch.
type Furthest = Option<(u64, String)>;

/// Returns the last epoch that each sink has committed, and the sink that is furthest. Refuses a sink that lacks output
/// that the state cannot reproduce.
fn recover_sinks(
    directory: &StateDirectory,
    machine: &Machine,
    sinks: &mut [Box<dyn Sink>],
) -> Result<(Vec<u64>, Furthest), RunError> {
    let checkpoint = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    let (mut released, mut furthest) = (Vec::new(), None);
    for (sink, definition) in sinks.iter_mut().zip(&machine.program.sinks) {
        let name = definition.name.clone();
        let recovered = sink.recover().map_err(|failure| RunError::Sink { name: name.clone(), failure })?;
        let Recovered::Through(epoch) = recovered else {
            released.push(0);
            continue;
        };
        let begins = directory.manifest().and_then(|manifest| manifest.begins.get(&name).copied());
        let epoch = epoch.or(begins).unwrap_or(0);
        if epoch < checkpoint {
            return Err(RunError::State(StateError::Refused(format!(
                "sink '{name}' has the output of epochs up to {epoch}, and the state {} begins after epoch \
                 {checkpoint}: the output between them is not there any more, and cannot be made again",
                directory.path().display()
            ))));
        }
        if furthest.as_ref().is_none_or(|(most, _)| *most < epoch) {
            furthest = Some((epoch, name));
        }
        released.push(epoch);
    }
    assert_eq!(released.len(), machine.program.sinks.len(), "each sink says what it has committed");
    Ok((released, furthest))
}

/// Makes a state that was opened for a changed program one of that program. Logged epochs cannot be migrated: the
/// changed code would compute results other than those that were released.
fn fit(directory: &mut StateDirectory, program: &Program) -> Result<(), StateError> {
    let path = directory.path().display().to_string();
    match directory.fit() {
        Fit::Same if directory.is_recorded_otherwise() && !directory.has_logged()? => {
            let checkpoint = directory.checkpoint().cloned().unwrap_or_default();
            directory.adopt(checkpoint)
        }
        Fit::Same => Ok(()),
        Fit::Changed(_) if directory.has_logged()? => Err(StateError::Refused(format!(
            "the state {path} was left by a crash, and the program has changed since: run the program as it was until \
             it ends or is stopped, then this one"
        ))),
        Fit::Changed(_) => {
            let manifest = directory.manifest().expect("only what has begun has changed");
            let mut checkpoint = manifest.checkpoint.clone();
            keep_marks(&mut checkpoint, &manifest.program, program);
            directory.adopt(checkpoint)
        }
        Fit::Migrates(_) => Err(StateError::Refused(format!("the state {path} is to be migrated first"))),
        Fit::Refused(why) => Err(StateError::Refused(format!("the state {path} {why}"))),
    }
}
