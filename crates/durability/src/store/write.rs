//! Writing a run.

use super::block::encode;
use super::filter::Filter;
use super::index::{ALIGNMENT, Index};
use super::{OpenRun, Run};
use crate::blocks::BlockWriter;
use crate::error::StateError;
use crate::planted::Planted;
use std::sync::Arc;
use tidemill_state::{Image, RowShape};

/// Bytes of rows and texts in a block, as they are in memory: a lookup has to check all of it for one row, against
/// what a block costs in the index.
const BLOCK_BYTES: usize = 3 << 9;
/// Bytes that are written before they are synced, so that the last sync is not for all of them: whoever syncs
/// another file meanwhile would wait for it.
const SYNC_BYTES: u64 = 4 << 20;

/// Writes a run: rows in the order of their keys' hashes, no key twice.
pub struct RunWriter {
    file: BlockWriter,
    /// Rows that fill no block yet.
    waiting: Image,
    /// The hash of the first of them.
    first: u64,
    index: Index,
    last: u64,
    rows: u64,
    deletions: u64,
    /// How far it is synced; none where that is not wanted.
    synced: Option<u64>,
}

impl RunWriter {
    /// Into a file. With a filter for so many rows at the most; the oldest run of a table has none, as most keys
    /// that are looked for there are there.
    pub fn new(file: BlockWriter, shape: &Arc<RowShape>, filter_rows: Option<usize>) -> RunWriter {
        RunWriter {
            file,
            waiting: Image::new(shape),
            first: 0,
            index: Index::with_filter(filter_rows.map(Filter::new)),
            last: 0,
            rows: 0,
            deletions: 0,
            synced: Some(0),
        }
    }

    /// Adds rows behind those added before.
    pub fn push(&mut self, rows: &Image) -> Result<(), StateError> {
        (0..rows.len()).try_for_each(|row| self.push_row(rows, row, rows.hash(row)))
    }

    /// Adds a row of an image, whose key has that hash.
    pub(super) fn push_row(&mut self, rows: &Image, row: usize, hash: u64) -> Result<(), StateError> {
        assert!(self.rows == 0 || self.last <= hash, "rows come in the order of their hashes");
        if self.waiting.is_empty() {
            self.first = hash;
        }
        self.last = hash;
        self.rows += 1;
        self.deletions += u64::from(!rows.exists(row));
        if let Some(filter) = &mut self.index.filter {
            filter.add(hash);
        }
        self.waiting.push_of(rows, row);
        if self.waiting.bytes() >= BLOCK_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StateError> {
        let waiting = &self.waiting;
        let place = self.file.seal(|block| encode(waiting, 0..waiting.len(), block), ALIGNMENT)?;
        if !self.index.push(self.first, place) {
            return Err(StateError::Refused("a run of a table's rows would be larger than 64 GiB".into()));
        }
        self.waiting.clear();
        if let Some(synced) = self.synced.filter(|synced| self.file.length() - synced >= SYNC_BYTES) {
            self.file.sync()?;
            self.synced = Some(synced + SYNC_BYTES);
        }
        Ok(())
    }

    /// Without syncs as it goes: it need not be durable soon.
    pub fn unsynced(self) -> RunWriter {
        RunWriter { synced: None, ..self }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Makes it durable.
    pub fn finish(self) -> Result<OpenRun, StateError> {
        let planted = self.file.planted();
        let run = self.finish_unsynced()?;
        run.sync(planted)?;
        Ok(run)
    }

    /// Only writes it: a crash may leave nothing of it, or any part.
    pub fn finish_unsynced(mut self) -> Result<OpenRun, StateError> {
        if !self.waiting.is_empty() {
            self.write()?;
        }
        let index = self.file.write(&self.index.write(), self.rows)?;
        let run = Run { index, rows: self.rows, deletions: self.deletions };
        Ok(OpenRun::new(run, self.index, self.file.into_file()?))
    }

    /// The bug that is planted, if any.
    pub(super) fn planted(&self) -> Planted {
        self.file.planted()
    }
}
