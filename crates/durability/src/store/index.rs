//! A run's index: the place and first hash of each block, and the filter.
//!
//! ```text
//! index = blocks: 4, n × (upper half of the first hash: 4, offset / 16: 4), the end of the last / 16: 4, filter
//! ```

use super::filter::Filter;
use std::ops::Range;
use tidemill_state::memory::prefetch;

/// Blocks begin at multiples of this.
pub const ALIGNMENT: u64 = 16;

/// Average number of blocks whose first hashes share a prefix: they lie in at most two cache lines.
const BLOCKS_PER_PREFIX: usize = 8;

/// The start of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    /// The upper half of the hash of its first key.
    first: u32,
    /// Its offset, divided by [`ALIGNMENT`].
    start: u32,
}

/// An index under construction.
#[derive(Debug)]
pub struct IndexBuilder {
    entries: Vec<Entry>,
    /// The end of the last block, divided by [`ALIGNMENT`].
    end: u32,
    /// The filter over all keys. None: any key may be in the run.
    pub filter: Option<Filter>,
}

/// An index. Hashes are spread evenly, so a table indexed by their upper bits leads close to a block (a trie of one
/// level).
#[derive(Debug, PartialEq)]
pub struct Index {
    /// An entry per block, and one more whose start is the end of the last block.
    entries: Vec<Entry>,
    /// The number of blocks that begin with a smaller prefix than each prefix of a hash, by prefix. The last entry is
    /// the number of blocks.
    starts: Vec<u32>,
    /// Bits of the upper half of a hash below its prefix.
    shift: u32,
    filter: Option<Filter>,
}

impl IndexBuilder {
    /// Makes an index without blocks.
    pub fn with_filter(filter: Option<Filter>) -> IndexBuilder {
        IndexBuilder { entries: Vec::new(), end: 0, filter }
    }

    /// Adds a block whose first key has this hash. Returns false if the block lies too far from the file's beginning.
    #[must_use]
    pub fn push(&mut self, first: u64, bytes: Range<u64>) -> bool {
        debug_assert!(bytes.start.is_multiple_of(ALIGNMENT) && bytes.end.is_multiple_of(ALIGNMENT));
        let (Ok(start), Ok(end)) = (u32::try_from(bytes.start / ALIGNMENT), u32::try_from(bytes.end / ALIGNMENT))
        else {
            return false;
        };
        self.entries.push(Entry { first: half(first), start });
        self.end = end;
        true
    }

    /// Returns the encoded index.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = (self.entries.len() as u32).to_le_bytes().to_vec();
        for Entry { first, start } in &self.entries {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&start.to_le_bytes());
        }
        bytes.extend_from_slice(&self.end.to_le_bytes());
        self.filter.iter().for_each(|filter| filter.write(&mut bytes));
        bytes
    }

    /// Returns the bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// Completes the index: there are no more blocks.
    pub fn finish(self) -> Index {
        let IndexBuilder { mut entries, end, filter } = self;
        let bits = (entries.len() / BLOCKS_PER_PREFIX).max(1).ilog2();
        let shift = u32::BITS - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (block, entry) in entries.iter().enumerate() {
            let prefix = (u64::from(entry.first) >> shift) as usize;
            while starts.len() <= prefix {
                starts.push(block as u32);
            }
        }
        starts.resize((1 << bits) + 1, entries.len() as u32);
        entries.push(Entry { first: u32::MAX, start: end });
        entries.shrink_to_fit();
        Index { entries, starts, shift, filter }
    }
}

impl Index {
    /// Decodes an index; none if the bytes are malformed.
    pub fn read(bytes: &[u8]) -> Option<Index> {
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let (count, bytes) = bytes.split_first_chunk()?;
        let (entries, bytes) = bytes.split_at_checked((number(count) as usize).checked_mul(8)?)?;
        let (end, filter) = bytes.split_first_chunk()?;
        let entry = |[first, start]: &[[u8; 4]; 2]| Entry { first: number(first), start: number(start) };
        let entries: Vec<Entry> = entries.as_chunks::<4>().0.as_chunks::<2>().0.iter().map(entry).collect();
        let end = number(end);
        if !entries.is_sorted_by_key(|entry| entry.first)
            || !entries.iter().map(|entry| entry.start).chain([end]).is_sorted()
        {
            return None;
        }
        let filter = if filter.is_empty() { None } else { Some(Filter::read(filter)?) };
        Some(IndexBuilder { entries, end, filter }.finish())
    }

