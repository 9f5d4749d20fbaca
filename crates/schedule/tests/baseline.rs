//! The schemes of earlier systems, on real threads: those that keep the order give the serial result, the others what
//! they promise.
#![cfg(not(feature = "loom"))]

mod model;

use model::Access;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tidemill_schedule::{Baseline, Execute, Known, Scheme, Worker};
use tidemill_txn::sample::Random;
use tidemill_txn::{AccessBuffer, RowId, Use, UseBuffer};

/// Ends the process if an epoch hangs. A test tells it of each epoch that has ended.
fn watch() -> mpsc::Sender<()> {
    let (alive, watched) = mpsc::channel();
    thread::spawn(move || {
        let ended = loop {
            match watched.recv_timeout(Duration::from_secs(120)) {
                Ok(()) => {}
                Err(ended) => break ended,
            }
        };
        if ended == mpsc::RecvTimeoutError::Timeout {
            eprintln!("an epoch hangs");
            std::process::abort();
        }
    });
    alive
}

/// Rows accessed and whether written, by transaction.
type Epoch = Vec<Vec<(u64, bool)>>;

/// The rows after an epoch; and what each transaction saw, in the order in which they ran.
type Outcome = (BTreeMap<u64, u64>, Vec<(u32, Option<u64>)>);

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

/// Returns a hash of what a transaction reads; none if it aborts.
fn outcome(transaction: u32, accesses: &[(u64, bool)], mut read: impl FnMut(u64) -> u64) -> Option<u64> {
    let seen = accesses.iter().fold(u64::from(transaction) + 1, |seen, (row, _)| mix(seen ^ read(*row)));
    (!seen.is_multiple_of(5)).then_some(seen)
}

/// Rows that are hashes of their history, written in place with relaxed stores: what an earlier transaction
/// wrote is seen only if the scheme orders the two.
struct InPlace<'a> {
    epoch: &'a Epoch,
    rows: BTreeMap<u64, AtomicU64>,
    ran: Vec<AtomicU32>,
    /// Transactions in the order in which they ran, and what each saw.
    log: Mutex<Vec<(u32, Option<u64>)>>,
}

impl Execute for InPlace<'_> {
    fn execute(&self, _worker: usize, transaction: u32) {
        self.ran[transaction as usize].fetch_add(1, Relaxed);
        let accesses = &self.epoch[transaction as usize];
        let seen = outcome(transaction, accesses, |row| self.rows[&row].load(Relaxed));
        self.log.lock().expect("nobody panics").push((transaction, seen));
        if transaction.is_multiple_of(64) {
            thread::sleep(Duration::from_micros(20));
        }
        let written = accesses.iter().filter(|(_, writes)| *writes);
        for (row, _) in written.filter(|_| seen.is_some()) {
            let before = self.rows[row].load(Relaxed);
            self.rows[row].store(mix(before ^ seen.unwrap_or(0)), Relaxed);
        }
    }
}

/// Returns the rows after transactions in some order, and what each saw.
fn serially(epoch: &Epoch, order: impl Iterator<Item = u32>) -> Outcome {
    let mut rows: BTreeMap<u64, u64> = epoch.iter().flatten().map(|&(row, _)| (row, row)).collect();
    let mut log = Vec::new();
    for transaction in order {
        let accesses = &epoch[transaction as usize];
        let seen = outcome(transaction, accesses, |row| rows[&row]);
        log.push((transaction, seen));
        if let Some(seen) = seen {
            for (row, _) in accesses.iter().filter(|(_, writes)| *writes) {
                rows.insert(*row, mix(rows[row] ^ seen));
            }
        }
    }
    (rows, log)
}

/// Neighbours are in one partition, whatever their locks are.
fn key_hashes(rows: &[RowId]) -> Vec<u64> {
    rows.iter().map(|row| row.0 >> 7).collect()
}

/// Runs an epoch in place: the rows, and the log in the order in which transactions ran.
fn run(baseline: &mut Baseline, scheme: Scheme, epoch: &Epoch, workers: usize) -> Outcome {
    let mut accesses = AccessBuffer::new();
    let mut uses = UseBuffer::default();
    for transaction in epoch {
        // Rows are at addresses, and may be named several times.
        accesses.push(transaction.iter().map(|(row, _)| RowId(row << 6)));
        uses.uses.extend(transaction.iter().map(|(_, writes)| Use::new(0, *writes)));
        uses.parts.push(0);
    }
    let key_hashes = key_hashes(accesses.accesses().rows());
    baseline.prepare(scheme, accesses.accesses(), &uses, Known { may_redo: false, key_hashes: &key_hashes });
    let state = InPlace {
        epoch,
        rows: epoch.iter().flatten().map(|&(row, _)| (row, AtomicU64::new(row))).collect(),
        ran: epoch.iter().map(|_| AtomicU32::new(0)).collect(),
        log: Mutex::default(),
    };
    thread::scope(|scope| {
        for worker in 0..workers {
            let (baseline, state, accesses, uses) = (&*baseline, &state, &accesses, &uses);
            scope.spawn(move || baseline.work(&mut Worker::new(worker), accesses.accesses(), uses, state));
        }
    });
    assert!(state.ran.iter().all(|ran| ran.load(Relaxed) == 1), "{scheme}: a transaction was lost or run twice");
    let rows = state.rows.into_iter().map(|(row, value)| (row, value.into_inner())).collect();
    (rows, state.log.into_inner().expect("nobody panics"))
}

