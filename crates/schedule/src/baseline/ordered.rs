//! LAL and PAT: transactions request locks in turns, which keeps the order; then they run in parallel as far as their
//! locks allow. A row's partition follows from the hash of its key, as in TStream (2020, §VI-E); no lock is of two
//! partitions.
//!
//! A transaction (1) waits until the counter of each of its partitions has reached its number there, (2) inserts its
//! requests and increments the counters, (3) waits for its locks, runs, releases them. LAL has one partition.
//! Transactions are claimed in position order and hold nothing while they wait for a turn, so the first one that has not
//! run always can.

use super::locks::{self, LockRequest, TicketLock, lock_in, lock_of, requests_of};
use super::{Baseline, Scheme};
use crate::execute::Execute;
use crate::sync::{AtomicU32, Ordering};
use crate::worker::Worker;
use crossbeam_utils::CachePadded;
use tidemill_txn::{Accesses, RowId, UseBuffer};

/// The transaction that has its turn, by partition.
#[derive(Debug, Default)]
pub(super) struct Turns {
    counters: Vec<CachePadded<AtomicU32>>,
    /// First turn of each transaction, and the end. Unused with one partition.
    start: Vec<u32>,
    /// Partition, and the transaction's number there.
    turns: Vec<(u32, u32)>,
    /// Partition of each slot. Empty with one partition.
    of_slot: Vec<u32>,
}

impl Turns {
    /// Begins an epoch with this many partitions.
    pub fn begin(&mut self, partitions: u32) {
        self.counters.clear();
        self.counters.resize_with(partitions as usize, CachePadded::default);
        self.start.clear();
        self.turns.clear();
        self.of_slot.clear();
    }

    /// Returns the number of the transaction that has its turn in a partition.
    pub fn counter(&self, partition: u32) -> &AtomicU32 {
        &self.counters[partition as usize]
    }
}

impl Baseline {
    /// Prepares the turns in which an epoch's transactions take their locks. `key_hashes`: the hash of the key of each
    /// slot's row; with one partition they are not looked at.
    pub(super) fn prepare_turns(&mut self, partitions: u32, accesses: Accesses<'_>, key_hashes: &[u64]) {
        let slots = accesses.rows().len();
        locks::ensure::<TicketLock>(&mut self.locks, slots.max(partitions as usize));
        self.turns.begin(partitions);
        if self.scheme == Scheme::Lock {
            return;
        }
        assert_eq!(key_hashes.len(), slots, "each slot has a row with a key");
        let Turns { start, turns, of_slot, .. } = &mut self.turns;
        of_slot.extend(key_hashes.iter().map(|hash| (hash % u64::from(partitions)) as u32));
        let mut numbers = vec![0; partitions as usize];
        start.push(0);
        for slots in accesses.op_start().windows(2) {
            let first = turns.len();
            for &partition in &of_slot[slots[0] as usize..slots[1] as usize] {
                if turns[first..].iter().all(|(other, _)| *other != partition) {
                    turns.push((partition, numbers[partition as usize]));
                    numbers[partition as usize] += 1;
                }
            }
            start.push(turns.len() as u32);
        }
    }

    /// Returns the lock of a slot and its row.
    fn lock_of_slot(&self, slot: usize, row: RowId) -> u32 {
        match self.scheme {
            Scheme::Partitioned(partitions) => lock_in(self.turns.of_slot[slot], partitions, row, self.locks.len()),
            _ => lock_of(row, self.locks.len()),
        }
    }

    pub(super) fn run_in_turns<E: Execute + ?Sized>(
        &self,
        worker: &mut Worker,
        accesses: Accesses<'_>,
        uses: &UseBuffer,
        execute: &E,
    ) {
        let mut requests: Vec<LockRequest> = Vec::new();
        let lock = |request: &LockRequest| &self.locks[request.lock as usize];
        loop {
            let Some(transaction) = self.claim(1).next() else { return };
            execute.prefetch(transaction);
            requests_of(transaction, accesses, uses, |slot, row| self.lock_of_slot(slot, row), &mut requests);
            let only = [(0, transaction)];
            let turns = match self.scheme {
                Scheme::Lock => &only[..],
                _ => {
                    let bound = |t: u32| self.turns.start[t as usize] as usize;
                    &self.turns.turns[bound(transaction)..bound(transaction + 1)]
                }
            };
            for &(partition, number) in turns {
                self.wait_as(worker, execute, || self.turns.counter(partition).load(Ordering::Acquire) == number);
            }
            let is_timed = worker.sampler.is_due();
            let start = if is_timed { execute.now() } else { 0 };
            requests.iter_mut().for_each(|request| self.locks[request.lock as usize].insert(request));
            for &(partition, number) in turns {
                let turn = self.turns.counter(partition);
                debug_assert_eq!(turn.load(Ordering::Relaxed), number, "another worker passed a turn on");
                turn.store(number + 1, Ordering::Release);
            }
            let inserted = if is_timed { execute.now() - start } else { 0 };
            for request in &requests {
                self.wait_as(worker, execute, || lock(request).is_granted(request));
            }
            let granted = if is_timed { execute.now() } else { 0 };
            execute.execute(worker.id, transaction);
            if is_timed {
                let took = (execute.now() - granted).max(1);
                let useful = worker.sampler.took(took);
                worker.times.useful += useful;
                worker.times.lock += inserted * useful / took;
            }
            requests.iter().for_each(|request| lock(request).release(request));
            self.finish(1);
        }
    }
}
