//! The theory of scheduling: operations, chains, the task precedence graph. Pure: no threads, no
//! payloads, no clock; everything here is about integers and is tested on integers.
//!
//! # Definitions
//!
//! An *epoch* has transactions numbered `0..n` in position order. Each *accesses* a list of rows,
//! given as opaque [`RowId`]s ([`Accesses`]). Every access has a *slot*, numbered over the epoch.
//!
//! - An **operation** is a (transaction, row) pair. Several accesses of one transaction to one row
//!   are one operation, carried by the slot of the first; the other slots are *aliases*.
//! - The **chain** of a row is its operations in position order. Operation *b* is the *successor*
//!   of *a*, and *a* the *predecessor* of *b*, if *b* comes right after *a* in a chain. That edge is
//!   a temporal dependency (MorphStream §2.2, Definition 4); with a read operation added for every
//!   value that a transaction needs from another row (MorphStream §5.2 calls it a proxy operation)
//!   the parametric dependencies (Definition 5) are such edges too.
//! - The **task precedence graph** (MorphStream §3.1, Definition 7) is these edges together with the
//!   logical dependencies, which are the grouping of operations by transaction.
//!
//! Writing `a → b` for "some operation of transaction *b* is the successor of an operation of
//! transaction *a*", every edge goes from a smaller number to a larger one. So the transactions are
//! topologically ordered as they stand, there are no cycles between them, and one forward pass
//! computes any longest path.
//!
//! # What lives here
//!
//! | | |
//! |---|---|
//! | [`Accesses`], [`AccessBuffer`] | what an epoch touches, grouped by transaction |
//! | [`Partitioning`], [`SortedAccesses`] | the stable radix partition of a slice of transactions: count, scatter |
//! | [`Graph`], [`Linker`] | the graph: slices are assembled, partitions linked |
//! | [`ChainSummary`] | the lengths of the chains of a graph |
//! | [`Precedence`] | which unit waits for which |
//! | [`Flow`], [`Versions`] | operations over versions of rows: which one reads the value of which |
//! | [`Chains`] | the units of an epoch by chain, merged where chains wait for each other |
//! | [`Edges`], [`Parameter`] | dependencies by kind |
//! | [`Strata`] | the units by longest path from a root |
//! | [`Surveyor`], [`Survey`] | properties of an epoch, or of a sample of it, before it runs, for a decision model |
//! | [`Buckets`] | numbers by bucket |
//! | [`State`] | the states of an operation and the transitions between them |
//! | [`mod@reference`] | the same graph by a slow and simple construction |
//! | [`sample`] | seeded random epochs for tests and benchmarks |
//!
//! What must not live here: threads, locks, row contents, policies.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod buckets;
mod chains;
mod edges;
mod flow;
mod graph;
mod link;
mod partition;
mod precedence;
pub mod reference;
pub mod sample;
mod state;
mod strata;
mod summary;
mod survey;

pub use access::{AccessBuffer, Accesses, RowId};
pub use buckets::Buckets;
pub use chains::Chains;
pub use edges::{Edges, Parameter};
pub use flow::{Flow, PARTS_MAX, Parts, Use, UseBuffer, Verdicts, Versions};
pub use graph::{Graph, Scratch, Slot};
pub use link::Linker;
pub use partition::{Partitioning, SortedAccesses, count, scatter};
pub use precedence::Precedence;
pub use state::{Event, State};
pub use strata::Strata;
pub use summary::ChainSummary;
pub use survey::{Cut, Paths, Survey, Surveyor};
