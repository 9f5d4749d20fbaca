//! The rows of a table that a selection chooses, for a transaction that reads them.
//!
//! Nothing is kept between two scans but indexes ([`ColumnIndex`]). With one that fits, only the rows are looked at that pass
//! its conditions, and with one that has the order, no more of them than are wanted; without one all slots are looked at. The
//! k rows that pass are sorted, k log k, unless an index has the order.

use crate::blob;
use crate::column_index::ColumnIndex;
use crate::rows::{RowAddress, read};
use crate::table::Table;
use std::cmp::Ordering;
use tidemill_model::{Type, VIRTUAL_NODE_COUNT};
use tidemill_plan::{Condition, Direction, Fit, Order, Selection, Test};

/// The value of a cell, or what one is compared with. Two of one column have an order: words by number, floats by IEEE, text
/// and bytes by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum CellValue<'a> {
    /// No value. Equal to itself.
    None,
    /// A bool, int, time or decimal.
    Word(i64),
    /// A float.
    Float(f64),
    /// A text or bytes.
    Text(&'a [u8]),
}

impl CellValue<'_> {
    /// Returns whether it has a place in the order of values: no value and NaN have none.
    fn has_place(&self) -> bool {
        *self != CellValue::None && self.partial_cmp(self).is_some()
    }
}

/// The condition on a column by which rows are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Search<'a> {
    /// The rows with this value.
    Same(CellValue<'a>),
    /// The rows with a value within bounds, both included; a bound of no value bounds nothing.
    Between(CellValue<'a>, CellValue<'a>),
}

impl Search<'_> {
    fn holds(&self, value: CellValue<'_>) -> bool {
        match self {
            Search::Same(other) => value == *other,
            Search::Between(low, high) => {
                let is_within = |bound: &CellValue<'_>, holds: fn(Ordering) -> bool| {
                    *bound == CellValue::None || value.partial_cmp(bound).is_some_and(holds)
                };
                value.has_place() && is_within(low, Ordering::is_ge) && is_within(high, Ordering::is_le)
            }
        }
    }
}

impl Table {
    /// Appends the addresses of the rows that exist and that the selection chooses, in its order; without one, in that of
    /// their keys: words by number, text and bytes by their bytes, column by column. Slots may be made meanwhile.
    ///
    /// `values`: those of [`Selection::values`]. `indexes`: those of this table.
    ///
    /// # Safety
    /// No thread writes a row of this table meanwhile, and no row of it is evicted. The indexes are of this table.
    pub unsafe fn select(
        &self,
        selection: &Selection,
        values: &[CellValue<'_>],
        indexes: &mut [ColumnIndex],
        rows: &mut Vec<RowAddress>,
    ) {
        let (first, searches) = (rows.len(), searches(&selection.conditions, values));
        let order = selection.order.as_ref();
        let fits = indexes.iter_mut().filter_map(|index| Some((selection.fit(index.columns())?, index)));
        let best = fits.max_by_key(|(fit, _)| fit.rank());
        let holds = |row: RowAddress, fit: Option<&Fit>| {
            let mut left =
                searches.iter().enumerate().filter(|(number, _)| !fit.is_some_and(|fit| fit.serves(*number)));
            left.all(|(_, (column, search))| search.holds(self.comparable(row, *column)))
        };
        match best {
            Some((fit, index)) => {
                // SAFETY: by the caller.
                unsafe { index.find(self, (&fit, &searches, order), |row| holds(row, Some(&fit)), rows) };
                if fit.is_ordered {
                    return;
                }
            }
            // SAFETY: by the caller.
            None => unsafe {
                self.each_existing(|row| {
                    if holds(row, None) {
                        rows.push(row);
                    }
                });
            },
        }
        rows[first..].sort_unstable_by(|&left, &right| self.compare_keys(left, right));
        if let Some(order) = order {
            rows[first..].sort_by(|&left, &right| self.compare_by(order, left, right));
            rows.truncate(first.saturating_add(usize::try_from(order.count).unwrap_or(usize::MAX)));
        }
    }

    /// Calls `each` for all rows that exist, in no order.
    ///
    /// # Safety
    /// No thread writes a header of this table meanwhile, and no row of it is evicted.
    pub(crate) unsafe fn each_existing(&self, mut each: impl FnMut(RowAddress)) {
        for node in 0..VIRTUAL_NODE_COUNT {
            let mut visit = |chunk| {
                self.each_slot_of(node, chunk, |row| {
                    // SAFETY: a slot of this table; by the caller no thread writes it.
                    if unsafe { self.exists(row) } {
                        each(row);
                    }
                })
            };
            let chunks = (0..).find(|&chunk| !visit(chunk));
            debug_assert!(chunks.is_some(), "a node's chunks come to an end");
        }
    }

    /// Returns a part of the key of a row, by its number: a word or a text, which stays where it is until slots are
    /// freed.
    ///
    /// # Safety
    /// `row` is a row of this table, found since slots were freed last.
    pub unsafe fn key_part(&self, row: RowAddress, part: usize) -> CellValue<'_> {
        let cell = &self.key_cells()[part];
        // SAFETY: by the caller; key cells never change and own live blobs (invariants 2 and 4).
        unsafe {
            let word = read(row, cell.offset);
            match cell.text {
                true => CellValue::Text(blob::bytes(word)),
                false => CellValue::Word(word as i64),
            }
        }
    }

