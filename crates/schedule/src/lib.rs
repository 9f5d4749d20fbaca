//! Who runs which transaction when: policies, the executor loop, and the decision by measured cost.
//!
//! | | |
//! |---|---|
//! | [`Policy`] | the three choices of MorphStream §4, all combinations |
//! | [`Execute`] | what is run: transactions whole, or their operations |
//! | [`Executor`] | all policies but granularity `Epoch`, which is the caller's: one loop, on all workers |
//! | [`Baseline`] | the schemes that came before, to measure against |
//! | [`Breakdown`] | where its time goes |
//! | [`Decision`] | which of them the next epoch gets, and why |
//!
//! Nothing here knows what a row holds, reads a clock, or starts a thread: workers are callers, times
//! are parameters.
//!
//! # The loop and its modules
//!
//! `executor` moves *units* through three steps that do not depend on each other, and a policy is a
//! variant of each: *find* a unit and *release* its successors (`explore`, by the counters of `frontier`),
//! *run* it (on speculation: `eager`, `repair`).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod back_off;
mod baseline;
#[cfg(all(feature = "counted", not(feature = "loom")))]
mod counted;
mod decision;
mod eager;
mod execute;
mod executor;
mod explore;
mod frontier;
mod method;
mod owners;
mod participant;
mod policy;
mod pool;
mod pools;
mod presence;
mod repair;
mod shares;
mod strata;
mod stratify;
mod sync;
mod times;
mod worker;

pub use baseline::{Baseline, Known, Scheme, SchemeError};
#[cfg(all(feature = "counted", not(feature = "loom")))]
pub use counted::shared_writes;
pub use decision::{
    Candidate, Choice, Decision, EpochCost, Load, Model, OPERATION_NS_MIN, Reason, SHARED_NS_MIN, SurveyWanted,
    decide_as_morphstream,
};
pub use execute::Execute;
pub use executor::{Executor, Progress};
pub use method::Method;
pub use owners::SocketOf;
pub use participant::Participant;
pub use policy::{Abort, Explore, Granularity, Policy, PolicyError, Rows, Search, Sharing, Stealing};
pub use presence::{Presence, Shared};
pub use times::Breakdown;
pub use worker::Worker;
