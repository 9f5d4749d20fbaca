//! A worker that takes part in an epoch: it repeats a step, and waits when a step finds nothing to do.
//!
//! **Law.** A step never waits for another worker. What a starved worker waits for is made by a worker that has claimed
//! it and that can advance; so while units are left, some participant advances, and a single one that is never helped
//! completes the epoch. (A repair begins and ends within a step. So a step waits for workers that are inside of one at
//! most, at the lock of `repair.rs` or for what they repair.)
//!
//! A worker keeps units in its hands between steps, and no other worker runs them: each participant goes on until it
//! is [`Progress::Done`].

use crate::back_off::look;
use crate::execute::Execute;
use crate::executor::{Executor, Idle, NO_UNIT, Progress};
use crate::policy::{Explore, Granularity, Rows};
use crate::presence::{Presence, Shared};
use crate::sync::{Ordering, PATIENCE, RwLockReadGuard, SPINS_MAX};
use crate::worker::Worker;
use std::cell::Cell;
use std::sync::PoisonError;
use tidemill_txn::{Chains, Precedence};

/// The arguments of a step.
pub(crate) struct Scene<'a, P, E: ?Sized> {
    /// The precedence of units, which are transactions on rows, operations on versions, or chains of these.
    pub precedence: &'a P,
    /// The chains, if these are units.
    pub chains: &'a Chains,
    pub execute: &'a E,
    /// The unit that runs, for the message of a panic.
    pub running: &'a Cell<u32>,
}

/// The event that a worker waits for, after it has found nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The linking of every partition.
    Linked,
    /// Work in the pool, or a number for every unit in its stratum, if exploration is structured.
    Numbered,
    /// The strata, if exploration is structured.
    Strata,
    /// Work in the pool, or the end.
    Work,
    /// The end of this many units, breadth first.
    Stratum(u32),
    /// The end of this many predecessors of a unit, depth first.
    Turn { unit: u32, pending: u32 },
    /// The verdict and the repair of every transaction, under lazy aborts.
    Settled,
}

/// The number of steps that a worker takes.
#[derive(Clone, Copy)]
enum Steps {
    One,
    /// All until the end, or as long as it has something to do.
    All(Idle),
}

/// The result of a step.
pub(crate) enum Step {
    Advanced,
    Starved(Awaited),
    Done,
}

/// A worker's place in an epoch, which the others learn of if it panics.
struct Place<'a> {
    executor: &'a Executor,
    running: Cell<u32>,
}

impl Shared for Place<'_> {
    fn abandon(&self) {
        self.executor.poison(self.running.get());
    }
}

/// A worker that takes part in an epoch. See [`Executor::join`].
pub struct Participant<'a, E: Execute + ?Sized> {
    place: Presence<Place<'a>>,
    worker: &'a mut Worker,
    execute: &'a E,
    /// Taken when all is linked.
    chains: Option<RwLockReadGuard<'a, Chains>>,
    /// The time at which it came, and the sum of the worker's times then, nanoseconds.
    came: u64,
    accounted: u64,
}

impl<'a, E: Execute + ?Sized> Participant<'a, E> {
    pub(crate) fn join(executor: &'a Executor, worker: &'a mut Worker, execute: &'a E) -> Self {
        worker.begin();
        executor.present.fetch_add(1, Ordering::Relaxed);
        let (came, accounted) = (execute.now(), worker.times.total());
        let place = Presence(Place { executor, running: Cell::new(NO_UNIT) });
        Participant { place, worker, execute, chains: None, came, accounted }
    }

    /// Runs at most one unit, and never waits. A starved worker may be asked again at any time.
    ///
    /// # Panics
    ///
    /// If `execute` panics, here or on another worker.
    pub fn step(&mut self) -> Progress {
        let executor = self.executor();
        executor.stop_if_poisoned();
        match self.link() {
            Progress::Done => self.explore(Steps::One),
            progress => progress,
        }
    }

    /// Steps until all has run, or for a worker that does not wait, until there is nothing to do for it.
    pub(crate) fn work(mut self, idle: Idle) -> Progress {
        let executor = self.executor();
        loop {
            match self.link() {
                Progress::Done => break,
                Progress::Advanced => {}
                Progress::Starved if idle == Idle::Leave => {
                    executor.stop_if_poisoned();
                    return Progress::Starved;
                }
                Progress::Starved => executor.wait(self.worker, self.execute, Awaited::Linked),
            }
        }
        self.explore(Steps::All(idle))
    }

