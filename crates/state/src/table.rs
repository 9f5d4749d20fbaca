//! A table: the virtual nodes, and finding or making the slots of many keys at once.

use crate::blob;
use crate::cold::{ColdRows, NOWHERE};
use crate::direct::Direct;
use crate::evict::Hands;
use crate::hash::{combine, hash_bytes, hash_parts, hash_word, virtual_node_of};
use crate::image::{Image, KeyPart};
use crate::index::{ELSEWHERE, Index, Place};
use crate::keys::{KeyColumn, KeyTexts, Keys};
use crate::layout::{EXISTS, RowLayout};
use crate::marks::{Generation, Marks};
use crate::memory::{Arena, FAR, ask_for};
use crate::rows::{RowAddress, Rows};
use crate::shape::RowShape;
use crate::snapshot::Snapshot;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Keys looked up together, so that their cache misses overlap.
const GROUP: usize = 32;

/// Keys of a table with cold rows that are resolved together: so many that the misses among them make a batch, and so
/// few that what was looked at is still in the cache when their slots are made.
const COLD_GROUP: usize = 1 << 11;

/// Keys whose slots are made together: so many that those of a virtual node are some, and so few that what is known of
/// them stays in the second-level cache.
const MADE_CHUNK: usize = 1 << 13;

/// Most keys have no slot where more than one of so many has none.
const MOST: usize = 2;

/// Slots below which sweeping is not worth a pause.
const SWEEP_SLOTS_MIN: usize = 1 << 16;

/// A table's rows and their index. Prepare calls [`Table::resolve`] from any thread; access works on
/// the addresses it gave.
pub struct Table {
    definition: tidemill_plan::Table,
    layout: RowLayout,
    key: Vec<KeyCell>,
    /// Columns whose cells are texts or bytes.
    texts: Vec<usize>,
    shape: Arc<RowShape>,
    marks: Marks,
    snapshot: Snapshot,
    nodes: RwLock<Nodes>,
    /// Which rows go next. Of who evicts alone.
    hands: Mutex<Hands>,
    /// How often it was swept.
    sweeps: AtomicU64,
    /// Whether most keys had no slot when some were looked up last.
    misses: AtomicBool,
}

/// One part of the key inside a row.
#[derive(Clone, Copy)]
struct KeyCell {
    offset: usize,
    text: bool,
}

/// Indexes and rows by virtual node, apart so that the indexes' heads stay in the first-level cache.
pub(crate) struct Nodes {
    /// Small whole-number keys, of all virtual nodes; none where rows may be cold.
    direct: Direct,
    pub indexes: Box<[Index; VIRTUAL_NODE_COUNT]>,
    pub rows: Vec<Rows>,
    /// What indexes are cut from.
    pub arena: Arena,
    /// What rows are cut from: the heads of blocks are [`Marks`].
    pub row_arena: Arena,
    pub slots: usize,
    /// Sweep when there are this many slots.
    sweep_at: usize,
    /// Where the rows of keys without a slot are, if they may have any.
    pub cold: Option<Arc<dyn ColdRows>>,
    /// Bytes of texts, and the rows whose texts these are: some of the table's.
    pub texts: (usize, usize),
}

/// What a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Slots: existing rows and keys that were touched without one.
    pub slots: usize,
    /// Bytes of rows, without text outside them.
    pub row_bytes: usize,
    /// Bytes of indexes.
    pub index_bytes: usize,
}

