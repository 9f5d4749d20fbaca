//! Steps by which workers find the strata of an epoch together, before they explore it.

use crate::executor::{Executor, Progress};
use crate::policy::Explore;
use crate::strata::Strata;
use crate::sync::SHARED_MIN;
use crate::worker::Worker;
use tidemill_txn::Precedence;

/// The number of workers up to which one finds the strata by itself: it needs no counters.
const ALONE_MAX: u32 = if cfg!(feature = "loom") { 1 } else { 2 };

/// The precedence of units; a visit to a unit raises the strata of those that wait for it.
struct Raising<'a, P> {
    precedence: &'a P,
    strata: &'a Strata,
}

impl<P: Precedence> Precedence for Raising<'_, P> {
    fn units(&self) -> u32 {
        self.precedence.units()
    }

    #[inline]
    fn pending(&self, unit: u32) -> u32 {
        self.precedence.pending(unit)
    }

    #[inline]
    fn tell(&self, unit: u32, mut told: impl FnMut(u32)) {
        let next = self.strata.of(unit) + 1;
        self.precedence.tell(unit, |unit| {
            self.strata.raise(unit, next);
            told(unit);
        });
    }
}

impl Executor {
    /// Makes a step of finding the strata of the epoch. Done when they are found.
    pub(crate) fn find_strata<P: Precedence>(&self, precedence: &P, worker: &mut Worker) -> Progress {
        if self.policy.explore == Explore::Unstructured || self.strata.is_found() {
            return Progress::Done;
        }
        self.stop_if_poisoned();
        match self.strata.is_numbered() {
            _ if self.workers <= ALONE_MAX => self.find_strata_alone(precedence),
            true => self.place_units(),
            false => self.number_units(precedence, worker),
        }
    }

    /// Finds all strata, if no other worker does.
    fn find_strata_alone<P: Precedence>(&self, precedence: &P) -> Progress {
        if !self.strata.find_alone(precedence, |place, unit| self.share_out(place, unit)) {
            return Progress::Starved;
        }
        self.pools.wake_all();
        Progress::Advanced
    }

    /// Comes to a unit, and raises those that wait for it; or if the worker has none, looks for units.
    fn number_units<P: Precedence>(&self, precedence: &P, worker: &mut Worker) -> Progress {
        let (strata, frontier) = (&self.strata, &self.strata.frontier);
        let raising = Raising { precedence, strata };
        if let Some(unit) = worker.next.take().or_else(|| worker.ready.pop()) {
            worker.met.push(unit);
            worker.next = frontier.release(&raising, unit, &mut worker.ready, |_| false);
            if worker.ready.len() >= SHARED_MIN as usize && frontier.is_claimed() && self.is_wanted(worker.id) {
                self.pools.put(worker.id, &mut worker.ready);
            }
            return Progress::Advanced;
        }
        self.pools.take(worker.id, &mut worker.ready, self.workers as usize, false);
        if !worker.ready.is_empty() || frontier.look(&raising, self.workers, &mut worker.ready, |_| false) {
            return Progress::Advanced;
        }
        if worker.met.is_empty() || !strata.number(&mut worker.met) {
            return Progress::Starved;
        }
        self.pools.wake_all();
        Progress::Advanced
    }

    /// Puts the next block of units into their places.
    fn place_units(&self) -> Progress {
        let Some(is_last) = self.strata.place_block(|place, unit| self.share_out(place, unit)) else {
            return Progress::Starved;
        };
        if is_last {
            self.pools.wake_all();
        }
        Progress::Advanced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::Execute;
    use crate::policy::{Granularity, Policy, Rows, Search};
    use std::thread;
    use tidemill_txn::sample::{self, Random, Zipf};
    use tidemill_txn::{AccessBuffer, Partitioning, SortedAccesses, UseBuffer};

    struct Nothing;

    impl Execute for Nothing {
        fn execute(&self, _worker: usize, _unit: u32) {}
    }

    /// Explores an epoch with this many workers, and compares the strata with those of a single pass.
    fn check(executor: &mut Executor, epoch: &AccessBuffer, workers: usize, search: Search) {
        let mut slice = SortedAccesses::new();
        slice.partition(Partitioning::with_bits(2), epoch.accesses());
        executor.prepare(&mut vec![slice]);
        executor.limit(workers as u32);
        let granularity = Granularity::Transaction(Rows::InPlace);
        let policy = Policy { granularity, explore: Explore::Structured(search), ..Policy::EPOCH };
        executor.arrange(policy, epoch.accesses(), &UseBuffer::default());
        let shared = &*executor;
        thread::scope(|scope| {
            for id in 0..workers {
                scope.spawn(move || shared.work(&mut Worker::new(id), &Nothing));
            }
        });
        let mut expected = tidemill_txn::Strata::new();
        expected.compute(executor.graph());
        let (strata, units) = (&executor.strata, executor.graph().transactions());
        (0..units).for_each(|unit| assert_eq!(strata.of(unit), expected.of(unit), "the stratum of unit {unit}"));
        for stratum in 0..expected.depth() {
            let mut members: Vec<u32> = strata.bounds(stratum).map(|place| strata.member(place)).collect();
            members.sort_unstable();
            assert_eq!(members, expected.stratum(stratum), "stratum {stratum}");
        }
    }

    #[test]
    fn all_workers_find_the_strata_that_one_pass_finds() {
        let mut random = Random::new(1);
        let (hot, cold) = (Zipf::new(500, 0.99), Zipf::new(50_000, 0.2));
        for workers in [1, 2, 3, 8] {
            let mut executor = Executor::new(workers);
            for round in 0..40 {
                let epoch = match round % 4 {
                    0 => sample::ledger(&mut random, 2_000, &hot),
                    1 => sample::ledger(&mut random, 2_000, &cold),
                    _ => sample::mixed(&mut random, 300),
                };
                let search = if random.below(2) == 0 { Search::Bfs } else { Search::Dfs };
                check(&mut executor, &epoch, workers, search);
            }
        }
    }
}
