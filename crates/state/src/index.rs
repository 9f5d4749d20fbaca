//! Hash → row, for one virtual node: buckets of one cache line, open addressing over buckets.
//!
//! A bucket holds six rows: eight 16-bit lanes, then six addresses. Six lanes hold tags; one marks the displaced
//! rows, and one counts the rows that overflowed. A lookup reads one line here, compares all tags at once, and reads
//! one line of the row, which holds the key and which the transaction needs anyway. A full bucket overflows into the
//! next, and counts the rows that did (Bronson and Shi, "Open-sourcing F14 for faster, more memory-efficient hash
//! tables", 2019). A bucket without overflow ends every search, even where rows are inserted and removed. Addresses
//! leave 16 bits of a word unused; these hold the leading bits of the part of the hash that chooses the bucket, so
//! that an index mostly grows without reading rows.

use crate::hash::tag_of;
use crate::memory::{Arena, Words, prefetch};
use crate::rows::RowAddress;
use crate::sync::Mutex;

/// Rows of a bucket.
const LANES: usize = 6;
/// Words of a bucket.
const BUCKET_WORDS: usize = 8;
/// Bytes of a bucket.
const BUCKET_BYTES: usize = 8 * BUCKET_WORDS;
/// Words of tags before a bucket's addresses.
const TAG_WORDS: usize = 2;
/// Grow beyond this share of all lanes, in percent. Fuller buckets save memory and overflow more often. A lookup that
/// continues in a second bucket reads a second cache line.
const LOAD_PERCENT_MAX: usize = 85;
/// The lane that marks the displaced rows: those that are not in their home bucket, where a search begins. It uses
/// the bits above the lowest, so that it never equals a tag.
const DISPLACED_LANE: usize = 6;
/// The lane that counts the rows that overflowed past this bucket because it was full.
const OVERFLOW_LANE: usize = 7;
/// Percentage of displaced rows up to which it is not worth moving them.
const DISPLACED_PERCENT_MAX: usize = 4;
/// The overflow count goes in steps of two, so that it never equals a tag, which is odd.
const OVERFLOW_STEP: u16 = 2;
/// Saturated: the overflow count is no longer known.
const OVERFLOW_MAX: u16 = u16::MAX - 1;
/// Prefetch distance while rows are hashed, in rows.
const AHEAD: usize = 16;
/// Bits of an address.
pub const ADDRESS_BITS: u32 = 48;
/// Bits of a hash stored beside an address: the leading bits of its lower half.
const HASH_BITS: u32 = u64::BITS - ADDRESS_BITS;

const _: () = assert!(TAG_WORDS + LANES == BUCKET_WORDS && BUCKET_BYTES == 64, "a bucket is a cache line");

/// The index of one virtual node.
pub struct Index {
    buckets: Words,
    /// Number of buckets. The lower half of a hash, scaled to this number, chooses the bucket.
    count: u64,
    len: usize,
    /// Rows that are not in their home bucket, where a search begins.
    displaced: usize,
}

impl Index {
    /// Makes an empty index.
    pub fn new(arena: &Mutex<Arena>) -> Self {
        Index::with_buckets(1, arena)
    }

    /// Returns a placeholder while the index itself is elsewhere. Nothing is found in it, and nothing is inserted.
    pub fn hollow() -> Self {
        Index { buckets: Words::none(), count: 0, len: 0, displaced: 0 }
    }