impl Table {
    /// An empty table.
    pub fn new(definition: &tidemill_plan::Table) -> Self {
        let layout = RowLayout::of(definition);
        let key = definition
            .key
            .iter()
            .map(|&c| KeyCell { offset: layout.cell(c), text: definition.columns[c].ty.ty.is_bytes() })
            .collect();
        let marks = Marks::of(&layout);
        let nodes = Nodes::new(&layout, None);
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
            nodes: RwLock::new(nodes),
            hands: Mutex::default(),
            sweeps: AtomicU64::new(0),
            misses: AtomicBool::new(false),
        }
    }

    /// What it was made from.
    pub fn definition(&self) -> &tidemill_plan::Table {
        &self.definition
    }

    /// Where the bits of its rows lie.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Finds the slot of each key, making those that are missing; 0 where the key is null.
    pub fn resolve(&self, keys: &Keys<'_>, out: &mut [RowAddress]) {
        assert_eq!(keys.columns.len(), self.key.len(), "a key of {} has another arity", self.definition.name);
        assert_eq!(keys.len, out.len());
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
            if let Some(cold) = nodes.cold.clone() {
                drop(nodes);
                return self.resolve_cold(&*cold, keys, nulls, out);
            }
            match keys.words() {
                Some(words) if nodes.direct.len() > 0 => {
                    nodes.direct.look_up(words, out, &mut missing);
                    if !missing.is_empty() {
                        look_up_beyond(&nodes, keys, out, &mut missing);
                    }
                }
                // To look for them first would be in vain.
                _ if self.misses.load(Ordering::Relaxed) => missing.extend(0..out.len()),
                _ => look_up::<false, _>(&nodes, keys, 0, out, &mut missing),
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

    /// As `resolve_by`, where rows may be cold.
    fn resolve_cold<K: KeySet>(&self, cold: &dyn ColdRows, keys: &K, nulls: Option<&[bool]>, out: &mut [RowAddress]) {
        let mut missing = Vec::new();
        for (group, out) in out.chunks_mut(COLD_GROUP).enumerate() {
            let first = group * COLD_GROUP;
            missing.clear();
            look_up::<true, _>(&self.nodes.read(), keys, first, out, &mut missing);
            pass_nulls(nulls, first, out, &mut missing);
            // What is used once only is not spared, so that it makes room for what is used again.
            missing.iter().for_each(|&i| out[i - first] = 0);
            // SAFETY: slots of this table.
            out.iter().filter(|row| **row != 0).for_each(|&row| unsafe { self.marks.use_row(row) });
            if !missing.is_empty() {
                self.fetch(cold, keys, &missing, |i, row| out[i - first] = row);
            }
        }
    }

    /// Makes slots of the missing keys, with the rows that they have where it is cold.
    ///
    /// The rows are read before the lock is taken: a key without a slot has the row that `cold` says, until
    /// somebody makes its slot. Whoever comes second finds the slot, and drops what was read.
    fn fetch<K: KeySet>(
        &self,
        cold: &dyn ColdRows,
        keys: &K,
        missing: &[usize],
        mut found_at: impl FnMut(usize, RowAddress),
    ) {
        let mut sought = Image::new(&self.shape);
        missing.iter().for_each(|&i| keys.copy(key_at(keys, i), &mut sought));
        let found = cold.get(&sought);
        self.make_slots(keys, missing, |at, place, row, is_new| {
            if is_new && found.places[at] != NOWHERE {
                self.fill_cells(row, &found.rows, found.places[at] as usize);
            }
            found_at(place, row);
        });
        if !self.texts.is_empty() {
            let nodes = &mut *self.nodes.write();
            nodes.texts.0 += found.rows.text_bytes();
            nodes.texts.1 += found.rows.len();
        }
    }

    /// Calls `made` for each key that was missing with its number among those, its place among all, its slot, and whether
    /// that was made now: others may have been here meanwhile, and a key may be there twice.
    fn make_slots<K: KeySet>(&self, keys: &K, missing: &[usize], mut made: impl FnMut(usize, usize, RowAddress, bool)) {
        for (chunk, missing) in missing.chunks(MADE_CHUNK).enumerate() {
            let wanted = by_node(&keys.hashes(missing), missing);
            let nodes = &mut *self.nodes.write();
            let mut run = 0;
            // As in `look_up`.
            for first in (0..wanted.len() + 2 * GROUP).step_by(GROUP) {
                nodes.ask(keys, &wanted[group(&wanted, first)]);
                if first >= GROUP {
                    let made = first.saturating_sub(2 * GROUP);
                    run = nodes.ask_further(&wanted, group(&wanted, first - GROUP), (run, made));
                }
                if first >= 2 * GROUP {
                    self.make(nodes, keys, &wanted[group(&wanted, first - 2 * GROUP)], |at, place, row, is_new| {
                        made(chunk * MADE_CHUNK + at, place, row, is_new);
                    });
                }
            }
        }
    }

    /// Finds or makes the slots of a group's keys.
    #[inline(never)]
    fn make<K: KeySet>(
        &self,
        nodes: &mut Nodes,
        keys: &K,
        group: &[Wanted],
        mut made: impl FnMut(usize, usize, RowAddress, bool),
    ) {
        for &Wanted { hash, at, place } in group {
            let (row, is_new) = self.find_or_insert(nodes, keys, key_at(keys, place as usize), hash);
            made(at as usize, place as usize, row, is_new);
        }
    }

    /// The slot of a key of that hash, and whether it was made now.
    #[inline(always)]
    fn find_or_insert<K: KeySet>(&self, nodes: &mut Nodes, keys: &K, key: K::Key, hash: u64) -> (RowAddress, bool) {
        let node = virtual_node_of(hash);
        let word = keys.word(key).filter(|_| nodes.cold.is_none());
        let covered = word.filter(|&word| word < nodes.direct.len() as u64);
        if let Some(row) = covered.map(|word| nodes.direct.get(word)).filter(|&row| row != 0) {
            return (row, false);
        }
        let Nodes { direct, indexes, rows, arena, row_arena, slots, .. } = nodes;
        let mut make = || {
            let row = rows[node].allocate(row_arena);
            keys.write(key, row);
            *slots += 1;
            row
        };
        let (row, is_new) = match covered {
            Some(word) => {
                let row = make();
                direct.set(word, row);
                (row, true)
            }
            None => {
                let matches = |row| keys.matches(key, row);
                indexes[node].find_or_insert(hash, matches, make, arena, |row| self.hash_of_row(row))
            }
        };
        if is_new && let Some(len) = word.and_then(|word| direct.count(word)) {
            direct.grow(len);
            self.move_to_direct(nodes);
        }
        (row, is_new)
    }

    /// Moves the rows whose keys the array covers there from the indexes.
    fn move_to_direct(&self, nodes: &mut Nodes) {
        let len = nodes.direct.len() as u64;
        for index in nodes.indexes.iter_mut() {
            let (covered, rest): (Vec<_>, Vec<_>) = index.rows().partition(|&row| self.word_of_row(row) < len);
            if covered.is_empty() {
                continue;
            }
            index.rebuild(&rest, &mut nodes.arena, |row| self.hash_of_row(row));
            covered.into_iter().for_each(|row| nodes.direct.set(self.word_of_row(row), row));
        }
    }

    /// The key in a row, where it is one word.
    fn word_of_row(&self, row: RowAddress) -> u64 {
        // SAFETY: `row` is a slot of this table; key cells never change (invariant 2).
        unsafe { read(row, self.key[0].offset) }
    }

    /// The hash of the key in a row.
    pub(crate) fn hash_of_row(&self, row: RowAddress) -> u64 {
        let part = |cell: &KeyCell| {
            // SAFETY: `row` is a slot of this table; key cells never change (invariant 2).
            let word = unsafe { read(row, cell.offset) };
            // SAFETY: a text key cell holds a live blob (invariant 4).
            if cell.text { hash_bytes(unsafe { blob::bytes(word) }) } else { hash_word(word) }
        };
        hash_parts(self.key.iter().map(part))
    }

    /// Whether keys are looked up without a hash, and without a row being touched.
    pub(crate) fn is_direct(&self) -> bool {
        self.nodes.read().direct.len() > 0
    }

    /// Whether its rows are too many for the second-level cache. While slots are made, which may take milliseconds, they
    /// are taken to be.
    pub fn is_far(&self) -> bool {
        self.nodes.try_read().is_none_or(|nodes| nodes.slots * self.layout.size() >= FAR)
    }

    /// How often it was swept. Read where no sweep can be on its way.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Acquire)
    }

    /// Whether so many slots were made since the last sweep that another may pay. Not while slots are made.
    pub fn wants_sweep(&self) -> bool {
        let wants = |nodes: &Nodes| nodes.slots >= nodes.sweep_at && nodes.cold.is_none() && !self.is_in_snapshot();
        self.nodes.try_read().is_some_and(|nodes| wants(&nodes))
    }

    /// Frees the slots whose row does not exist; none while a snapshot is under way, which may need them.
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
        // SAFETY: rows of an index are slots of this table; the caller promises quiescence.
        let exists = |&row: &RowAddress| unsafe { read(row, 0) } & EXISTS != 0;
        let mut dead: Vec<RowAddress> = nodes.direct.entries().map(|(_, row)| row).filter(|row| !exists(row)).collect();
        dead.iter().for_each(|&row| nodes.direct.set(self.word_of_row(row), 0));
        for index in nodes.indexes.iter_mut() {
            let (live, gone): (Vec<_>, Vec<_>) = index.rows().partition(exists);
            if !gone.is_empty() {
                index.rebuild(&live, &mut nodes.arena, |row| self.hash_of_row(row));
                dead.extend(gone);
            }
        }
        nodes.slots -= dead.len();
        for row in dead {
            if self.has_word_keys() {
                nodes.direct.discount(self.word_of_row(row));
            }
            let node = virtual_node_of(self.hash_of_row(row));
            // SAFETY: by the caller nothing refers to it; the indexes no longer do.
            unsafe {
                self.bury(row);
                self.free_texts(row);
                nodes.rows[node].release(row);
            }
        }
        for row in nodes.direct.shrink() {
            let hash = self.hash_of_row(row);
            nodes.indexes[virtual_node_of(hash)].insert(hash, row, &mut nodes.arena, |row| self.hash_of_row(row));
        }
        nodes.sweep_at = (2 * nodes.slots).max(SWEEP_SLOTS_MIN);
    }

    /// Has workers forget the slots that they remember.
    pub(crate) fn forget_addresses(&self) {
        self.sweeps.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a key is one word.
    fn has_word_keys(&self) -> bool {
        matches!(*self.key, [KeyCell { text: false, .. }])
    }

    /// Frees the blobs that a row owns.
    pub(crate) fn free_texts(&self, row: RowAddress) {
        for &column in &self.texts {
            // SAFETY: called when the row goes away; the cell owns its blob (invariant 4).
            unsafe { blob::free(read(row, self.layout.cell(column))) };
        }
    }

    /// What it holds.
    pub fn stats(&self) -> TableStats {
        let nodes = self.nodes.read();
        TableStats {
            slots: nodes.slots,
            row_bytes: nodes.rows.iter().map(Rows::bytes).sum(),
            index_bytes: nodes.direct.bytes() + nodes.indexes.iter().map(Index::bytes).sum::<usize>(),
        }
    }

    /// What copies of its rows consist of.
    pub fn shape(&self) -> &Arc<RowShape> {
        &self.shape
    }

    pub(crate) fn nodes(&self) -> &RwLock<Nodes> {
        &self.nodes
    }

    /// Columns whose cells are texts or bytes.
    pub(crate) fn text_columns(&self) -> &[usize] {
        &self.texts
    }

    pub(crate) fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock()
    }

    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Marks all rows in a generation, or none.
    pub(crate) fn mark_blocks(&self, generation: Generation, marked: bool) {
        // SAFETY: blocks that rows are cut from have marks as their heads.
        self.nodes.read().row_arena.blocks().for_each(|block| unsafe { self.marks.fill(block, generation, marked) });
    }

    /// Calls `each` with the slots of a chunk of a virtual node; false where it has no such chunk. No slots
    /// are made meanwhile.
    pub(crate) fn each_slot_of(&self, node: usize, chunk: usize, each: impl FnMut(RowAddress)) -> bool {
        self.nodes.read().rows[node].chunk(chunk).map(|slots| slots.for_each(each)).is_some()
    }

    /// # Safety
    /// `row` is a slot of this table, and nobody writes its header meanwhile.
    pub(crate) unsafe fn exists(&self, row: RowAddress) -> bool {
        // SAFETY: by the caller.
        unsafe { read(row, 0) & EXISTS != 0 }
    }

    /// Takes over rows of nodes that were filled apart, in the stead of the nodes' own, which have none.
    pub(crate) fn install(&self, first: usize, filled: Vec<(Rows, Vec<RowAddress>)>, row_arena: Arena) {
        let nodes = &mut *self.nodes.write();
        nodes.row_arena.absorb(row_arena);
        let words = self.has_word_keys();
        if words {
            let slots = filled.iter().flat_map(|(_, slots)| slots);
            let grown = slots.filter_map(|&row| nodes.direct.count(self.word_of_row(row))).max();
            if let Some(len) = grown {
                nodes.direct.grow(len);
                self.move_to_direct(nodes);
            }
        }
        let covered = nodes.direct.len() as u64;
        for (node, (rows, mut slots)) in (first..).zip(filled) {
            assert!(nodes.rows[node].chunk(0).is_none(), "only empty nodes are filled apart");
            nodes.rows[node] = rows;
            nodes.slots += slots.len();
            if words && covered > 0 {
                let (in_array, beyond) = slots.into_iter().partition(|&row| self.word_of_row(row) < covered);
                slots = beyond;
                let in_array: Vec<RowAddress> = in_array;
                in_array.into_iter().for_each(|row| nodes.direct.set(self.word_of_row(row), row));
            }
            if !slots.is_empty() {
                nodes.indexes[node].rebuild(&slots, &mut nodes.arena, |row| self.hash_of_row(row));
            }
        }
        nodes.sweep_at = nodes.sweep_at.max(2 * nodes.slots);
    }

    /// The slot of a copied row's key.
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
        nodes.indexes[virtual_node_of(hash)].find(hash, is_key)
    }

    /// Addresses of all rows that exist.
    pub(crate) fn existing_rows(&self) -> Vec<RowAddress> {
        let nodes = self.nodes.read();
        // SAFETY: rows of an index are slots of this table.
        let exists = |row: &RowAddress| unsafe { read(*row, 0) } & EXISTS != 0;
        nodes.all_rows().filter(exists).collect()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.texts.is_empty() {
            let rows: Vec<_> = self.nodes.get_mut().all_rows().collect();
            rows.into_iter().for_each(|row| self.free_texts(row));
        }
    }
}

