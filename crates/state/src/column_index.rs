//! An index of a column: the rows with a value, or with values within bounds, without a look at all rows.
//!
//! **What.** A sorted map from each value of the column to the slots of the rows that have it, and from each of these slots
//! back to its value. The thread that is about to write rows says so ([`ColumnIndex::touch`]); the next search reads the
//! touched slots and moves those whose value is another. So an abort needs nothing, as long as the rows that it puts back
//! are touched after they were last read.
//!
//! **Invariant.** While there is a map, each existing row is in it under its present value, or among the touched, and each
//! slot in it without an existing row is among the touched.
//! **Without a map** a search goes over all slots, and makes a map. So it is at first, and after more touches than a quarter
//! of the rows: then that costs no more than they, up to a constant.
//! **Cost.** A search costs what was touched, each by the logarithm of the map, and what it finds. Eight bytes a touch; a
//! row takes two entries, with a copy of its value.
//!
//! Sweeps free slots of rows that were deleted, and other keys may get them: the delete and the insert have touched them.

use crate::rows::RowAddress;
use crate::scan::CellValue;
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// There may always be as many touches.
const FEW: usize = 1024;
/// One in this many rows is touched at most.
const PART: usize = 4;

/// A value of the column, in the order of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    None,
    Word(i64),
    Text(Box<[u8]>),
}

impl Entry {
    fn of(value: CellValue<'_>) -> Entry {
        match value {
            CellValue::None => Entry::None,
            CellValue::Word(word) => Entry::Word(word),
            CellValue::Text(text) => Entry::Text(text.into()),
            CellValue::Float(_) => unreachable!("analysis refuses indexes of floats"),
        }
    }
}

/// What rows of a column are looked for.
#[derive(Clone, Copy, Debug)]
pub enum Search<'a> {
    /// Those with this value.
    Same(CellValue<'a>),
    /// Those with a value within bounds, both included; a bound of no value bounds nothing.
    Between(CellValue<'a>, CellValue<'a>),
}

#[derive(Default)]
struct Map {
    rows: BTreeMap<Entry, BTreeSet<RowAddress>>,
    values: BTreeMap<RowAddress, Entry>,
}

impl Map {
    fn put(&mut self, row: RowAddress, value: Option<CellValue<'_>>) {
        let value = value.map(Entry::of);
        if self.values.get(&row) == value.as_ref() {
            return;
        }
        if let Some(old) = self.values.remove(&row) {
            let rows = self.rows.get_mut(&old).expect("a row is under its value");
            assert!(rows.remove(&row), "a row is under its value");
            if rows.is_empty() {
                self.rows.remove(&old);
            }
        }
        if let Some(value) = value {
            self.rows.entry(value.clone()).or_default().insert(row);
            self.values.insert(row, value);
        }
    }
}

/// Finds rows of a table by the value of a column that has no floats.
pub struct ColumnIndex {
    column: usize,
    map: Option<Map>,
    /// Slots whose rows may have changed since they were last read; none without a map.
    touched: Vec<RowAddress>,
    touched_max: usize,
    looked_at: u64,
}

impl ColumnIndex {
    /// For a column of a table.
    pub fn new(column: usize) -> ColumnIndex {
        ColumnIndex { column, map: None, touched: Vec::new(), touched_max: 0, looked_at: 0 }
    }

    /// The column.
    pub fn column(&self) -> usize {
        self.column
    }

    /// How many rows were looked at.
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

    /// Appends the slots of the rows that exist and are looked for, in no order.
    ///
    /// # Safety
    /// It is the table of all touches. No thread writes a row of it meanwhile, and no row of it is evicted.
    pub(crate) unsafe fn find(&mut self, table: &Table, search: Search<'_>, found: &mut Vec<RowAddress>) {
        let column = self.column;
        let map = match &mut self.map {
            Some(map) => {
                self.looked_at += self.touched.len() as u64;
                for row in self.touched.drain(..) {
                    // SAFETY: a slot of this table that no thread writes, by the callers.
                    map.put(row, unsafe { table.exists(row) }.then(|| table.comparable(row, column)));
                }
                map
            }
            None => {
                let mut map = Map::default();
                // SAFETY: by the caller.
                unsafe { table.each_existing(|row| map.put(row, Some(table.comparable(row, column)))) };
                self.looked_at += map.values.len() as u64;
                self.touched_max = FEW.max(map.values.len() / PART);
                self.map.insert(map)
            }
        };
        let before = found.len();
        match search {
            Search::Same(value) => found.extend(map.rows.get(&Entry::of(value)).into_iter().flatten()),
            Search::Between(low, high) => {
                let (low, high) = (Entry::of(low), Entry::of(high));
                if high != Entry::None && low > high {
                    return;
                }
                // Rows without a value come first, and are between no bounds.
                let low = if low == Entry::None { Bound::Excluded(low) } else { Bound::Included(low) };
                let high = if high == Entry::None { Bound::Unbounded } else { Bound::Included(high) };
                found.extend(map.rows.range((low, high)).flat_map(|(_, rows)| rows));
            }
        }
        self.looked_at += (found.len() - before) as u64;
    }
}
