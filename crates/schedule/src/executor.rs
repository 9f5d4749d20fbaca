//! The parallel executor: one loop for all policies. Described here for granularity `Transaction`, unstructured
//! exploration, voting first; the end says what other policies change.
//!
//! # What
//!
//! A worker takes a transaction that is *ready* and runs it. If that makes another transaction ready, the worker
//! continues with that one, and so moves along the chains of the rows until the next transaction waits for another
//! worker. Other transactions that became ready go on the worker's own stack, of which idle workers get a share.
//! (Operation chains are TStream's, §IV-C. Counting down what a vertex waits for is MorphStream's non-structured
//! exploration, §4.1.2. TStream evaluates a chain whole and repeats in rounds; here a worker leaves a chain where it
//! depends on another one, and the worker that resolves the dependency continues it.)
//!
//! # Vote first: the invariant, its cost, what is given up
//!
//! **Invariant.** A transaction runs only when, for each of its operations, the predecessor in the row's chain has
//! run: its operations are the heads of what is left of their chains.
//!
//! Three things follow. (1) Its rows have the values of the serial order: every earlier transaction that touches one
//! of them has run, and no later one has. (2) No running transaction shares a row with it, since one of the two would
//! precede the other in a chain. (3) Its requirements are functions of those values, so its verdict is final as soon
//! as they are evaluated, *before* its first update and so before any other transaction can see one. Hence an aborted
//! transaction writes nothing and affects no other: no undo image, no cascade, no redo. Aborting costs no more than
//! committing.
//!
//! **Cost.** One counter of 4 bytes per transaction; one atomic addition per edge, and one more per transaction that
//! was looked at before its predecessors had run.
//!
//! **Given up.** The operations of one transaction do not run in parallel, and an update that needs no verdict still
//! waits for one. Transactions are short and many; where they are long and few, operation granularity pays.
//!
//! # Life of an epoch
//!
//! 1. `prepare` (exclusive): takes the partitioned slices and assembles the graph.
//! 2. *Link*: workers claim partitions until all are linked, and wait for the last.
//! 3. *Run*: find a ready transaction, run it, release its successors; until all have run.
//!
//! A worker finds a transaction (a) on its stack, (b) in the pool, (c) by claiming the next block of transactions in
//! position order and *looking* at each: those whose predecessors have all run go on its stack. A ready transaction
//! runs only after it was looked at. So the transactions that run lie close together, shortly before the last claim,
//! in about the order in which events and operations lie in memory. This costs no parallelism, since each worker that
//! has nothing to run claims a block. Blocks shrink toward the end of the epoch (guided self-scheduling:
//! Polychronopoulos and Kuck 1987), so that the last long transactions do not pile up on one stack.
//!
//! **The counter** of a transaction counts *arrivals* (edges whose predecessor has run). Looking adds `LOOKED_AT` less
//! the number of edges that end in the transaction. The counter becomes `LOOKED_AT` when both are complete, in either
//! order; the worker that makes it so takes the transaction and resets the counter to 0 for the next epoch. So no
//! counter is initialized before the first transaction runs, and no pass and no barrier is needed for that.
//!
//! **No transaction runs twice.** Blocks are claimed once, so each transaction is looked at once. Each arrival and the
//! look change the counter once, so it takes every value once, and one worker brings it to `LOOKED_AT`. If all
//! arrivals came before the look, no other worker changes the counter any more, and the one that looks takes the
//! transaction.
//!
//! **No transaction is forgotten.** A worker waits only when its stack and the pool are empty and all blocks are
//! claimed. If all workers wait, every transaction was looked at; and by induction over the numbers every one has run,
//! since all its predecessors have, and the last arrival or the look put it on a stack. So the count of transactions
//! that ran is complete, and the worker that completed it woke the others. A worker adds to the count before it waits
//! or leaves.
//!
//! **Effects are seen in order.** What predecessor *p* wrote is seen by transaction *t* on another worker: *p*'s worker
//! adds to *t*'s counter (release) after it ran *p*; the worker that takes *t* adds to the same counter or reads it
//! (acquire), and all additions between them continue the release sequence; a transaction that changes hands does so
//! under the pool's lock. In the same way the count of linked partitions publishes the graph, and the count of
//! transactions that ran publishes all effects to each worker that returns from `work`.
//!
//! **Coming and leaving.** Workers may come at any time, also when all is done, and one is enough: it never waits for a
//! worker that has not come. A worker in `help` leaves when it finds nothing to do; it then holds nothing.
//!
//! **Steps.** [`Executor::work`] repeats one step and waits between steps that found nothing. [`Participant::step`] is
//! the same step without the wait, so that one thread can drive several workers in any order.
//!
//! # Other policies
//!
//! - **On versions** (all that follow): a unit is one of [`Flow`], and waits for the last write before it instead of
//!   its neighbours. A transaction stays whole, or it is in parts. Where it is in parts and votes first, each leaves its
//!   values in versions that nobody reads yet; the verdict operation, which runs after them, puts the values back that
//!   they found if the transaction aborts, and then tells those that wait for a version of it. Nothing else changes.
//! - **Chains** (granularity `Chain`): a unit is a chain of these ([`Chains`]), run from its beginning to its end.
//! - **Shared per socket, shared nothing**: a unit that is ready goes on the stack of the worker that made it so if it is
//!   that worker's or socket's, and into the pool of those it belongs to if not (`pools.rs`).
//! - **Structured**: units are claimed stratum by stratum (`explore.rs`).
//! - **Eager, lazy**: units run before the verdict of their transaction; `eager.rs` and `repair.rs` repair what was wrong.
//!
//! All are linked as above; on versions, linking also follows the values. The worker that links the last partition
//! finds the chains while the others wait; all workers find the strata (`stratify.rs`).
//!
//! **Panic.** If `execute` panics, the epoch is poisoned: every worker stops before its next transaction and panics
//! too, with the number of the transaction that panicked first. The next `prepare` starts afresh.