impl Nodes {
    /// Asks for the keys of a group, and for their buckets.
    #[inline(never)]
    fn ask(&self, keys: &impl KeySet, group: &[Wanted]) {
        for &Wanted { hash, place, .. } in group {
            self.indexes[virtual_node_of(hash)].ask(hash);
            keys.ask(place as usize);
        }
    }

    /// Asks for what else it takes to find or make the slots of a group's keys, where all before `made` have theirs.
    /// `run`: where those of the first key's virtual node begin; returns the same for the group's last.
    #[inline(never)]
    fn ask_further(&self, wanted: &[Wanted], group: Range<usize>, (mut run, made): (usize, usize)) -> usize {
        for i in group {
            let Wanted { hash, .. } = wanted[i];
            let node = virtual_node_of(hash);
            self.indexes[node].ask_further(hash);
            if node != virtual_node_of(wanted[run].hash) {
                run = i;
            }
            self.rows[node].ask(i - run.max(made));
        }
        run
    }

    /// Of a table without rows in memory.
    pub fn new(layout: &RowLayout, cold: Option<Arc<dyn ColdRows>>) -> Nodes {
        let mut arena = Arena::default();
        Nodes {
            direct: Direct::new(),
            indexes: Box::new(std::array::from_fn(|_| Index::new(&mut arena))),
            rows: (0..VIRTUAL_NODE_COUNT).map(|_| Rows::new(layout.size())).collect(),
            arena,
            row_arena: Arena::with_head(Marks::of(layout).bytes()),
            slots: 0,
            sweep_at: SWEEP_SLOTS_MIN,
            cold,
            texts: (0, 0),
        }
    }

