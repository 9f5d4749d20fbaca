//! Read snapshots: a whole table as it was at the end of an epoch, which a reader copies while later epochs change it.
//!
//! # Protocol
//!
//! 1. A read snapshot begins between the accesses of two epochs ([`Table::begin_read`]). Nothing is copied then.
//! 2. The reader goes through the virtual nodes and copies their rows, a chunk at a time ([`Table::read`]).
//! 3. While it is open, before an epoch is accessed, those rows that the epoch may write and that were not copied yet
//!    are copied ([`Table::save`]).
//! 4. It ends after the reader has all rows, or gives up ([`Table::end_read`]).
//!
//! Steps 2 and 3 exclude each other as those of a checkpoint's snapshot do ([`crate::snapshot`]): by a lock, which is
//! held for a chunk, and by a bit per row, which says whether it was copied. The bits belong to the read snapshot. So
//! there may be any number of them, begun after different epochs, beside a checkpoint's snapshot, and a table that
//! nobody reads has no memory and no work for them.
//!
//! # Slots that are made meanwhile
//!
//! A slot that was made after the beginning is in a block that the snapshot does not know, or no epoch has written it
//! before step 3 looked at it: its row does not exist yet and is left out. Where rows may be evicted, a slot is made
//! with a row. There only the slots of the beginning are copied, deletions too, and the other rows are those on the
//! medium at the beginning ([`pin`](crate::EvictedRows::pin)). A row that is evicted meanwhile is copied before
//! ([`Table::choose`]).
//!
//! A sweep may free slots meanwhile: a row that was there at the beginning and is not any more was copied in step 3. The
//! row that is made in such a slot later is left out as in every new slot.

use crate::copies::Copies;
use crate::evicted_rows::{EvictedError, PinnedRows};
use crate::image::Image;
use crate::marks::Marks;
use crate::memory::prefetch;
use crate::nodes::Nodes;
use crate::rows::RowAddress;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::table::Table;
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Prefetch distance while rows are saved, in rows.
const AHEAD: usize = 16;

/// The rows of a piece, about: few enough that the caches hold them.
const PIECE: usize = 16_384;

/// The read snapshots of a table that are open.
#[derive(Default)]
pub struct Readers {
    /// The number of open read snapshots. Written by the threads that begin and end them; read by those that access
    /// epochs.
    count: AtomicUsize,
    open: Mutex<Vec<Arc<ReadSnapshot>>>,
}

/// A whole table as it was at the end of an epoch.
pub struct ReadSnapshot {
    progress: Mutex<Progress>,
    /// The rows that were not in memory at the beginning, and others, if rows may be evicted.
    evicted: Option<Arc<dyn PinnedRows>>,
}

struct Progress {
    marks: Marks,
    /// The blocks that rows were cut from at the beginning, sorted.
    blocks: Vec<usize>,
    /// The number of the block that was looked at last.
    last: usize,
    /// A bit for each row, by block: whether it was copied, or is not part of the snapshot.
    taken: Vec<u64>,
    /// Copies that were made for epochs; none after the reader took them.
    saved: Option<Copies>,
}

impl Progress {
    fn new(marks: Marks, mut blocks: Vec<usize>) -> Progress {
        blocks.sort_unstable();
        // Zeroed pages of the system, which are touched only as rows are copied.
        let taken = vec![0; blocks.len() * marks.words()];
        Progress { marks, blocks, last: 0, taken, saved: Some(Copies::default()) }
    }

    /// Returns the word and the bit of a row, if its block was there at the beginning.
    #[inline]
    fn bit(&mut self, row: RowAddress) -> Option<(&mut u64, u64)> {
        let (block, bit) = self.marks.place(row);
        // A row is mostly of the same block as the one before.
        let number = match self.blocks.get(self.last) {
            Some(&last) if last == block => self.last,
            _ => self.blocks.binary_search(&block).ok()?,
        };
        self.last = number;
        Some((&mut self.taken[number * self.marks.words() + bit / 64], 1 << (bit % 64)))
    }

    /// Notes that a row is copied; returns whether it has to be.
    #[inline]
    fn take(&mut self, row: RowAddress) -> bool {
        self.bit(row).is_some_and(|(word, bit)| {
            let is_owed = *word & bit == 0;
            *word |= bit;
            is_owed
        })
    }

    /// Limits the snapshot to the slots that there are now.
    fn keep_only(&mut self, nodes: &Nodes) {
        self.taken.fill(u64::MAX);
        nodes.each_row(|row| {
            // A slot in a block that came just now holds a row that was pinned.
            if let Some((word, bit)) = self.bit(row) {
                *word &= !bit;
            }
        });
    }
}