    fn executor(&self) -> &'a Executor {
        self.place.0.executor
    }

    /// Links a partition, if not all are linked. Done when they are.
    fn link(&mut self) -> Progress {
        if self.chains.is_some() {
            return Progress::Done;
        }
        let start = self.execute.now();
        let progress = self.executor().link(self.worker);
        self.worker.times.construct += self.execute.now() - start;
        if progress == Progress::Done {
            self.chains = Some(self.executor().chains.read().unwrap_or_else(PoisonError::into_inner));
        }
        progress
    }

    /// Finds strata where the policy needs them, then explores, along what units of the policy wait for.
    fn explore(&mut self, steps: Steps) -> Progress {
        let executor = self.executor();
        let Participant { place, worker, execute, chains, .. } = self;
        let chains = chains.as_deref().expect("all partitions are linked");
        let (execute, running) = (*execute, &place.0.running);
        match executor.policy.granularity {
            Granularity::Chain => {
                let scene = Scene { precedence: chains, chains, execute, running };
                executor.take(steps, &scene, worker)
            }
            Granularity::Operation | Granularity::Transaction(Rows::Versions) => {
                let scene = Scene { precedence: &executor.versions(), chains, execute, running };
                executor.take(steps, &scene, worker)
            }
            Granularity::Epoch | Granularity::Transaction(Rows::InPlace) => {
                let scene = Scene { precedence: &executor.graph, chains, execute, running };
                executor.take(steps, &scene, worker)
            }
        }
    }
}

/// Leaves. The time that is not accounted for went into looking for units.
impl<E: Execute + ?Sized> Drop for Participant<'_, E> {
    fn drop(&mut self) {
        self.executor().present.fetch_sub(1, Ordering::Relaxed);
        if std::thread::panicking() {
            return;
        }
        assert!(!self.worker.holds_any(), "worker {} leaves with units in its hands", self.worker.id);
        let accounted = self.worker.times.total() - self.accounted;
        self.worker.times.explore += (self.execute.now() - self.came).saturating_sub(accounted);
    }
}

impl Executor {
    fn take<P: Precedence, E: Execute + ?Sized>(
        &self,
        steps: Steps,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
    ) -> Progress {
        match steps {
            Steps::One => match self.find_strata(scene.precedence, worker) {
                Progress::Done => self.take_one(scene, worker),
                progress => progress,
            },
            Steps::All(idle) => {
                self.find_all_strata(scene, worker);
                self.take_all(scene, worker, idle)
            }
        }
    }

    /// Takes part in finding strata until they are found.
    fn find_all_strata<P: Precedence, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        if self.policy.explore == Explore::Unstructured {
            return;
        }
        let (start, waited) = (scene.execute.now(), worker.times.sync);
        loop {
            match self.find_strata(scene.precedence, worker) {
                Progress::Advanced => {}
                Progress::Starved if self.strata.is_numbered() => self.wait(worker, scene.execute, Awaited::Strata),
                Progress::Starved => self.wait(worker, scene.execute, Awaited::Numbered),
                Progress::Done => break,
            }
        }
        worker.times.construct += (scene.execute.now() - start).saturating_sub(worker.times.sync - waited);
    }

    fn take_one<P: Precedence, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) -> Progress {
        match self.advance(scene, worker) {
            Step::Advanced => Progress::Advanced,
            Step::Starved(_) => {
                // One step is all the patience of a worker that is not to wait.
                worker.is_impatient = true;
                Progress::Starved
            }
            Step::Done => Progress::Done,
        }
    }

    fn take_all<P: Precedence, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
        idle: Idle,
    ) -> Progress {
        loop {
            match self.advance(scene, worker) {
                Step::Advanced => {}
                Step::Starved(awaited) if idle == Idle::Wait => self.wait(worker, scene.execute, awaited),
                Step::Starved(_) => {
                    self.stop_if_poisoned();
                    if self.pools.is_dry() {
                        return Progress::Starved;
                    }
                    // It leaves no unit behind that it gave away.
                    worker.is_impatient = true;
                }
                Step::Done => return Progress::Done,
            }
        }
    }

    /// Waits for what a worker lacks, for at most the patience that exploration has.
    pub(crate) fn wait<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, awaited: Awaited) {
        let id = worker.id;
        let pools = &self.pools;
        let is_patient = !worker.is_impatient;
        let is_called = || self.repair.is_under_way() || self.is_poisoned();
        worker.wait(execute, || match awaited {
            Awaited::Linked => pools.wait_for(id, || self.is_linked() || self.is_poisoned()),
            Awaited::Numbered => pools.wait(id, || self.strata.is_numbered() || self.is_poisoned()),
            Awaited::Strata => pools.wait_for(id, || self.strata.is_found() || self.is_poisoned()),
            Awaited::Work if is_patient && pools.is_patient() => {
                _ = look(SPINS_MAX * PATIENCE, || !pools.is_own_dry(id) || self.frontier.is_finished() || is_called());
            }
            Awaited::Work => pools.wait(id, || self.frontier.is_finished() || is_called()),
            Awaited::Stratum(start) => pools.wait_for(id, || self.frontier.finished() >= start || is_called()),
            Awaited::Turn { unit, pending } => {
                let may_go_on = || self.frontier.arrived(unit) == pending || is_called();
                match is_patient {
                    true => _ = look(SPINS_MAX * PATIENCE, may_go_on),
                    false => pools.wait_for(id, may_go_on),
                }
            }
            Awaited::Settled => pools.wait_for(id, || self.repair.is_settled() || is_called()),
        });
        worker.is_impatient = match awaited {
            Awaited::Turn { .. } => true,
            Awaited::Work => pools.is_patient(),
            Awaited::Linked | Awaited::Numbered | Awaited::Strata | Awaited::Stratum(_) | Awaited::Settled => false,
        };
        self.stop_if_poisoned();
    }
}