    /// All slots that have a key, in no useful order.
    pub fn all_rows(&self) -> impl Iterator<Item = RowAddress> + '_ {
        self.direct.entries().map(|(_, row)| row).chain(self.indexes.iter().flat_map(Index::rows))
    }
}

/// A key on its way through the three steps of [`look_up`].
#[derive(Clone, Copy)]
struct Sought<K> {
    key: K,
    place: Place,
    row: RowAddress,
}

/// A key whose slot is to be made: its hash, its number among those, and its place among all.
#[derive(Clone, Copy, Default)]
struct Wanted {
    hash: u64,
    at: u32,
    place: u32,
}

/// Keys by virtual node, so that what making their slots reads and writes lies close together; those of one node in
/// their order.
fn by_node(hashes: &[u64], places: &[usize]) -> Vec<Wanted> {
    let all = hashes.iter().zip(places).zip(0..);
    let all = all.map(|((&hash, &place), at)| Wanted { hash, at, place: place as u32 });
    if hashes.len() < VIRTUAL_NODE_COUNT {
        return all.collect();
    }
    let mut next = [0; VIRTUAL_NODE_COUNT];
    hashes.iter().for_each(|&hash| next[virtual_node_of(hash)] += 1);
    let mut start = 0;
    for next in &mut next {
        start += std::mem::replace(next, start);
    }
    let mut wanted = vec![Wanted::default(); hashes.len()];
    for one in all {
        let next = &mut next[virtual_node_of(one.hash)];
        wanted[*next] = one;
        *next += 1;
    }
    wanted
}

