//! Tests of the index alone, with chosen hashes, and numbers as addresses.

use super::*;
use std::collections::BTreeMap;

/// An index over made-up rows: their addresses map to their hashes and serve as their keys.
struct Made {
    index: Index,
    arena: Mutex<Arena>,
    hashes: BTreeMap<RowAddress, u64>,
}

impl Made {
    fn new() -> Self {
        let arena = Mutex::<Arena>::default();
        Made { index: Index::new(&arena), arena, hashes: BTreeMap::new() }
    }

    /// Makes an index and moves it to another arena, with room for this many rows.
    fn with_room(rows: usize) -> Self {
        let mut made = Made::new();
        let arena = Mutex::<Arena>::default();
        made.index.fit(rows, &arena, |_| 0);
        made.arena = arena;
        made
    }

    fn insert(&mut self, hash: u64, row: RowAddress) {
        self.hashes.insert(row, hash);
        assert_eq!(self.find_or_insert(hash, row), (row, true));
    }

    fn find_or_insert(&mut self, hash: u64, row: RowAddress) -> (RowAddress, bool) {
        let Made { index, arena, hashes } = self;
        index.find_or_insert(hash, |candidate| candidate == row, || row, arena, |row| hashes[&row])
    }

    fn find(&self, hash: u64, row: RowAddress) -> Option<RowAddress> {
        self.index.find(hash, |candidate| candidate == row)
    }

    /// Checks that every row is found, by `find`, by `find_or_insert`, and by `guess` as far as it says anything; and
    /// no other rows.
    fn check(&mut self) {
        for (row, hash) in self.hashes.clone() {
            assert_eq!(self.find(hash, row), Some(row));
            assert_eq!(self.find_or_insert(hash, row), (row, false));
            let guess = self.index.ask(hash).guess::<false>();
            assert!(guess == 0 || self.hashes.contains_key(&guess), "a guess is a row of the index");
            let sure = self.index.ask(hash).guess::<true>();
            assert_ne!(sure, 0, "a row that is there may be there");
            assert!(sure == ELSEWHERE || tag_of(self.hashes[&sure]) == tag_of(hash), "a guess bears the tag");
        }
        let mut rows: Vec<RowAddress> = self.index.rows().collect();
        rows.sort_unstable();
        assert!(rows.iter().eq(self.hashes.keys()), "every row is in it once");
        let mut by_lane: Vec<RowAddress> = self.index.rows_by_lane().collect();
        by_lane.sort_unstable();
        assert_eq!(rows, by_lane);
        assert_eq!(self.find(0x1234_5678_9abc_def0, 1 << 40), None);
    }
}

/// Every way in which two hashes can agree: node, tag, bucket, all of it.
fn hash(tag: u64, place: u64) -> u64 {
    tag << 40 | place
}

#[test]
fn grows_and_keeps_all_rows() {
    let mut made = Made::new();
    let mut bytes = made.index.bytes();
    for row in 1..=5_000 {
        made.insert(crate::hash_word(row), row);
        if made.index.bytes() > bytes {
            bytes = made.index.bytes();
            made.check();
        }
    }
    made.check();
    assert!(bytes >= 5_000 * 64 / 6, "six rows to a line at most");
}

#[test]
fn rows_of_one_tag_and_bucket_are_told_apart_by_their_keys() {
    let mut made = Made::new();
    (1..=40).for_each(|row| made.insert(hash(7, 3), row));
    made.check();
    assert_eq!(made.find(hash(7, 3), 41), None);
}

#[test]
fn a_full_bucket_overflows_into_the_next_and_around_the_end() {
    let mut made = Made::new();
    // All hash to the last bucket, at any size.
    (1..=40).for_each(|row| made.insert(hash(2 * row, u32::MAX as u64), row));
    made.check();
    let guessed =
        (1..=40).filter(|&row| made.index.ask(hash(2 * row, u32::MAX as u64)).guess::<false>() == row).count();
    assert_eq!(guessed, LANES, "as many as there is room for are in their own bucket");
}

#[test]
fn every_lane_of_a_bucket_can_be_found() {
    let mut made = Made::new();
    (1..=LANES as u64).for_each(|row| made.insert(hash(row * 2, 0), row));
    for row in 1..=LANES as u64 {
        assert_eq!(made.index.ask(hash(row * 2, 0)).guess::<false>(), row);
    }
}

#[test]
fn a_rebuild_keeps_exactly_the_rows_given() {
    for kept in [0, 1, 5, 6, 11, 700] {
        let mut made = Made::new();
        (1..=1_000).for_each(|row| made.insert(crate::hash_word(row), row));
        let rows: Vec<RowAddress> = (1..=kept).collect();
        let hashes = made.hashes.clone();
        made.index.rebuild(&rows, &made.arena, |row| hashes[&row]);
        made.hashes.retain(|&row, _| row <= kept);
        made.check();
        // The index can still grow afterwards.
        (2_000..3_000).for_each(|row| made.insert(crate::hash_word(row), row));
        made.check();
    }
}

