//! Key → row for small whole numbers: an array indexed by the key itself.
//!
//! **What.** Keys given out in sequence (accounts, sensors, seats) need no hash. A Lua table has an array beside its
//! hash part (Ierusalimschy, de Figueiredo, Celes, "The Implementation of Lua 5.0", 2005, §4), and so has a table of
//! one-word keys: the array covers the keys below 2^k, with the largest k for which more than half of these keys
//! exist, if they are at least half of the table. All other keys are in the hash indexes.
//! **Invariant.** A key below the array's length is in the array or nowhere.
//! **Traded away.** Up to 16 bytes a row where half of the keys are missing, as much as an index takes. Where many
//! keys are beyond the array, each lookup of one first misses in the array.

use crate::memory::{FAR, advise_huge, prefetch};
use crate::rows::RowAddress;
use crate::sync::{AtomicU64, Mutex, Ordering, value_of, zeroed};

/// Prefetch distance in a large array, in keys.
const AHEAD: usize = 64;

/// The array part of a table. One thread may set rows while others look theirs up.
pub struct Direct {
    /// The row of each key, by key; 0 where there is no row.
    rows: Vec<AtomicU64>,
    /// Counts of the table's keys, whether they are in the array or not.
    counts: Mutex<Counts>,
}

/// Keys by their number of bits; the last entry counts keys that are not one word.
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

    /// Returns the number of keys.
    pub fn all(&self) -> usize {
        self.0.iter().sum()
    }

    /// Returns the largest length, 2 to the power of `bits` or more, that the number of keys below it justifies.
    fn best(&self, bits: usize) -> Option<usize> {
        let words = &self.0[..65];
        let all: usize = words.iter().sum();
        // The keys cannot fill half of a longer array.
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
    /// Makes an array that covers nothing.
    pub fn new() -> Self {
        Direct { rows: zeroed(1), counts: Mutex::default() }
    }

    /// Returns the length of the array: keys below it are in the array or nowhere.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Returns the row of a key, 0 where the array has none.
    #[inline(always)]
    pub fn get(&self, key: u64) -> RowAddress {
        let place = key.min(self.len() as u64) as usize;
        // SAFETY: the last index is `len`, and always exists.
        unsafe { self.rows.get_unchecked(place) }.load(Ordering::Acquire)
    }

    /// Looks up many keys as [`Direct::get`] does; the places of keys without a row go to `missing`.
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

    /// Counts keys that are new in the table; returns the length to which the array should grow for them, if any.
    pub fn count(&self, new: &Counts) -> Option<usize> {
        let counts = &mut self.counts.lock().0;
        counts.iter_mut().zip(&new.0).for_each(|(count, new)| *count += new);
        let is_beyond = |bits: &usize| new.0[*bits] > 0 && 1u128 << bits > self.len() as u128;
        let bits = (0..65).find(is_beyond)?;
        Counts(*counts).best(bits)
    }

    /// Uncounts a key that the table no longer has.
    pub fn discount(&mut self, key: u64) {
        self.counts.get_mut().0[bits_of(key)] -= 1;
    }

    /// Grows the array to cover the keys below `len`, which is more than now.
    pub fn grow(&mut self, len: usize) {
        let mut rows = zeroed(len + 1);
        advise_huge(&mut rows);
        rows.iter_mut().zip(&mut self.rows).for_each(|(new, old)| *new = AtomicU64::new(value_of(old)));
        self.rows = rows;
    }

    /// Shrinks the array if far fewer keys are left than it covers; returns the rows that it no longer covers.
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

    /// Returns the keys that have a row, with the row.
    pub fn entries(&self) -> impl Iterator<Item = (u64, RowAddress)> + '_ {
        self.rows.iter().zip(0..).map(|(row, key)| (key, row.load(Ordering::Acquire))).filter(|(_, row)| *row != 0)
    }

    /// Returns the bytes held. Pages without keys are mostly untouched, so the system does not back them.
    pub fn bytes(&self) -> usize {
        self.rows.len() * 8
    }
}

/// Returns the number of bits of a key: the key is below 2 to this power, and not below the power before.
fn bits_of(key: u64) -> usize {
    (u64::BITS - key.leading_zeros()) as usize
}
