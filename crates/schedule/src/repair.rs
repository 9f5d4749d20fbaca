//! Speculation: operations run before the verdict of their transaction. What happens when the verdict is an abort
//! (MorphStream §4.3).
//!
//! # What
//!
//! Every operation writes its value into a version of its own, so nothing has to be undone: an aborted transaction
//! puts the values that it found back into its versions, and what read them runs again. That is *repair*. It keeps a
//! set of transactions to look at and takes the first in position order; each is reverted or redone, and where a
//! version now has another value, the transactions that have read it join the set.
//!
//! **Law.** Repair ends, and then every version that was computed is what the serial order gives, as far as the
//! verdicts known are those of the serial order. *Why:* consumers come after their source in position order, so a
//! transaction that was looked at does not join again; and by induction in position order the sources of each are
//! right when it is looked at, so its own versions are right afterwards. For the same reason one pass is enough for
//! aborts that reverse later verdicts, which reverse still later ones.
//!
//! # Who and when
//!
//! *Eager*: the verdict operation of a transaction is a unit of its own, run when the transaction's operations have run. Running a
//! unit holds the gate for reading, repair holds it for writing. Unstructured, the worker that finds an abort repairs
//! at once, alone; the paper's coordinator is the worker of a transaction's head operation. Structured, aborts are collected, and the worker that runs the
//! last unit of a stratum repairs all that were found by then, in one pass. Breadth first this happens before any unit
//! of the next stratum runs, since a unit counts as run only afterwards.
//!
//! *Lazy*: all operations are explored without a verdict; then the workers share out the judging; then the last of
//! them repairs.
//!
//! Readiness is counted, before repair as without it: a unit runs when its counter says so. States ([`State`]) are written after a
//! unit has run, and only repair reads them, to know what has run.
//!
//! **Given up.** Repair is serial. Where many transactions abort it is most of the work, and voting first, which
//! repairs nothing, is the better policy.

use crate::execute::Execute;
use crate::executor::Executor;
use crate::participant::{Awaited, Scene, Step};
use crate::policy::{Abort, Explore};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, BLOCK_MAX, Mutex, MutexGuard, Ordering, RwLock};
use crate::worker::Worker;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tidemill_txn::{Event, State};

/// What speculation keeps of an epoch.
#[derive(Debug)]
pub(crate) struct Repair {
    /// Per unit. Written by the worker that runs it, and under the gate by the one that repairs.
    states: Vec<AtomicU8>,
    /// Read by each worker that runs a unit, written by the one that repairs. Held within a step only.
    gate: RwLock<()>,
    /// How often a transaction was run again. Added to by the worker that repairs.
    redone: AtomicU32,
    /// Transactions that were judged to abort and are not repaired yet. Eager: added to under the gate for reading,
    /// emptied under it for writing, so nothing was repaired since they were judged.
    found: Mutex<Vec<u32>>,
    /// Lazy: the next transaction to judge, claimed by workers, and how many were judged.
    next_judged: AtomicU32,
    judged: AtomicU32,
    /// Lazy: whether all were judged and repaired. Set by the worker that judged last.
    settled: AtomicBool,
}

impl Repair {
    pub(crate) fn new() -> Self {
        Repair {
            states: Vec::new(),
            gate: RwLock::new(()),
            redone: AtomicU32::new(0),
            next_judged: AtomicU32::new(0),
            judged: AtomicU32::new(0),
            found: Mutex::new(Vec::new()),
            settled: AtomicBool::new(false),
        }
    }

