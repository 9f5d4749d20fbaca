//! The accesses of the transactions of an epoch, or of a slice of it.
//!
//! Layout: compressed rows. `op_start[t]..op_start[t + 1]` are the slots of transaction `t`;
//! `rows[slot]` is the row accessed. A transaction may access nothing, and one row several times.

use std::ops::Range;

/// The identity of a row within an epoch: equal for two accesses exactly if they meet in one row.
///
/// Opaque: the graph only compares and hashes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    /// Returns a hash of the row: both halves of a 128-bit product, folded. Row identities are made by the engine
    /// (table and slot number), not by users, so it need not withstand an adversary, only regular strides.
    #[inline]
    pub fn hashed(self) -> u64 {
        let product = u128::from(self.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        (product >> 64) as u64 ^ product as u64
    }
}

/// The accesses of a slice of transactions in position order, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Accesses<'a> {
    op_start: &'a [u32],
    rows: &'a [RowId],
}

impl<'a> Accesses<'a> {
    /// Wraps the two arrays: `op_start` has one element more than there are transactions, begins
    /// with 0, does not decrease, and ends with the length of `rows`.
    ///
    /// # Panics
    ///
    /// If it does not begin or end so.
    pub fn new(op_start: &'a [u32], rows: &'a [RowId]) -> Self {
        assert_eq!(op_start.first(), Some(&0), "op_start begins with 0");
        assert_eq!(op_start.last().map(|&end| end as usize), Some(rows.len()), "op_start ends with the number of rows");
        debug_assert!(op_start.is_sorted(), "op_start does not decrease");
        Accesses { op_start, rows }
    }

    /// Returns the number of transactions.
    pub fn transactions(self) -> usize {
        self.op_start.len() - 1
    }

    /// Returns the first slot of each transaction, and the end.
    pub fn op_start(self) -> &'a [u32] {
        self.op_start
    }

    /// Returns the row of each slot.
    pub fn rows(self) -> &'a [RowId] {
        self.rows
    }

    /// Returns the rows that one transaction accesses, in the order it names them.
    pub fn rows_of(self, transaction: usize) -> &'a [RowId] {
        &self.rows[self.op_start[transaction] as usize..self.op_start[transaction + 1] as usize]
    }
}

/// The accesses of a slice of transactions, owned; cleared and filled again for each epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessBuffer {
    op_start: Vec<u32>,
    rows: Vec<RowId>,
}

impl Default for AccessBuffer {
    fn default() -> Self {
        AccessBuffer { op_start: vec![0], rows: Vec::new() }
    }
}

impl AccessBuffer {
    /// Makes a buffer without transactions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all transactions, keeps the memory.
    pub fn clear(&mut self) {
        self.op_start.truncate(1);
        self.rows.clear();
    }

    /// Adds the next transaction in position order.
    pub fn push(&mut self, rows: impl IntoIterator<Item = RowId>) {
        self.rows.extend(rows);
        self.op_start.push(u32::try_from(self.rows.len()).expect("the slots of an epoch are numbered by u32"));
    }

    /// Returns the number of accesses of all transactions.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no accesses.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the accesses, borrowed.
    pub fn accesses(&self) -> Accesses<'_> {
        Accesses::new(&self.op_start, &self.rows)
    }

    /// Copies a range of the transactions, to cut an epoch into slices.
    pub fn slice(&self, transactions: Range<usize>) -> AccessBuffer {
        let mut slice = AccessBuffer::new();
        for transaction in transactions {
            slice.push(self.accesses().rows_of(transaction).iter().copied());
        }
        slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Hash tables take the lower bits, partitions the upper ones.
    #[test]
    fn both_ends_of_a_hash_spread_regular_strides() {
        for stride in [0, 3, 12, 20, 32, 44].map(|shift| 1_u64 << shift) {
            let hashes: Vec<u64> = (0..1 << 12).map(|at| RowId(at * stride).hashed()).collect();
            for shift in [0, 52] {
                let ends: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 0xfff).collect();
                // Among this many random values 63 % would differ.
                assert!(ends.len() > (1 << 12) / 4, "stride {stride}, from bit {shift}: {} differ", ends.len());
            }
        }
    }

    #[test]
    fn a_buffer_counts_accesses_and_not_transactions() {
        let mut buffer = AccessBuffer::new();
        assert!(buffer.is_empty());
        [0, 2, 3].into_iter().for_each(|length| buffer.push((0..length).map(RowId)));
        assert_eq!((buffer.len(), buffer.accesses().transactions(), buffer.is_empty()), (5, 3, false));
        let slice = buffer.slice(1..3);
        assert_eq!((slice.len(), slice.accesses().rows_of(1)), (5, &[0, 1, 2].map(RowId)[..]));
    }
}
