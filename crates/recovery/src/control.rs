//! The state that a run and its environment share: progress, the request to stop, the first failure.

use crate::vitals::Vitals;
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::{Head, StateError};
use tidemill_io::{IoFailure, SourceProgress};

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source failed.
    #[error("source '{name}': {failure}")]
    Source {
        /// The source.
        name: String,
        /// The failure.
        failure: IoFailure,
    },
    /// A sink failed.
    #[error("sink '{name}': {failure}")]
    Sink {
        /// The sink.
        name: String,
        /// The failure.
        failure: IoFailure,
    },
    /// A source that is read again gives other records than were taken of it.
    #[error("source '{name}': {reason}")]
    Changed {
        /// The source.
        name: String,
        /// The difference.
        reason: String,
    },
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine itself failed: a bug.
    #[error("internal failure, please report it: {0}")]
    Panic(String),
}

/// The interface between a running engine and its watchers.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    failed: AtomicBool,
    /// Signal polls started by the watcher of the run.
    pub polls: AtomicU64,
    /// Events whose results were released.
    pub events: AtomicU64,
    /// Epochs whose results were released.
    pub epochs: AtomicU64,
    /// The last epoch of an earlier run that was replayed; 0 if none was.
    pub replayed: AtomicU64,
    /// A flag: whether the log waits for disk space: then no epoch is released.
    pub log_waits: AtomicBool,
    /// A flag: whether a sink waits for disk space. Set by the maker of the sinks.
    pub sink_waits: AtomicBool,
    /// A flag: whether log, checkpoints, savepoints or sinks wait for a file descriptor. Set by the maker of their storage.
    pub descriptors_wait: AtomicBool,
    /// The progress of each source through its input, by source.
    pub progress: Mutex<Vec<SourceProgress>>,
    /// Remarks for users that were not shown yet.
    remarks: Mutex<Vec<String>>,
    /// Numbers by which an operator sees how the run does.
    pub vitals: Vitals,
    /// The progress of recovery, in a durable run that continues an earlier run.
    pub recovery: RecoveryProgress,
    /// A flag: whether an epoch may be released: the state, the log, the sinks and the sources are open, and what an earlier run
    /// logged is replayed. Set by the gate.
    pub ready: AtomicBool,
    /// The head of the chain of proof after the last epoch that is durable; none before there is one, or if no chain is kept.
    /// Written by the logger.
    pub head: Mutex<Option<Head>>,
    /// The split that keeps time from going on in a run that goes on with clocks. Set by the gate.
    pub held_time: Mutex<Option<HeldTime>>,
}

/// A split that keeps time from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTime {
    /// The name of its source.
    pub source: String,
    /// Its own name, if the source has several.
    pub split: Option<String>,
    /// While calls wait for it: how long they do at most, from the beginning.
    pub calls_wait: Option<Duration>,
}

impl fmt::Display for HeldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.split {
            None => write!(f, "source '{}' holds time back", self.source)?,
            Some(split) => write!(f, "{split} of source '{}' holds time back", self.source)?,
        }
        match self.calls_wait {
            Some(most) => write!(f, ": the first calls wait until the clock's tick has passed, for {most:?} at most"),
            None => write!(f, ": calls run at the time at which it was left"),
        }
    }
}

/// The progress of recovery: rows first, then events.
#[derive(Default)]
pub struct RecoveryProgress {
    /// Rows and deletions in the checkpoint; 0 if there are none.
    pub rows_in_all: AtomicU64,
    /// Rows that were loaded.
    pub rows: AtomicU64,
    /// Bytes of log after the checkpoint; 0 until they are known, or if there are none.
    pub log_bytes_in_all: AtomicU64,
    /// Bytes of log that were read.
    pub log_bytes: AtomicU64,
    /// Events that were replayed.
    pub events: AtomicU64,
    /// A flag: whether the replay is complete and new events are accepted.
    pub done: AtomicBool,
}

