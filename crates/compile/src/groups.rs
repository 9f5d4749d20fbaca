//! The groups among events that are folded apart, and how their rows are merged into a table ([`tidemill_plan::Fold`]).
//!
//! **What.** An open-addressing table from keys to *partial* rows, which have the layout of the table's rows, without
//! padding. Behind it they have the newest slice of each windowed column of slices ([`PartLayout`]), so that most values are
//! added without a blob. Compiled code looks at one place, and asks [`Groups::find`] where that is not the key's. Rows are
//! numbered in the order in which their groups came first; they lie in this order, and move when another one is made.
//! **Costs.** A group takes a row and eight to sixteen bytes. A worker that folds an epoch touches no memory that
//! others write.

use crate::context::AccessContext;
use crate::window;
use tidemill_plan::{Fold, Keep, Merge, Table, Window};
use tidemill_state::blob::Edit;
use tidemill_state::{EXISTS, RowAddress, RowLayout, TextBytes, blob};

/// Places at first.
const PLACES_MIN: usize = 1 << 8;
/// Rows that there is room for at least.
const ROWS_MIN: usize = 1 << 10;
/// 2^64 divided by the golden ratio: the upper bits of products with it are spread well, of keys in sequence evenly.
pub const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The groups among the events of an input in an epoch. Compiled code reads the fields up to `sole` by offset.
#[repr(C)]
pub struct Groups {
    /// The number of the row at each place, 0 where there is none. Addresses of what `table` holds.
    pub(crate) places: *const u32,
    /// The number of lower bits of a key's product that do not say which place.
    pub(crate) shift: u64,
    /// The first row; it has number 0 and stands for none.
    pub(crate) rows: *mut u64,
    /// The words in which compiled code leaves the parts of a key that it asks for.
    pub(crate) key: *mut u64,
    /// The row of a key of constants, which all events have.
    pub(crate) sole: RowAddress,
    table: Vec<u32>,
    wanted: Vec<u64>,
    words: Vec<u64>,
    /// The words of a row.
    width: usize,
    /// The places and sizes of the newest slices' entries, as in [`PartLayout`].
    slices: Vec<Option<(usize, usize)>>,
    len: usize,
    layout: RowLayout,
    /// Columns of the key.
    key_columns: Vec<usize>,
    /// Columns of texts and windows.
    text_columns: Vec<usize>,
    text_bytes: TextBytes,
}

// SAFETY: the addresses point into the value's own buffers, which stay where they are when it moves.
unsafe impl Send for Groups {}
// SAFETY: as above; it is only read while it is shared.
unsafe impl Sync for Groups {}

/// The layout of a partial row.
#[derive(Clone, Debug)]
pub struct PartLayout {
    /// Its words.
    pub words: usize,
    /// The place of the newest slice's entry and its size in bytes, by column that is a window of slices. It is as in
    /// the column's cell, with a count of 0 where there is none. The end of the slice follows ([`window::limit`]).
    pub slices: Vec<Option<(usize, usize)>>,
}

impl PartLayout {
    /// Returns the layout for the rows of a table.
    pub fn of(layout: &RowLayout, table: &Table) -> PartLayout {
        let mut words = layout.header_words() + table.columns.len();
        let mut slices = vec![None; table.columns.len()];
        for (column, definition) in table.columns.iter().enumerate() {
            let is_sliced = |window: &Window| matches!(window.keep, Keep::Slices(_));
            let Some(window) = definition.window.as_ref().filter(|window| is_sliced(window)) else { continue };
            slices[column] = Some((8 * words, window.slice_bytes()));
            words += window.slice_bytes() / 8 + 1;
        }
        PartLayout { words, slices }
    }
}

/// # Safety
/// The offset lies in the row, which nobody else uses.
unsafe fn read(row: RowAddress, offset: usize) -> u64 {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *const u64).read() }
}

/// # Safety
/// As [`read`].
unsafe fn write(row: RowAddress, offset: usize, word: u64) {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *mut u64).write(word) }
}

