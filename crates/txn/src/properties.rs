//! What a decision model wants to know of a graph (MorphStream §4.4, Table 3), as far as it can be
//! known from the graph alone. Abort ratio and cost per operation are measured as epochs run.

use crate::graph::Graph;
use crate::strata::Strata;
use crate::summary::ChainSummary;

/// A graph in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Properties {
    /// Transactions of the epoch.
    pub transactions: u32,
    /// Lengths of the chains, operations, temporal edges.
    pub chains: ChainSummary,
    /// Logical dependencies (MorphStream Definition 6), counted as the edges of a path through each
    /// transaction's operations: operations less transactions that have any.
    pub logical_edges: u32,
    /// Transactions without a predecessor.
    pub roots: u32,
    /// Transactions on the longest path: the least number of steps on any number of workers.
    pub critical_path: u32,
}

impl Properties {
    /// Counts what linking has not counted already. One pass over the graph.
    pub fn of(graph: &Graph, chains: ChainSummary, strata: &Strata) -> Self {
        let transactions = graph.transactions();
        let touching = (0..transactions).filter(|&transaction| graph.operations(transaction).next().is_some()).count();
        assert!(touching as u32 <= chains.operations, "{touching} transactions share {} operations", chains.operations);
        Properties {
            transactions,
            chains,
            logical_edges: chains.operations - touching as u32,
            roots: strata.stratum(0).len() as u32,
            critical_path: strata.depth(),
        }
    }

    /// Transactions per step of the critical path: the speed-up over one worker that no number of
    /// workers exceeds when all transactions cost the same. On `p` workers the steps are at most
    /// `transactions / p + critical_path` (Brent 1974, "The parallel evaluation of general arithmetic
    /// expressions").
    pub fn parallelism(&self) -> f64 {
        f64::from(self.transactions) / f64::from(self.critical_path.max(1))
    }
}
