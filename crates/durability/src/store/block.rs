//! Rows as bytes.
//!
//! ```text
//! block = rows: 4, bytes of what follows, decompressed: 4, LZ4 of:
//!         for each word of a row, for each of its eight bytes, that byte of all rows; then the texts
//! ```
//!
//! A text's word is its length; texts stand row by row, in the order of their words. Bytes that hardly differ
//! from row to row, as the upper ones of numbers, come to lie together and compress to next to nothing.

use std::sync::Arc;
use tidemill_state::{EXISTS, Image, RowShape, hash_of_words, hash_word};

const HEAD: usize = 8;

/// A block that does not read, though its check is right: written by another version, or a bug.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedBlock(pub &'static str);

/// Makes blocks.
#[derive(Default)]
pub struct BlockCodec {
    plain: Vec<u8>,
    /// The last block that was made.
    block: Vec<u8>,
}

impl BlockCodec {
    /// The block of some rows of an image.
    pub fn encode(&mut self, image: &Image, rows: std::ops::Range<usize>) -> &[u8] {
        let shape = image.shape();
        let len = rows.len();
        self.plain.clear();
        self.plain.resize(8 * shape.words * len, 0);
        for (word, planes) in self.plain.chunks_exact_mut(8 * len).enumerate() {
            let is_text = shape.is_text(word);
            for (i, row) in rows.clone().enumerate() {
                let value = if is_text { image.text(row, word).len() as u64 } else { image.row(row)[word] };
                value.to_le_bytes().into_iter().enumerate().for_each(|(byte, value)| planes[byte * len + i] = value);
            }
        }
        for row in rows {
            shape.texts.iter().for_each(|&word| self.plain.extend_from_slice(image.text(row, word)));
        }
        self.block.clear();
        self.block.extend_from_slice(&(len as u32).to_le_bytes());
        self.block.extend_from_slice(&u32::try_from(self.plain.len()).expect("a block is small").to_le_bytes());
        self.block.extend_from_slice(&lz4_flex::block::compress(&self.plain));
        &self.block
    }
}

/// Adds the rows of a block for whose key's hash `wanted` holds.
pub fn decode(block: &[u8], into: &mut Image, wanted: impl Fn(u64) -> bool) -> Result<(), MalformedBlock> {
    let rows = read(block, into.shape())?;
    (0..rows.len()).filter(|&row| wanted(rows.hash(row))).for_each(|row| into.push_of(&rows, row));
    Ok(())
}

/// A block that some keys are looked for in. Rows without texts are not put together for that: the words of a key
/// are gathered where they are.
pub enum Opened {
    /// Decompressed, and its rows.
    Planes(Vec<u8>, usize),
    /// Rows with their hashes.
    Rows(Image, Vec<u64>),
}

impl Opened {
    /// Without rows.
    pub const NONE: Opened = Opened::Planes(Vec::new(), 0);

    /// Opens a block in the stead of this one, whose memory it takes.
    pub fn open(&mut self, block: &[u8], shape: &Arc<RowShape>) -> Result<(), MalformedBlock> {
        if !shape.texts.is_empty() {
            let rows = read(block, shape)?;
            let hashes = (0..rows.len()).map(|row| rows.hash(row)).collect();
            *self = Opened::Rows(rows, hashes);
            return Ok(());
        }
        let mut plain = match std::mem::replace(self, Opened::NONE) {
            Opened::Planes(plain, _) => plain,
            Opened::Rows(..) => Vec::new(),
        };
        let (len, bytes, body) = head(block)?;
        if bytes != 8 * shape.words * len {
            return Err(MalformedBlock("a block does not have as many rows as it says"));
        }
        plain.resize(bytes, 0);
        let written = lz4_flex::block::decompress_into(body, &mut plain);
        if written.is_err() || written.is_ok_and(|written| written != bytes) {
            return Err(MalformedBlock("a block of rows does not decompress"));
        }
        *self = Opened::Planes(plain, len);
        Ok(())
    }

    fn len(&self) -> usize {
        match self {
            Opened::Planes(_, len) => *len,
            Opened::Rows(rows, _) => rows.len(),
        }
    }

    fn hash(&self, row: usize, shape: &RowShape) -> u64 {
        match self {
            Opened::Planes(plain, len) => match *shape.key {
                [word] => hash_word(word_of(plain, *len, row, word)),
                ref key => hash_of_words(key.iter().map(|&word| word_of(plain, *len, row, word))),
            },
            Opened::Rows(_, hashes) => hashes[row],
        }
    }

