//! Speculation: operations run before the verdict of their transaction. What happens when the verdict is an abort
//! (MorphStream §4.3).
//!
//! # What
//!
//! Every operation writes its value into a version of its own, so nothing has to be undone: an aborted transaction puts
//! the values that it found back into its versions, and what read them runs again. That is *repair*. It concerns the
//! transactions that were found to abort, those that have read versions of these, and so on. These are a graph: a
//! transaction waits for those of them whose versions it has read. The graph is run by all workers, in the loop that
//! runs units ([`Frontier`]): a transaction is reverted, or if a version that it has read has now another value, run
//! again and judged again, or else left as it is.
//!
//! **Law.** Repair ends, and then every version that was computed is what the serial order gives, as far as the
//! verdicts known are those of the serial order. *Why:* consumers come after their source in position order, so the
//! graph has no cycle; and by induction in position order the sources of each transaction are right when its turn
//! comes, so its own versions are right afterwards. For the same reason each has one turn, also where aborts reverse
//! later verdicts, which reverse still later ones: in a repair the verdict comes first.
//!
//! # Who and when
//!
//! *Eager, unstructured*: `eager.rs`, where each transaction is repaired by itself. The rest is told here.
//!
//! *Eager, structured*: the verdict operation of a transaction is a unit of its own, run when the transaction's
//! operations have run. Aborts are collected, and the worker that runs the last unit of a stratum begins a repair of
//! all that were found by then. Breadth first no unit runs then, and none of the next stratum does before the repair is
//! over, since a unit counts as run only afterwards. Depth first other units may run: each holds the *gate* for
//! reading.
//!
//! *Lazy*: all operations are explored without a verdict; then the workers share out the judging; then the last of
//! them begins the repair.
//!
//! Beginning a repair holds the gate for writing. The worker that begins it finds the graph, and then takes part like
//! any other. Each worker that comes by takes part before it goes on, and holds the gate for reading until the repair
//! is over. Those that sleep are woken if the repair concerns [`SHARED_MIN`] transactions.
//!
//! Readiness is counted, in repair as without it: a unit runs when its counter says so. States ([`State`]) are written
//! after a unit has run, and only repair reads them, to know what has run.
//!
//! **Cost.** 8 bytes per transaction, 8 for each that a repair concerns, and a byte per unit. One worker finds the
//! graph while the others wait.
//!
//! **Given up.** Operations of one transaction are run again by one worker. Where many transactions abort, repair is
//! most of the work, and voting first, which repairs nothing, is the better policy.

use crate::execute::Execute;
use crate::executor::Executor;
use crate::frontier::Frontier;
use crate::participant::{Awaited, Scene, Step};
use crate::policy::{Abort, Explore, Search};
use crate::pools::Pools;
use crate::sync::{
    AtomicBool, AtomicU8, AtomicU32, BLOCK_MAX, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, SHARED_MIN,
};
use crate::worker::Worker;
use std::mem;
use std::sync::PoisonError;
use tidemill_txn::{Event, Precedence, State};

/// Among the parts of a transaction that read something else now: it was found to abort, so it has to be reverted if it
/// is not run again.
const FOUND: u32 = 1 << 31;
/// The number of a transaction that a repair does not concern.
const NONE: u32 = u32::MAX;

/// The state of an epoch under speculation.
#[derive(Debug)]
pub(crate) struct Repair {
    /// The state of each unit. Written by the worker that runs it, and in a repair by the one that repairs its
    /// transaction.
    states: Vec<AtomicU8>,
    /// The gate: read by each worker that takes part in a repair, and where one may begin at any time, by each that
    /// runs a unit; written by the one that begins a repair. Held within a step only.
    concerned: RwLock<Concerned>,
    /// A flag: whether a repair has begun and is not over. Set under the gate for writing, cleared under it for reading
    /// by each worker that finds it over.
    under_way: AtomicBool,
    /// Transactions that may be repaired, and where workers wait for some.
    pools: Pools,
    /// The number of times that a transaction was run again.
    redone: AtomicU32,
    /// Transactions that were judged to abort and are not repaired yet. Added to while no worker repairs, emptied by
    /// the one that begins a repair, so nothing was repaired since they were judged.
    found: Mutex<Vec<u32>>,
    /// Lazy: the next transaction to judge, claimed by workers, and how many were judged.
    next_judged: AtomicU32,
    judged: AtomicU32,
    /// Lazy: whether all were judged and repaired. Set by the worker that judged last.
    settled: AtomicBool,
}

