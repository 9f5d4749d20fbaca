//! Making the slots of many keys at once.
//!
//! **What.** Keys are sorted by virtual node, so that the memory that making their slots reads and writes lies close
//! together. Slots are made in the three steps of a lookup, and one call finds or inserts. A thread that makes slots
//! takes one shard after another, those that no other thread holds first.
//! **Cost.** Sixteen bytes for each of [`CHUNK`] keys, and as many passes over these as a radix sort by one byte.

use crate::direct::Counts;
use crate::hash::virtual_node_of;
use crate::key_sets::KeySet;
use crate::look_up::GROUP;
use crate::nodes::{Nodes, Shard, shard_of};
use crate::rows::RowAddress;
use crate::sync::writes_key;
use crate::table::Table;
use std::ops::Range;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Keys whose slots are made together: enough that each virtual node gets some, few enough that their data stays in
/// the second-level cache.
const CHUNK: usize = 1 << 13;

/// A key whose slot is to be made: its hash, its number among the missing keys, and its place among all keys.
#[derive(Clone, Copy, Default)]
struct Wanted {
    hash: u64,
    at: u32,
    place: u32,
}

/// A shard that a thread holds exclusively, the nodes that it belongs to, and the counts of new slots.
struct Held<'a> {
    nodes: &'a Nodes,
    shard: &'a mut Shard,
    /// Counts of the new keys.
    new: &'a mut Counts,
    /// Bytes of memory that their texts take.
    text_bytes: usize,
}

impl Table {
    /// Calls `made` for each missing key with its number among the missing keys, its place among all keys, its slot,
    /// and whether the slot was made now. Another thread may have made it meanwhile, and a key may be missing twice.
    pub(crate) fn make_slots<K: KeySet>(
        &self,
        keys: &K,
        missing: &[usize],
        mut made: impl FnMut(usize, usize, RowAddress, bool),
    ) {
        for (chunk, missing) in missing.chunks(CHUNK).enumerate() {
            let wanted = by_node(&keys.hashes(missing), missing);
            let made = |wanted: &Wanted, (row, is_new)| {
                made(chunk * CHUNK + wanted.at as usize, wanted.place as usize, row, is_new);
            };
            let grown = self.make_by_shard(&self.nodes().read(), keys, &wanted, made);
            if let Some(len) = grown {
                self.grow_direct(&mut self.nodes().write(), len);
            }
        }
    }

    /// Makes slots shard by shard: next a shard that no other thread holds; if there is none, it waits for the first
    /// one left. Returns the length to which the array of one-word keys should grow, if any.
    fn make_by_shard<K: KeySet>(
        &self,
        nodes: &Nodes,
        keys: &K,
        wanted: &[Wanted],
        mut made: impl FnMut(&Wanted, (RowAddress, bool)),
    ) -> Option<usize> {
        let shard_of = |wanted: &Wanted| shard_of(virtual_node_of(wanted.hash));
        let mut left: Vec<&[Wanted]> = wanted.chunk_by(|one, next| shard_of(one) == shard_of(next)).collect();
        let turn = nodes.turn() % left.len().max(1);
        left.rotate_left(turn);
        let (mut new, mut text_bytes) = (Counts::default(), 0);
        while !left.is_empty() {
            let shard = |at: usize| &nodes.shards[shard_of(&left[at][0])];
            let free = (0..left.len()).find_map(|at| Some((at, shard(at).try_write()?)));
            let (at, mut shard) = free.unwrap_or_else(|| (0, shard(0).write()));
            let mut held = Held { nodes, shard: &mut shard, new: &mut new, text_bytes: 0 };
            self.make_in_steps(&mut held, keys, left.remove(at), &mut made);
            text_bytes += held.text_bytes;
        }
        nodes.count(new.all());
        self.text_bytes().add(text_bytes);
        nodes.direct.count(&new)
    }

    /// Finds or makes the slots of keys, in three steps as in [`crate::look_up`].
    fn make_in_steps<K: KeySet>(
        &self,
        held: &mut Held<'_>,
        keys: &K,
        wanted: &[Wanted],
        made: &mut impl FnMut(&Wanted, (RowAddress, bool)),
    ) {
        let group = |first: usize| first.min(wanted.len())..(first + GROUP).min(wanted.len());
        let mut run = 0;
        for first in (0..wanted.len() + 2 * GROUP).step_by(GROUP) {
            ask(held.shard, keys, &wanted[group(first)]);
            if first >= GROUP {
                run = ask_further(held.shard, wanted, group(first - GROUP), run, first.saturating_sub(2 * GROUP));
            }
            if first >= 2 * GROUP {
                self.make_group(held, keys, &wanted[group(first - 2 * GROUP)], made);
            }
        }
    }

