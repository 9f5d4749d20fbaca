//! The transactions by stratum: the auxiliary structure of structured exploration (MorphStream §4.1.1).
//!
//! **Definition.** The stratum of a transaction is the number of edges on the longest path that ends
//! in it: 0 for roots, else one more than the largest among its predecessors.
//! **Law.** No two transactions of one stratum share a row (the earlier one would be on a path to the
//! later one). So a stratum can run in parallel once those before it have run.
//! **Cost.** One forward pass over the edges and one counting sort; 12 bytes per transaction.

use crate::graph::Graph;

/// Transactions grouped by stratum, in position order inside each. Reused from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct Strata {
    /// Stratum of each transaction.
    level: Vec<u32>,
    /// `starts[s]..starts[s + 1]` are the members of stratum `s`.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl Strata {
    /// Empty strata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the strata of a linked graph.
    pub fn compute(&mut self, graph: &Graph) {
        let transactions = graph.transactions();
        self.level.clear();
        self.level.resize(transactions as usize, 0);
        for transaction in 0..transactions {
            let next = self.level[transaction as usize] + 1;
            for successor in graph.successors(transaction) {
                let level = &mut self.level[successor as usize];
                *level = next.max(*level);
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        let depth = self.level.iter().max().map_or(0, |deepest| deepest + 1);
        self.starts.clear();
        self.starts.resize(depth as usize + 1, 0);
        for &level in &self.level {
            self.starts[level as usize + 1] += 1;
        }
        // Beginnings one place to the right; filling moves each to its end, the beginning of the next.
        let mut place = 0;
        for start in &mut self.starts[1..] {
            let size = *start;
            *start = place;
            place += size;
        }
        self.members.resize(self.level.len(), 0);
        for (transaction, &level) in self.level.iter().enumerate() {
            let place = &mut self.starts[level as usize + 1];
            self.members[*place as usize] = transaction as u32;
            *place += 1;
        }
    }

    /// The number of strata: transactions on the longest path, the critical path of the epoch.
    pub fn depth(&self) -> u32 {
        self.starts.len().saturating_sub(1) as u32
    }

    /// The stratum of a transaction.
    pub fn of(&self, transaction: u32) -> u32 {
        self.level[transaction as usize]
    }

    /// The transactions of one stratum, in position order; none beyond the depth.
    pub fn stratum(&self, stratum: u32) -> &[u32] {
        if stratum >= self.depth() {
            return &[];
        }
        &self.members[self.starts[stratum as usize] as usize..self.starts[stratum as usize + 1] as usize]
    }
}
