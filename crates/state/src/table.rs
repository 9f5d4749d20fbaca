//! A table: finding or making the slots of many keys at once, sweeping, and access to its rows for the other modules.

use crate::blob;
use crate::direct::Counts;
use crate::evict::ClockHands;
use crate::evicted_rows::{EvictedRows, NOWHERE};
use crate::hash::{hash_bytes, hash_parts, hash_word, virtual_node_of};
use crate::homes::{Homes, RowArenas};
use crate::image::Image;
use crate::key_sets::{CompositeKeys, IndexedKeys, KeyCell, KeySet, TextKeys, WordKeys};
use crate::keys::{KeyColumn, Keys};
use crate::layout::{EXISTS, RowLayout};
use crate::look_up::{look_up, look_up_beyond};
use crate::marks::{Generation, Marks};
use crate::memory::FAR;
use crate::nodes::{Arenas, Nodes, SWEEP_SLOTS_MIN};
use crate::read_snapshot::Readers;
use crate::rows::{RowAddress, Rows, read};
use crate::shape::RowShape;
use crate::snapshot::Snapshot;
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, RwLock};
use crate::text_bytes::TextBytes;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Keys of a table with evicted rows that are resolved together: enough that the misses among them make a batch, few
/// enough that the lines read by the lookup are still in the cache when slots are made.
const EVICTED_GROUP: usize = 1 << 11;

/// Most keys have no slot if more than one in this many has none.
const MOST: usize = 2;

/// A table's rows and their index. Any thread that prepares calls [`Table::resolve`]; access works on the addresses
/// that it returned.
pub struct Table {
    definition: tidemill_plan::Table,
    layout: RowLayout,
    key: Vec<KeyCell>,
    /// Columns whose cells are texts or bytes.
    texts: Vec<usize>,
    shape: Arc<RowShape>,
    marks: Marks,
    snapshot: Snapshot,
    readers: Readers,
    nodes: RwLock<Nodes>,
    arenas: Arenas,
    text_bytes: TextBytes,
    /// CLOCK hands, one per virtual node; touched only by the threads that evict.
    clock_hands: Mutex<ClockHands>,
    /// Counts sweeps and evictions. A cache of addresses is valid only while the count stays the same.
    sweeps: AtomicU64,
    /// A flag: whether most keys of the last lookup had no slot.
    misses: AtomicBool,
}

/// The size of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Slots: of existing rows, and of keys that were touched and have no row.
    pub slots: usize,
    /// The bytes of the rows, without text that lies outside them.
    pub row_bytes: usize,
    /// Bytes of indexes.
    pub index_bytes: usize,
}

impl Table {
    /// Makes an empty table; the system says where its rows are.
    pub fn new(definition: &tidemill_plan::Table) -> Self {
        Table::with_homes(definition, &Homes::default())
    }

    /// Makes an empty table whose rows are on these sockets.
    pub fn with_homes(definition: &tidemill_plan::Table, homes: &Homes) -> Self {
        let layout = RowLayout::of(definition);
        let key = definition
            .key
            .iter()
            .map(|&c| KeyCell { offset: layout.cell(c), text: definition.columns[c].ty.ty.is_bytes() })
            .collect();
        let marks = Marks::of(&layout);
        let arenas = Arenas::new(&layout, homes);
        let nodes = Nodes::new(&layout, &arenas, None);
        let is_text = |&column: &usize| definition.columns[column].ty.ty.is_bytes();
        let texts = (0..definition.columns.len()).filter(is_text).collect();
        Table {
            definition: definition.clone(),
            layout,
            key,
            texts,
            shape: Arc::new(RowShape::of(definition)),
            marks,
            snapshot: Snapshot::default(),
            readers: Readers::default(),
            nodes: RwLock::new(nodes),
            arenas,
            text_bytes: TextBytes::default(),
            clock_hands: Mutex::default(),
            sweeps: AtomicU64::new(0),
            misses: AtomicBool::new(false),
        }
    }

    /// Returns the definition that it was made from.
    pub fn definition(&self) -> &tidemill_plan::Table {
        &self.definition
    }

    /// Returns the layout of its rows.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Finds the slot of each key, and makes the missing ones; 0 for a null key.
    pub fn resolve(&self, keys: &Keys<'_>, out: &mut [RowAddress]) {
        assert_eq!(keys.columns.len(), self.key.len(), "a key of {} has another arity", self.definition.name);
        assert_eq!(keys.len, out.len());
        assert!(keys.nulls.is_none_or(|nulls| nulls.len() == keys.len), "each key is null or not");
        match *keys.columns {
            [KeyColumn::Words(words)] => {
                assert_eq!(words.len(), keys.len);
                self.resolve_by(&WordKeys { words, offset: self.key[0].offset }, keys.nulls, out)
            }
            [KeyColumn::Indexed(words, index)] => {
                assert_eq!(index.len(), keys.len);
                let words = WordKeys { words, offset: self.key[0].offset };
                self.resolve_by(&IndexedKeys { words, index }, keys.nulls, out)
            }
            [KeyColumn::Texts(texts)] => {
                self.resolve_by(&TextKeys { texts, offset: self.key[0].offset }, keys.nulls, out)
            }
            _ => self.resolve_by(&CompositeKeys { columns: keys.columns, cells: &self.key }, keys.nulls, out),
        }
    }

