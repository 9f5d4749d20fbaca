//! Who owns a row (shared-nothing; TStream 2020, §IV-E).
//!
//! **What.** A row's owner follows from a hash of where the row is, so it is the same in each epoch. A unit belongs to
//! the owner of the first row that it touches.
//! **Cost.** A pass over the accesses, and 4 bytes for each.

use tidemill_txn::Accesses;

/// The owners of an epoch's rows. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By slot, a number of the owner of its row, the same among any number of owners.
    of_slot: Vec<u32>,
}

impl Owners {
    /// Finds the owners of these rows.
    pub fn find(&mut self, accesses: Accesses<'_>) {
        self.of_slot.clear();
        self.of_slot.extend(accesses.rows().iter().map(|row| row.hashed() as u32));
    }

    /// The owner, one of `count`, of the row of a slot.
    #[inline]
    pub fn of(&self, slot: u32, count: u32) -> u32 {
        self.of_slot[slot as usize] % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_txn::{AccessBuffer, RowId};

    /// Whatever else is in the epoch, and in whatever order.
    #[test]
    fn a_row_has_the_same_owner_in_each_epoch() {
        let owners = |rows: &[u64], count: u32| -> Vec<(u64, u32)> {
            let mut epoch = AccessBuffer::new();
            rows.iter().for_each(|&row| epoch.push([RowId(row << 6)]));
            let mut owners = Owners::default();
            owners.find(epoch.accesses());
            (0..).zip(rows).map(|(slot, &row)| (row, owners.of(slot, count))).collect()
        };
        for count in [1, 2, 3, 5] {
            let rows: Vec<u64> = (0..300).map(|t| t % 60).collect();
            let first = owners(&rows, count);
            let second = owners(&rows.iter().rev().copied().chain(60..90).collect::<Vec<_>>(), count);
            for (row, owner) in &first {
                assert!(second.iter().filter(|other| other.0 == *row).all(|other| other.1 == *owner), "row {row}");
            }
            assert!((0..count).all(|owner| first.iter().any(|of| of.1 == owner)), "one of {count} has no row of 60");
        }
    }
}
