//! A durable run's beginning and end.

use super::capture::{Captured, CheckpointState, Checkpointer};
use super::checkpoint::{AtRest, SourceAt, merge, restore_sources, save};
use super::digest::Digests;
use super::intake::Intake;
use super::load::load;
use super::logger::LogState;
use super::logger::{Logged, note};
use super::packed::PackedCodec;
use super::recovery::{DurableGate, Start};
use super::residence::Residence;
use super::{Durability, DurabilityOptions, Logging, Recovery, Sync};
use crate::commit::DurableCommit;
use crate::engine::{Control, Failure, RunError};
use crate::environment::{Environment, Joined};
use crate::gather::Gathered;
use crate::io::{Recovered, Sink};
use crate::pipeline::Pipeline;
use crate::summary::DurabilitySummary;
use crate::worker::Machine;
use crossbeam_channel::{Receiver, bounded, unbounded};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Fit, Log, StateDirectory, StateError, Written};
use tidemill_model::StreamDigest;
use tidemill_plan::Program;
use tidemill_state::Generation;

/// A durable run before its threads begin.
pub struct Durable {
    directory: StateDirectory,
    options: DurabilityOptions,
    start: Start,
    sources: Vec<SourceAt>,
    /// By sink.
    released: Vec<u64>,
    /// The most that a sink has committed, and which.
    furthest: Option<(u64, String)>,
    checkpoint: u64,
    /// Whether an earlier run may have released what is not durable.
    was_weak: bool,
    residence: Option<Arc<Residence>>,
}

/// What is left to do when the threads have gone.
pub struct Finish {
    directory: Arc<Mutex<StateDirectory>>,
    log_state: Arc<LogState>,
    checkpoints: Arc<CheckpointState>,
    digests: Arc<Digests>,
    /// For the checkpointer, until it is started.
    captured: Option<Receiver<Captured>>,
    spilled: Receiver<()>,
    residence: Option<Arc<Residence>>,
    /// The logger's thread, once the gate has started it.
    logger: Arc<Mutex<Option<Box<dyn Joined>>>>,
}

