//! An index of columns: rows with given values, with values within bounds, or the first by a column, without a look at all
//! rows.
//!
//! **What.** A sorted map from entries to the slots of rows, and from each of these slots back to its entry. An entry is the
//! row's values of the columns of the index, then its key, as bytes that sort as the values do. So all rows with the same
//! first values are neighbours, in the order of the next value, and rows of equal values in the order of their keys. The
//! thread that is about to write rows says so ([`ColumnIndex::touch`]); the next search reads the touched slots and moves
//! those whose entry is another. So an abort needs nothing, as long as the rows that it puts back are touched after they were
//! last read.
//!
//! **Invariant.** While there is a map, each existing row is in it under its present entry, or among the touched, and each
//! slot in it without an existing row is among the touched.
//! **Without a map** a search goes over all slots, and makes a map. So it is at first, and after more touches than a quarter
//! of the rows: then that costs no more than they, up to a constant.
//! **Cost.** A search costs what was touched, each by the logarithm of the map, and what it looks at. Eight bytes a touch; a
//! row takes two entries, which share their bytes.
//!
//! Sweeps free slots of rows that were deleted, and other keys may get them: the delete and the insert have touched them.

use crate::rows::RowAddress;
use crate::scan::{CellValue, Search};
use crate::table::Table;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidemill_plan::{Direction, Fit, Order};

/// There may always be as many touches.
const FEW: usize = 1024;
/// One in this many rows is touched at most.
const PART: usize = 4;

/// Values one after the other, each as bytes of which none begins another's, and that sort as the values.
type Entry = Arc<[u8]>;

/// The first byte of an encoded value, by kind.
const NONE: u8 = 0;
const WORD: u8 = 1;
const TEXT: u8 = 2;
/// No value begins with this or a greater byte.
const BEYOND: u8 = 3;

fn encode(value: CellValue<'_>, into: &mut Vec<u8>) {
    match value {
        CellValue::None => into.push(NONE),
        CellValue::Word(word) => {
            into.push(WORD);
            into.extend((word ^ i64::MIN).to_be_bytes());
        }
        CellValue::Text(text) => {
            into.push(TEXT);
            // A zero within is told from the end by what follows it.
            text.iter()
                .for_each(|&byte| into.extend(if byte == 0 { &[0, 1][..] } else { std::slice::from_ref(&byte) }));
            into.extend([0, 0]);
        }
        CellValue::Float(_) => unreachable!("analysis refuses indexes of floats"),
    }
}

/// Returns the length of the value that encoded values begin with.
fn first_length(entry: &[u8]) -> usize {
    match entry[0] {
        NONE => 1,
        WORD => 1 + size_of::<i64>(),
        _ => {
            let mut at = 1;
            while entry[at..at + 2] != [0, 0] {
                at += if entry[at] == 0 { 2 } else { 1 };
            }
            at + 2
        }
    }
}

#[derive(Default)]
struct Map {
    rows: BTreeMap<Entry, RowAddress>,
    entries: BTreeMap<RowAddress, Entry>,
}

impl Map {
    fn put(&mut self, row: RowAddress, entry: Option<&[u8]>) {
        if self.entries.get(&row).map(|entry| &**entry) == entry {
            return;
        }
        if let Some(old) = self.entries.remove(&row)
            && self.rows.get(&old) == Some(&row)
        {
            self.rows.remove(&old);
        }
        if let Some(entry) = entry {
            let entry = Entry::from(entry);
            self.rows.insert(entry.clone(), row);
            self.entries.insert(row, entry);
        }
    }

    /// Returns the entries from one to before another.
    fn range(&self, within: Range<&[u8]>) -> impl DoubleEndedIterator<Item = (&Entry, RowAddress)> {
        let (from, to) = (Entry::from(within.start), Entry::from(within.end));
        let to = if from <= to { to } else { from.clone() };
        self.rows.range(from..to).map(|(entry, &row)| (entry, row))
    }
}