#[test]
fn rows_are_taken_out_one_by_one() {
    for same_bucket in [false, true] {
        let mut made = Made::new();
        let hash_of = |row: u64| if same_bucket { hash(2 * row, 3) } else { crate::hash_word(row) };
        for round in 0..20 {
            (0..200).map(|i| 1 + round * 200 + i).for_each(|row| made.insert(hash_of(row), row));
            let gone: Vec<_> =
                made.hashes.iter().map(|(&row, &hash)| (row, hash)).filter(|(row, _)| row % 3 > 0).collect();
            for (row, hash) in gone {
                made.index.remove(hash, row);
                made.hashes.remove(&row);
                assert_eq!(made.find(hash, row), None);
            }
            made.check();
            if round % 2 == 0 {
                let hashes = made.hashes.clone();
                made.index.settle(|row| hashes[&row]);
                made.check();
            }
        }
        let (hashes, arena) = (made.hashes.clone(), Mutex::<Arena>::default());
        made.index.fit(1_000 * same_bucket as usize, &arena, |row| hashes[&row]);
        made.arena = arena;
        assert!(made.index.capacity() >= made.hashes.len().max(1_000 * same_bucket as usize));
        made.check();
        (10_000..12_000).for_each(|row| made.insert(crate::hash_word(row), row));
        made.check();
    }
}

#[test]
fn buckets_that_rows_have_left_end_searches_again() {
    let mut made = Made::new();
    (1..=600).for_each(|row| made.insert(hash(2 * row, row % 7), row));
    let overflowed = |made: &Made| {
        let buckets = (0..made.index.bucket_count()).map(|b| made.index.buckets.start().wrapping_add(b * BUCKET_WORDS));
        buckets.filter(|&bucket| has_overflowed(bucket)).count()
    };
    assert!(overflowed(&made) > 50);
    for (row, hash) in std::mem::take(&mut made.hashes) {
        made.index.remove(hash, row);
    }
    assert_eq!(overflowed(&made), 0);
}

#[test]
fn memory_of_former_indexes_is_cut_again() {
    let mut made = Made::new();
    (1..=3_000).for_each(|row| made.insert(crate::hash_word(row), row));
    let words = made.arena.lock().cut(64);
    // SAFETY: 64 words that were just cut, and that no other thread knows.
    let dirty = unsafe { std::slice::from_raw_parts_mut(words.start(), 64) };
    assert!(dirty.iter().all(|&word| word == 0), "what was given back is zeroed when it is cut again");
    dirty.fill(u64::MAX);
    let first = words.start();
    // SAFETY: cut from this arena; not used any more.
    unsafe { made.arena.lock().give_back(words) };
    let again = made.arena.lock().cut(64);
    assert_eq!(again.start(), first);
    // SAFETY: as above.
    assert!(unsafe { std::slice::from_raw_parts(again.start(), 64) }.iter().all(|&word| word == 0));
    made.check();
}

#[test]
fn searches_stay_short_where_rows_come_and_go() {
    let mut made = Made::with_room(4_000);
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random ^ random >> 33
    };
    let capacity = made.index.capacity();
    let mut row = 0;
    for round in 0..30 {
        while made.hashes.len() < 3_500 {
            row += 1;
            made.insert(next(), row);
        }
        let probes = |hash: u64| {
            let home = made.index.bucket(hash);
            let chain = std::iter::successors(Some(home), |&b| has_overflowed(b).then(|| made.index.behind(b)));
            chain.count()
        };
        let all: usize = (0..2_000).map(|_| probes(next())).sum();
        assert!(all < 2 * 2_000, "{all} buckets looked at for 2,000 keys in round {round}");
        let gone: Vec<_> = made.hashes.iter().map(|(&row, &hash)| (row, hash)).filter(|_| next() % 5 == 0).collect();
        for (row, hash) in gone {
            made.index.remove(hash, row);
            made.hashes.remove(&row);
        }
        let hashes = made.hashes.clone();
        made.index.settle(|row| hashes[&row]);
        made.check();
    }
    assert_eq!(made.index.capacity(), capacity, "it did not grow");
}

#[test]
fn buckets_stay_even_where_a_hand_takes_rows_out() {
    let mut made = Made::with_room(5_400);
    let (mut row, mut hand) = (0, 0);
    for round in 0..40 {
        while made.hashes.len() < 4_000 {
            row += 1;
            made.insert(crate::hash_word(row), row);
        }
        let buckets = made.index.bucket_count();
        let mut probes = 0;
        for key in 0..10_000 {
            let home = made.index.bucket(crate::hash_word(u64::MAX - key));
            probes += std::iter::successors(Some(home), |&b| has_overflowed(b).then(|| made.index.behind(b))).count();
        }
        // If rows are spread evenly over buckets, a tenth of the buckets overflow, at both ends alike.
        assert!(probes < 12_500, "{probes} buckets of {buckets} looked at for 10,000 keys in round {round}");
        // Every second row is spared.
        let rows: Vec<RowAddress> = made.index.rows_by_lane().collect();
        let gone: Vec<RowAddress> =
            (0..1_600).map(|i| rows[(hand + i) % rows.len()]).filter(|row| row % 2 == 0).collect();
        hand = (hand + 1_600 - gone.len()) % rows.len();
        for row in gone {
            made.index.remove(made.hashes[&row], row);
            made.hashes.remove(&row);
        }
    }
}
