//! The parallel executor: one loop for all policies. Described here for granularity `Chain`, explored
//! unstructured, voting first; what other policies change is at the end.
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
//! # Other policies
//!
//! - **On versions** (granularity `Operation`, and all that speculate): a unit is an operation in the sense of
//!   [`Flow`], and waits for the last write before it instead of its neighbours. Nothing else changes.
//! - **Structured**: units are claimed stratum by stratum (`explore.rs`).
//! - **Eager, lazy**: units run before the verdict of their transaction; what was wrong is repaired
//!   (`repair.rs`).
//!
//! All are linked as above; on versions the values are followed meanwhile. Strata are found by the worker that
//! linked last, while the others wait.
//!
//! **Panic.** If `execute` panics, the epoch is poisoned: every worker stops before its next transaction
//! and panics too, with the number of the transaction at fault. `prepare` begins afresh.

use crate::execute::Execute;
use crate::policy::{Abort, Explore, Granularity, Policy, Search};
use crate::pools::Pools;
use crate::presence::{Presence, Shared};
use crate::repair::Repair;
use crate::shares::Shares;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, RwLock};
use crate::times::{Breakdown, Sampler};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::mem;
use std::ops::Range;
use std::sync::PoisonError;
use tidemill_txn::{Accesses, ChainSummary, Flow, Graph, Linker, Precedence, Run, Strata, UseBuffer, Versions};

pub(crate) const NO_UNIT: u32 = u32::MAX;

/// What a worker brings along: its number, and memory that lives from epoch to epoch.
#[derive(Debug, Default)]
pub struct Worker {
    pub(crate) id: usize,
    /// Ready units, the next one on top.
    pub(crate) ready: Vec<u32>,
    linker: Linker,
    /// Units run since the last addition to the common count.
    pub(crate) executed: u32,
    /// Depth first: what is left of each share that is this worker's.
    pub(crate) shares: Vec<Range<u32>>,
    pub(crate) times: Breakdown,
    pub(crate) sampler: Sampler,
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

    /// Where its time went since this was last asked.
    pub fn take_times(&mut self) -> Breakdown {
        mem::take(&mut self.times)
    }

    /// Runs units outside of the executor, all of it on the account of units.
    pub fn account<E: Execute + ?Sized>(&mut self, execute: &E, run: impl FnOnce(usize)) {
        let start = execute.now();
        run(self.id);
        self.times.useful += execute.now() - start;
    }

    /// Waits as `wait` does.
    pub(crate) fn wait<E: Execute + ?Sized>(&mut self, execute: &E, wait: impl FnOnce()) {
        let start = execute.now();
        wait();
        self.times.sync += execute.now() - start;
    }
}

/// How a worker's help ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Every unit of the epoch has run, and its effects can be seen.
    Done,
    /// There is nothing to do for this worker as long as others run what they run.
    Starved,
}

/// What a worker does that finds no work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    Wait,
    Leave,
}

/// Whether a step has anything for the next one to do.
pub(crate) enum Step<T> {
    Go(T),
    Stop(Progress),
}

/// Executes epochs in parallel, one at a time. Reused: in steady state it does not allocate.
#[derive(Debug)]
pub struct Executor {
    pub(crate) workers: u32,
    pub(crate) policy: Policy,
    pub(crate) graph: Graph,
    /// Followed where the policy works on versions.
    pub(crate) flow: Flow,
    /// Filled where exploration is structured, by the worker that linked last. Read by all for as long as they
    /// take part, so the lock is taken once by each.
    structure: RwLock<Structure>,
    /// Units of the epoch.
    pub(crate) units: u32,
    /// The slices of the epoch, read while linking.
    runs: Vec<Run>,
    /// What linking counted; each worker adds its partitions once.
    summary: Mutex<ChainSummary>,
    /// Per unit, see the head of this file. Added to by whoever ran a predecessor and whoever looks;
    /// set back to 0 by the one of them who gets the unit. Not touched where there is no edge.
    pub(crate) counters: Vec<AtomicU32>,
    /// The next partition to link. Claimed by workers.
    next_partition: CachePadded<AtomicU32>,
    /// The next unit to look at, or breadth first the next member to run; claimed by workers, in blocks. Depth
    /// first the next share.
    pub(crate) next_look: CachePadded<AtomicU32>,
    /// What everybody reads often and few write seldom.
    pub(crate) common: CachePadded<Common>,
    pub(crate) pools: Pools,
    pub(crate) repair: Repair,
}