    /// The row with the key, of that hash, that a row of `keys` has.
    pub fn find(&self, hash: u64, keys: &Image, key: usize) -> Option<usize> {
        let shape = keys.shape();
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = (from + to) / 2;
            if self.hash(middle, shape) < hash { from = middle + 1 } else { to = middle }
        }
        let is_it = |row: usize| match self {
            Opened::Planes(plain, len) => {
                shape.key.iter().all(|&word| word_of(plain, *len, row, word) == keys.row(key)[word])
            }
            Opened::Rows(rows, _) => rows.same_key(row, keys, key),
        };
        (from..self.len()).take_while(|&row| self.hash(row, shape) == hash).find(|&row| is_it(row))
    }

    /// Adds a row to an image if it exists; whether it does.
    pub fn add(&self, row: usize, into: &mut Image) -> bool {
        match self {
            Opened::Planes(plain, len) => {
                let exists = word_of(plain, *len, row, 0) & EXISTS != 0;
                if exists {
                    let words = into.shape().words;
                    into.push((0..words).map(|word| word_of(plain, *len, row, word)), |_| &[]);
                }
                exists
            }
            Opened::Rows(rows, _) => {
                let exists = rows.exists(row);
                if exists {
                    into.push_of(rows, row);
                }
                exists
            }
        }
    }
}

/// A word of a row in a decompressed block.
#[inline(always)]
fn word_of(plain: &[u8], len: usize, row: usize, word: usize) -> u64 {
    let byte = |byte: usize| u64::from(plain[(8 * word + byte) * len + row]) << (8 * byte);
    (0..8).fold(0, |value, at| value | byte(at))
}

/// Rows, bytes when decompressed, and what is compressed.
fn head(block: &[u8]) -> Result<(usize, usize, &[u8]), MalformedBlock> {
    let (head, body) = block.split_at_checked(HEAD).ok_or(MalformedBlock("a block of rows ends too early"))?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
    Ok((number(0), number(4), body))
}

/// The rows of a block.
pub fn read(block: &[u8], shape: &Arc<RowShape>) -> Result<Image, MalformedBlock> {
    let (len, bytes, body) = head(block)?;
    let plain = lz4_flex::block::decompress(body, bytes);
    let plain = plain.map_err(|_| MalformedBlock("a block of rows does not decompress"))?;
    let planes = 8 * shape.words * len;
    let mut texts = plain.get(planes..).ok_or(MalformedBlock("a block has fewer rows than it says"))?;
    let mut image = Image::new(shape);
    let mut words = vec![0u64; shape.words];
    let mut of_row: Vec<&[u8]> = vec![&[]; shape.words];
    for row in 0..len {
        for (word, value) in words.iter_mut().enumerate() {
            let byte = |byte: usize| u64::from(plain[(8 * word + byte) * len + row]) << (8 * byte);
            *value = (0..8).map(byte).fold(0, |value, byte| value | byte);
        }
        for &word in &shape.texts {
            let length = usize::try_from(words[word]).unwrap_or(usize::MAX);
            let split = texts.split_at_checked(length).ok_or(MalformedBlock("a text goes beyond its block"))?;
            (of_row[word], texts) = split;
        }
        image.push(words.iter().copied(), |word| of_row[word]);
    }
    if !texts.is_empty() {
        return Err(MalformedBlock("something follows the rows of a block"));
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape() -> Arc<RowShape> {
        Arc::new(RowShape { words: 5, key: vec![1, 3], texts: vec![3, 4] })
    }

    proptest! {
        #[test]
        fn rows_come_back(rows in prop::collection::vec((any::<[u64; 3]>(), any::<Vec<u8>>(), any::<Vec<u8>>()), 1..50)) {
            let mut image = Image::new(&shape());
            for (words, key, text) in &rows {
                let words = [words[0], words[1], words[2], 0, 0];
                image.push(words, |word| if word == 3 { key } else { text });
            }
            let mut codec = BlockCodec::default();
            let from = rows.len() / 3;
            let read = read(codec.encode(&image, from..rows.len()), &shape()).expect("just made");
            prop_assert_eq!(read.len(), rows.len() - from);
            for row in 0..read.len() {
                prop_assert_eq!(&read.row(row)[..3], &image.row(from + row)[..3]);
                prop_assert_eq!(read.text(row, 3), image.text(from + row, 3));
                prop_assert_eq!(read.text(row, 4), image.text(from + row, 4));
            }
        }

        #[test]
        fn other_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // No more than that it comes to an end; the length is held small, as a check would have caught it.
            let mut bytes = bytes;
            bytes.iter_mut().skip(2).take(2).for_each(|byte| *byte = 0);
            bytes.iter_mut().skip(6).take(2).for_each(|byte| *byte = 0);
            let _ = read(&bytes, &shape());
        }
    }
}
