//! A table: the virtual nodes, and finding or making the slots of many keys at once.

use crate::blob;
use crate::hash::{combine, hash_bytes, hash_word, virtual_node_of};
use crate::index::Index;
use crate::keys::{KeyColumn, KeyTexts, Keys};
use crate::layout::{EXISTS, RowLayout};
use crate::memory::Arena;
use crate::rows::{RowAddress, Rows};
use parking_lot::RwLock;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Keys looked up together, so that their cache misses overlap.
const GROUP: usize = 32;

/// Slots below which sweeping is not worth a pause.
const SWEEP_SLOTS_MIN: usize = 1 << 16;

/// A table's rows and their index. Prepare calls [`Table::resolve`] from any thread; access works on
/// the addresses it gave.
pub struct Table {
    definition: tidemill_plan::Table,
    layout: RowLayout,
    key: Vec<KeyCell>,
    nodes: RwLock<Nodes>,
}

/// One part of the key inside a row.
#[derive(Clone, Copy)]
struct KeyCell {
    offset: usize,
    text: bool,
}

/// Indexes and rows by virtual node, apart so that the indexes' heads stay in the first-level cache.
struct Nodes {
    indexes: Box<[Index; VIRTUAL_NODE_COUNT]>,
    rows: Vec<Rows>,
    /// What both are cut from.
    arena: Arena,
    slots: usize,
    /// Sweep when there are this many slots.
    sweep_at: usize,
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
        let mut arena = Arena::default();
        let nodes = Nodes {
            indexes: Box::new(std::array::from_fn(|_| Index::new(&mut arena))),
            rows: (0..VIRTUAL_NODE_COUNT).map(|_| Rows::new(layout.size())).collect(),
            arena,
            slots: 0,
            sweep_at: SWEEP_SLOTS_MIN,
        };
        Table { definition: definition.clone(), layout, key, nodes: RwLock::new(nodes) }
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
                self.resolve_by(&IndexedKeys { words, index, offset: self.key[0].offset }, keys.nulls, out)
            }
            [KeyColumn::Texts(texts)] => {
                self.resolve_by(&TextKeys { texts, offset: self.key[0].offset }, keys.nulls, out)
            }
            _ => self.resolve_by(&CompositeKeys { columns: keys.columns, cells: &self.key }, keys.nulls, out),
        }
    }

    fn resolve_by(&self, keys: &impl KeySet, nulls: Option<&[bool]>, out: &mut [RowAddress]) {
        let mut missing = Vec::new();
        look_up(&self.nodes.read(), keys, nulls, out, &mut missing);
        if !missing.is_empty() {
            let nodes = &mut *self.nodes.write();
            for i in missing {
                out[i] = self.find_or_insert(nodes, keys, i);
            }
        }
    }

    fn find_or_insert(&self, nodes: &mut Nodes, keys: &impl KeySet, i: usize) -> RowAddress {
        let hash = keys.hash(i);
        let node = virtual_node_of(hash);
        if let Some(row) = nodes.indexes[node].find(hash, |row| keys.matches(i, row)) {
            return row;
        }
        let row = nodes.rows[node].allocate(&mut nodes.arena);
        keys.write(i, row);
        nodes.indexes[node].insert(hash, row, &mut nodes.arena, |row| self.hash_of_row(row));
        nodes.slots += 1;
        row
    }

    /// The hash of the key in a row.
    fn hash_of_row(&self, row: RowAddress) -> u64 {
        let part = |cell: &KeyCell| {
            // SAFETY: `row` is a slot of this table; key cells never change (invariant 2).
            let word = unsafe { read(row, cell.offset) };
            // SAFETY: a text key cell holds a live blob (invariant 4).
            if cell.text { hash_bytes(unsafe { blob::bytes(word) }) } else { hash_word(word) }
        };
        match self.key.as_slice() {
            [one] => part(one),
            parts => parts.iter().fold(0, |hash, cell| combine(hash, part(cell))),
        }
    }

    /// Whether so many slots were made since the last sweep that another may pay.
    pub fn wants_sweep(&self) -> bool {
        let nodes = self.nodes.read();
        nodes.slots >= nodes.sweep_at
    }

    /// Frees the slots whose row does not exist.
    ///
    /// # Safety
    /// Nothing holds an address of this table's rows, and nothing reads their text.
    pub unsafe fn sweep(&self) {
        let mut guard = self.nodes.write();
        let nodes = &mut *guard;
        for (index, rows) in nodes.indexes.iter_mut().zip(&mut nodes.rows) {
            // SAFETY: rows of an index are slots of this table; the caller promises quiescence.
            let exists = |&row: &RowAddress| unsafe { read(row, 0) } & EXISTS != 0;
            let (live, dead): (Vec<_>, Vec<_>) = index.rows().partition(exists);
            if dead.is_empty() {
                continue;
            }
            index.rebuild(&live, &mut nodes.arena, |row| self.hash_of_row(row));
            for row in dead {
                self.free_texts(row);
                // SAFETY: by the caller nothing refers to it; the index no longer does.
                unsafe { rows.release(row) };
                nodes.slots -= 1;
            }
        }
        nodes.sweep_at = (2 * nodes.slots).max(SWEEP_SLOTS_MIN);
    }

    /// Frees the blobs that a row owns.
    fn free_texts(&self, row: RowAddress) {
        for (column, definition) in self.definition.columns.iter().enumerate() {
            if definition.ty.ty.is_bytes() {
                // SAFETY: called when the row goes away; the cell owns its blob (invariant 4).
                unsafe { blob::free(read(row, self.layout.cell(column))) };
            }
        }
    }

    /// What it holds.
    pub fn stats(&self) -> TableStats {
        let nodes = self.nodes.read();
        TableStats {
            slots: nodes.slots,
            row_bytes: nodes.rows.iter().map(Rows::bytes).sum(),
            index_bytes: nodes.indexes.iter().map(Index::bytes).sum(),
        }
    }

    /// Addresses of all rows that exist.
    pub(crate) fn existing_rows(&self) -> Vec<RowAddress> {
        let nodes = self.nodes.read();
        // SAFETY: rows of an index are slots of this table.
        let exists = |row: &RowAddress| unsafe { read(*row, 0) } & EXISTS != 0;
        nodes.indexes.iter().flat_map(Index::rows).filter(exists).collect()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.definition.columns.iter().any(|c| c.ty.ty.is_bytes()) {
            let rows: Vec<_> = self.nodes.get_mut().indexes.iter().flat_map(Index::rows).collect();
            rows.into_iter().for_each(|row| self.free_texts(row));
        }
    }
}