/// The strata of an epoch, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    pub(crate) strata: Strata,
    /// Depth first: who runs what.
    pub(crate) shares: Shares,
    /// Per stratum, its units that have not run yet. Kept where aborts are handled stratum by stratum.
    pub(crate) unfinished: Vec<AtomicU32>,
}

#[derive(Debug)]
pub(crate) struct Common {
    /// Partitions linked. Added to by workers that have linked some.
    linked: AtomicU32,
    /// Whether all are, and strata found. Set by the worker that linked last.
    arranged: AtomicBool,
    /// Units run. Added to by workers that have run out of work.
    pub(crate) finished: AtomicU32,
    /// Workers inside.
    pub(crate) present: AtomicU32,
    /// Set by a worker that panics, never cleared in an epoch; then `at_fault` says where.
    poisoned: AtomicBool,
    at_fault: AtomicU32,
}

impl Executor {
    /// An executor for about so many workers, at least one: the number only sets how work is cut up.
    pub fn new(workers: usize) -> Self {
        Executor::on_sockets(&vec![0; workers])
    }

    /// For workers on these sockets, by their numbers: work is shared inside a socket first.
    pub fn on_sockets(sockets: &[usize]) -> Self {
        let workers = sockets.len();
        assert!(workers > 0, "an epoch needs a worker");
        Executor {
            workers: workers as u32,
            policy: Policy::CHAIN,
            graph: Graph::new(),
            flow: Flow::new(),
            structure: RwLock::new(Structure::default()),
            units: 0,
            runs: Vec::new(),
            summary: Mutex::new(ChainSummary::default()),
            counters: Vec::new(),
            next_partition: CachePadded::new(AtomicU32::new(0)),
            next_look: CachePadded::new(AtomicU32::new(0)),
            common: CachePadded::new(Common {
                linked: AtomicU32::new(0),
                arranged: AtomicBool::new(false),
                finished: AtomicU32::new(0),
                present: AtomicU32::new(0),
                poisoned: AtomicBool::new(false),
                at_fault: AtomicU32::new(NO_UNIT),
            }),
            pools: Pools::new(sockets),
            repair: Repair::new(),
        }
    }

    /// Begins an epoch of these slices, in position order and with one partitioning, under [`Policy::CHAIN`]
    /// unless [`Executor::arrange`] says otherwise. They change places with the slices of the epoch
    /// before, whose memory can be filled again.
    pub fn prepare(&mut self, runs: &mut Vec<Run>) {
        mem::swap(&mut self.runs, runs);
        self.graph.assemble(&mut self.runs);
        self.policy = Policy::CHAIN;
        self.units = self.graph.transactions();
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = ChainSummary::default();
        self.next_partition.store(0, Ordering::Relaxed);
        self.next_look.store(0, Ordering::Relaxed);
        self.common.linked.store(0, Ordering::Relaxed);
        self.common.arranged.store(false, Ordering::Relaxed);
        self.common.finished.store(0, Ordering::Relaxed);
        self.common.present.store(0, Ordering::Relaxed);
        self.common.at_fault.store(NO_UNIT, Ordering::Relaxed);
        self.pools.reset();
        if self.common.poisoned.swap(false, Ordering::Relaxed) {
            // A panic leaves counts behind.
            self.counters.clear();
        }
        self.make_counters();
    }

    fn make_counters(&mut self) {
        if self.counters.len() < self.units as usize {
            self.counters.resize_with(self.units as usize, || AtomicU32::new(0));
        }
    }

