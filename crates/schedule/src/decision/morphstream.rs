//! MorphStream's own decision model (2023, §4.4, Figure 6), to measure against.
//!
//! Three decisions by properties of the graph. The paper calls these high or low, and says that the thresholds depend on
//! hardware and workload; it shows them in a figure, for the authors' machine. The thresholds here are ours: *many*
//! edges are half an edge per transaction or more; degrees are *uniform* while the longest chain is at most 16 times the
//! mean; a function is *cheap* below 1 µs; aborts are *frequent* from a tenth on. The paper does not choose between the
//! two structured searches; here it is depth first, which has no barriers.

use crate::decision::model::Load;
use crate::policy::{Abort, Explore, Granularity, Policy, Search};
use tidemill_txn::Survey;

const EDGES_MANY: f64 = 0.5;
const SKEW_UNIFORM: f64 = 16.0;
const OPERATION_CHEAP_NS: f64 = 1_000.0;
const ABORTS_FREQUENT: f64 = 0.1;

/// The policy for an epoch like this.
pub fn morphstream(survey: &Survey, load: &Load) -> Policy {
    let many = |edges: u32| f64::from(edges) >= EDGES_MANY * f64::from(survey.transactions);
    let (temporal, parametric) = (many(survey.chains.temporal_edges()), many(survey.parametric_edges));
    let is_uniform = survey.chains.skew() <= SKEW_UNIFORM;
    let structured = temporal && parametric && many(survey.logical_edges) && is_uniform;
    let in_chains = !survey.is_cyclic && temporal && !parametric;
    let is_cheap = load.access_ns < OPERATION_CHEAP_NS;
    Policy {
        explore: if structured { Explore::Structured(Search::Dfs) } else { Explore::Unstructured },
        granularity: if in_chains { Granularity::Chain } else { Granularity::Operation },
        abort: if is_cheap && load.aborts >= ABORTS_FREQUENT { Abort::Lazy } else { Abort::Eager },
    }
}