impl Durable {
    /// Fills the tables from the newest checkpoint, or makes the first one of them. With a limit of `memory`, in
    /// bytes, the tables stay empty, and rows are read when they are needed. `tick` is called now and then.
    #[allow(clippy::too_many_arguments, reason = "all that a run has, once")]
    pub fn open(
        durability: Durability,
        memory: Option<usize>,
        machine: &Arc<Machine>,
        sinks: &mut [Box<dyn Sink>],
        environment: &Arc<dyn Environment>,
        control: &Arc<Control>,
        failure: &Arc<Failure>,
        tick: &mut dyn FnMut(),
    ) -> Result<Durable, RunError> {
        let Durability { mut directory, options } = durability;
        fit(&mut directory)?;
        let was_weak = directory.is_weak();
        if options.sync != Sync::Epoch {
            directory.weaken(true)?;
        }
        let new = directory.is_new();
        let (start, sources) = if new {
            let generation = Generation::default();
            let outputs = BTreeMap::new();
            let state = AtRest { epoch: 0, sources: Vec::new(), outputs, generation, whole: true, live: None };
            let first = save(&mut directory, machine, state)?;
            let mut log = directory.begin(first)?;
            if let Some(name) = &options.savepoint {
                directory.create_savepoint(name)?;
                log.hold(Some(0));
            }
            (Start::New(log), Vec::new())
        } else {
            if memory.is_none() {
                load(&directory, machine, environment, control, tick)?;
            }
            let sources = restore_sources(&directory, &machine.program)?;
            (Start::Recover(directory.log()?), sources)
        };
        let residence = memory.map(|limit| Residence::begin(limit, &directory, machine, failure)).transpose()?;
        let residence = residence.map(Arc::new);
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
                    "sink '{name}' has the output of epochs up to {epoch}, and the state {} begins behind epoch \
                     {checkpoint}: the output between them is not there any more, and cannot be made again",
                    directory.path().display()
                ))));
            }
            if furthest.as_ref().is_none_or(|(most, _)| *most < epoch) {
                furthest = Some((epoch, name));
            }
            released.push(epoch);
        }
        Ok(Durable { directory, options, start, sources, released, furthest, checkpoint, was_weak, residence })
    }

    /// The number of the first epoch that will be put in.
    pub fn first_epoch(&self) -> u64 {
        self.checkpoint + 1
    }

    /// The parts of a durable run: for its end, for the gate, for the committer.
    pub fn divide(
        durable: Option<Durable>,
        Machine { program, logging, .. }: &Machine,
        control: &Arc<Control>,
    ) -> (Option<Finish>, Option<DurableGate>, Option<DurableCommit>) {
        let Some(durable) = durable else { return (None, None, None) };
        let Durable { directory, options, start, sources, mut released, furthest, checkpoint, was_weak, residence } =
            durable;
        if directory.planted().is(Bug::ReplayReleasesAgain) {
            released.fill(0);
        }
        let before = directory.checkpoint().map(|checkpoint| &checkpoint.outputs);
        let total = |sink: &tidemill_plan::Sink| before.and_then(|b| b.get(&sink.name)).copied().unwrap_or_default();
        let digests = Arc::new(Digests::new(program.sinks.iter().map(total).collect()));
        let log_state = Arc::new(LogState::default());
        let checkpoints = Arc::new(CheckpointState::default());
        checkpoints.committed.store(checkpoint, Ordering::Release);
        let (sender, logged) = unbounded();
        let (to_checkpointer, captured) = bounded(1);
        let (spill, spilled) = bounded(1);
        let logger = Arc::new(Mutex::new(None));
        let (path, planted) = (directory.path().display().to_string(), directory.planted());
        let directory = Arc::new(Mutex::new(directory));
        let (results, waiting) = match logging {
            Logging::Border => (None, None),
            Logging::Full => Some(bounded(1)).unzip(),
        };
        let gate = DurableGate {
            start: Some(start),
            checkpoint,
            sources,
            path,
            released: furthest,
            was_weak,
            durable: Some(sender),
            results: waiting,
            log_state: log_state.clone(),
            control: control.clone(),
            options: options.clone(),
            logged: None,
            intake: Intake::new([]),
            entries: None,
            recovery: Recovery::default(),
            planted,
            logger: logger.clone(),
            checkpoints: checkpoints.clone(),
            digests: digests.clone(),
            events: 0,
            bytes: 0,
            generation: Generation::default(),
            is_behind_due: false,
            residence: residence.clone(),
            directory: directory.clone(),
            spilled: spill,
            events_max: usize::MAX,
            demand: Default::default(),
        };
        let commit = DurableCommit {
            logged,
            released,
            checkpoints: checkpoints.clone(),
            digests: digests.clone(),
            captured: to_checkpointer,
            options,
            pending: VecDeque::new(),
            written: Vec::new(),
            written_since: 0,
            durable: Logged { epoch: checkpoint, results: checkpoint },
            results,
            planted,
        };
        let captured = Some(captured);
        let finish = Finish { directory, log_state, checkpoints, digests, captured, spilled, residence, logger };
        (Some(finish), Some(gate), Some(commit))
    }
}

impl Finish {
    /// What takes checkpoints while the run goes on: a thread's life.
    pub fn checkpointer(
        &mut self,
        machine: &Arc<Machine>,
        environment: &Arc<dyn Environment>,
        failure: &Arc<Failure>,
        pipeline: &Arc<Pipeline>,
    ) -> Checkpointer {
        Checkpointer {
            directory: self.directory.clone(),
            machine: machine.clone(),
            environment: environment.clone(),
            captured: self.captured.take().expect("there is one checkpointer"),
            spilled: self.spilled.clone(),
            state: self.checkpoints.clone(),
            log_state: self.log_state.clone(),
            residence: self.residence.clone(),
            failure: failure.clone(),
            pipeline: pipeline.clone(),
        }
    }

    /// Has a checkpoint that is under way not rest any more: nothing else is.
    pub fn hurry(&self) {
        self.checkpoints.presses.store(true, Ordering::Relaxed);
    }

    /// Waits until the logger has come to rest, whatever became of the gate.
    pub fn join_logger(&self) {
        if let Some(thread) = self.logger.lock().take() {
            // Where it panicked, the failure is set.
            let _ = thread.join();
        }
    }

