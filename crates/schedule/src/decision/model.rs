//! The time that the access stage of an epoch takes under a policy, predicted from properties of the epoch.
//!
//! time = construct + max(critical path, work / workers + the end) + redo. Work is the serial cost of the transactions
//! and an overhead per unit. At the end the other workers wait for the last one, on average for half a unit. Breadth
//! first, each stratum is a term of its own and ends with a barrier; chains that are owned wait for turns. The constants
//! depend on the machine; most are nanoseconds on one of today's cores. They need only be good enough that a policy
//! worth a try looks so: [`crate::Decision`] multiplies the prediction by the ratio of measured epochs.

use super::candidate::Candidate;
use crate::policy::{Abort, Explore, Granularity, Policy, Search};
use tidemill_txn::{Cut, Survey};

/// The cost per operation of locating and partitioning, on one worker. Prepare does this and lays out versions beside
/// the access of earlier epochs, where there are several workers; measured epochs say how much that saves.
const LOCATE: f64 = 14.0;
/// The cost per operation of laying out versions, on one worker.
const LAY_OUT: f64 = 14.0;
/// The cost per operation of copying the last versions into rows after the run, on all workers.
const COPY_LAST: f64 = 14.0;
/// The cost per operation of finding strata, on one worker. Three workers or more share twice as much work.
const STRATA: f64 = 25.0;
/// The cost per operation of linking, on all workers.
const LINK: f64 = 12.0;
/// The cost per unit of finding the unit and calling its code.
const UNIT: f64 = 40.0;
/// The cost per operation of releasing the next operation of its row.
const TELL: f64 = 10.0;
/// The cost per operation of copying a version.
const COPY: f64 = 30.0;
/// The cost per unit of the locks and the states that speculation needs.
const SPECULATE: f64 = 60.0;
/// The cost per transaction of a verdict operation of its own.
const VERDICT: f64 = 100.0;
/// The cost per stratum of the barrier.
const BARRIER: f64 = 1_000.0;
/// The cost per unit, if chains are owned, of waiting for other owners.
const TURN: f64 = 200.0;
/// The work of the owner with most work, over the mean.
const UNEVEN: f64 = 1.1;
/// The cost per abort, without running transactions again.
const REPAIR: f64 = 500.0;
/// Transactions that one abort runs again, itself included.
const REDONE: f64 = 2.0;
/// The cost per epoch of waking workers and parking them.
const EPOCH: f64 = 5_000.0;

/// The present cost of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Serial access, per operation, nanoseconds.
    pub access_ns: f64,
    /// Access in parallel, all workers together, with the travel of rows between them.
    pub units_ns: f64,
    /// The other stages, all workers together, per operation, nanoseconds.
    pub other_ns: f64,
    /// The share of transactions that abort.
    pub aborts: f64,
}

/// Returns the wall time of the access stage of an epoch of this many operations, nanoseconds, before correction.
/// (Strata were surveyed for all workers: of fewer, each stratum may take longer than predicted.)
pub fn predict(candidate: Candidate, survey: &Survey, load: &Load, operations: f64) -> f64 {
    let (policy, workers) = (candidate.policy, f64::from(candidate.workers));
    let cut = match policy {
        Policy { granularity: Granularity::Epoch, .. } => return operations * load.access_ns,
        _ if policy.takes_apart() => Cut::Parts,
        _ if policy.on_versions() => Cut::Whole,
        _ => Cut::InPlace,
    };
    let paths = survey.paths(cut);
    assert!(workers >= 1.0, "work is shared out among {workers} workers");
    let scale = operations / f64::from(survey.chains.operations.max(1));
    let transactions = f64::from(survey.transactions) * scale;
    let units = f64::from(paths.units) * scale;
    let when = |holds: bool, ns: f64| if holds { ns } else { 0.0 };
    let structured = policy.explore != Explore::Unstructured;
    let alone = operations * (LOCATE + when(policy.on_versions(), LAY_OUT)) + EPOCH;
    let work = operations * load.units_ns
        + units * (UNIT + when(policy.speculates(), SPECULATE))
        + operations * (TELL + when(policy.on_versions(), COPY))
        + when(policy.takes_apart(), transactions * VERDICT);
    // In a sample with fewer units than the epoch each is a larger share of the work.
    let lump = (paths.lump / scale).min(1.0);
    let shared = (1.0 / workers + lump * (1.0 - 1.0 / workers) / 2.0).max(lump) * work;
    let path = ((paths.critical - paths.lump).max(0.0) + lump).min(1.0) * work;
    let path = path.max(shared);
    let stepwise = (paths.stepwise * work).max(path);
    let explored = match policy.explore {
        Explore::Unstructured => path,
        Explore::Structured(Search::Bfs) => stepwise + f64::from(paths.strata) * scale * BARRIER,
        // Between the path and the strata: a unit waits for its predecessors, not for a whole stratum.
        Explore::Structured(Search::Dfs) if policy.on_versions() => (path + stepwise) / 2.0,
        // Chains, which have owners: likewise between the path and the strata, with uneven shares.
        Explore::Structured(Search::Dfs) => (path + stepwise) / 2.0 * UNEVEN + units * TURN / workers,
    };
    let redo = match policy.abort {
        Abort::VoteFirst => 0.0,
        Abort::Eager | Abort::Lazy => load.aborts * (transactions * REPAIR + REDONE * operations * load.units_ns),
    };
    let together = LINK + when(policy.on_versions(), COPY_LAST);
    let strata = when(structured, STRATA) * (2.0 / workers).min(1.0);
    alone + operations * (together / workers + strata) + explored + redo
}
