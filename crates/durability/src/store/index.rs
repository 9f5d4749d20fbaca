//! A run's index: where its blocks are, with which hash each begins, and the filter.
//!
//! ```text
//! index = blocks: 4, n × (upper half of the first hash: 4, offset / 16: 4), the end of the last / 16: 4, filter
//! ```

use super::filter::Filter;
use std::ops::Range;

/// Blocks begin at multiples of it.
pub const ALIGNMENT: u64 = 16;

/// An index.
#[derive(Debug, PartialEq)]
pub struct Index {
    /// The upper half of the hash of each block's first key.
    first: Vec<u32>,
    /// Where each block begins, and the last one ends, divided by [`ALIGNMENT`].
    ends: Vec<u32>,
    /// The filter over all keys; none: any key may be there.
    pub filter: Option<Filter>,
}

impl Index {
    /// Without blocks.
    pub fn with_filter(filter: Option<Filter>) -> Index {
        Index { first: Vec::new(), ends: Vec::new(), filter }
    }

    /// Adds a block, of which the first key has that hash. False where it lies too far from the file's beginning.
    #[must_use]
    pub fn push(&mut self, first: u64, bytes: Range<u64>) -> bool {
        debug_assert!(bytes.start.is_multiple_of(ALIGNMENT) && bytes.end.is_multiple_of(ALIGNMENT));
        let (Ok(start), Ok(end)) = (u32::try_from(bytes.start / ALIGNMENT), u32::try_from(bytes.end / ALIGNMENT))
        else {
            return false;
        };
        if self.ends.is_empty() {
            self.ends.push(start);
        }
        self.first.push(half(first));
        self.ends.push(end);
        true
    }

    /// Its bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = (self.first.len() as u32).to_le_bytes().to_vec();
        for (first, start) in self.first.iter().zip(&self.ends) {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&start.to_le_bytes());
        }
        bytes.extend_from_slice(&self.ends.last().copied().unwrap_or(0).to_le_bytes());
        self.filter.iter().for_each(|filter| filter.write(&mut bytes));
        bytes
    }

    /// From bytes; none where they are not an index.
    pub fn read(bytes: &[u8]) -> Option<Index> {
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let (count, bytes) = bytes.split_first_chunk()?;
        let (entries, bytes) = bytes.split_at_checked((number(count) as usize).checked_mul(8)?)?;
        let (end, filter) = bytes.split_first_chunk()?;
        let halves = || entries.as_chunks::<4>().0.iter().map(number);
        let first: Vec<u32> = halves().step_by(2).collect();
        let ends: Vec<u32> = halves().skip(1).step_by(2).chain((!first.is_empty()).then(|| number(end))).collect();
        if !ends.is_sorted() {
            return None;
        }
        let filter = if filter.is_empty() { None } else { Some(Filter::read(filter)?) };
        Some(Index { first, ends, filter })
    }

    /// Whether a key with that hash may be in the run.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        4 * (self.first.len() + self.ends.len()) + self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// Where a block lies.
    pub fn place(&self, block: usize) -> Range<u64> {
        u64::from(self.ends[block]) * ALIGNMENT..u64::from(self.ends[block + 1]) * ALIGNMENT
    }

    /// The blocks that may have keys with hashes of a range, both ends included.
    pub fn blocks_of(&self, from: u64, to: u64) -> Range<usize> {
        self.blocks_behind(0, from, to)
    }

    /// The same, where none that comes before block `start` may have any.
    pub fn blocks_behind(&self, start: usize, from: u64, to: u64) -> Range<usize> {
        // The block before the first that begins at `from` or later may end with `from`.
        let (from, to) = (half(from), half(to));
        // Hashes are spread evenly, so it is near that.
        let guess = ((u64::from(from) * self.first.len() as u64) >> 32) as usize;
        let start = self.gallop(start, guess, |first| first < from).saturating_sub(1);
        start..self.gallop(start, start, |first| first <= to).max(start)
    }

    /// The first block from `start` on for which `before` does not hold, as it does for none behind that: from a guess
    /// on, in steps that double.
    fn gallop(&self, start: usize, guess: usize, before: impl Fn(u32) -> bool) -> usize {
        let (mut from, mut to, mut step) = (guess.max(start), self.first.len(), 1);
        while from > start && !before(self.first[from - 1]) {
            to = from - 1;
            from = from.saturating_sub(step).max(start);
            step *= 2;
        }
        while from + step <= to && before(self.first[from + step - 1]) {
            from += step;
            step *= 2;
        }
        to = to.min(from + step - 1);
        from + self.first[from..to].partition_point(|&first| before(first))
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
        let mut index = Index::with_filter(Some(Filter::new(8)));
        for (i, first) in [5u64, 9, 9, 20].into_iter().enumerate() {
            assert!(index.push(first << 32, 16 * i as u64..16 * (i as u64 + 1)));
        }
        let of = |from: u64, to: u64| index.blocks_of(from << 32, to << 32);
        assert_eq!(Index::read(&index.write()).as_ref(), Some(&index));
        assert_eq!(of(0, 4), 0..0);
        assert_eq!(of(6, 8), 0..1);
        assert_eq!(of(9, 9), 0..3, "nine may be the last of the first block");
        assert_eq!(of(10, 30), 2..4);
        assert_eq!(of(0, u32::MAX.into()), 0..4);
        assert_eq!(index.place(3), 48..64);
        for start in 0..3 {
            assert_eq!(index.blocks_behind(start, 10 << 32, 30 << 32), 2..4);
        }
        assert!(!index.push(30 << 32, 64..16 << 33), "too far");
    }

    #[test]
    fn many_blocks_are_found_as_one_by_one() {
        let mut index = Index::with_filter(None);
        let firsts: Vec<u64> = (0..1_000u64).map(|i| i * i / 3).collect();
        for (i, first) in firsts.iter().enumerate() {
            assert!(index.push(first << 32, 16 * i as u64..16 * (i as u64 + 1)));
        }
        for hash in (0..firsts[999] + 10).step_by(97) {
            let start = firsts.iter().filter(|first| **first < hash).count().saturating_sub(1);
            let end = firsts.iter().filter(|first| **first <= hash).count().max(start);
            assert_eq!(index.blocks_of(hash << 32, hash << 32), start..end);
            assert_eq!(index.blocks_behind(start / 2, hash << 32, hash << 32), start..end);
        }
    }
}