use crate::eager::Eager;
use crate::execute::Execute;
use crate::frontier::Frontier;
use crate::owners::{Owners, SocketOf};
use crate::participant::Participant;
use crate::policy::{Abort, Explore, Granularity, Policy, Rows, Search};
use crate::pools::Pools;
use crate::repair::Repair;
use crate::shares::Shares;
use crate::strata::Strata;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, RwLock};
use crate::worker::Worker;
use crossbeam_utils::CachePadded;
use std::mem;
use std::sync::PoisonError;
use tidemill_txn::{Accesses, ChainSummary, Chains, Flow, Graph, Precedence, SortedAccesses, UseBuffer, Versions};

pub(crate) const NO_UNIT: u32 = u32::MAX;

/// The result of a worker's step, or of its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done: a unit has run, some were claimed or judged, or a partition was linked.
    Advanced,
    /// There is nothing to do for this worker until another one has advanced.
    Starved,
    /// Every unit of the epoch has run, and its effects can be seen.
    Done,
}

/// The conduct of a worker that finds no work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    Wait,
    Leave,
}

/// Executes epochs in parallel, one at a time. Reused: in steady state it does not allocate.
#[derive(Debug)]
pub struct Executor {
    /// The most workers that may take part in any epoch.
    workers_max: u32,
    /// The number of workers that are expected in this epoch: sets how work is cut up.
    pub(crate) workers: u32,
    pub(crate) policy: Policy,
    pub(crate) graph: Graph,
    /// Followed where the policy works on versions.
    pub(crate) flow: Flow,
    /// The chains of the epoch, if chains are units. Filled by the worker that linked last. Each worker reads it for as
    /// long as it takes part, so it takes the lock once.
    pub(crate) chains: RwLock<Chains>,
    /// The strata of the epoch, if exploration is structured.
    pub(crate) strata: Strata,
    /// Depth first: the units of each share.
    pub(crate) shares: Shares,
    /// The slices of the epoch, read while linking.
    pub(crate) runs: Vec<SortedAccesses>,
    /// The counts that linking makes; the worker that linked a partition adds to it.
    pub(crate) summary: Mutex<ChainSummary>,
    /// The units of the epoch. Their number is known when it is arranged: chains are counted by the worker that finds
    /// them.
    pub(crate) frontier: Frontier,
    /// The next partition to link. Claimed by workers.
    pub(crate) next_partition: CachePadded<AtomicU32>,
    /// Partitions linked. Added to by the workers that link.
    linked: CachePadded<AtomicU32>,
    /// Workers that take part. Written by each as it comes and leaves; read as a hint.
    pub(crate) present: CachePadded<AtomicU32>,
    /// Read by all workers at every unit, and written a few times in an epoch.
    common: CachePadded<Common>,
    pub(crate) pools: Pools,
    /// The owners of rows, if rows have owners.
    owners: Owners,
    pub(crate) repair: Repair,
    /// Unstructured, eager aborts.
    pub(crate) eager: Eager,
}

