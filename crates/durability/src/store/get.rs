//! The rows of some keys.

use super::Runs;
use super::block::Opened;
use crate::error::StateError;
use tidemill_state::{Found, Image, NOWHERE};

/// How many keys ahead of the one that is looked for its block is asked for.
const AHEAD: usize = 6;

/// A key that is looked for: its hash, its number, and the first of the blocks that it may be in.
#[derive(Clone, Copy)]
struct Sought {
    hash: u64,
    key: u32,
    block: u32,
}

impl Runs {
    /// The rows of these keys, of which only the keys matter. Keys are looked for in the order of their hashes, so
    /// that each run is gone through once; newer runs first, so that a row is found once.
    pub fn get(&self, keys: &Image) -> Result<Found, StateError> {
        let mut found = Found { rows: Image::new(&self.shape), places: vec![NOWHERE; keys.len()] };
        let sought = |row: usize| Sought { hash: keys.hash(row), key: row as u32, block: 0 };
        let mut left: Vec<Sought> = (0..keys.len()).map(sought).collect();
        left.sort_unstable_by_key(|sought| sought.hash);
        let mut here: Vec<Sought> = Vec::with_capacity(left.len());
        let mut is_done = vec![false; keys.len()];
        let (mut opened, mut buffer) = (Opened::default(), Vec::new());
        for run in self.runs.iter().rev() {
            let mut start = 0;
            here.clear();
            for &Sought { hash, key, .. } in left.iter().filter(|sought| run.index.may_have(sought.hash)) {
                let blocks = run.index.blocks_behind(start, hash, hash);
                start = blocks.start;
                here.extend(blocks.map(|block| Sought { hash, key, block: block as u32 }));
            }
            if here.is_empty() {
                continue;
            }
            let (mut at, mut some) = (0, false);
            // As keys come in order, those of one block come together.
            for of_block in here.chunk_by(|one, next| one.block == next.block) {
                let ahead = here.get(at + AHEAD..(at + AHEAD + of_block.len()).min(here.len()));
                ahead.into_iter().flatten().for_each(|sought| run.file.ask(run.index.place(sought.block as usize)));
                at += of_block.len();
                let context = (&*self.what, &*self.shape);
                let bytes = run.block(of_block[0].block as usize, context, &mut opened, &mut buffer)?;
                for &Sought { hash, key, .. } in of_block {
                    let key = key as usize;
                    let row = if is_done[key] { None } else { opened.find(bytes, hash, keys, key) };
                    let Some(row) = row else { continue };
                    if opened.exists(bytes, row) {
                        found.places[key] = found.rows.len() as u32;
                        opened.add(bytes, row, &mut found.rows);
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
