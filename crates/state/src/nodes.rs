//! The virtual nodes of a table, and who may read and change them when.
//!
//! **Locks.** Who has the nodes to write has all. Who has them to read shares them with others, and has a lock of each
//! shard, a run of virtual nodes, that it touches: several to read, or one at a time to make slots there
//! ([`crate::make`]). So many threads look keys up at once, or make slots at once, and nobody looks at an index that
//! changes. The array of one-word keys is looked at without a shard's lock: a row is set in it whole, when its key is
//! written.

use crate::cold::ColdRows;
use crate::direct::Direct;
use crate::hash::virtual_node_of;
use crate::index::Index;
use crate::layout::RowLayout;
use crate::marks::Marks;
use crate::memory::Arena;
use crate::rows::{RowAddress, Rows};
use crate::sync::{AtomicUsize, Mutex, Ordering, RwLock, RwLockReadGuard};
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Shards: as many threads as that make slots at once. Whoever looks keys up takes a lock of each.
pub const SHARDS: usize = if cfg!(feature = "loom") { 2 } else { 8 };

/// Virtual nodes of a shard.
const SHARD_NODES: usize = VIRTUAL_NODE_COUNT / SHARDS;

/// Slots below which sweeping is not worth a pause.
pub const SWEEP_SLOTS_MIN: usize = 1 << 16;

/// The rows of all virtual nodes, and how they are found.
pub struct Nodes {
    /// Small whole-number keys, of all virtual nodes; none where rows may be cold.
    pub direct: Direct,
    pub shards: Box<[RwLock<Shard>; SHARDS]>,
    slots: AtomicUsize,
    /// How often slots were made: each time at another shard first, as who waits for one waits there.
    makers: AtomicUsize,
    /// Sweep when there are this many slots.
    pub sweep_at: usize,
    /// Where the rows of keys without a slot are, if they may have any.
    pub cold: Option<Arc<dyn ColdRows>>,
    /// Some nodes are elsewhere: while the lock is held, or for ever behind a panic.
    pub torn: bool,
}

/// Indexes and rows of some virtual nodes, apart so that the indexes' heads stay in the first-level cache.
pub struct Shard {
    indexes: [Index; SHARD_NODES],
    rows: [Rows; SHARD_NODES],
}

/// What indexes and rows are cut from.
pub struct Arenas {
    pub indexes: Mutex<Arena>,
    /// The heads of its blocks are [`Marks`].
    pub rows: Mutex<Arena>,
}

/// All shards, to look keys up.
pub struct Shards<'a>([RwLockReadGuard<'a, Shard>; SHARDS]);

impl Nodes {
    /// Of a table without rows in memory.
    pub fn new(layout: &RowLayout, arenas: &Arenas, cold: Option<Arc<dyn ColdRows>>) -> Nodes {
        let shard = || Shard {
            indexes: std::array::from_fn(|_| Index::new(&arenas.indexes)),
            rows: std::array::from_fn(|_| Rows::new(layout.size())),
        };
        Nodes {
            direct: Direct::new(),
            shards: Box::new(std::array::from_fn(|_| RwLock::new(shard()))),
            slots: AtomicUsize::new(0),
            makers: AtomicUsize::new(0),
            sweep_at: SWEEP_SLOTS_MIN,
            cold,
            torn: false,
        }
    }

    /// Where the next maker of slots is to begin.
    pub fn turn(&self) -> usize {
        self.makers.fetch_add(1, Ordering::Relaxed)
    }

    /// How many slots there are, but for those that are being made.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// Counts slots that were made.
    pub fn count(&self, made: usize) {
        self.slots.fetch_add(made, Ordering::Relaxed);
    }

    /// Counts slots that are gone.
    pub fn discount(&self, gone: usize) {
        self.slots.fetch_sub(gone, Ordering::Relaxed);
    }

    /// All shards to read, for as long as slots may not be made.
    pub fn all_shards(&self) -> Shards<'_> {
        Shards(std::array::from_fn(|shard| self.shards[shard].read()))
    }

    /// The shard of a virtual node, to read.
    pub fn shard_with(&self, node: usize) -> RwLockReadGuard<'_, Shard> {
        self.shards[shard_of(node)].read()
    }

    /// The index and the rows of a virtual node.
    pub fn node_mut(&mut self, node: usize) -> (&mut Index, &mut Rows) {
        self.shards[shard_of(node)].get_mut().node_mut(node)
    }

    /// The indexes and the rows of some virtual nodes.
    pub fn nodes_mut(&mut self, nodes: Range<usize>) -> impl Iterator<Item = (&mut Index, &mut Rows)> {
        let shards = self.shards.iter_mut().map(RwLock::get_mut);
        let all = shards.flat_map(|shard| shard.indexes.iter_mut().zip(&mut shard.rows));
        all.skip(nodes.start).take(nodes.len())
    }

    /// Calls `each` with the index and the rows of each virtual node.
    pub fn each_node(&self, mut each: impl FnMut(&Index, &Rows)) {
        for shard in self.shards.iter() {
            let shard = shard.read();
            shard.indexes.iter().zip(&shard.rows).for_each(|(index, rows)| each(index, rows));
        }
    }

    /// Calls `each` with all slots that have a key, in no useful order.
    pub fn each_row(&self, mut each: impl FnMut(RowAddress)) {
        self.direct.entries().for_each(|(_, row)| each(row));
        self.each_node(|index, _| index.rows().for_each(&mut each));
    }
}

impl Shard {
    /// The index of one of its virtual nodes.
    #[inline(always)]
    pub fn index(&self, node: usize) -> &Index {
        &self.indexes[node % SHARD_NODES]
    }

    /// The rows of one of its virtual nodes.
    #[inline(always)]
    pub fn rows(&self, node: usize) -> &Rows {
        &self.rows[node % SHARD_NODES]
    }

    /// The index and the rows of one of its virtual nodes.
    #[inline(always)]
    pub fn node_mut(&mut self, node: usize) -> (&mut Index, &mut Rows) {
        (&mut self.indexes[node % SHARD_NODES], &mut self.rows[node % SHARD_NODES])
    }
}

impl Arenas {
    /// Of which nothing is cut.
    pub fn new(layout: &RowLayout) -> Arenas {
        Arenas { indexes: Mutex::default(), rows: Mutex::new(Arena::with_head(Marks::of(layout).bytes())) }
    }

    /// Frees all that was cut.
    ///
    /// # Safety
    /// Nobody uses any of it any more.
    pub unsafe fn clear(&self, layout: &RowLayout) {
        let Arenas { indexes, rows } = Arenas::new(layout);
        *self.indexes.lock() = indexes.into_inner();
        *self.rows.lock() = rows.into_inner();
    }
}

impl Shards<'_> {
    /// The index that has the rows of a hash.
    #[inline(always)]
    pub fn index_of(&self, hash: u64) -> &Index {
        let node = virtual_node_of(hash);
        self.0[shard_of(node)].index(node)
    }
}

/// The shard of a virtual node.
#[inline(always)]
pub fn shard_of(node: usize) -> usize {
    node / SHARD_NODES
}
