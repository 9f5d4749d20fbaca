//! The stable radix partition of operations by row.
//!
//! **What.** A [`SortedAccesses`] is a slice of consecutive transactions whose accesses are sorted by partition,
//! where the partition of a row is a few bits of its hash. All accesses to one row are in one
//! partition, so partitions can be linked independently.
//!
//! **Invariant.** Inside a partition of a run, entries are in slot order. Runs are consecutive slices, so reading one
//! partition run by run gives the operations of every row in position order: a chain needs no sorting.
//!
//! **How.** Two passes over the slice: [`count`] the accesses per partition, [`scatter`] them to the places that the
//! prefix sums of the counts give. Each run has its own target, so different workers can partition slices without
//! sharing anything, not even a prefix sum, and in any order. For this, entries hold numbers relative to their slice;
//! linking adds where the slice begins.
//!
//! **Cost.** 16 bytes per access; a multiplication, a load and a store per access and pass.
//! **Traded away.** Linking a partition reads one piece per run, so a run should have several times more accesses than
//! there are partitions: a few thousand transactions.

use crate::access::{Accesses, RowId};
use std::ops::Range;

/// Accesses that a partition should have: the linker's table of their rows then stays in the cache.
const PARTITION_ACCESSES: usize = 1024;
/// The base-2 logarithm of the most partitions: with more targets the stores of the scatter themselves miss the cache.
const PARTITION_BITS_MAX: u32 = 8;

/// The division of rows into partitions: the same for all runs of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitioning {
    bits: u32,
}

impl Partitioning {
    /// Fits an epoch of about this many accesses.
    pub fn for_accesses(accesses: usize) -> Self {
        let partitions = (accesses / PARTITION_ACCESSES).max(1).next_power_of_two();
        Self::with_bits(partitions.trailing_zeros().min(PARTITION_BITS_MAX))
    }

    /// Makes `2^bits` partitions, for at most 8 bits.
    pub fn with_bits(bits: u32) -> Self {
        assert!(bits <= PARTITION_BITS_MAX, "at most {PARTITION_BITS_MAX} bits of partitions, not {bits}");
        Partitioning { bits }
    }

    /// Returns the number of partitions.
    pub fn partitions(self) -> usize {
        1 << self.bits
    }

    /// Returns the partition of a row: the top bits of its hash. (The linker's table takes the low ones.)
    #[inline]
    pub fn of(self, row: RowId) -> usize {
        // Shifting in two steps, because zero bits would shift by 64.
        ((row.hashed() >> 1) >> (63 - self.bits)) as usize
    }
}

/// An access, with slot and transaction relative to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub(crate) row: RowId,
    pub(crate) slot: u32,
    pub(crate) transaction: u32,
}

/// Adds, in the first pass, to `counts[p]` the number of accesses in partition `p`.
pub fn count(partitioning: Partitioning, rows: &[RowId], counts: &mut [u32]) {
    let counts = &mut counts[..partitioning.partitions()];
    for &row in rows {
        counts[partitioning.of(row)] += 1;
    }
}

/// Writes, in the second pass, every access to `entries[next[p]]` of its partition `p` and increments `next[p]`. With
/// `next` at the beginning of each partition before, it is at the end of each afterwards.
pub fn scatter(partitioning: Partitioning, accesses: Accesses<'_>, next: &mut [u32], entries: &mut [Entry]) {
    let next = &mut next[..partitioning.partitions()];
    let mut slot = 0;
    for (transaction, &end) in accesses.op_start()[1..].iter().enumerate() {
        for &row in &accesses.rows()[slot as usize..end as usize] {
            let place = &mut next[partitioning.of(row)];
            entries[*place as usize] = Entry { row, slot, transaction: transaction as u32 };
            *place += 1;
            slot += 1;
        }
    }
}

/// A slice of consecutive transactions, partitioned by row. Reused from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct SortedAccesses {
    partitioning: Partitioning,
    /// First slot of each transaction in the run, and the end.
    op_start: Vec<u32>,
    /// `ends[p]..ends[p + 1]` are the entries of partition `p`.
    ends: Vec<u32>,
    /// The accesses in order of partitions; as long as the largest slice so far, `ends` says how much is in use.
    entries: Vec<Entry>,
    /// The place of the slice in the epoch; set when the graph is assembled.
    pub(crate) first_transaction: u32,
    pub(crate) first_slot: u32,
}

