//! Tables of which only some rows are in memory. The other rows are *evicted*: they are on the medium.
//!
//! **What.** In a table with evicted rows, a key without a slot has the row that [`EvictedRows`] returns, or none.
//! [`Table::resolve`] reads the rows of all keys that it does not find, in one batch, and makes their slots from
//! them. [`Table::choose`] and [`Table::remove`] evict slots.
//! **Invariant.** *A key without a slot has the row that [`EvictedRows`] returns.* A slot is made with that row before
//! any thread can write it. It is evicted, while nothing is in flight, only if [`EvictedRows`] has the same version of
//! its row: because the row has no mark, or because it was handed over to be stored there. So a deletion needs no
//! grave here: its slot keeps a mark until then.
//! **Traded away.** Such a table has no array part, because the array would have an entry for each evicted key.

use crate::evicted_rows::{EvictedError, EvictedRows};
use crate::image::Image;
use crate::marks::Generation;
use crate::nodes::Nodes;
use crate::table::Table;
use std::sync::Arc;

/// The memory of a table that may have evicted rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMemory {
    /// Bytes of rows, indexes, texts, and the copies made by a checkpoint's snapshot in progress. Copies for readers are
    /// not included: evicting rows would only make more of them.
    pub held: usize,
    /// Bytes of indexes, included in `held`.
    pub index: usize,
    /// Bytes of texts, included in `held`.
    pub texts: usize,
    /// Slots in use.
    pub slots: usize,
    /// Slots that can be made without more memory for rows.
    pub free: usize,
    /// Slots, in use or not, that the indexes can hold without more memory.
    pub indexed: usize,
    /// Bytes of a row without its texts.
    pub row: usize,
}

impl Table {
    /// Empties the table: from now on its rows are evicted, until they are looked up.
    ///
    /// # Safety
    /// Nothing holds an address of its rows or reads their texts; no snapshot is open.
    pub unsafe fn evict_all(&self, evicted: Arc<dyn EvictedRows>) {
        assert!(!self.is_in_snapshot() && !self.is_read(), "a snapshot ends before its rows are evicted");
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        if !self.text_columns().is_empty() {
            let mut text_bytes = 0;
            nodes.each_row(|row| text_bytes += self.free_texts(row));
            self.text_bytes().subtract(text_bytes);
        }
        // SAFETY: the nodes that used the memory are not read any more.
        unsafe { self.arenas().clear(self.layout()) };
        *nodes = Nodes::new(self.layout(), self.arenas(), Some(evicted));
    }

    /// Returns whether its rows may be evicted.
    pub fn has_evicted_rows(&self) -> bool {
        self.nodes().read().evicted.is_some()
    }

    /// Returns the memory that it takes.
    pub fn memory(&self) -> TableMemory {
        let copied = self.snapshot().bytes();
        let nodes = self.nodes().read();
        let texts = self.text_bytes().get();
        let (mut free, mut indexed) = (0, 0);
        nodes.each_node(|index, rows| {
            free += rows.free_bytes();
            indexed += index.capacity();
        });
        let index = self.arenas().indexes.lock().bytes();
        TableMemory {
            held: index + self.arenas().rows.bytes() + texts + copied,
            index,
            texts,
            slots: nodes.slots(),
            free: free / self.layout().size(),
            indexed,
            row: self.layout().size(),
        }
    }

    /// Marks all slots, because it is no longer known which of them the medium has in their current version.
    pub fn mark_all(&self, generation: Generation) {
        let nodes = self.nodes().read();
        // SAFETY: slots of this table.
        nodes.each_row(|row| unsafe { self.marks().set(row, generation) });
    }

    /// Passes all rows to `each`, those in memory first, in no order. No slot is made meanwhile: a row that came into
    /// memory between the two parts would be in neither.
    pub(crate) fn each_image(&self, each: &mut dyn FnMut(Image)) -> Result<(), EvictedError> {
        let nodes = &*self.nodes().write();
        let mut image = Image::new(self.shape());
        // SAFETY: slots of this table; no transaction runs.
        nodes.each_row(|row| unsafe {
            if self.exists(row) {
                self.copy_row(row, &mut image);
            }
        });
        each(image);
        let Some(evicted) = &nodes.evicted else { return Ok(()) };
        evicted.pin().each(&mut |rows| {
            let mut others = Image::new(self.shape());
            let is_evicted = |row: &usize| self.find_slot(nodes, &rows, *row).is_none();
            (0..rows.len()).filter(is_evicted).for_each(|row| others.push_of(&rows, row));
            each(others);
        })
    }
}
