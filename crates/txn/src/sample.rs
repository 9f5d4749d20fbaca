//! Seeded random epochs, for the tests and benchmarks of this crate and of those that schedule.

use crate::access::{AccessBuffer, RowId};

pub use tidemill_random::{Random, Zipf};

/// Returns an epoch of Streaming Ledger (TStream §VI): half the transactions are deposits to an account and an asset,
/// half transfers from one pair to another. Rows are numbered below twice the number of ranks, accounts even, assets
/// odd.
pub fn ledger(random: &mut Random, transactions: usize, rows: &Zipf) -> AccessBuffer {
    let mut epoch = AccessBuffer::new();
    for transaction in 0..transactions {
        // Scatters the popular ranks, as a hash index scatters rows; a prime factor keeps them distinct.
        let mut row = |table| RowId(rows.rank(|| random.unit()) * 0x9e37_79b1 % rows.count() * 2 + table);
        if transaction % 2 == 0 {
            epoch.push([row(0), row(1)]);
        } else {
            epoch.push([row(0), row(1), row(0), row(1)]);
        }
    }
    epoch
}

/// Returns an epoch of at most this many transactions with awkward shapes: transactions without rows, repeated rows,
/// long lists, one hot row, rows that few or many transactions share.
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
