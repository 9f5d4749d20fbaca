//! Where the bits of a row lie.

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
    /// The layout of a table's rows.
    pub fn of(table: &Table) -> Self {
        let columns = table.columns.len();
        RowLayout { header_words: (columns + 1).div_ceil(64), columns }
    }

    /// Offset of a column's cell.
    pub fn cell(&self, column: usize) -> usize {
        debug_assert!(column < self.columns);
        8 * (self.header_words + column)
    }

    /// Offset of the header word that holds a column's null bit, and the bit as a mask.
    pub fn null_bit(&self, column: usize) -> (usize, u64) {
        let bit = column + 1;
        (8 * (bit / 64), 1 << (bit % 64))
    }

    /// Number of header words.
    pub fn header_words(&self) -> usize {
        self.header_words
    }

    /// Size of a row: padded so that a small row never straddles a cache line.
    pub fn size(&self) -> usize {
        let exact = 8 * (self.header_words + self.columns);
        if exact <= 64 { exact.next_power_of_two() } else { exact.next_multiple_of(64) }
    }
}
