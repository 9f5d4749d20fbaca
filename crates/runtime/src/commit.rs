//! The committer's thread: epochs in order, to the sinks.
//!
//! Without durability an epoch goes out when it is finished. In a durable run its outputs wait until it
//! is durable, while its buffers go back to the gate; and sinks commit several epochs at once where they
//! come fast.

use crate::durable::{Captured, CheckpointState, Digests, DurabilityOptions, Logged, Logging};
use crate::engine::{Control, Failure, RunError};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::io::{IoFailure, Sink};
use crate::pipeline::Pipeline;
use crate::records::Records;
use crate::report::Report;
use crate::worker::Machine;
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, never, select};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_durability::{Bug, Planted};

/// How long to wait where nothing is due.
const IDLE: Duration = Duration::from_millis(20);

/// The committer.
pub struct Committer {
    pub machine: Arc<Machine>,
    pub environment: Arc<dyn Environment>,
    pub control: Arc<Control>,
    pub failure: Arc<Failure>,
    pub pipeline: Arc<Pipeline>,
    pub sinks: Vec<Option<Box<dyn Sink>>>,
    pub free: Sender<Box<Epoch>>,
    pub report: Report,
    pub records: Option<Records>,
    /// The number of the first epoch.
    pub first: u64,
    /// The workers have gone.
    pub finished_over: bool,
    /// The logger has gone.
    pub logged_over: bool,
    pub durable: Option<DurableCommit>,
}

/// What the committer knows in a durable run.
pub struct DurableCommit {
    /// From the logger.
    pub logged: Receiver<Logged>,
    /// By sink: epochs up to this one were committed by an earlier run.
    pub released: Vec<u64>,
    /// Shared with who takes checkpoints.
    pub checkpoints: Arc<CheckpointState>,
    /// Shared with gate and logger.
    pub digests: Arc<Digests>,
    /// To the checkpointer.
    pub captured: Sender<Captured>,
    pub options: DurabilityOptions,
    /// Finished epochs whose results are not written yet, in order.
    pub pending: VecDeque<Pending>,
    /// What was written and not committed.
    pub written: Vec<Pending>,
    /// When the first of these was written.
    pub written_since: u64,
    /// How far the log is.
    pub durable: Logged,
    /// Where logging is full: a word to the logger that results wait for what came of an epoch to be logged. Until
    /// there are no more.
    pub results: Option<Sender<()>>,
    /// The bug that is planted, if any.
    pub planted: Planted,
}

impl DurableCommit {
    fn is_durable(&self, pending: &Pending, logging: Logging) -> bool {
        // What is replayed comes to what it came to before.
        let waits = logging == Logging::Full && !pending.replayed && !self.planted.is(Bug::ReleasesUnrecorded);
        pending.number <= self.durable.epoch && (!waits || pending.number <= self.durable.results)
    }
}

/// What is left of a finished epoch.
pub struct Pending {
    number: u64,
    events: u64,
    outputs: Vec<Vec<RecordBatch>>,
    arrivals: Vec<(u64, u64)>,
    replayed: bool,
}

enum Event {
    Finished(Box<Epoch>),
    Durable(Logged),
    Late,
    Over,
}

