//! How long the access stage of an epoch takes under a policy, from what the epoch is like.
//!
//! time = construct + max(critical path, work / workers + the end) + redo, where work is what transactions cost serially
//! and what a unit costs beside, and at the end the other workers wait for the last, in the middle of a unit on
//! average; breadth first each stratum is a term of its own, with a barrier behind; chains that are owned wait for turns. What
//! depends on the machine are some constants, most of them nanoseconds on one of today's cores. They need be right only as
//! far as that policies which are worth a try look so: [`crate::Decision`] multiplies by what measured epochs took.

use crate::policy::{Abort, Explore, Granularity, Policy, Search};
use tidemill_txn::{Cut, Survey};

/// Per operation: locating and partitioning, on one worker.
const LOCATE: f64 = 14.0;
/// Per operation: laying out versions before and putting them into rows behind, on one worker.
const LAY_OUT: f64 = 14.0;
/// Per operation: finding strata, on one worker.
const STRATA: f64 = 25.0;
/// Per operation: linking, on all.
const LINK: f64 = 12.0;
/// Per unit: finding and calling it.
const UNIT: f64 = 40.0;
/// Per operation: telling the next.
const TELL: f64 = 10.0;
/// Per operation: copying a version.
const COPY: f64 = 30.0;
/// Per unit: the gate and the states of speculation.
const SPECULATE: f64 = 60.0;
/// Per transaction: judging by itself.
const JUDGE: f64 = 100.0;
/// Per stratum: the barrier.
const BARRIER: f64 = 1_000.0;
/// Per unit of a chain that is owned: waiting for turns of other owners.
const TURN: f64 = 200.0;
/// Work of the owner who has most, over the mean.
const UNEVEN: f64 = 1.1;
/// Per abort, beside running transactions again.
const REPAIR: f64 = 500.0;
/// Transactions that one abort runs again, itself included.
const REDONE: f64 = 2.0;
/// Per epoch: waking workers and letting them go.
const EPOCH: f64 = 5_000.0;

/// What operations cost at present.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Access serially, per operation, nanoseconds.
    pub access_ns: f64,
    /// The same in parallel, all workers together, where rows travel between them.
    pub units_ns: f64,
    /// The other stages, all workers together, per operation, nanoseconds.
    pub other_ns: f64,
    /// The share of transactions that abort.
    pub aborts: f64,
}

/// The wall time of the access stage of an epoch of so many operations, nanoseconds, without correction.
pub fn predict(policy: Policy, survey: &Survey, load: &Load, operations: f64, workers: f64) -> f64 {
    let cut = match policy {
        Policy { granularity: Granularity::Epoch, .. } => return operations * load.access_ns,
        _ if policy.speculates() => Cut::Parts,
        _ if policy.on_versions() => Cut::Whole,
        _ => Cut::InPlace,
    };
    let paths = survey.paths(cut);
    let scale = operations / f64::from(survey.chains.operations.max(1));
    let transactions = f64::from(survey.transactions) * scale;
    let units = f64::from(paths.units) * scale;
    let when = |holds: bool, ns: f64| if holds { ns } else { 0.0 };
    let structured = policy.explore != Explore::Unstructured;
    let alone = operations * (LOCATE + when(policy.on_versions(), LAY_OUT) + when(structured, STRATA)) + EPOCH;
    let work = operations * load.units_ns
        + units * (UNIT + when(policy.speculates(), SPECULATE))
        + operations * (TELL + when(policy.on_versions(), COPY))
        + when(policy.speculates(), transactions * JUDGE);
    // A sample that has fewer units than the epoch has larger ones.
    let lump = (paths.lump / scale).min(1.0);
    let shared = (1.0 / workers + lump * (1.0 - 1.0 / workers) / 2.0).max(lump) * work;
    let path = ((paths.critical - paths.lump).max(0.0) + lump).min(1.0) * work;
    let path = path.max(shared);
    let stepwise = (paths.stepwise * work).max(path);
    let explored = match policy.explore {
        Explore::Unstructured => path,
        Explore::Structured(Search::Bfs) => stepwise + f64::from(paths.strata) * scale * BARRIER,
        // Waits for less than a stratum and for more than the path.
        Explore::Structured(Search::Dfs) if policy.granularity == Granularity::Operation => (path + stepwise) / 2.0,
        // The same, of chains that are owned.
        Explore::Structured(Search::Dfs) => (path + stepwise) / 2.0 * UNEVEN + units * TURN / workers,
    };
    let redo = match policy.abort {
        Abort::VoteFirst => 0.0,
        Abort::Eager | Abort::Lazy => load.aborts * (transactions * REPAIR + REDONE * operations * load.units_ns),
    };
    alone + operations * LINK / workers + explored + redo
}
