//! Taking slots away, so that the rows of other keys have their memory: second chance (Corbató, "A paging
//! experiment with the Multics system", 1968), by virtual node.
//!
//! **What.** In each virtual node a hand goes round its slots. A row that was looked up again since the hand passed it
//! is spared once. Rows that are only here as they are, which a mark says, are handed over to be kept elsewhere; when
//! that is done their slots go.
//! **Cost.** A look at three bits for each slot. Nothing may be in flight.

use crate::image::Image;
use crate::marks::Generation;
use crate::memory::{Arena, prefetch};
use crate::rows::RowAddress;
use crate::table::{Nodes, Table, read};
use tidemill_model::VIRTUAL_NODE_COUNT;

/// How many rows ahead of the one that is copied are asked for.
const AHEAD: usize = 16;

/// Where the hand is in each node.
pub(crate) struct Hands([u32; VIRTUAL_NODE_COUNT]);

impl Default for Hands {
    fn default() -> Self {
        Hands([0; VIRTUAL_NODE_COUNT])
    }
}

/// What is to go.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// This share of the slots of each node.
    pub share: f64,
    /// Whether rows without a mark are only here, too.
    pub keeps_all: bool,
    /// For tests.
    pub wrongly: Wrongly,
}

/// What is evicted that must not be: a bug, for the tests that find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrongly {
    /// Nothing.
    #[default]
    Nothing,
    /// Rows that are nowhere else.
    Dirty,
    /// Deletions that are nowhere else.
    Deletions,
}

/// What goes: slots, by node.
pub struct Victims(Vec<Vec<RowAddress>>);

impl Victims {
    /// How many slots.
    pub fn slots(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

impl Table {
    /// Chooses slots that go, and hands over the rows that are only here, in the order of their keys' hashes. They stay
    /// until they are [removed](Table::remove), if that is ever done.
    ///
    /// # Safety
    /// The table has been [chilled](Table::chill), and nothing is in flight.
    pub unsafe fn choose<E>(
        &self,
        eviction: Eviction,
        keep: &mut dyn FnMut(&Image) -> Result<(), E>,
    ) -> Result<Victims, E> {
        let mut victims = Vec::with_capacity(VIRTUAL_NODE_COUNT);
        for node in 0..VIRTUAL_NODE_COUNT {
            let rows: Vec<RowAddress> = self.nodes().read().indexes[node].rows().collect();
            let gone = self.choose_of(node, &rows, (rows.len() as f64 * eviction.share).ceil() as usize);
            if self.is_in_snapshot() {
                // SAFETY: slots of this table, and nothing is in flight.
                unsafe { self.save(&gone) };
            }
            let mut image = Image::new(self.shape());
            for (i, &row) in gone.iter().enumerate() {
                gone.get(i + AHEAD).into_iter().for_each(|&ahead| prefetch(ahead as *const u8));
                if self.is_kept(row, eviction) {
                    // SAFETY: as above.
                    unsafe { self.copy_row(row, &mut image) };
                }
            }
            if !image.is_empty() {
                keep(&image.newest())?;
            }
            victims.push(gone);
        }
        Ok(Victims(victims))
    }

    /// Frees the slots that were chosen.
    ///
    /// # Safety
    /// Nothing was in flight since they were chosen. What was handed over then can be read again.
    pub unsafe fn remove(&self, victims: &Victims) {
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        assert!(nodes.cold.is_some(), "only what is cold elsewhere is evicted");
        for (node, gone) in victims.0.iter().enumerate() {
            nodes.slots -= gone.len();
            self.measure_texts(nodes, gone);
            for (i, &row) in gone.iter().enumerate() {
                gone.get(i + AHEAD).into_iter().for_each(|&ahead| prefetch(ahead as *const u8));
                nodes.indexes[node].remove(self.hash_of_row(row), row);
                // SAFETY: by the caller nothing refers to it; the index no longer does.
                unsafe {
                    self.marks().take(row, Generation::Even);
                    self.marks().take(row, Generation::Odd);
                    self.free_texts(row);
                    nodes.rows[node].release(row);
                }
            }
            nodes.indexes[node].settle(|row| self.hash_of_row(row));
        }
    }

    /// Has the indexes take the memory that so many slots need, and no more, though both take some meanwhile.
    ///
    /// # Safety
    /// Nothing is in flight.
    pub unsafe fn fit_indexes(&self, slots: usize) {
        let nodes = &mut *self.nodes().write();
        let Nodes { indexes, arena, .. } = nodes;
        let mut fitted = Arena::default();
        for index in indexes.iter_mut() {
            index.fit(slots / VIRTUAL_NODE_COUNT, &mut fitted, |row| self.hash_of_row(row));
        }
        *arena = fitted;
    }

    /// So many of a node's slots that were not used since the hand passed, or longest ago.
    fn choose_of(&self, node: usize, rows: &[RowAddress], wanted: usize) -> Vec<RowAddress> {
        let hand = &mut self.hands().0[node];
        let mut gone = Vec::with_capacity(wanted);
        let mut is_gone = vec![false; rows.len()];
        let mut place = *hand as usize;
        // Whatever was spared in the first round is not in the second.
        for _ in 0..2 * rows.len() {
            if gone.len() >= wanted {
                break;
            }
            place = if place >= rows.len() { 0 } else { place };
            // SAFETY: a slot of this table.
            if !is_gone[place] && !unsafe { self.marks().take_use(rows[place]) } {
                is_gone[place] = true;
                gone.push(rows[place]);
            }
            place += 1;
        }
        // What goes closes up.
        *hand = (place - is_gone[..place].iter().filter(|gone| **gone).count()) as u32;
        gone
    }

    /// Whether a row that goes is only here.
    fn is_kept(&self, row: RowAddress, eviction: Eviction) -> bool {
        let marks = self.marks();
        // SAFETY: a slot of this table that nobody writes now.
        unsafe {
            let is_dirty =
                eviction.keeps_all || marks.is_set(row, Generation::Even) || marks.is_set(row, Generation::Odd);
            match eviction.wrongly {
                Wrongly::Nothing => is_dirty,
                Wrongly::Dirty => false,
                Wrongly::Deletions => is_dirty && self.exists(row),
            }
        }
    }

    /// Looks how long the texts of a node's rows are.
    fn measure_texts(&self, nodes: &mut Nodes, rows: &[RowAddress]) {
        if self.text_columns().is_empty() || rows.is_empty() {
            return;
        }
        let cells = || self.text_columns().iter().map(|&column| self.layout().cell(column));
        // SAFETY: slots of this table, whose cells own live blobs (crate invariant 4); nobody writes them now.
        let text = |row: RowAddress, cell| unsafe { crate::blob::bytes(read(row, cell)).len() };
        let bytes: usize = rows.iter().flat_map(|&row| cells().map(move |cell| text(row, cell))).sum();
        // Older measures fade.
        let (old, of) = nodes.texts;
        nodes.texts = (old / 2 + bytes, of / 2 + rows.len());
    }
}