impl Committer {
    /// Commits until the workers have gone.
    pub fn run(mut self, finished: &Receiver<Box<Epoch>>) -> Report {
        let mut finished = finished.clone();
        let mut waiting: BTreeMap<u64, Box<Epoch>> = BTreeMap::new();
        let mut next = self.first;
        let mut over = false;
        while !over {
            match self.wait(&mut finished) {
                Event::Finished(epoch) => _ = waiting.insert(epoch.number, epoch),
                Event::Durable(logged) => self.durable_through(logged),
                Event::Late => {}
                Event::Over => over = true,
            }
            while let Some(mut epoch) = waiting.remove(&next) {
                next += 1;
                self.take(&mut epoch);
                epoch.clear();
                let _ = self.free.send(epoch);
            }
            self.release(over);
        }
        // A replay that was broken off leaves epochs whose results are for the next run.
        let whole = self.durable.as_ref().is_none_or(|durable| durable.pending.is_empty());
        let go_on = self.durable.as_ref().is_some_and(|durable| durable.options.replay_only);
        if !self.failure.is_set() && whole && !go_on {
            for s in 0..self.sinks.len() {
                if let Some(sink) = self.sinks[s].take()
                    && let Err(failure) = sink.finish()
                {
                    self.failed(s, failure);
                }
            }
        }
        if let Some(records) = self.records.take() {
            let finished = records.finish();
            self.recorded(finished);
        }
        self.report
    }

    fn recorded(&self, done: Result<(), IoFailure>) {
        if let Err(failure) = done {
            self.failure.set(RunError::Sink { name: "epoch records".into(), failure });
            self.pipeline.stop();
        }
    }

    /// What comes next.
    fn wait(&mut self, finished: &mut Receiver<Box<Epoch>>) -> Event {
        let Some(durable) = &mut self.durable else {
            return finished.recv().map_or(Event::Over, Event::Finished);
        };
        let age = durable.options.commit_age_max;
        let wait = if durable.written.is_empty() {
            IDLE
        } else {
            let since = Duration::from_nanos(self.environment.now().saturating_sub(durable.written_since));
            age.saturating_sub(since)
        };
        loop {
            // After a failure the log may never end.
            if self.finished_over && (self.logged_over || self.failure.is_set()) {
                return Event::Over;
            }
            select! {
                recv(finished) -> epoch => match epoch {
                    Ok(epoch) => return Event::Finished(epoch),
                    Err(_) => {
                        (*finished, self.finished_over) = (never(), true);
                        durable.results = None;
                    }
                },
                recv(durable.logged) -> logged => match logged {
                    Ok(logged) => return Event::Durable(logged),
                    Err(_) => (durable.logged, self.logged_over) = (never(), true),
                },
                default(wait) => return Event::Late,
            }
        }
    }

    fn durable_through(&mut self, logged: Logged) {
        if let Some(durable) = &mut self.durable {
            durable.durable.epoch = durable.durable.epoch.max(logged.epoch);
            durable.durable.results = durable.durable.results.max(logged.results);
        }
    }

    /// Takes a finished epoch's results, and without durability writes them.
    fn take(&mut self, epoch: &mut Epoch) {
        if !epoch.replayed {
            self.report.add(epoch, &self.machine.wiring);
            let records = self.records.as_mut().filter(|_| !self.failure.is_set());
            let added =
                records.map_or(Ok(()), |records| records.add(epoch, &self.machine.groups, self.environment.as_ref()));
            self.recorded(added);
        }
        // An event that arrived before the gate had room for its epoch waited for epochs before: larger ones would
        // have let it wait less.
        let oldest = epoch.arrivals.iter().map(|(arrived, _)| (*arrived).max(epoch.opened)).min();
        let (number, events, is_new) = (epoch.number, epoch.events, !epoch.replayed);
        let outputs = epoch.outputs.iter_mut().map(std::mem::take).collect();
        let pending = Pending {
            number: epoch.number,
            events: epoch.events as u64,
            outputs,
            arrivals: std::mem::take(&mut epoch.arrivals),
            replayed: epoch.replayed,
        };
        match &mut self.durable {
            // Cold rows that it needed may have been unreadable: then it came to wrong results, which are for nobody.
            Some(_) if self.failure.is_set() => {}
            Some(durable) => {
                durable.pending.push_back(pending);
                let digest = epoch.digest.take().expect("a durable run digests its epochs");
                let agreed = durable.digests.finished(epoch.number, digest, epoch.replayed, &self.machine.program);
                if let Err(error) = agreed {
                    self.failure.set(RunError::State(error));
                    self.pipeline.stop();
                }
                if let Some(results) = &durable.results {
                    // One word is enough.
                    let _ = results.try_send(());
                }
                if let Some(mut captured) = epoch.captured.take() {
                    captured.outputs = durable.digests.total();
                    let _ = durable.captured.send(captured);
                }
            }
            None => {
                let start = self.environment.now();
                self.write(&pending, true);
                self.report.sinks(self.environment.now() - start);
                self.released(&pending);
            }
        }
        // Of a durable run: without the wait for the log, which smaller epochs would not shorten.
        if let Some(oldest) = oldest.filter(|_| is_new) {
            self.pipeline.done(number, events, self.environment.now().saturating_sub(oldest));
        }
    }

