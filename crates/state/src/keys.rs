//! Keys of many accesses at once, in columns, as prepare passes them to a table.

use crate::memory::ask_for;

/// One key column for a run of accesses.
#[derive(Clone, Copy)]
pub enum KeyColumn<'a> {
    /// Words: int, time, decimal, bool.
    Words(&'a [u64]),
    /// Words selected by an index.
    Indexed(&'a [u64], &'a [u32]),
    /// Text or bytes.
    Texts(KeyTexts<'a>),
}

/// Text keys, as slices. The bytes live as long as the epoch's input.
#[derive(Clone, Copy)]
pub struct KeyTexts<'a> {
    texts: &'a [&'a [u8]],
}

impl<'a> KeyTexts<'a> {
    /// Makes key texts of slices.
    pub fn new(texts: &'a [&'a [u8]]) -> Self {
        KeyTexts { texts }
    }

    /// Prefetches the slice of one access's text.
    #[inline(always)]
    pub(crate) fn ask(&self, i: usize) {
        ask_for(self.texts, i)
    }

    /// Returns the text of one access.
    #[inline(always)]
    pub fn get(&self, i: usize) -> &'a [u8] {
        self.texts[i]
    }
}

/// The keys of a run of accesses: one column per key column of the table.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// Each column has one entry for each access.
    pub columns: &'a [KeyColumn<'a>],
    /// True for an access whose key is null: it gets no row. None if no key is null.
    pub nulls: Option<&'a [bool]>,
    /// Number of accesses.
    pub len: usize,
}
