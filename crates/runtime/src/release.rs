//! The releaser: writes epochs to the sinks and lets these commit, in order, after the committer has answered the calls.
//!
//! It is an actor of its own, so that no sink stands between a call and its reply: while sinks commit, later epochs run,
//! become durable and are answered. Epochs that wait meanwhile are committed together. Sinks that are slower than the run hold
//! it back once [`Backlog`] is full.
//!
//! Without durability an epoch is released when it is finished. In a durable run sinks commit the epochs of
//! [`commit_age_max`](tidemill_recovery::DurabilityOptions::commit_age_max) together, or at once those that somebody waits
//! for.
//!
//! # Invariant
//!
//! A sink receives the output of each epoch once, in the order of epochs, and none that it has committed in an earlier run.
//! Everything that the committer sends is durable in the sense of the run. Before a checkpoint relies on an epoch, all sinks keep it.

use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::session::link::Link;
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_io::{IoFailure, Sink};
use tidemill_plan::StreamId;
use tidemill_recovery::{Captured, CheckpointState, RunError, Shared, SinkVitals, Stage};
use tidemill_stages::access::read::TableRead;
use tidemill_stages::actor::{Actor, Inbox, Outbox, Progress, Took};

/// The time to wait if nothing is due, nanoseconds.
const IDLE: u64 = 20_000_000;
/// Epochs that may wait for the sinks.
const EPOCHS_MAX: u64 = 256;
/// Events in them, beyond one epoch's.
const EVENTS_MAX: u64 = 1 << 20;

/// The epochs that wait for the sinks. The committer adds, the releaser takes away.
#[derive(Default)]
pub struct Backlog {
    epochs: AtomicU64,
    events: AtomicU64,
}

impl Backlog {
    /// Adds an epoch.
    pub fn add(&self, epoch: &Results) {
        self.epochs.fetch_add(1, Ordering::AcqRel);
        self.events.fetch_add(epoch.size(), Ordering::AcqRel);
    }

    fn remove(&self, epoch: &Results) {
        self.epochs.fetch_sub(1, Ordering::AcqRel);
        self.events.fetch_sub(epoch.size(), Ordering::AcqRel);
    }

    /// Returns whether the run waits for the sinks.
    pub fn is_full(&self) -> bool {
        self.epochs.load(Ordering::Acquire) >= EPOCHS_MAX || self.events.load(Ordering::Acquire) >= EVENTS_MAX
    }

    fn is_empty(&self) -> bool {
        self.epochs.load(Ordering::Acquire) == 0
    }
}

/// The results of an epoch that may be released.
pub struct Results {
    /// Its number.
    pub number: u64,
    /// The number of its events.
    pub events: u64,
    /// The time when it was finished, and later when it was durable (times of the clock).
    pub reached: u64,
    /// Outputs, by sink.
    pub outputs: Vec<Vec<RecordBatch>>,
    /// The arrival times of its events, with their numbers.
    pub arrivals: Vec<(u64, u64)>,
    /// A flag: whether an earlier run has logged the epoch.
    pub replayed: bool,
    /// Its punctuation.
    pub complete: Option<i64>,
    /// The events of followed streams.
    pub followed: Vec<(StreamId, Vec<RecordBatch>)>,
    /// The tables that were asked for.
    pub tables: Vec<Arc<TableRead>>,
    /// A flag: whether a checkpoint is taken after the epoch.
    pub has_snapshot: bool,
}

impl Results {
    /// Counts its events, read and written.
    fn size(&self) -> u64 {
        self.events + self.outputs.iter().flatten().map(|batch| batch.num_rows() as u64).sum::<u64>()
    }
}

/// A message of the committer.
pub enum ToRelease {
    /// The next epoch.
    Epoch(Box<Results>),
    /// All epochs were sent, and the streams have ended.
    Finish,
}

/// The releaser's part of a durable run.
pub struct ReleaseSide {
    /// The last epochs that an earlier run committed, by sink.
    pub released: Vec<u64>,
    /// Shared with gate and checkpointer.
    pub checkpoints: Arc<CheckpointState>,
    /// Dropped after the last epoch is committed: the checkpointer waits for no more then.
    pub captured: Option<Outbox<Captured>>,
    /// Nanoseconds that a written epoch waits for its commit.
    pub commit_age_max: u64,
}

/// The parts that a releaser is made from.
pub struct ReleaseParts {
    /// Clock, control, failure.
    pub on: Shared,
    /// The epochs under way.
    pub pipeline: Arc<Pipeline>,
    /// The sinks, in the order of the program.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Numbers by which an operator sees the sinks.
    pub sink_vitals: Arc<[SinkVitals]>,
    /// The channel from the committer.
    pub results: Inbox<ToRelease>,
    /// Shared with the committer.
    pub backlog: Arc<Backlog>,
    /// The counts of the run.
    pub report: Arc<Mutex<Report>>,
    /// The durable part, in a durable run.
    pub durable: Option<ReleaseSide>,
    /// The session that the run belongs to.
    pub link: Option<Arc<Link>>,
}

