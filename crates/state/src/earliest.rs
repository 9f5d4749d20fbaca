//! The rows with the least value of a column, without a look at all rows each time.
//!
//! **What.** A heap holds values of an int column beside the slots that had them. Whoever writes rows says so
//! ([`Earliest::touch`]); the next look adds their values. An entry counts only if its row exists and has this value when
//! the entry is the least, so entries of rows that changed since are dropped then, and nothing is taken out of the middle.
//!
//! **Invariant.** While there is a heap, each existing row is in it with its present value, or among the touched.
//! **Without a heap** a look goes over all slots, and makes a heap of the rows that stay. So it is at first, after more
//! touches than a quarter of the rows, when the heap has more than twice as many entries as there are slots, after a look
//! that took a quarter of the rows anyway, and always where rows may be evicted.
//! **Cost.** A look over all slots is paid by as many touches or by what it takes, up to a constant; so a look costs what
//! was touched and is taken, each by the logarithm of the heap, and not what is in the table. Eight bytes a touch, 16 an
//! entry.
//!
//! Sweeps free slots, and other keys may get them; then an entry may be that of another row, which is in the heap itself.

use crate::evicted_rows::EvictedError;
use crate::image::Image;
use crate::keys::{KeyColumn, KeyTexts, Keys};
use crate::rows::{RowAddress, read};
use crate::table::Table;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// There may always be as many touches, and entries.
const FEW: usize = 1024;
/// One in this many rows is touched or taken: a look at all costs no more than they, up to a constant.
const PART: usize = 4;

/// A value and the slot of the row that had it.
type Entry = Reverse<(i64, RowAddress)>;

/// Finds the rows of a table that have the least value of a column.
pub struct Earliest {
    /// Offset of the column's cell.
    cell: usize,
    /// Offset and bit that say that it is null.
    null: (usize, u64),
    heap: Option<BinaryHeap<Entry>>,
    /// Slots whose rows may have changed since the last look; none without a heap.
    touched: Vec<RowAddress>,
    touched_max: usize,
    looked_at: u64,
    /// The size of the rows that were copied last, bytes.
    bytes: usize,
}

/// The result of a look.
pub struct RowsAt {
    /// Copies of the rows with the value, in no order. Texts outside of keys are missing where no row of the table is evicted.
    pub rows: Image,
    /// The least value of the other rows.
    pub next: Option<i64>,
}

impl Earliest {
    /// For a column of a table: an int or a time. A row in which it is null has no value.
    pub fn new(table: &Table, column: usize) -> Earliest {
        let (cell, null) = (table.layout().cell(column), table.layout().null_bit(column));
        Earliest { cell, null, heap: None, touched: Vec::new(), touched_max: 0, looked_at: 0, bytes: 0 }
    }

    /// Notes that rows may have changed; 0 stands for no row.
    ///
    /// # Safety
    /// The rows are slots of the table that [`Earliest::take`] is called with.
    pub unsafe fn touch(&mut self, rows: &[RowAddress]) {
        if self.heap.is_none() {
            return;
        }
        if self.touched.len() + rows.len() > self.touched_max {
            self.forget();
        } else {
            self.touched.extend(rows.iter().filter(|&&row| row != 0));
        }
    }

    /// Returns the rows that have a value; no row has a smaller one. Without a value no row is taken. Call it while no
    /// transaction runs and no slot is made; rows that are taken must be touched before the next call. Fails if evicted
    /// rows cannot be read.
    pub fn take(&mut self, table: &Table, at: Option<i64>) -> Result<RowsAt, EvictedError> {
        if table.has_evicted_rows() {
            self.forget();
            return self.take_of_copies(table, at);
        }
        let mut rows = Image::with_capacity(table.shape(), self.bytes);
        // SAFETY: the rows are slots of the table, and no transaction runs.
        let next = self.take_of_memory(table, at, |row| unsafe { table.copy_without_texts(row, &mut rows) });
        self.bytes = rows.bytes();
        Ok(RowsAt { rows, next })
    }

    /// Takes the due rows as [`Earliest::take`] does: passes their addresses to `each`, and returns the least value of
    /// the others. An evicted row is fetched. Slots may be made meanwhile.
    pub fn take_each(
        &mut self,
        table: &Table,
        at: Option<i64>,
        mut each: impl FnMut(RowAddress),
    ) -> Result<Option<i64>, EvictedError> {
        if !table.has_evicted_rows() {
            return Ok(self.take_of_memory(table, at, each));
        }
        self.forget();
        let RowsAt { rows, next } = self.take_of_copies(table, at)?;
        (0..rows.len()).for_each(|row| each(address(table, &rows, row)));
        Ok(next)
    }

