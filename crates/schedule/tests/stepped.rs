//! Epochs on one thread: a seed says which worker makes the next step. Results must be those of the serial order,
//! under every policy, and the same seed gives the same run.
#![cfg(not(feature = "loom"))]

mod model;

use model::Model;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidemill_schedule::{Abort, Execute, Executor, Granularity, Participant, Policy, Progress, Worker};
use tidemill_txn::sample::{self, Random};
use tidemill_txn::{AccessBuffer, Partitioning, RowId, SortedAccesses, Use, UseBuffer};

/// Returns every policy that explores a graph, in every way to share.
fn parallel_policies() -> Vec<Policy> {
    let all = Policy::all().into_iter().filter(|policy| policy.granularity != Granularity::Epoch);
    let all: Vec<Policy> = all.flat_map(Policy::in_ways_to_share).collect();
    assert_eq!(all.len(), 24 + 4 * 8);
    all
}

/// Runs units, and keeps which worker ran which unit, in order.
struct Traced<'a, E> {
    execute: &'a E,
    trace: Mutex<Vec<(usize, u32)>>,
}

impl<'a, E: Execute> Traced<'a, E> {
    fn new(execute: &'a E) -> Self {
        Traced { execute, trace: Mutex::default() }
    }

    fn trace(self) -> Vec<(usize, u32)> {
        self.trace.into_inner().expect("nobody panics")
    }
}

impl<E: Execute> Execute for Traced<'_, E> {
    fn execute(&self, worker: usize, unit: u32) {
        self.trace.lock().expect("nobody panics").push((worker, unit));
        self.execute.execute(worker, unit);
    }

    fn is_apart(&self, transaction: u32) -> bool {
        self.execute.is_apart(transaction)
    }

    fn judge(&self, worker: usize, transaction: u32) -> bool {
        self.execute.judge(worker, transaction)
    }

    fn revert(&self, worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
        self.execute.revert(worker, transaction, changed);
    }

    fn redo(&self, worker: usize, transaction: u32, parts: u32, judged: bool, changed: &mut dyn FnMut(u32)) -> bool {
        self.execute.redo(worker, transaction, parts, judged, changed)
    }
}

/// Rows that are hashes of their history: equal exactly if the same transactions met them in the same order.
struct Rows<'a> {
    epoch: &'a AccessBuffer,
    rows: Vec<AtomicU64>,
}

impl<'a> Rows<'a> {
    fn new(epoch: &'a AccessBuffer) -> Self {
        let rows = epoch.accesses().rows().iter().map(|row| (row.0 >> 20) + 1).max().unwrap_or(0);
        Rows { epoch, rows: (0..rows).map(AtomicU64::new).collect() }
    }

