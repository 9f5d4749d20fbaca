//! The lengths of an epoch's chains in a few numbers.

/// The lengths of chains, which are the degrees of rows: counted while a partition is linked, without a pass of their
/// own, and added up over partitions.
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
    /// Counts an operation that brings its chain to this length.
    #[inline]
    pub(crate) fn grow(&mut self, length: u32) {
        self.operations += 1;
        self.longest = self.longest.max(length);
        if length.is_power_of_two() {
            self.at_least[length.trailing_zeros() as usize] += 1;
        }
    }

    /// Adds another partition.
    pub fn add(&mut self, other: &ChainSummary) {
        self.operations += other.operations;
        self.longest = self.longest.max(other.longest);
        for (mine, theirs) in self.at_least.iter_mut().zip(&other.at_least) {
            *mine += theirs;
        }
    }

    /// Returns the number of chains: rows that the epoch touches.
    pub fn chains(&self) -> u32 {
        self.at_least[0]
    }

    /// Edges between successive operations of a row: temporal dependencies, and parametric ones
    /// through the reads added for them. Every operation but the first of each chain has one.
    pub fn temporal_edges(&self) -> u32 {
        debug_assert!(self.chains() <= self.operations, "each chain has an operation");
        self.operations - self.chains()
    }

    /// Returns the operations per touched row.
    pub fn mean(&self) -> f64 {
        f64::from(self.operations) / f64::from(self.chains().max(1))
    }

    /// Returns the length of the longest chain over the mean length: 1 for a uniform distribution.
    pub fn skew(&self) -> f64 {
        f64::from(self.longest) / self.mean().max(1.0)
    }
}
