//! The committer: takes finished epochs in order, answers their calls, and hands their results to the releaser.
//!
//! Without durability results are handed over when the epoch is finished. In a durable run they wait until it is durable, while
//! its buffers return to the gate.
//!
//! # Invariant
//!
//! The releaser receives the results of each epoch once, in the order of epochs. In a durable run it receives none before the
//! epoch's entry in the log is durable (or, with the weaker sync, written). A call is answered once its epoch is durable in
//! this sense, or before if that is wanted, and never later because of a sink, unless the releaser's backlog is full; a replay
//! answers nobody.

use crate::pipeline::Pipeline;
use crate::records::Records;
use crate::release::{Backlog, Results, ToRelease};
use crate::report::Report;
use crate::session::calls::{Way, When};
use crate::session::link::Link;
use crate::session::retries::Retries;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::Bug;
use tidemill_io::IoFailure;
use tidemill_recovery::{Captured, CommitSide, Logged, RunError, Shared, Stage};
use tidemill_stages::actor::{Actor, Inbox, Outbox, Progress, Took};
use tidemill_stages::epoch::{Epoch, StageTimes};
use tidemill_stages::finish::answers::Answers;
use tidemill_stages::machine::Logging;

/// The time to wait if nothing is due, nanoseconds.
const IDLE: u64 = 20_000_000;

/// Answers calls, and hands results over.
pub struct Committer {
    on: Shared,
    pipeline: Arc<Pipeline>,
    /// The channel to the releaser; dropped after the last epoch.
    release: Option<Outbox<ToRelease>>,
    backlog: Arc<Backlog>,
    /// The channel from the workers.
    finished: Inbox<Box<Epoch>>,
    /// Empty epochs, to the gate; dropped after the last epoch.
    free: Option<Outbox<Box<Epoch>>>,
    report: Arc<Mutex<Report>>,
    records: Option<Records>,
    /// The finished epochs that wait for an earlier epoch to finish.
    waiting: BTreeMap<u64, Box<Epoch>>,
    /// The number of the next epoch in order.
    next: u64,
    /// A flag: whether the workers have exited.
    workers_exited: bool,
    /// A flag: whether the logger has exited.
    logger_exited: bool,
    durable: Option<DurableCommit>,
    /// The session that the run belongs to.
    link: Option<Arc<Link>>,
    retries: Arc<Retries>,
    is_over: bool,
}

/// The committer's state in a durable run.
struct DurableCommit {
    side: CommitSide,
    /// Finished epochs that are not durable yet, in order.
    pending: VecDeque<Pending>,
    /// The progress of the log.
    durable: Logged,
}

impl DurableCommit {
    fn is_durable(&self, pending: &Pending, logging: Logging) -> bool {
        // A replayed epoch has the results that are already in the log.
        let waits =
            logging == Logging::Full && !pending.results.replayed && !self.side.planted.is(Bug::ReleasesUnrecorded);
        let number = pending.results.number;
        number <= self.durable.epoch && (!waits || number <= self.durable.results)
    }
}

/// The rest of a finished epoch, after its buffers have returned to the gate.
struct Pending {
    results: Box<Results>,
    answers: Vec<Arc<Answers>>,
    way: Way,
}

/// The parts that a committer is made from.
pub struct CommitParts {
    pub on: Shared,
    pub pipeline: Arc<Pipeline>,
    /// The channel to the releaser.
    pub release: Outbox<ToRelease>,
    /// Shared with the releaser.
    pub backlog: Arc<Backlog>,
    pub finished: Inbox<Box<Epoch>>,
    pub free: Outbox<Box<Epoch>>,
    pub records: Option<Records>,
    /// The number of the first epoch.
    pub first: u64,
    pub durable: Option<CommitSide>,
    /// The session that the run belongs to.
    pub link: Option<Arc<Link>>,
    /// The calls with keys.
    pub retries: Arc<Retries>,
}

/// An incoming message.
enum Event {
    Finished(Box<Epoch>),
    Durable(Logged),
    Nothing,
    Over,
}

impl Actor for Committer {
    fn step(&mut self) -> Progress {
        if self.is_over {
            return Progress::Over;
        }
        let mut worked = true;
        match self.next_event() {
            Event::Finished(epoch) => {
                let before = self.waiting.insert(epoch.number, epoch);
                assert!(before.is_none(), "an epoch is finished once");
            }
            Event::Durable(logged) => self.durable_through(logged),
            Event::Nothing => worked = false,
            Event::Over => self.is_over = true,
        }
        while self.has_room()
            && let Some(mut epoch) = self.waiting.remove(&self.next)
        {
            worked = true;
            self.next += 1;
            self.take(&mut epoch);
            epoch.clear();
            if let Some(free) = &self.free {
                let _ = free.send(epoch);
            }
        }
        self.release();
        if self.is_over {
            self.finish();
            return Progress::Over;
        }
        if worked { Progress::Worked } else { Progress::Waits(Some(self.on.environment.now() + IDLE)) }
    }
}

