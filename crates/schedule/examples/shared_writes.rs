//! Writes of workers to the cache lines that they share, per transaction: counters, claims, states and locks of the
//! executor.
//!
//! A line that one worker writes has to come to the next that reads or writes it, some 100 ns away on a large machine.
//! So these writes, and not the arithmetic, bound how far more workers help; and they can be counted where there are
//! fewer processors. Streaming Ledger over 100,000 rows in each table, epochs of 4,096 transactions; nothing is done in
//! them. Where transactions are taken apart, each operation is a part. One thread makes the steps of all workers, in an order that a
//! seed gives, so the counts are the same everywhere. Waiting and the other stages are not counted.
//!
//! `cargo run --release -p tidemill-schedule --features counted --example shared_writes`

use tidemill_schedule::{Execute, Executor, Participant, Policy, Progress, Worker, shared_writes};
use tidemill_txn::sample::{self, Random, Zipf};
use tidemill_txn::{AccessBuffer, Partitioning, SortedAccesses, Use, UseBuffer};

const TRANSACTIONS: usize = 4_096;
const ROWS: u64 = 100_000;
const WORKERS: [usize; 5] = [1, 2, 4, 8, 16];

/// Transactions that do nothing and never abort.
struct Nothing {
    /// A flag: whether transactions are taken apart into operations.
    apart: bool,
}

impl Execute for Nothing {
    fn execute(&self, _worker: usize, _unit: u32) {}

    fn is_apart(&self, _transaction: u32) -> bool {
        self.apart
    }

    fn judge(&self, _worker: usize, _transaction: u32) -> bool {
        false
    }
}

/// Each row is written: by a part of its own, if transactions are in parts.
fn uses(epoch: &AccessBuffer, apart: bool) -> UseBuffer {
    let mut uses = UseBuffer::default();
    for slots in epoch.accesses().op_start().windows(2) {
        let count = slots[1] - slots[0];
        uses.uses.extend((0..count).map(|part| Use::new(u32::from(apart) << part, true)));
        uses.parts.push(if apart { count as u8 } else { 0 });
    }
    uses
}

/// Returns the writes of an epoch, per transaction.
fn writes(epoch: &AccessBuffer, policy: Policy, workers: usize) -> f64 {
    let nothing = Nothing { apart: policy.takes_apart() };
    let mut run = SortedAccesses::new();
    run.partition(Partitioning::for_accesses(epoch.len()), epoch.accesses());
    let mut executor = Executor::new(workers);
    executor.prepare(&mut vec![run]);
    executor.arrange(policy, epoch.accesses(), &uses(epoch, nothing.apart));
    let before = shared_writes();
    let mut workers: Vec<Worker> = (0..workers).map(Worker::new).collect();
    let mut present: Vec<Participant<'_, Nothing>> =
        workers.iter_mut().map(|worker| executor.join(worker, &nothing)).collect();
    let mut random = Random::new(1);
    while !present.is_empty() {
        let at = random.below(present.len() as u64) as usize;
        if present[at].step() == Progress::Done {
            drop(present.swap_remove(at));
        }
    }
    (shared_writes() - before) as f64 / TRANSACTIONS as f64
}

fn main() {
    for theta in [0.2, 0.99] {
        let epoch = sample::ledger(&mut Random::new(7), TRANSACTIONS, &Zipf::new(ROWS, theta));
        println!("theta {theta}: writes to what is shared, per transaction, by workers");
        print!("{:>28}", "");
        WORKERS.iter().for_each(|workers| print!(" {workers:>7}"));
        println!();
        for policy in Policy::all().into_iter().filter(|policy| *policy != Policy::EPOCH) {
            print!("{:>28}", policy.to_string());
            WORKERS.iter().for_each(|&workers| print!(" {:>7.2}", writes(&epoch, policy, workers)));
            println!();
        }
    }
}
