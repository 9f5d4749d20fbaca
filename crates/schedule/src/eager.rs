//! Eager aborts of unstructured exploration (MorphStream §4.3.1): a transaction is repaired as soon as its verdict is
//! an abort, and only those that read or write what is repaired wait meanwhile.
//!
//! **What.** Each transaction has a lock for its versions. A unit that runs holds its own transaction's lock and those
//! of its sources for *reading*: it reads versions of the sources, and no other unit writes what it writes. Who judges
//! or repairs a transaction holds that one's lock for *writing*, and those of its sources for reading. All are taken in
//! position order, so nobody waits in a circle.
//!
//! **Coordinators.** The verdict operation of a transaction is run once, by one worker, after all its operations: the
//! worker that runs it handles the abort, however many operations have failed. (The paper's coordinator is the worker
//! of a transaction's first operation, to which the others send a message.) It reverts the transaction. Where a version
//! has now another value, the parts that have read it are *stale*. The worker that makes the first part of a
//! transaction stale has this transaction on its list, and takes those on it in position order: it runs the stale parts
//! again, and the verdict operation if it has run, which may make others stale.
//!
//! **Law.** When all units have run, no part is stale. *Why:* a worker counts a unit as run when its list is empty.
//! And each version is then what the serial order gives, by induction in position order: once the sources have their
//! last value, a part that reads them runs once more, or is yet to run. None is missed: what a part has read changes
//! under a lock for writing that the part held for reading, so it has run before, and says so, or reads the new value.
//! A judge first runs again what is stale, so parts and verdict are of the same values.
//!
//! **Cost.** 8 bytes per transaction and 4 per slot; of a unit, an addition and a subtraction for each transaction that
//! it reads and its own.
//!
//! **Given up.** A transaction may run again more than once, where workers repair two of its sources one after the
//! other. And where few rows are in all transactions, an abort that is found late repairs all that has run since.

use crate::back_off::look;
use crate::execute::Execute;
use crate::executor::Executor;
use crate::participant::Scene;
use crate::sync::{AtomicU32, Ordering, SPINS_MAX, yield_now};
use crate::worker::Worker;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use tidemill_txn::{Event, Graph};

/// A lock that is held for writing. Below it is the number of those that hold it for reading.
const WRITTEN: u32 = 1 << 31;

/// The state of an epoch under eager aborts.
#[derive(Debug, Default)]
pub(crate) struct Eager {
    /// The lock of each transaction, by transaction.
    locks: Vec<AtomicU32>,
    /// The parts of each transaction that have read a version whose value is now another, by transaction. Added to
    /// under the lock of the source for writing, taken under the transaction's own.
    stale: Vec<AtomicU32>,
    /// The transaction of each operation, by slot.
    transaction: Vec<u32>,
}

/// The mode in which a transaction's own lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Read,
    Written,
}

impl Eager {
    pub(crate) fn reset(&mut self, graph: &Graph) {
        for words in [&mut self.locks, &mut self.stale] {
            words.clear();
            words.resize_with(graph.transactions() as usize, || AtomicU32::new(0));
        }
        self.transaction.clear();
        for transaction in 0..graph.transactions() {
            self.transaction.resize(graph.slots_of(transaction).end as usize, transaction);
        }
    }

