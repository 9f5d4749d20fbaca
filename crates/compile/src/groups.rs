//! The groups among events that are folded apart, and how their rows are merged into a table ([`tidemill_plan::Fold`]).
//!
//! **What.** An open-addressing table from keys to *partial* rows, which have the layout of the table's rows, without
//! padding. Compiled code looks at one place, and asks [`Groups::find`] where that is not the key's. Rows are numbered
//! in the order in which their groups came first; they lie in this order, and move when another one is made.
//! **Costs.** A group takes a row and eight to sixteen bytes. A worker that folds an epoch touches no memory that
//! others write.

use crate::context::AccessContext;
use crate::window;
use tidemill_plan::{Fold, Merge};
use tidemill_state::{EXISTS, RowAddress, RowLayout, Table, TextBytes, blob};

/// Places at first.
const PLACES_MIN: usize = 1 << 8;
/// Rows that there is room for at least.
const ROWS_MIN: usize = 1 << 10;
/// 2^64 divided by the golden ratio: the upper bits of products with it are spread well, of keys in sequence evenly.
pub const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The groups among the events of an input in an epoch. Compiled code reads the fields up to `sole` by offset.
#[repr(C)]
pub struct Groups {
    /// By place: the number of the row, 0 where there is none. Addresses of what `table` holds.
    pub(crate) places: *const u32,
    /// How many of the lower bits of a key's product do not say which place.
    pub(crate) shift: u64,
    /// Where the rows begin, with one of number 0, which stands for none.
    pub(crate) rows: *mut u64,
    /// Where compiled code leaves the parts of a key that it asks for.
    pub(crate) key: *mut u64,
    /// The row of a key of constants, which all events have.
    pub(crate) sole: RowAddress,
    table: Vec<u32>,
    wanted: Vec<u64>,
    words: Vec<u64>,
    /// The words of a row.
    width: usize,
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

/// The words of a partial row.
pub fn row_words(layout: &RowLayout, columns: usize) -> usize {
    layout.header_words() + columns
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
    /// None, of rows as those of a table.
    pub fn new(table: &Table) -> Groups {
        let definition = table.definition();
        let is_text = |&column: &usize| definition.columns[column].ty.ty.is_bytes();
        let mut groups = Groups {
            places: std::ptr::null(),
            shift: 0,
            rows: std::ptr::null_mut(),
            key: std::ptr::null_mut(),
            sole: 0,
            table: Vec::new(),
            wanted: vec![0; definition.key.len()],
            words: vec![0; row_words(table.layout(), definition.columns.len())],
            width: row_words(table.layout(), definition.columns.len()),
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts of the keys, part by part.
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

    /// Where a cell stands among the words.
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

    /// The row of the key whose parts are in `wanted`; a new one, all zero but for the key, where there is none.
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

    /// Merges the rows into those of the table, which are `rows`, in their order. `counts`: the row that counts groups,
    /// if they are numbered, and the cell that it counts in. `number`: that of the table.
    ///
    /// # Safety
    /// Only the caller uses these rows, and the rows of another epoch were merged before where they are of an earlier
    /// one.
    pub unsafe fn merge(
        &mut self,
        context: &mut AccessContext,
        fold: &Fold,
        number: u32,
        rows: &[RowAddress],
        counts: Option<(RowAddress, usize)>,
    ) {
        assert!(rows.len() <= self.len, "there are {} groups, and {} rows", self.len, rows.len());
        context.write_in_place(true);
        for (group, &row) in rows.iter().enumerate() {
            let part = self.row(group + 1);
            // SAFETY: both are rows of this layout, and the row that counts has the cell that it counts in.
            unsafe {
                if read(part, 0) & EXISTS == 0 {
                    // All of its events were refused.
                    continue;
                }
                if read(row, 0) & EXISTS == 0 {
                    self.begin(context, fold, number, (row, part), counts);
                } else {
                    self.unite(context, fold, number, (row, part));
                }
            }
        }
        context.commit();
    }

    /// # Safety
    /// As [`Groups::merge`].
    unsafe fn begin(
        &self,
        context: &mut AccessContext,
        fold: &Fold,
        number: u32,
        (row, part): (RowAddress, RowAddress),
        counts: Option<(RowAddress, usize)>,
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
                }
                if let (Merge::Number, Some((counter, n))) = (&fold.columns[column], counts) {
                    if read(counter, 0) & EXISTS == 0 {
                        write(counter, 0, read(counter, 0) | EXISTS);
                        write(counter, n, 0);
                    }
                    let next = read(counter, n) + 1;
                    write(counter, n, next);
                    write(row, cell, next);
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
                    Merge::Stays | Merge::Number => {}
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
                        context.edit_text(number, address, true, |bytes, tail| {
                            window::merge(window, bytes, blob::bytes(other), tail)
                        });
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
