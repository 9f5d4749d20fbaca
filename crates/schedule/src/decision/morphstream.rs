//! MorphStream's own decision model (2023, §4.4, Figure 6), to measure against.
//!
//! Three decisions by properties of the graph of a batch, all of it. Structured exploration: the *sum* of temporal, logical
//! and parametric dependencies is high, and degrees are uniform. Chains as units: no chain waits for another in a cycle,
//! temporal dependencies are many and parametric ones few. Lazy aborts: functions are cheap and aborts frequent. That it is
//! the sum, that dependencies are counted by batch, and that a structured search is depth first, is from the authors'
//! program (`Collector.decisionTree`); the paper's text says no more than that the number of all three is high.
//!
//! The paper says that the thresholds depend on hardware and workload, and has its own in a picture. Those here are ours.
//! They are such that the model decides what the paper reports of its four phases (§6.2.2) and two groups (§6.2.3) on the
//! workloads of Table 5, of which a batch has 10,240 or 40,960 events.

use crate::decision::model::Load;
use crate::policy::{Abort, Explore, Granularity, Policy, Search, Sharing};
use tidemill_txn::Survey;

/// Dependencies of all kinds in a batch.
const DEPENDENCIES_MANY: u64 = 10_000;
/// Temporal dependencies in a batch.
const TEMPORAL_MANY: u32 = 500;
/// Parametric dependencies in a batch.
const PARAMETRIC_MANY: u32 = 30_000;
/// The longest chain by the mean one, at most.
const SKEW_UNIFORM: f64 = 16.0;
/// The time of an operation, nanoseconds: twice the C of Table 5.
const OPERATION_CHEAP_NS: f64 = 20_000.0;
/// The share of transactions that abort.
const ABORTS_FREQUENT: f64 = 0.1;

/// Returns the policy for a batch like this. The survey has the edges of all its transactions.
pub fn decide_as_morphstream(survey: &Survey, load: &Load) -> Policy {
    let edges = &survey.edges;
    let structured = edges.sum() >= DEPENDENCIES_MANY && survey.chains.skew() <= SKEW_UNIFORM;
    let in_chains = !edges.is_cyclic && edges.temporal >= TEMPORAL_MANY && edges.parametric < PARAMETRIC_MANY;
    let in_vain = load.access_ns < OPERATION_CHEAP_NS && load.aborts >= ABORTS_FREQUENT;
    Policy {
        explore: if structured { Explore::Structured(Search::Dfs) } else { Explore::Unstructured },
        granularity: if in_chains { Granularity::Chain } else { Granularity::Operation },
        abort: if in_vain { Abort::Lazy } else { Abort::Eager },
        sharing: Sharing::Everything,
    }
}
