//! The parallel executor under the model checker: all interleavings, up to a bound on preemptions, of linking, the
//! counters, the pool, parking, and the end of an epoch.
//!
//! Rows are relaxed atomics, so the checker may return a stale value wherever the executor does not order two
//! transactions that share a row. A lost wake-up shows as a deadlock.
#![cfg(feature = "loom")]

mod model;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use model::Access;
use tidemill_schedule::{Baseline, Execute, Executor, Policy, Progress, Scheme, Worker};
use tidemill_txn::{AccessBuffer, Partitioning, RowId, SortedAccesses};

struct Rows {
    transactions: Vec<Vec<u64>>,
    rows: Vec<AtomicU32>,
    ran: Vec<AtomicU32>,
}

impl Execute for Rows {
    /// Every row counts its transactions; each transaction knows how many must have come before it.
    fn execute(&self, _worker: usize, transaction: u32) {
        let transaction = transaction as usize;
        self.ran[transaction].store(self.ran[transaction].load(Relaxed) + 1, Relaxed);
        for &row in &self.transactions[transaction] {
            let before = self.transactions[..transaction].iter().filter(|rows| rows.contains(&row)).count() as u32;
            let cell = &self.rows[row as usize];
            assert_eq!(cell.load(Relaxed), before, "transaction {transaction} at row {row}");
            cell.store(before + 1, Relaxed);
        }
    }
}

/// Runs an epoch with one worker per element; `true` helps until starved before it works.
fn check(transactions: &'static [&'static [u64]], partition_bits: u32, workers: &'static [bool], preemptions: usize) {
    const ONE: &[usize] = &[0; 4];
    check_on(&ONE[..workers.len()], transactions, partition_bits, workers, preemptions);
}

/// Runs an epoch with one worker per element, with the workers on these sockets.
fn check_on(
    sockets: &'static [usize],
    transactions: &'static [&'static [u64]],
    partition_bits: u32,
    workers: &'static [bool],
    preemptions: usize,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let mut epoch = AccessBuffer::new();
        transactions.iter().for_each(|rows| epoch.push(rows.iter().map(|&row| RowId(row))));
        let mut run = SortedAccesses::new();
        run.partition(Partitioning::with_bits(partition_bits), epoch.accesses());
        let mut executor = Executor::on_sockets(sockets);
        executor.prepare(&mut vec![run]);
        let rows = Rows {
            transactions: transactions.iter().map(|rows| rows.to_vec()).collect(),
            rows: (0..4).map(|_| AtomicU32::new(0)).collect(),
            ran: transactions.iter().map(|_| AtomicU32::new(0)).collect(),
        };
        let shared = Arc::new((executor, rows));
        let mut threads = Vec::new();
        for (id, &helps) in workers.iter().enumerate().skip(1) {
            let shared = shared.clone();
            threads.push(thread::spawn(move || take_part(&shared, id, helps)));
        }
        take_part(&shared, 0, workers[0]);
        // A worker whose `work` has returned sees everything, before any join.
        for ran in &shared.1.ran {
            assert_eq!(ran.load(Relaxed), 1);
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

fn take_part((executor, rows): &(Executor, Rows), id: usize, helps: bool) {
    let mut worker = Worker::new(id);
    if !helps || executor.help(&mut worker, rows) != Progress::Done {
        executor.work(&mut worker, rows);
    }
}

#[test]
fn two_roots_and_one_that_waits_for_both() {
    check(&[&[0], &[1], &[0, 1]], 0, &[false, false], 3);
}

#[test]
fn one_root_that_two_wait_for() {
    check(&[&[0, 1], &[0], &[1]], 0, &[false, false], 3);
}

#[test]
fn a_diamond() {
    check(&[&[0, 1], &[0, 2], &[1, 3], &[2, 3]], 0, &[false, false], 2);
}

#[test]
fn two_partitions() {
    check(&[&[0, 1], &[1, 0]], 1, &[false, false], 3);
}

#[test]
fn a_socket_for_each() {
    check_on(&[0, 1], &[&[0], &[1], &[0, 1], &[0]], 0, &[false, false], 2);
    check_on(&[0, 1], &[&[0, 1], &[0], &[1]], 0, &[false, true], 2);
}

#[test]
fn helping_and_working() {
    check(&[&[0], &[1], &[0, 1], &[0]], 0, &[false, true], 2);
}

/// Two transactions that wait until both run: a worker that slept while a block could be claimed would hang them.
#[test]
fn no_worker_sleeps_through_the_end_of_linking() {
    struct Meeting(Mutex<u32>, Condvar);
    impl Execute for Meeting {
        fn execute(&self, _worker: usize, _transaction: u32) {
            let mut met = self.0.lock().expect("not poisoned");
            *met += 1;
            self.1.notify_all();
            while *met < 2 {
                met = self.1.wait(met).expect("not poisoned");
            }
        }
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let mut epoch = AccessBuffer::new();
        (0..2).for_each(|row| epoch.push([RowId(row)]));
        let mut run = SortedAccesses::new();
        run.partition(Partitioning::with_bits(0), epoch.accesses());
        let mut executor = Executor::new(2);
        executor.prepare(&mut vec![run]);
        let shared = Arc::new((executor, Meeting(Mutex::new(0), Condvar::new())));
        let other = shared.clone();
        let thread = thread::spawn(move || other.0.work(&mut Worker::new(1), &other.1));
        shared.0.work(&mut Worker::new(0), &shared.1);
        thread.join().expect("no panic");
    });
}