/// Finds rows of a table by the values of columns, none of which has floats.
pub struct ColumnIndex {
    columns: Vec<usize>,
    map: Option<Map>,
    /// Slots whose rows may have changed since they were last read; none without a map.
    touched: Vec<RowAddress>,
    touched_max: usize,
    looked_at: u64,
}

impl ColumnIndex {
    /// Makes an index of columns of a table, the first of which counts most.
    pub fn new(columns: Vec<usize>) -> ColumnIndex {
        ColumnIndex { columns, map: None, touched: Vec::new(), touched_max: 0, looked_at: 0 }
    }

    /// Returns the number of rows that were looked at.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Notes that rows may change before the next search; 0 stands for no row.
    ///
    /// # Safety
    /// The rows are slots of the table that is searched.
    pub unsafe fn touch(&mut self, rows: &[RowAddress]) {
        if self.map.is_none() {
            return;
        }
        if self.touched.len() + rows.len() > self.touched_max {
            self.forget();
        } else {
            self.touched.extend(rows.iter().filter(|&&row| row != 0));
        }
    }

    /// Drops the map: rows were written without a touch.
    pub fn forget(&mut self) {
        self.map = None;
        self.touched = Vec::new();
    }

    /// Returns its columns.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Appends the slots of the rows that exist, that the searches of `fit` find, and that hold: in `order`, and no more than
    /// it says, where `fit` has it; else in no order. `fit` is of this index, `searches` are by condition.
    ///
    /// # Safety
    /// It is the table of all touches. No thread writes a row of it meanwhile, and no row of it is evicted.
    pub(crate) unsafe fn find(
        &mut self,
        table: &Table,
        (fit, searches, order): (&Fit, &[(usize, Search<'_>)], Option<&Order>),
        holds: impl Fn(RowAddress) -> bool,
        found: &mut Vec<RowAddress>,
    ) {
        // SAFETY: by the caller.
        unsafe { self.refresh(table) };
        let map = self.map.as_ref().expect("it was refreshed");
        let mut prefix = Vec::new();
        for &search in &fit.same {
            let Search::Same(value) = searches[search].1 else { unreachable!("a search for the same value") };
            encode(value, &mut prefix);
        }
        let with = |more: &[u8]| [prefix.as_slice(), more].concat();
        let bound = |value: CellValue<'_>, end: Option<u8>, unbounded: u8| {
            let mut bound = prefix.clone();
            match value {
                CellValue::None => bound.push(unbounded),
                value => {
                    encode(value, &mut bound);
                    bound.extend(end);
                }
            }
            bound
        };
        // Values come after no value, which is between no bounds.
        let (from, to) = match fit.between.map(|search| searches[search].1) {
            Some(Search::Between(low, high)) => (bound(low, None, WORD), bound(high, Some(BEYOND), BEYOND)),
            _ => (with(if fit.is_ordered { &[WORD] } else { &[] }), with(&[BEYOND])),
        };
        let looked_at = &mut self.looked_at;
        let mut holds = |row: RowAddress| {
            *looked_at += 1;
            holds(row)
        };
        let Some(order) = order.filter(|_| fit.is_ordered) else {
            found.extend(map.range(&from..&to).map(|(_, row)| row).filter(|&row| holds(row)));
            return;
        };
        let most = found.len().saturating_add(usize::try_from(order.count).unwrap_or(usize::MAX));
        let mut walk = Walk { map, is_by_key: fit.same.len() + 1 == self.columns.len(), table, most, found };
        match order.direction {
            Direction::Ascending if walk.is_by_key => walk.take(&from..&to, &mut holds),
            direction => walk.take_alike(prefix.len(), from..to, direction, &mut holds),
        }
        if fit.between.is_none() {
            // Those without a value come last in both directions.
            walk.take_all_alike(&with(&[NONE])..&with(&[WORD]), &mut holds);
        }
    }

    /// Reads what was touched, or all rows where there is no map.
    ///
    /// # Safety
    /// As for [`ColumnIndex::find`].
    unsafe fn refresh(&mut self, table: &Table) {
        let mut entry = Vec::new();
        if let Some(map) = &mut self.map {
            self.looked_at += self.touched.len() as u64;
            self.touched.sort_unstable();
            self.touched.dedup();
            for row in self.touched.drain(..) {
                // SAFETY: a slot of this table that no thread writes, by the callers.
                let exists = unsafe { table.exists(row) };
                if exists {
                    enter(table, &self.columns, row, &mut entry);
                }
                map.put(row, exists.then_some(&entry));
            }
            return;
        }
        let mut map = Map::default();
        // SAFETY: by the caller.
        unsafe {
            table.each_existing(|row| {
                enter(table, &self.columns, row, &mut entry);
                map.put(row, Some(&entry));
            });
        }
        self.looked_at += map.entries.len() as u64;
        self.touched_max = FEW.max(map.entries.len() / PART);
        self.map = Some(map);
    }
}

/// Appends the entry of an existing row.
fn enter(table: &Table, columns: &[usize], row: RowAddress, entry: &mut Vec<u8>) {
    entry.clear();
    columns.iter().for_each(|&column| encode(table.comparable(row, column), entry));
    table.definition().key.iter().for_each(|&column| encode(table.comparable(row, column), entry));
}

/// Takes rows in order, up to a number.
struct Walk<'a> {
    map: &'a Map,
    /// A flag: whether the entries of equal values are in the order of keys.
    is_by_key: bool,
    table: &'a Table,
    /// The most that are found in the end.
    most: usize,
    found: &'a mut Vec<RowAddress>,
}

impl Walk<'_> {
    /// Takes entries as they come.
    fn take(&mut self, within: Range<&[u8]>, holds: &mut impl FnMut(RowAddress) -> bool) {
        let left = self.most.saturating_sub(self.found.len());
        self.found.extend(self.map.range(within).map(|(_, row)| row).filter(|&row| holds(row)).take(left));
    }

