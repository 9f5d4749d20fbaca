//! Which rows were changed since the last snapshot, a bit for each row, twice; and which were used lately.
//!
//! **What.** The blocks that rows are cut from have three bitmaps as their heads, one for each [`Generation`], and one for
//! rows that were looked up since the hand of the clock passed them (`evict`). A row's address leads to its block
//! and its bit by arithmetic alone.
//! **Invariant.** A snapshot at the end of an epoch belongs to one generation, and later epochs mark in the
//! other one. So an epoch can mark its rows as soon as it is prepared, beside the access of epochs before
//! the snapshot. As there is one snapshot at a time, two generations suffice.
//! **Cost.** Three bits for 16 to 64 bytes of rows; for each row that an epoch may write, a look at a bit that
//! mostly lies in the second-level cache, and is mostly set. Runs without a state never mark, and only tables
//! whose rows may be cold note what is used.

use crate::layout::RowLayout;
use crate::memory::{BLOCK_BYTES, head_of};
use crate::rows::RowAddress;
use crate::sync::{self, AtomicU64, Ordering, word_at};

/// Whose changes: those up to a snapshot, or those behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// Up to the first snapshot, and from every second one to the next.
    #[default]
    Even,
    /// Those between.
    Odd,
}

impl Generation {
    /// The one behind the next snapshot.
    pub fn next(self) -> Generation {
        match self {
            Generation::Even => Generation::Odd,
            Generation::Odd => Generation::Even,
        }
    }
}

/// Bitmaps of a block: one for each generation, and the last for what is used.
pub const MAPS: usize = 3;
const USED: usize = 2;

/// Where the bits of a table's rows are.
#[derive(Clone, Copy)]
pub struct Marks {
    /// The logarithm of the bytes that have a bit: a small row, or a cache line of a larger one.
    shift: u32,
}

impl Marks {
    /// Of rows of that layout.
    pub fn of(layout: &RowLayout) -> Marks {
        Marks { shift: layout.size().min(64).ilog2() }
    }

    /// Bytes of a block's head.
    pub fn bytes(self) -> usize {
        MAPS * self.map_bytes()
    }

    fn map_bytes(self) -> usize {
        (BLOCK_BYTES >> self.shift) / 8
    }

    #[inline(always)]
    fn bit(self, row: RowAddress, map: usize) -> (*const AtomicU64, u64) {
        let inside = row as usize & (BLOCK_BYTES - 1);
        let (block, bit) = (row as usize - inside, inside >> self.shift);
        let word = block + head_of(block) + map * self.map_bytes() + bit / 64 * 8;
        (word as *const AtomicU64, 1 << (bit % 64))
    }

    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    unsafe fn set_in(self, row: RowAddress, map: usize) {
        let (word, bit) = self.bit(row, map);
        // SAFETY: the word lies in the block's marks; all accesses to them are atomic.
        let word = unsafe { word_at(word) };
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    unsafe fn take_from(self, row: RowAddress, map: usize) -> bool {
        let (word, bit) = self.bit(row, map);
        // SAFETY: as in `set_in`.
        let word = unsafe { word_at(word) };
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Marks a row.
    ///
    /// # Safety
    /// `row` is a slot in a block that has a head of [`Marks::bytes`] for marks.
    #[inline(always)]
    pub unsafe fn set(self, row: RowAddress, generation: Generation) {
        // SAFETY: by the caller.
        unsafe { self.set_in(row, generation as usize) }
    }

    /// Notes that a row was looked up.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn use_row(self, row: RowAddress) {
        // SAFETY: by the caller.
        unsafe { self.set_in(row, USED) }
    }

    /// Forgets that a row was looked up; whether it was.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn take_use(self, row: RowAddress) -> bool {
        // SAFETY: by the caller.
        unsafe { self.take_from(row, USED) }
    }

    /// Whether a row is marked.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn is_set(self, row: RowAddress, generation: Generation) -> bool {
        let (word, bit) = self.bit(row, generation as usize);
        // SAFETY: as in `set_in`.
        unsafe { word_at(word).load(Ordering::Relaxed) & bit != 0 }
    }

    /// Takes a row's mark away; whether it had one.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn take(self, row: RowAddress, generation: Generation) -> bool {
        // SAFETY: by the caller.
        unsafe { self.take_from(row, generation as usize) }
    }

    /// The first word of the bits of a block.
    fn first(self, block: *const u8, generation: Generation) -> *const AtomicU64 {
        block.wrapping_add(head_of(block.addr()) + generation as usize * self.map_bytes()).cast()
    }

    /// How many rows of a block are marked.
    ///
    /// # Safety
    /// `block` has a head of [`Marks::bytes`] for marks.
    pub unsafe fn count(self, block: *const u8, generation: Generation) -> usize {
        let first = self.first(block, generation);
        // SAFETY: as in `set_in`.
        let word = |word| unsafe { word_at(first.add(word)).load(Ordering::Relaxed) };
        (0..self.map_bytes() / 8).map(|at| word(at).count_ones() as usize).sum()
    }

    /// Marks all rows of a block, or none.
    ///
    /// # Safety
    /// `block` has a head of [`Marks::bytes`] for marks.
    pub unsafe fn fill(self, block: *const u8, generation: Generation, marked: bool) {
        let first = self.first(block, generation);
        // SAFETY: as in `set_in`.
        unsafe { sync::fill(first, self.map_bytes() / 8, if marked { u64::MAX } else { 0 }) }
    }
}