    fn resolve_by(&self, keys: &impl KeySet, nulls: Option<&[bool]>, out: &mut [RowAddress]) {
        let mut missing = Vec::new();
        {
            let nodes = self.nodes.read();
            if let Some(evicted) = nodes.evicted.clone() {
                drop(nodes);
                return self.resolve_evicted(&*evicted, keys, nulls, out);
            }
            match keys.words() {
                Some(words) if nodes.direct.len() > 0 => {
                    nodes.direct.look_up(words, out, &mut missing);
                    if !missing.is_empty() {
                        look_up_beyond(&nodes.all_shards(), keys, out, &mut missing);
                    }
                }
                // A lookup would mostly miss, so slots are made at once.
                _ if self.misses.load(Ordering::Relaxed) => missing.extend(0..out.len()),
                _ => look_up::<false, _>(&nodes.all_shards(), keys, 0, out, &mut missing),
            }
        }
        pass_nulls(nulls, 0, out, &mut missing);
        let mut made = 0;
        self.make_slots(keys, &missing, |_, place, row, is_new| {
            out[place] = row;
            made += usize::from(is_new);
        });
        self.misses.store(made * MOST > out.len(), Ordering::Relaxed);
    }

    /// Finds rows as `resolve_by` does, for a table with evicted rows.
    fn resolve_evicted<K: KeySet>(
        &self,
        evicted: &dyn EvictedRows,
        keys: &K,
        nulls: Option<&[bool]>,
        out: &mut [RowAddress],
    ) {
        let mut missing = Vec::new();
        for (group, out) in out.chunks_mut(EVICTED_GROUP).enumerate() {
            let first = group * EVICTED_GROUP;
            missing.clear();
            look_up::<true, _>(&self.nodes.read().all_shards(), keys, first, out, &mut missing);
            pass_nulls(nulls, first, out, &mut missing);
            // A row that is fetched counts as used only when it is looked up again, so that rows used once are
            // evicted first.
            missing.iter().for_each(|&i| out[i - first] = 0);
            // SAFETY: slots of this table.
            out.iter().filter(|row| **row != 0).for_each(|&row| unsafe { self.marks.use_row(row) });
            if !missing.is_empty() {
                self.fetch(evicted, keys, &missing, |i, row| out[i - first] = row);
            }
        }
    }

    /// Makes slots of the missing keys, with the rows that `evicted` has for them.
    ///
    /// The rows are read before the lock is taken: a key without a slot has the row that `evicted` returns, until a
    /// thread makes its slot. A thread that comes second finds the slot, and drops the row that it read.
    fn fetch<K: KeySet>(
        &self,
        evicted: &dyn EvictedRows,
        keys: &K,
        missing: &[usize],
        mut found_at: impl FnMut(usize, RowAddress),
    ) {
        let mut sought = Image::new(&self.shape);
        missing.iter().for_each(|&i| keys.copy(keys.key_at(i), &mut sought));
        let found = evicted.get(&sought);
        assert_eq!(found.places.len(), missing.len(), "each key that was looked for has a row or none");
        let mut text_bytes = 0;
        self.make_slots(keys, missing, |at, place, row, is_new| {
            if is_new && found.places[at] != NOWHERE {
                text_bytes += self.fill_cells(row, &found.rows, found.places[at] as usize);
            }
            found_at(place, row);
        });
        self.text_bytes.add(text_bytes);
    }

    /// Returns the key in a row, if it is one word.
    pub(crate) fn word_of_row(&self, row: RowAddress) -> u64 {
        // SAFETY: `row` is a slot of this table; key cells never change (invariant 2).
        unsafe { read(row, self.key[0].offset) }
    }

    /// Returns the hash of the key of a row: [`crate::hash_word`] of a single number.
    ///
    /// # Safety
    /// `row` is a row of this table, found since the rows that were evicted last went.
    pub unsafe fn key_hash(&self, row: RowAddress) -> u64 {
        self.hash_of_row(row)
    }

