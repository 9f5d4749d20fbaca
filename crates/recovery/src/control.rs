//! The state that a run and its environment share: progress, the request to stop, the first failure.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemill_durability::StateError;
use tidemill_stages::io::{IoFailure, SourceProgress};

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
    /// Whether the log waits for disk space: then no epoch is released.
    pub log_waits: AtomicBool,
    /// Whether a sink waits for disk space. Set by the maker of the sinks.
    pub sink_waits: AtomicBool,
    /// By source: how much of its input it has read.
    pub progress: Mutex<Vec<SourceProgress>>,
    /// The progress of recovery, in a durable run that continues an earlier run.
    pub recovery: RecoveryProgress,
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
    /// Whether the replay is complete and new events are accepted.
    pub done: AtomicBool,
}

impl RecoveryProgress {
    /// While rows are loaded: their number so far, and an upper bound on the total.
    pub fn loading(&self) -> Option<(u64, u64)> {
        let (rows, in_all) = (self.rows.load(Ordering::Relaxed), self.rows_in_all.load(Ordering::Relaxed));
        (rows < in_all && !self.done.load(Ordering::Relaxed)).then_some((rows, in_all))
    }

    /// While events are replayed: their number so far, and an estimate of the total from the bytes of log that they
    /// took.
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

    /// Whether the run was asked to end.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the log or a sink waits for disk space.
    pub fn waits(&self) -> bool {
        self.log_waits.load(Ordering::Relaxed) || self.sink_waits.load(Ordering::Relaxed)
    }

    /// Whether the run is about to end, by request or after a failure: then no actor waits for anything that may never
    /// come.
    pub fn ends(&self) -> bool {
        self.stops() || self.failed.load(Ordering::Relaxed)
    }

    /// The watcher of the run has looked: passes on whether it has failed, and counts the poll.
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
    /// Whether there is a failure. Written with `first` locked.
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

    /// Whether there is a failure.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Registers `wake` to be called at each failure from now on. It must not set a failure.
    pub fn wakes(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wakes.lock().push(Box::new(wake));
    }

    /// The failure, at the end of the run, when no actor is left.
    pub fn take(&self) -> Option<RunError> {
        self.wakes.lock().clear();
        self.first.lock().take()
    }
}
