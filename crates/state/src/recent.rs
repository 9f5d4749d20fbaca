//! A cache of the rows of keys that a worker looked up lately. It makes lookups in small and skewed tables cheap.
//!
//! An index leads to a row, and only the row says whether its key is the one sought. While one worker prepares an
//! epoch, another writes the rows of the epoch before, so the lines of hot rows move back and forth between their
//! caches. A worker's own cache is not shared, and holds the keys themselves: as long as keys come again, neither
//! index nor row is touched.
//!
//! **What.** A set-associative cache of one-word keys, with four keys and their rows to a cache line. A key that
//! misses is looked up in the table and takes a free way, or the next one in turn.
//! **Invariant.** An entry is a slot of the table: slots stay where they are until a sweep, and a cache drops all
//! entries when the table has been swept since.
//! **Traded away.** Where keys seldom come again, every lookup would be made twice; so a cache that mostly misses is
//! bypassed for a while. A single worker shares no lines, and does not need the cache.

use crate::keys::{KeyColumn, Keys};
use crate::rows::RowAddress;
use crate::table::Table;

const WAYS: usize = 4;
const SETS: usize = 1 << 12;
/// Lookups between two checks of the miss rate.
const JUDGED: usize = 1 << 14;
/// Lookups that bypass the cache after a check found it useless.
const PAUSE: usize = 1 << 19;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    keys: [u64; WAYS],
    /// 0 where there is no entry.
    rows: [RowAddress; WAYS],
}

/// A worker's cache of a table's keys.
#[derive(Default)]
pub struct RecentKeys {
    /// Empty until the first use.
    sets: Vec<Set>,
    /// The table's number of sweeps when the cache was filled.
    sweeps: u64,
    looked: usize,
    missed: usize,
    /// Lookups still to bypass the cache.
    pause: usize,
    /// The way that the next entry replaces.
    next: usize,
    missing: Vec<u32>,
    words: Vec<u64>,
    found: Vec<RowAddress>,
}

impl RecentKeys {
    /// Finds rows as [`Table::resolve`] does, always with the same table.
    pub fn resolve(&mut self, table: &Table, keys: &Keys<'_>, out: &mut [RowAddress]) {
        if self.pause > 0 || keys.nulls.is_some() || table.is_direct() {
            self.pause = self.pause.saturating_sub(keys.len);
            return table.resolve(keys, out);
        }
        match *keys.columns {
            [KeyColumn::Words(words)] => self.resolve_words(table, words.iter().copied(), out),
            [KeyColumn::Indexed(words, index)] => {
                self.resolve_words(table, index.iter().map(|&place| words[place as usize]), out)
            }
            _ => table.resolve(keys, out),
        }
    }

    fn resolve_words(&mut self, table: &Table, words: impl Iterator<Item = u64> + Clone, out: &mut [RowAddress]) {
        let sweeps = table.sweeps();
        if self.sets.is_empty() || self.sweeps != sweeps {
            self.sets.clear();
            self.sets.resize(SETS, Set::default());
            self.sweeps = sweeps;
        }
        self.missing.clear();
        let sets: &[Set; SETS] = self.sets.first_chunk().expect("as many as there are");
        for (i, (word, out)) in words.clone().zip(out.iter_mut()).enumerate() {
            let set = &sets[place(word)];
            // At most one entry has the key. Which one is random, so the code does not branch on it.
            let mut row = 0;
            for way in 0..WAYS {
                row |= set.rows[way] & u64::from(set.keys[way] == word).wrapping_neg();
            }
            *out = row;
            if row == 0 {
                self.missing.push(i as u32);
            }
        }
        self.judge(out.len());
        if !self.missing.is_empty() {
            self.fill(table, words, out);
        }
    }

    fn fill(&mut self, table: &Table, mut words: impl Iterator<Item = u64>, out: &mut [RowAddress]) {
        self.words.clear();
        let mut at = 0;
        for &i in &self.missing {
            self.words.extend(words.nth(i as usize - at));
            at = i as usize + 1;
        }
        self.found.clear();
        self.found.resize(self.words.len(), 0);
        let columns = [KeyColumn::Words(&self.words)];
        table.resolve(&Keys { columns: &columns, nulls: None, len: self.words.len() }, &mut self.found);
        for ((&i, &word), &row) in self.missing.iter().zip(&self.words).zip(&self.found) {
            out[i as usize] = row;
            let set = &mut self.sets[place(word)];
            if !set.keys.iter().zip(&set.rows).any(|(&key, &row)| key == word && row != 0) {
                let free = set.rows.iter().position(|&row| row == 0);
                let way = free.unwrap_or(self.next);
                set.keys[way] = word;
                set.rows[way] = row;
                self.next = (self.next + 1) % WAYS;
            }
        }
    }

    fn judge(&mut self, looked: usize) {
        self.looked += looked;
        self.missed += self.missing.len();
        if self.looked >= JUDGED {
            if self.missed * 3 > self.looked {
                self.pause = PAUSE;
            }
            (self.looked, self.missed) = (0, 0);
        }
    }
}

#[inline(always)]
fn place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.trailing_zeros())) as usize
}
