//! The committer: passes epochs to the sinks, in order.
//!
//! Without durability an epoch is written when it is finished. In a durable run its outputs wait until it is durable,
//! while its buffers return to the gate; and sinks commit several epochs at once if these finish in quick succession.
//!
//! # Invariant
//!
//! A sink receives the output of each epoch once, in the order of epochs. In a durable run it receives none before the
//! epoch's entry in the log is durable (or, with the weaker sync, written), and no output of an epoch that it has
//! committed in an earlier run. A call is answered once its epoch is durable in this sense, or before if that is wanted; a
//! replay answers nobody.

use crate::pipeline::Pipeline;
use crate::records::Records;
use crate::report::Report;
use crate::session::calls::When;
use crate::session::link::Link;
use crate::session::retries::Retries;
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::Bug;
use tidemill_plan::StreamId;
use tidemill_recovery::{Captured, CommitSide, Logged, RunError, Shared};
use tidemill_stages::access::read::TableRead;
use tidemill_stages::actor::{Actor, Inbox, Outbox, Progress, Took};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::answers::Answers;
use tidemill_stages::io::{IoFailure, Sink};
use tidemill_stages::machine::Logging;

/// How long to wait if nothing is due, nanoseconds.
const IDLE: u64 = 20_000_000;

/// Writes epochs to the sinks.
pub struct Committer {
    on: Shared,
    pipeline: Arc<Pipeline>,
    sinks: Vec<Option<Box<dyn Sink>>>,
    /// From the workers.
    finished: Inbox<Box<Epoch>>,
    /// Empty epochs, to the gate; dropped after the last epoch.
    free: Option<Outbox<Box<Epoch>>>,
    report: Arc<Mutex<Report>>,
    records: Option<Records>,
    /// Finished epochs that wait for an earlier one.
    waiting: BTreeMap<u64, Box<Epoch>>,
    /// The number of the next epoch in order.
    next: u64,
    /// Whether the workers have exited.
    workers_exited: bool,
    /// Whether the logger has exited.
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
    /// Finished epochs whose results are not written yet, in order.
    pending: VecDeque<Pending>,
    /// Epochs that were written and are not committed yet.
    written: Vec<Pending>,
    /// When the first of these was written.
    written_since: u64,
    /// The progress of the log.
    durable: Logged,
}

impl DurableCommit {
    fn is_durable(&self, pending: &Pending, logging: Logging) -> bool {
        // A replayed epoch has the results that are already in the log.
        let waits = logging == Logging::Full && !pending.replayed && !self.side.planted.is(Bug::ReleasesUnrecorded);
        pending.number <= self.durable.epoch && (!waits || pending.number <= self.durable.results)
    }
}

/// The rest of a finished epoch, after its buffers have returned to the gate.
struct Pending {
    number: u64,
    events: u64,
    outputs: Vec<Vec<RecordBatch>>,
    arrivals: Vec<(u64, u64)>,
    replayed: bool,
    complete: Option<i64>,
    followed: Vec<(StreamId, Vec<RecordBatch>)>,
    tables: Vec<Arc<TableRead>>,
    answers: Vec<Arc<Answers>>,
}

/// The parts that a committer is made from.
pub struct CommitParts {
    pub on: Shared,
    pub pipeline: Arc<Pipeline>,
    pub sinks: Vec<Box<dyn Sink>>,
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
        while self.waiting.get(&self.next).is_some_and(|next| !self.waits_for_followers(next)) {
            let mut epoch = self.waiting.remove(&self.next).expect("it is there");
            worked = true;
            self.next += 1;
            self.take(&mut epoch);
            epoch.clear();
            if let Some(free) = &self.free {
                let _ = free.send(epoch);
            }
        }
        let waits = self.release();
        if self.is_over {
            self.finish();
            return Progress::Over;
        }
        if worked { Progress::Worked } else { Progress::Waits(waits) }
    }
}

