//! Linking one partition: the last operation of each of its rows, in a small table.
//!
//! **What.** Going through a partition in position order, the table gives for each access the operation
//! before it in the row's chain, which gets its successor.
//!
//! **Invariant.** After an entry, the slot of its row in the table is the last operation of the row's
//! chain so far, and its length. Every slot of the partition is seen once, so nothing that is written as they
//! are seen needs clearing beforehand.
//!
//! **How.** Open addressing, linear probing, at most half full. A slot is empty unless it carries the
//! present generation, so nothing is cleared between partitions. The table begins small
//! for each partition and doubles when half full, between two buffers that are kept: a partition with
//! one hot row stays in the first few cache lines no matter how many operations it has.
//!
//! **Cost.** 24 bytes per slot, about the number of distinct rows in a partition; per worker, not per
//! operation.

use crate::access::RowId;
use crate::partition::{Run, hash};
use crate::summary::ChainSummary;
use std::mem;

/// Slots of the table at the start of a partition; a power of two.
const TABLE_MIN: usize = 1 << 11;
/// Above this the generations begin anew with the next partition: one partition uses a generation to begin and
/// one per doubling, of which there are fewer than bits in an index.
const GENERATION_MAX: u32 = u32::MAX - usize::BITS;

#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    row: RowId,
    slot: u32,
    transaction: u32,
    /// Operations in the chain; above 1, the last has a predecessor.
    length: u32,
    /// When this was written; in any other generation the place is empty.
    generation: u32,
}

/// What a slot turns out to be.
#[derive(Clone, Copy)]
pub(crate) enum Linked {
    /// The first operation of a chain.
    First { slot: u32 },
    /// The operation behind that of slot `before`, which is the chain's first where this is the `second`. No more
    /// aliases of the one before will be met.
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
    /// A linker without memory; it grows to what the largest partition needs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Links one partition of the runs, which are consecutive, and calls `see` with each slot, in order.
    #[inline]
    pub(crate) fn link(&mut self, partition: usize, runs: &[Run], mut see: impl FnMut(Linked)) -> ChainSummary {
        let mut summary = ChainSummary::default();
        self.begin();
        for run in runs {
            for entry in run.entries(partition) {
                let slot = run.first_slot + entry.slot;
                let transaction = run.first_transaction + entry.transaction;
                let tail = self.tail(entry.row);
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
    }

    /// The tail of a row's chain; of length 0 if the row is new.
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
        // A generation of its own: the spare buffer holds what an earlier doubling copied from it.
        let before = self.generation;
        self.generation += 1;
        for tail in self.table[..used].iter().filter(|tail| tail.generation == before) {
            let index = find(&self.spare, self.mask, self.generation, tail.row);
            self.spare[index] = Tail { generation: self.generation, ..*tail };
        }
        mem::swap(&mut self.table, &mut self.spare);
    }
}

/// Where the row is, or the empty place where it belongs.
#[inline]
fn find(table: &[Tail], mask: usize, generation: u32, row: RowId) -> usize {
    let table = &table[..=mask];
    let mut index = hash(row) as usize & mask;
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
