//! Granularity `Chain`, explored unstructured, voting first: the parallel executor.
//!
//! # What
//!
//! A worker takes a transaction that is *ready* and runs it; where that makes another one ready, it
//! goes on with that one, and so moves along the chains of the rows for as long as nothing in its way
//! waits for somebody else. What else became ready it keeps on a stack of its own, of which idle workers
//! get a share. (Operation chains are TStream's, §IV-C; counting down what a vertex waits for is
//! MorphStream's non-structured exploration, §4.1.2. TStream evaluates a chain whole and repeats in
//! rounds; here a chain is left where it depends on another and taken up by whoever resolves that.)
//!
//! # Vote first: the invariant, its cost, what is given up
//!
//! **Invariant.** A transaction runs only when, for each of its operations, the predecessor in the row's
//! chain has run: all its rows are at the heads of what is left of their chains.
//!
//! From this follow: (1) its rows have the values of the serial order, as every earlier transaction
//! that touches one has run, and no later one has. (2) No running transaction shares a row with it, as
//! that one would be before or behind it in a chain. (3) Its requirements are functions of those values,
//! so its verdict is final the moment they are evaluated, *before* its first update and so before anyone
//! can see one. Hence an abort is a transaction that writes nothing. It touches nobody else: no undo
//! image, no cascade, no redo, and aborting costs no more than committing.
//!
//! **Cost.** One counter of 4 bytes per transaction; one atomic addition per edge, and one more per
//! transaction that was looked at too early.
//!
//! **Given up.** The operations of one transaction do not run in parallel, and an update that needs no
//! verdict waits for one all the same. Transactions are short and many; where they are long and few,
//! operation granularity pays.
//!
//! # Life of an epoch
//!
//! 1. `prepare` (exclusive): takes the partitioned slices and assembles the graph.
//! 2. *link*: workers claim partitions until all are linked, and wait for the last.
//! 3. *run*: find a ready transaction, run it, release its successors; until all have run.
//!
//! A worker finds a transaction (a) on its stack, (b) in the pool, (c) by claiming the next block of
//! transactions in position order and *looking* at each: those whose predecessors have all run go on its
//! stack. A transaction that was not looked at is not run even if it could be. So what runs lies in a
//! window behind the last claim, close to the order in which events and operations lie in memory; and it
//! costs no parallelism, since whoever has nothing to run claims. Blocks shrink toward the end of the
//! epoch (guided self-scheduling: Polychronopoulos and Kuck 1987), so that the last long transactions do
//! not pile up on one stack.
//!
//! **The counter** of a transaction holds the *arrivals*, edges that are done, and once it has been looked at,
//! `LOOKED_AT` less the edges that it waits for. It becomes `LOOKED_AT` when both are complete, in either
//! order; whoever makes it so has the transaction, and sets the counter back to 0 for the next epoch. (Nothing
//! need be counted before the first transaction runs, so there is no pass and no barrier for it.)
//!
//! **No transaction is run twice.** Each is looked at once, as blocks are claimed once. Its counter takes
//! every value once, as each arrival and the look change it once; so one worker brings it to `LOOKED_AT`.
//! With all arrivals there before the look, nobody else comes any more, and the one who looks has it.
//!
//! **None is forgotten.** A worker waits only when its stack and the pool are empty and all blocks are
//! claimed. If all workers do, every transaction was looked at; and by induction over the numbers every one
//! has run, since all its predecessors have, and the last arrival or the look put it on a stack. So the
//! count of those that ran is complete, and who completed it woke the others. A worker adds to the count
//! before it waits or leaves.
//!
//! **Effects are seen in order.** What predecessor *p* wrote is seen by transaction *t* on another
//! worker: *p*'s worker adds to *t*'s counter (release) after running *p*; whoever gets *t* adds to the same
//! counter or reads it (acquire), which all additions between them carry on; and a transaction that changes
//! hands does so under the pool's lock. The same holds for the links of the graph through the count of linked
//! partitions, and for everything that was run through the count of those that ran, for whoever
//! returns from `work`.
//!
//! **Coming and leaving.** Workers may come at any time, also when all is done, and one is enough. A worker
//! in `help` leaves when it finds nothing to do; it then holds nothing.
//!
//! **Panic.** If `execute` panics, the epoch is poisoned: every worker stops before its next transaction
//! and panics too, with the number of the transaction at fault. `prepare` begins afresh.

