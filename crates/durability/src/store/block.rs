//! Encoding of rows, with random access to each row.
//!
//! ```text
//! block = rows: 2, width of each word of a row: 1 each, least value of each word: 8 each,
//!         for each word, row by row: its value minus the least value, in as many bytes as its width;
//!         texts, row by row, in the order of their words; zeros, at least 8
//! ```
//!
//! The word of a text is its length. Whole numbers are compared as signed, so that words that differ little from row
//! to row take few bytes or none. Nothing else is compressed: a lookup reads one row of a block, and would have to
//! decompress the whole block.

use std::ops::Range;
use tidemill_state::{EXISTS, Image, RowShape, hash_bytes, hash_of_words, hash_parts, hash_word};

/// Zeros after a block's rows, so that each word can be read as eight bytes.
const BEHIND: usize = 8;

/// A block that cannot be decoded although its check is right: from another version, or a bug.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedBlock(pub &'static str);

/// Adds the block of some rows of an image to `block`.
pub fn encode(image: &Image, rows: Range<usize>, block: &mut Vec<u8>) {
    let shape = image.shape();
    let count = rows.len();
    let start = block.len();
    block.extend_from_slice(&u16::try_from(count).expect("a block is small").to_le_bytes());
    block.resize(start + 2 + 9 * shape.words, 0);
    let mut values = Vec::with_capacity(count);
    for word in 0..shape.words {
        values.clear();
        match shape.is_text(word) {
            true => values.extend(rows.clone().map(|row| image.text(row, word).len() as u64)),
            false => values.extend(rows.clone().map(|row| image.row(row)[word])),
        }
        let base = values.iter().map(|&value| value as i64).min().unwrap_or(0) as u64;
        let width = width_of(values.iter().map(|value| value.wrapping_sub(base)).max().unwrap_or(0));
        block[start + 2 + word] = width as u8;
        block[start + 2 + shape.words + 8 * word..][..8].copy_from_slice(&base.to_le_bytes());
        let at = block.len();
        // All eight bytes are written; the next value overwrites those beyond the width.
        block.resize(at + width * count + 8, 0);
        for (row, value) in values.iter().enumerate().take(if width == 0 { 0 } else { count }) {
            block[at + row * width..][..8].copy_from_slice(&value.wrapping_sub(base).to_le_bytes());
        }
        block.truncate(at + width * count);
    }
    if !shape.texts.is_empty() {
        for row in rows {
            shape.texts.iter().for_each(|&word| block.extend_from_slice(image.text(row, word)));
        }
    }
    block.extend_from_slice(&[0; BEHIND]);
}

/// Returns the bytes needed for a number.
fn width_of(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(8)
}

/// The layout of a block's rows. Each call gets the block's bytes again.
#[derive(Default)]
pub struct Opened {
    len: usize,
    fields: Vec<Field>,
    /// The start of the first text, then the end of each text, row by row. Empty if the rows have no texts.
    ends: Vec<usize>,
}

/// The position of a word in the rows.
struct Field {
    base: u64,
    at: usize,
    width: usize,
    mask: u64,
}