    fn with_buckets(buckets: usize, arena: &Mutex<Arena>) -> Self {
        Index { buckets: arena.lock().cut(buckets * BUCKET_WORDS), count: buckets as u64, len: 0, displaced: 0 }
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> *mut u64 {
        let bucket = (u64::from(hash as u32) * self.count) >> 32;
        self.buckets.start().wrapping_byte_add(bucket as usize * BUCKET_BYTES)
    }

    /// Returns the bucket after this one, in a ring.
    #[inline(always)]
    fn behind(&self, bucket: *mut u64) -> *mut u64 {
        let next = bucket.wrapping_add(BUCKET_WORDS);
        let end = self.buckets.start().wrapping_byte_add(self.count as usize * BUCKET_BYTES);
        if next == end { self.buckets.start() } else { next }
    }

    fn bucket_count(&self) -> usize {
        self.count as usize
    }

    /// Returns the number of buckets for this many rows.
    fn buckets_for(rows: usize) -> usize {
        (rows * 100).div_ceil(LANES * LOAD_PERCENT_MAX).max(1)
    }

    /// Returns the rows that it can hold without more memory.
    pub fn capacity(&self) -> usize {
        self.bucket_count() * LANES * LOAD_PERCENT_MAX / 100
    }

    /// Returns the place where a search for a hash begins. Prefetches its cache line.
    #[inline(always)]
    pub fn ask(&self, hash: u64) -> Place {
        let bucket = self.bucket(hash);
        prefetch(bucket.cast());
        Place { bucket, tag: tag_of(hash) }
    }

    /// Prefetches the line that finding or inserting a hash needs next: the row if its tag matches, or the bucket where
    /// the search continues. The home bucket should be in the cache.
    #[inline(always)]
    pub fn ask_further(&self, hash: u64) {
        let bucket = self.bucket(hash);
        let lanes = matching_lanes(bucket, tag_of(hash));
        if lanes != 0 {
            // SAFETY: a lane with a tag is one of the six.
            prefetch(address_of(unsafe { *bucket.add(TAG_WORDS + lanes.trailing_zeros() as usize) }) as *const u8);
        } else if !has_room(bucket) {
            prefetch(self.behind(bucket).cast());
        }
    }

    /// Returns the row with this hash for which `is_key` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is_key: impl FnMut(RowAddress) -> bool) -> Option<RowAddress> {
        let home = self.bucket(hash);
        let mut bucket = home;
        loop {
            let mut lanes = matching_lanes(bucket, tag_of(hash));
            while lanes != 0 {
                // SAFETY: a lane with a tag is one of the six.
                let address = address_of(unsafe { *bucket.add(TAG_WORDS + lanes.trailing_zeros() as usize) });
                if is_key(address) {
                    return Some(address);
                }
                lanes &= lanes - 1;
            }
            let next = self.behind(bucket);
            // Every bucket may have overflowed.
            if !has_overflowed(bucket) || next == home {
                return None;
            }
            bucket = next;
        }
    }

    /// Removes a row that is in the index.
    pub fn remove(&mut self, hash: u64, row: RowAddress) {
        let mut bucket = self.bucket(hash);
        loop {
            // SAFETY: the lanes of a bucket of this index; `&mut self`.
            unsafe {
                if let Some(lane) = (0..LANES).find(|&lane| address_of(*bucket.add(TAG_WORDS + lane)) == row) {
                    self.displaced -= usize::from(clear_lane(bucket, lane));
                    self.len -= 1;
                    return;
                }
            }
            assert!(has_overflowed(bucket), "only rows that are in an index are taken out");
            count_overflow(bucket, false);
            bucket = self.behind(bucket);
        }
    }

    /// Returns the row with this hash for which `is_key` holds, and whether it was inserted now. An inserted row comes
    /// from `make`. `rehash` returns the hash of a row that is in the index.
    #[inline]
    pub fn find_or_insert(
        &mut self,
        hash: u64,
        is_key: impl FnMut(RowAddress) -> bool,
        make: impl FnOnce() -> RowAddress,
        arena: &Mutex<Arena>,
        rehash: impl Fn(RowAddress) -> u64,
    ) -> (RowAddress, bool) {
        if self.is_full() {
            self.double(arena, rehash);
        }
        let home = self.bucket(hash);
        // If a bucket has no overflow, a search need not go beyond it.
        let may_be_there = matching_lanes(home, tag_of(hash)) != 0 || has_overflowed(home);
        if may_be_there && let Some(row) = self.find(hash, is_key) {
            return (row, false);
        }
        let row = make();
        self.put(home, tag_of(hash), word_of(hash, row));
        (row, true)
    }

    /// Inserts a row that is not in the index. `rehash` returns the hash of a row that is.
    pub fn insert(&mut self, hash: u64, address: RowAddress, arena: &Mutex<Arena>, rehash: impl Fn(RowAddress) -> u64) {
        if self.is_full() {
            self.double(arena, rehash);
        }
        self.place(hash, address);
    }

    /// Returns whether the next row needs more memory.
    #[inline(always)]
    fn is_full(&self) -> bool {
        (self.len + 1) * 100 > self.bucket_count() * LANES * LOAD_PERCENT_MAX
    }