/// The places of the group that begins at `first`.
fn group(wanted: &[Wanted], first: usize) -> Range<usize> {
    first.min(wanted.len())..(first + GROUP).min(wanted.len())
}

/// The key at a place.
#[inline]
fn key_at<K: KeySet>(keys: &K, i: usize) -> K::Key {
    keys.range(i..i + 1).next().expect("one place, one key")
}

/// Null keys, of which `out` has those from `first` on, have no slot and miss none.
fn pass_nulls(nulls: Option<&[bool]>, first: usize, out: &mut [RowAddress], missing: &mut Vec<usize>) {
    if let Some(nulls) = nulls {
        missing.retain(|&i| !nulls[i]);
        out.iter_mut().zip(&nulls[first..]).filter(|(_, null)| **null).for_each(|(row, _)| *row = 0);
    }
}

/// Looks up the keys from `start` on, as many as there is room for in `out`, in three steps, a group each, of which
/// each works on what the step before it asked for one round earlier, so that the cache misses of three groups overlap.
/// The steps are functions of their own to have all registers: in tables that fit the cache, every instruction is felt.
/// Places of keys without slot go to `missing`; they are frequent where `MISSES`.
fn look_up<const MISSES: bool, K: KeySet>(
    nodes: &Nodes,
    keys: &K,
    start: usize,
    out: &mut [RowAddress],
    missing: &mut Vec<usize>,
) {
    let nobody = Sought { key: K::Key::default(), place: Place::NOWHERE, row: 0 };
    let mut groups = [[nobody; GROUP]; 3];
    let len = out.len();
    let rounds = len.div_ceil(GROUP);
    let range = |round: usize| round * GROUP..((round + 1) * GROUP).min(len);
    let beyond = |range: Range<usize>| start + range.start..start + range.end;
    for round in 0..rounds + 2 {
        if round < rounds {
            ask(nodes, keys, beyond(range(round)), &mut groups[round % 3]);
        }
        if (1..=rounds).contains(&round) {
            guess::<MISSES, _>(&mut groups[(round - 1) % 3]);
        }
        if round >= 2 {
            let first = start + (round - 2) * GROUP;
            compare::<MISSES, _>(nodes, keys, &groups[(round - 2) % 3], &mut out[range(round - 2)], first, missing);
        }
    }
}

