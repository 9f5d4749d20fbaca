//! Key → row for small whole numbers: an array that the key itself is the place in.
//!
//! **What.** Keys given out in sequence (accounts, sensors, seats) need no hash. As a Lua table has an array
//! beside its hash part (Ierusalimschy, de Figueiredo, Celes, "The Implementation of Lua 5.0", 2005, §4), so
//! has a table of one-word keys: the array covers the keys below 2^k, with the largest k for which more than
//! half of these are there, if they are half of the table or more. All other keys are in the hash indexes.
//! **Invariant.** A key below the array's length is in the array or nowhere.
//! **Traded away.** Up to 16 bytes a row where half of the keys are missing, as much as an index takes. Where
//! many keys are beyond the array, each of them is looked for in vain first.

use crate::memory::{FAR, advise_huge, prefetch};
use crate::rows::RowAddress;
use crate::sync::{AtomicU64, Mutex, Ordering, value_of, zeroed};

/// How many keys ahead a large array is asked for.
const AHEAD: usize = 64;

/// The array part of a table. Rows may be set by one thread while others look for theirs.
pub struct Direct {
    /// By key, 0 where there is no row; one more that stays 0.
    rows: Vec<AtomicU64>,
    /// The table's keys, in the array or not.
    counts: Mutex<Counts>,
}

/// Keys by their number of bits; the last are those that are not of one word.
pub struct Counts([usize; 66]);

impl Default for Counts {
    fn default() -> Self {
        Counts([0; 66])
    }
}

impl Counts {
    /// Counts a key.
    #[inline]
    pub fn add(&mut self, word: Option<u64>) {
        self.0[word.map_or(65, bits_of)] += 1;
    }

    /// How many keys.
    pub fn all(&self) -> usize {
        self.0.iter().sum()
    }

    /// The largest length, of at least so many bits, that the keys below it justify.
    fn best(&self, bits: usize) -> Option<usize> {
        let words = &self.0[..65];
        let all: usize = words.iter().sum();
        // Of more keys than this no half can be there.
        let most = (2 * all).max(1).ilog2() as usize;
        let mut below: usize = words[..bits.min(most)].iter().sum();
        let mut best = None;
        for (bits, count) in words.iter().enumerate().take(most + 1).skip(bits) {
            below += count;
            if 2 * below > 1 << bits && 2 * below >= all {
                best = Some(1 << bits);
            }
        }
        best
    }
}

impl Direct {
    /// Covers nothing.
    pub fn new() -> Self {
        Direct { rows: zeroed(1), counts: Mutex::default() }
    }

    /// Keys below this are in the array or nowhere.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// The row of a key, 0 where the array has none.
    #[inline(always)]
    pub fn get(&self, key: u64) -> RowAddress {
        let place = key.min(self.len() as u64) as usize;
        // SAFETY: the last place, which is always there, is `len`.
        unsafe { self.rows.get_unchecked(place) }.load(Ordering::Acquire)
    }

    /// As [`Direct::get`] for many keys; the places of those without a row go to `missing`.
    pub fn look_up(&self, keys: impl Iterator<Item = u64> + Clone, out: &mut [RowAddress], missing: &mut Vec<usize>) {
        let mut ahead = keys.clone().skip(AHEAD);
        let far = self.rows.len() * 8 >= FAR;
        let mut found = true;
        for (key, out) in keys.clone().zip(out.iter_mut()) {
            if far && let Some(key) = ahead.next() {
                let place = key.min(self.len() as u64) as usize;
                prefetch(self.rows.as_ptr().wrapping_add(place).cast());
            }
            *out = self.get(key);
            found &= *out != 0;
        }
        if !found {
            missing.extend(out.iter().enumerate().filter(|(_, row)| **row == 0).map(|(i, _)| i));
        }
    }

    /// Counts keys that the table did not have, and says how long the array should become for them.
    pub fn count(&self, new: &Counts) -> Option<usize> {
        let counts = &mut self.counts.lock().0;
        counts.iter_mut().zip(&new.0).for_each(|(count, new)| *count += new);
        let is_beyond = |bits: &usize| new.0[*bits] > 0 && 1u128 << bits > self.len() as u128;
        let bits = (0..65).find(is_beyond)?;
        Counts(*counts).best(bits)
    }

    /// Counts a key that the table has no longer.
    pub fn discount(&mut self, key: u64) {
        self.counts.get_mut().0[bits_of(key)] -= 1;
    }

    /// Makes it cover the keys below `len`, more than now.
    pub fn grow(&mut self, len: usize) {
        let mut rows = zeroed(len + 1);
        advise_huge(&mut rows);
        rows.iter_mut().zip(&mut self.rows).for_each(|(new, old)| *new = AtomicU64::new(value_of(old)));
        self.rows = rows;
    }

    /// Where far fewer keys are left than it covers: makes it fit them, and returns the rows beyond.
    pub fn shrink(&mut self) -> Vec<RowAddress> {
        let len = self.counts.get_mut().best(0).unwrap_or(0);
        if 4 * len > self.len() {
            return Vec::new();
        }
        let beyond = self.rows[len..].iter_mut().map(value_of).filter(|&row| row != 0).collect();
        self.rows.truncate(len);
        self.rows.push(AtomicU64::new(0));
        self.rows.shrink_to_fit();
        beyond
    }

    /// Sets the row of a key below the length.
    pub fn set(&self, key: u64, row: RowAddress) {
        self.rows[key as usize].store(row, Ordering::Release);
    }

    /// The keys that have a row, with it.
    pub fn entries(&self) -> impl Iterator<Item = (u64, RowAddress)> + '_ {
        self.rows.iter().zip(0..).map(|(row, key)| (key, row.load(Ordering::Acquire))).filter(|(_, row)| *row != 0)
    }

    /// Bytes held, of which those without keys near them are the system's.
    pub fn bytes(&self) -> usize {
        self.rows.len() * 8
    }
}

/// Bits that a key takes: it is below 2 to the power of these, and not below the power before.
fn bits_of(key: u64) -> usize {
    (u64::BITS - key.leading_zeros()) as usize
}
