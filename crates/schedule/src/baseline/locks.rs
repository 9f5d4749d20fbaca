//! Row locks, in a table by the hash of the row. Rows with one hash share a lock, which costs time but nothing else. It
//! is rare, since the table has at least twice as many locks as an epoch has accesses.

use crate::sync::{AtomicU32, Ordering};
use tidemill_txn::{Accesses, RowId, UseBuffer};

/// The least number of locks in a table.
const LOCKS_MIN: usize = 1 << 10;

/// Makes the table large enough for an epoch with this many accesses. Its size is a power of two.
pub(super) fn ensure<L: Default>(table: &mut Vec<L>, accesses: usize) {
    let wanted = (2 * accesses).next_power_of_two().max(LOCKS_MIN);
    if table.len() < wanted {
        table.clear();
        table.resize_with(wanted, L::default);
    }
}

/// Returns the lock of a row, in a table of this many locks.
pub(super) fn lock_of(row: RowId, locks: usize) -> u32 {
    debug_assert!(locks.is_power_of_two(), "{locks} locks cannot be masked");
    let hash = row.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as u32 & (locks as u32 - 1)
}

/// Returns the lock of a row in a partition: one of those that the partition has for itself. A power of two that is no
/// less than the number of partitions divides the table.
pub(super) fn lock_in(partition: u32, partitions: u32, row: RowId, locks: usize) -> u32 {
    let stride = partitions.next_power_of_two();
    debug_assert!(partition < partitions && stride as usize <= locks, "{partition} of {partitions}, {locks} locks");
    lock_of(row, locks) / stride * stride + partition
}

/// A lock that a transaction needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRequest {
    pub lock: u32,
    pub exclusive: bool,
    /// The count of released requests at which a ticket lock grants the request.
    ticket: u32,
}

/// Lists the locks that a transaction needs, each once. `lock` is the lock of a slot and its row.
pub(super) fn requests_of(
    transaction: u32,
    accesses: Accesses<'_>,
    uses: &UseBuffer,
    lock: impl Fn(usize, RowId) -> u32,
    requests: &mut Vec<LockRequest>,
) {
    requests.clear();
    let first = accesses.op_start()[transaction as usize] as usize;
    for (at, &row) in accesses.rows_of(transaction as usize).iter().enumerate() {
        let (lock, exclusive) = (lock(first + at, row), uses.uses[first + at].writes());
        match requests.iter_mut().find(|request| request.lock == lock) {
            Some(request) => request.exclusive |= exclusive,
            None => requests.push(LockRequest { lock, exclusive, ticket: 0 }),
        }
    }
}

/// A lock that grants requests in the order in which they were inserted, shared ones together (a ticket lock as that of
/// Mellor-Crummey and Scott, "Scalable reader-writer synchronization", PPoPP 1991).
///
/// An exclusive request is granted when all requests before it were released; a shared one when all exclusive ones
/// before it were. No request after one that waits can be released, so both are comparisons of a count of released
/// requests with the count of requests at insertion. Counts wrap around.
#[derive(Debug, Default)]
pub(super) struct TicketLock {
    /// The number of inserted requests, and of exclusive ones among them. Written by the worker whose turn it is to
    /// insert.
    inserted: AtomicU32,
    inserted_exclusive: AtomicU32,
    /// The number of released requests, and of exclusive ones among them. Written by holders.
    released: AtomicU32,
    released_exclusive: AtomicU32,
}

impl TicketLock {
    /// Inserts a request. By one worker at a time, in turns.
    pub fn insert(&self, request: &mut LockRequest) {
        let inserted = self.inserted.load(Ordering::Relaxed);
        let exclusive = self.inserted_exclusive.load(Ordering::Relaxed);
        self.inserted.store(inserted.wrapping_add(1), Ordering::Relaxed);
        request.ticket = if request.exclusive { inserted } else { exclusive };
        if request.exclusive {
            self.inserted_exclusive.store(exclusive.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Returns whether a request is granted.
    pub fn is_granted(&self, request: &LockRequest) -> bool {
        let released = if request.exclusive { &self.released } else { &self.released_exclusive };
        released.load(Ordering::Acquire) == request.ticket
    }

    /// Releases a request that was granted.
    pub fn release(&self, request: &LockRequest) {
        if request.exclusive {
            self.released_exclusive.fetch_add(1, Ordering::Release);
        }
        self.released.fetch_add(1, Ordering::Release);
    }
}

/// A lock without a queue: the number of readers, or [`WRITER`].
#[derive(Debug, Default)]
pub(super) struct TryLock(AtomicU32);

const WRITER: u32 = u32::MAX;

impl TryLock {
    /// Takes the lock, unless a holder excludes that; returns whether it was taken.
    pub fn try_take(&self, exclusive: bool) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        let then = match (exclusive, now) {
            (true, 0) => WRITER,
            (true, _) | (false, WRITER) => return false,
            (false, readers) => readers + 1,
        };
        self.0.compare_exchange(now, then, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock.
    pub fn release(&self, exclusive: bool) {
        match exclusive {
            true => self.0.store(0, Ordering::Release),
            false => {
                let readers = self.0.fetch_sub(1, Ordering::Release);
                assert!(readers > 0 && readers != WRITER, "a lock is released that no reader holds");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn no_lock_is_of_two_partitions() {
        for partitions in [1, 3, 4, 16, 64, 1_000] {
            let mut owners = BTreeMap::new();
            for number in 0..20_000 {
                let partition = number % partitions;
                let lock = lock_in(partition, partitions, RowId(u64::from(number) << 6), LOCKS_MIN);
                assert!((lock as usize) < LOCKS_MIN);
                assert_eq!(*owners.entry(lock).or_insert(partition), partition, "{partitions} partitions, lock {lock}");
            }
            assert_eq!(owners.values().collect::<BTreeSet<_>>().len(), partitions as usize);
            // A partition has about as many locks as its share of the table.
            let share = LOCKS_MIN / (partitions as usize).next_power_of_two();
            assert!(owners.len() > partitions as usize * share * 9 / 10, "{partitions}: {} locks", owners.len());
        }
    }
}
