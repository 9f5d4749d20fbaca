//! Overhead of scheduling: nanoseconds per operation to build the graph of an epoch and to run it, beside the plain
//! serial loop over the same transactions.
//!
//! Streaming Ledger: half deposits (2 rows), half transfers (4 rows), over 10,000 and 1,000,000 rows per
//! table, Zipf 0 and 0.99; the user function burns the given nanoseconds per operation. The loop, one worker
//! and two take turns, and the best round of each counts: on a machine with other load, run it again
//! until the columns settle. `overhead` is the time of all workers together over that of the loop, `ratio`
//! the loop's time over that of partitioning, linking and running. Every round is checked against the
//! loop's digest.
//!
//! `cargo run --release -p tidemill-schedule --example chain_overhead [transactions [udf ns]...]`

// Times are what this example is about.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;
use tidemill_schedule::{Execute, Executor, Worker};
use tidemill_txn::sample::{self, Random, Zipf};
use tidemill_txn::{AccessBuffer, Graph, Partitioning, Scratch, SortedAccesses};

/// The nanoseconds of work that the loop and the executors together may do per configuration.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=25;
const OPERATION_NS_TOTAL: f64 = 1e4;

struct Ledger<'a> {
    epoch: &'a AccessBuffer,
    /// Two tables of balances; a row number is an index.
    balances: Vec<AtomicU64>,
    /// Steps of the user function per operation.
    steps: u32,
}

impl<'a> Ledger<'a> {
    fn new(epoch: &'a AccessBuffer, rows: usize, steps: u32) -> Self {
        let balances = (0..2 * rows).map(|_| AtomicU64::new(1000)).collect();
        Ledger { epoch, balances, steps }
    }

    fn digest(&self) -> u64 {
        self.balances.iter().fold(0, |digest, balance| (digest ^ balance.load(Relaxed)).wrapping_mul(0x9e37_79b9))
    }

    fn reset(&self) {
        self.balances.iter().for_each(|balance| balance.store(1000, Relaxed));
    }
}

fn burn(seed: u64, steps: u32) -> u64 {
    (0..steps).fold(seed, |value, _| black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (value >> 29)))
}

impl Execute for Ledger<'_> {
    #[inline]
    fn execute(&self, _worker: usize, transaction: u32) {
        for row in self.epoch.accesses().rows_of(transaction as usize) {
            let balance = &self.balances[row.0 as usize];
            let value = balance.load(Relaxed);
            let burned = burn(u64::from(transaction), self.steps);
            balance.store(value.wrapping_mul(3) + u64::from(transaction) + (burned & 1), Relaxed);
        }
    }
}

/// Returns the nanoseconds per step of the user function.
fn calibrate() -> f64 {
    let start = Instant::now();
    black_box(burn(1, 20_000_000));
    start.elapsed().as_nanos() as f64 / 2e7
}

/// Partitions the slices and executes, each worker its part. Nanoseconds for (partition, link and run).
fn parallel(
    executor: &mut Executor,
    slices: &[AccessBuffer],
    runs: &mut Vec<SortedAccesses>,
    workers: &mut [Worker],
    ledger: &Ledger<'_>,
) -> (f64, f64) {
    let accesses = ledger.epoch.accesses().rows().len();
    let partitioning = Partitioning::for_accesses(accesses);
    runs.resize(slices.len(), SortedAccesses::new());
    let start = Instant::now();
    let share = slices.len().div_ceil(workers.len());
    thread::scope(|scope| {
        for (slices, runs) in slices.chunks(share).zip(runs.chunks_mut(share)) {
            scope.spawn(move || {
                for (slice, run) in slices.iter().zip(runs) {
                    run.partition(partitioning, slice.accesses());
                }
            });
        }
    });
    let partitioned = start.elapsed();
    executor.prepare(runs);
    // The threads of an engine are there already; their start is not part of the time.
    let barrier = Barrier::new(workers.len() + 1);
    let took = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let (executor, barrier) = (&*executor, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    executor.work(worker, ledger);
                    start.elapsed()
                })
            })
            .collect();
        barrier.wait();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).max().expect("a worker")
    });
    (partitioned.as_nanos() as f64, took.as_nanos() as f64)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let transactions = numbers.next().unwrap_or(65_536) as usize;
    let mut udfs: Vec<f64> = numbers.map(f64::from).collect();
    if udfs.is_empty() {
        udfs = vec![0.0, 100.0, 200.0, 1000.0, 10_000.0];
    }
    let step_ns = calibrate();
    println!("{transactions} transactions per epoch; ns per operation; one step of the user function {step_ns:.2} ns");
    println!(
        "{:>8} {:>5} {:>6} {:>8} {:>7} {:>8} | {:>7} {:>9} {:>9} {:>6}",
        "rows", "theta", "udf", "loop", "build", "workers", "part.", "link+run", "overhead", "ratio"
    );
    for rows in [10_000, 1_000_000] {
        for theta in [0.0, 0.99] {
            let epoch = sample::ledger(&mut Random::new(9), transactions, &Zipf::new(rows as u64, theta));
            for &udf_ns in &udfs {
                let ledger = Ledger::new(&epoch, rows, (udf_ns / step_ns) as u32);
                let rounds = ((OPERATION_NS_TOTAL / (udf_ns + 1.0)) as usize).clamp(*ROUNDS.start(), *ROUNDS.end());
                print!("{rows:>8} {theta:>5} {udf_ns:>6} ");
                measure(&ledger, rounds);
            }
        }
    }
}

fn measure(ledger: &Ledger<'_>, rounds: usize) {
    let accesses = ledger.epoch.accesses();
    let transactions = accesses.transactions();
    let (mut graph, mut scratch) = (Graph::new(), Scratch::default());
    // Slices like the morsels of an engine.
    let slices: Vec<AccessBuffer> = (0..transactions)
        .step_by(4096)
        .map(|begin| ledger.epoch.slice(begin..transactions.min(begin + 4096)))
        .collect();
    let mut teams: Vec<(Executor, Vec<SortedAccesses>, Vec<Worker>)> =
        [1, 2].map(|workers| (Executor::new(workers), Vec::new(), (0..workers).map(Worker::new).collect())).into();

    let (mut serial, mut build) = (f64::INFINITY, f64::INFINITY);
    let mut fastest = [(f64::INFINITY, f64::INFINITY); 2];
    for _ in 0..rounds {
        ledger.reset();
        let start = Instant::now();
        for transaction in 0..transactions as u32 {
            ledger.execute(0, transaction);
        }
        serial = serial.min(start.elapsed().as_nanos() as f64);
        let expected = ledger.digest();

        let start = Instant::now();
        black_box(graph.build(accesses, &mut scratch));
        build = build.min(start.elapsed().as_nanos() as f64);

        for ((executor, runs, workers), fastest) in teams.iter_mut().zip(&mut fastest) {
            ledger.reset();
            let (partition, run) = parallel(executor, &slices, runs, workers, ledger);
            assert_eq!(ledger.digest(), expected, "another result than serially");
            *fastest = (fastest.0.min(partition), fastest.1.min(run));
        }
    }

    let operations = accesses.rows().len() as f64;
    print!("{:>8.1} {:>7.1}", serial / operations, build / operations);
    for (index, (partition, run)) in fastest.into_iter().enumerate() {
        let workers = index + 1;
        let indent = if index == 0 { 0 } else { 38 };
        println!(
            "{:indent$} {workers:>8} | {:>7.1} {:>9.1} {:>9.1} {:>6.2}",
            "",
            partition / operations,
            run / operations,
            (run * workers as f64 - serial) / operations,
            serial / (partition + run),
        );
    }
}