    /// Sets the policy of the epoch that was prepared. `accesses` are those of the slices, all together; `uses` is
    /// read where the policy works on versions.
    pub fn arrange(&mut self, policy: Policy, accesses: Accesses<'_>, uses: &UseBuffer) {
        assert_ne!(policy.granularity, Granularity::Epoch, "a serial epoch is not explored");
        self.policy = policy;
        if policy.on_versions() {
            self.flow.begin(uses, accesses.op_start(), policy.abort == Abort::Eager);
            self.units = self.flow.units();
            self.make_counters();
        }
        if policy.speculates() {
            self.repair.reset(self.units, self.graph.transactions());
        }
    }

    /// The graph of the epoch; complete once a worker has returned from `work`.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The flow of the epoch, where its policy works on versions.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The chains of the epoch; complete once a worker has returned from `work`.
    pub fn summary(&self) -> ChainSummary {
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a transaction was run again, wholly or in part, because of an abort.
    pub fn redone(&self) -> u32 {
        if self.policy.speculates() { self.repair.redone() } else { 0 }
    }

    /// Takes part in the epoch until every unit has run. Called by each worker that takes part, at any
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
    /// waiting: for a worker that has other work. It may come again. (Under structured exploration and
    /// speculation it stays: there, others may wait for what it holds.)
    ///
    /// # Panics
    ///
    /// As `work`.
    pub fn help<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) -> Progress {
        let stays = self.policy.explore != Explore::Unstructured || self.policy.speculates();
        self.participate(worker, execute, if stays { Idle::Wait } else { Idle::Leave })
    }