impl Opened {
    /// Opens another block.
    pub fn open(&mut self, block: &[u8], shape: &RowShape) -> Result<(), MalformedBlock> {
        const SHORT: MalformedBlock = MalformedBlock("a block has fewer rows than it says");
        self.fields.clear();
        self.ends.clear();
        let (head, rest) = block.split_at_checked(2 + 9 * shape.words).ok_or(SHORT)?;
        self.len = u16::from_le_bytes([head[0], head[1]]) as usize;
        let mut at = block.len() - rest.len();
        for word in 0..shape.words {
            let width = head[2 + word] as usize;
            let base = head[2 + shape.words + 8 * word..][..8].try_into().expect("eight bytes");
            let mask = match width {
                0..8 => (1 << (8 * width)) - 1,
                8 => u64::MAX,
                _ => return Err(MalformedBlock("a word is wider than eight bytes")),
            };
            self.fields.push(Field { base: u64::from_le_bytes(base), at, width, mask });
            at += width * self.len;
        }
        if at + BEHIND > block.len() {
            return Err(SHORT);
        }
        if !shape.texts.is_empty() {
            self.ends.push(at);
            for row in 0..self.len {
                for &word in &shape.texts {
                    let length = usize::try_from(self.word(block, row, word)).unwrap_or(usize::MAX);
                    at = at.checked_add(length).filter(|end| *end + BEHIND <= block.len()).ok_or(SHORT)?;
                    self.ends.push(at);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn word(&self, block: &[u8], row: usize, word: usize) -> u64 {
        let Field { base, at, width, mask } = self.fields[word];
        let at = at + row * width;
        let bytes = block[at..at + 8].try_into().expect("eight bytes");
        base.wrapping_add(u64::from_le_bytes(bytes) & mask)
    }

    fn text<'a>(&self, block: &'a [u8], row: usize, word: usize, shape: &RowShape) -> &'a [u8] {
        let place = shape.texts.iter().position(|&text| text == word).expect("a word of a text");
        let text = row * shape.texts.len() + place;
        &block[self.ends[text]..self.ends[text + 1]]
    }

    /// Returns the hash of a row's key.
    #[inline]
    pub fn hash(&self, block: &[u8], row: usize, shape: &RowShape) -> u64 {
        match *shape.key {
            [word] if !shape.is_text(word) => hash_word(self.word(block, row, word)),
            ref key if shape.texts.is_empty() => hash_of_words(key.iter().map(|&word| self.word(block, row, word))),
            ref key => hash_parts(key.iter().map(|&word| match shape.is_text(word) {
                true => hash_bytes(self.text(block, row, word, shape)),
                false => hash_word(self.word(block, row, word)),
            })),
        }
    }

    /// Returns the row whose hash is `hash` and whose key is that of row `key` in `keys`. The search begins at row
    /// `near`: rows are in the order of hashes, which are spread evenly, so the row is only a few rows away from its
    /// expected place.
    #[inline]
    pub fn find(&self, block: &[u8], near: usize, hash: u64, keys: &Image, key: usize) -> Option<usize> {
        let shape = keys.shape();
        let mut from = near.min(self.len);
        while from > 0 && self.hash(block, from - 1, shape) >= hash {
            from -= 1;
        }
        while from < self.len && self.hash(block, from, shape) < hash {
            from += 1;
        }
        let has_key = |row: usize| {
            shape.key.iter().all(|&word| match shape.is_text(word) {
                true => self.text(block, row, word, shape) == keys.text(key, word),
                false => self.word(block, row, word) == keys.row(key)[word],
            })
        };
        (from..self.len).take_while(|&row| self.hash(block, row, shape) == hash).find(|&row| has_key(row))
    }

    /// Returns whether a row exists; if not, it is a deletion.
    pub fn exists(&self, block: &[u8], row: usize) -> bool {
        self.word(block, row, 0) & EXISTS != 0
    }

    /// Adds a row to an image of this shape.
    #[inline]
    pub fn add(&self, block: &[u8], row: usize, shape: &RowShape, into: &mut Image) {
        into.push((0..self.fields.len()).map(|word| self.word(block, row, word)), |word| {
            self.text(block, row, word, shape)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn shape() -> Arc<RowShape> {
        Arc::new(RowShape { words: 5, key: vec![1, 3], texts: vec![3, 4] })
    }

    proptest! {
        #[test]
        fn rows_come_back(rows in prop::collection::vec((any::<[u64; 3]>(), any::<Vec<u8>>(), any::<Vec<u8>>(), 0..64u32), 1..50)) {
            let mut image = Image::new(&shape());
            for (words, key, text, shift) in &rows {
                // Words of all widths, and of both signs.
                let words = [words[0], (words[1] as i64 >> shift) as u64, words[2] >> shift, 0, 0];
                image.push(words, |word| if word == 3 { key } else { text });
            }
            let image = image.newest();
            let from = image.len() / 3;
            let mut block = Vec::new();
            encode(&image, from..image.len(), &mut block);
            let mut opened = Opened::default();
            opened.open(&block, &shape()).expect("just made");
            prop_assert_eq!(opened.len(), image.len() - from);
            let mut read = Image::new(&shape());
            for row in 0..opened.len() {
                prop_assert_eq!(opened.hash(&block, row, &shape()), image.hash(from + row));
                for near in [0, row, opened.len(), usize::MAX] {
                    prop_assert_eq!(opened.find(&block, near, image.hash(from + row), &image, from + row), Some(row));
                }
                opened.add(&block, row, &shape(), &mut read);
                prop_assert_eq!(&read.row(row)[..3], &image.row(from + row)[..3]);
                prop_assert_eq!(read.text(row, 3), image.text(from + row, 3));
                prop_assert_eq!(read.text(row, 4), image.text(from + row, 4));
            }
        }

        #[test]
        fn other_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            // Only checks that decoding terminates without a panic.
            let mut opened = Opened::default();
            if opened.open(&bytes, &shape()).is_ok() {
                let mut image = Image::new(&shape());
                (0..opened.len()).for_each(|row| opened.add(&bytes, row, &shape(), &mut image));
            }
        }
    }
}
