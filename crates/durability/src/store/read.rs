//! Reading runs: all rows, in parts; or those of some keys.

use super::Run;
use super::block::{self, Opened};
use super::index::Index;
use crate::blocks::BlockReader;
use crate::error::StateError;
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::{Found, Image, NOWHERE, RowShape};

/// Rows that make a part: enough that filling a table with them pays, few enough that all processors have some.
const PART_ROWS: u64 = 1 << 18;

/// The runs of a table, open. Any thread may read.
pub struct Runs {
    files: BlockReader,
    /// Oldest first.
    indexes: Vec<Arc<Index>>,
    shape: Arc<RowShape>,
    /// Of what, for messages.
    what: String,
    rows: u64,
}

/// Some virtual nodes.
pub type Part = Range<usize>;

impl Runs {
    /// Opens runs, oldest first, of a table with that shape of rows. All files are open then: they may be removed.
    pub fn open(files: BlockReader, runs: &[Run], shape: &Arc<RowShape>, table: &str) -> Result<Runs, StateError> {
        let none =
            Runs { indexes: Vec::new(), shape: shape.clone(), what: format!("rows of table {table}"), rows: 0, files };
        none.successor(runs)
    }

    /// Other runs of the same table; those that are among these are not read again.
    pub fn successor(&self, runs: &[Run]) -> Result<Runs, StateError> {
        let files = self.files.with_open(runs.iter().map(|run| run.index.file));
        let open = |(at, run): (usize, &Run)| {
            if let Some(index) = self.indexes.iter().find(|index| index.file == run.index.file) {
                return Ok(index.clone());
            }
            let bytes = files.read(&run.index, &self.what)?;
            let mut index = Index::read(&bytes, run.index.file);
            // Most keys that are looked for are in the oldest run, if they are anywhere: its filter, which is the
            // largest, would hardly ever say no.
            if let Some(index) = index.as_mut().filter(|_| at == 0) {
                index.filter = None;
            }
            index.map(Arc::new).ok_or_else(|| files.malformed(&run.index, &self.what, "an index does not read"))
        };
        let indexes = runs.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        let rows = runs.iter().map(|run| run.rows).sum();
        Ok(Runs { indexes, shape: self.shape.clone(), what: self.what.clone(), rows, files })
    }

    /// Bytes of indexes and filters in memory.
    pub fn bytes(&self) -> usize {
        self.indexes.iter().map(|index| index.bytes()).sum()
    }

    /// Rows and deletions in all of them.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Shares of all rows, of about one size, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        self.shares(PART_ROWS)
    }

    /// Smaller ones, for who merges them beside other work.
    pub(super) fn merge_parts(&self) -> impl Iterator<Item = Part> + use<> {
        self.shares(PART_ROWS / 16)
    }

    fn shares(&self, rows: u64) -> impl Iterator<Item = Part> + use<> {
        let parts = self.rows.div_ceil(rows).next_power_of_two().min(VIRTUAL_NODE_COUNT as u64) as usize;
        let nodes = VIRTUAL_NODE_COUNT / parts;
        (0..parts).map(move |part| part * nodes..(part + 1) * nodes)
    }

    /// The newest of each key's rows and deletions in a part, in the order of hashes.
    pub fn read(&self, part: &Part) -> Result<Image, StateError> {
        let from = (part.start as u64) << 56;
        let to = (part.end as u64 - 1) << 56 | (u64::MAX >> 8);
        let mut all = Image::new(&self.shape);
        for index in &self.indexes {
            self.files.read_each(&index.blocks[index.blocks_of(from, to)], &self.what, |bytes| {
                block::decode(bytes, &mut all, |hash| from <= hash && hash <= to)
            })?;
        }
        Ok(all.newest())
    }

    /// The rows of these keys, of which only the keys matter. Each block that one of them may be in is read once.
    pub fn get(&self, keys: &Image) -> Result<Found, StateError> {
        let mut found = Found { rows: Image::new(&self.shape), places: vec![NOWHERE; keys.len()] };
        let mut left: Vec<(u64, u32)> = (0..keys.len()).map(|row| (keys.hash(row), row as u32)).collect();
        left.sort_unstable();
        let mut bytes = Vec::new();
        for index in self.indexes.iter().rev() {
            // As keys come in the order of hashes, the last block that was opened is the one to know.
            let (mut block, mut opened) = (usize::MAX, Opened::NONE);
            let mut kept = 0;
            for at in 0..left.len() {
                let (hash, key) = left[at];
                let mut is_done = false;
                if index.may_have(hash) {
                    for candidate in index.blocks_of(hash, hash) {
                        if candidate != block {
                            let place = &index.blocks[candidate];
                            self.files.read_into(place, &self.what, &mut bytes)?;
                            let open = opened.open(&bytes, &self.shape);
                            open.map_err(|e| self.files.malformed(place, &self.what, e.0))?;
                            block = candidate;
                        }
                        if let Some(row) = opened.find(hash, keys, key as usize) {
                            if opened.add(row, &mut found.rows) {
                                found.places[key as usize] = found.rows.len() as u32 - 1;
                            }
                            is_done = true;
                            break;
                        }
                    }
                }
                if !is_done {
                    left[kept] = left[at];
                    kept += 1;
                }
            }
            left.truncate(kept);
        }
        Ok(found)
    }
}
