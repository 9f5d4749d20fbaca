//! Durability: the log of the epochs' input, checkpoints, and recovery after a crash.
//!
//! By the one law, state and outputs are a function of the sources' records, in the order of each source. So the log
//! contains these records, and the positions where epochs were cut (only so that an epoch's number means the same
//! output after a crash; nothing else depends on it). Lateness is decided by a source's own records, so a replay
//! decides it again, in the same way.
//!
//! # An epoch's way to the sinks
//!
//! 1. The gate cuts the epoch. It sends the records ingested since the last cut ([`EpochEntry`]) to the [`Logger`], and
//!    the epoch to the workers.
//! 2. The logger appends the waiting entries and syncs once for all of them, concurrently with the execution of these
//!    and later epochs.
//! 3. The committer writes an epoch to the sinks when it is both finished and durable, and lets them commit, several
//!    epochs at once if these arrive in quick succession.
//! 4. A checkpoint of an epoch becomes the newest after all sinks have committed that epoch; then the log before it is
//!    removed ([`Checkpointer`]).
//!
//! # After a crash
//!
//! Tables and gate are restored from the checkpoint ([`Durable::open`]). The logged epochs ([`Replay`]) pass through
//! the same gate, cut at the same positions, and the same workers; each sink gets the epochs that it has not committed.
//! Then the sources continue after the last logged record.
//!
//! This crate starts no thread of its own, except for shares of work that its caller waits for: [`Logger`] and
//! [`Checkpointer`] are [actors](tidemill_stages::actor), driven by `tidemill-runtime`.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ahead;
mod answered;
mod begin_run;
mod buffer_manager;
mod checkpoint;
mod checkpointer;
mod control;
mod convert;
mod digest;
mod encoding;
mod end;
mod entry;
mod eviction;
mod feed;
mod history;
mod intake;
mod kept;
mod lateness;
mod load;
mod log_room;
mod logger;
mod migrate;
mod open;
mod operators;
mod packed;
mod parallel;
mod replay;
mod savepoints;
mod summary;
mod taken_hash;
mod unkept;
mod vitals;

pub use ahead::{FarEvent, TimedEvents, TooFar};
pub use answered::{ANSWER_BYTES_MAX, KeyReader, KeyRuns, LookUp, LookedUp, Page, Pages, Remembering, user_of};
pub use checkpoint::{Remembered, SourceAt, SplitName};
pub use checkpointer::{Captured, CheckpointState, Checkpointer};
pub use control::{Control, Failure, HeldTime, RecoveryProgress, RunError};
pub use convert::{Converted, Converts};
pub use digest::{Digests, EpochDigests};
pub use end::{Ending, Left};
pub use entry::{EpochEntry, Ingested, JoinedSplit, SourceEntry};
pub use eviction::{MemoryControl, Room};
pub use feed::{CheckpointTrigger, LogFeed};
pub use history::{
    History, PastEpoch, PastSource, Reopen, StartingPoint, StartingSource, open_split, source_positions, state_rows,
};
pub use intake::{Exactly, Intake, LoggedInput, Taken, in_order, missing, split};
pub use kept::{Kept, KeptStreams, Released};
pub use load::checkpoint_rows;
pub use logger::{Logged, Logger};
pub use migrate::{migrate, seed};
pub use open::{Bells, CommitSide, Durable, GateSide, Parts, Shared};
pub use operators::{open_rows, open_text, refuse_open, refuse_open_of};
pub use replay::{Recovery, Replay, ReplayProgress, Replayed, Start};
pub use savepoints::{SavepointAnswer, SavepointRequest, Savepoints};
pub use summary::{DurabilitySummary, MemorySummary};
pub use taken_hash::{TakenHash, batch_hash};
pub use vitals::{
    BOUNDS, CheckpointVitals, GateVitals, Happening, Incident, Incidents, KeyVitals, LogVitals, SinkVitals,
    SplitVitals, Spread, SpreadAt, Stage, Vitals,
};

use std::time::Duration;
use tidemill_durability::StateDirectory;
use tidemill_plan::KEYS_MAX;

/// The durability of a run.
pub struct Durability {
    /// The state directory, open and locked.
    pub directory: StateDirectory,
    /// The options.
    pub options: DurabilityOptions,
}

/// The moment when results are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Results are released when their epoch is durable in the log.
    #[default]
    Epoch,
    /// Results are released when their epoch is written to the log; the log is synced at this interval. This is weaker:
    /// if the machine fails (not if only the process does), everything logged since the last sync is lost, although its
    /// results were released. The next run then continues from before that point. Input that can be read again is taken
    /// again, so its results may be released twice; other input is lost.
    Every(Duration),
}

/// The proof that a run keeps of what it logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proving {
    /// The chain of proof: each entry of the log has a hash that covers all entries before it.
    #[default]
    On,
    /// None. The next checkpoint ends a chain that the state has.
    Off,
}

/// Options of a durable run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityOptions {
    /// The moment when results are released.
    pub sync: Sync,
    /// The time for which the results of an epoch may wait so that several epochs are committed together.
    pub commit_age_max: Duration,
    /// A checkpoint is taken after this number of events; about as many may have to be replayed after a crash.
    pub checkpoint_events: u64,
    /// A checkpoint is taken after this number of bytes of log.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint is taken soon enough that a crash before it is complete costs about this time of replay, at most.
    pub checkpoint_replay: Duration,
    /// A checkpoint is taken with the first epoch that is younger by this time than the first one after the last
    /// checkpoint.
    pub checkpoint_age: Option<Duration>,
    /// The number of keys of calls that are in memory, about. Others are looked up in checkpoints.
    pub keys_in_memory: usize,
    /// A flag: whether the run ends after the replay of the log: it takes no new input, and leaves a checkpoint with an
    /// empty log after it.
    pub replay_only: bool,
    /// Operators that have everything closed that they have open, after the replay of a run that ends then.
    pub ends: Vec<String>,
    /// Keeps the first checkpoint of a new state as a savepoint of this name.
    pub savepoint: Option<String>,
    /// A flag: whether the end of the sources' input is the end for good. Otherwise it is a pause: a later run
    /// continues them.
    pub is_final: bool,
    /// The proof that is kept.
    pub proof: Proving,
}

impl Default for DurabilityOptions {
    fn default() -> Self {
        DurabilityOptions {
            sync: Sync::Epoch,
            commit_age_max: Duration::from_millis(10),
            checkpoint_events: 50_000_000,
            checkpoint_log_bytes: 1 << 30,
            checkpoint_replay: Duration::from_secs(30),
            checkpoint_age: None,
            keys_in_memory: KEYS_MAX as usize,
            replay_only: false,
            ends: Vec::new(),
            savepoint: None,
            is_final: false,
            proof: Proving::On,
        }
    }
}