    /// Doubles the buckets. The rows in their home bucket move to one of two buckets that no other row has reached
    /// yet, so that these are written without being read. Displaced rows follow afterwards.
    #[inline(never)]
    fn double(&mut self, arena: &Mutex<Arena>, rehash: impl Fn(RowAddress) -> u64) {
        let old = std::mem::replace(self, Index::with_buckets(self.bucket_count() * 2, arena));
        for (b, bucket) in old.buckets().enumerate() {
            let first = self.buckets.start().wrapping_add(2 * b * BUCKET_WORDS);
            let mut filled = [0; 2];
            for lane in lanes(taken_lanes(bucket) & !displaced_lanes(bucket)) {
                // SAFETY: the lane of a row.
                let (tag, word) = unsafe { taken(bucket, lane) };
                let home = self.home(word, &rehash);
                let lane = &mut filled[usize::from(home != first)];
                // SAFETY: at most six rows, and six lanes, of one of two buckets of this index; `&mut self`.
                unsafe { write_lane(home, *lane, tag, word) };
                *lane += 1;
            }
            self.len += filled[0] + filled[1];
        }
        for bucket in old.buckets() {
            for lane in lanes(displaced_lanes(bucket)) {
                // SAFETY: the lane of a row.
                let (tag, word) = unsafe { taken(bucket, lane) };
                self.put(self.home(word, &rehash), tag, word);
            }
        }
        // SAFETY: cut from the same arena; only the index knew it.
        unsafe { arena.lock().give_back(old.buckets) };
    }

    /// Returns the home bucket of the row in a lane. The hash bits stored in the lane mostly suffice to find it.
    #[inline(always)]
    fn home(&self, word: u64, rehash: impl Fn(RowAddress) -> u64) -> *mut u64 {
        let least = word >> ADDRESS_BITS << (u32::BITS - HASH_BITS);
        let most = least | u64::from(u32::MAX >> HASH_BITS);
        let home = self.bucket(least);
        if home == self.bucket(most) { home } else { self.bucket(rehash(address_of(word))) }
    }

    fn place(&mut self, hash: u64, address: RowAddress) {
        self.put(self.bucket(hash), tag_of(hash), word_of(hash, address));
    }

    #[inline(always)]
    fn put(&mut self, home: *mut u64, tag: u16, word: u64) {
        self.len += 1;
        let free = free_lanes(home);
        if free != 0 {
            // SAFETY: a lane without tag of a bucket of this index; `&mut self`.
            unsafe { write_lane(home, free.trailing_zeros() as usize, tag, word) };
            return;
        }
        let mut bucket = home;
        while !has_room(bucket) {
            count_overflow(bucket, true);
            bucket = self.behind(bucket);
        }
        put_in(bucket, tag, word, true);
        self.displaced += 1;
    }

    /// Moves displaced rows nearer to their home buckets, if there are many, as far as there is room now.
    pub fn settle(&mut self, rehash: impl Fn(RowAddress) -> u64) {
        if self.displaced * 100 <= self.len * DISPLACED_PERCENT_MAX {
            return;
        }
        let of = |bucket: *mut u64| lanes(displaced_lanes(bucket)).map(move |lane| (bucket, lane));
        let displaced: Vec<_> = self.buckets().flat_map(of).collect();
        for (bucket, lane) in displaced {
            // SAFETY: the lane of a row.
            let (tag, word) = unsafe { taken(bucket, lane) };
            let home = self.home(word, &rehash);
            let mut nearer = home;
            while nearer != bucket && !has_room(nearer) {
                nearer = self.behind(nearer);
            }
            if nearer == bucket {
                continue;
            }
            // SAFETY: the lane of a row; `&mut self`.
            unsafe { clear_lane(bucket, lane) };
            put_in(nearer, tag, word, nearer != home);
            self.displaced -= usize::from(nearer == home);
            while nearer != bucket {
                count_overflow(nearer, false);
                nearer = self.behind(nearer);
            }
        }
    }

