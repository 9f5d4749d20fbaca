//! Snapshots for checkpoints: copies of the rows that changed, as they were at the end of an epoch, made while later
//! epochs change them.
//!
//! # Protocol
//!
//! 1. Epochs mark the rows that they may write ([`Table::mark`]), in the generation that the next snapshot takes.
//! 2. A snapshot begins between the accesses of two epochs ([`Table::begin_snapshot`]). Nothing is copied then. Later
//!    epochs mark in the other generation.
//! 3. The thread that takes the snapshot goes through the virtual nodes. It copies marked rows, a chunk at a time,
//!    and clears their marks ([`Table::capture`]). Before that, it copies as many as may be in memory at once
//!    ([`Table::copy_ahead`]), because copying rows in sequence costs less than the copies of step 4.
//! 4. While the snapshot is open, before an epoch is accessed, those rows that it may write and that are still marked
//!    are copied, and their marks are cleared ([`Table::save`]).
//! 5. After all nodes the snapshot ends ([`Table::end_snapshot`]), and another may begin.
//!
//! # Why no copy sees a later write
//!
//! Steps 3 and 4 exclude each other by a lock, which is held for a chunk. Step 3 copies a row only if it has its mark
//! under the lock; then no epoch that may write it has passed step 4, so none is being accessed. A row copied in step
//! 4 is written only by the epochs up to the snapshot, whose access is over, and by the one that is about to begin.
//!
//! A deleted row is copied as a key without a row. If a deleted row's slot was swept before, its key is kept as a
//! *grave* until the next snapshot.

use crate::copies::Copies;
use crate::image::Image;
use crate::marks::Generation;
use crate::memory::prefetch;
use crate::rows::RowAddress;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::table::Table;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Prefetch distance while rows are saved, in rows.
const AHEAD: usize = 16;

/// The state of a table's snapshot.
#[derive(Default)]
pub struct Snapshot {
    /// A flag: whether a snapshot is in progress. Written by the thread that begins and ends it; read by the threads
    /// that access epochs.
    open: AtomicBool,
    progress: Mutex<Progress>,
    /// Copies, by virtual node, that were made before the node's turn. Written only by the thread that takes the
    /// snapshot.
    apart: Mutex<Vec<Image>>,
}

#[derive(Default)]
struct Progress {
    generation: Generation,
    /// A flag: whether all rows are taken, not only those that changed.
    whole: bool,
    /// Copies that were made before the turn of their node, and were not moved to `apart` yet.
    saved: Option<Copies>,
    /// Keys of rows that were deleted and whose slots were swept since the last snapshot.
    graves: Option<Image>,
}

impl Snapshot {
    /// Returns the bytes that it has copied and not yet handed over.
    pub fn bytes(&self) -> usize {
        let saved = self.progress.lock().saved.as_ref().map_or(0, Copies::bytes);
        saved + self.apart.lock().iter().map(Image::bytes).sum::<usize>()
    }
}

impl Table {
    /// Returns an upper bound on the rows that a snapshot in progress has still to hand over.
    pub fn snapshot_rows(&self) -> usize {
        let progress = self.snapshot().progress.lock();
        // SAFETY: blocks that rows are cut from have marks as their heads.
        let count = |block| unsafe { self.marks().count(block, progress.generation) };
        let mut marked = 0;
        self.arenas().rows.each_block(|block| marked += count(block));
        let apart: usize = self.snapshot().apart.lock().iter().map(Image::len).sum();
        marked.min(self.nodes().read().slots()) + progress.saved.as_ref().map_or(0, Copies::rows) + apart
    }

    /// Notes that an epoch of this generation may write these rows. An address of 0 is skipped.
    ///
    /// # Safety
    /// The other addresses are slots of this table.
    #[inline]
    pub unsafe fn mark(&self, rows: &[RowAddress], generation: Generation) {
        let marks = self.marks();
        for &row in rows.iter().filter(|row| **row != 0) {
            // SAFETY: by the caller; rows lie in blocks with marks.
            unsafe { marks.set(row, generation) }
        }
    }

    /// Begins a snapshot of the rows that a generation has marked, or of all rows.
    ///
    /// # Safety
    /// No transaction runs now, and none of a later epoch has run. No other snapshot of this table is open.
    pub unsafe fn begin_snapshot(&self, generation: Generation, whole: bool) {
        let snapshot = self.snapshot();
        let mut progress = snapshot.progress.lock();
        assert!(!snapshot.open.load(Ordering::Relaxed), "one snapshot at a time");
        let graves = progress.graves.take();
        if whole {
            self.mark_blocks(generation, true);
        }
        // A key that was inserted again after its grave is copied later, and the later copy counts.
        let saved = graves.filter(|_| !whole).map_or_else(Copies::default, Copies::of);
        *progress = Progress { generation, whole, saved: Some(saved), graves: None };
        *snapshot.apart.lock() = (0..VIRTUAL_NODE_COUNT).map(|_| Image::new(self.shape())).collect();
        snapshot.open.store(true, Ordering::Release);
    }

    /// Returns whether a checkpoint's snapshot is in progress.
    #[inline]
    pub fn is_in_snapshot(&self) -> bool {
        self.snapshot().open.load(Ordering::Acquire)
    }