    fn try_lock(&self, transaction: u32, own: Own) -> bool {
        let lock = &self.locks[transaction as usize];
        let held = lock.load(Ordering::Relaxed);
        let wanted = match own {
            Own::Read if held < WRITTEN => held + 1,
            Own::Written if held == 0 => WRITTEN,
            Own::Read | Own::Written => return false,
        };
        lock.compare_exchange(held, wanted, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn unlock(&self, transaction: u32, own: Own) {
        let held = if own == Own::Written { WRITTEN } else { 1 };
        let before = self.locks[transaction as usize].fetch_sub(held, Ordering::Release);
        assert!(before >= held, "transaction {transaction} is given back, but was not held");
    }
}

impl Executor {
    /// Runs a unit, and if it is a verdict operation that finds an abort, repairs what it affects.
    pub(crate) fn run_eagerly<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, unit: u32) {
        let transaction = self.flow.unit(unit).0;
        if self.flow.is_verdict_unit(unit) {
            self.hold(scene.execute, worker, unit, Own::Written);
            self.judge_eagerly(scene, worker, unit);
            self.let_go(worker, transaction, Own::Written);
            self.repair_stale(scene, worker);
        } else {
            self.hold(scene.execute, worker, unit, Own::Read);
            self.run_part(scene.execute, worker.id, unit);
            self.let_go(worker, transaction, Own::Read);
        }
    }

    /// Runs the verdict operation of a transaction that is held for writing.
    fn judge_eagerly<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, unit: u32) {
        let transaction = self.flow.unit(unit).0;
        self.run_stale(scene, worker, transaction);
        let aborts = scene.execute.judge(worker.id, transaction);
        self.repair.pass(unit, Event::Resolved);
        self.repair.pass(unit, Event::Processed);
        if aborts {
            let mut see = |slot| self.make_stale(scene.execute, &mut worker.stale, slot);
            scene.execute.revert(worker.id, transaction, &mut see);
            self.end(transaction, true);
        }
    }

    /// Runs again what is stale and on the worker's list.
    fn repair_stale<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        if worker.stale.is_empty() {
            return;
        }
        let (start, others) = (scene.execute.now(), worker.times.total());
        while let Some(Reverse(transaction)) = worker.stale.pop() {
            self.stop_if_poisoned();
            // The last unit uses all that its transaction uses.
            let last = self.flow.units_of(transaction).end - 1;
            self.hold(scene.execute, worker, last, Own::Written);
            self.run_stale(scene, worker, transaction);
            self.let_go(worker, transaction, Own::Written);
        }
        worker.times.abort += (scene.execute.now() - start).saturating_sub(worker.times.total() - others);
    }

    /// Runs again the stale parts of a transaction that is held for writing. There are none where another worker was
    /// first.
    fn run_stale<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, transaction: u32) {
        let parts = self.eager.stale[transaction as usize].swap(0, Ordering::Relaxed);
        if parts != 0 {
            let mut see = |slot| self.make_stale(scene.execute, &mut worker.stale, slot);
            self.run_again(scene, worker.id, transaction, parts, &mut see);
        }
    }

    /// Marks the parts that have read a version as stale, since the version has another value. Puts each transaction of
    /// which none was stale before on the list.
    fn make_stale<E: Execute + ?Sized>(&self, execute: &E, list: &mut BinaryHeap<Reverse<u32>>, slot: u32) {
        self.readers_that_ran(execute, slot, |consumer, parts| {
            if self.eager.stale[consumer as usize].fetch_or(parts, Ordering::Relaxed) == 0 {
                list.push(Reverse(consumer));
            }
        });
    }

    /// Holds the sources of a unit, and its transaction.
    fn hold<E: Execute + ?Sized>(&self, execute: &E, worker: &mut Worker, unit: u32, own: Own) {
        let mut held = mem::take(&mut worker.held);
        debug_assert!(held.is_empty(), "worker {} holds {held:?} already", worker.id);
        let source = |slot: u32| self.flow.source(slot).map(|source| self.eager.transaction[source as usize]);
        held.extend(self.flow.operations(&self.graph, unit).filter_map(source));
        held.sort_unstable();
        held.dedup();
        held.iter().for_each(|&source| self.lock(execute, worker, source, Own::Read));
        self.lock(execute, worker, self.flow.unit(unit).0, own);
        worker.held = held;
    }

    /// Ends what [`Executor::hold`] began.
    fn let_go(&self, worker: &mut Worker, transaction: u32, own: Own) {
        self.eager.unlock(transaction, own);
        worker.held.drain(..).for_each(|source| self.eager.unlock(source, Own::Read));
    }

    fn lock<E: Execute + ?Sized>(&self, execute: &E, worker: &mut Worker, transaction: u32, own: Own) {
        if self.eager.try_lock(transaction, own) {
            return;
        }
        let start = execute.now();
        // Under the model checker there is no time to look, so it is tried once more.
        while !look(SPINS_MAX, || self.eager.try_lock(transaction, own)) && !self.eager.try_lock(transaction, own) {
            self.stop_if_poisoned();
            yield_now();
        }
        worker.times.lock += execute.now() - start;
    }
}
