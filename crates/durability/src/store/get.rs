//! The rows of some keys.

use super::Runs;
use super::block::Opened;
use super::read::OpenRun;
use crate::error::StateError;
use crate::nodes::NodeRange;
use tidemill_state::{Found, Image, NOWHERE};

/// How many keys ahead of the one that is looked for what leads to its block is asked for.
const LEADS_AHEAD: usize = 16;
/// And its block, for so many keys in one go: where files are memory, pages of them that were not read lately have to be
/// found first, several at the same time.
const AHEAD: usize = 8;

/// A key that is looked for: its hash, its number, and a block that it may be in.
#[derive(Clone, Copy)]
struct Sought {
    hash: u64,
    key: u32,
    block: u32,
}

impl Runs {
    /// The rows of these keys, of which only the keys matter. Keys are looked for in the order of their hashes, so
    /// that each run is gone through once; newer runs first, so that a row is found once. In each run all go through
    /// one step after the other (filter, index, block), so that each step can ask for what it will need.
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
            // As keys come in order, those of one block come together.
            for of_block in here.chunk_by(|one, next| one.block == next.block) {
                while asked < here.len() && asked < at + AHEAD {
                    let ahead = &here[asked..(asked + AHEAD).min(here.len())];
                    ahead.iter().for_each(|sought| run.file.ask(run.index.place(sought.block as usize)));
                    asked += ahead.len();
                }
                at += of_block.len();
                let block = of_block[0].block as usize;
                let bytes = run.block(block, (what, shape), &mut opened, &mut buffer)?;
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

/// Those of some nodes. They are in the order of their hashes.
fn in_nodes(left: &[Sought], nodes: NodeRange) -> &[Sought] {
    if nodes.is_whole() {
        return left;
    }
    let (first, last) = nodes.hashes();
    &left[left.partition_point(|sought| sought.hash < first)..left.partition_point(|sought| sought.hash <= last)]
}

/// Those that a run may have.
fn filter(run: &OpenRun, left: &[Sought], may_be: &mut Vec<Sought>) {
    may_be.clear();
    let Some(filter) = run.index.filter() else { return may_be.extend_from_slice(left) };
    // Each is written, and the next over it if it cannot be there.
    may_be.extend_from_slice(left);
    let mut kept = 0;
    for (at, sought) in left.iter().enumerate() {
        left.get(at + LEADS_AHEAD).into_iter().for_each(|ahead| filter.ask(ahead.hash));
        may_be[kept] = *sought;
        kept += usize::from(filter.may_have(sought.hash));
    }
    may_be.truncate(kept);
}

/// The blocks of a run that they may be in, in order.
fn find_blocks(run: &OpenRun, may_be: &[Sought], here: &mut Vec<Sought>) {
    here.clear();
    for (at, &Sought { hash, key, .. }) in may_be.iter().enumerate() {
        may_be.get(at + LEADS_AHEAD).into_iter().for_each(|ahead| run.index.ask(ahead.hash));
        let blocks = run.index.blocks_of(hash, hash);
        here.extend(blocks.map(|block| Sought { hash, key, block: block as u32 }));
    }
}
