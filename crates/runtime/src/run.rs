//! A run: its actors, and the two ways to drive them.
//!
//! | actor | does | wakes |
//! |---|---|---|
//! | reader, one per source | reads batches | gate |
//! | gate | gathers epochs and cuts them | workers, logger, readers |
//! | worker, several | prepares, accesses and finishes epochs | workers, committer |
//! | committer | answers calls, hands results over | gate, logger, checkpointer, releaser |
//! | releaser | gives results to sinks | committer |
//! | logger, in a durable run | appends what the gate took | committer, gate |
//! | checkpointer, in a durable run | writes checkpoints, merges runs | |
//! | reader of keys, in a durable run with calls that have keys | looks keys up in runs | gate |
//!
//! [`Run::on_threads`] gives each actor a thread, which waits for the actor's bell if there is nothing to do; workers
//! wait together, at the pipeline. [`Run::step`] performs one step of one actor on the caller's thread: every fair
//! order of steps gives the same results.

use crate::ahead::RunTime;
use crate::commit::{CommitParts, Committer};
use crate::engine::{Engine, Request};
use crate::gather::{GatherParts, Gatherer};
use crate::inputs::{EndOfInput, Inputs};
use crate::options::Options;
use crate::pipeline::{Pipeline, StageWorker};
use crate::reader::Reader;
use crate::records::Records;
use crate::release::{Backlog, ReleaseParts, ReleaseSide, Releaser};
use crate::session::OfRun;
use crate::session::at_gate::AtGate;
use crate::session::link::Link;
use crate::session::retries::Retries;
use crate::session::waiting::LookUps;
use crate::summary::Summary;
use crate::watched::{Begun, Watched};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::time::Duration;
use tidemill_durability::{Course, Planted, StateError};
use tidemill_io::{IoFailure, Source};
use tidemill_plan::{Program, StreamId};
use tidemill_recovery::{
    Bells, Checkpointer, CommitSide, Durable, Ending, Failure, Kept, KeyReader, Logger, Parts, Remembered, RunError,
    Shared,
};
use tidemill_stages::access::indexes;
use tidemill_stages::access::scheduling::Scheduling;
use tidemill_stages::actor::{Actor, Bell, Progress, drive, mailbox};
use tidemill_stages::environment::{Environment, Joined};
use tidemill_stages::epoch::Epoch;

/// The interval at which the watcher of a run polls.
const TICK: Duration = Duration::from_millis(50);

/// The number of epochs in addition to one per worker that may have a task: one in access, one being gathered.
const EPOCHS_BESIDE: usize = 2;

/// A run that has begun.
pub struct Run {
    on: Shared,
    pipeline: Arc<Pipeline>,
    started: u64,
    readers: Vec<Driven<Reader>>,
    gate: Driven<Gatherer>,
    workers: Vec<Driven<StageWorker>>,
    committer: Driven<Committer>,
    releaser: Driven<Releaser>,
    durable: Option<(Driven<Logger>, Driven<Checkpointer>)>,
    /// In a session with a state whose calls have keys.
    key_reader: Option<Driven<KeyReader>>,
    ending: Option<Ending>,
    remembered: Arc<Remembered>,
    time: Arc<RunTime>,
    /// The number of the first epoch.
    first: u64,
}

/// An actor of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorName {
    /// The reader of a source.
    Reader(usize),
    /// The gate.
    Gate,
    /// A worker.
    Worker(usize),
    /// The committer.
    Committer,
    /// The releaser.
    Releaser,
    /// The logger.
    Logger,
    /// The checkpointer.
    Checkpointer,
    /// The reader of keys.
    KeyReader,
}

/// An actor and its bell.
struct Driven<A> {
    actor: A,
    bell: Arc<Bell>,
    is_over: bool,
}

impl<A: Actor> Driven<A> {
    fn new(actor: A, bell: Arc<Bell>) -> Driven<A> {
        Driven { actor, bell, is_over: false }
    }