#[test]
fn three_workers() {
    check(&[&[0, 1], &[0], &[1]], 0, &[false, false, false], 1);
}

/// Two workers on an epoch over versions.
fn check_versions(policy: &str, aborting: u32, preemptions: usize) {
    let transactions = vec![
        (2, vec![Access::writes(0, 0), Access::writes(1, 1)]),
        (1, vec![Access::writes(1, 0), Access::reads(0, 1)]),
        (0, vec![Access::writes(0, 0)]),
    ];
    check_transactions(transactions, policy, aborting, preemptions);
}

fn check_transactions(transactions: Vec<model::Transaction>, policy: &str, aborting: u32, preemptions: usize) {
    let policy: Policy = policy.parse().expect("a policy");
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // Finding strata takes more steps than the default allows.
    model.max_branches = 10_000;
    model.check(move || {
        let shared = Arc::new(model::Model::new(transactions.clone(), aborting, policy, &[0, 1]));
        let other = shared.clone();
        let thread = thread::spawn(move || other.work(1));
        shared.work(0);
        assert_eq!(shared.result(), shared.expected());
        thread.join().expect("no panic");
    });
}

/// Returns a transaction that waits for one of each of two rows.
fn two_rows_then_both() -> Vec<model::Transaction> {
    vec![
        (0, vec![Access::writes(0, 0)]),
        (0, vec![Access::writes(1, 0)]),
        (0, vec![Access::writes(0, 0), Access::writes(1, 0)]),
    ]
}

#[test]
fn reads_of_versions() {
    check_versions("transaction,versions", 3, 2);
}

#[test]
fn strata_breadth_first() {
    check_versions("operation,bfs", 3, 1);
    check_transactions(two_rows_then_both(), "operation,bfs", 0, 2);
}

#[test]
fn strata_depth_first() {
    check_versions("operation,dfs", 3, 1);
}

/// Units that are given to another worker, which may not have come yet or may have gone to sleep.
#[test]
fn units_that_belong_to_others() {
    check_versions("transaction,versions,shared-nothing", 3, 2);
    check_versions("transaction,versions,shared-nothing,patient", 3, 2);
    check_versions("operation,lazy,shared-per-socket,patient", 1, 1);
}

/// Parts, and a verdict before anyone reads what they wrote.
#[test]
fn operations_that_vote_first() {
    check_versions("operation", 1, 2);
    check_versions("operation", 2, 1);
}

/// The worker that links last says how many units there are.
#[test]
fn chains_as_units() {
    check_versions("chain", 3, 2);
    check_versions("chain,eager", 2, 1);
    check_versions("chain,dfs,lazy", 1, 1);
}

/// A unit of one share waits for one of another share: its worker parks until the other one has run that.
#[test]
fn a_turn_that_another_worker_gives() {
    check_transactions(two_rows_then_both(), "operation,dfs", 0, 2);
}

#[test]
fn eager_repair() {
    check_versions("operation,eager", 1, 1);
}

/// A verdict that the repair of another transaction reverses.
#[test]
fn eager_repair_of_a_verdict_that_turns_round() {
    check_transactions(model::aborts_that_turn_round(2), "operation,eager", 2, 2);
}

#[test]
fn eager_repair_by_strata() {
    check_versions("operation,bfs,eager", 1, 1);
    check_versions("operation,dfs,eager", 1, 1);
}

#[test]
fn lazy_repair() {
    check_versions("operation,lazy", 1, 1);
}

/// A chain that waits for another one half-way: a round of two chains, then a round of one. Without a round of
/// verdicts, which multiplies the schedules.
#[test]
fn tstream_in_rounds() {
    let transactions = vec![
        (0, vec![Access::writes(0, 0)]),
        (0, vec![Access::writes(1, 0)]),
        (0, vec![Access::writes(0, 0), Access::reads(1, 0)]),
    ];
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = model::Model::once_under_scheme(transactions.clone(), Scheme::TStream, Baseline::new());
        let shared = Arc::new(shared);
        let other = shared.clone();
        let thread = thread::spawn(move || other.work(1));
        shared.work(0);
        thread.join().expect("no panic");
        assert_eq!(shared.result(), shared.expected());
    });
}

/// Two aborts side by side, each read by another transaction.
fn check_two_aborts(policy: &str, preemptions: usize) {
    check_transactions(model::aborts_side_by_side(2), policy, 2, preemptions);
}

#[test]
fn two_workers_repair_lazily() {
    check_two_aborts("operation,lazy", 1);
}

#[test]
fn two_workers_repair_after_a_stratum() {
    check_two_aborts("operation,bfs,eager", 1);
    check_two_aborts("operation,dfs,eager", 1);
}

#[test]
fn two_workers_repair_eagerly() {
    check_two_aborts("operation,eager", 2);
}

/// One part of a transaction runs again, since it has read what another one wrote which aborts, while its other part
/// runs for the first time.
#[test]
fn a_part_runs_beside_one_that_runs_again() {
    let mut transactions = model::aborts_side_by_side(2);
    let [first, other] = [0, 1].map(|t: usize| transactions[t].1[0].row);
    transactions.truncate(1);
    transactions.push((2, vec![Access::writes(first, 0), Access::writes(other, 1)]));
    check_transactions(transactions, "operation,eager", 2, 2);
}
