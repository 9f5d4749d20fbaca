//! The units by stratum: the auxiliary structure of structured exploration (MorphStream §4.1.1), found by one pass. The
//! simulation and tests use it; the executor finds the same with all workers (`schedule`, `strata.rs`).
//!
//! **Definition.** The stratum of a unit is the number of edges on the longest path that ends in it: 0 for
//! roots, else one more than the largest among those that it waits for.
//! **Law.** No two units of one stratum wait for each other. So a stratum can run in parallel once those
//! before it have run.
//! **Cost.** One forward pass over the edges and one counting sort; 12 bytes per unit.

use crate::buckets::Buckets;
use crate::precedence::Precedence;

/// Units grouped by stratum, in position order inside each. Reused from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct Strata {
    /// Stratum of each unit.
    level: Vec<u32>,
    members: Buckets,
}

impl Strata {
    /// Makes empty strata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the strata.
    pub fn compute(&mut self, precedence: &impl Precedence) {
        self.level.clear();
        self.level.resize(precedence.units() as usize, 0);
        for unit in 0..precedence.units() {
            let next = self.level[unit as usize] + 1;
            precedence.tell(unit, |told| {
                debug_assert!(told > unit, "unit {unit} tells {told}, which is not after it");
                let level = &mut self.level[told as usize];
                *level = next.max(*level);
            });
        }
        let depth = self.level.iter().max().map_or(0, |deepest| deepest + 1);
        self.members.fill(depth, || (0..).zip(&self.level).map(|(unit, &level)| (level, unit)));
    }

    /// Returns the number of strata: units on the longest path, the critical path of the epoch.
    pub fn depth(&self) -> u32 {
        self.members.count()
    }

    /// Returns the stratum of a unit.
    pub fn of(&self, unit: u32) -> u32 {
        self.level[unit as usize]
    }

    /// Returns all units, stratum by stratum, in position order inside each.
    pub fn members(&self) -> &[u32] {
        self.members.items()
    }

    /// Returns the range of a stratum among the members; empty, and at the end, beyond the depth.
    pub fn bounds(&self, stratum: u32) -> std::ops::Range<u32> {
        let end = self.level.len() as u32;
        if stratum < self.depth() { self.members.bounds(stratum) } else { end..end }
    }

    /// Returns the units of one stratum, in position order; none beyond the depth.
    pub fn stratum(&self, stratum: u32) -> &[u32] {
        if stratum < self.depth() { self.members.of(stratum) } else { &[] }
    }
}
