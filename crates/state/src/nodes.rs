//! The virtual nodes of a table, and which thread may read and change them when.
//!
//! **Locks.** A thread that holds the nodes' lock to write has them all. Threads that hold it to read share the
//! nodes, and also hold a lock of each shard (a run of virtual nodes) that they touch: to read, with others, or to
//! write, alone, to make slots there ([`crate::make`]). So many threads look keys up at once, or make slots at once
//! in different shards, and no thread reads an index that changes. The array of one-word keys is read without a
//! shard's lock: the address of a row is stored in it with one atomic store, after the row's key is written.

use crate::direct::Direct;
use crate::evicted_rows::EvictedRows;
use crate::hash::virtual_node_of;
use crate::homes::{Homes, RowArenas};
use crate::index::Index;
use crate::layout::RowLayout;
use crate::marks::Marks;
use crate::memory::Arena;
use crate::rows::{RowAddress, Rows};
use crate::sync::{AtomicUsize, Mutex, Ordering, RwLock, RwLockReadGuard};
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Shards: the number of threads that can make slots at once. A thread that looks keys up takes a lock of each.
pub const SHARDS: usize = if cfg!(feature = "loom") { 2 } else { 8 };

/// Virtual nodes of a shard.
const SHARD_NODES: usize = VIRTUAL_NODE_COUNT / SHARDS;

/// The number of slots below which sweeping is not worth the pause.
pub const SWEEP_SLOTS_MIN: usize = 1 << 16;

/// The rows of all virtual nodes, and their indexes.
pub struct Nodes {
    /// Small whole-number keys, of all virtual nodes. Empty if rows may be evicted.
    pub direct: Direct,
    pub shards: Box<[RwLock<Shard>; SHARDS]>,
    slots: AtomicUsize,
    /// Number of calls that made slots. Each begins at another shard, so that calls that must wait do not all wait
    /// for the same one.
    makers: AtomicUsize,
    /// Sweep when there are this many slots.
    pub sweep_at: usize,
    /// Source of the rows of keys without a slot, if rows may be evicted.
    pub evicted: Option<Arc<dyn EvictedRows>>,
    /// A flag: whether some nodes are elsewhere: while the lock is held, or for ever after a panic.
    pub torn: bool,
}

/// Indexes and rows of some virtual nodes. They are two arrays, so that the index headers stay in the first-level
/// cache.
pub struct Shard {
    indexes: [Index; SHARD_NODES],
    rows: [Rows; SHARD_NODES],
}

/// The memory of indexes and rows.
pub struct Arenas {
    pub indexes: Mutex<Arena>,
    /// The heads of their blocks hold the [`Marks`].
    pub rows: RowArenas,
}

/// All shards, locked to look keys up.
pub struct Shards<'a>([RwLockReadGuard<'a, Shard>; SHARDS]);

impl Nodes {
    /// Makes the nodes of a table without rows in memory.
    pub fn new(layout: &RowLayout, arenas: &Arenas, evicted: Option<Arc<dyn EvictedRows>>) -> Nodes {
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
            evicted,
            torn: false,
        }
    }

    /// Returns the number of the shard where the next maker of slots begins.
    pub fn turn(&self) -> usize {
        self.makers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of slots, except those that are being made.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// Counts slots that were made.
    pub fn count(&self, made: usize) {
        self.slots.fetch_add(made, Ordering::Relaxed);
    }

    /// Counts slots that were removed.
    pub fn discount(&self, gone: usize) {
        let before = self.slots.fetch_sub(gone, Ordering::Relaxed);
        assert!(gone <= before, "no more slots go than there are");
    }

    /// Returns all shards, locked to read; no slots can be made meanwhile.
    pub fn all_shards(&self) -> Shards<'_> {
        Shards(std::array::from_fn(|shard| self.shards[shard].read()))
    }

    /// Returns the shard of a virtual node, locked to read.
    pub fn shard_with(&self, node: usize) -> RwLockReadGuard<'_, Shard> {
        self.shards[shard_of(node)].read()
    }

    /// Returns the index and the rows of a virtual node.
    pub fn node_mut(&mut self, node: usize) -> (&mut Index, &mut Rows) {
        self.shards[shard_of(node)].get_mut().node_mut(node)
    }

    /// Returns the indexes and the rows of some virtual nodes.
    pub fn nodes_mut(&mut self, nodes: Range<usize>) -> impl Iterator<Item = (&mut Index, &mut Rows)> {
        assert!(nodes.end <= VIRTUAL_NODE_COUNT, "a table has these nodes");
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

    /// Calls `each` with all slots that have a key, in no particular order.
    pub fn each_row(&self, mut each: impl FnMut(RowAddress)) {
        self.direct.entries().for_each(|(_, row)| each(row));
        self.each_node(|index, _| index.rows().for_each(&mut each));
    }
}

impl Shard {
    /// Returns the index of one of its virtual nodes.
    #[inline(always)]
    pub fn index(&self, node: usize) -> &Index {
        &self.indexes[node % SHARD_NODES]
    }

    /// Returns the rows of one of its virtual nodes.
    #[inline(always)]
    pub fn rows(&self, node: usize) -> &Rows {
        &self.rows[node % SHARD_NODES]
    }

    /// Returns the index and the rows of one of its virtual nodes.
    #[inline(always)]
    pub fn node_mut(&mut self, node: usize) -> (&mut Index, &mut Rows) {
        (&mut self.indexes[node % SHARD_NODES], &mut self.rows[node % SHARD_NODES])
    }
}

impl Arenas {
    /// Makes empty arenas, of rows on these sockets.
    pub fn new(layout: &RowLayout, homes: &Homes) -> Arenas {
        Arenas { indexes: Mutex::default(), rows: RowArenas::new(homes, Marks::of(layout).bytes()) }
    }

    /// Frees all memory that was cut.
    ///
    /// # Safety
    /// None of it is used any more.
    pub unsafe fn clear(&self, layout: &RowLayout) {
        let Arenas { indexes, rows } = Arenas::new(layout, self.rows.homes());
        *self.indexes.lock() = indexes.into_inner();
        // SAFETY: by the caller.
        unsafe { self.rows.replace(rows) };
    }
}

impl Shards<'_> {
    /// Returns the index of the virtual node of a hash.
    #[inline(always)]
    pub fn index_of(&self, hash: u64) -> &Index {
        let node = virtual_node_of(hash);
        self.0[shard_of(node)].index(node)
    }
}

/// Returns the shard of a virtual node.
#[inline(always)]
pub fn shard_of(node: usize) -> usize {
    node / SHARD_NODES
}