use crate::execute::Execute;
use crate::pool::Pool;
use crate::sync::{AtomicBool, AtomicU32, BLOCK_MAX, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::mem;
use std::sync::PoisonError;
use tidemill_txn::{ChainSummary, Graph, Linker, Run};

const NO_TRANSACTION: u32 = u32::MAX;

/// In a counter: the transaction was looked at. More than there can be edges to one.
const LOOKED_AT: u32 = 1 << 31;

/// How far ahead on its stack a worker asks for prefetches.
const PREFETCH_DISTANCE: usize = 8;

/// What a worker brings along: its number, and memory that lives from epoch to epoch.
#[derive(Debug, Default)]
pub struct Worker {
    id: usize,
    /// Ready transactions, the next one on top.
    ready: Vec<u32>,
    linker: Linker,
    /// Transactions run since the last addition to the common count.
    executed: u32,
}

impl Worker {
    /// The worker that `execute` will be told. Two workers of an epoch have different numbers.
    pub fn new(id: usize) -> Self {
        Worker { id, ..Worker::default() }
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.id
    }
}

/// How a worker's help ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Every transaction of the epoch has run, and its effects can be seen.
    Done,
    /// There is nothing to do for this worker as long as others run what they run.
    Starved,
}

/// What a worker does that finds no work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    Wait,
    Leave,
}

/// Whether a step has anything for the next one to do.
enum Step<T> {
    Go(T),
    Stop(Progress),
}

/// Executes epochs in parallel, one at a time. Reused: in steady state it does not allocate.
#[derive(Debug)]
pub struct ChainExecutor {
    workers: u32,
    graph: Graph,
    /// The slices of the epoch, read while linking.
    runs: Vec<Run>,
    /// What linking counted; each worker adds its partitions once.
    summary: Mutex<ChainSummary>,
    /// Per transaction, see the head of this file. Added to by whoever ran a predecessor and whoever looks;
    /// set back to 0 by the one of them who gets the transaction. Not touched where there is no edge.
    counters: Vec<AtomicU32>,
    /// The next partition to link. Claimed by workers.
    next_partition: CachePadded<AtomicU32>,
    /// The next transaction to look at. Claimed by workers, in blocks.
    next_look: CachePadded<AtomicU32>,
    /// What everybody reads often and few write seldom.
    common: CachePadded<Common>,
    pool: CachePadded<Pool>,
}

#[derive(Debug)]
struct Common {
    /// Partitions linked. Added to by workers that have linked some.
    linked: AtomicU32,
    /// Transactions run. Added to by workers that have run out of work.
    finished: AtomicU32,
    /// Workers inside.
    present: AtomicU32,
    /// Set by a worker that panics, never cleared in an epoch; then `at_fault` says where.
    poisoned: AtomicBool,
    at_fault: AtomicU32,
}

impl ChainExecutor {
    /// An executor for about so many workers, at least one: the number only sets how work is cut up.
    pub fn new(workers: usize) -> Self {
        assert!(workers > 0, "an epoch needs a worker");
        ChainExecutor {
            workers: workers as u32,
            graph: Graph::new(),
            runs: Vec::new(),
            summary: Mutex::new(ChainSummary::default()),
            counters: Vec::new(),
            next_partition: CachePadded::new(AtomicU32::new(0)),
            next_look: CachePadded::new(AtomicU32::new(0)),
            common: CachePadded::new(Common {
                linked: AtomicU32::new(0),
                finished: AtomicU32::new(0),
                present: AtomicU32::new(0),
                poisoned: AtomicBool::new(false),
                at_fault: AtomicU32::new(NO_TRANSACTION),
            }),
            pool: CachePadded::new(Pool::new()),
        }
    }

    /// Begins an epoch of these slices, in position order and with one partitioning. They change places
    /// with the slices of the epoch before, whose memory can be filled again.
    pub fn prepare(&mut self, runs: &mut Vec<Run>) {
        mem::swap(&mut self.runs, runs);
        self.graph.assemble(&mut self.runs);
        let transactions = self.graph.transactions() as usize;
        if self.common.poisoned.load(Ordering::Relaxed) {
            self.counters.clear();
        }
        if self.counters.len() < transactions {
            self.counters.resize_with(transactions, || AtomicU32::new(0));
        }
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = ChainSummary::default();
        self.next_partition.store(0, Ordering::Relaxed);
        self.next_look.store(0, Ordering::Relaxed);
        self.common.linked.store(0, Ordering::Relaxed);
        self.common.finished.store(0, Ordering::Relaxed);
        self.common.present.store(0, Ordering::Relaxed);
        self.common.poisoned.store(false, Ordering::Relaxed);
        self.common.at_fault.store(NO_TRANSACTION, Ordering::Relaxed);
        self.pool.reset();
    }

