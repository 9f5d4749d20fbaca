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

/// How many keys ahead a large array is asked for.
const AHEAD: usize = 64;

/// The array part of a table.
pub struct Direct {
    /// By key, 0 where there is no row; one more that stays 0.
    rows: Vec<RowAddress>,
    /// The table's keys by their number of bits, in the array or not.
    counts: [usize; 65],
}

impl Direct {
    /// Covers nothing.
    pub fn new() -> Self {
        Direct { rows: vec![0], counts: [0; 65] }
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
        unsafe { *self.rows.get_unchecked(place) }
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

    /// Counts a key that the table did not have, and says how long the array should become for it.
    pub fn count(&mut self, key: u64) -> Option<usize> {
        let bits = bits_of(key);
        self.counts[bits] += 1;
        if key < self.len() as u64 { None } else { self.best(bits) }
    }

    /// Counts a key that the table has no longer.
    pub fn discount(&mut self, key: u64) {
        self.counts[bits_of(key)] -= 1;
    }

    /// The largest length, of at least so many bits, that the keys below it justify.
    fn best(&self, bits: usize) -> Option<usize> {
        let all: usize = self.counts.iter().sum();
        // Of more keys than this no half can be there.
        let most = (2 * all).max(1).ilog2() as usize;
        let mut below: usize = self.counts[..bits.min(most)].iter().sum();
        let mut best = None;
        for bits in bits..=most {
            below += self.counts[bits];
            if 2 * below > 1 << bits && 2 * below >= all {
                best = Some(1 << bits);
            }
        }
        best
    }

    /// Makes it cover the keys below `len`, more than now.
    pub fn grow(&mut self, len: usize) {
        // Zeroed pages of the system: what no key falls on is never touched.
        let mut rows = vec![0; len + 1];
        advise_huge(&mut rows);
        rows[..self.len()].copy_from_slice(&self.rows[..self.len()]);
        self.rows = rows;
    }

    /// Where far fewer keys are left than it covers: makes it fit them, and returns the rows beyond.
    pub fn shrink(&mut self) -> Vec<RowAddress> {
        let len = self.best(0).unwrap_or(0);
        if 4 * len > self.len() {
            return Vec::new();
        }
        let beyond = self.rows[len..].iter().copied().filter(|&row| row != 0).collect();
        self.rows.truncate(len);
        self.rows.push(0);
        self.rows.shrink_to_fit();
        beyond
    }

    /// Sets the row of a key below the length.
    pub fn set(&mut self, key: u64, row: RowAddress) {
        self.rows[key as usize] = row;
    }

    /// The keys that have a row, with it.
    pub fn entries(&self) -> impl Iterator<Item = (u64, RowAddress)> + '_ {
        self.rows.iter().enumerate().map(|(key, &row)| (key as u64, row)).filter(|(_, row)| *row != 0)
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
