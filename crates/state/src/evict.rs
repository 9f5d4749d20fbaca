//! Taking slots away, so that the rows of other keys have their memory: second chance (Corbató, "A paging
//! experiment with the Multics system", 1968), by virtual node.
//!
//! **What.** A hand goes round the virtual nodes, and within each round its slots. A row that was looked up since
//! the hand passed it is spared once; one that has a mark is spared, as the newest checkpoint does not have it as it
//! is.
//! **Cost.** A look at three bits for each slot of a node that is visited, and its index is filled again. Nothing
//! may be in flight, so a call visits as many nodes as have so many slots together, and the next one goes on.

use crate::hash::virtual_node_of;
use crate::index::Index;
use crate::marks::Generation;
use crate::memory::Arena;
use crate::rows::RowAddress;
use crate::table::{Nodes, Table, read};
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Where the hand is: the next node, and the place in each.
pub(crate) struct Hands {
    node: usize,
    within: [u32; VIRTUAL_NODE_COUNT],
}

impl Default for Hands {
    fn default() -> Self {
        Hands { node: 0, within: [0; VIRTUAL_NODE_COUNT] }
    }
}

impl Nodes {
    /// Gives back what indexes have outgrown, where that is much.
    fn compact_indexes(&mut self) {
        let used: usize = self.indexes.iter().map(Index::bytes).sum();
        if self.arena.bytes() > used + used / 4 {
            let mut arena = Arena::default();
            self.indexes.iter_mut().for_each(|index| index.move_to(&mut arena));
            self.arena = arena;
        }
    }
}

/// What is to go.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// This share of the slots of each node that is visited.
    pub share: f64,
    /// Nodes to visit at the most.
    pub nodes: usize,
    /// No further node is visited when so many slots were looked at.
    pub slots: usize,
    /// For tests.
    pub wrongly: Wrongly,
}

/// What is evicted that must not be: a bug, for the tests that find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrongly {
    /// Nothing.
    #[default]
    Nothing,
    /// Rows that no checkpoint has as they are.
    Dirty,
    /// Deletions that no checkpoint has.
    Deletions,
}

/// What went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Nodes that were visited.
    pub nodes: usize,
    /// Slots that are free now.
    pub slots: usize,
}

impl Table {
    /// Frees slots of rows that the newest checkpoint has as they are. None while a snapshot is under way.
    ///
    /// # Safety
    /// The table has been [chilled](Table::chill). Nothing holds an address of its rows, and nothing reads their
    /// texts. Since the last snapshot that took marks away, what it took has become the newest checkpoint.
    pub unsafe fn evict(&self, eviction: Eviction) -> Evicted {
        let mut evicted = Evicted::default();
        if self.is_in_snapshot() {
            return evicted;
        }
        self.forget_addresses();
        let nodes = &mut *self.nodes().write();
        assert!(nodes.cold.is_some(), "only what is cold elsewhere is evicted");
        nodes.compact_indexes();
        let mut seen = 0;
        while evicted.nodes < eviction.nodes.min(VIRTUAL_NODE_COUNT) && seen < eviction.slots {
            let node = nodes.hands.node;
            nodes.hands.node = (node + 1) % VIRTUAL_NODE_COUNT;
            evicted.nodes += 1;
            let rows: Vec<RowAddress> = nodes.indexes[node].rows().collect();
            seen += rows.len();
            let wanted = (rows.len() as f64 * eviction.share).ceil() as usize;
            let (live, gone) = self.choose(nodes, node, &rows, wanted.min(rows.len()), eviction.wrongly);
            if gone.is_empty() {
                continue;
            }
            nodes.indexes[node].retain(&live, |row| self.hash_of_row(row));
            nodes.slots -= gone.len();
            evicted.slots += gone.len();
            self.measure_texts(nodes, &live);
            for row in gone {
                debug_assert_eq!(virtual_node_of(self.hash_of_row(row)), node);
                // SAFETY: by the caller nothing refers to it; the index no longer does.
                unsafe {
                    self.clear_marks(row, eviction.wrongly);
                    self.free_texts(row);
                    nodes.rows[node].release(row);
                }
            }
        }
        evicted
    }

    /// Divides a node's slots into those that stay and so many that go, or fewer.
    fn choose(
        &self,
        nodes: &mut Nodes,
        node: usize,
        rows: &[RowAddress],
        wanted: usize,
        wrongly: Wrongly,
    ) -> (Vec<RowAddress>, Vec<RowAddress>) {
        let (mut live, mut gone) = (Vec::with_capacity(rows.len()), Vec::with_capacity(wanted));
        let start = if rows.is_empty() { 0 } else { nodes.hands.within[node] as usize % rows.len() };
        let (before, behind) = rows.split_at(start);
        let mut passed = 0;
        for &row in behind.iter().chain(before) {
            if gone.len() < wanted {
                passed += 1;
                if self.may_go(row, wrongly) {
                    gone.push(row);
                    continue;
                }
            }
            live.push(row);
        }
        // What was passed and stayed is behind the hand.
        nodes.hands.within[node] = (start + passed - gone.len()) as u32;
        (live, gone)
    }

    fn may_go(&self, row: RowAddress, wrongly: Wrongly) -> bool {
        let marks = self.marks();
        // SAFETY: a slot of this table that nobody writes now.
        unsafe {
            let is_marked = marks.is_set(row, Generation::Even) || marks.is_set(row, Generation::Odd);
            let spared = match wrongly {
                Wrongly::Nothing => is_marked,
                Wrongly::Dirty => false,
                Wrongly::Deletions => is_marked && self.exists(row),
            };
            !spared && !marks.take_use(row)
        }
    }

    /// # Safety
    /// `row` is a slot of this table that nobody uses now.
    unsafe fn clear_marks(&self, row: RowAddress, wrongly: Wrongly) {
        if wrongly != Wrongly::Nothing {
            // SAFETY: by the caller.
            unsafe {
                self.marks().take(row, Generation::Even);
                self.marks().take(row, Generation::Odd);
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
