//! Three ways to aggregate a stream by group in tumbling windows on several workers, as the thesis writes them by hand
//! (§3.3.2, §3.3.3, §3.4.1.2). They are here to be measured beside the engine, which uses nothing of them.
//!
//! - [`Up`](Baseline::Up): operators of an interpreted pipeline hand over tuples one by one; the last one partitions them
//!   by the hash of the group into buffers, which go through bounded lock-free queues to the thread that owns the group.
//! - [`Late`](Baseline::Late): one loop, with a table of its own for each worker. The tables of a window are merged once,
//!   when it ends.
//! - [`Global`](Baseline::Global): one loop, and one table for all workers, which add to it by atomic instructions.
//!
//! Groups are in hash tables with open addressing. A worker sees that a window ends by an event of a later one, and goes on
//! in another buffer meanwhile. Unlike in the thesis, the workers do not have shares of the stream that were cut
//! beforehand: they take blocks in turn, so none waits for one that is slower. Rows are in the order of windows for each
//! worker, and in any order within a window.

mod fused;
mod local;
mod part;
mod partitioned;
mod ring;
mod shared;

use super::rows::Rows;
use crate::workloads::input::Output;
use clap::ValueEnum;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use part::{Best, Count, Mean, Part, SmallMean};

/// A way to aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// Upfront partitioning.
    Up,
    /// Late local merge.
    Late,
    /// Late global merge.
    Global,
}

impl Baseline {
    /// Returns the name that the command line has for it.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Up => "up",
            Baseline::Late => "late",
            Baseline::Global => "global",
        }
    }

    /// Returns the output of each worker. `length`: of a window, milliseconds; `groups_max`: the groups that a window
    /// has at the most.
    pub fn run<const COLUMNS: usize>(
        self,
        of: &impl Aggregation<COLUMNS>,
        length: i64,
        groups_max: usize,
        workers: usize,
    ) -> Vec<Output> {
        let Some(windows) = Windows::of(of.times(), length) else { return vec![Rows::new(of.names()).output()] };
        let rows = match self {
            Baseline::Up => partitioned::run(of, windows, workers),
            Baseline::Late => fused::run::<COLUMNS, _, local::Tables<_>>(of, windows, groups_max, workers),
            Baseline::Global => fused::run::<COLUMNS, _, shared::Table<_>>(of, windows, groups_max, workers),
        };
        rows.into_iter().map(Rows::output).collect()
    }
}

/// An aggregation of events, which are in the order of time, by group in tumbling windows.
pub trait Aggregation<const COLUMNS: usize>: Sync {
    /// The aggregate of a group.
    type Part: Part;

    /// Returns the times of all events.
    fn times(&self) -> &[i64];
    /// Returns whether an event counts.
    #[inline(always)]
    fn passes(&self, _event: usize) -> bool {
        true
    }
    /// Returns its group, which is never the least of all ints.
    fn key(&self, event: usize) -> i64;
    /// Returns the value of an event that is aggregated.
    fn value(&self, event: usize) -> <Self::Part as Part>::Value;
    /// Returns the names of the columns of results.
    fn names(&self) -> [&'static str; COLUMNS];
    /// Returns the result of a group, floats as their bits.
    fn row(&self, end: i64, key: i64, part: Self::Part) -> [i64; COLUMNS];
}

/// The windows of a stream, counted from that of its first event.
#[derive(Clone, Copy)]
struct Windows {
    length: i64,
    first: i64,
    count: usize,
}

impl Windows {
    /// None where there are no events.
    fn of(times: &[i64], length: i64) -> Option<Windows> {
        let (first, last) = (times.first()?.div_euclid(length), times.last()?);
        let windows = Windows { length, first, count: 0 };
        Some(Windows { count: windows.holding(*last) + 1, ..windows })
    }

    /// Returns the window that holds an instant.
    fn holding(self, at: i64) -> usize {
        (at.div_euclid(self.length) - self.first) as usize
    }

    fn end(self, window: usize) -> i64 {
        (self.first + window as i64 + 1) * self.length
    }
}

/// Events of a block; few in tests, so that all workers have blocks of small inputs.
const BLOCK: usize = if cfg!(test) { 32 } else { 4_096 };

/// Blocks of the stream, of which each worker takes the next one, once all workers are there.
struct Blocks {
    workers: Barrier,
    next: AtomicUsize,
    events: usize,
}

impl Blocks {
    fn new(events: usize, workers: usize) -> Blocks {
        Blocks { workers: Barrier::new(workers), next: AtomicUsize::new(0), events }
    }

    /// Returns the blocks that a worker takes: call it once for each worker.
    fn take(&self) -> impl Iterator<Item = Range<usize>> {
        self.workers.wait();
        std::iter::from_fn(|| self.next())
    }

    fn next(&self) -> Option<Range<usize>> {
        if cfg!(test) {
            std::thread::yield_now();
        }
        let start = self.next.fetch_add(BLOCK, Ordering::Relaxed);
        (start < self.events).then(|| start..(start + BLOCK).min(self.events))
    }
}

/// The key of a place of a hash table without a group.
const NOBODY: i64 = i64::MIN;

/// Returns the most groups of a hash table with this number of places.
fn groups_max(places: usize) -> usize {
    places / 4 * 3
}

/// Returns the places of a hash table for this number of groups, a power of two.
fn places_for(groups: usize) -> usize {
    (groups * 4).div_ceil(3).next_power_of_two().max(4)
}

/// Returns the hash of a group, by the golden ratio (Knuth): its upper bits spread keys that follow each other evenly.
#[inline(always)]
fn hash(key: i64) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the place where a group is looked for first, among this many places, a power of two.
#[inline(always)]
fn home(key: i64, places: usize) -> usize {
    (hash(key) >> (64 - places.trailing_zeros())) as usize
}
