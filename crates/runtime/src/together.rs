//! An epoch that all free workers access together.

use crate::access::{Located, RowWork, ensure_identity};
use crate::epoch::Epoch;
use crate::versions::{Desk, VersionWork, Versions};
use crate::worker::{Machine, Scratch};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_compile::AccessContext;
use tidemill_schedule::{Abort, Executor, Policy, Worker};
use tidemill_txn::{Partitioning, Run};

/// What access together needs; kept from epoch to epoch.
pub struct Memory {
    located: Located,
    versions: Versions,
    executor: Executor,
    /// One per worker.
    desks: Vec<Mutex<(Box<AccessContext>, Desk)>>,
}

impl Memory {
    /// For so many workers.
    pub fn new(machine: &Machine, workers: usize) -> Self {
        let desk = |_| Mutex::new((AccessContext::new(&machine.code.emission_types, false), Desk::default()));
        Memory {
            located: Located::default(),
            versions: Versions::default(),
            executor: Executor::new(workers),
            desks: (0..workers).map(desk).collect(),
        }
    }
}

/// An epoch that all free workers access together.
pub struct Job {
    epoch: Box<Epoch>,
    policy: Policy,
    memory: Memory,
    done: AtomicBool,
}

impl Job {
    /// Locates the epoch's transactions and arranges for its policy, on one worker.
    pub fn new(machine: &Machine, mut memory: Memory, epoch: Box<Epoch>) -> Job {
        let policy = possible(machine, epoch.policy);
        let Memory { located, versions, executor, .. } = &mut memory;
        located.fill(machine, &epoch);
        let mut run = Run::new();
        run.partition(Partitioning::for_accesses(located.accesses().rows().len()), located.accesses());
        executor.prepare(&mut vec![run]);
        if policy.on_versions() {
            versions.fill(machine, &epoch, located, policy.speculates());
        }
        executor.arrange(policy, located.accesses(), &versions.uses);
        Job { epoch, policy, memory, done: AtomicBool::new(false) }
    }

    /// Whether nobody need help any more.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Takes part until all has run.
    pub fn help(&self, machine: &Machine, scratch: &mut Scratch, worker: &mut Worker) {
        if self.is_done() {
            return;
        }
        ensure_identity(&self.epoch, &mut scratch.identity);
        let Memory { located, versions, executor, desks } = &self.memory;
        if self.policy.on_versions() {
            let (graph, flow) = (executor.graph(), executor.flow());
            let identity = &scratch.identity;
            let work = VersionWork::new(machine, &self.epoch, located, versions, graph, flow, desks, identity);
            executor.work(worker, &work);
        } else {
            let work = RowWork::new(machine, &self.epoch, located, desks, &scratch.identity);
            executor.work(worker, &work);
        }
    }

    /// Ends it, when all has run, for the worker that began it: its epoch, and what is kept.
    pub fn end(mut job: Arc<Job>, machine: &Machine) -> (Box<Epoch>, Memory) {
        job.done.store(true, Ordering::Release);
        // Helpers are on their way out; the last one's reference makes the job ours alone.
        let mut job = loop {
            match Arc::try_unwrap(job) {
                Ok(own) => break own,
                Err(shared) => job = shared,
            }
            std::hint::spin_loop();
        };
        let Memory { located, versions, executor, desks } = &mut job.memory;
        if job.policy.on_versions() {
            versions.install(machine, located, executor.graph(), executor.flow());
        }
        for desk in desks {
            job.epoch.gathered.push(desk.get_mut().0.take());
        }
        (job.epoch, job.memory)
    }
}

/// The policy, without speculation where the program forbids it: an event that was emitted, or a text that
/// was replaced, could not be taken back.
fn possible(machine: &Machine, policy: Policy) -> Policy {
    let forbids = |t: &tidemill_plan::Transaction| !t.emits.is_empty() || t.sets_text(&machine.program);
    match machine.program.transactions.iter().any(forbids) {
        true => Policy { abort: Abort::VoteFirst, ..policy },
        false => policy,
    }
}
