//! The parallel executor on real threads: order per row, each transaction once, all policies, workers that come and
//! leave, panics.
#![cfg(not(feature = "loom"))]

mod model;

use model::Access;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tidemill_schedule::{Execute, Executor, Granularity, Policy, Progress, Rows, Worker};
use tidemill_txn::sample::{self, Random, Zipf};
use tidemill_txn::{AccessBuffer, Partitioning, RowId, SortedAccesses, UseBuffer, reference};

/// Rows are hashes of their history: equal exactly if the same transactions met them in the same order
/// with the same values in the other rows. Some transactions abort, by a requirement on the values.
///
/// Loads and stores are relaxed, so a value that an earlier transaction wrote is seen only if the
/// executor orders the two.
struct Histories<'a> {
    epoch: &'a AccessBuffer,
    rows: Vec<AtomicU64>,
    ran: Vec<AtomicU32>,
    aborted: AtomicU32,
    work: u32,
}

impl<'a> Histories<'a> {
    fn new(epoch: &'a AccessBuffer, work: u32) -> Self {
        let accesses = epoch.accesses();
        let rows = accesses.rows().iter().map(|&row| index(row) + 1).max().unwrap_or(0);
        Histories {
            epoch,
            rows: (0..rows).map(|row| AtomicU64::new(row as u64)).collect(),
            ran: (0..accesses.transactions()).map(|_| AtomicU32::new(0)).collect(),
            aborted: AtomicU32::new(0),
            work,
        }
    }

    fn result(self) -> (Vec<u64>, Vec<u32>, u32) {
        let rows = self.rows.into_iter().map(AtomicU64::into_inner).collect();
        (rows, self.ran.into_iter().map(AtomicU32::into_inner).collect(), self.aborted.into_inner())
    }
}

