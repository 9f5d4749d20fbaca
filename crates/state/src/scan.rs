//! All rows of a table in the order of their keys, for a transaction that reads them.
//!
//! Nothing is kept between two scans: each looks at all slots and sorts the rows that exist, n log n for n of them. A table
//! that is scanned often should be small.

use crate::blob;
use crate::rows::{RowAddress, read};
use crate::table::Table;
use std::cmp::Ordering;
use tidemill_model::VIRTUAL_NODE_COUNT;

impl Table {
    /// Appends the addresses of the rows that exist, in the order of their keys: words by number, text and bytes by their
    /// bytes, column by column. Slots may be made meanwhile.
    ///
    /// # Safety
    /// No thread writes a row of this table meanwhile, and no row of it is evicted.
    pub unsafe fn scan(&self, rows: &mut Vec<RowAddress>) {
        let first = rows.len();
        for node in 0..VIRTUAL_NODE_COUNT {
            let mut add = |chunk| {
                self.each_slot_of(node, chunk, |row| {
                    // SAFETY: a slot of this table; by the caller no thread writes it.
                    if unsafe { self.exists(row) } {
                        rows.push(row);
                    }
                })
            };
            let chunks = (0..).find(|&chunk| !add(chunk));
            debug_assert!(chunks.is_some(), "a node's chunks come to an end");
        }
        rows[first..].sort_unstable_by(|&left, &right| self.compare_keys(left, right));
    }

    fn compare_keys(&self, left: RowAddress, right: RowAddress) -> Ordering {
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
}