    /// The graph of the epoch; complete once a worker has returned from `work`.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The chains of the epoch; complete once a worker has returned from `work`.
    pub fn summary(&self) -> ChainSummary {
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes part in the epoch until every transaction has run. Called by each worker that takes part, at any
    /// time, on its own thread. On return all effects of the epoch can be seen.
    ///
    /// # Panics
    ///
    /// If `execute` panics, here or on another worker.
    pub fn work<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) {
        let progress = self.participate(worker, execute, Idle::Wait);
        debug_assert_eq!(progress, Progress::Done);
    }

    /// Takes part in the epoch as long as there is something to do for this worker, and returns instead of
    /// waiting: for a worker that has other work. It may come again.
    ///
    /// # Panics
    ///
    /// As `work`.
    pub fn help<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) -> Progress {
        self.participate(worker, execute, Idle::Leave)
    }

    fn participate<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, idle: Idle) -> Progress {
        worker.ready.clear();
        worker.executed = 0;
        let presence = Presence::enter(self);
        if let Step::Stop(progress) = self.link(worker, idle) {
            return progress;
        }
        loop {
            match self.find(worker, idle) {
                Step::Go(transaction) => self.run_along(worker, execute, transaction, &presence),
                Step::Stop(progress) => return progress,
            }
        }
    }

    fn link(&self, worker: &mut Worker, idle: Idle) -> Step<()> {
        let partitions = self.graph.partitions() as u32;
        if self.common.linked.load(Ordering::Acquire) == partitions {
            return Step::Go(());
        }
        let mut summary = ChainSummary::default();
        let mut linked = 0;
        while self.next_partition.load(Ordering::Relaxed) < partitions {
            let partition = self.next_partition.fetch_add(1, Ordering::Relaxed);
            if partition >= partitions {
                break;
            }
            summary.add(&self.graph.link(partition as usize, &self.runs, &mut worker.linker));
            linked += 1;
        }
        if linked > 0 {
            self.summary.lock().unwrap_or_else(PoisonError::into_inner).add(&summary);
            if self.common.linked.fetch_add(linked, Ordering::AcqRel) + linked == partitions {
                self.pool.wake_all();
            }
        }
        let all_linked = || self.common.linked.load(Ordering::Acquire) == partitions;
        if idle == Idle::Wait {
            self.pool.wait_for(|| all_linked() || self.is_poisoned());
            self.stop_if_poisoned();
        }
        if all_linked() { Step::Go(()) } else { Step::Stop(Progress::Starved) }
    }

    /// The next transaction to run.
    fn find(&self, worker: &mut Worker, idle: Idle) -> Step<u32> {
        loop {
            if let Some(transaction) = worker.ready.pop() {
                return Step::Go(transaction);
            }
            self.pool.take(&mut worker.ready, self.workers as usize);
            if !worker.ready.is_empty() || self.look(&mut worker.ready) {
                continue;
            }
            self.report(worker);
            if self.is_finished() {
                return Step::Stop(Progress::Done);
            }
            match idle {
                Idle::Wait => self.pool.wait(|| self.is_finished() || self.is_poisoned()),
                Idle::Leave if self.pool.is_dry() => return Step::Stop(Progress::Starved),
                Idle::Leave => {}
            }
            self.stop_if_poisoned();
        }
    }

    /// Claims a block of transactions and stacks those that are ready, the first on top. False if all are
    /// claimed.
    fn look(&self, ready: &mut Vec<u32>) -> bool {
        let transactions = self.graph.transactions();
        let mut begin = self.next_look.load(Ordering::Relaxed);
        let end = loop {
            if begin >= transactions {
                return false;
            }
            let block = ((transactions - begin) / (2 * self.workers)).clamp(1, BLOCK_MAX);
            let order = Ordering::Relaxed;
            match self.next_look.compare_exchange_weak(begin, begin + block, order, order) {
                Ok(_) => break begin + block,
                Err(now) => begin = now,
            }
        };
        ready.extend((begin..end).rev().filter(|&transaction| self.is_ready(transaction)));
        true
    }

    /// Runs a ready transaction and on along its chains, as far as that goes.
    fn run_along<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, first: u32, presence: &Presence<'_>) {
        let mut current = Some(first);
        while let Some(transaction) = current {
            self.stop_if_poisoned();
            if let Some(&soon) = worker.ready.iter().nth_back(PREFETCH_DISTANCE) {
                execute.prefetch(soon);
            }
            presence.running.set(transaction);
            execute.execute(worker.id, transaction);
            worker.executed += 1;
            current = self.release(transaction, &mut worker.ready);
            if !worker.ready.is_empty() && self.is_work_wanted() {
                self.pool.put(&mut worker.ready);
            }
        }
    }

    /// Tells the successors of a transaction that it has run. Of those that became ready the first in
    /// position order, which the most may wait for, is returned and the others stacked.
    fn release(&self, transaction: u32, ready: &mut Vec<u32>) -> Option<u32> {
        let mut first = None;
        for successor in self.graph.successors(transaction) {
            if self.arrive(successor) {
                match first {
                    None => first = Some(successor),
                    Some(other) => {
                        ready.push(other.max(successor));
                        first = Some(other.min(successor));
                    }
                }
            }
        }
        first
    }

    /// Looks at a transaction. True if all its predecessors have run.
    #[inline]
    fn is_ready(&self, transaction: u32) -> bool {
        let pending = self.graph.pending(transaction);
        if pending == 0 {
            return true;
        }
        let counter = &self.counters[transaction as usize];
        let has_all = counter.load(Ordering::Acquire) == pending
            || counter.fetch_add(LOOKED_AT - pending, Ordering::AcqRel) == pending;
        if has_all {
            // Nobody else comes here in this epoch.
            counter.store(0, Ordering::Relaxed);
        }
        has_all
    }

    /// One of the edges that a transaction waits for is done. True if it was looked at and this is the last.
    #[inline]
    fn arrive(&self, transaction: u32) -> bool {
        let counter = &self.counters[transaction as usize];
        let is_last = counter.fetch_add(1, Ordering::AcqRel) + 1 == LOOKED_AT;
        if is_last {
            counter.store(0, Ordering::Relaxed);
        }
        is_last
    }

    /// Whether somebody may be out of work: there is another worker, nothing left to claim, and nothing
    /// in the pool. All three are hints, looked at after every transaction.
    #[inline]
    fn is_work_wanted(&self) -> bool {
        self.pool.is_dry()
            && self.common.present.load(Ordering::Relaxed) > 1
            && self.next_look.load(Ordering::Relaxed) >= self.graph.transactions()
    }

    /// Adds what the worker has run to the common count.
    fn report(&self, worker: &mut Worker) {
        let executed = mem::take(&mut worker.executed);
        if executed == 0 {
            return;
        }
        let finished = self.common.finished.fetch_add(executed, Ordering::AcqRel) + executed;
        assert!(finished <= self.graph.transactions(), "{finished} transactions run, more than there are");
        if finished == self.graph.transactions() {
            self.pool.wake_all();
        }
    }

    fn is_finished(&self) -> bool {
        self.common.finished.load(Ordering::Acquire) == self.graph.transactions()
    }

    #[inline]
    fn is_poisoned(&self) -> bool {
        self.common.poisoned.load(Ordering::Acquire)
    }

    #[inline]
    fn stop_if_poisoned(&self) {
        if self.is_poisoned() {
            self.stop();
        }
    }

    #[cold]
    fn stop(&self) -> ! {
        match self.common.at_fault.load(Ordering::Relaxed) {
            NO_TRANSACTION => panic!("the epoch is stopped: another worker panicked"),
            transaction => panic!("the epoch is stopped: transaction {transaction} panicked on another worker"),
        }
    }
}

/// A worker inside an epoch; going by panic, it stops the others.
struct Presence<'a> {
    executor: &'a ChainExecutor,
    running: std::cell::Cell<u32>,
}

impl<'a> Presence<'a> {
    fn enter(executor: &'a ChainExecutor) -> Self {
        executor.common.present.fetch_add(1, Ordering::Relaxed);
        Presence { executor, running: std::cell::Cell::new(NO_TRANSACTION) }
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let common = &self.executor.common;
        common.present.fetch_sub(1, Ordering::Relaxed);
        if std::thread::panicking() && !common.poisoned.load(Ordering::Relaxed) {
            common.at_fault.store(self.running.get(), Ordering::Relaxed);
            common.poisoned.store(true, Ordering::Release);
            self.executor.pool.wake_all();
        }
    }
}
