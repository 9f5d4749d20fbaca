//! Lookup of the rows of some keys.

use super::Runs;
use super::block::Opened;
use super::read::OpenRun;
use crate::error::StateError;
use crate::nodes::NodeRange;
use tidemill_state::{Found, Image, NOWHERE};

/// Prefetch distance, in keys, for the filter and the index.
const LEADS_AHEAD: usize = 16;
/// Prefetch distance, in keys, for blocks. They are prefetched in groups: where files are mapped, pages that were not
/// read lately must be found first, and several are found at once.
const AHEAD: usize = 8;

/// A key to look up: its hash, its number, and a block that may have it.
#[derive(Clone, Copy)]
struct Sought {
    hash: u64,
    key: u32,
    block: u32,
}

impl OpenRun {
    /// Returns whether it may have a key with this hash.
    pub fn may_have(&self, hash: u64) -> bool {
        self.index.filter().is_none_or(|filter| filter.may_have(hash))
    }
}

impl Runs {
    /// Returns the rows of these keys, of which only the keys matter. Keys are looked up in the order of their hashes,
    /// so that each run is traversed once; newer runs first, so that a row is found once. In each run, all keys go
    /// through one step after the other (filter, index, block), so that each step can prefetch the lines that it will
    /// need.
    pub fn get(&self, keys: &Image) -> Result<Found, StateError> {
        let mut found = Found { rows: Image::new(&self.shape), places: vec![NOWHERE; keys.len()] };
        let sought = |row: usize| Sought { hash: keys.hash(row), key: row as u32, block: 0 };
        let mut left: Vec<Sought> = (0..keys.len()).map(sought).collect();
        left.sort_unstable_by_key(|sought| sought.hash);
        let (mut may_be, mut here) = (Vec::with_capacity(left.len()), Vec::with_capacity(left.len()));
        let mut is_done = vec![false; keys.len()];
        let (mut opened, mut buffer) = (Opened::default(), Vec::new());
        let (what, shape) = (&*self.what, &*self.shape);
        for run in self.runs.iter().rev() {
            filter(run, in_nodes(&left, run.run().nodes), &mut may_be);
            find_blocks(run, &may_be, &mut here);
            let (mut at, mut asked, mut some) = (0, 0, false);
            // Keys are in order, so those of one block are adjacent.
            for of_block in here.chunk_by(|one, next| one.block == next.block) {
                while asked < here.len() && asked < at + AHEAD {
                    let ahead = &here[asked..(asked + AHEAD).min(here.len())];
                    ahead.iter().for_each(|sought| run.file.ask(run.index.place(sought.block as usize)));
                    asked += ahead.len();
                }
                at += of_block.len();
                let block = of_block[0].block as usize;
                let bytes = run.block(block, what, shape, &mut opened, &mut buffer)?;
                for &Sought { hash, key, .. } in of_block {
                    let key = key as usize;
                    let near = run.index.near(block, opened.len(), hash);
                    let row = if is_done[key] { None } else { opened.find(bytes, near, hash, keys, key) };
                    let Some(row) = row else { continue };
                    if opened.exists(bytes, row) {
                        found.places[key] = found.rows.len() as u32;
                        opened.add(bytes, row, shape, &mut found.rows);
                    }
                    (is_done[key], some) = (true, true);
                }
            }
            if some {
                left.retain(|sought| !is_done[sought.key as usize]);
            }
        }
        Ok(found)
    }
}

/// Returns the keys of some nodes. The keys are in the order of their hashes.
fn in_nodes(left: &[Sought], nodes: NodeRange) -> &[Sought] {
    if nodes.is_whole() {
        return left;
    }
    let (first, last) = nodes.hashes();
    &left[left.partition_point(|sought| sought.hash < first)..left.partition_point(|sought| sought.hash <= last)]
}

/// Finds the keys that a run may have, by its filter.
fn filter(run: &OpenRun, left: &[Sought], may_be: &mut Vec<Sought>) {
    may_be.clear();
    let Some(filter) = run.index.filter() else { return may_be.extend_from_slice(left) };
    // Each key is written, and overwritten by the next if the run cannot have it.
    may_be.extend_from_slice(left);
    let mut kept = 0;
    for (at, sought) in left.iter().enumerate() {
        left.get(at + LEADS_AHEAD).into_iter().for_each(|ahead| filter.ask(ahead.hash));
        may_be[kept] = *sought;
        kept += usize::from(filter.may_have(sought.hash));
    }
    may_be.truncate(kept);
}

/// Finds the blocks of a run that may have these keys, in order.
fn find_blocks(run: &OpenRun, may_be: &[Sought], here: &mut Vec<Sought>) {
    here.clear();
    for (at, &Sought { hash, key, .. }) in may_be.iter().enumerate() {
        may_be.get(at + LEADS_AHEAD).into_iter().for_each(|ahead| run.index.ask(ahead.hash));
        let blocks = run.index.blocks_of(hash, hash);
        here.extend(blocks.map(|block| Sought { hash, key, block: block as u32 }));
    }
}
