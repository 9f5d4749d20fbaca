//! Hash → row, for one virtual node: buckets of one cache line, open addressing over buckets.
//!
//! A bucket holds six rows: eight 16-bit tags (two lanes stay empty), then six addresses. A lookup
//! reads one line here, compares all tags at once, and reads one line of the row, which holds the key
//! and which the transaction needs anyway. A full bucket overflows into the next, which it notes: a bucket that
//! never overflowed ends every search, and rows can be taken out one by one.

use crate::hash::tag_of;
use crate::memory::{Arena, Words, prefetch};
use crate::rows::RowAddress;

/// Rows of a bucket.
const LANES: usize = 6;
/// Words of a bucket.
const BUCKET_WORDS: usize = 8;
/// Bytes of a bucket.
const BUCKET_BYTES: usize = 8 * BUCKET_WORDS;
/// Words of tags before a bucket's addresses.
const TAG_WORDS: usize = 2;
/// Grow beyond this share of all lanes, in percent. Fuller buckets save memory and overflow more often,
/// and a lookup that goes on to a second bucket reads a second cache line.
const LOAD_PERCENT_MAX: usize = 85;
/// The lane that says, by a number that is no tag, that a row was put behind the bucket, as it was full.
const OVERFLOW_LANE: usize = 7;
const OVERFLOWED: u16 = 2;
/// Beyond that an index in which rows come and go is filled anew.
const OVERFLOWED_PERCENT_MAX: usize = 60;
/// How many rows ahead of the one that is hashed are asked for.
const AHEAD: usize = 16;

const _: () = assert!(TAG_WORDS + LANES == BUCKET_WORDS && BUCKET_BYTES == 64, "a bucket is a cache line");

/// The index of one virtual node.
pub struct Index {
    buckets: Words,
    /// How many buckets; the lower half of a hash says which, as a share of all.
    count: u64,
    len: usize,
    /// Buckets that have overflowed since it was filled.
    overflowed: usize,
}

impl Index {
    /// Empty.
    pub fn new(arena: &mut Arena) -> Self {
        Index::with_buckets(1, arena)
    }

    fn with_buckets(buckets: usize, arena: &mut Arena) -> Self {
        Index { buckets: arena.cut(buckets * BUCKET_WORDS), count: buckets as u64, len: 0, overflowed: 0 }
    }

    /// Takes the place of its former self, whose memory goes back.
    fn replace(&mut self, buckets: usize, arena: &mut Arena) {
        let old = std::mem::replace(self, Index::with_buckets(buckets, arena));
        // SAFETY: cut from the same arena; only the index knew it.
        unsafe { arena.give_back(old.buckets) };
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> *mut u64 {
        let bucket = (u64::from(hash as u32) * self.count) >> 32;
        self.buckets.start().wrapping_byte_add(bucket as usize * BUCKET_BYTES)
    }

    /// The bucket behind one.
    #[inline(always)]
    fn behind(&self, bucket: *mut u64) -> *mut u64 {
        let next = bucket.wrapping_add(BUCKET_WORDS);
        let end = self.buckets.start().wrapping_byte_add(self.count as usize * BUCKET_BYTES);
        if next == end { self.buckets.start() } else { next }
    }

    fn bucket_count(&self) -> usize {
        self.count as usize
    }

    /// Buckets for so many rows.
    fn buckets_for(rows: usize) -> usize {
        (rows * 100).div_ceil(LANES * LOAD_PERCENT_MAX).max(1)
    }

    /// Rows that it can have without more memory.
    pub fn capacity(&self) -> usize {
        self.bucket_count() * LANES * LOAD_PERCENT_MAX / 100
    }

    /// Where a hash is looked for first; asks for its cache line.
    #[inline(always)]
    pub fn ask(&self, hash: u64) -> Place {
        let bucket = self.bucket(hash);
        prefetch(bucket.cast());
        Place { bucket, tag: tag_of(hash) }
    }

    /// The row with this hash for which `is_key` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is_key: impl FnMut(RowAddress) -> bool) -> Option<RowAddress> {
        let home = self.bucket(hash);
        let mut bucket = home;
        loop {
            let mut lanes = matching_lanes(bucket, tag_of(hash));
            while lanes != 0 {
                // SAFETY: a lane with a tag is one of the six.
                let address = unsafe { *bucket.add(TAG_WORDS + lanes.trailing_zeros() as usize) };
                if is_key(address) {
                    return Some(address);
                }
                lanes &= lanes - 1;
            }
            let next = self.behind(bucket);
            // In the course of time all of them may have overflowed.
            if !has_overflowed(bucket) || next == home {
                return None;
            }
            bucket = next;
        }
    }

    /// Takes a row out that is in it.
    pub fn remove(&mut self, hash: u64, row: RowAddress) {
        let mut bucket = self.bucket(hash);
        loop {
            // SAFETY: the lanes of a bucket of this index; `&mut self`.
            unsafe {
                if let Some(lane) = (0..LANES).find(|&lane| *bucket.add(TAG_WORDS + lane) == row) {
                    bucket.cast::<u16>().add(lane).write(0);
                    bucket.add(TAG_WORDS + lane).write(0);
                    self.len -= 1;
                    return;
                }
            }
            assert!(has_overflowed(bucket), "only rows that are in an index are taken out");
            bucket = self.behind(bucket);
        }
    }

