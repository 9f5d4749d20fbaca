//! An epoch that all free workers access together.

use crate::access::{Located, RowWork, ensure_identity};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::versions::{Desk, VersionWork, Versions};
use crate::worker::{Machine, Scratch};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_compile::AccessContext;
use tidemill_schedule::{Abort, Baseline, Breakdown, Execute, Executor, Policy, Scheme, Worker};
use tidemill_txn::{Flow, Graph, Partitioning, Run, Survey, Surveyor};

/// What access together needs; kept from epoch to epoch.
pub struct Memory {
    located: Located,
    runs: Vec<Run>,
    versions: Versions,
    executor: Executor,
    baseline: Baseline,
    surveyor: Surveyor,
    /// One per worker.
    desks: Vec<Mutex<(Box<AccessContext>, Desk)>>,
}

impl Memory {
    /// For so many workers.
    pub fn new(machine: &Machine, workers: usize) -> Self {
        let desk = |_| Mutex::new((AccessContext::new(&machine.code.emission_types, false), Desk::default()));
        Memory {
            located: Located::default(),
            runs: Vec::new(),
            versions: Versions::new(machine),
            executor: Executor::new(workers),
            baseline: Baseline::new(),
            surveyor: Surveyor::default(),
            desks: (0..workers).map(desk).collect(),
        }
    }

    /// Looks at the first transactions of a part of an epoch's order. `cost`: what those of each input cost.
    pub fn survey(
        &mut self,
        machine: &Machine,
        epoch: &Epoch,
        range: &Range<usize>,
        (workers, cost): (usize, &dyn Fn(usize) -> f64),
    ) -> Survey {
        let Memory { located, versions, surveyor, .. } = self;
        located.fill(machine, epoch, &(range.start..range.end.min(range.start + SURVEYED_MAX)));
        versions.fill(machine, epoch, located, true);
        let weight = |transaction: u32| cost(located.at()[transaction as usize].0 as usize);
        surveyor.survey(located.buffer(), &versions.uses, workers, weight)
    }

    fn flow(&self, method: Method) -> (&Graph, &Flow) {
        match method {
            Method::Policy(_) => (self.executor.graph(), self.executor.flow()),
            Method::Scheme(_) => (self.baseline.graph(), self.baseline.flow()),
        }
    }
}

/// Transactions that are looked at.
const SURVEYED_MAX: usize = 2048;

/// Under which policy, or as which system before.
#[derive(Clone, Copy)]
pub enum Method {
    Policy(Policy),
    Scheme(Scheme),
}

impl Method {
    fn on_versions(self) -> bool {
        match self {
            Method::Policy(policy) => policy.on_versions(),
            Method::Scheme(scheme) => scheme.on_versions(),
        }
    }
}

/// An epoch that all free workers access together.
pub struct Job {
    epoch: Box<Epoch>,
    method: Method,
    memory: Memory,
    done: AtomicBool,
    /// Of the workers that took part.
    breakdown: Mutex<Breakdown>,
}

impl Job {
    /// Locates a part of the epoch's order and arranges for its policy, or for a scheme instead, on one worker.
    pub fn new(
        machine: &Machine,
        mut memory: Memory,
        epoch: Box<Epoch>,
        range: &Range<usize>,
        scheme: Option<Scheme>,
    ) -> Job {
        let Memory { located, runs, versions, executor, baseline, .. } = &mut memory;
        located.fill(machine, &epoch, range);
        let method = match scheme {
            None => {
                let policy = possible(machine, epoch.choice.policy);
                // What comes back are those of the epoch before.
                runs.resize_with(1, Run::new);
                runs[0].partition(Partitioning::for_accesses(located.accesses().rows().len()), located.accesses());
                executor.prepare(runs);
                if policy.on_versions() {
                    versions.fill(machine, &epoch, located, policy.speculates());
                }
                executor.arrange(policy, located.accesses(), &versions.uses);
                Method::Policy(policy)
            }
            Some(scheme) => {
                match scheme.on_versions() {
                    true => versions.fill(machine, &epoch, located, scheme.speculates() && may_redo(machine)),
                    false => versions.fill_uses(machine, &epoch, located),
                }
                baseline.prepare(scheme, located.accesses(), &versions.uses);
                Method::Scheme(scheme)
            }
        };
        let breakdown = Mutex::new(Breakdown::default());
        Job { epoch, method, memory, done: AtomicBool::new(false), breakdown }
    }

    /// Whether nobody need help any more.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Takes part until all has run.
    pub fn help(&self, machine: &Machine, environment: &dyn Environment, scratch: &mut Scratch, worker: &mut Worker) {
        if self.is_done() {
            return;
        }
        let start = environment.now();
        ensure_identity(&self.epoch, &mut scratch.identity);
        let Memory { located, versions, desks, .. } = &self.memory;
        if self.method.on_versions() {
            let (graph, flow) = self.memory.flow(self.method);
            let identity = &scratch.identity;
            let work =
                VersionWork::new(machine, environment, &self.epoch, located, versions, graph, flow, desks, identity);
            self.work(worker, &work);
        } else {
            let identity = &scratch.identity;
            self.work(worker, &RowWork::new(machine, environment, &self.epoch, located, desks, identity));
        }
        let mut times = worker.take_times();
        times.other += (environment.now() - start).saturating_sub(times.total());
        self.breakdown.lock().add(&times);
    }

    fn work<E: Execute>(&self, worker: &mut Worker, execute: &E) {
        let Memory { located, versions, executor, baseline, .. } = &self.memory;
        match self.method {
            Method::Policy(_) => executor.work(worker, execute),
            Method::Scheme(_) => baseline.work(worker, located.accesses(), &versions.uses, execute),
        }
    }

    /// Ends it, when all has run, for the worker that began it: its epoch, and what is kept.
    pub fn end(mut job: Arc<Job>) -> (Box<Epoch>, Memory) {
        job.done.store(true, Ordering::Release);
        // Helpers are on their way out; the last one's reference makes the job ours alone.
        let mut job = loop {
            match Arc::try_unwrap(job) {
                Ok(own) => break own,
                Err(shared) => job = shared,
            }
            std::hint::spin_loop();
        };
        let Memory { located, versions, executor, baseline, desks, .. } = &mut job.memory;
        let (graph, flow) = match job.method {
            Method::Policy(policy) => {
                job.epoch.choice.policy = policy;
                job.epoch.redone = executor.redone();
                (executor.graph(), executor.flow())
            }
            Method::Scheme(_) => (baseline.graph(), baseline.flow()),
        };
        if job.method.on_versions() {
            versions.install(located, graph, flow);
        }
        for desk in desks {
            let (context, desk) = desk.get_mut();
            job.epoch.gathered.push(context.take());
            desk.take_sampled(&mut job.epoch.sampled);
        }
        job.epoch.breakdown.add(job.breakdown.get_mut());
        (job.epoch, job.memory)
    }
}

/// The policy, without speculation where the program forbids it.
fn possible(machine: &Machine, policy: Policy) -> Policy {
    match policy.speculates() && !may_redo(machine) {
        true => Policy { abort: Abort::VoteFirst, ..policy },
        false => policy,
    }
}

/// Whether transactions may be run again: an event that was emitted, or a text that was replaced, could not be
/// taken back.
pub fn may_redo(machine: &Machine) -> bool {
    let forbids = |t: &tidemill_plan::Transaction| !t.emits.is_empty() || t.sets_text(&machine.program);
    !machine.program.transactions.iter().any(forbids)
}