/// Looks up the keys at the places in `missing`, which the array does not have, in the indexes. Leaves the
/// places of those without slot.
#[cold]
fn look_up_beyond<K: KeySet>(nodes: &Nodes, keys: &K, out: &mut [RowAddress], missing: &mut Vec<usize>) {
    let subset = Subset { keys, places: missing };
    let mut rows = vec![0; missing.len()];
    let mut nowhere = Vec::new();
    look_up::<false, _>(nodes, &subset, 0, &mut rows, &mut nowhere);
    missing.iter().zip(rows).for_each(|(&i, row)| out[i] = row);
    *missing = nowhere.into_iter().map(|i| missing[i]).collect();
}

/// Hashes a group's keys and asks for their buckets.
#[inline(never)]
fn ask<K: KeySet>(nodes: &Nodes, keys: &K, range: Range<usize>, group: &mut [Sought<K::Key>; GROUP]) {
    let indexes = &*nodes.indexes;
    for (sought, key) in group.iter_mut().zip(keys.range(range)) {
        let hash = keys.hash(key);
        sought.key = key;
        sought.place = indexes[virtual_node_of(hash)].ask(hash);
    }
}

/// Picks a group's rows by tag and asks for them.
#[inline(never)]
fn guess<const MISSES: bool, K>(group: &mut [Sought<K>; GROUP]) {
    for sought in group {
        sought.row = sought.place.guess::<MISSES>();
    }
}

/// Compares a group's keys to those of the rows picked. Where `MISSES` are frequent, no row picked means that there is
/// none.
#[inline(never)]
fn compare<const MISSES: bool, K: KeySet>(
    nodes: &Nodes,
    keys: &K,
    group: &[Sought<K::Key>; GROUP],
    out: &mut [RowAddress],
    first: usize,
    missing: &mut Vec<usize>,
) {
    for (i, (&Sought { key, row, .. }, out)) in group.iter().zip(out).enumerate() {
        *out = row;
        if MISSES && row == 0 {
            missing.push(first + i);
        } else if row == 0 || row == ELSEWHERE || !keys.matches(key, row) {
            match find(nodes, keys, key) {
                Some(row) => *out = row,
                None => missing.push(first + i),
            }
        }
    }
}

/// The row of a key that was not in the place where it was looked for first.
#[cold]
#[inline(never)]
fn find<K: KeySet>(nodes: &Nodes, keys: &K, key: K::Key) -> Option<RowAddress> {
    let hash = keys.hash(key);
    nodes.indexes[virtual_node_of(hash)].find(hash, |row| keys.matches(key, row))
}

