//! The places of a row's bits.

use tidemill_plan::Table;

/// Bit of the first header word that says whether the row exists.
pub const EXISTS: u64 = 1;

/// A row: header words (bit 0: exists; bit 1 + c: column c is null), then one cell per column.
/// All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    header_words: usize,
    columns: usize,
}

impl RowLayout {
    /// Returns the layout of a table's rows.
    pub fn of(table: &Table) -> Self {
        let columns = table.columns.len();
        RowLayout { header_words: (columns + 1).div_ceil(64), columns }
    }

    /// Returns the offset of a column's cell, in bytes.
    pub fn cell(&self, column: usize) -> usize {
        debug_assert!(column < self.columns);
        8 * (self.header_words + column)
    }

    /// Returns the offset of the header word that holds a column's null bit, and the bit as a mask.
    pub fn null_bit(&self, column: usize) -> (usize, u64) {
        let bit = column + 1;
        (8 * (bit / 64), 1 << (bit % 64))
    }

    /// Returns the number of header words.
    pub fn header_words(&self) -> usize {
        self.header_words
    }

    /// Returns the size of a row in bytes: padded so that a small row never straddles a cache line.
    pub fn size(&self) -> usize {
        let exact = 8 * (self.header_words + self.columns);
        if exact <= 64 { exact.next_power_of_two() } else { exact.next_multiple_of(64) }
    }
}
