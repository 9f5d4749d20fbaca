//! Seeded random epochs, for the tests and benchmarks of this crate and of those that schedule.

use crate::access::{AccessBuffer, RowId};

/// A small generator of numbers (SplitMix64: Steele, Lea, Flood 2014); the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks from 0 with probability proportional to `1 / (rank + 1)^theta`; uniform at 0.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Over `ranks` ranks, at least one.
    pub fn new(ranks: usize, theta: f64) -> Self {
        let mut total = 0.0;
        let add = |rank| {
            total += f64::powf(rank as f64, -theta);
            total
        };
        Zipf { cumulative: (1..=ranks).map(add).collect() }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u64 {
        self.cumulative.len() as u64
    }

    /// One rank.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let total = self.cumulative.last().expect("at least one rank");
        let point = random.unit() * total;
        self.cumulative.partition_point(|&up_to| up_to <= point) as u64
    }
}

/// Streaming Ledger (TStream §VI): half the transactions are deposits to an account and an asset,
/// half transfers from one pair to another. Rows are numbered below twice the number of ranks, accounts even,
/// assets odd.
pub fn ledger(random: &mut Random, transactions: usize, rows: &Zipf) -> AccessBuffer {
    let mut epoch = AccessBuffer::new();
    for transaction in 0..transactions {
        // The popular ranks scattered, as a hash index scatters rows; a prime factor keeps them apart.
        let mut row = |table| RowId(rows.rank(random) * 0x9e37_79b1 % rows.ranks() * 2 + table);
        if transaction % 2 == 0 {
            epoch.push([row(0), row(1)]);
        } else {
            epoch.push([row(0), row(1), row(0), row(1)]);
        }
    }
    epoch
}

/// An epoch of at most so many transactions with whatever is unpleasant: transactions without rows,
/// repeated rows, long lists, one hot row, rows that few or many share.
pub fn mixed(random: &mut Random, transactions_max: usize) -> AccessBuffer {
    let transactions = random.below(transactions_max as u64 + 1);
    let scale = random.below(12);
    let rows = 1 + random.below(1 << scale);
    let hot = random.below(3) == 0;
    let length_max = [2, 5, 20][random.below(3) as usize];
    let mut epoch = AccessBuffer::new();
    for _ in 0..transactions {
        let length = random.below(length_max + 1);
        let rows = (0..length).map(|_| {
            let spread = if hot && random.below(2) == 0 { 1 } else { rows };
            RowId(random.below(spread) << 20)
        });
        epoch.push(rows);
    }
    epoch
}
