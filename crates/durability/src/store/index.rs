//! A run's index: where its blocks are, with which hash each begins, and the filter.
//!
//! ```text
//! index = blocks: 4, n × (first hash: 8, offset: 8, length: 4, rows: 4, check: 8), filter
//! ```

use super::filter::Filter;
use crate::manifest::Block;
use std::ops::Range;

const ENTRY: usize = 32;

/// An index.
#[derive(Debug, PartialEq)]
pub struct Index {
    /// The hash of each block's first key.
    pub first: Vec<u64>,
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The filter over all keys; none: any key may be there.
    pub filter: Option<Filter>,
    /// The number of its file.
    pub file: u64,
}

impl Index {
    /// Its bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = (self.blocks.len() as u32).to_le_bytes().to_vec();
        for (first, block) in self.first.iter().zip(&self.blocks) {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&block.offset.to_le_bytes());
            bytes.extend_from_slice(&(block.length as u32).to_le_bytes());
            bytes.extend_from_slice(&(block.rows as u32).to_le_bytes());
            bytes.extend_from_slice(&block.check.to_le_bytes());
        }
        self.filter.as_ref().expect("what is written has a filter").write(&mut bytes);
        bytes
    }

    /// From bytes, in that file; none where they are not an index.
    pub fn read(bytes: &[u8], file: u64) -> Option<Index> {
        let (count, bytes) = bytes.split_at_checked(4)?;
        let count = u32::from_le_bytes(count.try_into().expect("four bytes")) as usize;
        let (entries, filter) = bytes.split_at_checked(count.checked_mul(ENTRY)?)?;
        let (mut first, mut blocks) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for entry in entries.as_chunks::<ENTRY>().0 {
            let long = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
            let short = |at: usize| u64::from(u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes")));
            first.push(long(0));
            blocks.push(Block { file, offset: long(8), length: short(16), rows: short(20), check: long(24) });
        }
        Some(Index { first, blocks, filter: Some(Filter::read(filter)?), file })
    }

    /// Whether a key with that hash may be in the run.
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * (size_of::<u64>() + size_of::<Block>()) + self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// The blocks that may have keys with hashes of a range, both ends included.
    pub fn blocks_of(&self, from: u64, to: u64) -> Range<usize> {
        // The block before the first that begins at `from` or later may end with `from`.
        let start = self.first.partition_point(|&first| first < from).saturating_sub(1);
        start..self.first.partition_point(|&first| first <= to).max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_range() {
        let blocks = (0..4).map(|i| Block { file: 3, offset: i * 10, length: 10, check: i, rows: 2 }).collect();
        let index = Index { first: vec![5, 9, 9, 20], blocks, filter: Some(Filter::new(8)), file: 3 };
        assert_eq!(Index::read(&index.write(), 3).as_ref(), Some(&index));
        assert_eq!(index.blocks_of(0, 4), 0..0);
        assert_eq!(index.blocks_of(6, 8), 0..1);
        assert_eq!(index.blocks_of(9, 9), 0..3, "nine may be the last of the first block");
        assert_eq!(index.blocks_of(10, 30), 2..4);
        assert_eq!(index.blocks_of(0, u64::MAX), 0..4);
    }
}