    fn step(&mut self) -> Progress {
        if self.is_over {
            return Progress::Over;
        }
        let progress = self.actor.step();
        self.is_over = progress == Progress::Over;
        progress
    }
}

/// Returns the number of workers: at most as many as were asked for, and no more than can run at once, which would only
/// take processors from each other. If more are asked for in access, there are as many.
pub fn workers(options: &Options, parallelism: usize) -> usize {
    let useful = match options.scheduling {
        Scheduling::FixedOn(fixed) => parallelism.max(fixed.workers.get() as usize),
        _ => parallelism.max(1),
    };
    if options.workers == 0 { useful.min(parallelism.max(1)) } else { options.workers.min(useful) }
}

/// Refuses to read events without event time beside events with one.
fn check_sent(program: &Program, sources: &[Box<dyn Source>]) -> Result<(), RunError> {
    for (stream, source) in program.sources().zip(sources) {
        if let Some(other) = program.sent_beside(stream).filter(|_| !source.is_sent()) {
            let failure = IoFailure::new(format!(
                "its events have no event time, but those of source '{}' have one: they can be sent, and not be read",
                other.name
            ));
            return Err(RunError::Source { name: stream.name.clone(), failure });
        }
    }
    Ok(())
}

impl Run {
    /// Opens the state, if there is one, and creates the actors.
    /// `link`: to the session that it belongs to, if it belongs to one.
    pub(crate) fn begin(
        engine: &Engine,
        mut request: Request,
        link: Option<Arc<Link>>,
        tick: &mut dyn FnMut(),
    ) -> Result<Run, RunError> {
        let cutter = request.take_cutter();
        let Request { sources, mut sinks, options, environment, control, durability, records, idle, watched, .. } =
            request;
        let started = environment.now();
        check_sent(engine.program(), &sources)?;
        if options.memory.is_some() && durability.is_none() {
            return Err(RunError::State(StateError::Refused(
                "a memory limit needs a state, in whose checkpoints the other rows are; give a state directory, or no limit".into(),
            )));
        }
        if let Some((transaction, role)) = engine.program().scan().filter(|_| options.memory.is_some()) {
            return Err(RunError::State(StateError::Refused(format!(
                "transaction '{}' reads all rows of table '{}', and a memory limit would keep only some of them; \
                 give no limit, or read the rows by their keys",
                transaction.name,
                engine.program().tables[role.table].name
            ))));
        }
        let failure = Arc::new(Failure::default());
        let on = Shared { machine: engine.machine.clone(), environment: environment.clone(), control, failure };
        let open = |durability| Durable::open(durability, options.memory, &on, &mut sinks, tick);
        let durable = durability.map(open).transpose()?;
        indexes::forget(&on.machine);
        let first = durable.as_ref().map_or(1, Durable::first_epoch);
        let count = workers(&options, environment.parallelism());
        let failure = on.failure.clone();
        let bells = Bells::default();
        let gate = bells.gate.clone();
        let pipeline = Pipeline::new(on.machine.clone(), environment.clone(), failure, options, count, first, gate);
        let pipeline = Arc::new(pipeline);
        let slot_count = pipeline.seats() + EPOCHS_BESIDE;
        let (free, slots) = mailbox(None, &bells.gate, None);
        for _ in 0..slot_count {
            free.send(Box::new(Epoch::new(&on.machine.program, &on.machine.code, &on.machine.wiring)));
        }
        let (finished, to_commit) = mailbox(None, &bells.committer, None);
        let sent =
            sources.iter().enumerate().filter(|(_, source)| source.is_sent()).map(|(number, _)| number).collect();
        let end = match &durable {
            None => EndOfInput::Ends,
            Some(durable) if durable.is_final() => EndOfInput::Final,
            Some(_) => EndOfInput::Pauses,
        };
        let hashes = durable.as_ref().is_some_and(|durable| durable.proves());
        let (inputs, readers) = Inputs::new(sources, &bells.gate, &on.environment, &on.control, end, hashes);
        let worker = |id| {
            let worker = StageWorker::new(pipeline.clone(), id, count, finished.clone(), link.clone());
            Driven::new(worker, Arc::new(Bell::default()))
        };
        let workers = (0..count).map(worker).collect();
        let parts = durable.map(|durable| durable.divide(&on, &bells));
        let (mut remembered, mut planted) = (Arc::<Remembered>::default(), Planted::default());
        let (at_gate, at_commit, durable, ending) = match parts {
            None => (None, None, None, None),
            Some(Parts { gate, commit, logger, checkpointer, ending, remembered: before }) => {
                (remembered, planted) = (before, commit.planted);
                let logger = Driven::new(logger, bells.logger.clone());
                let checkpointer = Driven::new(checkpointer, bells.checkpointer.clone());
                (Some(gate), Some(commit), Some((logger, checkpointer)), Some(ending))
            }
        };
        if link.is_none() {
            // Nobody asks for the events of its streams, so none are kept.
            remembered.kept.keep(&[], first);
        }
        let sink_vitals = on.control.vitals.begin(sinks.len(), bells.gate.clone());
        let releases = at_commit.as_ref().map(|side: &CommitSide| ReleaseSide {
            released: side.released.clone(),
            checkpoints: side.checkpoints.clone(),
            captured: side.captured.clone(),
            commit_age_max: side.options.commit_age_max.as_nanos() as u64,
        });
        let (release_bell, backlog) = (Arc::new(Bell::default()), Arc::new(Backlog::default()));
        let (release, results) = mailbox(None, &release_bell, Some(&bells.committer));
        let retries = Arc::new(Retries::new(&on.machine, remembered.clone(), on.control.clone(), planted));
        let has_keys = link.is_some() && at_gate.is_some() && !retries.remembering().is_empty();
        let (look_ups, key_reader) = has_keys.then(|| key_reader(&retries, &on, &bells.gate)).unzip();
        let session = link.as_ref().map(|link| AtGate::new(link.clone(), link.connect(&bells.gate), sent, look_ups));
        let time = RunTime::new(environment.clone(), on.control.clone(), retries.last_key.clone());
        let time = Arc::new(time);
        let committer = Committer::new(CommitParts {
            retries: retries.clone(),
            on: on.clone(),
            pipeline: pipeline.clone(),
            release,
            backlog: backlog.clone(),
            finished: to_commit,
            free,
            records: records.map(Records::new),
            first,
            durable: at_commit,
            link: link.clone(),
        });
        let releaser = Releaser::new(ReleaseParts {
            on: on.clone(),
            pipeline: pipeline.clone(),
            sinks,
            sink_vitals,
            results,
            backlog,
            report: committer.report(),
            durable: releases,
            link,
        });
        let gate = Gatherer::new(GatherParts {
            on: on.clone(),
            pipeline: pipeline.clone(),
            inputs,
            options,
            cutter,
            slots: (slots, slot_count),
            first,
            durable: at_gate,
            session,
            idle,
            retries,
            time: time.clone(),
        });
        let run = Run {
            pipeline,
            started,
            readers: readers.into_iter().map(|(reader, bell)| Driven::new(reader, bell)).collect(),
            gate: Driven::new(gate, bells.gate),
            workers,
            committer: Driven::new(committer, bells.committer),
            releaser: Driven::new(releaser, release_bell),
            durable,
            key_reader,
            ending,
            remembered,
            time,
            first,
            on,
        };
        run.wake_at_failure();
        run.show(&watched);
        Ok(run)
    }

