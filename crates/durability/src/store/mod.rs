//! The rows of a state on the medium: immutable sorted *runs*. Newer runs win.
//!
//! **What.** A table's rows are those of its runs, oldest first: a row in a later run replaces an earlier one with
//! the same key, and a key without a row (a deletion) removes it. A run is one file: blocks of rows in the order of
//! their keys' hashes, hence of virtual nodes, then an index with a filter.
//! **Invariant.** A file never changes once it can be read, and is removed only when no manifest names it and no
//! thread reads it.
//! **Cost.** A checkpoint writes the rows that have changed. [`due`] keeps the number of runs logarithmic, so a row
//! is rewritten a logarithmic number of times. Recovery reads every run once, in parts by hash, each on any thread. A
//! lookup reads a block in each run whose filter does not exclude the key; where files are mapped into memory, that
//! takes no system call.
//! **Traded away.** There is no order by key, so there are no range scans: tables are only looked up by key. Words
//! take as few bytes as their block needs, and there is no other compression, so that one row of a block is read
//! without the others.
//!
//! This is not an embedded store: such a store has its own files, which the simulated storage could not tear, and its
//! own log and cache, which would repeat the engine's work (`docs/decisions.md` has the comparison).

mod block;
mod filter;
mod get;
mod index;
mod merge;
mod read;
mod write;

pub use block::MalformedBlock;
pub use merge::{Merging, due};
pub use read::{OpenRun, RunPart, Runs};
pub use write::{Packed, RunWriter};

use crate::manifest::Block;
use crate::nodes::NodeRange;
use crate::proof::Hash256;
use serde::{Deserialize, Serialize};

/// A run of a table's rows, in the form in which the manifest names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The place of its index, which also names its file.
    pub index: Block,
    /// The number of rows, including deletions.
    pub rows: u64,
    /// The number of deletions among the rows.
    pub deletions: u64,
    /// The hash of the file; none if it was not hashed when it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash256>,
    /// The nodes whose rows count; the file may also have others. `rows` and `deletions` are those of the file.
    #[serde(default, skip_serializing_if = "NodeRange::is_whole")]
    pub nodes: NodeRange,
}
