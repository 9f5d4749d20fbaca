//! Windows and queries over streams: Yahoo's benchmark, taxi rides, Linear Road, queries of NEXMark, and those of the thesis'
//! chapters 4 and 5, each with the loops that one would write by hand over the same columns.
//!
//! Event times are milliseconds as ints, and do not fall. A loop keeps what is open and puts out what closes; it holds
//! groups by a hash map, and, where keys are small numbers, by an array as well. The faster of the two is the loop that
//! the engine is measured against.

mod ads;
mod baselines;
mod counters;
mod groups;
mod linear_road;
mod machines;
mod nexmark;
mod query;
mod rides;
mod rows;
mod views;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::DataType;
use arrow_select::filter::filter_record_batch;

use super::input::Output;
pub use baselines::Baseline;
pub use query::{Plain, Query, Shape};

/// A named workload, with the knobs of its definition.
#[derive(Debug)]
pub struct WindowWorkload {
    /// The name on the command line.
    pub name: &'static str,
    /// Groups that an event may be of: see the workload.
    pub groups: u64,
    /// The length of windows, or the gap of sessions, in seconds; 0 where there are none.
    pub length: i64,
    /// Events in a second of event time.
    pub rate: u64,
    /// A flag: whether groups have the skew that is asked for. The others have their own.
    pub skews: bool,
    /// Plan, events and loops.
    pub query: fn(&Shape) -> Query,
    /// The baselines, where it is an aggregation in tumbling windows.
    pub parallel: Option<Parallel>,
}

/// A function that runs a baseline on a number of workers, and returns the output of each.
pub type Parallel = fn(&Shape, &RecordBatch, Baseline, usize) -> Vec<Output>;

const RATE: u64 = 100_000;

/// Returns a workload whose groups have the skew that is asked for.
const fn skewed(name: &'static str, groups: u64, length: i64, query: fn(&Shape) -> Query) -> WindowWorkload {
    WindowWorkload { name, groups, length, rate: RATE, skews: true, query, parallel: None }
}

/// Returns a query of NEXMark over persons, auctions and bids, of which `groups` auctions are open; 0 seconds without
/// windows.
const fn nexmark(name: &'static str, length: i64, query: fn(&Shape) -> Query) -> WindowWorkload {
    WindowWorkload { name, groups: 100, length, rate: RATE, skews: false, query, parallel: None }
}

/// Returns an aggregation in tumbling windows.
const fn tumbling(
    name: &'static str,
    groups: u64,
    length: i64,
    query: fn(&Shape) -> Query,
    parallel: Parallel,
) -> WindowWorkload {
    WindowWorkload { parallel: Some(parallel), ..skewed(name, groups, length, query) }
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// All of them.
pub static WINDOW_WORKLOADS: &[WindowWorkload] = &[
    tumbling("ysb", 10_000, 10, views::query, views::parallel),
    WindowWorkload { rate: 2_000, ..tumbling("ysb-10m", 10_000, 600, views::query, views::parallel) },
    skewed("ysb-join", 10_000, 10, ads::query),
    tumbling("nyt", 1_000, 2, rides::query, rides::parallel),
    WindowWorkload {
        rate: 5_000,
        ..tumbling("lrb-speeds", 2_000, 60, linear_road::speeds::query, linear_road::speeds::parallel)
    },
    WindowWorkload { rate: 5_000, ..skewed("lrb", 2_000, 60, linear_road::query) },
    nexmark("q0", 0, nexmark::stateless::copy),
    nexmark("q1", 0, nexmark::stateless::currency),
    nexmark("q2", 0, nexmark::stateless::selection),
    nexmark("q3", 0, nexmark::lookups::local_items),
    nexmark("q4", 0, nexmark::winning::by_category),
    skewed("q5", 10_000, 10, nexmark::hot_items::hottest),
    skewed("q5-counts", 10_000, 10, nexmark::hot_items::counts),
    nexmark("q6", 0, nexmark::winning::by_seller),
    tumbling("q7", 10_000, 10, nexmark::highest::query, nexmark::highest::parallel),
    nexmark("q8", 10, nexmark::new_sellers::query),
    nexmark("q9", 0, nexmark::winning::winning),
    skewed("q11", 1_000, 10, nexmark::sessions::query),
    nexmark("q13", 0, nexmark::lookups::side_input),
    nexmark("q15", DAY, nexmark::statistics::by_day),
    nexmark("q16", DAY, nexmark::statistics::by_channel),
    nexmark("q17", DAY, nexmark::statistics::by_auction),
    nexmark("q18", 0, nexmark::latest::last_bids),
    nexmark("q19", 0, nexmark::latest::highest_bids),
    nexmark("q20", 0, nexmark::lookups::expanded),
    WindowWorkload { rate: 20_000, ..skewed("nb7", 10_000, 60, nexmark::highest::by_auction) },
    WindowWorkload { rate: 50, ..nexmark("nb8", 12 * HOUR, nexmark::new_sellers::of_four_auctions) },
    nexmark("nb11", 10, nexmark::sessions::pairs),
    WindowWorkload { rate: 20_000, ..skewed("nbq5", 10_000, 60, nexmark::hot_items::aggregate) },
    skewed("cm", 10_000, 2, machines::query),
    skewed("ro", 1_000_000, 0, counters::query),
];

/// Returns the events that are not late: those whose time, the first column, is not below one before. In the order of
/// time already, they are as they are.
pub fn punctual(events: &RecordBatch) -> RecordBatch {
    let times = events.column(0).as_primitive::<Int64Type>().values();
    let mut greatest = i64::MIN;
    let is_punctual = |&time: &i64| {
        greatest = greatest.max(time);
        time == greatest
    };
    let chosen = BooleanArray::from(times.iter().map(is_punctual).collect::<Vec<bool>>());
    filter_record_batch(events, &chosen).expect("a choice for each row")
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
