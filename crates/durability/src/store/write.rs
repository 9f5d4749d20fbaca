//! Writing a run.

use super::Run;
use super::block::BlockCodec;
use super::filter::Filter;
use super::index::Index;
use crate::blocks::BlockWriter;
use crate::error::StateError;
use std::sync::Arc;
use tidemill_state::{Image, RowShape};

/// Bytes of rows and texts in a block, before compression: what a lookup has to read and decompress for one
/// row, against what a block costs in the index.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes that are written before they are synced, so that the last sync is not for all of them: whoever syncs
/// another file meanwhile would wait for it.
const SYNC_BYTES: u64 = 4 << 20;

/// Writes a run: rows in the order of their keys' hashes, no key twice.
pub struct RunWriter {
    file: BlockWriter,
    codec: BlockCodec,
    /// Rows that fill no block yet.
    waiting: Image,
    index: Index,
    hashes: Vec<u64>,
    deletions: u64,
    synced: u64,
}

impl RunWriter {
    /// Into a file.
    pub fn new(file: BlockWriter, shape: &Arc<RowShape>) -> RunWriter {
        RunWriter {
            file,
            codec: BlockCodec::default(),
            waiting: Image::new(shape),
            index: Index { first: Vec::new(), blocks: Vec::new(), filter: None, file: 0 },
            hashes: Vec::new(),
            deletions: 0,
            synced: 0,
        }
    }

    /// Adds rows behind those added before.
    pub fn push(&mut self, rows: &Image) -> Result<(), StateError> {
        for row in 0..rows.len() {
            let hash = rows.hash(row);
            assert!(self.hashes.last().is_none_or(|last| *last <= hash), "rows come in the order of their hashes");
            self.hashes.push(hash);
            self.deletions += u64::from(!rows.exists(row));
            self.waiting.push_of(rows, row);
            if self.waiting.bytes() >= BLOCK_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), StateError> {
        let rows = self.waiting.len();
        self.index.first.push(self.hashes[self.hashes.len() - rows]);
        let block = self.file.write(self.codec.encode(&self.waiting, 0..rows), rows as u64)?;
        self.index.blocks.push(block);
        self.waiting = Image::new(self.waiting.shape());
        if self.file.length() - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.file.length();
        }
        Ok(())
    }

    /// Makes it durable.
    pub fn finish(mut self) -> Result<Run, StateError> {
        if !self.waiting.is_empty() {
            self.write()?;
        }
        let mut filter = Filter::new(self.hashes.len());
        self.hashes.iter().for_each(|&hash| filter.add(hash));
        self.index.filter = Some(filter);
        let rows = self.hashes.len() as u64;
        let index = self.file.write(&self.index.write(), rows)?;
        self.file.finish()?;
        Ok(Run { index, rows, deletions: self.deletions })
    }
}
