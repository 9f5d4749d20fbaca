//! The memory that a worker brings to compiled code: the undo log, room for texts, and emissions.
//!
//! A context belongs to one worker (or task) at a time. What it gathers over an epoch — texts made,
//! blobs replaced, events emitted — is taken from it with the epoch and dropped when the epoch's
//! results have been built, since captured columns may point into it.

use crate::abi::{InputView, NativeView, UndoEntry};
use crate::native::NativeColumn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_model::ColumnType;
use tidemill_state::TextBytes;
use tidemill_state::blob::{self, Edit};

/// Entries that compiled code may write without asking for room.
pub const UNDO_UNCHECKED_MAX: usize = 1024;

/// Texts made by compiled code: chunks that never move.
#[derive(Default)]
pub struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The number of bytes of all texts in the chunks. Compiled code reads it.
    pub(crate) kept: u64,
}

const ARENA_CHUNK: usize = 16 << 10;

/// The number of texts set last by the running transaction that are searched for one that is edited again.
const OWN_TEXTS_MAX: usize = 4;

/// Entries of the undo log that are kept from one epoch to the next.
const UNDO_KEPT_MAX: usize = 64 * UNDO_UNCHECKED_MAX;

impl Arena {
    /// Keeps a copy of these parts in a row; its address is stable until the arena is dropped.
    pub fn keep(&mut self, parts: &[&[u8]]) -> (*const u8, usize) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        if self.chunks.last().is_none_or(|c| c.capacity() - c.len() < len) {
            self.chunks.push(Vec::with_capacity(len.max(ARENA_CHUNK)));
        }
        let chunk = self.chunks.last_mut().expect("a chunk with room was just made sure of");
        let start = chunk.len();
        parts.iter().for_each(|p| chunk.extend_from_slice(p));
        self.kept += len as u64;
        (chunk[start..].as_ptr(), len)
    }

    /// Drops the newest texts, to which nothing points, until `kept` bytes are left.
    pub(crate) fn release(&mut self, kept: u64) {
        assert!(kept <= self.kept, "{kept} bytes cannot be left of {}", self.kept);
        while self.kept > kept {
            let chunk = self.chunks.last_mut().expect("the bytes that are kept lie in chunks");
            let gone = (self.kept - kept).min(chunk.len() as u64);
            chunk.truncate(chunk.len() - gone as usize);
            self.kept -= gone;
            if chunk.is_empty() {
                self.chunks.pop();
            }
        }
    }
}

/// Blobs that no cell holds any more; freed on drop.
#[derive(Default)]
pub struct Garbage {
    /// The count of each table's texts, and the blobs, by table.
    tables: Vec<(TextBytes, Vec<u64>)>,
}

impl Garbage {
    fn new<'a>(text_bytes: impl Iterator<Item = &'a TextBytes>) -> Self {
        Garbage { tables: text_bytes.map(|text_bytes| (text_bytes.clone(), Vec::new())).collect() }
    }

    pub(crate) fn push(&mut self, table: u32, handle: u64) {
        if handle != 0 {
            self.tables[table as usize].1.push(handle);
        }
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        for (text_bytes, blobs) in &self.tables {
            // SAFETY: a handle enters the list once, when its only cell lets go of it, and the list is
            // dropped when no captured column can point to it any more.
            text_bytes.subtract(blobs.iter().map(|&handle| unsafe { blob::free(handle) }).sum());
        }
    }
}

/// Events emitted by name, in the order in which one worker emitted them.
pub struct Emissions {
    columns: Vec<NativeColumn>,
    views: Vec<NativeView>,
    /// The input event (`i`) that caused each event.
    pub(crate) owners: Vec<u32>,
    /// Events of committed transactions; those after them belong to the running one.
    pub(crate) committed: usize,
}

// SAFETY: the views point into the columns of the same value; compiled code uses them only through
// the context that holds it.
unsafe impl Send for Emissions {}
// SAFETY: as above; shared for reading only, after the context has given it up.
unsafe impl Sync for Emissions {}

impl Emissions {
    fn new(types: &[ColumnType]) -> Self {
        let columns = types.iter().map(|&t| NativeColumn::new(t)).collect();
        let mut emissions = Emissions { columns, views: Vec::new(), owners: Vec::new(), committed: 0 };
        emissions.grow(64);
        emissions
    }

    fn grow(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|c| c.ensure(len));
        self.views = self.columns.iter_mut().map(NativeColumn::view).collect();
    }

    /// Returns the input event that caused each event.
    pub fn owners(&self) -> &[u32] {
        &self.owners[..self.committed]
    }

    /// Returns the columns, by event.
    pub fn columns(&self) -> &[NativeColumn] {
        &self.columns
    }

    /// Returns the columns' addresses; valid until the next emission.
    pub fn views(&self) -> &[NativeView] {
        &self.views
    }
}