/// Reads a word of a row.
///
/// # Safety
/// `row` is a slot, `offset` lies inside its layout, and no one writes that word now.
#[inline(always)]
pub(crate) unsafe fn read(row: RowAddress, offset: usize) -> u64 {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *const u64).read() }
}

/// Writes a word of a row.
///
/// # Safety
/// As [`read`], and no one else reads it now.
#[inline(always)]
pub(crate) unsafe fn write(row: RowAddress, offset: usize, word: u64) {
    // SAFETY: by the caller.
    unsafe { ((row as usize + offset) as *mut u64).write(word) }
}

/// Keys of one shape. `matches` and `write` are called with slots of the table at hand.
trait KeySet: Sized {
    /// A key.
    type Key: Copy + Default;
    /// The keys of some accesses.
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = Self::Key>;
    fn hash(&self, key: Self::Key) -> u64;
    /// Asks for the memory of the key at a place.
    fn ask(&self, place: usize);
    /// The hashes of the keys at some places.
    fn hashes(&self, places: &[usize]) -> Vec<u64> {
        places.iter().map(|&i| self.hash(key_at(self, i))).collect()
    }
    fn matches(&self, key: Self::Key, row: RowAddress) -> bool;
    /// Fills the key cells of a fresh slot.
    fn write(&self, key: Self::Key, row: RowAddress);
    /// Adds a row with that key and nothing else.
    fn copy(&self, key: Self::Key, image: &mut Image);
    /// All keys, where each is one word.
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        None::<std::iter::Empty<u64>>
    }
    /// A key that is one word.
    fn word(&self, _key: Self::Key) -> Option<u64> {
        None
    }
}

/// The keys at some places.
struct Subset<'a, K> {
    keys: &'a K,
    places: &'a [usize],
}

impl<K: KeySet> KeySet for Subset<'_, K> {
    type Key = K::Key;
    fn ask(&self, place: usize) {
        self.keys.ask(self.places[place])
    }
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = K::Key> {
        self.places[range].iter().flat_map(|&i| self.keys.range(i..i + 1))
    }
    fn hash(&self, key: K::Key) -> u64 {
        self.keys.hash(key)
    }
    fn matches(&self, key: K::Key, row: RowAddress) -> bool {
        self.keys.matches(key, row)
    }
    fn write(&self, key: K::Key, row: RowAddress) {
        self.keys.write(key, row)
    }
    fn copy(&self, key: K::Key, image: &mut Image) {
        self.keys.copy(key, image)
    }
}

struct WordKeys<'a> {
    words: &'a [u64],
    offset: usize,
}

impl KeySet for WordKeys<'_> {
    type Key = u64;
    #[inline(always)]
    fn ask(&self, place: usize) {
        ask_for(self.words, place)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = u64> {
        self.words[range].iter().copied()
    }
    #[inline(always)]
    fn hash(&self, key: u64) -> u64 {
        hash_word(key)
    }
    #[inline(always)]
    fn matches(&self, key: u64, row: RowAddress) -> bool {
        // SAFETY: a slot of the table; its key cell is immutable (invariant 2).
        unsafe { read(row, self.offset) == key }
    }
    fn write(&self, key: u64, row: RowAddress) {
        // SAFETY: a fresh slot that nobody else knows yet.
        unsafe { write(row, self.offset, key) }
    }
    fn copy(&self, key: u64, image: &mut Image) {
        image.push_key(|_| KeyPart::Word(key))
    }
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.words.iter().copied())
    }
    fn word(&self, key: u64) -> Option<u64> {
        Some(key)
    }
}

struct IndexedKeys<'a> {
    words: WordKeys<'a>,
    index: &'a [u32],
}

impl KeySet for IndexedKeys<'_> {
    type Key = u64;
    #[inline(always)]
    fn ask(&self, place: usize) {
        self.words.ask(self.index[place] as usize)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = u64> {
        self.index[range].iter().map(|&i| self.words.words[i as usize])
    }
    #[inline(always)]
    fn hash(&self, key: u64) -> u64 {
        self.words.hash(key)
    }
    #[inline(always)]
    fn matches(&self, key: u64, row: RowAddress) -> bool {
        self.words.matches(key, row)
    }
    fn write(&self, key: u64, row: RowAddress) {
        self.words.write(key, row)
    }
    fn copy(&self, key: u64, image: &mut Image) {
        self.words.copy(key, image)
    }
    fn words(&self) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.index.iter().map(|&i| self.words.words[i as usize]))
    }
    fn word(&self, key: u64) -> Option<u64> {
        Some(key)
    }
}

