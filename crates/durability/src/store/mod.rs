//! The rows of a state on the medium: immutable sorted *runs*, of which newer ones win.
//!
//! **What.** A table's rows are those of its runs, oldest first: a row in a later run takes the place of an
//! earlier one with its key, and a key without a row (a deletion) takes it away. A run is one file: blocks of
//! rows in the order of their keys' hashes, hence of virtual nodes, then an index with a filter.
//! **Invariant.** A file never changes once it can be read, and is removed only when no manifest names it and nobody
//! reads it.
//! **Cost.** A checkpoint writes what has changed; [`due`] keeps the number of runs logarithmic, so that a row
//! is written again about as often. Recovery reads every run once, in parts by hash, each on any thread; a
//! lookup reads a block in each run whose filter does not exclude the key. Where the system shows files as memory,
//! that takes no system call.
//! **Traded away.** No order by key, so no ranges: tables are found by key, never scanned by it. No compression but
//! that words take as few bytes as their block needs: one row of a block is read without the others.
//!
//! Not an embedded store: those bring files of their own, which the simulated storage could not tear, and a
//! log and a cache that would do again what the engine does (`docs/architecture.md` has the comparison).

mod block;
mod filter;
mod get;
mod index;
mod merge;
mod read;
mod write;

pub use block::MalformedBlock;
pub use merge::{Merging, due};
pub use read::{OpenRun, Part, Runs};
pub use write::{Packed, RunWriter};

use crate::manifest::Block;
use crate::nodes::NodeRange;
use serde::{Deserialize, Serialize};

/// A run, as the manifest names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its index, and with it its file.
    pub index: Block,
    /// Rows, deletions included.
    pub rows: u64,
    /// Deletions among them.
    pub deletions: u64,
    /// The nodes whose rows count; the file may have others besides. `rows` and `deletions` are those of the file.
    #[serde(default, skip_serializing_if = "NodeRange::is_whole")]
    pub nodes: NodeRange,
}