/// The transactions that a repair concerns. Reused from repair to repair.
#[derive(Debug)]
struct Concerned {
    /// The transactions concerned, in position order; a transaction's place here is its number.
    transactions: Vec<u32>,
    /// The number of each transaction among those concerned, by transaction.
    number: Vec<u32>,
    /// The number of edges between those concerned that end in each transaction, by transaction.
    pending: Vec<u32>,
    /// The parts of each transaction that have read a version whose value is now another, and [`FOUND`], by number.
    /// Added to by workers that repair a source, read by the one that repairs it.
    parts: Vec<AtomicU32>,
    /// Its units are the numbers.
    frontier: Frontier,
}

impl Concerned {
    fn new() -> Self {
        let frontier = Frontier::new();
        Concerned { transactions: Vec::new(), number: Vec::new(), pending: Vec::new(), parts: Vec::new(), frontier }
    }

    fn reset(&mut self, transactions: u32) {
        self.transactions.clear();
        self.number.clear();
        self.number.resize(transactions as usize, NONE);
        self.pending.clear();
        self.pending.resize(transactions as usize, 0);
    }

    /// Begins a repair after these aborts. `consumers` calls back with each transaction that has read a version of one.
    fn begin(&mut self, found: &[u32], consumers: impl Fn(u32, &mut dyn FnMut(u32))) {
        let Concerned { transactions, number, pending, parts, frontier } = self;
        for transaction in transactions.drain(..) {
            (number[transaction as usize], pending[transaction as usize]) = (NONE, 0);
        }
        // Those in the list before `at` have told their consumers.
        let mut add = |transactions: &mut Vec<u32>, transaction: u32| {
            if mem::replace(&mut number[transaction as usize], 0) == NONE {
                transactions.push(transaction);
            }
        };
        found.iter().for_each(|&transaction| add(transactions, transaction));
        let mut at = 0;
        while let Some(&transaction) = transactions.get(at) {
            at += 1;
            consumers(transaction, &mut |consumer| {
                debug_assert!(consumer > transaction, "{transaction} is read by {consumer}, which is not after it");
                pending[consumer as usize] += 1;
                add(transactions, consumer);
            });
        }
        transactions.sort_unstable();
        (0..).zip(&*transactions).for_each(|(n, &transaction)| number[transaction as usize] = n);
        parts.clear();
        parts.resize_with(transactions.len(), || AtomicU32::new(0));
        found
            .iter()
            .for_each(|&transaction| parts[number[transaction as usize] as usize].store(FOUND, Ordering::Relaxed));
        frontier.begin(transactions.len() as u32, false);
    }
}

/// The precedence of transactions in a repair.
struct Edges<'a, E: ?Sized> {
    executor: &'a Executor,
    execute: &'a E,
    concerned: &'a Concerned,
}

impl<E: Execute + ?Sized> Precedence for Edges<'_, E> {
    fn units(&self) -> u32 {
        self.concerned.transactions.len() as u32
    }

    fn pending(&self, number: u32) -> u32 {
        self.concerned.pending[self.concerned.transactions[number as usize] as usize]
    }

    fn tell(&self, number: u32, mut told: impl FnMut(u32)) {
        let transaction = self.concerned.transactions[number as usize];
        self.executor.consumers_that_ran(self.execute, transaction, |consumer| {
            told(self.concerned.number[consumer as usize]);
        });
    }
}

impl Repair {
    pub(crate) fn new(sockets: &[usize]) -> Self {
        Repair {
            states: Vec::new(),
            concerned: RwLock::new(Concerned::new()),
            under_way: AtomicBool::new(false),
            pools: Pools::new(sockets),
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
        self.concerned.get_mut().unwrap_or_else(PoisonError::into_inner).reset(transactions);
        self.redone.store(0, Ordering::Relaxed);
        self.next_judged.store(0, Ordering::Relaxed);
        self.judged.store(0, Ordering::Relaxed);
        self.found().clear();
        self.settled.store(transactions == 0, Ordering::Relaxed);
    }

    /// Forgets a repair that was ended by a panic.
    pub(crate) fn forget(&mut self) {
        *self.concerned.get_mut().unwrap_or_else(PoisonError::into_inner) = Concerned::new();
        self.under_way.store(false, Ordering::Relaxed);
        self.pools.reset();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns whether workers are called for a repair.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire)
    }

    /// Wakes all that wait for others in a repair.
    pub(crate) fn wake_all(&self) {
        self.pools.wake_all();
    }

    pub(crate) fn redone(&self) -> u32 {
        self.redone.load(Ordering::Relaxed)
    }

