//! Structured exploration, depth first: which worker runs which unit is settled before anything runs.
//!
//! **What.** Granularity `Transaction`: each share is a set of chains (shared-nothing; TStream 2020, §IV-E). Chain *c* of an
//! epoch, numbered by where it begins, belongs to share *c* mod *W*, with the units whose first operation is in it.
//! Granularity `Operation`: the members of strata are dealt out one by one, so that each stratum is spread evenly.
//! **Invariant.** A share is in the order of strata. So in a share that has a unit of the lowest unfinished stratum, the
//! next unit is of that stratum, and all that it waits for has run: some worker can always go on.
//! **Cost.** A pass over the slots where chains are owned, one over the units, and 4 bytes per slot and per unit.
//! **Given up.** Balance: the chain of a hot row belongs to one worker.

use std::ops::Range;
use tidemill_txn::{Flow, Graph};

/// The units of an epoch by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    units: Vec<u32>,
    /// Where each share begins, and the end.
    starts: Vec<u32>,
    /// The chain of each slot.
    chains: Vec<u32>,
}

impl Shares {
    /// Deals out units, which are in the order of strata, one by one among `count` shares.
    pub fn deal(&mut self, units: &[u32], count: u32) {
        assert!(count > 0, "units are dealt out among no shares");
        let Shares { units: dealt, starts, .. } = self;
        dealt.clear();
        starts.clear();
        for share in 0..count as usize {
            starts.push(dealt.len() as u32);
            dealt.extend(units.iter().skip(share).step_by(count as usize));
        }
        assert_eq!(dealt.len(), units.len(), "every unit is in one share");
        starts.push(dealt.len() as u32);
    }

    /// Puts each unit into the one of `count` shares that owns its chain. `flow`: where units are not transactions.
    pub fn own(&mut self, units: &[u32], count: u32, graph: &Graph, flow: Option<&Flow>) {
        let Shares { units: owned, starts, chains } = self;
        graph.chains(chains);
        let owner = |unit: u32| {
            let first = match flow {
                Some(flow) => flow.operations(graph, unit).next(),
                None => graph.operations(unit).next(),
            };
            // A unit without operations touches no chain: any share will do.
            first.map_or(unit, |operation| chains[operation as usize]) % count
        };
        owned.clear();
        owned.resize(units.len(), 0);
        starts.clear();
        starts.resize(count as usize + 2, 0);
        // Counts two places to the right become beginnings one place to the right; filling moves each of these to the
        // end of its share, the beginning of the next.
        units.iter().for_each(|&unit| starts[owner(unit) as usize + 2] += 1);
        (2..starts.len()).for_each(|share| starts[share] += starts[share - 1]);
        for &unit in units {
            let place = &mut starts[owner(unit) as usize + 1];
            owned[*place as usize] = unit;
            *place += 1;
        }
        starts.pop();
        assert!(starts.last() == Some(&(units.len() as u32)), "every unit is in one share");
    }

    /// The places of a share's units.
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