    /// Takes entries that are alike in the value that the order is by, in the order of their keys.
    fn take_all_alike(&mut self, within: Range<&[u8]>, holds: &mut impl FnMut(RowAddress) -> bool) {
        if self.is_by_key {
            return self.take(within, holds);
        }
        let first = self.found.len();
        self.found.extend(self.map.range(within).map(|(_, row)| row).filter(|&row| holds(row)));
        self.found[first..].sort_unstable_by(|&left, &right| self.table.compare_keys(left, right));
        self.found.truncate(self.most.max(first));
    }

    /// Takes value by value, the entries of each in the order of their keys. `before`: how long what stands before the value
    /// is.
    fn take_alike(
        &mut self,
        before: usize,
        within: Range<Vec<u8>>,
        direction: Direction,
        holds: &mut impl FnMut(RowAddress) -> bool,
    ) {
        let Range { start: mut from, end: mut to } = within;
        while self.found.len() < self.most {
            let next = {
                let mut left = self.map.range(&from..&to);
                if direction == Direction::Ascending { left.next() } else { left.next_back() }
            };
            let Some((entry, _)) = next else { return };
            let alike = &entry[..before + first_length(&entry[before..])];
            let end = [alike, &[BEYOND]].concat();
            self.take_all_alike(alike..&end, holds);
            match direction {
                Direction::Ascending => from = end,
                Direction::Descending => to = alike.to_vec(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_sort_as_values_do() {
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "ÿ"];
        let words = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
        let ordered = std::iter::once(CellValue::None)
            .chain(words.map(CellValue::Word))
            .chain(texts.iter().map(|text| CellValue::Text(text.as_bytes())));
        let mut encoded = Vec::new();
        for value in ordered {
            for after in [CellValue::None, CellValue::Word(-7), CellValue::Text(b"z")] {
                let mut entry = Vec::new();
                encode(value, &mut entry);
                let length = entry.len();
                encode(after, &mut entry);
                assert_eq!(first_length(&entry), length, "{value:?}");
                encoded.push(entry);
            }
        }
        assert!(encoded.is_sorted(), "{encoded:?}");
    }
}