/// The results that an epoch takes from a worker's context when its transactions have run.
#[derive(Default)]
pub struct Produced {
    /// Texts that captured columns may point to.
    pub arena: Arena,
    /// Replaced blobs that captured columns may point to.
    pub garbage: Garbage,
    /// Emissions by their number in the code unit.
    pub emissions: Vec<Emissions>,
}

/// A text cell that was set: its table, its address and the handle that it held.
pub(crate) struct TextUndo {
    pub(crate) table: u32,
    address: u64,
    pub(crate) old: u64,
}

/// A worker's context. Compiled code reads and writes the fields up to `scratch` by offset.
#[repr(C)]
pub struct AccessContext {
    /// First entry of the undo log.
    pub(crate) undo_start: *mut UndoEntry,
    /// One past the last entry that may be written without asking for room.
    pub(crate) undo_end: *mut UndoEntry,
    /// The place where the next transaction's entries begin: at the first entry, unless marks keep those of others.
    pub(crate) undo_top: *mut UndoEntry,
    /// The address of the views of each emission number.
    pub(crate) emit_views: *const *const NativeView,
    /// The first element of a list that an operation is performed for, and one past the last.
    pub(crate) elements: [u64; 2],
    /// The words in which helpers leave their results.
    pub(crate) scratch: [u64; 2],
    undo: Vec<UndoEntry>,
    emit_view_addresses: Vec<*const NativeView>,
    emission_types: Vec<Vec<ColumnType>>,
    /// The number and place of each emission since the last [`AccessContext::drain_order`], if `ordered`.
    pub(crate) order: Vec<(u32, u32)>,
    ordered: bool,
    pub(crate) order_committed: usize,
    /// A flag: whether rows are written where they are, not copies of them that share texts.
    in_place: bool,
    /// Room for a text in the making.
    buffer: Vec<u8>,
    /// Text cells set by the running transaction.
    pub(crate) text_log: Vec<TextUndo>,
    /// Entries of the undo log that belong to transactions that have committed and can still be undone.
    pub(crate) kept_entries: usize,
    /// Text cells that these set.
    pub(crate) kept_texts: Vec<TextUndo>,
    /// The count of each table's texts, and the bytes of those made here that it does not count yet, by table.
    text_bytes: Vec<(TextBytes, usize)>,
    pub(crate) produced: Produced,
}

// SAFETY: the addresses point into the context's own buffers or are only used during a call, and a
// context is used by one thread at a time.
unsafe impl Send for AccessContext {}

impl AccessContext {
    /// Makes a context for code whose emissions have these column types. `ordered`: keep the order of emissions across
    /// numbers, for [`AccessContext::drain_order`]. `text_bytes`: what counts the texts of each table.
    pub fn new(emission_types: &[Vec<ColumnType>], ordered: bool, text_bytes: Vec<TextBytes>) -> Box<Self> {
        let mut context = Box::new(AccessContext {
            undo_start: std::ptr::null_mut(),
            undo_end: std::ptr::null_mut(),
            undo_top: std::ptr::null_mut(),
            emit_views: std::ptr::null(),
            elements: [0; 2],
            scratch: [0; 2],
            undo: vec![UndoEntry { address: 0, word: 0 }; 2 * UNDO_UNCHECKED_MAX],
            emit_view_addresses: Vec::new(),
            emission_types: emission_types.to_vec(),
            order: Vec::new(),
            ordered,
            order_committed: 0,
            in_place: false,
            buffer: Vec::new(),
            text_log: Vec::new(),
            text_bytes: text_bytes.into_iter().map(|text_bytes| (text_bytes, 0)).collect(),
            kept_entries: 0,
            kept_texts: Vec::new(),
            produced: Produced::default(),
        });
        context.point_undo();
        context.take();
        context
    }

    pub(crate) fn point_undo(&mut self) {
        assert!(self.kept_entries + UNDO_UNCHECKED_MAX <= self.undo.len(), "a transaction may log without asking");
        self.undo_start = self.undo.as_mut_ptr();
        self.undo_end = self.undo_start.wrapping_add(self.undo.len() - UNDO_UNCHECKED_MAX);
        self.undo_top = self.undo_start.wrapping_add(self.kept_entries);
    }

    /// Names the elements, all of them in the list of the event at hand, for which the next operation by element is
    /// performed.
    pub fn set_elements(&mut self, elements: std::ops::Range<u32>) {
        self.elements = [elements.start.into(), elements.end.into()];
    }

