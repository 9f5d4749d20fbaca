//! The rows of a virtual node: chunks that never move, and a list of free slots.

use crate::memory::{Arena, Words, prefetch};
use crate::sync::{Mutex, writes_key, writes_row};

/// The address of a row; 0 stands for "no row" (a null key).
pub type RowAddress = u64;

/// Reads a word of a row.
///
/// # Safety
/// `row` is a slot, `offset` lies inside its layout, and no thread writes that word now.
#[inline(always)]
pub(crate) unsafe fn read(row: RowAddress, offset: usize) -> u64 {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *const u64).read() }
}

/// Writes a word of a row.
///
/// # Safety
/// As [`read`], and no other thread reads the word now.
#[inline(always)]
pub(crate) unsafe fn write(row: RowAddress, offset: usize, word: u64) {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *mut u64).write(word) }
}

/// Rows in the first chunk; each further chunk doubles up to [`CHUNK_BYTES_MAX`].
const FIRST_CHUNK_ROWS: usize = 4;
/// Small, because a node's last chunk is half empty on average, and because a node keeps as many chunks as it ever
/// needed while rows come and go.
const CHUNK_BYTES_MAX: usize = 8 << 10;

/// All slots of a virtual node.
pub struct Rows {
    row_size: usize,
    chunks: Vec<Words>,
    /// The next slot of the last chunk, and the chunk's end.
    next: RowAddress,
    end: RowAddress,
    free: Vec<RowAddress>,
}

impl Rows {
    /// Makes rows of `row_size` bytes each, none yet.
    pub fn new(row_size: usize) -> Self {
        Rows { row_size, chunks: Vec::new(), next: 0, end: 0, free: Vec::new() }
    }

    fn rows_in(&self, chunk: &Words) -> usize {
        chunk.len() * 8 / self.row_size
    }

    /// Returns the rows of the last chunk that were not allocated yet.
    fn left(&self) -> usize {
        (self.end - self.next) as usize / self.row_size
    }

    /// Prefetches the slot that is allocated after `before` others.
    #[inline]
    pub fn ask(&self, before: usize) {
        let free = self.free.len();
        let row = match before < free {
            true => self.free[free - 1 - before],
            false => self.next + ((before - free) * self.row_size) as RowAddress,
        };
        prefetch(row as *const u8);
    }

    /// Returns a slot with all words zero.
    #[inline]
    pub fn allocate(&mut self, arena: &Mutex<Arena>) -> RowAddress {
        if let Some(address) = self.free.pop() {
            debug_assert!(self.is_zero(address), "a slot that is handed out is zero");
            return address;
        }
        if self.next == self.end {
            self.grow(arena);
        }
        debug_assert!(self.is_zero(self.next), "a slot that is handed out is zero");
        let address = self.next;
        self.next += self.row_size as RowAddress;
        address
    }

    /// Begins another chunk.
    #[cold]
    fn grow(&mut self, arena: &Mutex<Arena>) {
        let doubled = self.chunks.last().map_or(FIRST_CHUNK_ROWS, |last| 2 * self.rows_in(last));
        let rows = doubled.min((CHUNK_BYTES_MAX / self.row_size).max(1));
        let chunk = arena.lock().cut(rows * self.row_size / 8);
        self.next = chunk.start() as RowAddress;
        self.end = self.next + (self.rows_in(&chunk) * self.row_size) as RowAddress;
        self.chunks.push(chunk);
    }

    /// Returns the slots of a chunk that were ever allocated; released ones are zero. None after the last chunk.
    pub fn chunk(&self, chunk: usize) -> Option<impl Iterator<Item = RowAddress> + '_> {
        let words = self.chunks.get(chunk)?;
        let left = if chunk + 1 == self.chunks.len() { self.left() } else { 0 };
        let start = words.start() as RowAddress;
        Some((0..self.rows_in(words) - left).map(move |row| start + (row * self.row_size) as RowAddress))
    }

    /// Zeroes a slot and makes it free again.
    ///
    /// # Safety
    /// `address` is a slot of this node, and nothing refers to it any more.
    pub unsafe fn release(&mut self, address: RowAddress) {
        debug_assert!(self.has(address), "a node takes its own slots back");
        writes_key(address);
        writes_row(address);
        // SAFETY: a slot has this size.
        unsafe { (address as *mut u8).write_bytes(0, self.row_size) };
        self.free.push(address);
    }

    /// Returns whether all words of a slot are zero.
    fn is_zero(&self, address: RowAddress) -> bool {
        // SAFETY: a slot of this node that no thread uses.
        (0..self.row_size).step_by(8).all(|offset| unsafe { read(address, offset) } == 0)
    }

    /// Returns whether an address is a slot of this node.
    fn has(&self, address: RowAddress) -> bool {
        let of = |chunk: &Words| address.checked_sub(chunk.start() as RowAddress);
        let is_in = |at: u64| (at as usize).is_multiple_of(self.row_size);
        self.chunks.iter().any(|chunk| of(chunk).is_some_and(|at| at < 8 * chunk.len() as u64 && is_in(at)))
    }

    /// Returns the bytes of slots that can be allocated without more memory.
    pub fn free_bytes(&self) -> usize {
        (self.free.len() + self.left()) * self.row_size
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() * 8).sum()
    }
}
