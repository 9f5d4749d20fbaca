//! The steps of the executor's loop: which unit is next, running it, telling those that wait for it.

use crate::execute::Execute;
use crate::executor::{Executor, Idle, Place, Progress, Step, Structure, Worker};
use crate::policy::{Explore, Granularity, Search};
use crate::shares::Shares;
use crate::sync::{BLOCK_MAX, Ordering, PATIENCE, SPINS_MAX, spin_loop};
use tidemill_txn::{Precedence, Strata};

/// In a counter: the unit was looked at. More than there can be edges to one.
const LOOKED_AT: u32 = 1 << 31;

/// How far ahead on its stack a worker asks for prefetches.
const PREFETCH_DISTANCE: usize = 8;

impl Executor {
    /// The next unit to run.
    pub(crate) fn find<P: Precedence, E: Execute + ?Sized>(
        &self,
        (precedence, structure): (&P, &Structure),
        worker: &mut Worker,
        execute: &E,
        idle: Idle,
    ) -> Step<u32> {
        loop {
            if let Some(unit) = worker.ready.pop() {
                return Step::Go(unit);
            }
            let found = match self.policy.explore {
                Explore::Unstructured => {
                    self.pools.take(worker.id, &mut worker.ready);
                    !worker.ready.is_empty() || self.look(precedence, &mut worker.ready)
                }
                Explore::Structured(Search::Bfs) => self.claim_of_stratum(&structure.strata, worker, execute),
                Explore::Structured(Search::Dfs) => self.next_of_shares((precedence, structure), worker, execute),
            };
            if found {
                continue;
            }
            self.report(worker);
            if self.is_finished() {
                return Step::Stop(Progress::Done);
            }
            match idle {
                Idle::Wait => {
                    let id = worker.id;
                    worker.wait(execute, || self.pools.wait(id, || self.is_finished() || self.is_poisoned()));
                }
                Idle::Leave => {}
            }
            self.stop_if_poisoned();
            if idle == Idle::Leave && self.pools.is_dry() {
                return Step::Stop(Progress::Starved);
            }
        }
    }

    /// Claims a block of units and stacks those that are ready, the first on top. False if all are claimed.
    fn look<P: Precedence>(&self, precedence: &P, ready: &mut Vec<u32>) -> bool {
        let Some((begin, end)) = self.claim(|_| self.units) else { return false };
        ready.extend((begin..end).rev().filter(|&unit| self.is_ready(precedence, unit)));
        true
    }

    /// Claims the next block of units, of at most what is left before the end that belongs to its beginning.
    fn claim(&self, end_of: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
        let mut begin = self.next_look.load(Ordering::Relaxed);
        loop {
            if begin >= self.units {
                return None;
            }
            let left = end_of(begin) - begin;
            let end = begin + (left / (2 * self.workers)).clamp(1, BLOCK_MAX);
            let order = Ordering::Relaxed;
            match self.next_look.compare_exchange_weak(begin, end, order, order) {
                Ok(_) => return Some((begin, end)),
                Err(now) => begin = now,
            }
        }
    }

    /// Breadth first: claims units of the first stratum that has any left, and waits until all of those before
    /// it have run. False if all are claimed.
    ///
    /// Members are in the order of strata, and none is run before all of the strata before its own. So as
    /// many have run as lie before a stratum exactly if these are they: the count is the barrier.
    fn claim_of_stratum<E: Execute + ?Sized>(&self, strata: &Strata, worker: &mut Worker, execute: &E) -> bool {
        let members = strata.members();
        let bounds = |at: u32| strata.bounds(strata.of(members[at as usize]));
        let Some((begin, end)) = self.claim(|at| bounds(at).end) else { return false };
        let start = bounds(begin).start;
        if self.finished() < start {
            self.report(worker);
            let id = worker.id;
            worker.wait(execute, || self.pools.wait_for(id, || self.finished() >= start || self.is_poisoned()));
            self.stop_if_poisoned();
        }
        worker.ready.extend(members[begin as usize..end as usize].iter().rev());
        true
    }

    /// Depth first: waits for the first unit of the worker's shares. False if none is left.
    ///
    /// A worker takes one share when it comes, and further ones when it has lost its patience: nobody may have come
    /// for them, and what it waits for may be there. Of its shares it goes on with the one whose next unit is of the
    /// least stratum; so there is always one who can go on ([`crate::shares`]).
    fn next_of_shares<P: Precedence, E: Execute + ?Sized>(
        &self,
        (precedence, structure): (&P, &Structure),
        worker: &mut Worker,
        execute: &E,
    ) -> bool {
        let Structure { strata, shares, .. } = structure;
        if worker.shares.is_empty() && !self.take_share(shares, worker) {
            return false;
        }
        let mut spins = 0;
        loop {
            worker.shares.retain(|share| !share.is_empty());
            let next = worker.shares.iter_mut().min_by_key(|share| strata.of(shares.unit(share.start)));
            let Some(share) = next else { return self.take_share(shares, worker) };
            let unit = shares.unit(share.start);
            let pending = precedence.pending(unit);
            let counter = &self.counters[unit as usize];
            if pending == 0 || counter.load(Ordering::Acquire) == pending {
                if pending > 0 {
                    counter.store(0, Ordering::Relaxed);
                }
                share.start += 1;
                worker.ready.push(unit);
                return true;
            }
            self.report(worker);
            self.stop_if_poisoned();
            if spins < SPINS_MAX * PATIENCE {
                worker.wait(execute, || {
                    while spins < SPINS_MAX * PATIENCE && counter.load(Ordering::Acquire) != pending {
                        spins += 1;
                        spin_loop();
                    }
                });
            } else if !self.take_share(shares, worker) {
                let is_ready = || counter.load(Ordering::Acquire) == pending || self.is_poisoned();
                let id = worker.id;
                worker.wait(execute, || self.pools.wait_for(id, is_ready));
            }
        }
    }

