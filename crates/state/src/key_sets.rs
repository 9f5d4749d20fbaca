//! Sets of keys, one type per shape, so that loops over many keys are compiled for that shape.

use crate::blob;
use crate::hash::{combine, hash_bytes, hash_word};
use crate::image::{Image, KeyPart};
use crate::keys::{KeyColumn, KeyTexts};
use crate::memory::ask_for;
use crate::rows::{RowAddress, read, write};
use crate::sync::reads_key;
use std::ops::Range;

/// One part of the key inside a row.
#[derive(Clone, Copy)]
pub struct KeyCell {
    pub offset: usize,
    pub text: bool,
}

/// Keys of one shape. `matches` and `write` are called with slots of the same table.
pub trait KeySet: Sized {
    /// A key.
    type Key: Copy + Default;
    /// Returns the keys of a range of accesses.
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = Self::Key>;
    /// Returns the key at one place.
    #[inline]
    fn key_at(&self, i: usize) -> Self::Key {
        self.range(i..i + 1).next().expect("one place, one key")
    }
    fn hash(&self, key: Self::Key) -> u64;
    /// Prefetches the key at a place.
    fn ask(&self, place: usize);
    /// Returns the hashes of the keys at these places.
    fn hashes(&self, places: &[usize]) -> Vec<u64> {
        places.iter().map(|&i| self.hash(self.key_at(i))).collect()
    }
    fn matches(&self, key: Self::Key, row: RowAddress) -> bool;
    /// Fills the key cells of a fresh slot; returns the bytes of memory that their texts take.
    fn write(&self, key: Self::Key, row: RowAddress) -> usize;
    /// Adds a row with this key and no other content.
    fn copy(&self, key: Self::Key, image: &mut Image);
    /// Returns all keys, if each is one word.
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        None::<std::iter::Empty<u64>>
    }
    /// Returns the word of a key, if it is one word.
    fn word(&self, _key: Self::Key) -> Option<u64> {
        None
    }
}

/// The keys at some places.
pub struct Subset<'a, K> {
    pub keys: &'a K,
    pub places: &'a [usize],
}

impl<K: KeySet> KeySet for Subset<'_, K> {
    type Key = K::Key;
    fn ask(&self, place: usize) {
        self.keys.ask(self.places[place])
    }
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = K::Key> {
        self.places[range].iter().flat_map(|&i| self.keys.range(i..i + 1))
    }
    fn hash(&self, key: K::Key) -> u64 {
        self.keys.hash(key)
    }
    fn matches(&self, key: K::Key, row: RowAddress) -> bool {
        self.keys.matches(key, row)
    }
    fn write(&self, key: K::Key, row: RowAddress) -> usize {
        self.keys.write(key, row)
    }
    fn copy(&self, key: K::Key, image: &mut Image) {
        self.keys.copy(key, image)
    }
}

pub struct WordKeys<'a> {
    pub words: &'a [u64],
    pub offset: usize,
}

impl KeySet for WordKeys<'_> {
    type Key = u64;
    #[inline(always)]
    fn ask(&self, place: usize) {
        ask_for(self.words, place)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = u64> {
        self.words[range].iter().copied()
    }
    #[inline(always)]
    fn hash(&self, key: u64) -> u64 {
        hash_word(key)
    }
    #[inline(always)]
    fn matches(&self, key: u64, row: RowAddress) -> bool {
        reads_key(row);
        // SAFETY: a slot of the table; its key cell is immutable (invariant 2).
        unsafe { read(row, self.offset) == key }
    }
    fn write(&self, key: u64, row: RowAddress) -> usize {
        // SAFETY: a fresh slot that no other thread knows yet.
        unsafe { write(row, self.offset, key) }
        0
    }
    fn copy(&self, key: u64, image: &mut Image) {
        image.push_key(|_| KeyPart::Word(key))
    }
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.words.iter().copied())
    }
    fn word(&self, key: u64) -> Option<u64> {
        Some(key)
    }
}

pub struct IndexedKeys<'a> {
    pub words: WordKeys<'a>,
    pub index: &'a [u32],
}

impl KeySet for IndexedKeys<'_> {
    type Key = u64;
    #[inline(always)]
    fn ask(&self, place: usize) {
        self.words.ask(self.index[place] as usize)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = u64> {
        self.index[range].iter().map(|&i| self.words.words[i as usize])
    }
    #[inline(always)]
    fn hash(&self, key: u64) -> u64 {
        self.words.hash(key)
    }
    #[inline(always)]
    fn matches(&self, key: u64, row: RowAddress) -> bool {
        self.words.matches(key, row)
    }
    fn write(&self, key: u64, row: RowAddress) -> usize {
        self.words.write(key, row)
    }
    fn copy(&self, key: u64, image: &mut Image) {
        self.words.copy(key, image)
    }
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.index.iter().map(|&i| self.words.words[i as usize]))
    }
    fn word(&self, key: u64) -> Option<u64> {
        Some(key)
    }
}

