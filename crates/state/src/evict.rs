//! Eviction of slots, so that rows of other keys can use their memory: second chance (Corbató, "A paging experiment
//! with the Multics system", 1968), by virtual node.
//!
//! **What.** In each virtual node a clock hand goes round the slots, in the order of the lanes of its index. In
//! bucket order, the buckets ahead of the hand would be overfull and those after it nearly empty. A row that was
//! looked up since the hand passed it is spared once. Rows whose current version is only in memory, which a mark
//! records, are handed over to be stored elsewhere; then their slots are freed.
//! **Cost.** Three bits are read for each slot. Nothing may be in flight. Any number of threads take shares of the
//! nodes, which have nothing in common.

use crate::hash::virtual_node_of;
use crate::image::Image;
use crate::index::Index;
use crate::marks::Generation;
use crate::memory::{Arena, prefetch};
use crate::rows::{RowAddress, Rows};
use crate::sync::Mutex;
use crate::table::Table;
use std::ops::Range;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Prefetch distance while rows are copied, in rows.
const AHEAD: usize = 16;

/// The clock hands, one per virtual node.
pub(crate) struct ClockHands([u32; VIRTUAL_NODE_COUNT]);

impl Default for ClockHands {
    fn default() -> Self {
        ClockHands([0; VIRTUAL_NODE_COUNT])
    }
}

/// The extent of an eviction.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// Share of the slots of each node.
    pub share: f64,
    /// A flag: whether rows without a mark are only in memory, too.
    pub keeps_all: bool,
    /// A bug, for tests.
    pub wrongly: Wrongly,
}

/// A planted bug: evicts rows that must stay. For the tests that must find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrongly {
    /// Nothing.
    #[default]
    Nothing,
    /// Rows whose current version is only in memory.
    Dirty,
    /// Deletions that are only in memory.
    Deletions,
}

/// Victims of some nodes.
pub struct Victims {
    first: usize,
    /// The victims of each node, in the order of their keys' hashes. The hashes are kept, so that removal does not read
    /// the rows' keys.
    nodes: Vec<Vec<(u64, RowAddress)>>,
    /// The number of rows with a mark when they were chosen.
    marked: usize,
}

impl Victims {
    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }
}

/// Nodes that are taken out of a table while slots are removed from them.
pub struct Removal {
    victims: Victims,
    nodes: Vec<(Index, Rows)>,
}

impl Table {
    /// Chooses victims in some nodes, and passes the rows that are only in memory to `keep`, in the order of their
    /// keys' hashes. The victims stay in the table until they are [removed](Table::remove), if they ever are. Several
    /// threads may choose at once, each in other nodes.
    ///
    /// # Safety
    /// The table has been [chilled](Table::evict_all), and nothing is in flight.
    pub unsafe fn choose(&self, nodes: Range<usize>, eviction: Eviction, keep: &mut dyn FnMut(&Image)) -> Victims {
        assert!((0.0..=1.0).contains(&eviction.share), "a share of the slots goes");
        let (first, mut marked) = (nodes.start, 0);
        let mut rows = Vec::new();
        let mut image = Image::new(self.shape());
        let choose = |node: usize| {
            rows.clear();
            rows.extend(self.nodes().read().shard_with(node).index(node).rows_by_lane());
            let gone = self.choose_of(node, &rows, (rows.len() as f64 * eviction.share).ceil() as usize);
            // SAFETY: slots of this table, and nothing is in flight.
            unsafe { self.save(&gone) };
            let gone = self.in_hash_order(&gone);
            debug_assert!(gone.is_sorted_by(|one, next| one < next), "a slot goes once");
            debug_assert!(gone.iter().all(|&(hash, _)| virtual_node_of(hash) == node), "a node's slots have its keys");
            image.clear();
            for &(_, row) in &gone {
                let is_marked = self.is_marked(row);
                marked += usize::from(is_marked);
                if self.is_kept(row, is_marked, eviction) {
                    // SAFETY: as above.
                    unsafe { self.copy_row(row, &mut image) };
                }
            }
            if !image.is_empty() {
                keep(&image);
            }
            gone
        };
        let nodes = nodes.map(choose).collect();
        Victims { first, nodes, marked }
    }

