//! The parts of a row that its copies contain.

use crate::layout::RowLayout;
use tidemill_plan::Table;

/// The used words of a row: its header, then a cell per column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowShape {
    /// Number of words.
    pub words: usize,
    /// The words of the key, in the order of its parts.
    pub key: Vec<usize>,
    /// The words that stand for a text or bytes, in order.
    pub texts: Vec<usize>,
}

impl RowShape {
    /// Returns the shape of a table's rows.
    pub fn of(table: &Table) -> RowShape {
        let layout = RowLayout::of(table);
        let word = |column: usize| layout.cell(column) / 8;
        let is_text = |column: &usize| table.columns[*column].ty.ty.is_bytes();
        RowShape {
            words: layout.header_words() + table.columns.len(),
            key: table.key.iter().map(|&column| word(column)).collect(),
            texts: (0..table.columns.len()).filter(is_text).map(word).collect(),
        }
    }

    /// Returns whether a word stands for a text.
    #[inline]
    pub fn is_text(&self, word: usize) -> bool {
        self.texts.contains(&word)
    }
}