    /// Empties the index and inserts these rows.
    pub fn rebuild(&mut self, rows: &[RowAddress], arena: &Mutex<Arena>, rehash: impl Fn(RowAddress) -> u64) {
        let buckets = Index::buckets_for(rows.len()).next_power_of_two();
        let old = std::mem::replace(self, Index::with_buckets(buckets, arena));
        // SAFETY: cut from the same arena; only the index knew it.
        unsafe { arena.lock().give_back(old.buckets) };
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&ahead) = rows.get(i + AHEAD) {
                prefetch(ahead as *const u8);
            }
            self.place(rehash(row), row);
        }
    }

    /// Moves into another arena, with room for this many rows, or for those it has if they are more.
    pub fn fit(&mut self, rows: usize, arena: &Mutex<Arena>, rehash: impl Fn(RowAddress) -> u64) {
        let old = std::mem::replace(self, Index::with_buckets(Index::buckets_for(rows.max(self.len)), arena));
        for bucket in old.buckets() {
            for lane in lanes(taken_lanes(bucket)) {
                // SAFETY: the lane of a row.
                let (tag, word) = unsafe { taken(bucket, lane) };
                self.put(self.home(word, &rehash), tag, word);
            }
        }
    }

    fn buckets(&self) -> impl Iterator<Item = *mut u64> + '_ {
        (0..self.bucket_count()).map(|b| self.buckets.start().wrapping_add(b * BUCKET_WORDS))
    }

    /// Returns all rows, in no useful order.
    pub fn rows(&self) -> impl Iterator<Item = RowAddress> + '_ {
        // SAFETY: the lanes of rows.
        let row = |bucket: *mut u64, lane| address_of(unsafe { taken(bucket, lane) }.1);
        self.buckets().flat_map(move |bucket| lanes(taken_lanes(bucket)).map(move |lane| row(bucket, lane)))
    }

    /// Returns all rows, one from each bucket before the second from any. Removing rows in this order leaves the
    /// buckets about equally full, and a new row mostly fits where one was just removed.
    pub fn rows_by_lane(&self) -> impl Iterator<Item = RowAddress> + '_ {
        (0..LANES).flat_map(move |lane| {
            let lane = self.buckets.start().wrapping_add(TAG_WORDS + lane);
            // SAFETY: a lane of each bucket; the address of an empty lane is 0.
            (0..self.bucket_count())
                .map(move |b| address_of(unsafe { *lane.wrapping_add(b * BUCKET_WORDS) }))
                .filter(|&row| row != 0)
        })
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * 8
    }
}

/// The entry in place of a row that may be in a bucket after this one. No row has this address.
pub const ELSEWHERE: RowAddress = 1;

static EMPTY: [u64; BUCKET_WORDS] = [0; BUCKET_WORDS];

/// The place where a search for a hash begins.
#[derive(Clone, Copy)]
pub struct Place {
    bucket: *const u64,
    tag: u16,
}

impl Place {
    /// A bucket without rows.
    pub const NOWHERE: Place = Place { bucket: EMPTY.as_ptr(), tag: 1 };

    /// Returns the row in the bucket whose tag matches: nearly always the right one, to be checked against the key. If
    /// no tag matches, any row of the bucket, or 0. If `MISSES` are frequent, it then says whether the row can exist: 0
    /// if not, [`ELSEWHERE`] if it may be in a bucket after this one. Prefetches the cache line that the check will
    /// need: the row, or the next bucket.
    #[inline(always)]
    pub fn guess<const MISSES: bool>(&self) -> RowAddress {
        let lanes = matching_lanes(self.bucket, self.tag);
        let lane = (lanes | 1 << (LANES - 1)).trailing_zeros() as usize;
        // SAFETY: one of the six lanes.
        let row = address_of(unsafe { *self.bucket.add(TAG_WORDS + lane) });
        let next = self.bucket.wrapping_add(BUCKET_WORDS);
        if !MISSES {
            prefetch(if lanes == 0 { next.cast() } else { row as *const u8 });
            return row;
        }
        let goes_on = has_overflowed(self.bucket);
        let beyond = if goes_on { next } else { self.bucket };
        prefetch(if lanes == 0 { beyond.cast() } else { row as *const u8 });
        if lanes != 0 { row } else { u64::from(goes_on) * ELSEWHERE }
    }
}

/// Returns the word of a lane: the row's address, and some bits of its hash.
#[inline(always)]
fn word_of(hash: u64, address: RowAddress) -> u64 {
    debug_assert!(address >> ADDRESS_BITS == 0, "an address of a process");
    address | u64::from(hash as u32 >> (u32::BITS - HASH_BITS)) << ADDRESS_BITS
}

/// Returns the address in a lane's word.
#[inline(always)]
fn address_of(word: u64) -> RowAddress {
    word & ((1 << ADDRESS_BITS) - 1)
}

const LANE_MASK: u32 = (1 << LANES) - 1;