    /// Writes what has become durable, and commits what is due.
    fn release(&mut self, over: bool) {
        let Some(durable) = &mut self.durable else { return };
        let start = self.environment.now();
        let mut ready = Vec::new();
        while durable.pending.front().is_some_and(|first| durable.is_durable(first, self.machine.logging)) {
            ready.extend(durable.pending.pop_front());
        }
        if durable.written.is_empty() {
            durable.written_since = start;
        }
        for mut pending in ready {
            self.write(&pending, false);
            // A sink that wants to keep them does: until it commits they would pile up, out of all caches.
            pending.outputs = Vec::new();
            if let Some(durable) = &mut self.durable {
                durable.written.push(pending);
            }
        }
        let durable = self.durable.as_ref().expect("looked at above");
        let age = self.environment.now().saturating_sub(durable.written_since);
        let due = over || age >= durable.options.commit_age_max.as_nanos() as u64;
        if due && !durable.written.is_empty() && !self.failure.is_set() {
            self.commit();
        }
        self.report.sinks(self.environment.now() - start);
    }

    /// Has all sinks commit what was written.
    fn commit(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        let written = std::mem::take(&mut durable.written);
        let epoch = written.last().expect("something was written").number;
        for commit in [false, true] {
            for s in 0..self.sinks.len() {
                let Some(sink) = self.sinks[s].as_mut().filter(|_| !self.failure.is_set()) else { continue };
                let done = if commit { sink.commit(epoch) } else { sink.prepare(epoch) };
                if let Err(failure) = done {
                    self.failed(s, failure);
                }
            }
        }
        if self.failure.is_set() {
            return;
        }
        if let Some(durable) = &self.durable {
            durable.checkpoints.committed.store(epoch, Ordering::Release);
        }
        written.iter().for_each(|pending| self.released(pending));
    }

    /// Writes an epoch's outputs, but for those that a sink committed in an earlier run.
    fn write(&mut self, pending: &Pending, flush: bool) {
        for (s, batches) in pending.outputs.iter().enumerate() {
            let committed = self.durable.as_ref().map_or(0, |durable| durable.released[s]);
            if let Some(sink) = &mut self.sinks[s]
                && !self.failure.is_set()
                && (self.durable.is_none() || pending.number > committed)
                && let Err(failure) = write(sink.as_mut(), batches, flush)
            {
                self.failed(s, failure);
            }
        }
    }

    /// An epoch's results are out.
    fn released(&mut self, pending: &Pending) {
        if pending.replayed {
            return;
        }
        self.report.released(&pending.arrivals, self.environment.now());
        self.control.events.fetch_add(pending.events, Ordering::Relaxed);
        self.control.epochs.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, sink: usize, failure: IoFailure) {
        let name = self.machine.program.sinks[sink].name.clone();
        self.failure.set(RunError::Sink { name, failure });
        self.pipeline.stop();
    }
}

fn write(sink: &mut dyn Sink, batches: &[RecordBatch], flush: bool) -> Result<(), IoFailure> {
    for batch in batches {
        sink.write(batch)?;
    }
    if batches.is_empty() || !flush { Ok(()) } else { sink.flush() }
}