    fn found(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing panics under it.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Concerned> {
        self.concerned.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, unit: u32) -> State {
        State::of(self.states[unit as usize].load(Ordering::Acquire))
    }

    pub(crate) fn pass(&self, unit: u32, event: Event) {
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
        match (self.policy.abort, self.policy.explore) {
            (Abort::Eager, Explore::Unstructured) => self.run_eagerly(scene, worker, unit),
            // Depth first, a stratum may end while other units run.
            (Abort::Eager, Explore::Structured(Search::Dfs)) => {
                let open = self.repair.read();
                if self.repair.is_under_way() {
                    self.help_repair(scene, worker, &open);
                    scene.running.set(unit);
                }
                self.run_before_repair(scene.execute, worker.id, unit);
            }
            _ => self.run_before_repair(scene.execute, worker.id, unit),
        }
    }

    /// Runs a unit while no worker repairs; if it is a verdict operation that finds an abort, this is repaired later.
    fn run_before_repair<E: Execute + ?Sized>(&self, execute: &E, worker: usize, unit: u32) {
        if !self.flow.is_verdict_unit(unit) {
            return self.run_part(execute, worker, unit);
        }
        let transaction = self.flow.unit(unit).0;
        let aborts = execute.judge(worker, transaction);
        self.repair.pass(unit, Event::Resolved);
        self.repair.pass(unit, Event::Processed);
        if aborts {
            self.repair.found().push(transaction);
        }
    }

    /// Runs a part of a transaction, or a whole one.
    pub(crate) fn run_part<E: Execute + ?Sized>(&self, execute: &E, worker: usize, unit: u32) {
        let transaction = self.flow.unit(unit).0;
        execute.execute(worker, unit);
        let whole = self.flow.units_of(transaction).len() == 1 && !execute.is_apart(transaction);
        if whole {
            self.repair.pass(unit, Event::Resolved);
        }
        self.repair.pass(unit, if whole { Event::Processed } else { Event::Speculated });
    }

    /// Counts a unit of a stratum as run, with eager aborts and structured exploration. The worker that runs the last
    /// one of a stratum begins a repair.
    pub(crate) fn end_in_stratum<P, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: &mut Worker,
        unit: u32,
    ) {
        let is_last = self.strata.end(self.strata.of(unit));
        if is_last && !self.repair.found().is_empty() {
            self.repair(scene, worker);
        }
    }

