//! What survives: the log of what epochs took in, checkpoints, and going on after a crash.
//!
//! By the one law, state and outputs are a function of what the sources gave, in the order of each. So that is what is
//! logged, with where epochs were cut (only so that an epoch's number means the same output after a crash; nothing else
//! depends on it). Lateness is decided by a source's own records, so a replay decides it again, the same way.
//!
//! # An epoch's way to the sinks
//!
//! 1. The gate cuts the epoch and hands what was ingested since the last cut ([`EpochEntry`]) to the [`Logger`], and the
//!    epoch to the workers.
//! 2. The logger appends the entries that wait and syncs once for all of them, beside the execution of these and later
//!    epochs.
//! 3. The committer writes an epoch to the sinks when it is both finished and durable, and has them commit, for several
//!    epochs at once where they come fast.
//! 4. A checkpoint of an epoch becomes the newest when all sinks have committed that epoch; then the log before it goes
//!    ([`Checkpointer`]).
//!
//! # After a crash
//!
//! Tables and gate are put to where the checkpoint left them ([`Durable::open`]); the logged epochs ([`Replay`]) go
//! through the same gate, cut where they were, and the same workers; each sink is given what it has not committed; then
//! the sources go on after what was logged.
//!
//! This crate starts no thread of its own but for shares of work that its caller waits for: [`Logger`] and
//! [`Checkpointer`] are [actors](tidemill_stages::actor), driven by `tidemill-runtime`.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod buffer_manager;
mod checkpoint;
mod checkpointer;
mod control;
mod digest;
mod end;
mod entry;
mod eviction;
mod feed;
mod history;
mod intake;
mod load;
mod logger;
mod migrate;
mod open;
mod packed;
mod parallel;
mod replay;
mod summary;

pub use checkpoint::SourceAt;
pub use checkpointer::{Captured, CheckpointState, Checkpointer};
pub use control::{Control, Failure, RecoveryProgress, RunError};
pub use digest::{Digests, EpochDigests};
pub use end::{Ending, Left};
pub use entry::{EpochEntry, Ingested, SourceEntry};
pub use eviction::{MemoryControl, Room};
pub use feed::{CheckpointTrigger, LogFeed};
pub use history::{History, PastEpoch, PastSource, Reopen, StartingPoint, StartingSource, state_rows};
pub use intake::{Exactly, Intake, Taken, missing, split};
pub use load::checkpoint_rows;
pub use logger::{Logged, Logger};
pub use migrate::{migrate, seed};
pub use open::{Bells, CommitSide, Durable, GateSide, Parts, Shared};
pub use replay::{Recovery, Replay, ReplayProgress, Replayed, Standings, Start};
pub use summary::{DurabilitySummary, MemorySummary};

use std::time::Duration;
use tidemill_durability::StateDirectory;

/// How a run is to survive.
pub struct Durability {
    /// Where, open and locked.
    pub directory: StateDirectory,
    /// How.
    pub options: DurabilityOptions,
}

/// When results are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When their epoch is durable.
    #[default]
    Epoch,
    /// When their epoch is logged; the log is synced this often. Weaker: when the machine stops (not when the
    /// process does), what was logged since the last sync is lost, though its results were released. Then state
    /// goes on from before that; input that can be read again is taken again, so its results may be released
    /// twice, and input that cannot is gone.
    Every(Duration),
}

/// Options of a durable run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityOptions {
    /// When results are released.
    pub sync: Sync,
    /// How long results of an epoch may wait for those of others to be committed together.
    pub commit_age_max: Duration,
    /// A checkpoint is taken after so many events: as many may have to be replayed after a crash.
    pub checkpoint_events: u64,
    /// A checkpoint is taken after so many bytes of log.
    pub checkpoint_log_bytes: u64,
    /// Ends when what was logged is replayed, takes nothing new, and leaves a checkpoint behind which nothing
    /// is logged.
    pub replay_only: bool,
    /// Keeps the first checkpoint of a new state as a savepoint of this name.
    pub savepoint: Option<String>,
}

impl Default for DurabilityOptions {
    fn default() -> Self {
        DurabilityOptions {
            sync: Sync::Epoch,
            commit_age_max: Duration::from_millis(10),
            checkpoint_events: 50_000_000,
            checkpoint_log_bytes: 1 << 30,
            replay_only: false,
            savepoint: None,
        }
    }
}
