//! Linking one partition: a small table holds the last operation of each of its rows.
//!
//! **What.** The linker reads a partition in position order. For each access, the table gives the operation before it
//! in the row's chain, which the access then succeeds.
//!
//! **Invariant.** After an entry, the table's place for its row holds the last operation of the row's chain so far and
//! the chain's length. Every slot of the partition is seen once, so what is written per slot needs no clearing
//! beforehand.
//!
//! **How.** Open addressing, linear probing, at most half full. A place is empty unless it carries the current
//! generation, so nothing is cleared between partitions. For each partition the table starts small, and doubles when
//! half full, between two buffers that are kept: a partition with one hot row stays in the first few cache lines however
//! many operations it has.
//!
//! **Cost.** 24 bytes per place, of which there are about twice as many as distinct rows in a partition; per worker, not
//! per operation.

use crate::access::RowId;
use crate::partition::SortedAccesses;
use crate::summary::ChainSummary;
use std::mem;

/// Places of the table at the start of a partition; a power of two.
const TABLE_MIN: usize = 1 << 11;
/// Above this, generations start over with the next partition: a partition uses one generation to begin and one per
/// doubling, and there are fewer doublings than bits in an index.
const GENERATION_MAX: u32 = u32::MAX - usize::BITS;

#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    row: RowId,
    slot: u32,
    transaction: u32,
    /// Operations in the chain; if more than 1, the last has a predecessor.
    length: u32,
    /// The generation of the entry; in any other one the place is empty.
    generation: u32,
}

/// The meaning that linking finds for a slot.
#[derive(Clone, Copy)]
pub(crate) enum Linked {
    /// The first operation of a chain.
    First { slot: u32 },
    /// The operation after that of slot `before`, which is the chain's first if this is the `second`. No more aliases of
    /// the operation before follow.
    Next { slot: u32, transaction: u32, before: u32, second: bool },
    /// A further access of the operation of slot `of`.
    Alias { slot: u32, of: u32 },
}

/// The working memory of one worker that links partitions.
#[derive(Clone, Debug, Default)]
pub struct Linker {
    table: Vec<Tail>,
    spare: Vec<Tail>,
    /// The part of `table` in use for this partition, a power of two, less one.
    mask: usize,
    occupied: usize,
    generation: u32,
}

impl Linker {
    /// Makes a linker without memory; it grows to what the largest partition needs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Links one partition of the runs, which are consecutive, and calls `see` with each slot in order.
    #[inline]
    pub(crate) fn link(
        &mut self,
        partition: usize,
        runs: &[SortedAccesses],
        mut see: impl FnMut(Linked),
    ) -> ChainSummary {
        let mut summary = ChainSummary::default();
        self.begin();
        for run in runs {
            for entry in run.entries(partition) {
                let slot = run.first_slot + entry.slot;
                let transaction = run.first_transaction + entry.transaction;
                let tail = self.tail(entry.row);
                debug_assert!(
                    tail.length == 0 || (tail.slot, tail.transaction) < (slot, transaction),
                    "slot {slot} of transaction {transaction} comes after slot {} of {}",
                    tail.slot,
                    tail.transaction
                );
                if tail.length == 0 {
                    *tail = Tail { slot, transaction, length: 1, ..*tail };
                    see(Linked::First { slot });
                } else if tail.transaction == transaction {
                    see(Linked::Alias { slot, of: tail.slot });
                    continue;
                } else {
                    see(Linked::Next { slot, transaction, before: tail.slot, second: tail.length == 1 });
                    *tail = Tail { slot, transaction, length: tail.length + 1, ..*tail };
                }
                let length = tail.length;
                summary.grow(length);
            }
        }
        summary
    }

    fn begin(&mut self) {
        if self.table.len() < TABLE_MIN {
            self.table.resize(TABLE_MIN, Tail::default());
        }
        self.mask = TABLE_MIN - 1;
        self.occupied = 0;
        if self.generation > GENERATION_MAX {
            self.table.fill(Tail::default());
            self.spare.fill(Tail::default());
            self.generation = 0;
        }
        self.generation += 1;
        assert!(self.mask < self.table.len(), "the table is smaller than its mask");
    }

    /// Returns the tail of a row's chain; of length 0 if the row is new.
    #[inline]
    fn tail(&mut self, row: RowId) -> &mut Tail {
        if self.occupied * 2 > self.mask {
            self.grow();
        }
        let index = find(&self.table, self.mask, self.generation, row);
        let tail = &mut self.table[index];
        if tail.generation != self.generation {
            *tail = Tail { row, generation: self.generation, ..Tail::default() };
            self.occupied += 1;
        }
        tail
    }

    #[cold]
    fn grow(&mut self) {
        let used = self.mask + 1;
        self.mask = used * 2 - 1;
        if self.spare.len() < used * 2 {
            self.spare.resize(used * 2, Tail::default());
        }
        // A generation of its own: the spare buffer still holds what an earlier doubling copied from it.
        let before = self.generation;
        self.generation += 1;
        for tail in self.table[..used].iter().filter(|tail| tail.generation == before) {
            let index = find(&self.spare, self.mask, self.generation, tail.row);
            self.spare[index] = Tail { generation: self.generation, ..*tail };
        }
        assert!(self.occupied * 2 <= self.mask + 1, "{} rows in {} places", self.occupied, self.mask + 1);
        mem::swap(&mut self.table, &mut self.spare);
    }
}

/// Returns the place of the row, or the empty place where it belongs. There is one, as the table is at most half full.
#[inline]
fn find(table: &[Tail], mask: usize, generation: u32, row: RowId) -> usize {
    let table = &table[..=mask];
    let mut index = row.hashed() as usize & mask;
    while table[index].generation == generation && table[index].row != row {
        index = (index + 1) & mask;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows enough for several doublings, twice, so that stale tails lie in both buffers.
    #[test]
    fn the_table_doubles_and_forgets() {
        let mut linker = Linker::new();
        for round in 0..3_u32 {
            linker.begin();
            for i in 0..20_000 {
                assert_eq!(linker.tail(RowId(i)).length, 0, "round {round}, row {i}");
                linker.tail(RowId(i)).length = i as u32 + 1;
            }
            for i in 0..20_000 {
                assert_eq!(linker.tail(RowId(i)).length, i as u32 + 1);
            }
        }
    }

    #[test]
    fn the_generation_wraps() {
        let mut linker = Linker::new();
        linker.begin();
        linker.tail(RowId(1)).length = 5;
        linker.generation = u32::MAX - 1;
        linker.begin();
        assert_eq!(linker.generation, 1);
        assert_eq!(linker.tail(RowId(1)).length, 0);
    }
}
