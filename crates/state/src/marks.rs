//! Marks: one bit per row and generation for rows that changed since the last snapshot, and one bit for rows that
//! were used lately.
//!
//! **What.** Rows are cut from blocks whose heads are three bitmaps: one for each [`Generation`], and one for rows
//! that were looked up since the clock hand passed them (`evict`). A row's address leads to its block and its bit by
//! arithmetic alone.
//! **Invariant.** A snapshot at the end of an epoch belongs to one generation, and later epochs mark in the other
//! one. So an epoch can mark its rows as soon as it is prepared, concurrently with the access of epochs before the
//! snapshot. There is one snapshot at a time, so two generations suffice.
//! **Cost.** Three bits for 16 to 64 bytes of rows. For each row that an epoch may write, one bit is read, which
//! mostly lies in the second-level cache and is mostly set. Runs without a state never mark, and only tables that may
//! have evicted rows note uses.

use crate::layout::RowLayout;
use crate::memory::{BLOCK_BYTES, head_of};
use crate::rows::RowAddress;
use crate::sync::{self, AtomicU64, Ordering, word_at};

/// The generation of a change: up to a snapshot, or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// The generation up to the first snapshot, and from every second one to the next.
    #[default]
    Even,
    /// The generation from the first snapshot to the second, from the third to the fourth, and so on.
    Odd,
}

impl Generation {
    /// Returns the generation after the next snapshot.
    pub fn next(self) -> Generation {
        match self {
            Generation::Even => Generation::Odd,
            Generation::Odd => Generation::Even,
        }
    }
}

/// Bitmaps of a block: one for each generation, and the last for uses.
pub const MAPS: usize = 3;
const USED: usize = 2;

/// The positions of the bits of a table's rows.
#[derive(Clone, Copy)]
pub struct Marks {
    /// The base-2 logarithm of the bytes per bit: a small row, or a cache line of a larger one.
    shift: u32,
}

impl Marks {
    /// Returns the marks for rows of this layout.
    pub fn of(layout: &RowLayout) -> Marks {
        Marks { shift: layout.size().min(64).ilog2() }
    }

    /// Returns the bytes of a block's head.
    pub fn bytes(self) -> usize {
        MAPS * self.map_bytes()
    }

    fn map_bytes(self) -> usize {
        (BLOCK_BYTES >> self.shift) / 8
    }

    /// Words of a bitmap with a bit for each row of a block.
    pub fn words(self) -> usize {
        self.map_bytes() / 8
    }

    /// Returns the block of a row, and the number of its bit in a bitmap of that block.
    #[inline(always)]
    pub fn place(self, row: RowAddress) -> (usize, usize) {
        let inside = row as usize & (BLOCK_BYTES - 1);
        (row as usize - inside, inside >> self.shift)
    }

    #[inline(always)]
    fn bit(self, row: RowAddress, map: usize) -> (*const AtomicU64, u64) {
        let (block, bit) = self.place(row);
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

    /// Clears the note that a row was looked up; returns whether it was set.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn take_use(self, row: RowAddress) -> bool {
        // SAFETY: by the caller.
        unsafe { self.take_from(row, USED) }
    }

    /// Returns whether a row is marked.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn is_set(self, row: RowAddress, generation: Generation) -> bool {
        let (word, bit) = self.bit(row, generation as usize);
        // SAFETY: as in `set_in`.
        unsafe { word_at(word).load(Ordering::Relaxed) & bit != 0 }
    }

    /// Clears a row's mark; returns whether it was set.
    ///
    /// # Safety
    /// As [`Marks::set`].
    #[inline(always)]
    pub unsafe fn take(self, row: RowAddress, generation: Generation) -> bool {
        // SAFETY: by the caller.
        unsafe { self.take_from(row, generation as usize) }
    }

    /// Returns the first word of a block's bitmap.
    fn first(self, block: *const u8, generation: Generation) -> *const AtomicU64 {
        block.wrapping_add(head_of(block.addr()) + generation as usize * self.map_bytes()).cast()
    }

    /// Returns the number of marked rows of a block.
    ///
    /// # Safety
    /// `block` has a head of [`Marks::bytes`] for marks.
    pub unsafe fn count(self, block: *const u8, generation: Generation) -> usize {
        let first = self.first(block, generation);
        // SAFETY: as in `set_in`.
        let word = |word| unsafe { word_at(first.add(word)).load(Ordering::Relaxed) };
        (0..self.map_bytes() / 8).map(|at| word(at).count_ones() as usize).sum()
    }

    /// Marks all rows of a block, or clears all their marks.
    ///
    /// # Safety
    /// `block` has a head of [`Marks::bytes`] for marks.
    pub unsafe fn fill(self, block: *const u8, generation: Generation, marked: bool) {
        let first = self.first(block, generation);
        // SAFETY: as in `set_in`.
        unsafe { sync::fill(first, self.map_bytes() / 8, if marked { u64::MAX } else { 0 }) }
    }
}
