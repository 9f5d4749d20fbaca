//! Structured exploration, depth first: which worker runs which unit is settled before anything runs.
//!
//! **What.** Granularity `Transaction`: each share is a set of chains (shared-nothing; TStream 2020, §IV-E). Chain *c* of
//! an epoch, numbered by where it begins, belongs to share *c* mod *W*, with the transactions whose first operation is in
//! it. Otherwise the members of strata are dealt out one by one, so that each stratum is spread evenly.
//! **Invariant.** A share is in the order of strata. So in a share that has a unit of the lowest unfinished stratum, the
//! next unit is of that stratum, and all that it waits for has run: some worker can always go on.
//! **Cost.** A pass over the slots where chains are owned, one over the units, and 4 bytes per slot and per unit.
//! **Given up.** Balance: the chain of a hot row belongs to one worker.

use std::ops::Range;
use tidemill_txn::{Buckets, Graph};

/// The units of an epoch by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    units: Buckets,
    /// The chain of each slot.
    chains: Vec<u32>,
}

impl Shares {
    /// Deals out units, which are in the order of strata, one by one among `count` shares.
    pub fn deal(&mut self, units: &[u32], count: u32) {
        assert!(count > 0, "units are dealt out among no shares");
        self.units.fill(count, || (0..).zip(units).map(|(number, &unit): (u32, _)| (number % count, unit)));
    }

    /// Puts each transaction into the one of `count` shares that owns its chain.
    pub fn own(&mut self, transactions: &[u32], count: u32, graph: &Graph) {
        let Shares { units, chains } = self;
        graph.chains(chains);
        let owner = |transaction: u32| {
            let first = graph.operations(transaction).next();
            // One without operations touches no chain: any share will do.
            first.map_or(transaction, |operation| chains[operation as usize]) % count
        };
        units.fill(count, || transactions.iter().map(|&transaction| (owner(transaction), transaction)));
    }

    /// The places of a share's units.
    pub fn of(&self, share: u32) -> Range<u32> {
        self.units.bounds(share)
    }

    /// The unit at a place.
    pub fn unit(&self, place: u32) -> u32 {
        self.units.items()[place as usize]
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
            owned.own(&all, count, &graph);
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