impl Table {
    /// Begins a read snapshot of the table as it is now.
    ///
    /// # Safety
    /// No transaction runs now. Until [`Table::end_read`], [`Table::save`] is called for each epoch's rows before its
    /// access begins.
    pub unsafe fn begin_read(&self) -> Arc<ReadSnapshot> {
        let nodes = self.nodes().read();
        let evicted = nodes.evicted.as_ref().map(|evicted| evicted.pin());
        // After the rows on the medium were pinned: a slot that is made between holds one of them, unchanged.
        let mut blocks = Vec::new();
        self.arenas().rows.each_block(|block| blocks.push(block.addr()));
        let mut progress = Progress::new(self.marks(), blocks);
        if evicted.is_some() {
            progress.keep_only(&nodes);
        }
        drop(nodes);
        let snapshot = Arc::new(ReadSnapshot { progress: Mutex::new(progress), evicted });
        self.readers().open.lock().push(snapshot.clone());
        self.readers().count.fetch_add(1, Ordering::Release);
        snapshot
    }

    /// Returns whether a read snapshot is open.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.readers().count.load(Ordering::Acquire) > 0
    }

    /// Gives the rows of a read snapshot of this table in pieces, none of them a deletion, in no order. A snapshot is
    /// read once. Fails if evicted rows cannot be read.
    pub fn read(&self, snapshot: &ReadSnapshot, each: &mut dyn FnMut(&Image)) -> Result<(), EvictedError> {
        self.read_nodes(snapshot, 0..VIRTUAL_NODE_COUNT, each)
    }

    /// Reads some virtual nodes, if only some had rows in memory at the beginning.
    pub fn read_nodes(
        &self,
        snapshot: &ReadSnapshot,
        nodes: Range<usize>,
        each: &mut dyn FnMut(&Image),
    ) -> Result<(), EvictedError> {
        let is_whole = snapshot.evicted.is_none();
        let mut rows = Image::new(self.shape());
        for node in nodes {
            let mut copy = |chunk| {
                let progress = &mut *snapshot.progress.lock();
                self.each_slot_of(node, chunk, |row| {
                    if progress.take(row) {
                        // SAFETY: a slot of this table; no thread writes it before it is taken (see the module's head).
                        unsafe { self.copy_marked(row, is_whole, &mut rows) };
                    }
                })
            };
            let chunks = (0..).find(|&chunk| !copy(chunk));
            debug_assert!(chunks.is_some(), "a node's chunks come to an end");
            // Full pieces are passed on, unless evicted rows may come: then each key's newest row is picked from all.
            if is_whole && rows.len() >= PIECE {
                each(&rows);
                rows.clear();
            }
        }
        let saved = snapshot.progress.lock().saved.take().expect("a read snapshot is read once");
        saved.pieces().iter().for_each(|piece| rows.append(piece));
        if let Some(evicted) = &snapshot.evicted {
            let mut all = Image::new(self.shape());
            evicted.each(&mut |others| all.append(&others))?;
            all.append(&rows);
            rows = all.newest().existing();
        }
        if !rows.is_empty() {
            each(&rows);
        }
        Ok(())
    }

    /// Ends a read snapshot of this table.
    pub fn end_read(&self, snapshot: &Arc<ReadSnapshot>) {
        let open = &mut *self.readers().open.lock();
        let at = open.iter().position(|other| Arc::ptr_eq(other, snapshot)).expect("a read snapshot ends once");
        open.swap_remove(at);
        self.readers().count.fetch_sub(1, Ordering::Release);
    }

    /// Copies those of these rows that the open read snapshots have not copied yet. An address of 0 is skipped.
    ///
    /// # Safety
    /// The other addresses are slots of this table, and no thread writes them now.
    pub(crate) unsafe fn save_for_readers(&self, rows: &[RowAddress]) {
        if !self.is_read() {
            return;
        }
        for snapshot in &*self.readers().open.lock() {
            let progress = &mut *snapshot.progress.lock();
            // The reader has all rows.
            let Some(mut saved) = progress.saved.take() else { continue };
            for (i, &row) in rows.iter().enumerate() {
                if let Some(&ahead) = rows.get(i + AHEAD) {
                    prefetch(ahead as *const u8);
                }
                if row != 0 && progress.take(row) {
                    // SAFETY: by the caller.
                    unsafe { self.copy_marked(row, snapshot.evicted.is_none(), saved.piece(self.shape())) };
                }
            }
            progress.saved = Some(saved);
        }
    }
}
