//! The rows that responses hold until their clients have taken them, of both protocols.
//!
//! A copy of a table that several responses send is counted once: it is there once. What has less than [`SMALL_BYTES`] is
//! not counted.

use crate::shares::{Client, Share, Shares};
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The bytes of rows that are not worth counting: about those of a connection's buffers.
const SMALL_BYTES: usize = 1 << 16;

/// The memory of table copies that responses hold, all together.
pub struct Held {
    bytes: Shares,
    /// The copies of rows that are held, by the address of their first byte.
    copies: Mutex<HashMap<usize, Weak<Share>>>,
}

/// The memory that one response holds.
pub struct Holding(#[expect(dead_code, reason = "it is counted until it is dropped")] Vec<Arc<Share>>);

impl Held {
    /// Makes room for this number of bytes.
    pub fn new(bytes: Shares) -> Held {
        Held { bytes, copies: Mutex::default() }
    }

    /// Returns the bytes that are held.
    pub fn taken(&self) -> usize {
        self.bytes.taken()
    }

    /// Holds rows for a client; none if responses hold too much already.
    pub fn hold<'a>(&self, client: &Client, rows: impl IntoIterator<Item = &'a RecordBatch>) -> Option<Holding> {
        let mut holding = Vec::new();
        let mut copies = self.copies.lock();
        for batch in rows {
            let bytes = batch.get_array_memory_size();
            let Some(place) = place(batch).filter(|_| bytes >= SMALL_BYTES) else { continue };
            let there = copies.get(&place).and_then(Weak::upgrade);
            let share = match there.filter(|share| share.amount() >= bytes) {
                Some(share) => share,
                None => {
                    let share = Arc::new(self.bytes.take_some(client, bytes)?);
                    copies.retain(|_, share| share.strong_count() > 0);
                    copies.insert(place, Arc::downgrade(&share));
                    share
                }
            };
            holding.push(share);
        }
        Some(Holding(holding))
    }
}

/// Returns the address of a batch's first byte, slices of which begin there, too.
fn place(batch: &RecordBatch) -> Option<usize> {
    batch.columns().iter().find_map(|column| {
        let data = column.to_data();
        data.buffers().first().map(|buffer| buffer.data_ptr().as_ptr() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Who;
    use arrow_array::{Int64Array, RecordBatch};
    use tidemill_durability::Planted;

    fn batch(rows: usize) -> RecordBatch {
        let numbers: Int64Array = (0..rows as i64).collect();
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as arrow_array::ArrayRef)]).expect("a batch")
    }

    fn user(name: &str) -> Client {
        Client::http(Who::User(name.into()))
    }

    #[test]
    fn a_copy_counts_once_and_as_long_as_it_is_held() {
        let held = Held::new(Shares::bytes(1 << 20, Planted::default()));
        let copy = batch(50_000);
        let bytes = copy.get_array_memory_size();
        let one = held.hold(&user("ada"), [&copy]).expect("there is room");
        let two = held.hold(&user("bob"), [&copy.slice(10, 20)]).expect("it is the same copy");
        assert_eq!(held.taken(), bytes);
        drop(one);
        assert_eq!(held.taken(), bytes);
        drop(two);
        assert_eq!(held.taken(), 0);
        assert!(held.hold(&user("ada"), [&copy]).is_some());
    }

    #[test]
    fn there_is_an_end() {
        let held = Held::new(Shares::bytes(1 << 20, Planted::default()));
        let copies: Vec<RecordBatch> = (0..4).map(|_| batch(50_000)).collect();
        let holding: Vec<_> = copies.iter().map_while(|copy| held.hold(&user("ada"), [copy])).collect();
        assert_eq!(holding.len(), 2);
        // Another one has its part, and one row is nothing.
        assert!(held.hold(&user("bob"), [&copies[3]]).is_some());
        assert!(held.hold(&user("ada"), [&batch(1)]).is_some());
        drop(holding);
        assert!(held.hold(&user("ada"), [&copies[3]]).is_some());
    }
}