    fn take_of_memory(&mut self, table: &Table, at: Option<i64>, each: impl FnMut(RowAddress)) -> Option<i64> {
        let found = match self.heap.take() {
            Some(heap) => self.take_of_heap(table, heap, at, each),
            None => self.take_of_all(table, at, each),
        };
        let slots = table.nodes().read().slots();
        self.touched_max = FEW + slots / PART;
        if self.heap.as_ref().is_some_and(|heap| heap.len() > FEW + 2 * slots) {
            self.forget();
        }
        found
    }

    /// Returns the number of slots, entries and copies that were looked at so far.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Makes the next look be at all slots.
    fn forget(&mut self) {
        (self.heap, self.touched) = (None, Vec::new());
    }

    /// The value of a row, if the row exists and has one.
    fn value(&mut self, table: &Table, row: RowAddress) -> Option<i64> {
        self.looked_at += 1;
        let (word, bit) = self.null;
        // SAFETY: by the caller of `touch` or from the table's own nodes: a slot, if perhaps of another key by now. No
        // transaction runs.
        unsafe { (table.exists(row) && read(row, word) & bit == 0).then(|| read(row, self.cell) as i64) }
    }

    fn take_of_heap(
        &mut self,
        table: &Table,
        mut heap: BinaryHeap<Entry>,
        at: Option<i64>,
        mut each: impl FnMut(RowAddress),
    ) -> Option<i64> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for &row in &touched {
            heap.extend(self.value(table, row).map(|value| Reverse((value, row))));
        }
        touched.clear();
        self.touched = touched;
        let (mut taken, mut next) = (0, None);
        while let Some(&Reverse((value, row))) = heap.peek() {
            let holds = self.value(table, row) == Some(value);
            if holds && at != Some(value) {
                next = Some(value);
                break;
            }
            heap.pop();
            // The entries of one row and value come one after the other.
            if holds && row != taken {
                taken = row;
                each(row);
            }
        }
        check(at, next);
        self.heap = Some(heap);
        next
    }

    fn take_of_all(&mut self, table: &Table, at: Option<i64>, mut each: impl FnMut(RowAddress)) -> Option<i64> {
        let (mut taken, mut others) = (0, Vec::new());
        let before = self.looked_at;
        for node in 0..VIRTUAL_NODE_COUNT {
            let mut look = |row| match self.value(table, row) {
                Some(value) if at == Some(value) => {
                    taken += 1;
                    each(row);
                }
                Some(value) => others.push(Reverse((value, row))),
                None => {}
            };
            let chunks = (0..).find(|&chunk| !table.each_slot_of(node, chunk, &mut look));
            debug_assert!(chunks.is_some(), "a node's chunks come to an end");
        }
        let next = others.iter().map(|&Reverse((value, _))| value).min();
        check(at, next);
        let is_worth_it = PART * taken <= (self.looked_at - before) as usize;
        self.heap = is_worth_it.then(|| BinaryHeap::from(others));
        next
    }

    /// Takes the due rows of a table that may have evicted ones: all rows are read and copied.
    fn take_of_copies(&mut self, table: &Table, at: Option<i64>) -> Result<RowsAt, EvictedError> {
        let (all, word, (header, null)) = (table.copy_all()?, self.cell / 8, self.null);
        self.looked_at += all.len() as u64;
        let (mut rows, mut next) = (Image::new(table.shape()), None);
        for row in 0..all.len() {
            if all.row(row)[header / 8] & null != 0 {
                continue;
            }
            let value = all.row(row)[word] as i64;
            if at == Some(value) {
                rows.push_of(&all, row);
            } else {
                next = Some(next.map_or(value, |least: i64| least.min(value)));
            }
        }
        check(at, next);
        Ok(RowsAt { rows, next })
    }
}

/// Returns the slot of a copied row; the row is fetched if it has none.
fn address(table: &Table, rows: &Image, row: usize) -> RowAddress {
    let (shape, words) = (table.shape(), rows.row(row));
    let text = |&word: &usize| [if shape.is_text(word) { rows.text(row, word) } else { &[][..] }];
    let texts: Vec<[&[u8]; 1]> = shape.key.iter().map(text).collect();
    let columns = shape.key.iter().zip(&texts).map(|(&word, text)| match shape.is_text(word) {
        true => KeyColumn::Texts(KeyTexts::new(text.as_slice())),
        false => KeyColumn::Words(&words[word..=word]),
    });
    let columns: Vec<KeyColumn<'_>> = columns.collect();
    let mut found = [0];
    table.resolve(&Keys { columns: &columns, nulls: None, len: 1 }, &mut found);
    found[0]
}

fn check(at: Option<i64>, next: Option<i64>) {
    assert!(at.is_none_or(|at| next.is_none_or(|next| next > at)), "a row was not taken at its value");
}