    pub(crate) fn reset(&mut self, units: u32, transactions: u32) {
        assert!(units >= transactions, "{units} units of {transactions} transactions");
        self.states.clear();
        self.states.resize_with(units as usize, || AtomicU8::new(State::Blocked as u8));
        self.redone.store(0, Ordering::Relaxed);
        self.next_judged.store(0, Ordering::Relaxed);
        self.judged.store(0, Ordering::Relaxed);
        self.found().clear();
        self.settled.store(transactions == 0, Ordering::Relaxed);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(crate) fn redone(&self) -> u32 {
        self.redone.load(Ordering::Relaxed)
    }

    fn found(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing panics under it.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, unit: u32) -> State {
        State::of(self.states[unit as usize].load(Ordering::Acquire))
    }

    fn pass(&self, unit: u32, event: Event) {
        let before = self.state(unit);
        let after = before.after(event).unwrap_or_else(|| panic!("unit {unit} is {before:?} and cannot be {event:?}"));
        self.states[unit as usize].store(after as u8, Ordering::Release);
    }
}

impl Executor {
    /// Runs a unit, before the verdict of its transaction unless it is whole or its verdict operation.
    pub(crate) fn run_on_speculation<P, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
        unit: u32,
    ) {
        let aborts = self.run_open(worker.id, scene.execute, unit);
        if aborts && self.policy.explore == Explore::Unstructured {
            self.repair_alone(scene, worker);
        }
    }

