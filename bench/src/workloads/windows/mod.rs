//! Windows over streams: Yahoo's benchmark, taxi rides, and queries of NEXMark, each with the loops that one would write
//! by hand over the same columns.
//!
//! Event times are milliseconds as ints, and do not fall. A loop keeps what is open and puts out what closes; it holds
//! groups by a hash map, and, where keys are small numbers, by an array as well. The faster of the two is the loop that
//! the engine is measured against.

mod bids;
mod groups;
mod highest;
mod hot_items;
mod query;
mod rides;
mod sessions;
mod views;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

pub use query::{Plain, Query, Shape};

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowWorkload {
    /// Yahoo's benchmark without its join: views by campaign, tumbling.
    Views,
    /// Taxi rides by region, tumbling (thesis, ch. 3).
    Rides,
    /// NEXMark q5, the counts: bids by auction, sliding by a fifth of the length.
    HotItems,
    /// NEXMark q7: the highest bid, tumbling.
    Highest,
    /// NEXMark q11: bids in sessions of bidders.
    Sessions,
}

/// All of them, by the names that the command line knows.
pub const WINDOW_WORKLOADS: [(&str, WindowWorkload); 5] = [
    ("ysb", WindowWorkload::Views),
    ("nyt", WindowWorkload::Rides),
    ("q5", WindowWorkload::HotItems),
    ("q7", WindowWorkload::Highest),
    ("q11", WindowWorkload::Sessions),
];

impl WindowWorkload {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        WINDOW_WORKLOADS.iter().find(|(_, workload)| *workload == self).expect("all are named").0
    }

    /// Groups and length (seconds) of the definition.
    pub fn defaults(self) -> (u64, i64) {
        match self {
            WindowWorkload::Views => (10_000, 10),
            WindowWorkload::Rides => (1_000, 2),
            WindowWorkload::HotItems => (10_000, 10),
            WindowWorkload::Highest => (10_000, 10),
            WindowWorkload::Sessions => (1_000, 10),
        }
    }

    /// Plan, events and loops.
    pub fn query(self, shape: &Shape) -> Query {
        match self {
            WindowWorkload::Views => views::query(shape),
            WindowWorkload::Rides => rides::query(shape),
            WindowWorkload::HotItems => hot_items::query(shape),
            WindowWorkload::Highest => highest::query(shape),
            WindowWorkload::Sessions => sessions::query(shape),
        }
    }
}

/// Reads columns: no program that needs them can be faster.
pub fn read(events: &RecordBatch, columns: &[usize]) -> u64 {
    let sum = |&number: &usize| {
        let column = events.column(number);
        match column.data_type() {
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                values.iter().fold(0, |sum: u64, value| sum.wrapping_add(value.to_bits()))
            }
            _ => {
                let values = column.as_primitive::<Int64Type>().values();
                values.iter().fold(0, |sum: u64, &value| sum.wrapping_add(value as u64))
            }
        }
    };
    columns.iter().map(sum).fold(0, u64::wrapping_add)
}