    fn result(self) -> Vec<u64> {
        self.rows.into_iter().map(AtomicU64::into_inner).collect()
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

impl Execute for Rows<'_> {
    fn execute(&self, _worker: usize, transaction: u32) {
        let rows =
            || self.epoch.accesses().rows_of(transaction as usize).iter().map(|row| &self.rows[(row.0 >> 20) as usize]);
        let seen = rows().fold(u64::from(transaction) + 1, |seen, row| mix(seen ^ row.load(Relaxed)));
        rows().for_each(|row| row.store(mix(row.load(Relaxed) ^ seen), Relaxed));
    }
}

/// Runs an epoch with this many workers, on this thread. They come one after the other, some of them late.
fn drive<E: Execute>(executor: &Executor, execute: &E, workers: usize, random: &mut Random) {
    let mut workers: Vec<Worker> = (0..workers).map(Worker::new).collect();
    let mut absent: Vec<&mut Worker> = workers.iter_mut().collect();
    let mut present: Vec<Participant<'_, E>> = Vec::new();
    let mut starved = 0;
    while !present.is_empty() || !absent.is_empty() {
        let at = random.below((present.len() + usize::from(!absent.is_empty())) as u64) as usize;
        if at == present.len() {
            present.push(executor.join(absent.pop().expect("a worker"), execute));
            continue;
        }
        match present[at].step() {
            Progress::Advanced => starved = 0,
            Progress::Starved => starved += 1,
            Progress::Done => drop(present.swap_remove(at)),
        }
        assert!(starved < 1000, "all of {} workers starve", present.len());
    }
}

/// Returns an epoch on rows in place, prepared for `size` workers.
fn in_place(epoch: &AccessBuffer, policy: Policy, size: usize, random: &mut Random) -> Executor {
    in_place_on(Executor::new(size), epoch, policy, random)
}

/// Prepares an epoch for workers in place, on an executor that exists.
fn in_place_on(mut executor: Executor, epoch: &AccessBuffer, policy: Policy, random: &mut Random) -> Executor {
    let mut run = SortedAccesses::new();
    run.partition(Partitioning::with_bits(random.below(4) as u32), epoch.accesses());
    executor.prepare(&mut vec![run]);
    executor.arrange(policy, epoch.accesses(), &UseBuffer::default());
    executor
}

fn check_in_place(policy: Policy, seed: u64, workers: usize) -> Vec<(usize, u32)> {
    let mut random = Random::new(seed);
    // Some have strata from which several units are claimed at once.
    let epoch = sample::mixed(&mut random, if seed.is_multiple_of(3) { 1500 } else { 200 });
    let (rows, serial) = (Rows::new(&epoch), Rows::new(&epoch));
    (0..epoch.accesses().transactions() as u32).for_each(|transaction| serial.execute(0, transaction));
    let executor = in_place(&epoch, policy, 4, &mut random);
    let traced = Traced::new(&rows);
    drive(&executor, &traced, workers, &mut random);
    let trace = traced.trace();
    assert_eq!(trace.len(), epoch.accesses().transactions(), "seed {seed}: {policy}, {workers} workers");
    assert!(rows.result() == serial.result(), "seed {seed}: {policy}, {workers} workers: not the serial result");
    trace
}

/// Returns an epoch on versions; `changes` what the executor is told of how rows are used.
fn on_versions(policy: Policy, random: &mut Random, seed: u64, changes: impl FnOnce(&mut [Use])) -> Model {
    let rows = [2, 6, 50][random.below(3) as usize];
    let count = if seed.is_multiple_of(3) { 600 } else { random.below(100) };
    let transactions = (0..count).map(|_| model::random_transaction(random, rows)).collect();
    let aborting = [0, 1, 2, 3, 10][random.below(5) as usize];
    // In turn on one socket, and every other worker on another.
    let sockets: Vec<usize> = (0..4).map(|worker| worker % (1 + seed as usize % 2)).collect();
    Model::told(transactions, aborting, policy, &sockets, changes)
}

fn check_on_versions(policy: Policy, seed: u64, workers: usize) -> Vec<(usize, u32)> {
    let mut random = Random::new(seed);
    let model = on_versions(policy, &mut random, seed, |_| {});
    let traced = Traced::new(&model);
    drive(&model.executor, &traced, workers, &mut random);
    assert_eq!(model.result(), model.expected(), "seed {seed}: {policy}, {workers} workers");
    traced.trace()
}

fn check(policy: Policy, seed: u64, workers: usize) -> Vec<(usize, u32)> {
    match policy.on_versions() {
        true => check_on_versions(policy, seed, workers),
        false => check_in_place(policy, seed, workers),
    }
}

#[test]
fn workers_driven_by_a_seed_end_as_serially() {
    for policy in parallel_policies() {
        let mut shared = 0;
        for seed in 0..150 {
            let workers = 1 + seed as usize % 4;
            let trace = check(policy, seed, workers);
            shared += usize::from((1..workers).all(|worker| trace.iter().any(|&(other, _)| other == worker)));
        }
        assert!(shared > 75, "{policy}: only {shared} epochs were shared out among all workers");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for policy in parallel_policies() {
        for seed in 0..10 {
            assert_eq!(check(policy, seed, 3), check(policy, seed, 3), "seed {seed}: {policy}");
        }
    }
}

/// The executor is made for four workers; one comes, and waits for no other.
#[test]
fn a_worker_that_is_never_helped_completes_every_policy() {
    for policy in parallel_policies() {
        for seed in 0..20 {
            check(policy, seed, 1);
        }
        // Without steps, `work` waits for what it lacks, and here it must lack nothing.
        let mut random = Random::new(3);
        if policy.on_versions() {
            let transactions = (0..300).map(|_| model::random_transaction(&mut random, 6)).collect();
            let model = Model::new(transactions, 3, policy, &[0, 1, 0, 1]);
            model.work(0);
            assert_eq!(model.result(), model.expected(), "{policy}");
        } else {
            assert_eq!(policy.abort, Abort::VoteFirst);
            let epoch = sample::mixed(&mut random, 500);
            let (rows, serial) = (Rows::new(&epoch), Rows::new(&epoch));
            (0..epoch.accesses().transactions() as u32).for_each(|transaction| serial.execute(0, transaction));
            in_place(&epoch, policy, 4, &mut random).work(&mut Worker::new(2), &rows);
            assert!(rows.result() == serial.result(), "{policy}");
        }
    }
}

/// A bug on purpose: what the executor is told of an epoch is wrong, or one of its calls does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A write is taken for a read, so what follows in the chain depends on the write before.
    ForgetsWrites,
    /// A part does not wait for a row that it reads.
    ForgetsReaders,
    /// An abort is not found.
    LosesVotes,
    /// The writes of an aborted transaction stay.
    KeepsAborted,
    /// A transaction that has read the values of an abort is no part of the repair.
    HidesAborts,
    /// The transactions that an abort affects are not run again.
    SkipsRedo,
    /// A transaction that has read values that a repair has replaced is no part of the repair.
    HidesRedos,
}

impl Bug {
    const ALL: [Bug; 7] = [
        Bug::ForgetsWrites,
        Bug::ForgetsReaders,
        Bug::LosesVotes,
        Bug::KeepsAborted,
        Bug::HidesAborts,
        Bug::SkipsRedo,
        Bug::HidesRedos,
    ];

