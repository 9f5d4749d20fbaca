//! Structured exploration, depth first: which worker runs which unit is settled before anything runs.
//!
//! **What.** Granularity `Transaction`, in place: rows have owners (shared-nothing; TStream 2020, §IV-E). The owner of a
//! row follows from a hash of its identity, so it is the same in each epoch, and a transaction belongs to the owner of
//! the first row that it touches. Otherwise the members of strata are dealt out one by one, so that each stratum is spread
//! evenly. A worker takes its own share, and another only if that has no worker.
//! **Invariant.** A share is in the order of strata. So in a share that has a unit of the lowest unfinished stratum, the
//! next unit is of that stratum, and all that it waits for has run: some worker can always go on.
//! **Cost.** A pass over the transactions where rows have owners, one over the units, and 4 bytes for each of both.
//! **Given up.** Balance: a hot row belongs to one worker.

use crate::sync::{AtomicBool, Ordering};
use std::ops::Range;
use tidemill_txn::{Accesses, Buckets};

/// The units of an epoch by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    units: Buckets,
    /// Where rows have owners, by transaction: a number of its owner, the same for any number of shares.
    owners: Vec<u32>,
    /// By share, whether a worker has taken it. Set by that worker.
    taken: Vec<AtomicBool>,
}

impl Shares {
    /// Deals out units, which are in the order of strata, one by one among `count` shares.
    pub fn deal(&mut self, units: &[u32], count: u32) {
        assert!(count > 0, "units are dealt out among no shares");
        self.units.fill(count, || (0..).zip(units).map(|(number, &unit): (u32, _)| (number % count, unit)));
        self.offer(count);
    }

    /// Finds the owners of transactions with these accesses.
    pub fn find_owners(&mut self, accesses: Accesses<'_>) {
        // One without rows is anybody's.
        let number = |t: usize| accesses.rows_of(t).first().map_or(t as u32, |row| row.hashed() as u32);
        self.owners.clear();
        self.owners.extend((0..accesses.transactions()).map(number));
    }

    /// Puts each transaction into the one of `count` shares that is its owner's.
    pub fn own(&mut self, transactions: &[u32], count: u32) {
        let Shares { units, owners, .. } = self;
        units.fill(count, || transactions.iter().map(|&t| (owners[t as usize] % count, t)));
        self.offer(count);
    }

    fn offer(&mut self, count: u32) {
        self.taken.clear();
        self.taken.resize_with(count as usize, || AtomicBool::new(false));
    }

    /// Takes the share of a worker, or if that is taken, the first after it that is not. Returns the places of its units.
    pub fn take(&self, worker: usize) -> Option<Range<u32>> {
        let count = self.taken.len();
        let is_free = |share: &usize| {
            let taken = &self.taken[*share];
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Relaxed)
        };
        let share = (worker..worker + count).map(|share| share % count).find(is_free)?;
        Some(self.units.bounds(share as u32))
    }

    /// The unit at a place.
    pub fn unit(&self, place: u32) -> u32 {
        self.units.items()[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_txn::{AccessBuffer, RowId};

    /// The units of each share, taken by the workers from the last to the first.
    fn shares(shares: &Shares, count: u32) -> Vec<Vec<u32>> {
        let take = |worker| shares.take(worker).expect("its own").map(|place| shares.unit(place)).collect();
        let mut all: Vec<Vec<u32>> = (0..count as usize).rev().map(take).collect();
        assert_eq!(shares.take(0), None, "all are taken");
        all.reverse();
        all
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
    fn a_worker_takes_its_own_share_before_that_of_another() {
        let mut dealt = Shares::default();
        dealt.deal(&[0, 1, 2], 3);
        assert_eq!([1, 1, 5, 0].map(|worker| dealt.take(worker)), [Some(1..2), Some(2..3), Some(0..1), None]);
    }

    /// Whatever else is in the epoch, and in whatever order.
    #[test]
    fn a_row_has_the_same_owner_in_each_epoch() {
        let owners = |rows: &[u64], count: u32| {
            let mut epoch = AccessBuffer::new();
            rows.iter().for_each(|&row| epoch.push((row > 0).then_some(RowId(row << 6))));
            let all: Vec<u32> = (0..rows.len() as u32).rev().collect();
            let mut owned = Shares::default();
            owned.find_owners(epoch.accesses());
            owned.own(&all, count);
            let shares = shares(&owned, count);
            assert!(shares.iter().all(|share| share.is_sorted_by(|a, b| a > b)), "in the order given: {shares:?}");
            assert_eq!(shares.concat().len(), rows.len());
            let of = |t: u32| shares.iter().position(|share| share.contains(&t)).expect("each is in one");
            (0..).zip(rows).map(|(t, &row)| (row, of(t))).filter(|(row, _)| *row > 0).collect::<Vec<_>>()
        };
        for count in [1, 2, 3, 5] {
            let rows: Vec<u64> = (0..300).map(|t| t % 60).collect();
            let first = owners(&rows, count);
            let second = owners(&rows.iter().rev().copied().chain(60..90).collect::<Vec<_>>(), count);
            for (row, owner) in &first {
                assert!(second.iter().filter(|other| other.0 == *row).all(|other| other.1 == *owner), "row {row}");
            }
            let owned = |share: usize| first.iter().any(|(_, owner)| *owner == share);
            assert!((0..count as usize).all(owned), "{count} shares: one has no row of 59");
        }
    }
}
