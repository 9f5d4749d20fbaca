//! What waits for what, as any exploration sees it.

use crate::graph::Graph;

/// Units of work, numbered so that each waits for smaller numbers only.
pub trait Precedence {
    /// How many there are.
    fn units(&self) -> u32;

    /// How many times a unit is told that something it waits for is done, before it may run.
    fn pending(&self, unit: u32) -> u32;

    /// Tells whom a unit tells, as often as it does.
    fn tell(&self, unit: u32, told: impl FnMut(u32));
}

/// Transactions that work on the rows in place: each waits for its neighbours in the chains of its rows.
impl Precedence for Graph {
    #[inline]
    fn units(&self) -> u32 {
        self.transactions()
    }

    #[inline]
    fn pending(&self, unit: u32) -> u32 {
        Graph::pending(self, unit)
    }

    #[inline]
    fn tell(&self, unit: u32, told: impl FnMut(u32)) {
        self.successors(unit).for_each(told);
    }
}