    /// Takes the next share that nobody has. False if all are taken.
    fn take_share(&self, shares: &Shares, worker: &mut Worker) -> bool {
        if self.next_look.load(Ordering::Relaxed) >= self.workers {
            return false;
        }
        let share = self.next_look.fetch_add(1, Ordering::Relaxed);
        if share < self.workers {
            worker.shares.push(shares.of(share));
        }
        share < self.workers
    }

    /// Runs a ready unit and on along its chains, as far as that goes.
    pub(crate) fn run_along<P: Precedence, E: Execute + ?Sized>(
        &self,
        (precedence, structure): (&P, &Structure),
        worker: &mut Worker,
        execute: &E,
        first: u32,
        place: &Place<'_>,
    ) {
        let mut current = Some(first);
        while let Some(unit) = current {
            self.stop_if_poisoned();
            if let Some(&soon) = worker.ready.iter().nth_back(PREFETCH_DISTANCE) {
                execute.prefetch(soon);
            }
            place.running.set(unit);
            if worker.sampler.is_due() {
                let (start, before) = (execute.now(), worker.times.total());
                self.run((structure, place), worker, execute, unit);
                let took = (execute.now() - start).saturating_sub(worker.times.total() - before);
                worker.times.useful += worker.sampler.took(took);
                execute.took(worker.id, unit, took);
            } else {
                self.run((structure, place), worker, execute, unit);
            }
            worker.executed += 1;
            current = match self.policy.explore {
                Explore::Unstructured => self.release(precedence, unit, &mut worker.ready),
                Explore::Structured(Search::Bfs) => None,
                Explore::Structured(Search::Dfs) => self.notify(precedence, unit),
            };
            if !worker.ready.is_empty() && self.is_work_wanted(worker.id) {
                self.pools.put(worker.id, &mut worker.ready);
            }
        }
    }

    #[inline]
    fn run<E: Execute + ?Sized>(&self, here: (&Structure, &Place<'_>), worker: &mut Worker, execute: &E, unit: u32) {
        if self.policy.speculates() {
            self.run_on_speculation(here, worker, execute, unit);
        } else {
            execute.execute(worker.id, unit);
        }
    }

    /// Tells those that wait for a unit that it has run. What became ready is stacked, but along chains the
    /// first in position order, which the most may wait for, is returned.
    fn release<P: Precedence>(&self, precedence: &P, unit: u32, ready: &mut Vec<u32>) -> Option<u32> {
        let mut first = None;
        precedence.tell(unit, |told| {
            if self.arrive(told) {
                match first {
                    None => first = Some(told),
                    Some(other) => {
                        ready.push(other.max(told));
                        first = Some(other.min(told));
                    }
                }
            }
        });
        if self.policy.granularity == Granularity::Operation {
            ready.extend(first.take());
        }
        first
    }

    /// Tells those that wait for a unit that it has run; their owners look for themselves.
    fn notify<P: Precedence>(&self, precedence: &P, unit: u32) -> Option<u32> {
        let mut any = false;
        precedence.tell(unit, |told| {
            any = true;
            self.counters[told as usize].fetch_add(1, Ordering::AcqRel);
        });
        if any {
            self.pools.wake_all();
        }
        None
    }

    /// Looks at a unit. True if all that it waits for has run.
    #[inline]
    fn is_ready<P: Precedence>(&self, precedence: &P, unit: u32) -> bool {
        let pending = precedence.pending(unit);
        if pending == 0 {
            return true;
        }
        let counter = &self.counters[unit as usize];
        let has_all = counter.load(Ordering::Acquire) == pending
            || counter.fetch_add(LOOKED_AT - pending, Ordering::AcqRel) == pending;
        if has_all {
            // Nobody else comes here in this epoch.
            counter.store(0, Ordering::Relaxed);
        }
        has_all
    }

    /// One of the edges that a unit waits for is done. True if it was looked at and this is the last.
    #[inline]
    fn arrive(&self, unit: u32) -> bool {
        let counter = &self.counters[unit as usize];
        let is_last = counter.fetch_add(1, Ordering::AcqRel) + 1 == LOOKED_AT;
        if is_last {
            counter.store(0, Ordering::Relaxed);
        }
        is_last
    }

    /// Whether somebody may be out of work: there is another worker, nothing left to claim, and nothing
    /// in the pool. All three are hints, looked at after every unit.
    #[inline]
    fn is_work_wanted(&self, worker: usize) -> bool {
        self.pools.is_wanting(worker)
            && self.common.present.load(Ordering::Relaxed) > 1
            && self.policy.explore == Explore::Unstructured
            && self.next_look.load(Ordering::Relaxed) >= self.units
    }
}