    /// Takes what was produced since the last call and starts afresh.
    pub fn take(&mut self) -> Produced {
        assert!(self.text_log.is_empty(), "taken from within a transaction");
        assert!(self.kept_entries == 0 && self.kept_texts.is_empty(), "taken while transactions can be undone");
        if self.undo.len() > UNDO_KEPT_MAX {
            self.undo.truncate(UNDO_KEPT_MAX);
            self.undo.shrink_to_fit();
            self.point_undo();
        }
        let emissions = self.emission_types.iter().map(|types| Emissions::new(types)).collect();
        let garbage = Garbage::new(self.text_bytes.iter().map(|(text_bytes, _)| text_bytes));
        let fresh = Produced { emissions, garbage, arena: Arena::default() };
        self.text_bytes.iter_mut().for_each(|(text_bytes, made)| text_bytes.add(std::mem::take(made)));
        let produced = std::mem::replace(&mut self.produced, fresh);
        self.emit_view_addresses = self.produced.emissions.iter().map(|e| e.views.as_ptr()).collect();
        self.emit_views = self.emit_view_addresses.as_ptr();
        produced
    }

    /// Returns the emissions so far under a number.
    pub fn emissions(&self, number: usize) -> &Emissions {
        &self.produced.emissions[number]
    }

    pub(crate) fn arena(&mut self) -> &mut Arena {
        &mut self.produced.arena
    }

    /// Makes room for one more emission; returns its place.
    pub(crate) fn emit(&mut self, number: usize, owner: u32) -> u64 {
        let emissions = &mut self.produced.emissions[number];
        let place = emissions.owners.len();
        emissions.owners.push(owner);
        if self.ordered {
            self.order.push((number as u32, place as u32));
        }
        if emissions.columns.first().is_some_and(|c| place >= c.capacity()) {
            emissions.grow(2 * place);
            self.emit_view_addresses[number] = emissions.views.as_ptr();
        }
        place as u64
    }

    /// Sets a text cell to a new blob of these bytes in a row, noting what it held.
    ///
    /// # Safety
    /// `address` is a text cell of that table that this worker may write now.
    pub(crate) unsafe fn set_text(&mut self, table: u32, address: u64, pieces: &[&[u8]]) {
        let cell = address as *mut u64;
        self.text_bytes[table as usize].1 += blob::size(pieces.iter().map(|piece| piece.len()).sum());
        // SAFETY: by the caller.
        unsafe {
            self.text_log.push(TextUndo { table, address, old: cell.read() });
            cell.write(blob::of(pieces));
        }
    }

    /// Says whether the rows that code is called with are written by their one writer where they are. Otherwise they
    /// are versions, which share texts with other versions: then a text is never changed, only replaced.
    pub fn write_in_place(&mut self, in_place: bool) {
        self.in_place = in_place;
    }

    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    pub(crate) fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Returns whether the running transaction may edit a text where it is: it set the text, or it is the `last` to do
    /// so and rows are written in place.
    fn edits_here(&self, address: u64, last: bool) -> bool {
        // No other thread has seen what the running transaction made.
        (last && self.in_place) || self.text_log.iter().rev().take(OWN_TEXTS_MAX).any(|text| text.address == address)
    }

    /// Returns the bytes of the text in a cell, if they may be changed where they are.
    ///
    /// # Safety
    /// As of [`AccessContext::edit_text`].
    pub(crate) unsafe fn text_here(&mut self, address: u64, last: bool) -> Option<&mut [u8]> {
        // SAFETY: by the caller; a text cell holds a live blob or 0, and nobody else reads this one.
        self.edits_here(address, last).then(|| unsafe { blob::bytes_mut((address as *const u64).read()) })
    }

    /// Edits the text in a cell as `edit` says, which writes what is appended. `last`: the transaction cannot abort any
    /// more.
    ///
    /// # Safety
    /// As of [`AccessContext::set_text`]; no column of results points to the text or to one that the running transaction
    /// set before, and where it is `last` and rows are written in place, nobody else reads it.
    pub(crate) unsafe fn edit_text(
        &mut self,
        table: u32,
        address: u64,
        last: bool,
        edit: impl FnOnce(&[u8], &mut Vec<u8>) -> Edit,
    ) {
        let mut tail = self.take_buffer();
        // SAFETY: by the caller; a text cell holds a live blob or 0. Where it is edited, nobody else reads it: the row is
        // its only holder and this worker's, and nothing captured it.
        unsafe {
            let handle = (address as *const u64).read();
            let edit = edit(blob::bytes(handle), &mut tail);
            let own = self.text_log.iter().rev().take(OWN_TEXTS_MAX).any(|text| text.address == address);
            let here = own || (last && self.in_place);
            if edit.changes(tail.len()) && !(here && blob::edit(handle, &edit, &tail)) {
                let pieces = edit.pieces(blob::bytes(handle), &tail);
                if own {
                    let made = &mut self.text_bytes[table as usize].1;
                    *made += blob::size(pieces.iter().map(|piece| piece.len()).sum());
                    (address as *mut u64).write(blob::of(&pieces));
                    *made -= blob::free(handle);
                } else {
                    self.set_text(table, address, &pieces);
                }
            }
        }
        self.return_buffer(tail);
    }