    /// Returns the hash of the key in a row.
    pub(crate) fn hash_of_row(&self, row: RowAddress) -> u64 {
        let part = |cell: &KeyCell| {
            // SAFETY: `row` is a slot of this table; key cells never change (invariant 2).
            let word = unsafe { read(row, cell.offset) };
            // SAFETY: a text key cell holds a live blob (invariant 4).
            if cell.text { hash_bytes(unsafe { blob::bytes(word) }) } else { hash_word(word) }
        };
        hash_parts(self.key.iter().map(part))
    }

    /// Returns whether keys are looked up without hashing and without reading a row.
    pub(crate) fn is_direct(&self) -> bool {
        self.nodes.read().direct.len() > 0
    }

    /// Returns whether its rows are too many for the second-level cache. True while a thread holds the whole table,
    /// which may take milliseconds.
    pub fn is_far(&self) -> bool {
        self.nodes.try_read().is_none_or(|nodes| nodes.slots() * self.layout.size() >= FAR)
    }

    /// Returns the count of sweeps and evictions. Read when none can be in progress.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Acquire)
    }

    /// Returns whether enough slots were made since the last sweep that another may pay. False while a thread holds the
    /// whole table.
    pub fn wants_sweep(&self) -> bool {
        let wants =
            |nodes: &Nodes| nodes.slots() >= nodes.sweep_at && nodes.evicted.is_none() && !self.is_in_snapshot();
        self.nodes.try_read().is_some_and(|nodes| wants(&nodes))
    }

    /// Frees the slots whose row does not exist. Does nothing while a checkpoint's snapshot is in progress, which may need
    /// them.
    ///
    /// # Safety
    /// Nothing holds an address of this table's rows, and nothing reads their text.
    pub unsafe fn sweep(&self) {
        if self.is_in_snapshot() {
            return;
        }
        self.forget_addresses();
        let mut guard = self.nodes.write();
        let nodes = &mut *guard;
        assert!(nodes.evicted.is_none(), "slots of a table with evicted rows are freed by evictions");
        // SAFETY: rows of an index are slots of this table; the caller promises quiescence.
        let exists = |&row: &RowAddress| unsafe { read(row, 0) } & EXISTS != 0;
        let mut dead: Vec<RowAddress> = nodes.direct.entries().map(|(_, row)| row).filter(|row| !exists(row)).collect();
        dead.iter().for_each(|&row| nodes.direct.set(self.word_of_row(row), 0));
        for (index, _) in nodes.nodes_mut(0..VIRTUAL_NODE_COUNT) {
            let (live, gone): (Vec<_>, Vec<_>) = index.rows().partition(exists);
            if !gone.is_empty() {
                index.rebuild(&live, &self.arenas.indexes, |row| self.hash_of_row(row));
                dead.extend(gone);
            }
        }
        nodes.discount(dead.len());
        let mut text_bytes = 0;
        for row in dead {
            if self.has_word_keys() {
                nodes.direct.discount(self.word_of_row(row));
            }
            let node = virtual_node_of(self.hash_of_row(row));
            // SAFETY: by the caller nothing refers to the row; the indexes no longer do.
            unsafe {
                self.bury(row);
                text_bytes += self.free_texts(row);
                nodes.node_mut(node).1.release(row);
            }
        }
        self.text_bytes.subtract(text_bytes);
        for row in nodes.direct.shrink() {
            let hash = self.hash_of_row(row);
            let (index, _) = nodes.node_mut(virtual_node_of(hash));
            index.insert(hash, row, &self.arenas.indexes, |row| self.hash_of_row(row));
        }
        nodes.sweep_at = (2 * nodes.slots()).max(SWEEP_SLOTS_MIN);
    }

    /// Makes workers drop the addresses that they cached.
    pub(crate) fn forget_addresses(&self) {
        self.sweeps.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether a key is one word.
    fn has_word_keys(&self) -> bool {
        matches!(*self.key, [KeyCell { text: false, .. }])
    }

    /// Frees the blobs that a row owns; returns the bytes of memory that they took, for the caller to count.
    pub(crate) fn free_texts(&self, row: RowAddress) -> usize {
        // SAFETY: called when the row is removed; the cells own their blobs (invariant 4).
        let free = |&column: &usize| unsafe { blob::free(read(row, self.layout.cell(column))) };
        self.texts.iter().map(free).sum()
    }

    /// Returns the memory of its texts. Each thread that makes or frees texts counts them there.
    pub fn text_bytes(&self) -> &TextBytes {
        &self.text_bytes
    }

    /// Returns the size of the table.
    pub fn stats(&self) -> TableStats {
        let nodes = self.nodes.read();
        let mut stats = TableStats { slots: nodes.slots(), row_bytes: 0, index_bytes: nodes.direct.bytes() };
        nodes.each_node(|index, rows| {
            stats.row_bytes += rows.bytes();
            stats.index_bytes += index.bytes();
        });
        stats
    }

    /// Returns the shape of copies of its rows.
    pub fn shape(&self) -> &Arc<RowShape> {
        &self.shape
    }

    /// Returns the cells of the key.
    pub(crate) fn key_cells(&self) -> &[KeyCell] {
        &self.key
    }

    pub(crate) fn nodes(&self) -> &RwLock<Nodes> {
        &self.nodes
    }

    pub(crate) fn arenas(&self) -> &Arenas {
        &self.arenas
    }

    /// Columns whose cells are texts or bytes.
    pub(crate) fn text_columns(&self) -> &[usize] {
        &self.texts
    }

    pub(crate) fn clock_hands(&self) -> MutexGuard<'_, ClockHands> {
        self.clock_hands.lock()
    }

    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Marks all rows in a generation, or clears all their marks.
    pub(crate) fn mark_blocks(&self, generation: Generation, marked: bool) {
        // SAFETY: blocks that rows are cut from have marks as their heads.
        self.arenas.rows.each_block(|block| unsafe { self.marks.fill(block, generation, marked) });
    }

    /// Calls `each` with the slots of a chunk of a virtual node; returns false if the node has no such chunk. No
    /// slots of that node are made meanwhile.
    pub(crate) fn each_slot_of(&self, node: usize, chunk: usize, each: impl FnMut(RowAddress)) -> bool {
        let nodes = self.nodes.read();
        assert!(!nodes.torn, "an eviction was broken off: rows are missing");
        nodes.shard_with(node).rows(node).chunk(chunk).map(|slots| slots.for_each(each)).is_some()
    }

    /// # Safety
    /// `row` is a slot of this table, and no thread writes its header meanwhile.
    pub(crate) unsafe fn exists(&self, row: RowAddress) -> bool {
        // SAFETY: by the caller.
        unsafe { read(row, 0) & EXISTS != 0 }
    }

    /// Installs nodes that were filled apart, in place of the table's own, which are empty.
    pub(crate) fn install(&self, first: usize, filled: Vec<(Rows, Vec<RowAddress>)>, row_arenas: RowArenas) {
        let nodes = &mut *self.nodes.write();
        self.arenas.rows.absorb(row_arenas);
        let words = self.has_word_keys();
        if words {
            let mut new = Counts::default();
            filled.iter().flat_map(|(_, slots)| slots).for_each(|&row| new.add(Some(self.word_of_row(row))));
            if let Some(len) = nodes.direct.count(&new) {
                self.grow_direct(nodes, len);
            }
        }
        let covered = nodes.direct.len() as u64;
        for (node, (rows, mut slots)) in (first..).zip(filled) {
            let place = nodes.node_mut(node).1;
            assert!(place.chunk(0).is_none(), "only empty nodes are filled apart");
            *place = rows;
            nodes.count(slots.len());
            if words && covered > 0 {
                let (in_array, beyond) = slots.into_iter().partition(|&row| self.word_of_row(row) < covered);
                slots = beyond;
                let in_array: Vec<RowAddress> = in_array;
                in_array.into_iter().for_each(|row| nodes.direct.set(self.word_of_row(row), row));
            }
            if !slots.is_empty() {
                nodes.node_mut(node).0.rebuild(&slots, &self.arenas.indexes, |row| self.hash_of_row(row));
            }
        }
        nodes.sweep_at = nodes.sweep_at.max(2 * nodes.slots());
    }

    /// Returns the slot of a copied row's key, if it has one.
    pub(crate) fn find_slot(&self, nodes: &Nodes, image: &Image, row: usize) -> Option<RowAddress> {
        let hash = image.hash(row);
        let is_key = |slot: RowAddress| {
            self.shape.key.iter().zip(&self.key).all(|(&word, cell)| {
                // SAFETY: a slot of this table, whose key cells never change and own live blobs.
                unsafe {
                    let value = read(slot, cell.offset);
                    if cell.text { blob::bytes(value) == image.text(row, word) } else { value == image.row(row)[word] }
                }
            })
        };
        let node = virtual_node_of(hash);
        nodes.shard_with(node).index(node).find(hash, is_key)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.texts.is_empty() {
            self.nodes.read().each_row(|row| _ = self.free_texts(row));
        }
    }
}

/// Passes over null keys: they have no row in `out`, and none is made for them. `out` has the keys from `first` on.
fn pass_nulls(nulls: Option<&[bool]>, first: usize, out: &mut [RowAddress], missing: &mut Vec<usize>) {
    if let Some(nulls) = nulls {
        missing.retain(|&i| !nulls[i]);
        out.iter_mut().zip(&nulls[first..]).filter(|(_, null)| **null).for_each(|(row, _)| *row = 0);
    }
}
