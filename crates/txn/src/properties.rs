//! What a decision model wants to know of a graph (MorphStream §4.4, Table 3), as far as it can be
//! known from the graph alone. Abort ratio and cost per operation are measured as epochs run.

use crate::graph::Graph;
use crate::strata::Strata;

/// The lengths of chains, which are the degrees of rows: counted as a partition is linked, at no
/// pass of its own, and added up over partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainSummary {
    /// Operations: the sum of the lengths.
    pub operations: u32,
    /// The length of the longest chain.
    pub longest: u32,
    /// `at_least[k]`: the chains of length `2^k` or more. A hot row shows as a long tail; uniform
    /// accesses to many rows as a fast decline.
    pub at_least: [u32; 32],
}

impl ChainSummary {
    /// A chain has come to this length.
    #[inline]
    pub(crate) fn grow(&mut self, length: u32) {
        self.operations += 1;
        self.longest = self.longest.max(length);
        if length.is_power_of_two() {
            self.at_least[length.trailing_zeros() as usize] += 1;
        }
    }

    /// Takes in another partition.
    pub fn add(&mut self, other: &ChainSummary) {
        self.operations += other.operations;
        self.longest = self.longest.max(other.longest);
        for (mine, theirs) in self.at_least.iter_mut().zip(&other.at_least) {
            *mine += theirs;
        }
    }

    /// The number of chains: rows that the epoch touches.
    pub fn chains(&self) -> u32 {
        self.at_least[0]
    }

    /// Edges between successive operations of a row: temporal dependencies, and parametric ones
    /// through the reads added for them. Every operation but the first of each chain has one.
    pub fn temporal_edges(&self) -> u32 {
        self.operations - self.chains()
    }

    /// Operations per touched row.
    pub fn mean(&self) -> f64 {
        f64::from(self.operations) / f64::from(self.chains().max(1))
    }

    /// How many times longer the longest chain is than the mean: 1 for a uniform distribution.
    pub fn skew(&self) -> f64 {
        f64::from(self.longest) / self.mean().max(1.0)
    }
}

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
    /// Counts what `link` has not already counted. One pass over the graph.
    pub fn of(graph: &Graph, chains: ChainSummary, strata: &Strata) -> Self {
        let transactions = graph.transactions();
        let touching = (0..transactions).filter(|&transaction| graph.operations(transaction).next().is_some()).count();
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
