//! One step of exploration: run a unit and release those that wait for it, or look for units to run.

use crate::execute::Execute;
use crate::executor::Executor;
use crate::participant::{Awaited, Scene, Step};
use crate::policy::{Abort, Explore, Granularity, Search};
use crate::sync::Ordering;
use crate::worker::Worker;
use tidemill_txn::Precedence;

/// The distance on its stack at which a worker prefetches units.
const PREFETCH_DISTANCE: usize = 8;

impl Executor {
    /// Runs the next unit, or if the worker has none, looks for units.
    #[inline]
    pub(crate) fn advance<P: Precedence, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
    ) -> Step {
        self.stop_if_poisoned();
        if self.repair.is_under_way() {
            self.join_repair(scene, worker);
            return Step::Advanced;
        }
        let Some(unit) = worker.next.take().or_else(|| worker.ready.pop()) else { return self.find(scene, worker) };
        self.run_unit(scene, worker, unit);
        worker.executed += 1;
        match self.policy.explore {
            Explore::Unstructured => {
                let gives = |unit| self.give_away(scene, worker.id, unit);
                worker.next = self.frontier.release(scene.precedence, unit, &mut worker.ready, gives);
            }
            // Nothing waits for single units: strata are shared out one after the other.
            Explore::Structured(Search::Bfs) => {}
            Explore::Structured(Search::Dfs) => {
                if self.frontier.notify(scene.precedence, unit) {
                    self.pools.wake_all();
                }
            }
        }
        if !worker.ready.is_empty() && self.is_work_wanted(worker.id) {
            self.pools.put(worker.id, &mut worker.ready);
        }
        Step::Advanced
    }

    /// Looks for units, for a worker that has none: claims some, or if all are claimed, reports what it has run.
    fn find<P: Precedence, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) -> Step {
        let claimed = match self.policy.explore {
            Explore::Unstructured => {
                self.pools.take(worker.id, &mut worker.ready, self.workers as usize, worker.is_impatient);
                let gives = |unit| self.give_away(scene, worker.id, unit);
                !worker.ready.is_empty() || self.frontier.look(scene.precedence, self.workers, &mut worker.ready, gives)
            }
            Explore::Structured(search) => {
                let awaited = match search {
                    Search::Bfs => self.claim_of_stratum(worker),
                    Search::Dfs => self.next_of_shares(scene, worker),
                };
                if let Some(awaited) = awaited {
                    return Step::Starved(awaited);
                }
                !worker.ready.is_empty()
            }
        };
        if claimed {
            worker.is_impatient = false;
            return Step::Advanced;
        }
        self.report(worker);
        match self.policy.abort {
            _ if !self.frontier.is_finished() => Step::Starved(Awaited::Work),
            Abort::Lazy => self.settle(scene, worker),
            Abort::Eager | Abort::VoteFirst => Step::Done,
        }
    }

    /// Gives a unit that is ready to the workers that it belongs to. False if this one is among them.
    #[inline]
    fn give_away<P, E: ?Sized>(&self, scene: &Scene<'_, P, E>, worker: usize, unit: u32) -> bool {
        if !self.policy.sharing.has_owners() {
            return false;
        }
        let chains = (self.policy.granularity == Granularity::Chain).then_some(scene.chains);
        let owner = self.owner(unit, chains);
        let other = owner.filter(|&part| part != self.pools.part_of(worker));
        other.inspect(|&part| self.pools.give(part, unit)).is_some()
    }

    /// Claims, in breadth-first exploration, units of the first stratum that has any left, and stacks them once all
    /// units of the strata before it have run. Stacks none if all are claimed; says what the worker must wait for
    /// first.
    ///
    /// Members are in the order of strata, and no unit runs before all units of the strata before its own. So when as
    /// many units have run as lie before a stratum, these are the units that have run: the count is the barrier.
    fn claim_of_stratum(&self, worker: &mut Worker) -> Option<Awaited> {
        let strata = &self.strata;
        let bounds = |place: u32| strata.bounds(strata.of(strata.member(place)));
        if worker.claimed.is_empty() {
            worker.claimed = self.frontier.claim(self.workers, |at| bounds(at).end)?;
        }
        let start = bounds(worker.claimed.start).start;
        if self.frontier.finished() < start {
            self.report(worker);
            if self.frontier.finished() < start {
                return Some(Awaited::Stratum(start));
            }
        }
        let claimed = std::mem::take(&mut worker.claimed);
        worker.ready.extend(claimed.rev().map(|place| strata.member(place)));
        None
    }

    /// Stacks, in depth-first exploration, the next unit of the worker's shares. Stacks none if no share is left; says
    /// which unit must wait for its turn.
    ///
    /// A worker takes its share when it comes, and further ones when it has lost its patience: perhaps no worker came
    /// for them, and they hold what it waits for. Of its shares it continues with the one whose next unit is of the
    /// lowest stratum; so some worker can always go on ([`crate::shares`]).
    fn next_of_shares<P: Precedence, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
    ) -> Option<Awaited> {
        let (strata, places) = (&self.strata, self.frontier.units());
        loop {
            worker.shares.retain(|share| share.next < places);
            // Places are in the order of strata.
            let next = worker.shares.iter_mut().min_by_key(|share| share.next);
            let Some(share) = next else { if self.take_share(worker) { continue } else { return None } };
            let unit = strata.member(share.next);
            let pending = scene.precedence.pending(unit);
            let arrived = if pending == 0 { 0 } else { self.frontier.arrived(unit) };
            debug_assert!(arrived <= pending, "unit {unit} was told {arrived} times of {pending}");
            if arrived == pending {
                if pending > 0 {
                    self.frontier.take(unit);
                }
                self.shares.advance(share, places);
                worker.is_impatient = false;
                worker.ready.push(unit);
                return None;
            }
            self.report(worker);
            if !worker.is_impatient || !self.take_share(worker) {
                return Some(Awaited::Turn { unit, pending });
            }
        }
    }

    /// Takes a share that no worker has. False if all are taken.
    fn take_share(&self, worker: &mut Worker) -> bool {
        let share = self.shares.take(worker.id, self.frontier.units());
        let any = share.is_some();
        worker.shares.extend(share);
        any
    }

    /// Runs a unit: a chain operation by operation.
    #[inline]
    fn run_unit<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, unit: u32) {
        debug_assert!(unit < self.frontier.units(), "unit {unit} of {}", self.frontier.units());
        if self.policy.granularity == Granularity::Chain {
            for &operation in scene.chains.units_of(unit) {
                self.stop_if_poisoned();
                self.run_timed(scene, worker, operation);
            }
        } else {
            if let Some(&soon) = worker.ready.iter().nth_back(PREFETCH_DISTANCE) {
                scene.execute.prefetch(soon);
            }
            self.run_timed(scene, worker, unit);
        }
        if self.policy.abort == Abort::Eager && self.policy.explore != Explore::Unstructured {
            self.end_in_stratum(scene, worker, unit);
        }
    }

    /// Runs a transaction or an operation, and times some of them.
    #[inline]
    fn run_timed<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, unit: u32) {
        let execute = scene.execute;
        scene.running.set(unit);
        if worker.sampler.is_due() {
            let (start, before) = (execute.now(), worker.times.total());
            self.run(scene, worker, unit);
            let took = (execute.now() - start).saturating_sub(worker.times.total() - before);
            worker.times.useful += worker.sampler.took(took);
            execute.took(worker.id, unit, took);
        } else {
            self.run(scene, worker, unit);
        }
    }

    #[inline]
    fn run<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, unit: u32) {
        if self.policy.speculates() {
            self.run_on_speculation(scene, worker, unit);
        } else if self.policy.takes_apart() && self.flow.is_verdict_unit(unit) {
            self.vote(scene.execute, worker.id, self.flow.unit(unit).0);
        } else {
            scene.execute.execute(worker.id, unit);
        }
    }

    /// Judges a transaction whose parts have run, before any other reads what they wrote.
    fn vote<E: Execute + ?Sized>(&self, execute: &E, worker: usize, transaction: u32) {
        if execute.judge(worker, transaction) {
            execute.revert(worker, transaction, &mut |_| {});
        }
    }

    /// Returns whether another worker may be out of work: there is one, no unit is left to claim, and the pool is
    /// empty. All three are hints, read after every unit.
    #[inline]
    fn is_work_wanted(&self, worker: usize) -> bool {
        self.is_wanted(worker) && self.policy.explore == Explore::Unstructured && self.frontier.is_claimed()
    }

    /// Returns whether another worker may be out of work, whatever is left to claim.
    #[inline]
    pub(crate) fn is_wanted(&self, worker: usize) -> bool {
        self.pools.is_wanting(worker) && self.present.load(Ordering::Relaxed) > 1
    }
}