fn random_epoch(random: &mut Random) -> Epoch {
    let rows = [1, 3, 30, 1000][random.below(4) as usize];
    let length_max = [2, 5, 12][random.below(3) as usize];
    let transaction = |random: &mut Random| {
        let length = random.below(length_max + 1);
        (0..length).map(|_| (random.below(rows), random.below(3) > 0)).collect()
    };
    (0..random.below(400)).map(|_| transaction(random)).collect()
}

fn adversarial_epochs() -> Vec<Epoch> {
    let epoch = |accesses: &dyn Fn(u64) -> Vec<(u64, bool)>| (0..2000).map(accesses).collect();
    vec![
        vec![],
        epoch(&|_| vec![(0, true)]),                             // one hot row
        epoch(&|t| vec![(0, t % 7 == 0)]),                       // one hot row, mostly read
        epoch(&|t| vec![(t, true), (t + 1, true)]),              // a chain of transfers through all accounts
        epoch(&|t| vec![(t % 2, true), ((t + 1) % 2, false)]),   // two rows reading each other
        epoch(&|t| vec![(0, false), (0, true), (1 + t, false)]), // a row read and written under two names
        epoch(&|t| if t % 100 == 0 { (0..100).map(|row| (row, true)).collect() } else { vec![(t % 100, t % 3 == 0)] }),
        epoch(&|_| vec![]),
    ]
}

fn epochs(seed: u64, rounds: usize) -> Vec<Epoch> {
    let mut random = Random::new(seed);
    adversarial_epochs().into_iter().chain((0..rounds).map(|_| random_epoch(&mut random))).collect()
}

#[test]
fn locks_in_turns_end_as_serially() {
    let alive = watch();
    for scheme in [Scheme::Lock, Scheme::Partitioned(1), Scheme::Partitioned(4), Scheme::Partitioned(64)] {
        let mut baseline = Baseline::new();
        for (number, epoch) in epochs(7, 60).iter().enumerate() {
            for workers in [1, 2, 4] {
                let (rows, mut log) = run(&mut baseline, scheme, epoch, workers);
                alive.send(()).expect("it watches");
                log.sort();
                let expected = serially(epoch, 0..epoch.len() as u32);
                assert!((rows, log) == expected, "{scheme}, epoch {number}, {workers} workers: not the serial result");
            }
        }
    }
}

#[test]
fn nocc_ends_as_some_serial_order() {
    let alive = watch();
    let mut baseline = Baseline::new();
    let mut reordered = false;
    // The machine decides how workers overlap.
    for (number, epoch) in (8..30).flat_map(|seed| epochs(seed, 100)).enumerate() {
        if number >= 108 && reordered {
            break;
        }
        alive.send(()).expect("it watches");
        let (rows, log) = run(&mut baseline, Scheme::NoOrder, &epoch, 3);
        // Each is logged while it holds its locks, so those that share rows are in the order in which they held them.
        let expected = serially(&epoch, log.iter().map(|(transaction, _)| *transaction));
        reordered |= !log.is_sorted();
        assert!((rows, log) == expected, "the result is that of no serial order");
    }
    assert!(reordered, "all ran in position order: the test shows nothing");
}

#[test]
fn no_lock_runs_each_transaction_once() {
    let alive = watch();
    let mut baseline = Baseline::new();
    for epoch in epochs(9, 30) {
        alive.send(()).expect("it watches");
        run(&mut baseline, Scheme::NoLock, &epoch, 3);
    }
}

fn work_on(model: &model::Model, workers: usize) {
    thread::scope(|scope| {
        for id in 0..workers {
            scope.spawn(move || model.work(id));
        }
    });
}

#[test]
fn schemes_on_versions_end_as_serially() {
    let alive = watch();
    let mut random = Random::new(10);
    let schemes = [Scheme::MultiVersion, Scheme::TStream, Scheme::TStreamDealt(1), Scheme::TStreamDealt(3)];
    let mut baselines = schemes.map(|scheme| (scheme, Baseline::new()));
    let mut passes = 0;
    for round in 0..1_200 {
        alive.send(()).expect("it watches");
        let (scheme, baseline) = &mut baselines[round % 4];
        let workers = 1 + random.below(4) as usize;
        let rows = [2, 6, 50][random.below(3) as usize];
        let transactions = (0..random.below(120)).map(|_| model::random_transaction(&mut random, rows)).collect();
        let aborting = [0, 1, 2, 3, 10][random.below(5) as usize];
        let mut model = model::Model::under_scheme(transactions, aborting, *scheme, std::mem::take(baseline));
        work_on(&model, workers);
        assert_eq!(model.result(), model.expected(), "round {round}: {scheme}, {workers} workers");
        *baseline = model.baseline.take().expect("it ran");
        passes = passes.max(baseline.passes());
    }
    assert!(passes > 5, "no batch was redone more than {passes} times: verdicts did not flip");
}

