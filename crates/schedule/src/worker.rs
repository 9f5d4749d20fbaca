//! The state of a worker: its number, its memory, what it holds of an epoch, and its times.

use crate::execute::Execute;
use crate::shares::Share;
use crate::strata::Met;
use crate::times::{Breakdown, Sampler};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::ops::Range;
use tidemill_txn::Linker;

/// A worker. Its memory lives from epoch to epoch.
#[derive(Debug, Default)]
pub struct Worker {
    pub(crate) id: usize,
    /// The unit to run next, if running another one made it ready.
    pub(crate) next: Option<u32>,
    /// The units that are ready, the next one on top.
    pub(crate) ready: Vec<u32>,
    /// Breadth first: members of a stratum that this worker has claimed and may not run yet.
    pub(crate) claimed: Range<u32>,
    /// Depth first: what is left of each share that is this worker's.
    pub(crate) shares: Vec<Share>,
    /// Structured: units that it has come to, while strata are found.
    pub(crate) met: Met,
    /// It has waited long enough for units of its own, and may take those of others.
    pub(crate) is_impatient: bool,
    /// The transactions that may be repaired now, in a repair. Empty outside of it.
    pub(crate) repaired: Vec<u32>,
    /// Eager: transactions with stale parts that are this worker's to run again, the first in position order on top.
    /// Empty between units, as is the next.
    pub(crate) stale: BinaryHeap<Reverse<u32>>,
    /// Eager: the sources that it holds.
    pub(crate) held: Vec<u32>,
    /// Units run since the last addition to the common count.
    pub(crate) executed: u32,
    pub(crate) linker: Linker,
    pub(crate) times: Breakdown,
    pub(crate) sampler: Sampler,
}

impl Worker {
    /// Makes the worker that `execute` will be told. Two workers of an epoch have different numbers.
    pub fn new(id: usize) -> Self {
        Worker { id, ..Worker::default() }
    }

    /// Returns its number.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the times since the last call, by kind.
    pub fn take_times(&mut self) -> Breakdown {
        mem::take(&mut self.times)
    }

    /// Adds the time of transactions that it ran outside of the executor, nanoseconds.
    pub fn account(&mut self, useful: u64) {
        self.times.useful += useful;
    }

    /// Forgets what a panic may have left in its hands.
    pub(crate) fn begin(&mut self) {
        self.next = None;
        self.ready.clear();
        self.claimed = 0..0;
        self.shares.clear();
        self.met.clear();
        self.is_impatient = false;
        self.repaired.clear();
        self.stale.clear();
        self.held.clear();
        self.executed = 0;
        self.sampler = Sampler::default();
    }

    /// Returns whether it holds units that no other worker will run, or has not counted some that it ran.
    pub(crate) fn holds_any(&self) -> bool {
        self.next.is_some()
            || !self.ready.is_empty()
            || !self.claimed.is_empty()
            || !self.shares.is_empty()
            || !self.met.is_empty()
            || self.executed > 0
    }

    /// Calls `wait`, and counts the time as synchronization.
    pub(crate) fn wait<E: Execute + ?Sized>(&mut self, execute: &E, wait: impl FnOnce()) {
        let start = execute.now();
        wait();
        self.times.sync += execute.now() - start;
    }
}