impl RecoveryProgress {
    /// Returns, while rows are loaded, their number so far, and an upper bound on the total.
    pub fn loading(&self) -> Option<(u64, u64)> {
        let (rows, in_all) = (self.rows.load(Ordering::Relaxed), self.rows_in_all.load(Ordering::Relaxed));
        (rows < in_all && !self.done.load(Ordering::Relaxed)).then_some((rows, in_all))
    }

    /// Returns, while events are replayed, their number so far, and an estimate of the total from the bytes of log that
    /// they took.
    pub fn replaying(&self) -> Option<(u64, u64)> {
        let (bytes, in_all) = (self.log_bytes.load(Ordering::Relaxed), self.log_bytes_in_all.load(Ordering::Relaxed));
        let events = self.events.load(Ordering::Relaxed);
        let about = (u128::from(events) * u128::from(in_all)).checked_div(bytes.into())? as u64;
        (!self.done.load(Ordering::Relaxed)).then_some((events, about))
    }
}

impl Control {
    /// Asks the run to end after the epoch that is being gathered.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the run was asked to end.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes which split keeps time from going on, and has it said.
    pub fn hold_time(&self, held: HeldTime) {
        let mut now = self.held_time.lock();
        if now.as_ref() != Some(&held) {
            self.remark(held.to_string());
            *now = Some(held);
        }
    }

    /// Gives a text that is to be shown to people.
    pub fn remark(&self, text: String) {
        self.remarks.lock().push(text);
    }

    /// Returns the remarks for users that were not shown yet. Asked by the watcher of the run.
    pub fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.remarks.lock())
    }

    /// Returns whether the run waits for disk space or descriptors: then epochs are not released.
    pub fn waits(&self) -> bool {
        self.shortage().is_some()
    }

    /// Says in words what is wrong with the run, if anything is: it waits, or has failed and is about to end.
    pub fn ailment(&self) -> Option<&'static str> {
        let failed = self.failed.load(Ordering::Relaxed).then_some("the run has failed, and is about to end");
        failed.or_else(|| self.shortage())
    }

    /// Says in words what the run waits for, if it does.
    pub fn shortage(&self) -> Option<&'static str> {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if is(&self.log_waits) {
            Some("the disk is full: the log waits for room")
        } else if is(&self.sink_waits) {
            Some("the disk is full: an output waits for room")
        } else if is(&self.descriptors_wait) {
            Some("the process has as many open files as it may have: the run waits for a descriptor")
        } else {
            None
        }
    }

    /// Returns whether an epoch may be released, and the run goes on.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.ends()
    }

    /// Returns whether the run is about to end, by request or after a failure: then no actor waits for anything that
    /// may never come.
    pub fn ends(&self) -> bool {
        self.stops() || self.failed.load(Ordering::Relaxed)
    }

    /// Counts a look of the run's watcher, and passes on whether the run has failed.
    pub fn poll(&self, failure: &Failure) {
        self.failed.store(failure.is_set(), Ordering::Relaxed);
        self.polls.fetch_add(1, Ordering::Release);
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// The first failure of a run; any others are its consequences.
#[derive(Default)]
pub struct Failure {
    first: Mutex<Option<RunError>>,
    /// A flag: whether there is a failure. Written with `first` locked.
    is_set: AtomicBool,
    wakes: Mutex<Vec<Wake>>,
}

impl Failure {
    /// Records a failure, if it is the first, and wakes all actors, which then leave.
    pub fn set(&self, error: RunError) {
        {
            let mut first = self.first.lock();
            first.get_or_insert(error);
            self.is_set.store(true, Ordering::Release);
        }
        self.wakes.lock().iter().for_each(|wake| wake());
    }

    /// Returns whether there is a failure.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Registers `wake` to be called at each failure from now on. It must not set a failure.
    pub fn wakes(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wakes.lock().push(Box::new(wake));
    }

    /// Returns the failure, at the end of the run, when no actor is left.
    pub fn take(&self) -> Option<RunError> {
        self.wakes.lock().clear();
        self.first.lock().take()
    }
}