    fn participate<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, idle: Idle) -> Progress {
        worker.ready.clear();
        worker.shares.clear();
        worker.executed = 0;
        worker.sampler = Sampler::default();
        let (start, before) = (execute.now(), worker.times.total());
        let progress = self.take_part(worker, execute, idle);
        let accounted = worker.times.total() - before;
        worker.times.explore += (execute.now() - start).saturating_sub(accounted);
        progress
    }

    fn take_part<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, idle: Idle) -> Progress {
        let presence = Place::enter(self);
        let (start, before) = (execute.now(), worker.times.sync);
        let linked = self.link(worker, execute, idle);
        worker.times.construct += (execute.now() - start).saturating_sub(worker.times.sync - before);
        if let Step::Stop(progress) = linked {
            return progress;
        }
        let structure = self.structure.read().unwrap_or_else(PoisonError::into_inner);
        let progress = match self.policy.on_versions() {
            true => self.explore((&self.versions(), &structure), worker, execute, idle, &presence.0),
            false => self.explore((&self.graph, &structure), worker, execute, idle, &presence.0),
        };
        if progress == Progress::Done && self.policy.abort == Abort::Lazy {
            self.settle(worker, execute, &presence.0);
        }
        progress
    }

    pub(crate) fn versions(&self) -> Versions<'_> {
        Versions { graph: &self.graph, flow: &self.flow }
    }

    /// The loop: find a unit, run it and what follows from it.
    fn explore<P: Precedence, E: Execute + ?Sized>(
        &self,
        order: (&P, &Structure),
        worker: &mut Worker,
        execute: &E,
        idle: Idle,
        place: &Place<'_>,
    ) -> Progress {
        loop {
            match self.find(order, worker, execute, idle) {
                Step::Go(unit) => self.run_along(order, worker, execute, unit, place),
                Step::Stop(progress) => return progress,
            }
        }
    }

    fn link<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, idle: Idle) -> Step<()> {
        let is_arranged = || self.common.arranged.load(Ordering::Acquire);
        if is_arranged() {
            return Step::Go(());
        }
        let partitions = self.graph.partitions() as u32;
        let mut summary = ChainSummary::default();
        let mut linked = 0;
        while self.next_partition.load(Ordering::Relaxed) < partitions {
            let partition = self.next_partition.fetch_add(1, Ordering::Relaxed);
            if partition >= partitions {
                break;
            }
            let (partition, runs, linker) = (partition as usize, &self.runs, &mut worker.linker);
            summary.add(&match self.policy.on_versions() {
                true => self.graph.link_and_follow(partition, runs, linker, &self.flow),
                false => self.graph.link(partition, runs, linker),
            });
            linked += 1;
        }
        if linked > 0 {
            self.summary.lock().unwrap_or_else(PoisonError::into_inner).add(&summary);
            if self.common.linked.fetch_add(linked, Ordering::AcqRel) + linked == partitions {
                self.find_strata();
                self.common.arranged.store(true, Ordering::Release);
                self.pools.wake_all();
            }
        }
        if idle == Idle::Wait {
            let id = worker.id;
            worker.wait(execute, || self.pools.wait_for(id, || is_arranged() || self.is_poisoned()));
        }
        self.stop_if_poisoned();
        if is_arranged() { Step::Go(()) } else { Step::Stop(Progress::Starved) }
    }

    fn find_strata(&self) {
        if self.policy.explore == Explore::Unstructured {
            return;
        }
        let mut structure = self.structure.write().unwrap_or_else(PoisonError::into_inner);
        let Structure { strata, shares, unfinished } = &mut *structure;
        match self.policy.on_versions() {
            true => strata.compute(&self.versions()),
            false => strata.compute(&self.graph),
        }
        if self.policy.explore == Explore::Structured(Search::Dfs) {
            let flow = self.policy.on_versions().then_some(&self.flow);
            match self.policy.granularity {
                Granularity::Chain => shares.own(strata.members(), self.workers, &self.graph, flow),
                _ => shares.deal(strata.members(), self.workers),
            }
        }
        unfinished.clear();
        if self.policy.abort == Abort::Eager {
            unfinished.extend((0..strata.depth()).map(|stratum| AtomicU32::new(strata.bounds(stratum).len() as u32)));
        }
    }

    /// Adds what the worker has run to the common count.
    pub(crate) fn report(&self, worker: &mut Worker) {
        let executed = mem::take(&mut worker.executed);
        if executed == 0 {
            return;
        }
        let finished = self.common.finished.fetch_add(executed, Ordering::AcqRel) + executed;
        assert!(finished <= self.units, "{finished} units run, more than there are");
        if finished == self.units || self.policy.explore != Explore::Unstructured {
            self.pools.wake_all();
        }
    }

    pub(crate) fn finished(&self) -> u32 {
        self.common.finished.load(Ordering::Acquire)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished() == self.units
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.common.poisoned.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn stop_if_poisoned(&self) {
        if self.is_poisoned() {
            self.stop();
        }
    }

    #[cold]
    fn stop(&self) -> ! {
        match self.common.at_fault.load(Ordering::Relaxed) {
            NO_UNIT => panic!("the epoch is stopped: another worker panicked"),
            unit => panic!("the epoch is stopped: transaction {} panicked on another worker", self.transaction(unit)),
        }
    }

    /// The transaction of a unit.
    #[inline]
    pub(crate) fn transaction(&self, unit: u32) -> u32 {
        if self.policy.on_versions() { self.flow.unit(unit).0 } else { unit }
    }
}

/// A worker inside an epoch.
pub(crate) struct Place<'a> {
    executor: &'a Executor,
    /// The unit that it runs.
    pub(crate) running: Cell<u32>,
}

impl<'a> Place<'a> {
    fn enter(executor: &'a Executor) -> Presence<Self> {
        executor.common.present.fetch_add(1, Ordering::Relaxed);
        Presence(Place { executor, running: Cell::new(NO_UNIT) })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.executor.common.present.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared for Place<'_> {
    /// Stops the others. The first worker to panic says where.
    fn abandon(&self) {
        let common = &self.executor.common;
        if !common.poisoned.load(Ordering::Relaxed) {
            common.at_fault.store(self.running.get(), Ordering::Relaxed);
            common.poisoned.store(true, Ordering::Release);
            self.executor.pools.wake_all();
        }
    }
}