/// Looks up all keys in three steps, a group each, of which each works on what the step before it asked
/// for one round earlier, so that the cache misses of three groups overlap: (1) hash, and ask for the
/// buckets; (2) guess, and ask for the rows; (3) compare. Places of keys without slot go to `missing`.
#[inline(always)]
fn look_up(
    nodes: &Nodes,
    keys: &impl KeySet,
    nulls: Option<&[bool]>,
    out: &mut [RowAddress],
    missing: &mut Vec<usize>,
) {
    let mut hashes = [[0u64; GROUP]; 3];
    let len = out.len();
    let group = |g: usize| (g * GROUP).min(len)..((g + 1) * GROUP).min(len);
    for round in 0..len.div_ceil(GROUP) + 2 {
        for (hash, i) in hashes[round % 3].iter_mut().zip(group(round)) {
            *hash = keys.hash(i);
            nodes.index(*hash).prefetch(*hash);
        }
        if round >= 1 {
            for (&hash, row) in hashes[(round - 1) % 3].iter().zip(&mut out[group(round - 1)]) {
                *row = nodes.index(hash).guess(hash);
            }
        }
        if round >= 2 {
            for (&hash, i) in hashes[(round - 2) % 3].iter().zip(group(round - 2)) {
                if nulls.is_some_and(|nulls| nulls[i]) {
                    out[i] = 0;
                } else if out[i] == 0 || !keys.matches(i, out[i]) {
                    match nodes.index(hash).find(hash, |row| keys.matches(i, row)) {
                        Some(found) => out[i] = found,
                        None => missing.push(i),
                    }
                }
            }
        }
    }
}

