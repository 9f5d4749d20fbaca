//! Filling a table from copies of rows, many virtual nodes at once. Any thread fills a share of the nodes apart from
//! the table; then the share is put into the table.

use crate::blob;
use crate::hash::virtual_node_of;
use crate::homes::RowArenas;
use crate::image::Image;
use crate::rows::{RowAddress, Rows, write};
use crate::sync::writes_row;
use crate::table::Table;

/// Virtual nodes with rows, to be put into a table.
pub struct Filled {
    first: usize,
    nodes: Vec<(Rows, Vec<RowAddress>)>,
    row_arenas: RowArenas,
}

impl Table {
    /// Makes slots from copied rows: all existing rows of some virtual nodes, in the order of their hashes. Panics if
    /// a row is of another node, or is a deletion.
    pub fn fill_nodes(&self, nodes: std::ops::Range<usize>, image: &Image) -> Filled {
        let row_arenas = RowArenas::new(self.arenas().rows.homes(), self.marks().bytes());
        let (mut at, mut text_bytes) = (0, 0);
        let mut filled = Vec::with_capacity(nodes.len());
        for node in nodes.clone() {
            let mut rows = Rows::new(self.layout().size());
            let mut slots = Vec::new();
            while at < image.len() && virtual_node_of(image.hash(at)) == node {
                assert!(image.exists(at), "only rows are filled in");
                let slot = rows.allocate(row_arenas.of_node(node));
                text_bytes += self.fill_words(slot, image, at, |_| true);
                slots.push(slot);
                at += 1;
            }
            filled.push((rows, slots));
        }
        assert_eq!(at, image.len(), "rows of other nodes, or out of order");
        self.text_bytes().add(text_bytes);
        Filled { first: nodes.start, nodes: filled, row_arenas }
    }

    /// Writes the cells of a copied row, except those of its key, into a slot with that key. Returns the bytes of
    /// memory that their texts take.
    pub(crate) fn fill_cells(&self, slot: RowAddress, image: &Image, row: usize) -> usize {
        self.fill_words(slot, image, row, |word| !self.shape().key.contains(&word))
    }

    /// Writes some words of a copied row into a fresh slot; returns the bytes of memory that their texts take.
    fn fill_words(&self, slot: RowAddress, image: &Image, row: usize, is_wanted: impl Fn(usize) -> bool) -> usize {
        let mut text_bytes = 0;
        writes_row(slot);
        for (word, &value) in image.row(row).iter().enumerate().filter(|(word, _)| is_wanted(*word)) {
            let value = match self.shape().is_text(word) {
                true => {
                    let text = image.text(row, word);
                    text_bytes += blob::size(text.len());
                    blob::new(text)
                }
                false => value,
            };
            // SAFETY: a fresh slot that no other thread knows; the words lie inside its layout.
            unsafe { write(slot, 8 * word, value) };
        }
        text_bytes
    }

    /// Replaces empty nodes by filled ones.
    pub fn put(&self, filled: Filled) {
        let Filled { first, nodes, row_arenas } = filled;
        self.install(first, nodes, row_arenas);
    }
}