    /// Copies those of these rows that a snapshot in progress, of a checkpoint or of a reader, has not copied yet. An
    /// address of 0 is skipped.
    ///
    /// # Safety
    /// The other addresses are slots of this table, and no thread writes them now.
    pub unsafe fn save(&self, rows: &[RowAddress]) {
        // SAFETY: by the caller.
        unsafe {
            self.save_for_readers(rows);
            if self.is_in_snapshot() {
                self.save_marked(rows);
            }
        }
    }

    /// Copies those of these rows that a checkpoint's snapshot has not copied yet. An address of 0 is skipped.
    ///
    /// # Safety
    /// As [`Table::save`].
    unsafe fn save_marked(&self, rows: &[RowAddress]) {
        let marks = self.marks();
        let Progress { generation, whole, saved, .. } = &mut *self.snapshot().progress.lock();
        // The snapshot ended after it was looked at.
        let Some(saved) = saved else { return };
        for (i, &row) in rows.iter().enumerate() {
            // SAFETY: by the caller.
            unsafe {
                if let Some(&ahead) = rows.get(i + AHEAD)
                    && ahead != 0
                    && marks.is_set(ahead, *generation)
                {
                    prefetch(ahead as *const u8);
                }
                if row != 0 && marks.take(row, *generation) {
                    self.copy_marked(row, *whole, saved.piece(self.shape()));
                }
            }
        }
    }

    /// Returns the rows of a virtual node in the snapshot in progress, by hash. Each node is captured once.
    ///
    /// # Safety
    /// Between the accesses of epochs, [`Table::save`] is called for each epoch's rows before its access begins.
    pub unsafe fn capture(&self, node: usize) -> Image {
        // SAFETY: by the caller.
        let (image, saved) = unsafe { self.copy_node(node) };
        let mut apart = self.set_apart(&saved);
        let mut all = std::mem::replace(&mut apart[node], Image::new(self.shape()));
        drop(apart);
        all.append(&image);
        all.newest()
    }

    /// Copies marked rows now, node by node, until there are this many bytes of copies. [`Table::capture`] hands them
    /// over later. A row that is copied before an epoch wants to change it costs that epoch nothing.
    ///
    /// # Safety
    /// As [`Table::capture`].
    pub unsafe fn copy_ahead(&self, bytes_max: usize) {
        let mut bytes = 0;
        for node in 0..VIRTUAL_NODE_COUNT {
            if bytes >= bytes_max {
                return;
            }
            // SAFETY: by the caller.
            let (image, saved) = unsafe { self.copy_node(node) };
            let mut apart = self.set_apart(&saved);
            apart[node].append(&image);
            bytes += image.bytes() + saved.bytes();
        }
    }

    /// Copies of the marked rows of a node, and the rows of any node that were saved meanwhile.
    ///
    /// # Safety
    /// As [`Table::capture`].
    unsafe fn copy_node(&self, node: usize) -> (Image, Copies) {
        let mut image = Image::new(self.shape());
        let marks = self.marks();
        let mut copy = |chunk| {
            let progress = &mut *self.snapshot().progress.lock();
            let there = self.each_slot_of(node, chunk, |row| {
                // SAFETY: a slot of this table; no thread writes it while it is marked (see the module's head).
                unsafe {
                    if marks.take(row, progress.generation) {
                        self.copy_marked(row, progress.whole, &mut image);
                    }
                }
            });
            // After the last chunk no row of this node is marked, so no more copies of it will be saved.
            if there { None } else { progress.saved.replace(Copies::default()) }
        };
        let saved = (0..).find_map(&mut copy).expect("a node's chunks come to an end");
        (image, saved)
    }

    /// Moves saved copies to `apart`, by node.
    fn set_apart(&self, saved: &Copies) -> MutexGuard<'_, Vec<Image>> {
        let mut apart = self.snapshot().apart.lock();
        for piece in saved.pieces() {
            (0..piece.len()).for_each(|i| apart[crate::virtual_node_of(piece.hash(i))].push_of(piece, i));
        }
        apart
    }

    /// Adds a copy of a row. `whole`: one that does not exist is left out.
    ///
    /// # Safety
    /// `row` is a slot of this table, and no thread writes it now.
    pub(crate) unsafe fn copy_marked(&self, row: RowAddress, whole: bool, image: &mut Image) {
        // SAFETY: by the caller.
        unsafe {
            if !whole || self.exists(row) {
                self.copy_row(row, image);
            }
        }
    }

    /// Ends a snapshot.
    pub fn end_snapshot(&self) {
        let snapshot = self.snapshot();
        let generation = {
            let mut progress = snapshot.progress.lock();
            progress.saved = None;
            progress.generation
        };
        snapshot.apart.lock().clear();
        self.mark_blocks(generation, false);
        snapshot.open.store(false, Ordering::Release);
    }

    /// Keeps the key of a deleted row before its slot is swept, if the row was marked. Clears its marks.
    ///
    /// # Safety
    /// `row` is a slot of this table, and no thread uses it now.
    pub(crate) unsafe fn bury(&self, row: RowAddress) {
        let marks = self.marks();
        // SAFETY: by the caller.
        unsafe {
            let (even, odd) = (marks.take(row, Generation::Even), marks.take(row, Generation::Odd));
            if even || odd {
                let graves = &mut self.snapshot().progress.lock().graves;
                self.copy_row(row, graves.get_or_insert_with(|| Image::new(self.shape())));
            }
        }
    }
}
