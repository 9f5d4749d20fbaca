//! Writing a run.

use super::block::encode;
use super::filter::Filter;
use super::index::{ALIGNMENT, IndexBuilder};
use super::{OpenRun, StoredRun};
use crate::blocks::BlockWriter;
use crate::error::StateError;
use crate::nodes::NodeRange;
use crate::planted::Planted;
use std::sync::Arc;
use tidemill_state::{Image, RowShape};

/// Bytes of rows and texts in a block, in their size in memory. A larger block has more rows to check in a lookup; a
/// smaller one needs more index entries per row.
const BLOCK_BYTES: usize = 3 << 9;
/// Bytes that are written between syncs. Without them the last sync would cover the whole file, and a sync of another
/// file meanwhile would wait for it.
const SYNC_BYTES: u64 = 4 << 20;

/// Blocks that are gathered before they are written.
const BLOCKS: usize = 64;

/// Rows encoded as blocks that are not in a file yet, in the order of their keys' hashes, no key twice. Any thread
/// makes them; then they are [added](RunWriter::append) to a run.
pub struct Packed {
    /// The first hash of each block, and where its bytes end.
    blocks: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    /// Rows that do not fill a block yet.
    waiting: Image,
    /// The hashes of all rows.
    hashes: Vec<u64>,
    deletions: u64,
}

impl Packed {
    /// Blocks without rows.
    pub fn new(shape: &Arc<RowShape>) -> Packed {
        Packed { blocks: Vec::new(), bytes: Vec::new(), waiting: Image::new(shape), hashes: Vec::new(), deletions: 0 }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.hashes.len()
    }

    /// Appends rows, after those added before.
    pub fn push(&mut self, rows: &Image) {
        (0..rows.len()).for_each(|row| self.push_row(rows, row, rows.hash(row)));
    }

    /// Adds a row of an image, whose key has this hash.
    fn push_row(&mut self, rows: &Image, row: usize, hash: u64) {
        assert!(self.hashes.last().is_none_or(|last| *last <= hash), "rows come in the order of their hashes");
        self.hashes.push(hash);
        self.deletions += u64::from(!rows.exists(row));
        self.waiting.push_of(rows, row);
        if self.waiting.bytes() >= BLOCK_BYTES {
            self.close();
        }
    }

    /// Makes a block of the waiting rows.
    fn close(&mut self) {
        if !self.waiting.is_empty() {
            let first = self.hashes[self.hashes.len() - self.waiting.len()];
            encode(&self.waiting, 0..self.waiting.len(), &mut self.bytes);
            self.blocks.push((first, self.bytes.len()));
            self.waiting.clear();
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.bytes.clear();
        self.hashes.clear();
        self.deletions = 0;
    }
}

/// Writes a run: rows in the order of their keys' hashes, no key twice.
pub struct RunWriter {
    file: BlockWriter,
    /// Rows that are not written yet.
    packed: Packed,
    index: IndexBuilder,
    /// The last hash that was written.
    last: u64,
    rows: u64,
    deletions: u64,
    /// The length up to which the file was synced; none if it is not synced meanwhile.
    synced: Option<u64>,
    /// The virtual nodes whose rows the run may have.
    nodes: NodeRange,
}

impl RunWriter {
    /// Makes a writer into a file, with a filter for at most this many rows. The oldest run of a table has no filter,
    /// because most keys that are looked up there exist there.
    pub fn new(file: BlockWriter, shape: &Arc<RowShape>, filter_rows: Option<usize>) -> RunWriter {
        RunWriter {
            file,
            packed: Packed::new(shape),
            index: IndexBuilder::with_filter(filter_rows.map(Filter::new)),
            last: 0,
            rows: 0,
            deletions: 0,
            synced: Some(0),
            nodes: NodeRange::default(),
        }
    }

    /// Appends rows, after those added before.
    pub fn push(&mut self, rows: &Image) -> Result<(), StateError> {
        (0..rows.len()).try_for_each(|row| self.push_row(rows, row, rows.hash(row)))
    }

    /// Adds a row of an image, whose key has this hash.
    pub(super) fn push_row(&mut self, rows: &Image, row: usize, hash: u64) -> Result<(), StateError> {
        self.packed.push_row(rows, row, hash);
        if self.packed.blocks.len() >= BLOCKS && self.packed.waiting.is_empty() { self.flush() } else { Ok(()) }
    }

    /// Appends rows that were packed elsewhere, after those added before.
    pub fn append(&mut self, mut packed: Packed) -> Result<(), StateError> {
        self.flush()?;
        packed.close();
        self.write(&packed)
    }

    fn flush(&mut self) -> Result<(), StateError> {
        let empty = Packed::new(self.packed.waiting.shape());
        let mut packed = std::mem::replace(&mut self.packed, empty);
        packed.close();
        let written = self.write(&packed);
        packed.clear();
        self.packed = packed;
        written
    }

    fn write(&mut self, packed: &Packed) -> Result<(), StateError> {
        let (Some(&first), Some(&last)) = (packed.hashes.first(), packed.hashes.last()) else { return Ok(()) };
        assert!(self.last <= first, "rows come in the order of their hashes");
        assert!(self.nodes.has_hash(first) && self.nodes.has_hash(last), "a run of {} has others", self.nodes);
        self.last = last;
        self.rows += packed.rows() as u64;
        self.deletions += packed.deletions;
        if let Some(filter) = &mut self.index.filter {
            packed.hashes.iter().for_each(|&hash| filter.add(hash));
        }
        let mut start = 0;
        for &(first, end) in &packed.blocks {
            let bytes = &packed.bytes[start..end];
            start = end;
            let place = self.file.seal(|block| block.extend_from_slice(bytes), ALIGNMENT)?;
            if !self.index.push(first, place) {
                return Err(StateError::Refused("a run of a table's rows would be larger than 64 GiB".into()));
            }
        }
        if let Some(synced) = self.synced.filter(|synced| self.file.length() - synced >= SYNC_BYTES) {
            self.file.sync()?;
            self.synced = Some(synced + SYNC_BYTES);
        }
        Ok(())
    }

    /// Limits the run to the rows of some nodes.
    pub fn of_nodes(self, nodes: NodeRange) -> RunWriter {
        assert_eq!(self.rows, 0, "the nodes of a run are given before its rows");
        RunWriter { nodes, ..self }
    }

    /// Omits syncs while it is written: it need not be durable soon.
    pub fn unsynced(self) -> RunWriter {
        RunWriter { synced: None, ..self }
    }

    /// Returns the bytes in memory.
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Ends the run, and makes its file durable.
    pub fn finish(self) -> Result<OpenRun, StateError> {
        let planted = self.file.planted();
        let run = self.finish_unsynced()?;
        run.sync(planted)?;
        Ok(run)
    }

    /// Writes it without a sync: a crash may leave none of it, or any part.
    pub fn finish_unsynced(mut self) -> Result<OpenRun, StateError> {
        self.flush()?;
        let index = self.file.write(&self.index.write(), self.rows)?;
        let hash = self.file.end_hash()?;
        let run = StoredRun { index, rows: self.rows, deletions: self.deletions, hash, nodes: self.nodes };
        Ok(OpenRun::new(run, self.index.finish(), self.file.into_file()?))
    }

    /// Returns the bug that is planted, if any.
    pub(super) fn planted(&self) -> Planted {
        self.file.planted()
    }
}