/// Writes epochs to the sinks.
pub struct Releaser {
    parts: ReleaseParts,
    sinks: Vec<Option<Box<dyn Sink>>>,
    /// The next epoch, which waits for followers.
    next: Option<Box<Results>>,
    /// Epochs that were written and are not committed yet.
    written: Vec<Results>,
    /// The time when the first of these was written.
    written_since: u64,
    /// A flag: whether the streams have ended.
    finishes: bool,
    is_over: bool,
}

impl Actor for Releaser {
    fn step(&mut self) -> Progress {
        if self.is_over {
            return Progress::Over;
        }
        let start = self.now();
        let worked = self.take();
        if self.is_due() {
            self.commit();
        }
        if self.is_over {
            self.end();
        }
        let now = self.now();
        self.parts.report.lock().sinks(now - start);
        if self.is_over {
            return Progress::Over;
        }
        let age_max = self.parts.durable.as_ref().map_or(0, |durable| durable.commit_age_max);
        let until = if self.written.is_empty() { now + IDLE } else { self.written_since + age_max };
        if worked { Progress::Worked } else { Progress::Waits(Some(until)) }
    }
}

impl Releaser {
    /// Makes a releaser before the first epoch.
    pub fn new(mut parts: ReleaseParts) -> Releaser {
        let sinks = std::mem::take(&mut parts.sinks).into_iter().map(Some).collect();
        Releaser { parts, sinks, next: None, written: Vec::new(), written_since: 0, finishes: false, is_over: false }
    }

    fn now(&self) -> u64 {
        self.parts.on.environment.now()
    }

    fn has_failed(&self) -> bool {
        self.parts.on.failure.is_set()
    }

    /// Writes the epochs that have come; returns whether there were any.
    fn take(&mut self) -> bool {
        let mut worked = false;
        loop {
            if self.next.is_none() {
                match self.parts.results.take() {
                    Took::Message(ToRelease::Epoch(epoch)) => self.next = Some(epoch),
                    Took::Message(ToRelease::Finish) => self.finishes = true,
                    Took::Nothing => return worked,
                    Took::Closed => {
                        self.is_over = true;
                        return true;
                    }
                }
            }
            let Some(epoch) = self.next.take_if(|epoch| !waits_for_followers(&self.parts, epoch)) else {
                return worked;
            };
            worked = true;
            self.parts.backlog.remove(&epoch);
            self.write_epoch(epoch);
        }
    }

    fn write_epoch(&mut self, mut epoch: Box<Results>) {
        if self.written.is_empty() {
            self.written_since = self.now();
        }
        assert!(self.written.last().is_none_or(|last| last.number < epoch.number), "in order");
        self.write(&epoch);
        // A sink that needs the batches keeps them; held here until the commit, they would pile up and fall out of
        // all caches.
        epoch.outputs = Vec::new();
        match self.parts.durable {
            Some(_) => self.written.push(*epoch),
            None => self.released(&mut epoch),
        }
    }

    /// Writes an epoch's outputs, except to sinks that committed it in an earlier run.
    fn write(&mut self, epoch: &Results) {
        let flush = self.parts.durable.is_none();
        for (s, batches) in epoch.outputs.iter().enumerate() {
            let committed = self.parts.durable.as_ref().map(|durable| durable.released[s]);
            if let Some(sink) = self.sinks[s].as_mut().filter(|_| !batches.is_empty())
                && !self.parts.on.failure.is_set()
                && committed.is_none_or(|committed| epoch.number > committed)
            {
                let vitals = &self.parts.sink_vitals[s];
                vitals.begin(self.parts.on.environment.now());
                let done = write(sink.as_mut(), batches, flush);
                vitals.end(self.parts.on.environment.now());
                note_written(vitals, sink.as_mut(), batches, flush);
                done.err().into_iter().for_each(|failure| self.failed(s, failure));
            }
        }
    }

    /// Returns whether the written epochs are to be committed now.
    fn is_due(&self) -> bool {
        let (Some(last), Some(durable)) = (self.written.last(), &self.parts.durable) else { return false };
        // If nothing else is under way, no other epoch would share the commit with what somebody waits for.
        let is_awaited = || {
            let is_alone = self.parts.backlog.is_empty() && self.parts.pipeline.tasks().is_idle();
            is_alone && self.parts.link.as_ref().is_some_and(|link| link.awaits(last.number))
        };
        let age = self.now().saturating_sub(self.written_since);
        !self.has_failed() && (self.is_over || age >= durable.commit_age_max || is_awaited())
    }