    /// Frees the slots that were chosen, at most once for each node. `all` has each share [done](Removal::work), on
    /// any threads, and returns them; the table cannot be used meanwhile.
    ///
    /// # Safety
    /// Nothing was in flight since they were chosen. The rows that were handed over then can be read again.
    pub unsafe fn remove(&self, victims: Vec<Victims>, all: impl FnOnce(Vec<Removal>) -> Vec<Removal>) {
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        assert!(nodes.evicted.is_some(), "a table evicts only to a source of evicted rows");
        assert!(!nodes.torn, "no eviction was broken off");
        nodes.torn = true;
        let slots: usize = victims.iter().map(Victims::slots).sum();
        let count = victims.len();
        let take = |victims: Victims| {
            let share = victims.first..victims.first + victims.nodes.len();
            let take = |(index, rows): (&mut Index, &mut Rows)| {
                (std::mem::replace(index, Index::hollow()), std::mem::replace(rows, Rows::new(self.layout().size())))
            };
            let nodes: Vec<_> = nodes.nodes_mut(share).map(take).collect();
            assert_eq!(nodes.len(), victims.nodes.len(), "each node that has victims is there");
            Removal { nodes, victims }
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

    /// Fits the indexes to this many slots, and frees the rest of their memory. Needs the memory of the old
    /// and the new indexes meanwhile.
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

    /// Chooses up to `wanted` slots of a node: those that were not used since the hand passed, then the first in its
    /// way.
    fn choose_of(&self, node: usize, rows: &[RowAddress], wanted: usize) -> Vec<RowAddress> {
        debug_assert!(wanted <= rows.len(), "a node has the slots that are to go");
        let hand = self.clock_hands().0[node] as usize;
        let mut gone = Vec::with_capacity(wanted);
        let mut is_gone = vec![false; rows.len()];
        let mut place = hand;
        // A slot that is spared in the first round is not spared in the second.
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
        // The remaining slots close up.
        self.clock_hands().0[node] = (place - is_gone[..place].iter().filter(|gone| **gone).count()) as u32;
        gone
    }

    /// Returns whether the current version of a victim's row is only in memory.
    fn is_kept(&self, row: RowAddress, is_marked: bool, eviction: Eviction) -> bool {
        let is_dirty = eviction.keeps_all || is_marked;
        match eviction.wrongly {
            Wrongly::Nothing => is_dirty,
            Wrongly::Dirty => false,
            // SAFETY: a slot of this table that no thread writes now.
            Wrongly::Deletions => is_dirty && unsafe { self.exists(row) },
        }
    }

    /// Returns whether a slot has a mark of either generation.
    fn is_marked(&self, row: RowAddress) -> bool {
        let marks = self.marks();
        // SAFETY: a slot of this table.
        unsafe { marks.is_set(row, Generation::Even) || marks.is_set(row, Generation::Odd) }
    }

    /// Slots with the hashes of their keys, sorted by hash.
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
    /// Removes the slots. `table` is the table that the nodes were taken out of.
    pub fn work(&mut self, table: &Table) {
        let (mut text_bytes, mut marked) = (0, 0);
        for (gone, (index, rows)) in self.victims.nodes.iter().zip(&mut self.nodes) {
            for (i, &(hash, row)) in gone.iter().enumerate() {
                if let Some(&(hash, row)) = gone.get(i + AHEAD) {
                    index.ask(hash);
                    prefetch(row as *const u8);
                }
                index.remove(hash, row);
                // SAFETY: by the caller of `remove` nothing refers to the row; the index no longer does.
                unsafe {
                    let (even, odd) =
                        (table.marks().take(row, Generation::Even), table.marks().take(row, Generation::Odd));
                    marked += usize::from(even || odd);
                    text_bytes += table.free_texts(row);
                    rows.release(row);
                }
            }
            index.settle(|row| table.hash_of_row(row));
        }
        assert!(marked <= self.victims.marked, "no row changes between its choice and its removal");
        table.text_bytes().subtract(text_bytes);
    }
}
