//! Structured exploration, depth first: which worker runs which unit is settled before anything runs.
//!
//! **What.** Granularity `Transaction`, in place: rows have owners ([`crate::owners`]), to whom transactions belong. Otherwise
//! the members of strata are dealt out one by one, so that each stratum is spread
//! evenly. A worker takes its own share, and another only if that has no worker.
//! **Invariant.** A share is in the order of strata. So in a share that has a unit of the lowest unfinished stratum, the
//! next unit is of that stratum, and all that it waits for has run: some worker can always go on.
//! **Cost.** A pass over the units, and 4 bytes for each.
//! **Given up.** Balance: a hot row belongs to one worker.

use crate::sync::{AtomicBool, Ordering};
use std::ops::Range;
use tidemill_txn::Buckets;

/// The units of an epoch by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    units: Buckets,
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

    /// Puts each unit, in the order of strata, into the one of `count` shares that is its owner's.
    pub fn own(&mut self, units: &[u32], count: u32, owner: impl Fn(u32) -> u32) {
        self.units.fill(count, || units.iter().map(|&unit| (owner(unit), unit)));
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
    fn units_are_put_where_their_owner_is() {
        let mut owned = Shares::default();
        owned.own(&[4, 0, 3, 1, 2], 3, |unit| unit % 2);
        assert_eq!(shares(&owned, 3), [vec![4, 0, 2], vec![3, 1], vec![]]);
    }

    #[test]
    fn a_worker_takes_its_own_share_before_that_of_another() {
        let mut dealt = Shares::default();
        dealt.deal(&[0, 1, 2], 3);
        assert_eq!([1, 1, 5, 0].map(|worker| dealt.take(worker)), [Some(1..2), Some(2..3), Some(0..1), None]);
    }
}
