//! The room for the log on the disk.
//!
//! Epochs run while their entries are written, so what has run may be ahead of what is durable. Where the log finds no
//! room it would stay ahead, and nobody could be told what the durable state is. So while the disk is about to be full, an epoch
//! that was cut waits until its entry is in the log's file, and then runs. Everything that has run is then in the log,
//! and what the tables hold is, after a sync, the last durable state, however long the next entry waits.
//!
//! **Traded away.** Another process may fill the last [`SHORT`] bytes within [`LOOKS`], or a quota may end before the disk
//! does: then epochs have run that the log has no room for, and readers are told so until it has.

use std::path::PathBuf;
use std::sync::Arc;
use tidemill_durability::Storage;

/// A disk with less room than this, bytes, is about to be full.
const SHORT: u64 = 64 << 20;
/// The interval between two looks, nanoseconds. In that time a fast disk takes about as much as [`SHORT`].
const LOOKS: u64 = 10_000_000;

/// Looks how much room there is.
pub(crate) struct LogRoom {
    storage: Arc<dyn Storage>,
    /// The state's directory.
    path: PathBuf,
    /// The time of the next look.
    next: u64,
    is_short: bool,
}

impl LogRoom {
    /// Returns the room for a state.
    pub(crate) fn of(storage: Arc<dyn Storage>, path: PathBuf) -> LogRoom {
        LogRoom { storage, path, next: 0, is_short: false }
    }

    /// Returns whether the disk is about to be full. Where nobody knows how much room there is, it is not.
    pub(crate) fn is_short(&mut self, now: u64) -> bool {
        if now >= self.next {
            self.next = now + LOOKS;
            self.is_short = matches!(self.storage.free(&self.path), Ok(Some(free)) if free < SHORT);
        }
        self.is_short
    }
}