    /// Returns whether a policy has the code that the bug is in.
    fn is_in(self, policy: Policy) -> bool {
        match self {
            Bug::ForgetsWrites => policy.on_versions(),
            Bug::ForgetsReaders | Bug::LosesVotes | Bug::KeepsAborted => policy.takes_apart(),
            Bug::HidesAborts | Bug::SkipsRedo | Bug::HidesRedos => policy.speculates(),
        }
    }

    /// Plants the bug in every fourth use that it can be in.
    fn tell(self, uses: &mut [Use]) {
        let told = |used: &Use| match self {
            Bug::ForgetsWrites if used.writes() => Use::new(used.parts(), false),
            Bug::ForgetsReaders if !used.writes() => Use::new(used.parts() & used.parts().wrapping_sub(1), false),
            _ => *used,
        };
        let other = uses.iter_mut().filter(|used| told(used) != **used);
        other.step_by(4).for_each(|used| *used = told(used));
    }
}

/// Runs units with a bug.
struct Buggy<'a> {
    model: &'a Model,
    bug: Option<Bug>,
}

impl Execute for Buggy<'_> {
    fn execute(&self, worker: usize, unit: u32) {
        self.model.execute(worker, unit);
    }

    fn is_apart(&self, transaction: u32) -> bool {
        self.model.is_apart(transaction)
    }

    fn judge(&self, worker: usize, transaction: u32) -> bool {
        self.bug != Some(Bug::LosesVotes) && self.model.judge(worker, transaction)
    }

    fn revert(&self, worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
        match self.bug {
            Some(Bug::KeepsAborted) => {}
            Some(Bug::HidesAborts) => self.model.revert(worker, transaction, &mut |_| {}),
            _ => self.model.revert(worker, transaction, changed),
        }
    }

    fn redo(&self, worker: usize, transaction: u32, parts: u32, judged: bool, changed: &mut dyn FnMut(u32)) -> bool {
        match self.bug {
            Some(Bug::SkipsRedo) => false,
            Some(Bug::HidesRedos) => self.model.redo(worker, transaction, parts, judged, &mut |_| {}),
            _ => self.model.redo(worker, transaction, parts, judged, changed),
        }
    }
}

/// Returns whether an epoch ends otherwise than serially.
fn differs(policy: Policy, seed: u64, bug: Option<Bug>) -> bool {
    let mut random = Random::new(seed);
    let model = on_versions(policy, &mut random, seed, |uses| bug.iter().for_each(|bug| bug.tell(uses)));
    drive(&model.executor, &Buggy { model: &model, bug }, 3, &mut random);
    model.result() != model.expected()
}

/// Each shows in the result of some epoch, which is right without the bug.
#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL {
        for policy in parallel_policies().into_iter().filter(|policy| bug.is_in(*policy)) {
            let found = (0..60).find(|&seed| differs(policy, seed, Some(bug)));
            let seed = found.unwrap_or_else(|| panic!("{bug:?} was not found under {policy}"));
            assert!(!differs(policy, seed, None), "seed {seed}: {policy} differs without {bug:?}, too");
        }
    }
}

