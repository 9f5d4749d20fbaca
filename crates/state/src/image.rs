//! Copies of rows as they were at one instant, with the texts that they own. Checkpoints are made from them while the
//! rows themselves go on changing.

mod of_table;

use crate::hash::{hash_bytes, hash_parts, hash_word};
use crate::layout::EXISTS;
use crate::shape::RowShape;
use std::sync::Arc;

/// Copied rows of one table, and deletions: a deletion is a key whose row's header does not say that it exists.
#[derive(Clone)]
pub struct Image {
    shape: Arc<RowShape>,
    /// Row by row. The word of a text is 0 if the text is empty, else 1 + the offset of its length in `texts`.
    words: Vec<u64>,
    /// The length of each text as eight bytes, then its bytes.
    texts: Vec<u8>,
}

/// A part of a key.
pub(crate) enum KeyPart<'a> {
    Word(u64),
    Text(&'a [u8]),
}

impl Image {
    /// Makes an image without rows.
    pub fn new(shape: &Arc<RowShape>) -> Image {
        Image { shape: shape.clone(), words: Vec::new(), texts: Vec::new() }
    }

    /// Makes an image without rows, with room for this many bytes of them.
    pub fn with_capacity(shape: &Arc<RowShape>, bytes: usize) -> Image {
        Image { shape: shape.clone(), words: Vec::with_capacity(bytes / 8), texts: Vec::new() }
    }

    /// Removes all rows; keeps their memory.
    pub fn clear(&mut self) {
        self.words.clear();
        self.texts.clear();
    }

    /// Returns the shape of its rows.
    #[inline]
    pub fn shape(&self) -> &Arc<RowShape> {
        &self.shape
    }

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.len() / self.shape.words
    }

    /// Returns whether the image has no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the bytes of rows and texts.
    #[inline]
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + self.texts.len()
    }

    /// Returns the words of a row. The word of a text only says whether the text is empty ([`Image::text`]).
    #[inline]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.shape.words..(row + 1) * self.shape.words]
    }

    /// Returns whether a row exists; if not, it is a deletion.
    #[inline]
    pub fn exists(&self, row: usize) -> bool {
        self.row(row)[0] & EXISTS != 0
    }

    /// Returns the text that a word of a row stands for.
    #[inline]
    pub fn text(&self, row: usize, word: usize) -> &[u8] {
        debug_assert!(self.shape.is_text(word));
        let Some(at) = self.row(row)[word].checked_sub(1).map(|at| at as usize) else { return &[] };
        let length = u64::from_le_bytes(self.texts[at..at + 8].try_into().expect("eight bytes"));
        &self.texts[at + 8..at + 8 + length as usize]
    }

    /// Returns the hash of a row's key, by which its slot is found.
    #[inline]
    pub fn hash(&self, row: usize) -> u64 {
        let part = |&word: &usize| match self.shape.is_text(word) {
            true => hash_bytes(self.text(row, word)),
            false => hash_word(self.row(row)[word]),
        };
        hash_parts(self.shape.key.iter().map(part))
    }

    /// Returns whether two rows have the same key.
    #[inline]
    pub fn same_key(&self, row: usize, other: &Image, other_row: usize) -> bool {
        self.shape.key.iter().all(|&word| match self.shape.is_text(word) {
            true => self.text(row, word) == other.text(other_row, word),
            false => self.row(row)[word] == other.row(other_row)[word],
        })
    }

    /// Adds a row, given its words and the texts of its text words.
    #[inline]
    pub fn push<'a>(&mut self, words: impl IntoIterator<Item = u64>, text: impl Fn(usize) -> &'a [u8]) {
        let start = self.words.len();
        self.words.extend(words);
        debug_assert_eq!(self.words.len() - start, self.shape.words);
        for &word in &self.shape.texts {
            let text = text(word);
            self.words[start + word] = 0;
            if !text.is_empty() {
                self.words[start + word] = self.texts.len() as u64 + 1;
                self.texts.extend_from_slice(&(text.len() as u64).to_le_bytes());
                self.texts.extend_from_slice(text);
            }
        }
    }

    /// Adds a deletion, given the parts of its key by number.
    pub(crate) fn push_key<'a>(&mut self, part: impl Fn(usize) -> KeyPart<'a>) {
        let start = self.words.len();
        self.words.resize(start + self.shape.words, 0);
        for (p, &word) in self.shape.key.iter().enumerate() {
            match part(p) {
                KeyPart::Word(value) => self.words[start + word] = value,
                KeyPart::Text([]) => {}
                KeyPart::Text(text) => {
                    self.words[start + word] = self.texts.len() as u64 + 1;
                    self.texts.extend_from_slice(&(text.len() as u64).to_le_bytes());
                    self.texts.extend_from_slice(text);
                }
            }
        }
    }

    /// Adds a row of another image of the same shape.
    #[inline]
    pub fn push_of(&mut self, other: &Image, row: usize) {
        match self.shape.texts.is_empty() {
            true => self.words.extend_from_slice(other.row(row)),
            false => self.push(other.row(row).iter().copied(), |word| other.text(row, word)),
        }
    }

    /// Adds the rows of another image of the same shape.
    pub fn append(&mut self, other: &Image) {
        match self.shape.texts.is_empty() {
            true => self.words.extend_from_slice(&other.words),
            false => (0..other.len()).for_each(|row| self.push_of(other, row)),
        }
    }

    /// Returns the rows in the order of their keys' hashes. Of several rows with one key, the last that was added.
    pub fn newest(&self) -> Image {
        let mut order: Vec<(u64, u32)> = (0..self.len()).map(|row| (self.hash(row), row as u32)).collect();
        order.sort_unstable();
        let mut sorted = Image::new(&self.shape);
        sorted.words.reserve(self.words.len());
        for (at, &(hash, row)) in order.iter().enumerate() {
            let mut later = order[at + 1..].iter().take_while(|(other, _)| *other == hash);
            if !later.any(|&(_, other)| self.same_key(row as usize, self, other as usize)) {
                sorted.push_of(self, row as usize);
            }
        }
        sorted
    }

    /// Returns the image without its deletions.
    pub fn existing(self) -> Image {
        if (0..self.len()).all(|row| self.exists(row)) {
            return self;
        }
        let mut existing = Image::new(&self.shape);
        (0..self.len()).filter(|&row| self.exists(row)).for_each(|row| existing.push_of(&self, row));
        existing
    }
}
