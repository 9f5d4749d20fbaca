//! Reading runs: all rows, in parts; or those of some keys.

use super::Run;
use super::block;
use super::index::Index;
use crate::blocks::BlockReader;
use crate::error::StateError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::{Image, RowShape};

/// Rows that make a part: enough that filling a table with them pays, few enough that all processors have some.
const PART_ROWS: u64 = 1 << 18;

/// The runs of a table, open. Any thread may read.
pub struct Runs {
    files: BlockReader,
    /// Oldest first.
    indexes: Vec<Index>,
    shape: Arc<RowShape>,
    /// Of what, for messages.
    what: String,
    rows: u64,
}

/// Some virtual nodes.
pub type Part = Range<usize>;

impl Runs {
    /// Opens runs, oldest first, of a table with that shape of rows.
    pub fn open(files: BlockReader, runs: &[Run], shape: &Arc<RowShape>, table: &str) -> Result<Runs, StateError> {
        let what = format!("rows of table {table}");
        let open = |run: &Run| {
            let bytes = files.read(&run.index, &what)?;
            let index = Index::read(&bytes, run.index.file);
            index.ok_or_else(|| files.malformed(&run.index, &what, "an index does not read"))
        };
        let indexes = runs.iter().map(open).collect::<Result<_, _>>()?;
        let rows = runs.iter().map(|run| run.rows).sum();
        Ok(Runs { indexes, shape: shape.clone(), what, rows, files })
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

    /// The rows of those of these keys that have one, in no order. Of `keys` only the keys matter.
    pub fn get(&self, keys: &Image) -> Result<Image, StateError> {
        let mut found = Image::new(&self.shape);
        let mut left: Vec<(u64, usize)> = (0..keys.len()).map(|row| (keys.hash(row), row)).collect();
        left.sort_unstable();
        for index in self.indexes.iter().rev() {
            let mut wanted: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (at, &(hash, _)) in left.iter().enumerate().filter(|(_, (hash, _))| index.filter.may_have(*hash)) {
                index.blocks_of(hash, hash).for_each(|block| wanted.entry(block).or_default().push(at));
            }
            let mut is_done = vec![false; left.len()];
            for (block, sought) in wanted {
                let bytes = self.files.read(&index.blocks[block], &self.what)?;
                let rows = block::read(&bytes, &self.shape);
                let rows = rows.map_err(|e| self.files.malformed(&index.blocks[block], &self.what, e.0))?;
                let hashes: Vec<u64> = (0..rows.len()).map(|row| rows.hash(row)).collect();
                for at in sought {
                    let (hash, key) = left[at];
                    let first = hashes.partition_point(|&other| other < hash);
                    let alike = (first..rows.len()).take_while(|&row| hashes[row] == hash);
                    if let Some(row) = alike.into_iter().find(|&row| rows.same_key(row, keys, key)) {
                        is_done[at] = true;
                        if rows.exists(row) {
                            found.push_of(&rows, row);
                        }
                    }
                }
            }
            let mut at = 0;
            left.retain(|_| (at += 1, !is_done[at - 1]).1);
        }
        Ok(found)
    }
}