    /// Finds or makes the slots of a group's keys.
    #[inline(never)]
    fn make_group<K: KeySet>(
        &self,
        held: &mut Held<'_>,
        keys: &K,
        group: &[Wanted],
        made: &mut impl FnMut(&Wanted, (RowAddress, bool)),
    ) {
        for wanted in group {
            made(wanted, self.find_or_insert(held, keys, keys.key_at(wanted.place as usize), wanted.hash));
        }
    }

    /// Returns the slot of a key with this hash, and whether it was made now.
    #[inline(always)]
    fn find_or_insert<K: KeySet>(&self, held: &mut Held<'_>, keys: &K, key: K::Key, hash: u64) -> (RowAddress, bool) {
        let Nodes { direct, evicted, .. } = held.nodes;
        let word = keys.word(key).filter(|_| evicted.is_none());
        let covered = word.filter(|&word| word < direct.len() as u64);
        if let Some(row) = covered.map(|word| direct.get(word)).filter(|&row| row != 0) {
            return (row, false);
        }
        let node = virtual_node_of(hash);
        let (index, rows) = held.shard.node_mut(node);
        let arenas = self.arenas();
        let mut make = || {
            let row = rows.allocate(arenas.rows.of_node(node));
            writes_key(row);
            held.text_bytes += keys.write(key, row);
            row
        };
        let (row, is_new) = match covered {
            Some(word) => {
                let row = make();
                direct.set(word, row);
                (row, true)
            }
            None => {
                let matches = |row| keys.matches(key, row);
                index.find_or_insert(hash, matches, make, &arenas.indexes, |row| self.hash_of_row(row))
            }
        };
        if is_new {
            held.new.add(word);
        }
        (row, is_new)
    }

    /// Grows the array of one-word keys to this length, and moves the rows whose keys it then covers there from the
    /// indexes.
    pub(crate) fn grow_direct(&self, nodes: &mut Nodes, len: usize) {
        if len <= nodes.direct.len() {
            return;
        }
        nodes.direct.grow(len);
        for node in 0..VIRTUAL_NODE_COUNT {
            let (index, _) = nodes.node_mut(node);
            let (covered, rest): (Vec<_>, Vec<_>) = index.rows().partition(|&row| self.word_of_row(row) < len as u64);
            if covered.is_empty() {
                continue;
            }
            index.rebuild(&rest, &self.arenas().indexes, |row| self.hash_of_row(row));
            covered.into_iter().for_each(|row| nodes.direct.set(self.word_of_row(row), row));
        }
    }
}

/// Returns the keys sorted by virtual node; within a node, in their order.
fn by_node(hashes: &[u64], places: &[usize]) -> Vec<Wanted> {
    let mut next = [0; VIRTUAL_NODE_COUNT];
    hashes.iter().for_each(|&hash| next[virtual_node_of(hash)] += 1);
    let mut start = 0;
    for next in &mut next {
        start += std::mem::replace(next, start);
    }
    let mut wanted = vec![Wanted::default(); hashes.len()];
    for ((&hash, &place), at) in hashes.iter().zip(places).zip(0..) {
        let next = &mut next[virtual_node_of(hash)];
        wanted[*next] = Wanted { hash, at, place: place as u32 };
        *next += 1;
    }
    wanted
}

/// Prefetches the keys of a group, and their buckets.
#[inline(never)]
fn ask(shard: &Shard, keys: &impl KeySet, group: &[Wanted]) {
    for &Wanted { hash, place, .. } in group {
        shard.index(virtual_node_of(hash)).ask(hash);
        keys.ask(place as usize);
    }
}

/// Prefetches the lines that finding or making a group's slots needs next. All keys before `made` have their slots.
/// `run` is where the keys of the first key's virtual node begin; returns the same for the group's last key.
#[inline(never)]
fn ask_further(shard: &Shard, wanted: &[Wanted], group: Range<usize>, mut run: usize, made: usize) -> usize {
    for i in group {
        let Wanted { hash, .. } = wanted[i];
        let node = virtual_node_of(hash);
        shard.index(node).ask_further(hash);
        if node != virtual_node_of(wanted[run].hash) {
            run = i;
        }
        shard.rows(node).ask(i - run.max(made));
    }
    run
}
