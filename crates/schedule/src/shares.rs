//! Who runs what, settled before anything runs: structured exploration depth first.
//!
//! **What.** Granularity `Chain`: workers own chains (shared-nothing; TStream 2020, §IV-E): chain *c* of an epoch, by where
//! it begins, is worker *c* mod *W*'s, and with it the units whose first operation it has. Granularity `Operation`: the
//! members of strata are dealt out one by one, so that each stratum is spread evenly.
//! **Invariant.** A share is in the order of strata. So where the least stratum that has units left has one in a share, the
//! share's next unit is of that stratum, and waits for nobody: somebody can always go on.
//! **Cost.** A pass over the slots where chains are owned, one over the units, and 4 bytes for each of both.
//! **Given up.** Balance: a hot row's chain is one worker's.

use std::ops::Range;
use tidemill_txn::{Flow, Graph};

/// The units of an epoch by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    units: Vec<u32>,
    /// By share, where it begins; and the end.
    starts: Vec<u32>,
    /// By slot, its chain.
    chains: Vec<u32>,
}

impl Shares {
    /// Deals out units, which are in the order of strata, one by one among so many.
    pub fn deal(&mut self, units: &[u32], count: u32) {
        let Shares { units: dealt, starts, .. } = self;
        dealt.clear();
        starts.clear();
        for share in 0..count as usize {
            starts.push(dealt.len() as u32);
            dealt.extend(units.iter().skip(share).step_by(count as usize));
        }
        starts.push(dealt.len() as u32);
    }

    /// Gives units to those among so many who own their chains. `flow`: where units are not transactions.
    pub fn own(&mut self, units: &[u32], count: u32, graph: &Graph, flow: Option<&Flow>) {
        let Shares { units: owned, starts, chains } = self;
        graph.chains(chains);
        let owner = |unit: u32| {
            let first = match flow {
                Some(flow) => flow.operations(graph, unit).next(),
                None => graph.operations(unit).next(),
            };
            // One without operations touches no chain.
            first.map_or(unit, |operation| chains[operation as usize]) % count
        };
        owned.clear();
        owned.resize(units.len(), 0);
        starts.clear();
        starts.resize(count as usize + 2, 0);
        // Beginnings two places to the right; filling moves each to its end, the beginning of the next.
        units.iter().for_each(|&unit| starts[owner(unit) as usize + 2] += 1);
        (2..starts.len()).for_each(|share| starts[share] += starts[share - 1]);
        for &unit in units {
            let place = &mut starts[owner(unit) as usize + 1];
            owned[*place as usize] = unit;
            *place += 1;
        }
        starts.pop();
    }

    /// Where a share lies among the units.
    pub fn of(&self, share: u32) -> Range<u32> {
        self.starts[share as usize]..self.starts[share as usize + 1]
    }

    /// The unit at a place.
    pub fn unit(&self, place: u32) -> u32 {
        self.units[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_txn::{AccessBuffer, RowId, Scratch};

    fn shares(shares: &Shares, count: u32) -> Vec<Vec<u32>> {
        (0..count).map(|share| shares.of(share).map(|place| shares.unit(place)).collect()).collect()
    }

    #[test]
    fn units_are_dealt_one_by_one() {
        let mut dealt = Shares::default();
        dealt.deal(&[4, 0, 3, 1, 2], 2);
        assert_eq!(shares(&dealt, 2), [vec![4, 3, 2], vec![0, 1]]);
        dealt.deal(&[7], 3);
        assert_eq!(shares(&dealt, 3), [vec![7], vec![], vec![]]);
    }

    #[test]
    fn a_chain_is_of_one_share() {
        let mut epoch = AccessBuffer::new();
        // Of rows 10, 20 and 30 in turn; each fourth touches nothing.
        for transaction in 0..40u64 {
            let rows = [10, 20, 30, 0].map(RowId)[transaction as usize % 4];
            epoch.push((transaction % 4 < 3).then_some(rows));
        }
        let mut graph = Graph::new();
        graph.build(epoch.accesses(), &mut Scratch::default());
        let all: Vec<u32> = (0..40).rev().collect();
        let mut owned = Shares::default();
        for count in [1, 2, 3, 5] {
            owned.own(&all, count, &graph, None);
            let shares = shares(&owned, count);
            let place = |unit: &u32| shares.iter().position(|share| share.contains(unit)).expect("it is in one");
            for row in 0..3 {
                let owners: Vec<usize> = (row..40).step_by(4).map(|unit| place(&unit)).collect();
                assert_eq!(owners, vec![row as usize % count as usize; 10], "{count} shares");
            }
            assert!(shares.iter().all(|share| share.is_sorted_by(|a, b| a > b)), "in the order given: {shares:?}");
            assert_eq!(shares.concat().len(), 40);
        }
    }
}