pub struct TextKeys<'a> {
    pub texts: KeyTexts<'a>,
    pub offset: usize,
}

impl<'a> KeySet for TextKeys<'a> {
    type Key = &'a [u8];
    #[inline(always)]
    fn ask(&self, place: usize) {
        self.texts.ask(place)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        range.map(|i| self.texts.get(i))
    }
    #[inline(always)]
    fn hash(&self, key: &'a [u8]) -> u64 {
        hash_bytes(key)
    }
    #[inline(always)]
    fn matches(&self, key: &'a [u8], row: RowAddress) -> bool {
        reads_key(row);
        // SAFETY: a slot of the table; its key cell is immutable and owns a live blob.
        unsafe { blob::bytes(read(row, self.offset)) == key }
    }
    fn write(&self, key: &'a [u8], row: RowAddress) -> usize {
        // SAFETY: a fresh slot that no other thread knows yet.
        unsafe { write(row, self.offset, blob::new(key)) }
        blob::size(key.len())
    }
    fn copy(&self, key: &'a [u8], image: &mut Image) {
        image.push_key(|_| KeyPart::Text(key))
    }
}

pub struct CompositeKeys<'a> {
    pub columns: &'a [KeyColumn<'a>],
    pub cells: &'a [KeyCell],
}

impl KeySet for CompositeKeys<'_> {
    /// An index into the columns.
    type Key = usize;
    fn ask(&self, place: usize) {
        self.columns.iter().for_each(|column| match column {
            KeyColumn::Words(words) => ask_for(words, place),
            KeyColumn::Indexed(words, index) => ask_for(words, index[place] as usize),
            KeyColumn::Texts(texts) => texts.ask(place),
        })
    }
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range
    }
    fn hash(&self, i: usize) -> u64 {
        self.columns.iter().fold(0, |hash, column| {
            let part = match column {
                KeyColumn::Words(words) => hash_word(words[i]),
                KeyColumn::Indexed(words, index) => hash_word(words[index[i] as usize]),
                KeyColumn::Texts(texts) => hash_bytes(texts.get(i)),
            };
            combine(hash, part)
        })
    }
    /// Returns the hashes of keys, computed column by column, so that the column's type is not tested for each key.
    fn hashes(&self, places: &[usize]) -> Vec<u64> {
        fn add(hashes: &mut [u64], places: &[usize], part: impl Fn(usize) -> u64) {
            hashes.iter_mut().zip(places).for_each(|(hash, &i)| *hash = combine(*hash, part(i)));
        }
        let mut hashes = vec![0; places.len()];
        for column in self.columns {
            match column {
                KeyColumn::Words(words) => add(&mut hashes, places, |i| hash_word(words[i])),
                KeyColumn::Indexed(words, index) => add(&mut hashes, places, |i| hash_word(words[index[i] as usize])),
                KeyColumn::Texts(texts) => add(&mut hashes, places, |i| hash_bytes(texts.get(i))),
            }
        }
        hashes
    }
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        self.columns.iter().zip(self.cells).all(|(column, cell)| match *column {
            KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.matches(words[i], row),
            KeyColumn::Indexed(words, index) => {
                WordKeys { words, offset: cell.offset }.matches(words[index[i] as usize], row)
            }
            KeyColumn::Texts(texts) => TextKeys { texts, offset: cell.offset }.matches(texts.get(i), row),
        })
    }
    fn copy(&self, i: usize, image: &mut Image) {
        image.push_key(|part| match self.columns[part] {
            KeyColumn::Words(words) => KeyPart::Word(words[i]),
            KeyColumn::Indexed(words, index) => KeyPart::Word(words[index[i] as usize]),
            KeyColumn::Texts(texts) => KeyPart::Text(texts.get(i)),
        })
    }
    fn write(&self, i: usize, row: RowAddress) -> usize {
        let part = |(column, cell): (&KeyColumn<'_>, &KeyCell)| match *column {
            KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.write(words[i], row),
            KeyColumn::Indexed(words, index) => {
                WordKeys { words, offset: cell.offset }.write(words[index[i] as usize], row)
            }
            KeyColumn::Texts(texts) => TextKeys { texts, offset: cell.offset }.write(texts.get(i), row),
        };
        self.columns.iter().zip(self.cells).map(part).sum()
    }
}
