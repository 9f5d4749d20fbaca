//! Structured exploration, depth first: which worker runs which unit is settled before anything runs.
//!
//! **What.** Granularity `Transaction`, in place: rows have owners ([`crate::owners`]), to whom transactions belong. Otherwise
//! the members of strata are dealt out one by one, so that each stratum is spread
//! evenly. A worker takes its own share, and another only if that has no worker.
//! **Invariant.** A share is in the order of strata. So in a share that has a unit of the lowest unfinished stratum, the
//! next unit is of that stratum, and all that it waits for has run: some worker can always go on.
//! **Cost.** 4 bytes for each unit; a worker goes over all of them to find its own.
//! **Given up.** Balance: a hot row belongs to one worker.

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The places of an epoch's units, which are in the order of strata, by share. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Place → its share. Set by the worker that puts a unit there.
    of: Vec<AtomicU32>,
    /// A flag for each share: whether a worker has taken it. Set by that worker.
    taken: Vec<AtomicBool>,
}

/// The rest of a share that a worker has.
#[derive(Debug)]
pub(crate) struct Share {
    number: u32,
    /// The place of its next unit.
    pub next: u32,
}

impl Shares {
    /// Begins an epoch of at most this many units, in `count` shares.
    pub fn begin(&mut self, units: u32, count: u32) {
        assert!(count > 0, "units are dealt out among no shares");
        if self.of.len() < units as usize {
            self.of.resize_with(units as usize, || AtomicU32::new(0));
        }
        self.taken.clear();
        self.taken.resize_with(count as usize, || AtomicBool::new(false));
    }

    /// Returns the number of shares.
    pub fn count(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Says whose the unit at a place is.
    pub fn put(&self, place: u32, share: u32) {
        debug_assert!(share < self.count(), "share {share} of {}", self.count());
        self.of[place as usize].store(share, Ordering::Relaxed);
    }

    /// Takes the share of a worker, or if that is taken, the first after it that is not; none if all are taken. `places`: how many
    /// there are in all.
    pub fn take(&self, worker: usize, places: u32) -> Option<Share> {
        let count = self.taken.len();
        let is_free = |share: &usize| {
            let taken = &self.taken[*share];
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Relaxed)
        };
        let number = (worker..worker + count).map(|share| share % count).find(is_free)? as u32;
        Some(Share { number, next: self.next(number, 0, places) })
    }

    /// Goes on to the next place of a share.
    pub fn advance(&self, share: &mut Share, places: u32) {
        share.next = self.next(share.number, share.next + 1, places);
    }

    /// Returns the first place of a share that is not before this one; the number of places if there is none.
    fn next(&self, share: u32, from: u32, places: u32) -> u32 {
        let is_of = |place: &u32| self.of[*place as usize].load(Ordering::Relaxed) == share;
        (from..places).find(is_of).unwrap_or(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the places of a share, taken by this worker.
    fn places(shares: &Shares, worker: usize, all: u32) -> Option<Vec<u32>> {
        let mut share = shares.take(worker, all)?;
        let mut places = Vec::new();
        while share.next < all {
            places.push(share.next);
            shares.advance(&mut share, all);
        }
        Some(places)
    }

    #[test]
    fn shares_have_their_places_in_order() {
        let mut shares = Shares::default();
        shares.begin(5, 3);
        (0..).zip([1, 0, 1, 1, 0]).for_each(|(place, share)| shares.put(place, share));
        let taken = [2, 1, 0, 0].map(|worker| places(&shares, worker, 5));
        assert_eq!(taken, [Some(vec![]), Some(vec![0, 2, 3]), Some(vec![1, 4]), None]);
        shares.begin(2, 1);
        (0..2).for_each(|place| shares.put(place, 0));
        assert_eq!(places(&shares, 0, 2), Some(vec![0, 1]), "places of an epoch before are nobody's");
    }

    #[test]
    fn a_worker_takes_its_own_share_before_that_of_another() {
        let mut shares = Shares::default();
        shares.begin(3, 3);
        (0..3).for_each(|place| shares.put(place, place));
        let taken = [1, 1, 5, 0].map(|worker| places(&shares, worker, 3));
        assert_eq!(taken, [Some(vec![1]), Some(vec![2]), Some(vec![0]), None]);
    }
}