    /// Keeps the last events of streams from now on; gives what is kept of them already. Called before its first step.
    pub(crate) fn keep(&self, streams: &[(StreamId, usize)]) -> Vec<Kept> {
        self.remembered.kept.keep(streams, self.first)
    }

    /// Shows it to those who watch.
    fn show(&self, watched: &Watched) {
        watched.begin(Begun {
            machine: self.on.machine.clone(),
            control: self.on.control.clone(),
            environment: self.on.environment.clone(),
            report: self.committer.actor.report(),
            started: self.started,
            savepoints: self.ending.as_ref().map(Ending::savepoints),
        });
    }

    /// Returns the parts of the run that a session needs.
    pub(crate) fn for_session(&self) -> OfRun {
        let releaser = self.releaser.bell.clone();
        let savepoints = self.ending.as_ref().map(Ending::savepoints);
        let planted = self.ending.as_ref().map(Ending::planted).unwrap_or_default();
        let (pipeline, report) = (self.pipeline.clone(), self.committer.actor.report());
        let course = self.ending.as_ref().map(Ending::course);
        let course = course.unwrap_or_else(|| Course { id: self.on.environment.unique(), number: 0 });
        OfRun {
            releaser,
            course,
            report,
            pipeline,
            started: self.started,
            time: self.time.clone(),
            savepoints,
            planted,
        }
    }