    /// Takes a last checkpoint, so that the next run begins where this one ended. Everything was
    /// committed.
    pub fn end(self, machine: &Machine, gathered: Gathered) -> Result<DurabilitySummary, RunError> {
        let Finish { directory, log_state, checkpoints, digests, residence, .. } = self;
        let shared = directory;
        let mut directory = shared.lock();
        let checkpoint = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let gate = gathered.durable.expect("a durable run has a durable gate");
        // Without a log the replay was broken off: the next run begins where this one began.
        let changed = gathered.epoch > checkpoint;
        let mut is_behind = false;
        let mut log = gate.end_log()?;
        if let Some(log) = &mut log {
            note_rest(log, &digests)?;
        }
        if let Some(mut log) = log
            && changed
        {
            let released = checkpoints.committed.load(Ordering::Acquire);
            if released < gathered.epoch {
                let epoch = gathered.epoch;
                return Err(RunError::Panic(format!("epochs up to {epoch} were run, and released up to {released}")));
            }
            if directory.planted().is(Bug::TruncatesFirst) {
                log.roll_now()?;
                log.truncate(gathered.epoch, usize::MAX)?;
            }
            let mut sources = gate.sources(&gathered.gate);
            for SourceAt { standing, .. } in &mut sources {
                if directory.planted().is(Bug::CheckpointForgetsHeld) {
                    standing.held.clear();
                }
                if directory.planted().is(Bug::CheckpointForgetsTimes) {
                    standing.greatest = None;
                }
            }
            let outputs = outputs(&machine.program, digests.total());
            let (generation, whole) = (gate.generation, checkpoints.whole.load(Ordering::Acquire));
            let live = residence.as_ref().map(|residence| residence.at_rest());
            let state = AtRest { epoch: gathered.epoch, sources, outputs, generation, whole, live };
            match save(&mut directory, machine, state) {
                // All is in the log, which the next run replays.
                Err(error) if error.is_no_room() => is_behind = true,
                saved => {
                    directory.switch(saved?)?;
                    // Everything is durable and released.
                    directory.weaken(false)?;
                    checkpoints.count.fetch_add(1, Ordering::Relaxed);
                    log.roll_now()?;
                    log.truncate(gathered.epoch, usize::MAX)?;
                }
            }
            drop(directory);
            if !is_behind {
                match merge(machine, &shared, &mut |_| {}) {
                    // All is in the checkpoint; there are more runs than there would be, until the next one.
                    Err(error) if error.is_no_room() => {}
                    merged => merged?,
                }
            }
            if let Some(residence) = residence.as_ref().filter(|_| !is_behind) {
                residence.end(&shared.lock(), &machine.tables)?;
                shared.lock().tidy()?;
            }
        }
        Ok(DurabilitySummary {
            epoch: gathered.epoch,
            log_bytes: log_state.bytes.load(Ordering::Relaxed),
            checkpoints: checkpoints.count.load(Ordering::Relaxed),
            replayed_epochs: gate.recovery.epochs,
            replayed_events: gate.recovery.events,
            lost_epochs: gate.recovery.lost,
            sync_seconds: match gate.options.sync {
                Sync::Epoch => None,
                Sync::Every(every) => Some(every.as_secs_f64()),
            },
            recovery_seconds: gate.recovery.nanoseconds as f64 / 1e9,
            is_behind,
            memory: residence.map(|residence| residence.summary()),
        })
    }
}

/// Notes the digests of epochs that were committed when the logger had come to its end.
fn note_rest(log: &mut Log, digests: &Digests) -> Result<(), StateError> {
    let rest = digests.take_unlogged(log.epoch());
    if rest.is_empty() {
        return Ok(());
    }
    note(log, &mut PackedCodec::default(), &rest);
    // Without room they are missing; nothing else depends on them.
    match log.write()? {
        Written::All => log.sync(),
        Written::Full(_) => Ok(()),
    }
}

/// Makes a state that was opened for a changed program one of that program. What is logged cannot change
/// hands: other code would come to other results than those that were released.
fn fit(directory: &mut StateDirectory) -> Result<(), StateError> {
    let path = directory.path().display().to_string();
    match directory.fit() {
        Fit::Same if directory.is_recorded_otherwise() && !directory.has_logged()? => {
            let checkpoint = directory.checkpoint().cloned().unwrap_or_default();
            directory.adopt(checkpoint)
        }
        Fit::Same => Ok(()),
        Fit::Changed if directory.has_logged()? => Err(StateError::Refused(format!(
            "the state {path} was left by a crash, and the program has changed since: run the program as it was until \
             it ends or is stopped, then this one"
        ))),
        Fit::Changed => {
            let checkpoint = directory.checkpoint().cloned().unwrap_or_default();
            directory.adopt(checkpoint)
        }
        Fit::Migrates(_) => Err(StateError::Refused(format!("the state {path} is to be migrated first"))),
        Fit::Refused(why) => Err(StateError::Refused(format!("the state {path} {why}"))),
    }
}

/// Digests by the names of the sinks.
pub fn outputs(program: &Program, total: Vec<StreamDigest>) -> BTreeMap<String, StreamDigest> {
    program.sinks.iter().map(|sink| sink.name.clone()).zip(total).collect()
}