impl SortedAccesses {
    /// Makes an empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Partitions a slice: both passes. Allocates only if the run was never as large.
    pub fn partition(&mut self, partitioning: Partitioning, accesses: Accesses<'_>) {
        let rows = accesses.rows();
        self.partitioning = partitioning;
        self.op_start.clear();
        self.op_start.extend_from_slice(accesses.op_start());
        if self.entries.len() < rows.len() {
            self.entries.resize(rows.len(), Entry::default());
        }
        // One element before the counts: scatter moves each prefix sum from the beginning of its partition to its end,
        // the beginning of the next.
        self.ends.clear();
        self.ends.resize(partitioning.partitions() + 1, 0);
        count(partitioning, rows, &mut self.ends[1..]);
        let mut place = 0;
        for end in &mut self.ends[1..] {
            let size = *end;
            *end = place;
            place += size;
        }
        scatter(partitioning, accesses, &mut self.ends[1..], &mut self.entries);
        assert_eq!(self.ends[partitioning.partitions()] as usize, rows.len(), "every access has a place");
        debug_assert!(self.ends.is_sorted(), "partitions follow each other");
    }

    /// Returns the partitioning of the run.
    pub fn partitioning(&self) -> Partitioning {
        self.partitioning
    }

    /// Returns the number of transactions in the slice.
    pub fn transactions(&self) -> usize {
        self.op_start.len().saturating_sub(1)
    }

    /// Returns the number of accesses in the slice.
    pub fn slots(&self) -> usize {
        self.op_start.last().map_or(0, |&end| end as usize)
    }

    /// Returns the bytes held for the accesses in use.
    pub fn bytes(&self) -> usize {
        self.slots() * size_of::<Entry>() + size_of_val(&self.op_start[..]) + size_of_val(&self.ends[..])
    }

    pub(crate) fn op_start(&self) -> &[u32] {
        &self.op_start
    }

    pub(crate) fn entries(&self, partition: usize) -> &[Entry] {
        let Range { start, end } = self.ends[partition]..self.ends[partition + 1];
        &self.entries[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Random};

    #[test]
    fn every_access_once_in_its_partition_in_slot_order() {
        let mut random = Random::new(1);
        let mut run = SortedAccesses::new();
        for bits in 0..=PARTITION_BITS_MAX {
            let epoch = sample::mixed(&mut random, 300);
            let accesses = epoch.accesses();
            let partitioning = Partitioning::with_bits(bits);
            run.partition(partitioning, accesses);
            let mut seen = vec![false; accesses.rows().len()];
            for partition in 0..partitioning.partitions() {
                let entries = run.entries(partition);
                assert!(entries.is_sorted_by_key(|entry| entry.slot));
                for entry in entries {
                    assert_eq!(partitioning.of(entry.row), partition);
                    assert_eq!(accesses.rows()[entry.slot as usize], entry.row);
                    let slots = &accesses.op_start()[entry.transaction as usize..][..2];
                    assert!((slots[0]..slots[1]).contains(&entry.slot));
                    assert!(!std::mem::replace(&mut seen[entry.slot as usize], true));
                }
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }

    /// Row identities come in strides (slot numbers, table in the high bits); no partition may get
    /// much more than its share.
    #[test]
    fn strided_rows_spread_over_the_partitions() {
        let partitioning = Partitioning::with_bits(6);
        for shift in 0..48 {
            let mut counts = [0; 64];
            let rows: Vec<RowId> = (0..6400).map(|i| RowId((i << shift) + 7)).collect();
            count(partitioning, &rows, &mut counts);
            let largest = counts.iter().max().expect("not empty");
            assert!(*largest < 300, "shift {shift}: a partition of {largest} rows where 100 are its share");
        }
    }

    #[test]
    fn the_number_of_partitions_follows_the_epoch() {
        assert_eq!(Partitioning::for_accesses(0).partitions(), 1);
        assert_eq!(Partitioning::for_accesses(10 * PARTITION_ACCESSES).partitions(), 16);
        assert_eq!(Partitioning::for_accesses(usize::MAX >> 1).partitions(), 1 << PARTITION_BITS_MAX);
    }
}