    /// Makes every failure wake all actors, which see it and exit.
    fn wake_at_failure(&self) {
        let mut bells = vec![self.gate.bell.clone(), self.committer.bell.clone(), self.releaser.bell.clone()];
        bells.extend(self.readers.iter().map(|reader| reader.bell.clone()));
        if let Some((logger, checkpointer)) = &self.durable {
            bells.extend([logger.bell.clone(), checkpointer.bell.clone()]);
        }
        bells.extend(self.key_reader.iter().map(|reader| reader.bell.clone()));
        let pipeline = self.pipeline.clone();
        self.on.failure.wakes(move || {
            pipeline.tasks().stop();
            bells.iter().for_each(|bell| bell.ring());
        });
    }

    /// Returns its actors.
    pub fn actors(&self) -> Vec<ActorName> {
        let readers = (0..self.readers.len()).map(ActorName::Reader);
        let workers = (0..self.workers.len()).map(ActorName::Worker);
        let durable = self.durable.iter().flat_map(|_| [ActorName::Logger, ActorName::Checkpointer]);
        let last = [ActorName::Committer, ActorName::Releaser];
        let keys = self.key_reader.iter().map(|_| ActorName::KeyReader);
        readers.chain([ActorName::Gate]).chain(workers).chain(last).chain(durable).chain(keys).collect()
    }

    /// Performs one step of an actor on this thread. Panics if the run has no such actor.
    pub fn step(&mut self, actor: ActorName) -> Progress {
        const DURABLE: &str = "only a durable run has that actor";
        let progress = match actor {
            ActorName::Reader(source) => self.readers[source].step(),
            ActorName::Gate => self.gate.step(),
            ActorName::Worker(worker) => self.workers[worker].step(),
            ActorName::Committer => self.committer.step(),
            ActorName::Releaser => self.releaser.step(),
            ActorName::Logger => self.durable.as_mut().expect(DURABLE).0.step(),
            ActorName::Checkpointer => self.durable.as_mut().expect(DURABLE).1.step(),
            ActorName::KeyReader => self.key_reader.as_mut().expect(DURABLE).step(),
        };
        self.look();
        progress
    }

    /// Returns whether all actors are over, except for readers, which may wait for input that is no longer taken.
    pub fn is_over(&self) -> bool {
        let is_over = self.gate.is_over && self.releaser.is_over && self.committer.is_over;
        let is_over = is_over && self.workers.iter().all(|worker| worker.is_over);
        let is_over = is_over && self.key_reader.as_ref().is_none_or(|reader| reader.is_over);
        is_over && self.durable.as_ref().is_none_or(|(logger, checkpointer)| logger.is_over && checkpointer.is_over)
    }

    /// Passes on the watcher's observations, and counts its poll.
    fn look(&self) {
        self.on.control.poll(&self.on.failure);
        if let Some(ending) = self.ending.as_ref().filter(|_| self.gate.is_over && self.releaser.is_over) {
            ending.hurry();
        }
    }