struct TextKeys<'a> {
    texts: KeyTexts<'a>,
    offset: usize,
}

impl<'a> KeySet for TextKeys<'a> {
    type Key = &'a [u8];
    #[inline(always)]
    fn ask(&self, place: usize) {
        self.texts.ask(place)
    }
    #[inline(always)]
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        range.map(|i| self.texts.get(i))
    }
    #[inline(always)]
    fn hash(&self, key: &'a [u8]) -> u64 {
        hash_bytes(key)
    }
    #[inline(always)]
    fn matches(&self, key: &'a [u8], row: RowAddress) -> bool {
        // SAFETY: a slot of the table; its key cell is immutable and owns a live blob.
        unsafe { blob::bytes(read(row, self.offset)) == key }
    }
    fn write(&self, key: &'a [u8], row: RowAddress) {
        // SAFETY: a fresh slot that nobody else knows yet.
        unsafe { write(row, self.offset, blob::new(key)) }
    }
    fn copy(&self, key: &'a [u8], image: &mut Image) {
        image.push_key(|_| KeyPart::Text(key))
    }
}

struct CompositeKeys<'a> {
    columns: &'a [KeyColumn<'a>],
    cells: &'a [KeyCell],
}

impl KeySet for CompositeKeys<'_> {
    /// A place in the columns.
    type Key = usize;
    fn ask(&self, place: usize) {
        self.columns.iter().for_each(|column| match column {
            KeyColumn::Words(words) => ask_for(words, place),
            KeyColumn::Indexed(words, index) => ask_for(words, index[place] as usize),
            KeyColumn::Texts(texts) => texts.ask(place),
        })
    }
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range
    }
    fn hash(&self, i: usize) -> u64 {
        self.columns.iter().fold(0, |hash, column| {
            let part = match column {
                KeyColumn::Words(words) => hash_word(words[i]),
                KeyColumn::Indexed(words, index) => hash_word(words[index[i] as usize]),
                KeyColumn::Texts(texts) => hash_bytes(texts.get(i)),
            };
            combine(hash, part)
        })
    }
    /// Column by column, so that nothing branches on what they are for each key.
    fn hashes(&self, places: &[usize]) -> Vec<u64> {
        fn add(hashes: &mut [u64], places: &[usize], part: impl Fn(usize) -> u64) {
            hashes.iter_mut().zip(places).for_each(|(hash, &i)| *hash = combine(*hash, part(i)));
        }
        let mut hashes = vec![0; places.len()];
        for column in self.columns {
            match column {
                KeyColumn::Words(words) => add(&mut hashes, places, |i| hash_word(words[i])),
                KeyColumn::Indexed(words, index) => add(&mut hashes, places, |i| hash_word(words[index[i] as usize])),
                KeyColumn::Texts(texts) => add(&mut hashes, places, |i| hash_bytes(texts.get(i))),
            }
        }
        hashes
    }
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        self.columns.iter().zip(self.cells).all(|(column, cell)| match *column {
            KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.matches(words[i], row),
            KeyColumn::Indexed(words, index) => {
                WordKeys { words, offset: cell.offset }.matches(words[index[i] as usize], row)
            }
            KeyColumn::Texts(texts) => TextKeys { texts, offset: cell.offset }.matches(texts.get(i), row),
        })
    }
    fn copy(&self, i: usize, image: &mut Image) {
        image.push_key(|part| match self.columns[part] {
            KeyColumn::Words(words) => KeyPart::Word(words[i]),
            KeyColumn::Indexed(words, index) => KeyPart::Word(words[index[i] as usize]),
            KeyColumn::Texts(texts) => KeyPart::Text(texts.get(i)),
        })
    }
    fn write(&self, i: usize, row: RowAddress) {
        for (column, cell) in self.columns.iter().zip(self.cells) {
            match *column {
                KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.write(words[i], row),
                KeyColumn::Indexed(words, index) => {
                    WordKeys { words, offset: cell.offset }.write(words[index[i] as usize], row)
                }
                KeyColumn::Texts(texts) => TextKeys { texts, offset: cell.offset }.write(texts.get(i), row),
            }
        }
    }
}