impl Committer {
    /// Makes a committer before the first epoch.
    pub fn new(parts: CommitParts) -> Committer {
        let CommitParts { on, pipeline, release, backlog, finished, free, records, first, durable, link, retries } =
            parts;
        let durable = durable.map(|side| DurableCommit {
            pending: VecDeque::new(),
            durable: Logged { epoch: side.checkpoint, results: side.checkpoint },
            side,
        });
        Committer {
            report: Arc::new(Mutex::new(Report::new(&on.machine.program, &on.machine.groups, &on.machine.wiring))),
            release: Some(release),
            backlog,
            finished,
            free: Some(free),
            records,
            waiting: BTreeMap::new(),
            next: first,
            workers_exited: false,
            logger_exited: durable.is_none(),
            durable,
            link,
            retries,
            is_over: false,
            on,
            pipeline,
        }
    }

    /// Returns the counts of the run so far.
    pub fn report(&self) -> Arc<Mutex<Report>> {
        self.report.clone()
    }

    /// Returns the counts of the run, after it is over.
    pub fn end(self) -> Arc<Mutex<Report>> {
        assert!(self.is_over, "the committer is left when it is over");
        self.report
    }

    /// Returns the next incoming message.
    fn next_event(&mut self) -> Event {
        if !self.workers_exited {
            match self.finished.take() {
                Took::Message(epoch) => return Event::Finished(epoch),
                Took::Nothing => {}
                Took::Closed => {
                    self.workers_exited = true;
                    if let Some(durable) = &mut self.durable {
                        durable.side.results = None;
                    }
                }
            }
        }
        if let Some(durable) = self.durable.as_ref().filter(|_| !self.logger_exited) {
            match durable.side.logged.take() {
                Took::Message(logged) => return Event::Durable(logged),
                Took::Nothing => {}
                Took::Closed => self.logger_exited = true,
            }
        }
        // The last epochs may wait for the releaser. After a failure some may be missing, and the log may never end.
        let has_failed = self.on.failure.is_set();
        let is_taken = self.waiting.is_empty() || has_failed;
        let is_over = self.workers_exited && is_taken && (self.logger_exited || has_failed);
        if is_over { Event::Over } else { Event::Nothing }
    }

    /// Returns whether the releaser is close enough. After a failure it takes nothing more.
    fn has_room(&self) -> bool {
        !self.backlog.is_full() || self.on.failure.is_set()
    }

    /// Called after all epochs: has the sinks finished, if the run ended well.
    fn finish(&mut self) {
        self.free = None;
        // After an aborted replay there are epochs whose results are left to the next run.
        let whole = self.durable.as_ref().is_none_or(|durable| durable.pending.is_empty());
        // Operators that are ended give the last results of the program as it was.
        let goes_on = |durable: &DurableCommit| {
            let options = &durable.side.options;
            options.replay_only && options.ends.is_empty()
        };
        let go_on = self.durable.as_ref().is_some_and(goes_on);
        if !self.on.failure.is_set() && whole && !go_on {
            assert!(self.waiting.is_empty(), "no epoch is missing");
            self.send(ToRelease::Finish);
        }
        self.release = None;
        if let Some(durable) = &mut self.durable {
            durable.side.captured = None;
        }
        if let Some(records) = self.records.take() {
            let finished = records.finish();
            self.recorded(finished);
        }
    }

    fn send(&self, message: ToRelease) {
        // It has gone only if the run has failed.
        let _ = self.release.as_ref().expect("it goes after the last").send(message);
    }

    fn recorded(&self, done: Result<(), IoFailure>) {
        if let Err(failure) = done {
            self.on.failure.set(RunError::Sink { name: "epoch records".into(), failure });
        }
    }

    fn durable_through(&mut self, logged: Logged) {
        if let Some(durable) = &mut self.durable {
            durable.durable.epoch = durable.durable.epoch.max(logged.epoch);
            durable.durable.results = durable.durable.results.max(logged.results);
        }
    }

