//! The output of a loop, row by row.

use crate::workloads::input::Output;

/// Columns in the making.
pub struct Rows<const COLUMNS: usize> {
    names: [&'static str; COLUMNS],
    columns: [Vec<i64>; COLUMNS],
}

impl<const COLUMNS: usize> Rows<COLUMNS> {
    /// Makes an output without rows.
    pub fn new(names: [&'static str; COLUMNS]) -> Self {
        Rows { names, columns: std::array::from_fn(|_| Vec::new()) }
    }

    /// Adds a row; floats as their bits.
    #[inline(always)]
    pub fn push(&mut self, row: [i64; COLUMNS]) {
        self.columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }

    /// Returns all rows.
    pub fn output(self) -> Output {
        self.names.into_iter().zip(self.columns).collect()
    }
}