    /// Eager, structured: a unit has run. The worker that runs the last one of a stratum repairs.
    pub(crate) fn end_in_stratum<P, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
        unit: u32,
    ) {
        let stratum = scene.structure.strata.of(unit) as usize;
        let before = scene.structure.unfinished[stratum].fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "stratum {stratum} has run more units than it has");
        if before == 1 && !self.repair.found().is_empty() {
            self.repair_alone(scene, worker);
        }
    }

    /// Repairs after the aborts found so far, while no unit runs.
    fn repair_alone<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        let start = scene.execute.now();
        let _alone = self.repair.gate.write().unwrap_or_else(PoisonError::into_inner);
        worker.times.lock += scene.execute.now() - start;
        let found = std::mem::take(&mut *self.repair.found());
        self.repair(scene, worker, &found);
    }

    /// Runs a unit while no worker repairs. True if it is a verdict operation that finds an abort.
    fn run_open<E: Execute + ?Sized>(&self, worker: usize, execute: &E, unit: u32) -> bool {
        let transaction = self.flow.unit(unit).0;
        let _open = self.repair.gate.read().unwrap_or_else(PoisonError::into_inner);
        if !self.flow.is_verdict_unit(unit) {
            execute.execute(worker, unit);
            let whole = self.flow.units_of(transaction).len() == 1 && !execute.is_apart(transaction);
            if whole {
                self.repair.pass(unit, Event::Resolved);
            }
            self.repair.pass(unit, if whole { Event::Processed } else { Event::Speculated });
            return false;
        }
        let aborts = execute.judge(worker, transaction);
        self.repair.pass(unit, Event::Resolved);
        self.repair.pass(unit, Event::Processed);
        if aborts {
            self.repair.found().push(transaction);
        }
        aborts
    }

    /// Lazy, after all units have run: judges the next block of transactions; the worker that judges last repairs.
    pub(crate) fn settle<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) -> Step {
        let transactions = self.graph.transactions();
        if self.repair.is_settled() {
            return Step::Done;
        }
        if self.repair.next_judged.load(Ordering::Relaxed) >= transactions {
            return Step::Starved(Awaited::Settled);
        }
        let begin = self.repair.next_judged.fetch_add(BLOCK_MAX, Ordering::Relaxed).min(transactions);
        let end = begin.saturating_add(BLOCK_MAX).min(transactions);
        if begin == end {
            return Step::Starved(Awaited::Settled);
        }
        let start = scene.execute.now();
        for transaction in begin..end {
            self.stop_if_poisoned();
            scene.running.set(self.flow.units_of(transaction).start);
            if scene.execute.is_apart(transaction) && scene.execute.judge(worker.id, transaction) {
                self.repair.found().push(transaction);
            }
        }
        worker.times.useful += scene.execute.now() - start;
        let judged = self.repair.judged.fetch_add(end - begin, Ordering::AcqRel) + (end - begin);
        assert!(judged <= transactions, "{judged} transactions judged of {transactions}");
        if judged == transactions {
            let found = std::mem::take(&mut *self.repair.found());
            self.repair(scene, worker, &found);
            self.repair.settled.store(true, Ordering::Release);
            self.pools.wake_all();
        }
        Step::Advanced
    }

    /// Repairs after these transactions were found to abort. Alone.
    fn repair<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, found: &[u32]) {
        let start = scene.execute.now();
        self.repair_after(worker.id, scene.execute, scene.running, found);
        worker.times.abort += scene.execute.now() - start;
    }

    fn repair_after<E: Execute + ?Sized>(&self, worker: usize, execute: &E, running: &Cell<u32>, found: &[u32]) {
        // Per transaction, the parts that have to run again; none where it only has to be reverted.
        let mut open: BTreeMap<u32, u32> = found.iter().map(|&transaction| (transaction, 0)).collect();
        let mut last = None;
        while let Some((transaction, affected)) = open.pop_first() {
            assert!(last < Some(transaction), "transaction {transaction} is repaired after {last:?}: out of order");
            last = Some(transaction);
            running.set(self.flow.units_of(transaction).start);
            let mut changed = Vec::new();
            let mut see = |slot: u32| changed.push(slot);
            if affected == 0 {
                execute.revert(worker, transaction, &mut see);
                self.end(transaction, true);
            } else {
                let units = self.flow.units_of(transaction);
                let ran = self.ran(execute, transaction);
                // An aborted one has no values that could stay, should it now commit.
                let is_aborted = units.clone().any(|unit| self.repair.state(unit) == State::Aborted);
                let again = if is_aborted { ran } else { ran & affected };
                assert!(again != 0, "no part of transaction {transaction} runs again");
                let judged = ran >> self.verdict_bit(execute, transaction) & 1 == 1;
                let revived = || units.clone().filter(|unit| again >> (unit - units.start) & 1 == 1);
                self.repair.redone.fetch_add(1, Ordering::Relaxed);
                revived().for_each(|unit| self.repair.pass(unit, Event::Revived));
                let aborts = execute.redo(worker, transaction, again, judged, &mut see);
                revived().for_each(|unit| self.repair.pass(unit, Event::Processed));
                self.end(transaction, aborts);
            }
            for slot in changed {
                self.flow.consumers(&self.graph, slot, |next, consumer| {
                    let affected = self.flow.use_of(next).parts() & self.ran(execute, consumer);
                    if affected != 0 {
                        *open.entry(consumer).or_default() |= affected;
                    }
                });
            }
        }
    }

    /// What has run of a transaction: its units, and where it is judged without a unit (lazily, so before
    /// any repair), the bit of the verdict operation.
    fn ran<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction);
        let ran = |unit: &u32| matches!(self.repair.state(*unit), State::Executed | State::Aborted);
        let parts = units.clone().filter(ran).fold(0, |parts, unit| parts | 1 << (unit - units.start));
        let judged = self.policy.abort == Abort::Lazy && execute.is_apart(transaction);
        parts | if judged { 1 << self.verdict_bit(execute, transaction) } else { 0 }
    }

    /// Which bit stands for the verdict of a transaction: for a whole one, that of all there is.
    fn verdict_bit<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction).len() as u32;
        assert!((1..u32::BITS).contains(&units), "transaction {transaction} has {units} units, not a bit for each");
        units - u32::from(self.policy.abort == Abort::Eager || !execute.is_apart(transaction))
    }

    /// Moves the operations of a transaction to where its verdict puts them.
    fn end(&self, transaction: u32, aborts: bool) {
        for unit in self.flow.units_of(transaction) {
            match (self.repair.state(unit), aborts) {
                (State::Executed, true) => self.repair.pass(unit, Event::Failed),
                (State::Aborted, false) => {
                    self.repair.pass(unit, Event::Revived);
                    self.repair.pass(unit, Event::Processed);
                }
                _ => {}
            }
        }
    }
}