    /// Discards a text that a row of the table held, and that no cell holds any more.
    pub(crate) fn discard(&mut self, table: u32, handle: u64) {
        self.produced.garbage.push(table, handle);
    }

    /// Commits the running transaction: what it replaced is garbage, what it emitted stays.
    pub(crate) fn commit(&mut self) {
        self.text_log.drain(..).for_each(|text| self.produced.garbage.push(text.table, text.old));
        self.commit_emissions();
    }

    pub(crate) fn commit_emissions(&mut self) {
        for emissions in &mut self.produced.emissions {
            emissions.committed = emissions.owners.len();
        }
        self.order_committed = self.order.len();
    }

    /// Takes the emissions of committed transactions since the last call, in order: number and place.
    pub fn drain_order(&mut self) -> std::vec::Drain<'_, (u32, u32)> {
        debug_assert_eq!(self.order.len(), self.order_committed);
        self.order_committed = 0;
        self.order.drain(..)
    }

    /// Aborts the running transaction: undoes its writes up to `top`, newest first, and forgets what it emitted.
    ///
    /// # Safety
    /// The log up to `top` and the text log hold addresses that this worker may write now.
    pub(crate) unsafe fn roll_back(&mut self, top: *mut UndoEntry) {
        // SAFETY: `top` lies in the undo log, after entries that compiled code wrote.
        let count = unsafe { top.offset_from(self.undo_start) } as usize;
        // SAFETY: by the caller.
        unsafe {
            restore_words(&self.undo[self.kept_entries..count]);
            restore_texts(&mut self.text_log, 0, &mut self.produced.garbage);
        }
        for emissions in &mut self.produced.emissions {
            emissions.owners.truncate(emissions.committed);
        }
        self.order.truncate(self.order_committed);
    }

    /// Makes more room in the undo log; returns the new place of `top`.
    pub(crate) fn grow_undo(&mut self, top: *mut UndoEntry) -> *mut UndoEntry {
        let count = self.entries_before(top);
        self.double_undo();
        self.undo_start.wrapping_add(count)
    }

    pub(crate) fn double_undo(&mut self) {
        self.undo.resize(self.undo.len() * 2, UndoEntry { address: 0, word: 0 });
        self.point_undo();
    }

    pub(crate) fn entries_before(&self, top: *mut UndoEntry) -> usize {
        let count = (top as usize - self.undo_start as usize) / size_of::<UndoEntry>();
        assert!(count <= self.undo.len(), "{count} entries of {}", self.undo.len());
        count
    }

    /// Returns the entries of the undo log from one to before another.
    pub(crate) fn entries(&self, range: Range<usize>) -> &[UndoEntry] {
        &self.undo[range]
    }
}

/// Undoes the writes of these entries, newest first.
///
/// # Safety
/// They hold addresses of words that this worker may write now.
pub(crate) unsafe fn restore_words(entries: &[UndoEntry]) {
    for entry in entries.iter().rev() {
        // Atomic, since one scheme that is only measured lets workers race for rows.
        // SAFETY: by the caller.
        unsafe { AtomicU64::from_ptr(entry.address as *mut u64) }.store(entry.word, Ordering::Relaxed);
    }
}

/// Puts back the texts that the cells from entry `first` held, newest first. Those that are in them now are garbage.
///
/// # Safety
/// The entries hold addresses of text cells that this worker may write now, each with a blob that was made after the one
/// in the entry.
pub(crate) unsafe fn restore_texts(log: &mut Vec<TextUndo>, first: usize, garbage: &mut Garbage) {
    for TextUndo { table, address, old } in log.drain(first..).rev() {
        let cell = address as *mut u64;
        // SAFETY: by the caller.
        unsafe {
            garbage.push(table, cell.read());
            cell.write(old);
        }
    }
}

/// Code that runs a transaction on events `first..first + count` of an input.
pub type AccessFn = unsafe extern "C" fn(*mut AccessContext, *const InputView, u64, u64);

/// Code that runs a root's filters and maps on `count` events: those listed (by `i`), or 0, 1, … where
/// the list is null.
pub type PipelineFn =
    unsafe extern "C" fn(*mut AccessContext, *const InputView, *const u32, u64, *mut crate::abi::OutputView);