fn index(row: RowId) -> usize {
    (row.0 >> 20) as usize
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

impl Execute for Histories<'_> {
    fn execute(&self, _worker: usize, transaction: u32) {
        self.ran[transaction as usize].fetch_add(1, Ordering::Relaxed);
        let rows = self.epoch.accesses().rows_of(transaction as usize);
        let mut seen = u64::from(transaction) + 1;
        for &row in rows {
            seen = mix(seen ^ self.rows[index(row)].load(Ordering::Relaxed));
        }
        for _ in 0..self.work {
            seen = std::hint::black_box(mix(seen));
        }
        if seen.is_multiple_of(5) {
            self.aborted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for (role, &row) in rows.iter().enumerate() {
            let before = self.rows[index(row)].load(Ordering::Relaxed);
            self.rows[index(row)].store(mix(before ^ seen).wrapping_add(role as u64), Ordering::Relaxed);
        }
    }
}

/// Ends the process if an epoch hangs. Dropped with the test.
struct Watchdog(mpsc::Sender<()>);

impl Watchdog {
    fn new() -> Self {
        let (alive, watched) = mpsc::channel();
        thread::spawn(move || {
            loop {
                match watched.recv_timeout(Duration::from_secs(120)) {
                    Ok(()) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("an epoch hangs");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(alive)
    }

    /// Says that an epoch has ended.
    fn ends_one(&self) {
        self.0.send(()).expect("it watches");
    }
}

/// Cuts an epoch into slices of about equal size.
fn runs(epoch: &AccessBuffer, slices: usize, partitioning: Partitioning) -> Vec<SortedAccesses> {
    let transactions = epoch.accesses().transactions();
    let cut = |slice| transactions * slice / slices;
    let slice = |number| {
        let mut run = SortedAccesses::new();
        run.partition(partitioning, epoch.slice(cut(number)..cut(number + 1)).accesses());
        run
    };
    (0..slices).map(slice).collect()
}

fn serial(epoch: &AccessBuffer) -> (Vec<u64>, Vec<u32>, u32) {
    let histories = Histories::new(epoch, 0);
    (0..epoch.accesses().transactions() as u32).for_each(|transaction| histories.execute(0, transaction));
    let result = histories.result();
    assert!(result.1.iter().all(|&ran| ran == 1));
    result
}

fn parallel(executor: &mut Executor, epoch: &AccessBuffer, workers: usize, random: &mut Random) {
    let slices = 1 + random.below(4) as usize;
    let partitioning = Partitioning::with_bits(random.below(5) as u32);
    executor.prepare(&mut runs(epoch, slices, partitioning));
    let in_place = |policy: &Policy| policy.granularity == Granularity::Transaction(Rows::InPlace);
    let policies = Policy::all().into_iter().filter(in_place).flat_map(Policy::in_ways_to_share);
    let policies: Vec<Policy> = policies.collect();
    let policy = policies[random.below(policies.len() as u64) as usize];
    executor.arrange(policy, epoch.accesses(), &UseBuffer::default());
    let histories = Histories::new(epoch, 0);
    // Some come late, some come and go.
    let delays: Vec<u64> = (0..workers).map(|_| random.below(30)).collect();
    thread::scope(|scope| {
        for (id, delay) in delays.into_iter().enumerate() {
            let (executor, histories) = (&*executor, &histories);
            scope.spawn(move || {
                if delay < 10 {
                    thread::sleep(Duration::from_micros(delay));
                }
                let mut worker = Worker::new(id);
                if delay.is_multiple_of(3) && executor.help(&mut worker, histories) == Progress::Done {
                    return;
                }
                executor.work(&mut worker, histories);
            });
        }
    });
    assert_eq!(executor.summary(), reference::chain_summary(epoch.accesses()));
    let expected = serial(epoch);
    // The count of aborts depends on verdicts, verdicts on values: all of it must agree.
    assert!(
        histories.result() == expected,
        "{policy}, {workers} workers, {slices} slices: another result than serially"
    );
}

#[test]
fn random_epochs_end_as_serially() {
    let watchdog = Watchdog::new();
    let mut random = Random::new(42);
    for (workers, sockets) in [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (4, 4)] {
        let mut executor = Executor::on_sockets(&(0..workers).map(|worker| worker % sockets).collect::<Vec<_>>());
        for round in 0..100 {
            watchdog.ends_one();
            let epoch = sample::mixed(&mut random, if round % 5 == 0 { 1500 } else { 60 });
            parallel(&mut executor, &epoch, workers, &mut random);
        }
    }
}

#[test]
fn versions_end_as_serially_under_every_policy() {
    let watchdog = Watchdog::new();
    let mut random = Random::new(45);
    let policies: Vec<Policy> = Policy::all().into_iter().filter(|policy| policy.on_versions()).collect();
    assert_eq!(policies.len(), 21);
    let mut redone = 0;
    // The moments at which workers overlap decide how often speculation goes wrong.
    for round in 0..30_000 {
        if round >= 1500 && redone > 1000 {
            break;
        }
        watchdog.ends_one();
        let ways = policies[round % policies.len()].in_ways_to_share();
        let policy = ways[random.below(ways.len() as u64) as usize];
        let workers = 1 + random.below(4) as usize;
        let rows = [2, 6, 50][random.below(3) as usize];
        let transactions = (0..random.below(120)).map(|_| model::random_transaction(&mut random, rows)).collect();
        let aborting = [0, 1, 2, 3, 10][random.below(5) as usize];
        // In turn on one socket, and every other worker on another.
        let sockets: Vec<usize> = (0..workers).map(|worker| worker % (1 + round / policies.len() % 2)).collect();
        let model = model::Model::new(transactions, aborting, policy, &sockets);
        thread::scope(|scope| {
            for id in 0..workers {
                let model = &model;
                scope.spawn(move || model.work(id));
            }
        });
        assert_eq!(model.result(), model.expected(), "round {round}: {policy}, {workers} workers");
        redone += model.executor.redone();
    }
    assert!(redone > 1000, "speculation went wrong only {redone} times");
}

#[test]
fn adversarial_epochs_end_as_serially() {
    let watchdog = Watchdog::new();
    let mut random = Random::new(43);
    let row = |number: u64| RowId(number << 20);
    let mut epochs = vec![AccessBuffer::new()];
    let mut add = |transactions: u64, rows: &dyn Fn(u64) -> Vec<RowId>| {
        let mut epoch = AccessBuffer::new();
        (0..transactions).for_each(|transaction| epoch.push(rows(transaction)));
        epochs.push(epoch);
    };
    add(3000, &|_| vec![row(0)]); // one hot row
    add(3000, &|t| vec![row(t), row(t + 1)]); // a chain of transfers through all accounts
    add(3000, &|t| vec![row(t % 2), row((t + 1) % 2)]); // two rows reading each other
    add(3000, &|t| if t % 100 == 0 { (0..100).map(row).collect() } else { vec![row(t % 100)] }); // fans
    add(3000, &|t| vec![row(0), row(1 + t)]); // one hot row among cold ones
    add(3000, &|_| vec![]); // nothing to wait for
    add(3000, &|t| vec![row(t / 2), row(t / 2), row(t / 2)]); // repeats
    for sockets in [&[0][..], &[0, 0], &[0, 1], &[0, 0, 0], &[0, 0, 1], &[2, 1, 0]] {
        let workers = sockets.len();
        let mut executor = Executor::on_sockets(sockets);
        for epoch in &epochs {
            watchdog.ends_one();
            parallel(&mut executor, epoch, workers, &mut random);
        }
    }
}

#[test]
fn ledgers_with_work_end_as_serially() {
    let _watchdog = Watchdog::new();
    let mut random = Random::new(44);
    for theta in [0.2, 0.99] {
        let ledger = sample::ledger(&mut random, 20_000, &Zipf::new(1000, theta));
        let mut epoch = AccessBuffer::new();
        for transaction in 0..ledger.accesses().transactions() {
            epoch.push(ledger.accesses().rows_of(transaction).iter().map(|row| RowId(row.0 << 20)));
        }
        let mut executor = Executor::new(2);
        executor.prepare(&mut runs(&epoch, 3, Partitioning::for_accesses(60_000)));
        let histories = Histories::new(&epoch, 100);
        let reference = Histories::new(&epoch, 100);
        (0..20_000).for_each(|transaction| reference.execute(0, transaction));
        thread::scope(|scope| {
            for id in 0..2 {
                let (executor, histories) = (&executor, &histories);
                scope.spawn(move || executor.work(&mut Worker::new(id), histories));
            }
        });
        assert!(histories.result() == reference.result());
    }
}

#[test]
fn slices_come_back_for_reuse() {
    let epoch = sample::mixed(&mut Random::new(1), 100);
    let mut executor = Executor::new(1);
    let mut slices = runs(&epoch, 3, Partitioning::with_bits(2));
    executor.prepare(&mut slices);
    assert!(slices.is_empty());
    let mut next = runs(&epoch, 1, Partitioning::with_bits(0));
    executor.prepare(&mut next);
    assert_eq!(next.len(), 3);
}

#[test]
fn a_worker_that_comes_when_all_is_done_leaves_at_once() {
    let epoch = sample::mixed(&mut Random::new(5), 100);
    let mut executor = Executor::new(2);
    executor.prepare(&mut runs(&epoch, 1, Partitioning::with_bits(1)));
    let histories = Histories::new(&epoch, 0);
    executor.work(&mut Worker::new(0), &histories);
    executor.work(&mut Worker::new(1), &histories);
    assert_eq!(executor.help(&mut Worker::new(1), &histories), Progress::Done);
    assert!(histories.result().1.iter().all(|&ran| ran == 1));
}

/// One worker keeps the only chain busy; the other leaves instead of waiting.
#[test]
fn help_leaves_when_there_is_nothing_to_do() {
    let _watchdog = Watchdog::new();
    struct Gate<'a> {
        entered: &'a std::sync::Barrier,
        leave: &'a std::sync::Barrier,
    }
    impl Execute for Gate<'_> {
        fn execute(&self, _worker: usize, transaction: u32) {
            if transaction == 0 {
                self.entered.wait();
                self.leave.wait();
            }
        }
    }
    let mut epoch = AccessBuffer::new();
    (0..10).for_each(|_| epoch.push([RowId(7)]));
    let mut executor = Executor::new(2);
    executor.prepare(&mut runs(&epoch, 1, Partitioning::with_bits(0)));
    let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let gate = Gate { entered: &entered, leave: &leave };
    thread::scope(|scope| {
        scope.spawn(|| executor.work(&mut Worker::new(0), &gate));
        entered.wait();
        assert_eq!(executor.help(&mut Worker::new(1), &gate), Progress::Starved);
        leave.wait();
    });
    assert_eq!(executor.help(&mut Worker::new(1), &gate), Progress::Done);
}

/// A panic in a repair names the transaction that is run again, not the last one that the worker ran or judged.
#[test]
fn a_panic_in_a_repair_says_where() {
    let _watchdog = Watchdog::new();
    struct Faulty(model::Model);
    impl Execute for Faulty {
        fn execute(&self, worker: usize, unit: u32) {
            self.0.execute(worker, unit);
        }
        fn is_apart(&self, transaction: u32) -> bool {
            self.0.is_apart(transaction)
        }
        fn judge(&self, worker: usize, transaction: u32) -> bool {
            self.0.judge(worker, transaction)
        }
        fn revert(&self, worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
            self.0.revert(worker, transaction, changed);
        }
        fn redo(&self, _: usize, transaction: u32, _: u32, _: bool, _: &mut dyn FnMut(u32)) -> bool {
            panic!("planted in {transaction}")
        }
    }
    for policy in ["operation,lazy", "operation,bfs,eager", "chain,dfs,lazy"] {
        let policy = policy.parse().expect("a policy");
        let mut transactions = model::aborts_that_turn_round(2);
        transactions.push((1, vec![Access::writes(5_000, 0)]));
        let faulty = Faulty(model::Model::new(transactions, 2, policy, &[0]));
        let panics = |id| {
            let work = AssertUnwindSafe(|| faulty.0.executor.work(&mut Worker::new(id), &faulty));
            *catch_unwind(work).expect_err("every worker panics").downcast::<String>().expect("a message")
        };
        assert_eq!(panics(0), "planted in 1", "{policy}");
        assert_eq!(panics(0), "the epoch is stopped: transaction 1 panicked on another worker", "{policy}");
    }
}

#[test]
fn a_panic_stops_all_workers_and_says_where() {
    let _watchdog = Watchdog::new();
    struct Faulty<'a>(Histories<'a>);
    impl Execute for Faulty<'_> {
        fn execute(&self, worker: usize, transaction: u32) {
            assert!(transaction != 500, "planted");
            self.0.execute(worker, transaction);
        }
    }
    let mut epoch = AccessBuffer::new();
    (0..1000_u64).for_each(|t| epoch.push([RowId((t % 3) << 20), RowId((t % 7) << 20)]));
    let mut executor = Executor::new(3);
    executor.prepare(&mut runs(&epoch, 2, Partitioning::with_bits(1)));
    let faulty = Faulty(Histories::new(&epoch, 0));
    let messages = Mutex::new(Vec::new());
    let mut workers = [0, 1, 2].map(Worker::new);
    thread::scope(|scope| {
        for worker in &mut workers {
            let (executor, faulty, messages) = (&executor, &faulty, &messages);
            scope.spawn(move || {
                let work = AssertUnwindSafe(|| executor.work(worker, faulty));
                let panic = catch_unwind(work).expect_err("every worker panics");
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                messages.lock().expect("not poisoned").push(text.expect("a message"));
            });
        }
    });
    let mut messages = messages.into_inner().expect("not poisoned");
    messages.sort();
    assert_eq!(messages[0], "planted");
    assert_eq!(messages[1], "the epoch is stopped: transaction 500 panicked on another worker");
    assert_eq!(messages[2], messages[1]);
    let comes_late = AssertUnwindSafe(|| executor.help(&mut Worker::new(1), &faulty));
    assert!(catch_unwind(comes_late).is_err(), "nor does a worker that only helps");
    // Afterwards the executor and the workers work as before, whatever they were stopped at.
    executor.prepare(&mut runs(&epoch, 2, Partitioning::with_bits(1)));
    let histories = Histories::new(&epoch, 0);
    workers.iter_mut().for_each(|worker| executor.work(worker, &histories));
    assert!(histories.result() == serial(&epoch));
}