/// TStream removes a transaction of one operation like the others, which takes a pass over the batch.
#[test]
fn tstream_pays_for_each_transaction_that_aborts_with_a_pass() {
    let _alive = watch();
    let one_each =
        |parts: u8| (0..50).map(|t| (parts, vec![Access::writes(t % 7, 0)])).collect::<Vec<model::Transaction>>();
    for parts in [0, 1] {
        for (aborting, passes) in [(0, 1), (1, 2)] {
            let mut model = model::Model::under_scheme(one_each(parts), aborting, Scheme::TStream, Baseline::new());
            work_on(&model, 2);
            assert_eq!(model.result(), model.expected());
            let ran = model.baseline.take().expect("it ran").passes();
            assert_eq!(ran, passes, "{parts} parts, one of {aborting} aborts");
        }
    }
    // Whole transactions that abort leave nothing that others could read, so no verdict turns round.
    let turning = model::aborts_that_turn_round(3).into_iter().map(|(_, accesses)| (0, accesses)).collect();
    let mut model = model::Model::under_scheme(turning, 3, Scheme::TStream, Baseline::new());
    work_on(&model, 2);
    assert_eq!(model.result(), model.expected());
    assert_eq!(model.baseline.take().expect("it ran").passes(), 2);
}

/// Transactions that cannot be run again are run once, whatever aborts.
#[test]
fn tstream_runs_what_is_final_once() {
    let _alive = watch();
    let mut baseline = Baseline::new();
    let epoch: Epoch = (0..400).map(|t| vec![(t % 7, true)]).collect();
    let (rows, mut log) = run(&mut baseline, Scheme::TStream, &epoch, 3);
    log.sort();
    let expected = serially(&epoch, 0..400);
    assert!(expected.1.iter().any(|(_, seen)| seen.is_none()) && (rows, log) == expected);
    assert_eq!(baseline.passes(), 1);
}

/// Rounds that shrink: a worker that took the next round's size for that of its own would end a round twice.
#[test]
fn tstream_ends_each_round_once() {
    let alive = watch();
    let mut baseline = Baseline::new();
    // Each row is written twice, from the second row on after a read of the row before: ever fewer of 40 chains are left.
    let first = (0..40).map(|row| (0, vec![Access::writes(row, 0)]));
    let second = (1..40).map(|row| (0, vec![Access::writes(row, 0), Access::reads(row - 1, 0)]));
    let transactions: Vec<model::Transaction> = first.chain([(0, vec![Access::writes(0, 0)])]).chain(second).collect();
    for round in 0..5000 {
        alive.send(()).expect("it watches");
        let scheme = [Scheme::TStream, Scheme::TStreamDealt(2)][round % 2];
        let mut model = model::Model::under_scheme(transactions.clone(), 0, scheme, baseline);
        work_on(&model, 4);
        assert_eq!(model.result(), model.expected());
        baseline = model.baseline.take().expect("it ran");
    }
}

#[test]
fn a_panic_stops_all_workers() {
    let _alive = watch();
    struct Faulty;
    impl Execute for Faulty {
        fn execute(&self, _worker: usize, unit: u32) {
            assert!(unit != 50, "planted");
        }
    }
    let epoch: Epoch = (0..200).map(|t| vec![(t % 3, true)]).collect();
    let mut accesses = AccessBuffer::new();
    let mut uses = UseBuffer::default();
    epoch.iter().for_each(|_| accesses.push([RowId(64)]));
    uses.uses.resize(200, Use::new(0, true));
    uses.parts.resize(200, 0);
    for scheme in [Scheme::Lock, Scheme::MultiVersion, Scheme::Partitioned(4), Scheme::TStream, Scheme::NoOrder] {
        let mut baseline = Baseline::new();
        let key_hashes = key_hashes(accesses.accesses().rows());
        baseline.prepare(scheme, accesses.accesses(), &uses, Known { may_redo: false, key_hashes: &key_hashes });
        thread::scope(|scope| {
            let work = |worker| {
                let (baseline, accesses, uses) = (&baseline, &accesses, &uses);
                scope.spawn(move || baseline.work(&mut Worker::new(worker), accesses.accesses(), uses, &Faulty))
            };
            let workers: Vec<_> = (0..3).map(work).collect();
            assert!(workers.into_iter().all(|worker| worker.join().is_err()), "{scheme}: a worker did not panic");
        });
        // Nothing is left of it.
        if !scheme.on_versions() {
            let (rows, _) = run(&mut baseline, scheme, &epoch, 2);
            assert!(!scheme.keeps_order() || rows == serially(&epoch, 0..200).0, "{scheme}");
        }
    }
}