impl Groups {
    /// Makes an empty set of groups, with rows like those of a table.
    pub fn new(table: &tidemill_state::Table) -> Groups {
        let definition = table.definition();
        let part = PartLayout::of(table.layout(), definition);
        let is_text = |&column: &usize| definition.columns[column].ty.ty.is_bytes();
        let mut groups = Groups {
            places: std::ptr::null(),
            shift: 0,
            rows: std::ptr::null_mut(),
            key: std::ptr::null_mut(),
            sole: 0,
            table: Vec::new(),
            wanted: vec![0; definition.key.len()],
            words: vec![0; part.words],
            width: part.words,
            slices: part.slices,
            len: 0,
            key_columns: definition.key.clone(),
            text_columns: (0..definition.columns.len()).filter(is_text).collect(),
            layout: table.layout().clone(),
            text_bytes: table.text_bytes().clone(),
        };
        groups.key = groups.wanted.as_mut_ptr();
        groups.rows = groups.words.as_mut_ptr();
        groups.resize(PLACES_MIN);
        groups
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts of the keys, part by part.
    pub fn keys(&self) -> Vec<Vec<u64>> {
        let of = |&column: &usize| (1..=self.len).map(|row| self.words[self.word(row, column)]).collect();
        self.key_columns.iter().map(of).collect()
    }

    /// Makes the group of a key of constants, which all events have.
    pub fn make_sole(&mut self, key: impl Iterator<Item = u64>) {
        self.wanted.clear();
        self.wanted.extend(key);
        self.key = self.wanted.as_mut_ptr();
        self.sole = self.find();
    }

    /// Returns the place of a cell among the words.
    fn word(&self, row: usize, column: usize) -> usize {
        row * self.width + self.layout.cell(column) / 8
    }

    fn row(&self, row: usize) -> RowAddress {
        self.rows.wrapping_add(row * self.width) as RowAddress
    }

    fn place(&self, key: impl Iterator<Item = u64>) -> usize {
        let tag = key.fold(0, |tag: u64, word| tag.wrapping_mul(SPREAD) ^ word);
        (tag.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    /// Returns the row of the key whose parts are in `wanted`; a new one, all zero but for the key, where there is
    /// none.
    pub(crate) fn find(&mut self) -> RowAddress {
        let mut place = self.place(self.wanted.iter().copied());
        loop {
            let row = self.table[place] as usize;
            if row == 0 {
                break;
            }
            let mut parts = self.key_columns.iter().zip(&self.wanted);
            if parts.all(|(&column, &word)| self.words[self.word(row, column)] == word) {
                return self.row(row);
            }
            place = (place + 1) % self.table.len();
        }
        if 2 * self.len >= self.table.len() {
            self.resize(2 * self.table.len());
            return self.find();
        }
        self.len += 1;
        if self.width * (self.len + 1) > self.words.capacity() {
            // Memory of a new size is mostly on pages that nobody has touched, each of which costs as much as many
            // groups.
            self.words.reserve_exact(self.width * ROWS_MIN.max(3 * self.len));
        }
        self.words.resize(self.width * (self.len + 1), 0);
        self.rows = self.words.as_mut_ptr();
        for (part, &column) in self.key_columns.iter().enumerate() {
            let word = self.word(self.len, column);
            self.words[word] = self.wanted[part];
        }
        self.table[place] = self.len as u32;
        self.row(self.len)
    }

    fn resize(&mut self, len: usize) {
        self.table.clear();
        self.table.resize(len, 0);
        (self.places, self.shift) = (self.table.as_ptr(), 64 - u64::from(len.trailing_zeros()));
        for row in 1..=self.len {
            let mut place = self.place(self.key_columns.iter().map(|&column| self.words[self.word(row, column)]));
            while self.table[place] != 0 {
                place = (place + 1) % len;
            }
            self.table[place] = row as u32;
        }
    }

    /// Merges the rows into those of the table, which are `rows`, in their order. `number`: that of the table.
    ///
    /// # Safety
    /// Only the caller uses these rows, and the rows of another epoch were merged before where they are of an earlier
    /// one.
    pub unsafe fn merge(&mut self, context: &mut AccessContext, fold: &Fold, number: u32, rows: &[RowAddress]) {
        assert!(rows.len() <= self.len, "there are {} groups, and {} rows", self.len, rows.len());
        context.write_in_place(true);
        for (group, &row) in rows.iter().enumerate() {
            let part = self.row(group + 1);
            // SAFETY: both are rows of this layout.
            unsafe {
                if read(part, 0) & EXISTS == 0 {
                    // All of its events were refused.
                    continue;
                }
                if read(row, 0) & EXISTS == 0 {
                    self.begin(context, fold, number, (row, part));
                } else {
                    self.unite(context, fold, number, (row, part));
                }
            }
        }
        context.commit();
    }

    /// Returns the entry of the newest slice of a windowed column, if it is in the row.
    ///
    /// # Safety
    /// As [`Groups::merge`], and nothing else uses the entry while the result lives.
    unsafe fn newest<'a>(&self, column: usize, part: RowAddress) -> &'a mut [u8] {
        let Some((at, len)) = self.slices[column] else { return &mut [] };
        // SAFETY: by the caller.
        let entry = unsafe { std::slice::from_raw_parts_mut((part as usize + at) as *mut u8, len) };
        if window::word(&entry[8..]) == 0 { &mut [] } else { entry }
    }

    /// # Safety
    /// As [`Groups::merge`].
    unsafe fn begin(
        &self,
        context: &mut AccessContext,
        fold: &Fold,
        number: u32,
        (row, part): (RowAddress, RowAddress),
    ) {
        // SAFETY: by the caller.
        unsafe {
            for word in 0..self.layout.header_words() {
                write(row, 8 * word, read(part, 8 * word));
            }
            for column in 0..fold.columns.len() {
                let cell = self.layout.cell(column);
                if self.key_columns.contains(&column) {
                    continue;
                }
                let old = read(row, cell);
                write(row, cell, read(part, cell));
                if self.text_columns.contains(&column) {
                    write(part, cell, 0);
                    context.discard(number, old);
                    let newest = self.newest(column, part);
                    context.edit_text(number, row + cell as u64, true, |bytes, tail| {
                        tail.extend_from_slice(newest);
                        Edit { start: 0, gap: bytes.len()..bytes.len() }
                    });
                }
            }
        }
    }

    /// # Safety
    /// As [`Groups::merge`].
    unsafe fn unite(
        &self,
        context: &mut AccessContext,
        fold: &Fold,
        number: u32,
        (row, part): (RowAddress, RowAddress),
    ) {
        for (column, merge) in fold.columns.iter().enumerate() {
            let cell = self.layout.cell(column);
            // SAFETY: by the caller; a window has a blob or none.
            unsafe {
                let (own, other) = (read(row, cell), read(part, cell));
                match merge {
                    Merge::Stays => {}
                    Merge::Sum => write(row, cell, own.wrapping_add(other)),
                    Merge::Any => write(row, cell, own | other),
                    Merge::All => write(row, cell, own & other),
                    Merge::Last => self.take(column, (row, part)),
                    Merge::Least => _ = self.take_better(false, column, (row, part)),
                    Merge::Greatest => _ = self.take_better(true, column, (row, part)),
                    Merge::Best { greatest, with } => {
                        if self.take_better(*greatest, column, (row, part)) {
                            with.iter().for_each(|&column| self.take(column, (row, part)));
                        }
                    }
                    Merge::Window(window) => {
                        let address = row + cell as u64;
                        for part in
                            [blob::bytes(other), self.newest(column, part)].into_iter().filter(|p| !p.is_empty())
                        {
                            let is_entry = self.slices[column].is_some_and(|(_, len)| part.len() == len);
                            let here = context.text_here(address, true).filter(|_| is_entry);
                            if !here.is_some_and(|bytes| window::merge_here(window, bytes, part)) {
                                let merge = |bytes: &[u8], tail: &mut _| window::merge(window, bytes, part, tail);
                                context.edit_text(number, address, true, merge);
                            }
                        }
                        write(part, cell, 0);
                        self.text_bytes.subtract(blob::free(other));
                    }
                }
            }
        }
    }

    /// Takes a cell over, and whether it is None.
    ///
    /// # Safety
    /// As [`Groups::merge`].
    unsafe fn take(&self, column: usize, (row, part): (RowAddress, RowAddress)) {
        let (cell, (header, bit)) = (self.layout.cell(column), self.layout.null_bit(column));
        // SAFETY: by the caller.
        unsafe {
            write(row, cell, read(part, cell));
            write(row, header, read(row, header) & !bit | read(part, header) & bit);
        }
    }

    /// Takes a cell over where it is better, and says whether it is.
    ///
    /// # Safety
    /// As [`Groups::merge`].
    unsafe fn take_better(&self, greatest: bool, column: usize, (row, part): (RowAddress, RowAddress)) -> bool {
        let (cell, (header, bit)) = (self.layout.cell(column), self.layout.null_bit(column));
        // SAFETY: by the caller.
        unsafe {
            let (own, other) = (read(row, cell) as i64, read(part, cell) as i64);
            let [own_none, other_none] = [row, part].map(|row| read(row, header) & bit != 0);
            let better = !other_none && (own_none || if greatest { other > own } else { other < own });
            if better {
                self.take(column, (row, part));
            }
            better
        }
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.free_texts();
        if self.len > 0 {
            self.table.fill(0);
        }
        self.words.truncate(self.width);
        self.words.fill(0);
        self.len = 0;
    }

    fn free_texts(&mut self) {
        let mut freed = 0;
        for row in 1..=self.len {
            for &column in &self.text_columns {
                let word = self.word(row, column);
                // SAFETY: the cells own their blobs, and lose them here.
                freed += unsafe { blob::free(std::mem::take(&mut self.words[word])) };
            }
        }
        self.text_bytes.subtract(freed);
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.free_texts();
    }
}