    /// Takes a finished epoch's results; without durability, writes them.
    fn take(&mut self, epoch: &mut Epoch) {
        let reached = self.on.environment.now();
        if !epoch.input.replayed {
            self.report.lock().add(epoch, &self.on.machine.wiring, reached);
            self.note_stages(epoch);
            let records = self.records.as_mut().filter(|_| !self.on.failure.is_set());
            let added = records
                .map_or(Ok(()), |records| records.add(epoch, &self.on.machine.groups, self.on.environment.as_ref()));
            self.recorded(added);
        }
        // An event that arrived before the gate had room for its epoch waited for earlier epochs. Larger epochs would
        // have shortened that wait, so it does not count.
        let oldest = epoch.input.arrivals.iter().map(|(arrived, _)| (*arrived).max(epoch.input.opened)).min();
        let (number, events, is_new) = (epoch.number, epoch.input.events, !epoch.input.replayed);
        let outputs = epoch.finished.outputs.iter_mut().map(std::mem::take).collect();
        let results = Box::new(Results {
            number: epoch.number,
            events: epoch.input.events as u64,
            reached,
            outputs,
            arrivals: std::mem::take(&mut epoch.input.arrivals),
            replayed: epoch.input.replayed,
            complete: epoch.input.complete,
            followed: std::mem::take(&mut epoch.finished.followed),
            tables: std::mem::take(&mut epoch.accessed.tables),
            has_snapshot: epoch.accessed.has_snapshot,
        });
        let mut pending =
            Pending { results, answers: std::mem::take(&mut epoch.finished.answers), way: Way::of(&epoch.times) };
        if !self.on.failure.is_set() {
            self.retries.finish(number, &pending.answers);
            // A worker has told them, unless there were some of an epoch before.
            tell(&pending, self.link.as_ref(), When::Executed);
        }
        match &mut self.durable {
            // After a failure the epoch's results may be wrong, because evicted rows that it needed could not be read:
            // they are discarded.
            Some(_) if self.on.failure.is_set() => {}
            Some(durable) => {
                let StageTimes { prepare, access, finish, .. } = epoch.times;
                durable.side.checkpoints.work.fetch_add(prepare + access + finish, Ordering::Relaxed);
                let Results { complete, followed, .. } = &*pending.results;
                durable.side.remembered.kept.finish(number, *complete, followed);
                if durable.side.planted.is(Bug::AnswersUnsynced) {
                    answer(&mut pending, &self.on, self.link.as_ref(), &self.retries);
                }
                durable.pending.push_back(pending);
                let digest = epoch.finished.digest.take().expect("a durable run digests its epochs");
                let agreed =
                    durable.side.digests.finished(epoch.number, digest, epoch.input.replayed, &self.on.machine.program);
                if let Err(error) = agreed {
                    self.on.failure.set(RunError::State(error));
                }
                durable.side.results.iter().for_each(|results| results.nudge(()));
                if let Some(captured) = durable.side.captured.as_ref().filter(|_| epoch.accessed.has_snapshot) {
                    let outputs = durable.side.digests.total();
                    let _ = captured.send(Captured { epoch: epoch.number, outputs });
                }
            }
            None => self.pass_on(pending),
        }
        // In a durable run, the latency excludes the wait for the log, which smaller epochs would not shorten.
        if let Some(oldest) = oldest.filter(|_| is_new) {
            let latency = self.on.environment.now().saturating_sub(oldest);
            self.pipeline.done(number, events, epoch.is_folded(), latency);
        }
    }

    /// Answers the epochs that have become durable, and hands them over.
    fn release(&mut self) {
        let (logging, now) = (self.on.machine.logging, self.on.environment.now());
        while let Some(durable) = &mut self.durable
            && durable.pending.front().is_some_and(|first| durable.is_durable(first, logging))
        {
            let mut pending = durable.pending.pop_front().expect("just looked at");
            self.on.control.vitals.stage(Stage::Log).add(now.saturating_sub(pending.results.reached), 1);
            pending.results.reached = now;
            pending.way.durable = Some(now);
            self.pass_on(pending);
        }
    }

    /// Answers the calls of an epoch, and hands its results to the releaser.
    fn pass_on(&self, mut pending: Pending) {
        answer(&mut pending, &self.on, self.link.as_ref(), &self.retries);
        self.backlog.add(&pending.results);
        self.send(ToRelease::Epoch(pending.results));
    }

    /// Notes how long an epoch was in the stages before the log.
    fn note_stages(&self, epoch: &Epoch) {
        let (vitals, times, opened) = (&self.on.control.vitals, &epoch.times, epoch.input.opened);
        let arrived = epoch.input.arrivals.iter().map(|(arrived, _)| *arrived).min().unwrap_or(opened);
        let of = [
            (Stage::Wait, opened.saturating_sub(arrived)),
            (Stage::Prepare, times.prepare),
            (Stage::Access, times.access),
            (Stage::Finish, times.finish),
        ];
        of.into_iter().for_each(|(stage, time)| vitals.stage(stage).add(time, 1));
    }
}

/// Answers the calls of an epoch that is durable. Sinks may commit it later: a crash before that replays it.
fn answer(pending: &mut Pending, on: &Shared, link: Option<&Arc<Link>>, retries: &Retries) {
    if on.failure.is_set() {
        return;
    }
    retries.release(pending.results.number);
    tell(pending, link, When::Durable);
    pending.answers = Vec::new();
}

/// Gives the outcomes of an epoch's calls to the callers that want them now. A replay answers nobody.
fn tell(pending: &Pending, link: Option<&Arc<Link>>, when: When) {
    if let Some(link) = link.filter(|_| !pending.results.replayed) {
        link.answer(pending.results.number, &pending.answers, pending.way, when);
    }
}