#[derive(Debug)]
struct Common {
    /// A flag: whether all partitions are linked, and chains found. Set by the worker that linked last.
    linked: AtomicBool,
    /// A flag: whether a worker has panicked; set after `at_fault`, and never cleared in an epoch.
    poisoned: AtomicBool,
    /// The unit that panicked first, if one ran.
    at_fault: AtomicU32,
}

impl Executor {
    /// Makes an executor for at most this many workers, at least one.
    pub fn new(workers: usize) -> Self {
        Executor::on_sockets(&vec![0; workers])
    }

    /// Makes an executor with one worker on each of these sockets: work is shared inside a socket first.
    pub fn on_sockets(sockets: &[usize]) -> Self {
        let workers = sockets.len();
        assert!(workers > 0, "an epoch needs a worker");
        Executor {
            workers_max: workers as u32,
            workers: workers as u32,
            policy: Policy::TRANSACTION,
            graph: Graph::new(),
            flow: Flow::new(),
            chains: RwLock::new(Chains::default()),
            strata: Strata::new(),
            shares: Shares::default(),
            runs: Vec::new(),
            summary: Mutex::new(ChainSummary::default()),
            frontier: Frontier::new(),
            next_partition: CachePadded::new(AtomicU32::new(0)),
            linked: CachePadded::new(AtomicU32::new(0)),
            present: CachePadded::new(AtomicU32::new(0)),
            common: CachePadded::new(Common {
                linked: AtomicBool::new(false),
                poisoned: AtomicBool::new(false),
                at_fault: AtomicU32::new(NO_UNIT),
            }),
            pools: Pools::new(sockets),
            owners: Owners::default(),
            repair: Repair::new(sockets),
            eager: Eager::default(),
        }
    }

    /// Says where rows are: those with owners then belong to workers on their socket.
    pub fn place(&mut self, socket_of: SocketOf) {
        self.owners.place(socket_of);
    }

    /// Begins an epoch of these slices, in position order and with one partitioning, under [`Policy::TRANSACTION`]
    /// unless [`Executor::arrange`] says otherwise. The slices are exchanged for those of the epoch before, whose
    /// memory can be filled again.
    pub fn prepare(&mut self, runs: &mut Vec<SortedAccesses>) {
        mem::swap(&mut self.runs, runs);
        self.graph.assemble(&mut self.runs);
        self.policy = Policy::TRANSACTION;
        self.workers = self.workers_max;
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = ChainSummary::default();
        self.next_partition.store(0, Ordering::Relaxed);
        self.linked.store(0, Ordering::Relaxed);
        self.common.linked.store(false, Ordering::Relaxed);
        self.present.store(0, Ordering::Relaxed);
        self.common.at_fault.store(NO_UNIT, Ordering::Relaxed);
        self.pools.reset();
        let afresh = self.common.poisoned.swap(false, Ordering::Relaxed);
        self.frontier.begin(self.graph.transactions(), afresh);
        if afresh {
            self.repair.forget();
            self.strata.forget();
        }
    }

