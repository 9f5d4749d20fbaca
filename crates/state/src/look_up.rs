//! Looking up many keys at once in the hash indexes.

use crate::index::{ELSEWHERE, Place};
use crate::key_sets::{KeySet, Subset};
use crate::nodes::Shards;
use crate::rows::RowAddress;
use std::ops::Range;

/// Keys looked up together, so that their cache misses overlap.
pub const GROUP: usize = 32;

/// A key on its way through the three steps of [`look_up`].
#[derive(Clone, Copy)]
struct Sought<K> {
    key: K,
    place: Place,
    row: RowAddress,
}

/// Looks up the keys from `start` on, as many as `out` has room for, in three steps. Each step works on one group per
/// round, on the lines that the step before prefetched one round earlier, so that the cache misses of three groups
/// overlap. Each step is a function of its own, to have all registers: in tables that fit the cache, every
/// instruction counts. The places of keys without a slot go to `missing`; `MISSES` says that they are frequent.
pub fn look_up<const MISSES: bool, K: KeySet>(
    shards: &Shards<'_>,
    keys: &K,
    start: usize,
    out: &mut [RowAddress],
    missing: &mut Vec<usize>,
) {
    let nobody = Sought { key: K::Key::default(), place: Place::NOWHERE, row: 0 };
    let mut groups = [[nobody; GROUP]; 3];
    let len = out.len();
    let rounds = len.div_ceil(GROUP);
    let range = |round: usize| round * GROUP..((round + 1) * GROUP).min(len);
    let beyond = |range: Range<usize>| start + range.start..start + range.end;
    for round in 0..rounds + 2 {
        if round < rounds {
            ask(shards, keys, beyond(range(round)), &mut groups[round % 3]);
        }
        if (1..=rounds).contains(&round) {
            guess::<MISSES, _>(&mut groups[(round - 1) % 3]);
        }
        if round >= 2 {
            let first = start + (round - 2) * GROUP;
            compare::<MISSES, _>(shards, keys, &groups[(round - 2) % 3], &mut out[range(round - 2)], first, missing);
        }
    }
}

/// Looks up in the indexes the keys at the places in `missing`, which the array does not have. Keeps the places of
/// keys without a slot.
#[cold]
pub fn look_up_beyond<K: KeySet>(shards: &Shards<'_>, keys: &K, out: &mut [RowAddress], missing: &mut Vec<usize>) {
    let subset = Subset { keys, places: missing };
    let mut rows = vec![0; missing.len()];
    let mut nowhere = Vec::new();
    look_up::<false, _>(shards, &subset, 0, &mut rows, &mut nowhere);
    missing.iter().zip(rows).for_each(|(&i, row)| out[i] = row);
    *missing = nowhere.into_iter().map(|i| missing[i]).collect();
}

/// Hashes a group's keys and prefetches their buckets.
#[inline(never)]
fn ask<K: KeySet>(shards: &Shards<'_>, keys: &K, range: Range<usize>, group: &mut [Sought<K::Key>; GROUP]) {
    for (sought, key) in group.iter_mut().zip(keys.range(range)) {
        let hash = keys.hash(key);
        sought.key = key;
        sought.place = shards.index_of(hash).ask(hash);
    }
}

/// Picks a group's rows by tag and prefetches them.
#[inline(never)]
fn guess<const MISSES: bool, K>(group: &mut [Sought<K>; GROUP]) {
    for sought in group {
        sought.row = sought.place.guess::<MISSES>();
    }
}

/// Compares a group's keys to those of the picked rows. If `MISSES` are frequent, a key without a picked row has no
/// slot.
#[inline(never)]
fn compare<const MISSES: bool, K: KeySet>(
    shards: &Shards<'_>,
    keys: &K,
    group: &[Sought<K::Key>; GROUP],
    out: &mut [RowAddress],
    first: usize,
    missing: &mut Vec<usize>,
) {
    for (i, (&Sought { key, row, .. }, out)) in group.iter().zip(out).enumerate() {
        *out = row;
        if MISSES && row == 0 {
            missing.push(first + i);
        } else if row == 0 || row == ELSEWHERE || !keys.matches(key, row) {
            match find(shards, keys, key) {
                Some(row) => *out = row,
                None => missing.push(first + i),
            }
        }
    }
}

/// Returns the row of a key that was not where the search began.
#[cold]
#[inline(never)]
fn find<K: KeySet>(shards: &Shards<'_>, keys: &K, key: K::Key) -> Option<RowAddress> {
    let hash = keys.hash(key);
    shards.index_of(hash).find(hash, |row| keys.matches(key, row))
}