    pub(crate) fn compare_keys(&self, left: RowAddress, right: RowAddress) -> Ordering {
        let parts = self.key_cells().iter().map(|cell| {
            // SAFETY: slots of this table, whose key cells never change and own live blobs (invariants 2 and 4).
            unsafe {
                let (left, right) = (read(left, cell.offset), read(right, cell.offset));
                match cell.text {
                    true => blob::bytes(left).cmp(blob::bytes(right)),
                    false => (left as i64).cmp(&(right as i64)),
                }
            }
        });
        parts.fold(Ordering::Equal, Ordering::then)
    }

    /// Compares two rows by the value of a column: values without a place come last in both directions.
    fn compare_by(&self, order: &Order, left: RowAddress, right: RowAddress) -> Ordering {
        let (left, right) = (self.comparable(left, order.column), self.comparable(right, order.column));
        match (left.partial_cmp(&right), order.direction) {
            _ if !left.has_place() || !right.has_place() => right.has_place().cmp(&left.has_place()),
            (Some(ordering), Direction::Ascending) => ordering,
            (Some(ordering), Direction::Descending) => ordering.reverse(),
            (None, _) => unreachable!("values that have a place can be compared"),
        }
    }

    /// Returns the value of a cell of an existing row that no thread writes. The text lives until the row is written.
    pub(crate) fn comparable<'a>(&self, row: RowAddress, column: usize) -> CellValue<'a> {
        let (header, bit) = self.layout().null_bit(column);
        // SAFETY: by the callers a slot of this table, which owns live blobs (invariant 4).
        unsafe {
            if read(row, header) & bit != 0 {
                return CellValue::None;
            }
            let word = read(row, self.layout().cell(column));
            match self.definition().columns[column].ty.ty {
                Type::Str | Type::Bytes => CellValue::Text(blob::bytes(word)),
                Type::Float => CellValue::Float(f64::from_bits(word)),
                _ => CellValue::Word(word as i64),
            }
        }
    }
}

/// Returns the columns of conditions, and what is looked for in them.
fn searches<'a>(conditions: &[Condition], values: &[CellValue<'a>]) -> Vec<(usize, Search<'a>)> {
    let mut values = values.iter().copied();
    let mut next = || values.next().expect("each value of a selection is given");
    let search = |Condition { column, test }: &Condition| {
        let search = match test {
            Test::Same(_) => Search::Same(next()),
            Test::Between { low, high } => {
                let mut bound = |given: bool| if given { next() } else { CellValue::None };
                let low = bound(low.is_some());
                Search::Between(low, bound(high.is_some()))
            }
        };
        (*column, search)
    };
    let searches = conditions.iter().map(search).collect();
    assert!(values.next().is_none(), "each value belongs to a condition");
    searches
}
