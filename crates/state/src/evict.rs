//! Taking slots away, so that the rows of other keys have their memory: second chance (Corbató, "A paging
//! experiment with the Multics system", 1968), by virtual node.
//!
//! **What.** In each virtual node a hand goes round its slots, by the lanes of its index: were it to go by buckets, those
//! before it would be overfull, and those behind it nearly empty. A row that was looked up again since the hand passed it
//! is spared once. Rows that are only here as they are, which a mark says, are handed over to be kept elsewhere; when
//! that is done their slots go.
//! **Cost.** A look at three bits for each slot. Nothing may be in flight; meanwhile any number of threads take shares of
//! the nodes, which have nothing in common.

use crate::image::Image;
use crate::index::Index;
use crate::marks::Generation;
use crate::memory::{Arena, prefetch};
use crate::rows::{RowAddress, Rows};
use crate::sync::Mutex;
use crate::table::Table;
use std::ops::Range;
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

/// Slots that go, of some nodes.
pub struct Victims {
    first: usize,
    /// By node, in the order of their keys' hashes, which are kept, so that slots go without a look at the rows' keys.
    nodes: Vec<Vec<(u64, RowAddress)>>,
}

impl Victims {
    /// How many slots.
    pub fn slots(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }
}

/// Nodes that are taken out of a table for as long as slots are taken away of them.
pub struct Removal {
    victims: Victims,
    nodes: Vec<(Index, Rows)>,
}

impl Table {
    /// Chooses slots of some nodes that go, and hands over the rows that are only here, in the order of their keys'
    /// hashes. They stay until they are [removed](Table::remove), if that is ever done. Several threads may choose, each
    /// of other nodes.
    ///
    /// # Safety
    /// The table has been [chilled](Table::chill), and nothing is in flight.
    pub unsafe fn choose(&self, nodes: Range<usize>, eviction: Eviction, keep: &mut dyn FnMut(&Image)) -> Victims {
        let first = nodes.start;
        let mut rows = Vec::new();
        let mut image = Image::new(self.shape());
        let choose = |node: usize| {
            rows.clear();
            rows.extend(self.nodes().read().shard_with(node).index(node).rows_by_lane());
            let gone = self.choose_of(node, &rows, (rows.len() as f64 * eviction.share).ceil() as usize);
            if self.is_in_snapshot() {
                // SAFETY: slots of this table, and nothing is in flight.
                unsafe { self.save(&gone) };
            }
            let gone = self.in_hash_order(&gone);
            image.clear();
            for &(_, row) in &gone {
                if self.is_kept(row, eviction) {
                    // SAFETY: as above.
                    unsafe { self.copy_row(row, &mut image) };
                }
            }
            if !image.is_empty() {
                keep(&image);
            }
            gone
        };
        Victims { first, nodes: nodes.map(choose).collect() }
    }

    /// Frees the slots that were chosen, of each node at most once. `all` has each share [done](Removal::work), on any
    /// threads, and gives them back; the table cannot be used meanwhile.
    ///
    /// # Safety
    /// Nothing was in flight since they were chosen. What was handed over then can be read again.
    pub unsafe fn remove(&self, victims: Vec<Victims>, all: impl FnOnce(Vec<Removal>) -> Vec<Removal>) {
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        assert!(nodes.cold.is_some(), "only what is cold elsewhere is evicted");
        nodes.torn = true;
        let slots: usize = victims.iter().map(Victims::slots).sum();
        let count = victims.len();
        let take = |victims: Victims| {
            let share = victims.first..victims.first + victims.nodes.len();
            let take = |(index, rows): (&mut Index, &mut Rows)| {
                (std::mem::replace(index, Index::hollow()), std::mem::replace(rows, Rows::new(self.layout().size())))
            };
            Removal { nodes: nodes.nodes_mut(share).map(take).collect(), victims }
        };
        let removals = all(victims.into_iter().map(take).collect());
        assert_eq!(removals.len(), count, "no share is lost");
        for removal in removals {
            let first = removal.victims.first;
            let places = nodes.nodes_mut(first..first + removal.nodes.len());
            places.zip(removal.nodes).for_each(|((index, rows), of_node)| (*index, *rows) = of_node);
        }
        nodes.torn = false;
        nodes.discount(slots);
    }

    /// Has the indexes take the memory that so many slots need, and no more, though both take some meanwhile.
    ///
    /// # Safety
    /// Nothing is in flight.
    pub unsafe fn fit_indexes(&self, slots: usize) {
        let nodes = &mut *self.nodes().write();
        let fitted = Mutex::<Arena>::default();
        for (index, _) in nodes.nodes_mut(0..VIRTUAL_NODE_COUNT) {
            index.fit(slots / VIRTUAL_NODE_COUNT, &fitted, |row| self.hash_of_row(row));
        }
        *self.arenas().indexes.lock() = fitted.into_inner();
    }

    /// So many of a node's slots that were not used since the hand passed, or longest ago.
    fn choose_of(&self, node: usize, rows: &[RowAddress], wanted: usize) -> Vec<RowAddress> {
        let hand = self.hands().0[node] as usize;
        let mut gone = Vec::with_capacity(wanted);
        let mut is_gone = vec![false; rows.len()];
        let mut place = hand;
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
        self.hands().0[node] = (place - is_gone[..place].iter().filter(|gone| **gone).count()) as u32;
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

    /// Slots with the hashes of their keys, in the order of these.
    fn in_hash_order(&self, rows: &[RowAddress]) -> Vec<(u64, RowAddress)> {
        let ask = |at: usize| rows.get(at).into_iter().for_each(|&row| prefetch(row as *const u8));
        (0..AHEAD).for_each(ask);
        let hash = |(at, &row): (usize, &RowAddress)| {
            ask(at + AHEAD);
            (self.hash_of_row(row), row)
        };
        let mut order: Vec<(u64, RowAddress)> = rows.iter().enumerate().map(hash).collect();
        order.sort_unstable();
        order
    }
}

impl Removal {
    /// Takes the slots away. `table` is the one that it was taken out of.
    pub fn work(&mut self, table: &Table) {
        let mut text_bytes = 0;
        for (gone, (index, rows)) in self.victims.nodes.iter().zip(&mut self.nodes) {
            for (i, &(hash, row)) in gone.iter().enumerate() {
                if let Some(&(hash, row)) = gone.get(i + AHEAD) {
                    index.ask(hash);
                    prefetch(row as *const u8);
                }
                index.remove(hash, row);
                // SAFETY: by the caller of `remove` nothing refers to it; the index no longer does.
                unsafe {
                    table.marks().take(row, Generation::Even);
                    table.marks().take(row, Generation::Odd);
                    text_bytes += table.free_texts(row);
                    rows.release(row);
                }
            }
            index.settle(|row| table.hash_of_row(row));
        }
        table.text_bytes().subtract(text_bytes);
    }
}
