//! The rows of a virtual node: chunks that never move, and a list of free slots.

use crate::memory::{Arena, Words, prefetch};

/// The address of a row; 0 stands for "no row" (a null key).
pub type RowAddress = u64;

/// Rows in the first chunk; each further chunk doubles up to [`CHUNK_BYTES_MAX`].
const FIRST_CHUNK_ROWS: usize = 4;
/// Small, as a node's last chunk is half empty on average, and where rows come and go each node has as many chunks as
/// it ever needed.
const CHUNK_BYTES_MAX: usize = 8 << 10;

/// All slots of a virtual node.
pub struct Rows {
    row_words: usize,
    chunks: Vec<Words>,
    /// Rows handed out of the last chunk.
    used: usize,
    free: Vec<RowAddress>,
}

impl Rows {
    /// No rows yet, of `row_size` bytes each.
    pub fn new(row_size: usize) -> Self {
        Rows { row_words: row_size / 8, chunks: Vec::new(), used: 0, free: Vec::new() }
    }

    fn rows_in(&self, chunk: &Words) -> usize {
        chunk.len() / self.row_words
    }

    /// Asks for the memory of the slot that is handed out next.
    #[inline]
    pub fn ask(&self) {
        let next =
            || self.chunks.last().map(|last| last.start().wrapping_add(self.used * self.row_words) as RowAddress);
        self.free.last().copied().or_else(next).into_iter().for_each(|row| prefetch(row as *const u8));
    }

    /// A slot with all words zero.
    pub fn allocate(&mut self, arena: &mut Arena) -> RowAddress {
        if let Some(address) = self.free.pop() {
            return address;
        }
        let full = self.chunks.last().is_none_or(|last| self.used >= self.rows_in(last));
        if full {
            let doubled = self.chunks.last().map_or(FIRST_CHUNK_ROWS, |last| 2 * self.rows_in(last));
            let rows = doubled.min((CHUNK_BYTES_MAX / (8 * self.row_words)).max(1));
            self.chunks.push(arena.cut(rows * self.row_words));
            self.used = 0;
        }
        let chunk = self.chunks.last().expect("a chunk with room was just made sure of");
        let address = chunk.start().wrapping_add(self.used * self.row_words) as RowAddress;
        self.used += 1;
        address
    }

    /// The slots of a chunk that were ever handed out; those taken back are zero. None behind the last one.
    pub fn chunk(&self, chunk: usize) -> Option<impl Iterator<Item = RowAddress> + '_> {
        let words = self.chunks.get(chunk)?;
        let rows = if chunk + 1 == self.chunks.len() { self.used } else { self.rows_in(words) };
        Some((0..rows).map(move |row| words.start().wrapping_add(row * self.row_words) as RowAddress))
    }

    /// Takes a slot back and zeroes it.
    ///
    /// # Safety
    /// `address` is a slot of this node that nothing refers to any more.
    pub unsafe fn release(&mut self, address: RowAddress) {
        // SAFETY: a slot is `row_words` words inside a chunk.
        unsafe { (address as *mut u64).write_bytes(0, self.row_words) };
        self.free.push(address);
    }

    /// Bytes of slots that can be handed out without further memory.
    pub fn free_bytes(&self) -> usize {
        let unused = self.chunks.last().map_or(0, |last| self.rows_in(last) - self.used);
        (self.free.len() + unused) * 8 * self.row_words
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() * 8).sum()
    }
}