    /// Ends a run that is over: returns its summary or its first failure.
    pub fn end(self) -> Result<Summary, RunError> {
        assert!(self.is_over(), "a run ends when its actors are over");
        let Run { on, started, mut gate, committer, durable, ending, .. } = self;
        if let Some(error) = on.failure.take() {
            return Err(error);
        }
        let log = durable.and_then(|(logger, _)| logger.actor.end());
        let gathered = gate.actor.end(log);
        let report = committer.actor.end();
        let durability = match (ending, gathered.left) {
            (Some(ending), Some(left)) => Some(ending.end(&on.machine, left)?),
            _ => None,
        };
        let elapsed = on.environment.now() - started;
        let mut summary = report.lock().summary(&on.machine.program, &gathered.positions, gathered.stopped, elapsed);
        summary.sources.iter_mut().zip(gathered.again).for_each(|(source, again)| source.again = again);
        Ok(Summary { durability, ..summary })
    }

    /// Runs to the end, with a thread for each actor. `tick` is called on this thread, first of all and then from time to
    /// time.
    pub fn on_threads(self, tick: &mut dyn FnMut()) -> Result<Summary, RunError> {
        let Run { on, pipeline, started, readers, gate, workers, durable, ending, remembered, first, time, .. } = self;
        let Run { committer, releaser, key_reader, .. } = self;
        let control = on.control.clone();
        let mut look = || {
            control.poll(&on.failure);
            tick();
        };
        look();
        // If this thread panics, or cannot start another thread, the existing threads exit.
        let guard = SetOnPanic(&on.failure);
        let threads = Threads { environment: &on.environment, failure: &on.failure };
        let workers: Vec<_> = workers.into_iter().map(|worker| threads.spawn("worker", worker, work)).collect();
        let durable = durable.map(|(logger, checkpointer)| {
            (threads.spawn("log", logger, life), threads.spawn("checkpoint", checkpointer, life))
        });
        let key_reader = key_reader.map(|reader| threads.spawn("keys", reader, life));
        let committer = threads.spawn("committer", committer, life);
        let mut releaser = threads.spawn("releaser", releaser, life);
        let mut gate = threads.spawn("gate", gate, life);
        let readers: Vec<_> = readers.into_iter().map(|reader| threads.spawn("source", reader, life)).collect();
        releaser.watch(&mut look);
        gate.watch(&mut look);
        std::mem::forget(guard);
        ending.iter().for_each(Ending::hurry);
        let workers: Vec<_> = workers.into_iter().map(|worker| worker.join(&on.failure)).collect();
        let durable = durable.map(|(logger, checkpointer)| {
            // The state is in use until the logger has exited.
            (logger.join(&on.failure), checkpointer.join(&on.failure))
        });
        let (committer, releaser) = (committer.join(&on.failure), releaser.join(&on.failure));
        let gate = gate.join(&on.failure);
        let key_reader = key_reader.and_then(|reader| reader.join(&on.failure));
        if !on.control.stops() && !on.failure.is_set() {
            // In the other cases a source may wait for input that never comes; its reader exits after the next record.
            readers.into_iter().for_each(|reader| _ = reader.join(&on.failure));
        }
        if let Some(error) = on.failure.take() {
            return Err(error);
        }
        let early = || RunError::Panic("a thread ended early".into());
        let durable = match durable {
            Some((logger, checkpointer)) => Some((logger.ok_or_else(early)?, checkpointer.ok_or_else(early)?)),
            None => None,
        };
        let workers = workers.into_iter().collect::<Option<_>>().ok_or_else(early)?;
        let (committer, gate) = (committer.ok_or_else(early)?, gate.ok_or_else(early)?);
        let releaser = releaser.ok_or_else(early)?;
        Run {
            on,
            pipeline,
            started,
            readers: Vec::new(),
            gate,
            workers,
            committer,
            releaser,
            durable,
            key_reader,
            ending,
            remembered,
            first,
            time,
        }
        .end()
    }
}

