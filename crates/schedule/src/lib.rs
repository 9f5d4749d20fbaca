//! Who runs which transaction when: policies, the executor loop, and the decision by measured cost.
//!
//! | | |
//! |---|---|
//! | [`Policy`] | the three choices of MorphStream §4, as far as they work |
//! | [`Execute`] | what is run: one transaction, whole |
//! | [`run_serially`] | granularity `Epoch`: in position order on one worker |
//! | [`ChainExecutor`] | granularity `Chain`: along the chains of the graph on all workers |
//! | [`Decision`] | which of them the next epoch gets, and why |
//!
//! Nothing here knows what a row holds, reads a clock, or starts a thread: workers are callers, times
//! are parameters.
//!
//! # Where the rest of the policy space goes
//!
//! [`ChainExecutor`] moves *units* (now: transactions) through three steps that do not depend on each
//! other, and further policies are further variants of one step, never another loop:
//!
//! 1. *find* a unit: its own stack, the shared pool, the next block. A structured exploration replaces
//!    the blocks by the next stratum ([`tidemill_txn::Strata`]) and, breadth first, waits where the
//!    strata meet;
//! 2. *run* it: at operation granularity a unit is a slot of the graph, and the count of what it
//!    waits for adds the edges of its transaction's template to those of its chain;
//! 3. *release* its successors: with eager or lazy aborts a failed unit takes back what it released.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod chain;
mod decision;
mod execute;
mod policy;
mod pool;
mod sync;

pub use chain::{ChainExecutor, Progress, Worker};
pub use decision::{Choice, Decision, EpochCost, OPERATION_NS_MIN, REGRET_MAX, Reason, TRANSACTIONS_PER_WORKER_MIN};
pub use execute::{Execute, run_serially};
pub use policy::{Abort, Explore, Granularity, Policy};
