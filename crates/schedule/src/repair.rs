//! Speculation: operations that run before the verdict of their transaction, and what is done when the
//! verdict is an abort (MorphStream §4.3).
//!
//! # What
//!
//! Every operation leaves its value in a version of its own, so nothing has to be undone: an aborted
//! transaction puts back into its versions the values that it found, and what read them runs again. That is
//! *repair*: a set of transactions to be looked at, the first in position order next; each is reverted or
//! redone, and where a version has another value than before, those that have read it join the set.
//!
//! **Law.** Repair ends, and then every version that was computed is what the serial order gives, as far as
//! the verdicts known are those of the serial order. *Why:* consumers stand behind their source, so a
//! transaction that was looked at does not join again; and by induction in position order each one's sources
//! are right when it is looked at, so it is right afterwards. That is also why one pass is enough for aborts
//! that turn later verdicts round, and these still later ones.
//!
//! # Who and when
//!
//! *Eager*: the judge of a transaction is a unit of its own, run when its operations have. Running a unit holds the
//! gate for reading, repair holds it for writing. Unstructured, the worker that finds an abort repairs at once,
//! alone (it is the transaction's coordinator). Structured, aborts are collected, and the worker that runs the last
//! unit of a stratum repairs all that were found by then, in one pass; breadth first this is before anything of
//! the next stratum runs, as a unit counts as run only afterwards.
//!
//! *Lazy*: all operations are explored without a verdict; then the workers share out the judging; then
//! the last of them repairs.
//!
//! **Given up.** Repair is serial. When much aborts it is most of the work, and voting first, which repairs
//! nothing, is the better policy.

use crate::execute::Execute;
use crate::executor::{Executor, Place, Structure, Worker};
use crate::policy::{Abort, Explore};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, BLOCK_MAX, Mutex, MutexGuard, Ordering, RwLock};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tidemill_txn::{Event, State};

/// What speculation keeps of an epoch.
#[derive(Debug)]
pub(crate) struct Repair {
    /// Per unit. Written by who runs it, and under the gate by who repairs.
    states: Vec<AtomicU8>,
    /// Read by who runs a unit, written by who repairs.
    gate: RwLock<()>,
    redone: AtomicU32,
    /// Transactions that were judged to abort and are not repaired. Added to under the gate for reading, emptied under
    /// it for writing: so nothing was repaired since they were judged.
    found: Mutex<Vec<u32>>,
    /// Lazy: the next transaction to judge, and how many were.
    next_judged: AtomicU32,
    judged: AtomicU32,
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
        self.states.clear();
        self.states.resize_with(units as usize, || AtomicU8::new(State::Blocked as u8));
        self.redone.store(0, Ordering::Relaxed);
        self.next_judged.store(0, Ordering::Relaxed);
        self.judged.store(0, Ordering::Relaxed);
        self.found().clear();
        self.settled.store(transactions == 0, Ordering::Relaxed);
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
    /// Runs a unit, before the verdict of its transaction unless it is whole or its judge.
    pub(crate) fn run_on_speculation<E: Execute + ?Sized>(
        &self,
        (structure, place): (&Structure, &Place<'_>),
        worker: &mut Worker,
        execute: &E,
        unit: u32,
    ) {
        let aborts = self.run_open(worker.id, execute, unit);
        let is_due = match (self.policy.abort, self.policy.explore) {
            (Abort::Eager, Explore::Structured(_)) => {
                let stratum = structure.strata.of(unit) as usize;
                structure.unfinished[stratum].fetch_sub(1, Ordering::AcqRel) == 1 && !self.repair.found().is_empty()
            }
            _ => aborts,
        };
        if is_due {
            let start = execute.now();
            let _alone = self.repair.gate.write().unwrap_or_else(PoisonError::into_inner);
            worker.times.lock += execute.now() - start;
            let found = std::mem::take(&mut *self.repair.found());
            self.repair(worker, execute, place, &found);
        }
    }

    /// Runs a unit while nobody repairs. True if it is a judge that finds an abort.
    fn run_open<E: Execute + ?Sized>(&self, worker: usize, execute: &E, unit: u32) -> bool {
        let transaction = self.flow.unit(unit).0;
        let _open = self.repair.gate.read().unwrap_or_else(PoisonError::into_inner);
        if !self.flow.is_judge(unit) {
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

    /// Lazy: judges all, then repairs.
    pub(crate) fn settle<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, place: &Place<'_>) {
        let transactions = self.graph.transactions();
        let start = execute.now();
        let mut found = Vec::new();
        let mut judged = 0;
        loop {
            let begin = self.repair.next_judged.load(Ordering::Relaxed);
            if begin >= transactions {
                break;
            }
            let begin = self.repair.next_judged.fetch_add(BLOCK_MAX, Ordering::Relaxed);
            let end = begin.saturating_add(BLOCK_MAX).min(transactions);
            for transaction in begin.min(end)..end {
                self.stop_if_poisoned();
                place.running.set(self.flow.units_of(transaction).start);
                if execute.is_apart(transaction) && execute.judge(worker.id, transaction) {
                    found.push(transaction);
                }
                judged += 1;
            }
        }
        worker.times.useful += execute.now() - start;
        if judged > 0 {
            self.repair.found().append(&mut found);
            if self.repair.judged.fetch_add(judged, Ordering::AcqRel) + judged == transactions {
                let found = std::mem::take(&mut *self.repair.found());
                self.repair(worker, execute, place, &found);
                self.repair.settled.store(true, Ordering::Release);
                self.pools.wake_all();
            }
        }
        let is_settled = || self.repair.settled.load(Ordering::Acquire) || self.is_poisoned();
        let id = worker.id;
        worker.wait(execute, || self.pools.wait_for(id, is_settled));
        self.stop_if_poisoned();
    }

    /// Repairs after these transactions were found to abort. Alone.
    fn repair<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, place: &Place<'_>, found: &[u32]) {
        let start = execute.now();
        self.repair_after(worker.id, execute, place, found);
        worker.times.abort += execute.now() - start;
    }

    fn repair_after<E: Execute + ?Sized>(&self, worker: usize, execute: &E, place: &Place<'_>, found: &[u32]) {
        // Per transaction, the parts that have to run again; none where it only has to be reverted.
        let mut open: BTreeMap<u32, u32> = found.iter().map(|&transaction| (transaction, 0)).collect();
        let mut last = None;
        while let Some((transaction, affected)) = open.pop_first() {
            assert!(last < Some(transaction), "transaction {transaction} is repaired after {last:?}: out of order");
            last = Some(transaction);
            place.running.set(self.flow.units_of(transaction).start);
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
                let judged = ran >> self.judge_bit(execute, transaction) & 1 == 1;
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
    /// any repair), the bit of the judge.
    fn ran<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction);
        let ran = |unit: &u32| matches!(self.repair.state(*unit), State::Executed | State::Aborted);
        let parts = units.clone().filter(ran).fold(0, |parts, unit| parts | 1 << (unit - units.start));
        let judged = self.policy.abort == Abort::Lazy && execute.is_apart(transaction);
        parts | if judged { 1 << self.judge_bit(execute, transaction) } else { 0 }
    }

    /// Which bit stands for the verdict of a transaction: for a whole one, that of all there is.
    fn judge_bit<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction).len() as u32;
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
