//! A run's index: where its blocks are, with which hash each begins, and the filter.
//!
//! ```text
//! index = blocks: 4, n × (upper half of the first hash: 4, offset / 16: 4), the end of the last / 16: 4, filter
//! ```

use super::filter::Filter;
use std::ops::Range;
use tidemill_state::memory::prefetch;

/// Blocks begin at multiples of it.
pub const ALIGNMENT: u64 = 16;

/// As many blocks begin with hashes of one prefix, on average: they lie in two cache lines at the most.
const BLOCKS_PER_PREFIX: usize = 8;

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    /// The upper half of the hash of its first key.
    first: u32,
    /// Its offset, divided by [`ALIGNMENT`].
    start: u32,
}

/// An index that is being made.
#[derive(Debug)]
pub struct IndexBuilder {
    entries: Vec<Entry>,
    /// Where the last block ends, divided by [`ALIGNMENT`].
    end: u32,
    /// The filter over all keys; none: any key may be there.
    pub filter: Option<Filter>,
}

/// An index. As hashes are spread evenly, a table by their upper bits leads next to a block (a trie of one level).
#[derive(Debug, PartialEq)]
pub struct Index {
    /// Of each block, and of one behind the last, where that ends.
    entries: Vec<Entry>,
    /// By prefix of a hash: how many blocks begin with lesser ones. The last is the number of blocks.
    starts: Vec<u32>,
    /// Bits of the upper half of a hash that are not of its prefix.
    shift: u32,
    filter: Option<Filter>,
}

impl IndexBuilder {
    /// Without blocks.
    pub fn with_filter(filter: Option<Filter>) -> IndexBuilder {
        IndexBuilder { entries: Vec::new(), end: 0, filter }
    }

    /// Adds a block, of which the first key has that hash. False where it lies too far from the file's beginning.
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

    /// Its bytes.
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

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// There are no more blocks.
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
    /// From bytes; none where they are not an index.
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

    /// The filter over all keys; none: any key may be there.
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::bytes);
        size_of_val(&*self.entries) + size_of_val(&*self.starts) + filter
    }

    /// Where a block lies.
    #[inline]
    pub fn place(&self, block: usize) -> Range<u64> {
        u64::from(self.entries[block].start) * ALIGNMENT..u64::from(self.entries[block + 1].start) * ALIGNMENT
    }

    /// The blocks that may have keys with hashes of a range, both ends included.
    #[inline]
    pub fn blocks_of(&self, from: u64, to: u64) -> Range<usize> {
        // The block before the first that begins at `from` or later may end with `from`.
        let (from, to) = (half(from), half(to));
        let start = self.first_block(from, |first| first < from).saturating_sub(1);
        start..self.first_block(to, |first| first <= to).max(start)
    }

    /// Asks for what leads to the blocks of a hash.
    #[inline]
    pub fn ask(&self, hash: u64) {
        let start = self.starts[self.prefix(half(hash))] as usize;
        // What is sought is behind the first, and seldom far.
        prefetch((&raw const self.entries[start.saturating_sub(1)]).cast());
        prefetch(self.entries.as_ptr().wrapping_add(start + BLOCKS_PER_PREFIX - 1).cast());
    }

    /// Where in a block with so many rows one with a hash is, about.
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

    /// The first block for which `before` does not hold, as it does for none behind that. It changes among those that
    /// begin with the prefix of `hash`, or at their end.
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
