//! Tables of which only some rows are in memory: the others are *cold*, on the medium.
//!
//! **What.** Where a table's rows may be cold, a key without a slot has the row that [`ColdRows`] says, or none.
//! [`Table::resolve`] reads the rows of all keys that it does not find in one batch, and makes their slots of them;
//! [`Table::choose`] and [`Table::remove`] take slots away again.
//! **Invariant.** *A key without a slot has the row that [`ColdRows`] says.* A slot is made with that row before anybody
//! can write it; and it is taken away, while nothing is in flight, only when its row is there as it is: because it has
//! no mark, or because it was handed over to be put there. So a deletion needs no grave here: its slot bears a mark
//! until then.
//! **Traded away.** Such a table has no array part: it would have a place for each of the keys that are cold.

use crate::image::Image;
use crate::marks::Generation;
use crate::nodes::Nodes;
use crate::table::Table;
use std::sync::Arc;

/// Why cold rows cannot be read.
pub type ColdError = Box<dyn std::error::Error + Send + Sync>;

/// The place of a key without a row.
pub const NOWHERE: u32 = u32::MAX;

/// The rows of some keys.
pub struct Found {
    /// Those that there are.
    pub rows: Image,
    /// By key: the number of its row, or [`NOWHERE`].
    pub places: Vec<u32>,
}

/// The rows of a table's keys that have no slot.
pub trait ColdRows: Send + Sync {
    /// The rows of these keys. Where they cannot be read, whoever runs the table is told before this returns, and
    /// releases nothing any more; what is returned does not matter then.
    fn get(&self, keys: &Image) -> Found;

    /// Hands over all of them, each once, and besides rows of keys that have a slot.
    fn each(&self, each: &mut dyn FnMut(Image)) -> Result<(), ColdError>;
}

/// The memory of a table whose rows may be cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMemory {
    /// Bytes taken for rows, index, and what a snapshot under way has copied; texts are among them.
    pub held: usize,
    /// Bytes of these that indexes take.
    pub index: usize,
    /// Bytes of these that texts take.
    pub texts: usize,
    /// Slots in use.
    pub slots: usize,
    /// Slots that take no more memory for rows.
    pub free: usize,
    /// Slots, in use or not, that take no more memory for indexes.
    pub indexed: usize,
    /// Bytes of a row without its texts.
    pub row: usize,
}

impl Table {
    /// Empties it: from now on its rows are cold, until they are asked for.
    ///
    /// # Safety
    /// Nothing holds an address of its rows or reads their texts; no snapshot is under way.
    pub unsafe fn chill(&self, cold: Arc<dyn ColdRows>) {
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        if !self.text_columns().is_empty() {
            let mut text_bytes = 0;
            nodes.each_row(|row| text_bytes += self.free_texts(row));
            self.text_bytes().subtract(text_bytes);
        }
        // SAFETY: of the nodes that used it nothing is looked at any more.
        unsafe { self.arenas().clear(self.layout()) };
        *nodes = Nodes::new(self.layout(), self.arenas(), Some(cold));
    }

    /// Whether its rows may be cold.
    pub fn has_cold_rows(&self) -> bool {
        self.nodes().read().cold.is_some()
    }

    /// What it takes.
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
            held: index + self.arenas().rows.lock().bytes() + texts + copied,
            index,
            texts,
            slots: nodes.slots(),
            free: free / self.layout().size(),
            indexed,
            row: self.layout().size(),
        }
    }

    /// Marks all slots, as nobody knows any more which of them are elsewhere as they are.
    pub fn mark_all(&self, generation: Generation) {
        let nodes = self.nodes().read();
        // SAFETY: slots of this table.
        nodes.each_row(|row| unsafe { self.marks().set(row, generation) });
    }

    /// Hands over all rows, those in memory first, and in no order.
    pub(crate) fn each_image(&self, each: &mut dyn FnMut(Image)) -> Result<(), ColdError> {
        let mut image = Image::new(self.shape());
        let cold = {
            let nodes = self.nodes().read();
            // SAFETY: slots of this table; the caller has nothing running.
            nodes.each_row(|row| unsafe {
                if self.exists(row) {
                    self.copy_row(row, &mut image);
                }
            });
            nodes.cold.clone()
        };
        each(image);
        let Some(cold) = cold else { return Ok(()) };
        cold.each(&mut |rows| {
            let nodes = self.nodes().read();
            let mut others = Image::new(self.shape());
            let is_cold = |row: &usize| self.find_slot(&nodes, &rows, *row).is_none();
            (0..rows.len()).filter(is_cold).for_each(|row| others.push_of(&rows, row));
            each(others);
        })
    }
}