    /// Adds a row that is not in it. `rehash` gives the hash of a row that is.
    pub fn insert(&mut self, hash: u64, address: RowAddress, arena: &mut Arena, rehash: impl Fn(RowAddress) -> u64) {
        if (self.len + 1) * 100 > self.bucket_count() * LANES * LOAD_PERCENT_MAX {
            let rows: Vec<RowAddress> = self.rows().collect();
            self.replace(self.bucket_count() * 2, arena);
            rows.into_iter().for_each(|row| self.place(rehash(row), row));
        }
        self.place(hash, address);
    }

    fn place(&mut self, hash: u64, address: RowAddress) {
        let mut bucket = self.bucket(hash);
        while !has_room(bucket) {
            self.overflowed += usize::from(!has_overflowed(bucket));
            // SAFETY: the last of eight lanes; `&mut self`.
            unsafe { bucket.cast::<u16>().add(OVERFLOW_LANE).write(OVERFLOWED) };
            bucket = self.behind(bucket);
        }
        let lane = (matching_lanes(bucket, 0) & LANE_MASK).trailing_zeros() as usize;
        // SAFETY: a lane without tag is one of the six; `&mut self`.
        unsafe {
            bucket.cast::<u16>().add(lane).write(tag_of(hash));
            bucket.add(TAG_WORDS + lane).write(address);
        }
        self.len += 1;
    }

    /// Empties it and adds these rows.
    pub fn rebuild(&mut self, rows: &[RowAddress], arena: &mut Arena, rehash: impl Fn(RowAddress) -> u64) {
        self.replace(Index::buckets_for(rows.len()).next_power_of_two(), arena);
        self.fill(rows, rehash);
    }

    /// Fills it anew where rows that came and went have left searches that go on for nothing.
    pub fn settle(&mut self, rehash: impl Fn(RowAddress) -> u64) {
        if self.overflowed * 100 <= self.bucket_count() * OVERFLOWED_PERCENT_MAX {
            return;
        }
        let rows: Vec<RowAddress> = self.rows().collect();
        // SAFETY: the buckets are this index's own; `&mut self`.
        unsafe { self.buckets.start().write_bytes(0, self.bucket_count() * BUCKET_WORDS) };
        (self.len, self.overflowed) = (0, 0);
        self.fill(&rows, rehash);
    }

    /// Moves into another arena, with room for so many rows, or as many as it has.
    pub fn fit(&mut self, rows: usize, arena: &mut Arena, rehash: impl Fn(RowAddress) -> u64) {
        let all: Vec<RowAddress> = self.rows().collect();
        *self = Index::with_buckets(Index::buckets_for(rows.max(all.len())), arena);
        self.fill(&all, rehash);
    }

    fn fill(&mut self, rows: &[RowAddress], rehash: impl Fn(RowAddress) -> u64) {
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&ahead) = rows.get(i + AHEAD) {
                prefetch(ahead as *const u8);
            }
            self.place(rehash(row), row);
        }
    }

    /// All rows, in no useful order.
    pub fn rows(&self) -> impl Iterator<Item = RowAddress> + '_ {
        (0..self.bucket_count()).flat_map(move |b| {
            let bucket = self.buckets.start().wrapping_add(b * BUCKET_WORDS);
            // SAFETY: six lanes of a bucket; an address is 0 where there is no row.
            (0..LANES).map(move |lane| unsafe { *bucket.add(TAG_WORDS + lane) }).filter(|&address| address != 0)
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * 8
    }
}

static EMPTY: [u64; BUCKET_WORDS] = [0; BUCKET_WORDS];

/// Where a hash is looked for first.
#[derive(Clone, Copy)]
pub struct Place {
    bucket: *const u64,
    tag: u16,
}

impl Place {
    /// In a bucket without rows.
    pub const NOWHERE: Place = Place { bucket: EMPTY.as_ptr(), tag: 1 };

    /// The row in the bucket that bears the tag: right nearly always, to be checked against the key. Any
    /// of the bucket's rows, or 0, where none bears it. Asks for the cache line that the check will need:
    /// the row, else the next bucket.
    #[inline(always)]
    pub fn guess(&self) -> RowAddress {
        let lanes = matching_lanes(self.bucket, self.tag);
        let lane = (lanes | 1 << (LANES - 1)).trailing_zeros() as usize;
        // SAFETY: one of the six lanes.
        let row = unsafe { *self.bucket.add(TAG_WORDS + lane) };
        prefetch(if lanes == 0 { self.bucket.wrapping_add(BUCKET_WORDS).cast() } else { row as *const u8 });
        row
    }
}

const LANE_MASK: u32 = (1 << LANES) - 1;

/// A bit for each of eight lanes whose tag is `tag`. The last two lanes never have one.
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

/// Whether a row was put behind a bucket because it was full.
#[inline(always)]
fn has_overflowed(bucket: *const u64) -> bool {
    // SAFETY: the last of eight lanes of a bucket.
    unsafe { *bucket.cast::<u16>().add(OVERFLOW_LANE) == OVERFLOWED }
}

/// Whether a bucket has a lane without a row.
#[inline(always)]
fn has_room(bucket: *const u64) -> bool {
    matching_lanes(bucket, 0) & LANE_MASK != 0
}

#[cfg(test)]
mod tests;
