//! Late merging: the whole query is one loop, compiled for its aggregation, and each worker adds to the window's buffer.

use super::part::Part;
use super::ring::Ring;
use super::{Aggregation, Blocks, Rows, Windows};

/// The aggregates of an open window.
pub trait Buffer<P: Part>: Sync {
    /// The part that one worker writes to.
    type Writer<'a>
    where
        Self: 'a;

    /// Makes a buffer for this number of workers and groups.
    fn new(workers: usize, groups_max: usize) -> Self;
    /// Returns the part of a worker.
    fn writer(&self, worker: usize) -> Self::Writer<'_>;
    /// Adds an event.
    fn add(writer: &mut Self::Writer<'_>, key: i64, value: P::Value);
    /// Takes out all groups, once nobody writes.
    fn drain(&self, row: impl FnMut(i64, P));
}

/// Returns the rows of each worker.
pub fn run<const COLUMNS: usize, A: Aggregation<COLUMNS>, B: Buffer<A::Part>>(
    aggregation: &A,
    windows: Windows,
    groups_max: usize,
    workers: usize,
) -> Vec<Rows<COLUMNS>> {
    let ring = Ring::new(workers, windows.count, || B::new(workers, groups_max));
    let blocks = Blocks::new(aggregation.times().len(), workers);
    std::thread::scope(|scope| {
        let work_on = |worker| {
            let (ring, blocks) = (&ring, &blocks);
            scope.spawn(move || work(aggregation, windows, ring, blocks, worker))
        };
        let threads: Vec<_> = (0..workers).map(work_on).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker that ends")).collect()
    })
}

fn work<const COLUMNS: usize, A: Aggregation<COLUMNS>, B: Buffer<A::Part>>(
    aggregation: &A,
    windows: Windows,
    ring: &Ring<B>,
    blocks: &Blocks,
    worker: usize,
) -> Rows<COLUMNS> {
    let mut rows = Rows::new(aggregation.names());
    let mut drain = |window, buffer: &B| {
        let end = windows.end(window);
        buffer.drain(|key, part| rows.push(aggregation.row(end, key, part)));
    };
    let (mut window, mut end) = (0, windows.end(0));
    let mut writer = ring.enter(0).writer(worker);
    for block in blocks.take() {
        for event in block {
            if !aggregation.passes(event) {
                continue;
            }
            let at = aggregation.times()[event];
            if at >= end {
                drop(writer);
                let next = windows.holding(at);
                ring.leave(window..next, &mut drain);
                (window, end) = (next, windows.end(next));
                writer = ring.enter(window).writer(worker);
            }
            B::add(&mut writer, aggregation.key(event), aggregation.value(event));
        }
    }
    drop(writer);
    ring.leave(window..windows.count, &mut drain);
    rows
}