    /// Says how many workers will take part in the epoch that was prepared, without [`Executor::limit`] all. The number
    /// only sets how work is cut up: more may come, and fewer. Say it before [`Executor::arrange`].
    pub fn limit(&mut self, workers: u32) {
        assert!(workers > 0, "an epoch needs a worker");
        assert_eq!(self.present.load(Ordering::Relaxed), 0, "a worker takes part already");
        self.workers = workers.min(self.workers_max);
    }

    /// Sets the policy of the epoch that was prepared. `accesses` are those of the slices, all together; `uses` is
    /// read where the policy works on versions.
    pub fn arrange(&mut self, policy: Policy, accesses: Accesses<'_>, uses: &UseBuffer) {
        assert_ne!(policy.granularity, Granularity::Epoch, "a serial epoch is not explored");
        assert_eq!(accesses.transactions() as u32, self.graph.transactions(), "the accesses are not those prepared");
        assert_eq!(self.present.load(Ordering::Relaxed), 0, "a worker takes part already");
        self.policy = policy;
        self.pools.share(policy.sharing);
        if policy.sharing.has_owners() {
            self.owners.find(accesses, self.pools.sockets());
        } else if policy.explore == Explore::Structured(Search::Dfs) && !policy.on_versions() {
            self.owners.find(accesses, self.pools.sockets_of_workers(self.workers));
        }
        if policy.on_versions() {
            self.flow.begin(uses, accesses.op_start(), policy.verdicts());
            self.frontier.resize(self.flow.units());
        }
        if policy.explore != Explore::Unstructured {
            self.strata.begin(self.frontier.units());
        }
        if policy.explore == Explore::Structured(Search::Dfs) {
            self.shares.begin(self.frontier.units(), self.workers);
        }
        if policy.speculates() {
            self.repair.reset(self.flow.units(), self.graph.transactions());
            if policy.explore == Explore::Unstructured && policy.abort == Abort::Eager {
                self.eager.reset(&self.graph);
            }
        }
    }

    /// Returns the graph of the epoch; complete once a worker has returned from `work`.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the flow of the epoch, where its policy works on versions.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns the chains of the epoch; complete once a worker has returned from `work`.
    pub fn summary(&self) -> ChainSummary {
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of times that a transaction was run again, wholly or in part, because of an abort.
    pub fn redone(&self) -> u32 {
        if self.policy.speculates() { self.repair.redone() } else { 0 }
    }

    /// Takes part in the epoch until every unit has run. Called by each worker that takes part, at any time, on its
    /// own thread. On return all effects of the epoch can be seen.
    ///
    /// # Panics
    ///
    /// If `execute` panics, here or on another worker.
    pub fn work<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) {
        let progress = self.join(worker, execute).work(Idle::Wait);
        assert_eq!(progress, Progress::Done, "a worker that waits leaves when all has run");
    }