/// Transactions that wait for nothing, on these rows: which of two workers runs each, if the first one steps until it
/// starves before the second one comes.
fn one_after_the_other(policy: &str, rows: &[u64]) -> Vec<usize> {
    one_after_the_other_on(Executor::new(2), policy, rows)
}

/// Returns which of the executor's two workers runs each transaction, as `one_after_the_other` does.
fn one_after_the_other_on(executor: Executor, policy: &str, rows: &[u64]) -> Vec<usize> {
    let mut epoch = AccessBuffer::new();
    rows.iter().for_each(|&row| epoch.push([RowId(row << 20)]));
    let rows = Rows::new(&epoch);
    let policy = policy.parse().expect("a policy");
    let executor = in_place_on(executor, &epoch, policy, &mut Random::new(1));
    let traced = Traced::new(&rows);
    let mut workers = [0, 1].map(Worker::new);
    let mut present: Vec<Participant<'_, _>> =
        workers.iter_mut().map(|worker| executor.join(worker, &traced)).collect();
    for participant in &mut present {
        while participant.step() == Progress::Advanced {}
    }
    present.iter_mut().for_each(|participant| assert_eq!(participant.step(), Progress::Done));
    drop(present);
    let mut trace = traced.trace();
    trace.sort_unstable_by_key(|&(_, unit)| unit);
    trace.into_iter().map(|(worker, _)| worker).collect()
}

/// Rows are on the sockets that they were placed on, in whatever order the workers come from these.
#[test]
fn a_placed_row_is_run_on_its_socket() {
    let rows: Vec<u64> = (0..400).map(|row| row * row % 401).collect();
    for sockets in [[0, 1], [1, 0]] {
        for policy in ["transaction,shared-per-socket,patient", "transaction,shared-nothing,patient"] {
            let mut executor = Executor::on_sockets(&sockets);
            executor.place(|row| (row.0 >> 20) as usize % 2);
            let ran = one_after_the_other_on(executor, policy, &rows);
            let homes = ran.iter().zip(&rows).map(|(&worker, &row)| (sockets[worker], row as usize % 2));
            assert!(homes.into_iter().all(|(socket, home)| socket == home), "{policy}, {sockets:?}");
        }
    }
}

#[test]
fn a_row_stays_with_its_owner_until_one_waits_in_vain() {
    let (rows, others): (Vec<u64>, Vec<u64>) = ((0..400).collect(), (0..400).rev().chain(900..1300).collect());
    for policy in ["transaction", "transaction,shared-nothing", "transaction,shared-per-socket,patient"] {
        // Nothing is another's, or it is stolen, or all are on one socket.
        assert_eq!(one_after_the_other(policy, &rows), [0; 400], "{policy}");
    }
    let patient = "transaction,shared-nothing,patient";
    let (first, second) = (one_after_the_other(patient, &rows), one_after_the_other(patient, &others));
    let of_first = first.iter().filter(|&&worker| worker == 0).count();
    assert!((100..300).contains(&of_first), "the first of two workers owns {of_first} of 400 rows");
    assert!(first.iter().eq(second[..400].iter().rev()), "a row has another owner in another epoch");
}

/// Far more workers than processors: each step that finds nothing must give the processor away in the end.
#[test]
fn many_more_workers_than_processors_complete_every_policy() {
    for policy in parallel_policies().into_iter().filter(|policy| policy.on_versions()) {
        let mut random = Random::new(5);
        let transactions = (0..400).map(|_| model::random_transaction(&mut random, 6)).collect();
        let model = Model::new(transactions, 3, policy, &[0; 32]);
        std::thread::scope(|scope| {
            for id in 0..32 {
                let model = &model;
                scope.spawn(move || model.work(id));
            }
        });
        assert_eq!(model.result(), model.expected(), "{policy}");
    }
}

#[test]
#[should_panic(expected = "worker 0 leaves with units in its hands")]
fn a_worker_that_leaves_with_units_is_a_bug() {
    let epoch = sample::ledger(&mut Random::new(1), 500, &sample::Zipf::new(100, 0.0));
    struct Nothing;
    impl Execute for Nothing {
        fn execute(&self, _worker: usize, _unit: u32) {}
    }
    let executor = in_place(&epoch, Policy::TRANSACTION, 1, &mut Random::new(2));
    let mut worker = Worker::new(0);
    let mut participant = executor.join(&mut worker, &Nothing);
    (0..20).for_each(|_| assert_eq!(participant.step(), Progress::Advanced));
}