/// Returns a bit for each of the eight lanes that equals `tag`. The last two lanes never equal a tag.
#[inline(always)]
fn matching_lanes(bucket: *const u64, tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a bucket begins with sixteen bytes of tags; SSE2 is part of the architecture.
    unsafe {
        use std::arch::x86_64::*;
        let tags = _mm_loadu_si128(bucket.cast());
        let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16));
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as above.
    (0..8).fold(0, |lanes, lane| lanes | (unsafe { *bucket.cast::<u16>().add(lane) == tag } as u32) << lane)
}

/// Returns whether a row overflowed past a bucket because it was full.
#[inline(always)]
fn has_overflowed(bucket: *const u64) -> bool {
    // SAFETY: the last of eight lanes of a bucket.
    unsafe { *bucket.cast::<u16>().add(OVERFLOW_LANE) != 0 }
}

/// Returns a bit for each lane of a bucket that holds a row.
#[inline(always)]
fn taken_lanes(bucket: *const u64) -> u32 {
    free_lanes(bucket) ^ LANE_MASK
}

/// Returns a bit for each lane of a bucket that holds a displaced row.
#[inline(always)]
fn displaced_lanes(bucket: *const u64) -> u32 {
    // SAFETY: one of the eight lanes of a bucket.
    u32::from(unsafe { *bucket.cast::<u16>().add(DISPLACED_LANE) } >> 1)
}

/// Returns the lanes of these bits.
#[inline(always)]
fn lanes(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (bits != 0).then_some(bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lane
    })
}

/// Puts a row into a bucket that has room. The index is `&mut`.
#[inline(always)]
fn put_in(bucket: *mut u64, tag: u16, word: u64, is_displaced: bool) {
    let lane = free_lanes(bucket).trailing_zeros() as usize;
    // SAFETY: a lane without tag is one of the six; no other thread has the index.
    unsafe {
        write_lane(bucket, lane, tag, word);
        *bucket.cast::<u16>().add(DISPLACED_LANE) |= u16::from(is_displaced) << (lane + 1);
    }
}

/// Fills a lane.
///
/// # Safety
/// It is one of the six of a bucket of an index that is `&mut`.
#[inline(always)]
unsafe fn write_lane(bucket: *mut u64, lane: usize, tag: u16, word: u64) {
    // SAFETY: by the caller.
    unsafe {
        bucket.cast::<u16>().add(lane).write(tag);
        bucket.add(TAG_WORDS + lane).write(word);
    }
}

/// Returns the tag and the word of a lane.
///
/// # Safety
/// It is one of the six of a bucket.
#[inline(always)]
unsafe fn taken(bucket: *const u64, lane: usize) -> (u16, u64) {
    // SAFETY: by the caller.
    unsafe { (*bucket.cast::<u16>().add(lane), *bucket.add(TAG_WORDS + lane)) }
}

/// Clears a lane; returns whether its row was displaced.
///
/// # Safety
/// `lane` is one of the six of a bucket of an index that is `&mut`.
unsafe fn clear_lane(bucket: *mut u64, lane: usize) -> bool {
    // SAFETY: by the caller.
    unsafe {
        let was_displaced = displaced_lanes(bucket) & 1 << lane != 0;
        write_lane(bucket, lane, 0, 0);
        *bucket.cast::<u16>().add(DISPLACED_LANE) &= !(2 << lane);
        was_displaced
    }
}

/// Counts a row that overflows past a bucket, or uncounts one that did and is removed. The index is `&mut`.
#[inline(always)]
fn count_overflow(bucket: *mut u64, more: bool) {
    // SAFETY: the last of eight lanes of a bucket, and no other thread has the index.
    let count = unsafe { &mut *bucket.cast::<u16>().add(OVERFLOW_LANE) };
    match more {
        _ if *count == OVERFLOW_MAX => {}
        true => *count += OVERFLOW_STEP,
        false => *count -= OVERFLOW_STEP,
    }
}

/// Returns whether a bucket has a lane without a row.
#[inline(always)]
fn has_room(bucket: *const u64) -> bool {
    free_lanes(bucket) != 0
}

/// Returns a bit for each lane of a bucket without a row.
#[inline(always)]
fn free_lanes(bucket: *const u64) -> u32 {
    matching_lanes(bucket, 0) & LANE_MASK
}

#[cfg(test)]
mod tests;
