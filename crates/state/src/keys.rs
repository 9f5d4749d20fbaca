//! Keys of many accesses at once, in columns, as prepare hands them to a table.

use crate::memory::ask_for;

/// One key column for a run of accesses.
#[derive(Clone, Copy)]
pub enum KeyColumn<'a> {
    /// Words: int, time, decimal, bool.
    Words(&'a [u64]),
    /// Words at the places of an index.
    Indexed(&'a [u64], &'a [u32]),
    /// Text or bytes.
    Texts(KeyTexts<'a>),
}

/// Text keys: where each starts and how long it is. The bytes live as long as the epoch's input.
#[derive(Clone, Copy)]
pub struct KeyTexts<'a> {
    texts: &'a [&'a [u8]],
}

impl<'a> KeyTexts<'a> {
    /// From slices.
    pub fn new(texts: &'a [&'a [u8]]) -> Self {
        KeyTexts { texts }
    }

    /// Asks for where the text of one access is.
    #[inline(always)]
    pub(crate) fn ask(&self, i: usize) {
        ask_for(self.texts, i)
    }

    /// The text of one access.
    #[inline(always)]
    pub fn get(&self, i: usize) -> &'a [u8] {
        self.texts[i]
    }
}

/// The keys of a run of accesses: one column per key column of the table.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// As many accesses in each.
    pub columns: &'a [KeyColumn<'a>],
    /// Accesses whose key is null (true): they get no row. None: no key is null.
    pub nulls: Option<&'a [bool]>,
    /// Number of accesses.
    pub len: usize,
}