    /// Takes part in the epoch as long as there is something to do for this worker, and returns [`Progress::Starved`]
    /// or [`Progress::Done`] instead of waiting: for a worker that has other work. It may come again. (Under structured
    /// exploration and speculation it stays: others may wait for what it holds.)
    ///
    /// # Panics
    ///
    /// As `work`.
    pub fn help<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) -> Progress {
        let stays = self.policy.explore != Explore::Unstructured || self.policy.speculates();
        self.join(worker, execute).work(if stays { Idle::Wait } else { Idle::Leave })
    }

    /// Takes part in the epoch step by step ([`Participant::step`]). No two participants of an epoch have a worker of
    /// the same number.
    pub fn join<'a, E: Execute + ?Sized>(&'a self, worker: &'a mut Worker, execute: &'a E) -> Participant<'a, E> {
        Participant::join(self, worker, execute)
    }

    pub(crate) fn versions(&self) -> Versions<'_> {
        Versions { graph: &self.graph, flow: &self.flow }
    }

    /// Links the next partition; the worker that links the last one finds the chains. Done when all are linked.
    pub(crate) fn link(&self, worker: &mut Worker) -> Progress {
        if self.is_linked() {
            return Progress::Done;
        }
        let partitions = self.graph.partitions() as u32;
        if self.next_partition.load(Ordering::Relaxed) >= partitions {
            return Progress::Starved;
        }
        let partition = self.next_partition.fetch_add(1, Ordering::Relaxed);
        if partition >= partitions {
            return Progress::Starved;
        }
        let (at, linker) = (partition as usize, &mut worker.linker);
        let summary = match self.policy.on_versions() {
            true => self.graph.link_and_follow(at, &self.runs, linker, &self.flow),
            false => self.graph.link(at, &self.runs, linker),
        };
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).add(&summary);
        let linked = self.linked.fetch_add(1, Ordering::AcqRel) + 1;
        assert!(linked <= partitions, "{linked} partitions linked of {partitions}");
        if linked == partitions {
            if self.policy.granularity == Granularity::Chain {
                let mut chains = self.chains.write().unwrap_or_else(PoisonError::into_inner);
                chains.compute(&self.versions());
                self.frontier.set_units(chains.units());
            }
            if self.policy.explore != Explore::Unstructured {
                self.strata.set_units(self.frontier.units());
            }
            self.common.linked.store(true, Ordering::Release);
            self.pools.wake_all();
        }
        Progress::Advanced
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.common.linked.load(Ordering::Acquire)
    }

    /// Assigns the unit at a place of the strata to a worker's share, in depth-first exploration.
    pub(crate) fn share_out(&self, place: u32, unit: u32) {
        if self.policy.explore == Explore::Structured(Search::Dfs) {
            let count = self.shares.count();
            let owner = match self.policy.granularity {
                // A transaction without rows is anybody's.
                Granularity::Transaction(Rows::InPlace) => self.owner(unit, None).unwrap_or(unit % count),
                _ => place % count,
            };
            self.shares.put(place, owner);
        }
    }

    /// Returns the owner of a unit: of the first row that it touches. `chains`: where these are units.
    pub(crate) fn owner(&self, unit: u32, chains: Option<&Chains>) -> Option<u32> {
        let slot = match self.policy.on_versions() {
            false => self.graph.operations(unit).next(),
            true => {
                let unit = chains.map_or(unit, |chains| chains.units_of(unit)[0]);
                self.flow.operations(&self.graph, unit).next()
            }
        };
        slot.map(|slot| self.owners.of(slot))
    }

    /// Adds what the worker has run to the common count.
    pub(crate) fn report(&self, worker: &mut Worker) {
        let executed = mem::take(&mut worker.executed);
        if executed == 0 {
            return;
        }
        let finished = self.frontier.count(executed);
        // Breadth first, the count is the barrier between strata. Otherwise it only shows the end.
        if finished == self.frontier.units() || self.policy.explore == Explore::Structured(Search::Bfs) {
            self.pools.wake_all();
        }
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

    /// Stops all workers. The first to panic says where.
    pub(crate) fn poison(&self, running: u32) {
        if !self.common.poisoned.load(Ordering::Relaxed) {
            self.common.at_fault.store(running, Ordering::Relaxed);
            self.common.poisoned.store(true, Ordering::Release);
            self.pools.wake_all();
            self.repair.wake_all();
        }
    }

    /// Returns the transaction of a unit.
    #[inline]
    pub(crate) fn transaction(&self, unit: u32) -> u32 {
        if self.policy.on_versions() { self.flow.unit(unit).0 } else { unit }
    }
}
