//! Hash → row, for one virtual node: open addressing, linear probing, eight bytes an entry.
//!
//! An entry holds sixteen bits of the hash above the row's 48-bit address; 0 is an empty entry. The
//! key itself is in the row only, so a lookup costs one cache line here and one in the row, and the
//! second is the one that the transaction needs anyway.

use crate::hash::tag_of;
use crate::memory::{Words, prefetch};
use crate::rows::RowAddress;

const ADDRESS_BITS: u32 = 48;
const CAPACITY_MIN: usize = 8;

/// The index of one virtual node.
pub struct Index {
    entries: Words,
    mask: u64,
    len: usize,
}

impl Index {
    /// Empty.
    pub fn new() -> Self {
        Index::with_capacity(CAPACITY_MIN)
    }

    fn with_capacity(capacity: usize) -> Self {
        Index { entries: Words::zeroed(capacity), mask: capacity as u64 - 1, len: 0 }
    }

    #[inline(always)]
    fn entry(&self, place: u64) -> u64 {
        // SAFETY: `place` is masked to the capacity. Entries change only under `&mut self`.
        unsafe { *self.entries.start().add((place & self.mask) as usize) }
    }

    /// Asks for the cache line of a hash's first entry.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.entries.start().wrapping_add((hash & self.mask) as usize).cast());
    }

    /// The row of the first entry where it bears the hash's tag, else 0: right nearly always, to be
    /// checked against the key.
    #[inline(always)]
    pub fn guess(&self, hash: u64) -> RowAddress {
        let entry = self.entry(hash);
        if entry >> ADDRESS_BITS == tag_of(hash) { entry & ((1 << ADDRESS_BITS) - 1) } else { 0 }
    }

    /// The row with this hash for which `is_key` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is_key: impl FnMut(RowAddress) -> bool) -> Option<RowAddress> {
        let mut place = hash;
        loop {
            let entry = self.entry(place);
            if entry == 0 {
                return None;
            }
            let address = entry & ((1 << ADDRESS_BITS) - 1);
            if entry >> ADDRESS_BITS == tag_of(hash) && is_key(address) {
                return Some(address);
            }
            place = place.wrapping_add(1);
        }
    }

    /// Adds a row that is not in it. `rehash` gives the hash of a row that is.
    pub fn insert(&mut self, hash: u64, address: RowAddress, rehash: impl Fn(RowAddress) -> u64) {
        assert!(address != 0 && address >> ADDRESS_BITS == 0, "row address {address:#x} does not fit an index entry");
        if (self.len + 1) * 4 > (self.mask as usize + 1) * 3 {
            self.grow(rehash);
        }
        self.place(hash, address);
    }

    fn place(&mut self, hash: u64, address: RowAddress) {
        let mut place = hash;
        while self.entry(place) != 0 {
            place = place.wrapping_add(1);
        }
        let entry = tag_of(hash) << ADDRESS_BITS | address;
        // SAFETY: masked to the capacity; `&mut self`.
        unsafe { *self.entries.start().add((place & self.mask) as usize) = entry };
        self.len += 1;
    }

    fn grow(&mut self, rehash: impl Fn(RowAddress) -> u64) {
        let rows: Vec<RowAddress> = self.rows().collect();
        *self = Index::with_capacity((self.mask as usize + 1) * 2);
        for address in rows {
            self.place(rehash(address), address);
        }
    }

    /// Empties it and adds these rows.
    pub fn rebuild(&mut self, rows: &[RowAddress], rehash: impl Fn(RowAddress) -> u64) {
        let capacity = (rows.len() * 4 / 3 + 1).next_power_of_two().max(CAPACITY_MIN);
        *self = Index::with_capacity(capacity);
        for &address in rows {
            self.place(rehash(address), address);
        }
    }

    /// All rows, in no useful order.
    pub fn rows(&self) -> impl Iterator<Item = RowAddress> + '_ {
        (0..=self.mask).map(|place| self.entry(place) & ((1 << ADDRESS_BITS) - 1)).filter(|&address| address != 0)
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.entries.len() * 8
    }
}