    /// Returns the filter over all keys. None: any key may be in the run.
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Returns the bytes in memory.
    pub fn bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::bytes);
        size_of_val(&*self.entries) + size_of_val(&*self.starts) + filter
    }

    /// Returns the place of a block in the file.
    #[inline]
    pub fn place(&self, block: usize) -> Range<u64> {
        u64::from(self.entries[block].start) * ALIGNMENT..u64::from(self.entries[block + 1].start) * ALIGNMENT
    }

    /// Returns the blocks that may have keys with hashes in a range, both ends included.
    #[inline]
    pub fn blocks_of(&self, from: u64, to: u64) -> Range<usize> {
        // The block before the first that begins at `from` or later may end with `from`.
        let (from, to) = (half(from), half(to));
        let start = self.first_block(from, |first| first < from).saturating_sub(1);
        start..self.first_block(to, |first| first <= to).max(start)
    }

    /// Prefetches the entries that lead to the blocks of a hash.
    #[inline]
    pub fn ask(&self, hash: u64) {
        let start = self.starts[self.prefix(half(hash))] as usize;
        // The entry sought comes after the first of these, and is seldom far.
        prefetch((&raw const self.entries[start.saturating_sub(1)]).cast());
        prefetch(self.entries.as_ptr().wrapping_add(start + BLOCKS_PER_PREFIX - 1).cast());
    }

    /// Returns the estimated position of a hash among this many rows of a block.
    #[inline]
    pub fn near(&self, block: usize, rows: usize, hash: u64) -> usize {
        let (first, next) = (u64::from(self.entries[block].first), u64::from(self.entries[block + 1].first));
        let behind = u64::from(half(hash)).saturating_sub(first);
        (behind * rows as u64 / (next - first + 1)) as usize
    }

    #[inline]
    fn prefix(&self, half: u32) -> usize {
        (u64::from(half) >> self.shift) as usize
    }

    /// Returns the first block for which `before` does not hold; it does not hold for any later block either. That
    /// block is among those that begin with the prefix of `hash`, or comes right after them.
    #[inline]
    fn first_block(&self, hash: u32, before: impl Fn(u32) -> bool) -> usize {
        let prefix = self.prefix(hash);
        let (from, to) = (self.starts[prefix] as usize, self.starts[prefix + 1] as usize);
        from + self.entries[from..to].partition_point(|entry| before(entry.first))
    }
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_range() {
        let mut index = IndexBuilder::with_filter(Some(Filter::new(8)));
        for (i, first) in [5u64, 9, 9, 20].into_iter().enumerate() {
            assert!(index.push(first << 32, 16 * i as u64..16 * (i as u64 + 1)));
        }
        assert!(!index.push(30 << 32, 64..16 << 33), "too far");
        let bytes = index.write();
        let index = index.finish();
        let of = |from: u64, to: u64| index.blocks_of(from << 32, to << 32);
        assert_eq!(Index::read(&bytes).as_ref(), Some(&index));
        assert_eq!(of(0, 4), 0..0);
        assert_eq!(of(6, 8), 0..1);
        assert_eq!(of(9, 9), 0..3, "nine may be the last of the first block");
        assert_eq!(of(10, 30), 2..4);
        assert_eq!(of(0, u32::MAX.into()), 0..4);
        assert_eq!(index.place(3), 48..64);
    }

    #[test]
    fn many_blocks_are_found_as_one_by_one() {
        // Crowded at one end, and spread over all hashes.
        for spread in [1, u64::from(u32::MAX) / 333_000] {
            let mut index = IndexBuilder::with_filter(None);
            let firsts: Vec<u64> = (0..1_000u64).map(|i| i * i / 3 * spread).collect();
            for (i, first) in firsts.iter().enumerate() {
                assert!(index.push(first << 32, 16 * i as u64..16 * (i as u64 + 1)));
            }
            let index = index.finish();
            for hash in (0..firsts[999] + 10 * spread).step_by(97 * spread as usize).chain([u64::from(u32::MAX)]) {
                index.ask(hash << 32);
                let start = firsts.iter().filter(|first| **first < hash).count().saturating_sub(1);
                let end = firsts.iter().filter(|first| **first <= hash).count().max(start);
                assert_eq!(index.blocks_of(hash << 32, hash << 32), start..end);
                assert!((start..end).all(|block| index.near(block, 64, hash << 32) <= 64));
            }
        }
    }

    #[test]
    fn an_index_without_blocks() {
        let index = IndexBuilder::with_filter(None).finish();
        assert_eq!(index.blocks_of(0, u64::MAX), 0..0);
        index.ask(u64::MAX);
    }
}