    /// Judges the next block of transactions after all units have run, with lazy aborts; the worker that judges last
    /// begins the repair.
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
            self.repair(scene, worker);
            self.repair.settled.store(true, Ordering::Release);
            self.pools.wake_all();
        }
        Step::Advanced
    }

    /// Repairs after the aborts found so far, with all workers that come. On return it is over.
    fn repair<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        self.begin_repair(scene, worker);
        self.join_repair(scene, worker);
    }

    /// Finds what a repair concerns, while no unit runs.
    fn begin_repair<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        let execute = scene.execute;
        let start = execute.now();
        let mut concerned = self.repair.concerned.write().unwrap_or_else(PoisonError::into_inner);
        let alone = execute.now();
        worker.times.lock += alone - start;
        // Those of another worker's repair that has begun since are among its own.
        let found = mem::take(&mut *self.repair.found());
        if found.is_empty() {
            return;
        }
        assert!(!self.repair.is_under_way(), "an abort is found during a repair");
        concerned.begin(&found, |transaction, see| self.consumers_that_ran(execute, transaction, see));
        self.repair.under_way.store(true, Ordering::Release);
        if concerned.frontier.units() >= SHARED_MIN {
            self.pools.wake_all();
        }
        worker.times.abort += execute.now() - alone;
    }

    /// Takes part in the repair that is under way, if there is one, until it is over.
    pub(crate) fn join_repair<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker) {
        let concerned = self.repair.read();
        if self.repair.is_under_way() {
            self.help_repair(scene, worker, &concerned);
        }
    }

    fn help_repair<P, E: Execute + ?Sized>(&self, scene: &Scene<'_, P, E>, worker: &mut Worker, concerned: &Concerned) {
        let (frontier, pools) = (&concerned.frontier, &self.repair.pools);
        let edges = Edges { executor: self, execute: scene.execute, concerned };
        let (start, waited) = (scene.execute.now(), worker.times.sync);
        let mut ready = mem::take(&mut worker.repaired);
        let (mut next, mut repaired) = (None, 0);
        while !frontier.is_finished() {
            self.stop_if_poisoned();
            if let Some(number) = next.take().or_else(|| ready.pop()) {
                self.repair_one(scene, worker.id, concerned, number);
                repaired += 1;
                next = frontier.release(&edges, number, &mut ready, |_| false);
                if !ready.is_empty() && frontier.is_claimed() && pools.is_wanting(worker.id) {
                    pools.put(worker.id, &mut ready);
                }
                continue;
            }
            pools.take(worker.id, &mut ready, self.workers as usize, false);
            if !ready.is_empty() || frontier.look(&edges, self.workers, &mut ready, |_| false) {
                continue;
            }
            if frontier.count(mem::take(&mut repaired)) == frontier.units() {
                pools.wake_all();
            } else {
                let id = worker.id;
                worker.wait(scene.execute, || pools.wait(id, || frontier.is_finished() || self.is_poisoned()));
            }
        }
        self.repair.under_way.store(false, Ordering::Release);
        worker.repaired = ready;
        worker.times.abort += (scene.execute.now() - start).saturating_sub(worker.times.sync - waited);
    }

    /// Repairs a transaction whose sources are right.
    fn repair_one<P, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: usize,
        concerned: &Concerned,
        number: u32,
    ) {
        let transaction = concerned.transactions[number as usize];
        let mut see = |slot: u32| {
            self.readers_that_ran(scene.execute, slot, |consumer, parts| {
                let number = concerned.number[consumer as usize];
                concerned.parts[number as usize].fetch_or(parts, Ordering::Relaxed);
            });
        };
        match concerned.parts[number as usize].load(Ordering::Relaxed) {
            0 => {}
            FOUND => {
                scene.running.set(self.flow.units_of(transaction).start);
                scene.execute.revert(worker, transaction, &mut see);
                self.end(transaction, true);
            }
            parts => self.run_again(scene, worker, transaction, parts, &mut see),
        }
    }

    /// Runs those of these parts of a transaction again that have run, and its verdict operation if that has.
    pub(crate) fn run_again<P, E: Execute + ?Sized>(
        &self,
        scene: &Scene<'_, P, E>,
        worker: usize,
        transaction: u32,
        parts: u32,
        see: &mut dyn FnMut(u32),
    ) {
        let (execute, units) = (scene.execute, self.flow.units_of(transaction));
        scene.running.set(units.start);
        let ran = self.ran(execute, transaction);
        // An aborted one has no values that could stay, should it now commit.
        let is_aborted = units.clone().any(|unit| self.repair.state(unit) == State::Aborted);
        let again = if is_aborted { ran } else { ran & parts };
        assert!(again != 0, "no part of transaction {transaction} runs again");
        let judged = ran >> self.verdict_bit(execute, transaction) & 1 == 1;
        let revived = || units.clone().filter(|unit| again >> (unit - units.start) & 1 == 1);
        revived().for_each(|unit| self.repair.pass(unit, Event::Revived));
        let aborts = execute.redo(worker, transaction, again, judged, see);
        revived().for_each(|unit| self.repair.pass(unit, Event::Processed));
        self.end(transaction, aborts);
        self.repair.redone.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `see` with the transactions that have read a version of this one, once for each version.
    fn consumers_that_ran<E: Execute + ?Sized>(&self, execute: &E, transaction: u32, mut see: impl FnMut(u32)) {
        for slot in self.graph.operations(transaction) {
            self.readers_that_ran(execute, slot, |consumer, _| see(consumer));
        }
    }

    /// Calls `see` with the transactions that have read a version, and with the parts of each that have.
    pub(crate) fn readers_that_ran<E: Execute + ?Sized>(&self, execute: &E, slot: u32, mut see: impl FnMut(u32, u32)) {
        self.flow.consumers(&self.graph, slot, |next, consumer| {
            let parts = self.flow.use_of(next).parts() & self.ran(execute, consumer);
            if parts != 0 {
                see(consumer, parts);
            }
        });
    }

    /// Returns the parts of a transaction that have run: its units, and if it is judged without a unit (lazily, so
    /// before any repair), the bit of the verdict operation.
    fn ran<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction);
        let ran = |unit: &u32| matches!(self.repair.state(*unit), State::Executed | State::Aborted);
        let parts = units.clone().filter(ran).fold(0, |parts, unit| parts | 1 << (unit - units.start));
        let judged = self.policy.abort == Abort::Lazy && execute.is_apart(transaction);
        parts | if judged { 1 << self.verdict_bit(execute, transaction) } else { 0 }
    }

    /// Returns the bit that stands for the verdict of a transaction: for a whole one, that of all there is.
    fn verdict_bit<E: Execute + ?Sized>(&self, execute: &E, transaction: u32) -> u32 {
        let units = self.flow.units_of(transaction).len() as u32;
        assert!((1..u32::BITS).contains(&units), "transaction {transaction} has {units} units, not a bit for each");
        units - u32::from(self.policy.abort == Abort::Eager || !execute.is_apart(transaction))
    }

    /// Moves the operations of a transaction to where its verdict puts them.
    pub(crate) fn end(&self, transaction: u32, aborts: bool) {
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