impl Nodes {
    /// The index that holds a hash.
    #[inline(always)]
    fn index(&self, hash: u64) -> &Index {
        &self.indexes[virtual_node_of(hash)]
    }
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
trait KeySet {
    fn hash(&self, i: usize) -> u64;
    fn matches(&self, i: usize, row: RowAddress) -> bool;
    /// Fills the key cells of a fresh slot.
    fn write(&self, i: usize, row: RowAddress);
}

struct WordKeys<'a> {
    words: &'a [u64],
    offset: usize,
}

impl KeySet for WordKeys<'_> {
    #[inline(always)]
    fn hash(&self, i: usize) -> u64 {
        hash_word(self.words[i])
    }
    #[inline(always)]
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        // SAFETY: a slot of the table; its key cell is immutable (invariant 2).
        unsafe { read(row, self.offset) == self.words[i] }
    }
    fn write(&self, i: usize, row: RowAddress) {
        // SAFETY: a fresh slot that nobody else knows yet.
        unsafe { write(row, self.offset, self.words[i]) }
    }
}

struct IndexedKeys<'a> {
    words: &'a [u64],
    index: &'a [u32],
    offset: usize,
}

impl IndexedKeys<'_> {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        self.words[self.index[i] as usize]
    }
}

impl KeySet for IndexedKeys<'_> {
    #[inline(always)]
    fn hash(&self, i: usize) -> u64 {
        hash_word(self.word(i))
    }
    #[inline(always)]
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        // SAFETY: a slot of the table; its key cell is immutable (invariant 2).
        unsafe { read(row, self.offset) == self.word(i) }
    }
    fn write(&self, i: usize, row: RowAddress) {
        // SAFETY: a fresh slot that nobody else knows yet.
        unsafe { write(row, self.offset, self.word(i)) }
    }
}

struct TextKeys<'a> {
    texts: KeyTexts<'a>,
    offset: usize,
}

impl KeySet for TextKeys<'_> {
    #[inline(always)]
    fn hash(&self, i: usize) -> u64 {
        hash_bytes(self.texts.get(i))
    }
    #[inline(always)]
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        // SAFETY: a slot of the table; its key cell is immutable and owns a live blob.
        unsafe { blob::bytes(read(row, self.offset)) == self.texts.get(i) }
    }
    fn write(&self, i: usize, row: RowAddress) {
        // SAFETY: a fresh slot that nobody else knows yet.
        unsafe { write(row, self.offset, blob::new(self.texts.get(i))) }
    }
}

struct CompositeKeys<'a> {
    columns: &'a [KeyColumn<'a>],
    cells: &'a [KeyCell],
}

impl KeySet for CompositeKeys<'_> {
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
    fn matches(&self, i: usize, row: RowAddress) -> bool {
        self.columns.iter().zip(self.cells).all(|(column, cell)| match column {
            KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.matches(i, row),
            KeyColumn::Indexed(words, index) => IndexedKeys { words, index, offset: cell.offset }.matches(i, row),
            KeyColumn::Texts(texts) => TextKeys { texts: *texts, offset: cell.offset }.matches(i, row),
        })
    }
    fn write(&self, i: usize, row: RowAddress) {
        for (column, cell) in self.columns.iter().zip(self.cells) {
            match column {
                KeyColumn::Words(words) => WordKeys { words, offset: cell.offset }.write(i, row),
                KeyColumn::Indexed(words, index) => IndexedKeys { words, index, offset: cell.offset }.write(i, row),
                KeyColumn::Texts(texts) => TextKeys { texts: *texts, offset: cell.offset }.write(i, row),
            }
        }
    }
}