    /// Makes all sinks commit the written epochs.
    fn commit(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        let epoch = written.last().expect("something was written").number;
        self.each(|sink| sink.prepare(epoch));
        self.each(|sink| sink.commit(epoch));
        if !self.has_failed() {
            self.parts.sink_vitals.iter().for_each(|vitals| _ = vitals.commits.fetch_add(1, Ordering::Relaxed));
        }
        if written.iter().any(|epoch| epoch.has_snapshot) {
            self.each(|sink| sink.keep());
        }
        if self.has_failed() {
            return;
        }
        if let Some(durable) = &self.parts.durable {
            let before = durable.checkpoints.committed.swap(epoch, Ordering::AcqRel);
            assert!(before < epoch, "epochs are committed in order");
        }
        written.iter_mut().for_each(|epoch| self.released(epoch));
    }

    /// Calls each sink, until one fails.
    fn each(&mut self, mut call: impl FnMut(&mut dyn Sink) -> Result<(), IoFailure>) {
        for s in 0..self.sinks.len() {
            let Some(sink) = self.sinks[s].as_mut().filter(|_| !self.parts.on.failure.is_set()) else { continue };
            let vitals = &self.parts.sink_vitals[s];
            vitals.begin(self.parts.on.environment.now());
            let done = call(sink.as_mut());
            vitals.end(self.parts.on.environment.now());
            sink.bytes().into_iter().for_each(|bytes| vitals.bytes.store(bytes, Ordering::Relaxed));
            done.err().into_iter().for_each(|failure| self.failed(s, failure));
        }
    }

    /// Counts an epoch whose results were released, and gives them to those who wait for them.
    fn released(&self, epoch: &mut Results) {
        let link = self.parts.link.as_ref().filter(|_| !self.has_failed());
        let followed = std::mem::take(&mut epoch.followed);
        if epoch.replayed {
            link.iter().for_each(|link| link.release_again(epoch.number, epoch.complete, followed.clone()));
            return;
        }
        if let Some(link) = link {
            link.release(epoch.number, epoch.complete, followed, std::mem::take(&mut epoch.tables));
        }
        let now = self.now();
        self.parts.report.lock().released(&epoch.arrivals, now);
        let vitals = &self.parts.on.control.vitals;
        vitals.stage(Stage::Release).add(now.saturating_sub(epoch.reached), 1);
        for &(arrived, events) in &epoch.arrivals {
            vitals.latency.add(now.saturating_sub(arrived), events);
        }
        self.parts.on.control.events.fetch_add(epoch.events, Ordering::Relaxed);
        self.parts.on.control.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Called after all epochs: finishes the sinks, if the run ended well.
    fn end(&mut self) {
        if self.parts.durable.is_some() {
            self.each(|sink| sink.keep());
        }
        if self.finishes {
            for s in 0..self.sinks.len() {
                if let Some(sink) = self.sinks[s].take().filter(|_| !self.has_failed())
                    && let Err(failure) = sink.finish()
                {
                    self.failed(s, failure);
                }
            }
        }
        // A sink that is dropped unfinished leaves nothing under its final name.
        self.sinks.clear();
        if let Some(durable) = &mut self.parts.durable {
            durable.captured = None;
        }
    }

    fn failed(&self, sink: usize, failure: IoFailure) {
        let name = self.parts.on.machine.program.sinks[sink].name.clone();
        self.parts.on.failure.set(RunError::Sink { name, failure });
    }
}

/// Returns whether an epoch has events for followers that have no room for more, so that it is not released. A run that ends
/// waits for nobody.
fn waits_for_followers(parts: &ReleaseParts, epoch: &Results) -> bool {
    let is_full = |link: &Arc<Link>| link.has_no_room(&epoch.followed);
    parts.link.as_ref().is_some_and(is_full) && !parts.on.control.ends() && !parts.on.failure.is_set()
}

/// Notes what a sink was given.
fn note_written(vitals: &SinkVitals, sink: &mut dyn Sink, batches: &[RecordBatch], flush: bool) {
    let events: usize = batches.iter().map(RecordBatch::num_rows).sum();
    vitals.events.fetch_add(events as u64, Ordering::Relaxed);
    vitals.commits.fetch_add(u64::from(flush), Ordering::Relaxed);
    sink.bytes().into_iter().for_each(|bytes| vitals.bytes.store(bytes, Ordering::Relaxed));
}

fn write(sink: &mut dyn Sink, batches: &[RecordBatch], flush: bool) -> Result<(), IoFailure> {
    for batch in batches {
        sink.write(batch)?;
    }
    if batches.is_empty() || !flush { Ok(()) } else { sink.flush() }
}
