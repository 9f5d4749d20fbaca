//! Excludes keys that a run does not have: a blocked Bloom filter (Putze, Sanders and Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007). Each key sets a bit in each of the eight words of one block.

use tidemill_state::memory::prefetch;

/// Bits for each key.
const BITS_PER_KEY: usize = 10;
/// Words of 32 bits of a block.
const WORDS: usize = 8;

/// A filter over hashes.
#[derive(Debug, PartialEq, Eq)]
pub struct Filter {
    blocks: Vec<[u32; WORDS]>,
}

impl Filter {
    /// Makes an empty filter for this many keys.
    pub fn new(keys: usize) -> Filter {
        Filter { blocks: vec![[0; WORDS]; Filter::blocks_for(keys)] }
    }

    fn blocks_for(keys: usize) -> usize {
        (keys * BITS_PER_KEY).div_ceil(32 * WORDS).max(1)
    }

    /// Returns the bytes of a filter for this many keys.
    pub fn bytes_for(keys: usize) -> usize {
        Filter::blocks_for(keys) * 4 * WORDS
    }

    fn block(&self, hash: u64) -> usize {
        (((hash >> 32) * self.blocks.len() as u64) >> 32) as usize
    }

    fn bit(hash: u64, word: usize) -> u32 {
        1 << (hash >> (5 * word) & 31)
    }

    /// Adds a key.
    pub fn add(&mut self, hash: u64) {
        let block = self.block(hash);
        self.blocks[block].iter_mut().enumerate().for_each(|(i, word)| *word |= Filter::bit(hash, i));
    }

    /// Returns whether a key may have been added; true for all keys that were.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        let words = self.blocks[self.block(hash)].iter().enumerate();
        // Without a branch for each bit, because the position of the first missing one is unpredictable.
        words.fold(0, |missing, (i, word)| missing | (Filter::bit(hash, i) & !word)) == 0
    }

    /// Prefetches the block of a key.
    #[inline]
    pub fn ask(&self, hash: u64) {
        prefetch(self.blocks[self.block(hash)].as_ptr().cast());
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * 4 * WORDS
    }

    /// Appends its bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        self.blocks.iter().flatten().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
    }

    /// Decodes a filter; none if the bytes are not whole blocks.
    pub fn read(bytes: &[u8]) -> Option<Filter> {
        let (blocks, rest) = bytes.as_chunks::<{ 4 * WORDS }>();
        let word =
            |block: &[u8; 4 * WORDS], i: usize| u32::from_le_bytes(block[4 * i..4 * i + 4].try_into().expect("four"));
        let blocks: Vec<_> = blocks.iter().map(|block| std::array::from_fn(|i| word(block, i))).collect();
        (rest.is_empty() && !blocks.is_empty()).then_some(Filter { blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_state::hash_word;

    #[test]
    fn all_that_were_added_and_few_others() {
        let mut filter = Filter::new(10_000);
        (0..10_000).for_each(|key| filter.add(hash_word(key)));
        let mut bytes = Vec::new();
        filter.write(&mut bytes);
        let filter = Filter::read(&bytes).expect("just written");
        assert!((0..10_000).all(|key| filter.may_have(hash_word(key))));
        let wrong = (10_000..110_000).filter(|&key| filter.may_have(hash_word(key))).count();
        assert!(wrong < 3_000, "{wrong} of 100,000 other keys pass");
    }
}