impl Committer {
    /// A committer before the first epoch.
    pub fn new(parts: CommitParts) -> Committer {
        let CommitParts { on, pipeline, sinks, finished, free, records, first, durable, link, retries } = parts;
        let durable = durable.map(|side| DurableCommit {
            pending: VecDeque::new(),
            written: Vec::new(),
            written_since: 0,
            durable: Logged { epoch: side.checkpoint, results: side.checkpoint },
            side,
        });
        Committer {
            report: Arc::new(Mutex::new(Report::new(&on.machine.program, &on.machine.groups, &on.machine.wiring))),
            sinks: sinks.into_iter().map(Some).collect(),
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

    /// The counts of the run so far.
    pub fn report(&self) -> Arc<Mutex<Report>> {
        self.report.clone()
    }

    /// The counts of the run, after it is over.
    pub fn end(self) -> Arc<Mutex<Report>> {
        assert!(self.is_over, "the committer is left when it is over");
        self.report
    }

    /// The next incoming message.
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
        // The last epochs may wait for followers, one after the other. After a failure some may be missing, and the log
        // may never end.
        let has_failed = self.on.failure.is_set();
        let is_taken = self.waiting.is_empty() || has_failed;
        let is_over = self.workers_exited && is_taken && (self.logger_exited || has_failed);
        if is_over { Event::Over } else { Event::Nothing }
    }

    /// Whether an epoch has events for followers that have no room for more, so that it is not released. A run that ends
    /// waits for nobody.
    fn waits_for_followers(&self, epoch: &Epoch) -> bool {
        let is_full = |link: &Arc<Link>| link.has_no_room(&epoch.finished.followed);
        self.link.as_ref().is_some_and(is_full) && !self.on.control.ends()
    }

    /// Called after all epochs: finishes the sinks, if the run ended well.
    fn finish(&mut self) {
        self.free = None;
        // After an aborted replay there are epochs whose results are left to the next run.
        let whole = self.durable.as_ref().is_none_or(|durable| durable.pending.is_empty());
        let go_on = self.durable.as_ref().is_some_and(|durable| durable.side.options.replay_only);
        if !self.on.failure.is_set() && whole && !go_on {
            assert!(self.waiting.is_empty(), "no epoch is missing");
            for s in 0..self.sinks.len() {
                if let Some(sink) = self.sinks[s].take()
                    && let Err(failure) = sink.finish()
                {
                    self.failed(s, failure);
                }
            }
        }
        // A sink that is dropped unfinished leaves nothing under its final name.
        self.sinks.clear();
        if let Some(durable) = &mut self.durable {
            durable.side.captured = None;
        }
        if let Some(records) = self.records.take() {
            let finished = records.finish();
            self.recorded(finished);
        }
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
        if !epoch.input.replayed {
            self.report.lock().add(epoch, &self.on.machine.wiring, self.on.environment.now());
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
        let mut pending = Pending {
            number: epoch.number,
            events: epoch.input.events as u64,
            outputs,
            arrivals: std::mem::take(&mut epoch.input.arrivals),
            replayed: epoch.input.replayed,
            complete: epoch.input.complete,
            followed: std::mem::take(&mut epoch.finished.followed),
            tables: std::mem::take(&mut epoch.accessed.tables),
            answers: std::mem::take(&mut epoch.finished.answers),
        };
        if !self.on.failure.is_set() {
            self.retries.finish(pending.number, &pending.answers);
            // A worker has told them, unless there were some of an epoch before.
            tell(&pending, self.link.as_ref(), When::Executed);
        }
        match &mut self.durable {
            // After a failure the epoch's results may be wrong, because evicted rows that it needed could not be read:
            // they are discarded.
            Some(_) if self.on.failure.is_set() => {}
            Some(durable) => {
                durable.side.remembered.kept.finish(pending.number, pending.complete, &pending.followed);
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
            None => {
                let start = self.on.environment.now();
                answer(&mut pending, &self.on, self.link.as_ref(), &self.retries);
                self.write(&pending, true);
                self.report.lock().sinks(self.on.environment.now() - start);
                self.released(&mut pending);
            }
        }
        // In a durable run, the latency excludes the wait for the log, which smaller epochs would not shorten.
        if let Some(oldest) = oldest.filter(|_| is_new) {
            let latency = self.on.environment.now().saturating_sub(oldest);
            self.pipeline.done(number, events, epoch.is_folded(), latency);
        }
    }

    /// Writes the epochs that have become durable, and commits if that is due; returns the time until which nothing
    /// else is due.
    fn release(&mut self) -> Option<u64> {
        let over = self.is_over;
        let durable = self.durable.as_mut()?;
        let start = self.on.environment.now();
        let mut ready = Vec::new();
        while durable.pending.front().is_some_and(|first| durable.is_durable(first, self.on.machine.logging)) {
            ready.extend(durable.pending.pop_front());
        }
        if durable.written.is_empty() {
            durable.written_since = start;
        }
        for mut pending in ready {
            answer(&mut pending, &self.on, self.link.as_ref(), &self.retries);
            self.write(&pending, false);
            // A sink that needs the batches keeps them; held here until the commit, they would pile up and fall out of
            // all caches.
            pending.outputs = Vec::new();
            if let Some(durable) = &mut self.durable {
                assert!(durable.written.last().is_none_or(|last| last.number < pending.number), "in order");
                durable.written.push(pending);
            }
        }
        let durable = self.durable.as_ref().expect("looked at above");
        let age = self.on.environment.now().saturating_sub(durable.written_since);
        // A session waits for results: if nothing else is under way, no other epoch would share the commit.
        let is_awaited = self.link.is_some() && durable.pending.is_empty() && self.pipeline.tasks().is_idle();
        let due = over || is_awaited || age >= durable.side.options.commit_age_max.as_nanos() as u64;
        if due && !durable.written.is_empty() && !self.on.failure.is_set() {
            self.commit();
        }
        let now = self.on.environment.now();
        self.report.lock().sinks(now - start);
        let durable = self.durable.as_ref().expect("looked at above");
        let age_max = durable.side.options.commit_age_max.as_nanos() as u64;
        Some(if durable.written.is_empty() { now + IDLE } else { durable.written_since + age_max })
    }

    /// Makes all sinks commit the written epochs.
    fn commit(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        let mut written = std::mem::take(&mut durable.written);
        let epoch = written.last().expect("something was written").number;
        for commit in [false, true] {
            for s in 0..self.sinks.len() {
                let Some(sink) = self.sinks[s].as_mut().filter(|_| !self.on.failure.is_set()) else { continue };
                let done = if commit { sink.commit(epoch) } else { sink.prepare(epoch) };
                if let Err(failure) = done {
                    self.failed(s, failure);
                }
            }
        }
        if self.on.failure.is_set() {
            return;
        }
        if let Some(durable) = &mut self.durable {
            let before = durable.side.checkpoints.committed.swap(epoch, Ordering::AcqRel);
            assert!(before < epoch, "epochs are committed in order");
        }
        written.iter_mut().for_each(|pending| self.released(pending));
    }

    /// Writes an epoch's outputs, except to sinks that committed it in an earlier run.
    fn write(&mut self, pending: &Pending, flush: bool) {
        for (s, batches) in pending.outputs.iter().enumerate() {
            let committed = self.durable.as_ref().map_or(0, |durable| durable.side.released[s]);
            if let Some(sink) = &mut self.sinks[s]
                && !self.on.failure.is_set()
                && (self.durable.is_none() || pending.number > committed)
                && let Err(failure) = write(sink.as_mut(), batches, flush)
            {
                self.failed(s, failure);
            }
        }
    }

    /// Counts an epoch whose results were released.
    fn released(&mut self, pending: &mut Pending) {
        if pending.replayed {
            if let Some(link) = self.link.as_ref().filter(|_| !self.on.failure.is_set()) {
                link.release_again(pending.number, pending.complete, std::mem::take(&mut pending.followed));
            }
            return;
        }
        if let Some(link) = self.link.as_ref().filter(|_| !self.on.failure.is_set()) {
            let (followed, tables) = (std::mem::take(&mut pending.followed), std::mem::take(&mut pending.tables));
            link.release(pending.number, pending.complete, followed, tables);
        }
        self.report.lock().released(&pending.arrivals, self.on.environment.now());
        self.on.control.events.fetch_add(pending.events, Ordering::Relaxed);
        self.on.control.epochs.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, sink: usize, failure: IoFailure) {
        let name = self.on.machine.program.sinks[sink].name.clone();
        self.on.failure.set(RunError::Sink { name, failure });
    }
}

/// Answers the calls of an epoch that is durable. Sinks may commit it later: a crash before that replays it.
fn answer(pending: &mut Pending, on: &Shared, link: Option<&Arc<Link>>, retries: &Retries) {
    if on.failure.is_set() {
        return;
    }
    retries.release(pending.number);
    tell(pending, link, When::Durable);
    pending.answers = Vec::new();
}

/// Gives the outcomes of an epoch's calls to the callers that want them now. A replay answers nobody.
fn tell(pending: &Pending, link: Option<&Arc<Link>>, when: When) {
    if let Some(link) = link.filter(|_| !pending.replayed) {
        link.answer(pending.number, &pending.answers, when);
    }
}

fn write(sink: &mut dyn Sink, batches: &[RecordBatch], flush: bool) -> Result<(), IoFailure> {
    for batch in batches {
        sink.write(batch)?;
    }
    if batches.is_empty() || !flush { Ok(()) } else { sink.flush() }
}