/// Makes the reader of keys, and the way from the gate to it.
fn key_reader(retries: &Retries, on: &Shared, gate: &Arc<Bell>) -> (LookUps, Driven<KeyReader>) {
    let bell = Arc::new(Bell::default());
    let ((ask, asked), (found, answers)) = (mailbox(None, &bell, None), mailbox(None, gate, None));
    let reader = KeyReader::new(retries.remembering().to_vec(), asked, found, on.failure.clone());
    (LookUps { ask, found: answers }, Driven::new(reader, bell))
}

/// The main function of most actors' threads.
fn life<A: Actor>(driven: &mut Driven<A>, environment: &dyn Environment) {
    drive(&mut driven.actor, &driven.bell, environment);
}

/// The main function of a worker's thread.
fn work(driven: &mut Driven<StageWorker>, _: &dyn Environment) {
    driven.actor.run();
}

/// Starts threads for actors.
struct Threads<'a> {
    environment: &'a Arc<dyn Environment>,
    failure: &'a Arc<Failure>,
}

/// An actor on its thread.
struct Thread<A> {
    thread: Box<dyn Joined>,
    /// Receives the actor when it is over.
    over: Receiver<Driven<A>>,
    /// The actor, if it was received already.
    arrived: Option<Driven<A>>,
}

impl Threads<'_> {
    /// Starts an actor's thread. If it panics, all other actors exit instead of waiting for it. The actor, with its
    /// ends of mailboxes, is dropped only after the failure is visible, so that no other actor takes the closed mailbox
    /// for a normal end of the run.
    fn spawn<A: Actor + 'static>(
        &self,
        name: &str,
        driven: Driven<A>,
        life: fn(&mut Driven<A>, &dyn Environment),
    ) -> Thread<A> {
        let (done, over): (Sender<Driven<A>>, _) = bounded(1);
        let (environment, failure) = (self.environment.clone(), self.failure.clone());
        let body = move || {
            // Locals are dropped in reverse order.
            let mut driven = driven;
            let guard = SetOnPanic(&failure);
            life(&mut driven, &*environment);
            std::mem::forget(guard);
            driven.is_over = true;
            let _ = done.send(driven);
        };
        Thread { thread: self.environment.spawn(name, Box::new(body)), over, arrived: None }
    }
}

impl<A> Thread<A> {
    /// Waits until the actor is over; calls `look` from time to time meanwhile, and once more at the end.
    fn watch(&mut self, look: &mut dyn FnMut()) {
        self.arrived = loop {
            match self.over.recv_timeout(TICK) {
                Ok(driven) => break Some(driven),
                Err(RecvTimeoutError::Timeout) => look(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        look();
    }

    /// Waits until the thread has ended; returns the actor, none if it panicked.
    fn join(self, failure: &Failure) -> Option<Driven<A>> {
        if let Err(message) = self.thread.join() {
            failure.set(RunError::Panic(message));
        }
        self.arrived.or_else(|| self.over.try_recv().ok())
    }
}

/// Sets a failure when a thread panics.
struct SetOnPanic<'a>(&'a Failure);

impl Drop for SetOnPanic<'_> {
    fn drop(&mut self) {
        self.0.set(RunError::Panic("a thread of the run panicked".into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_workers_start_than_can_run_at_once_unless_they_are_asked_for() {
        let of = |scheduling: &str, asked, processors| {
            let scheduling = scheduling.parse().expect("a scheduling");
            workers(&Options { workers: asked, scheduling, ..Options::default() }, processors)
        };
        assert_eq!([of("auto", 0, 8), of("auto", 3, 8), of("auto", 64, 8), of("transaction", 64, 8)], [8, 3, 8, 8]);
        assert_eq!(
            [
                of("transaction@16", 64, 8),
                of("transaction@16", 12, 8),
                of("transaction@16", 0, 8),
                of("transaction@2", 64, 8)
            ],
            [16, 12, 8, 8]
        );
        assert_eq!(of("auto", 0, 0), 1);
    }
}
