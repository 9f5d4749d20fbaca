//! The precedence of units, as any exploration sees it.

use crate::graph::Graph;

/// Units of work, numbered so that each waits for smaller numbers only.
pub trait Precedence {
    /// Returns the number of units.
    fn units(&self) -> u32;

    /// Returns the number of predecessors that must tell a unit that they have run, before it may run.
    fn pending(&self, unit: u32) -> u32;

    /// Calls `told` with each unit that this one tells, as often as it tells it. All come after it.
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
