//! The stages of neighbouring epochs, overlapping: what each worker does next.
//!
//! # Protocol
//!
//! 1. The gate puts a gathered epoch in.
//! 2. Any worker prepares it, beside the access of epochs before.
//! 3. The prepared epoch with the next number is accessed, one epoch at a time: by one worker
//!    (`Epoch`), or by all that are free.
//! 4. Any worker finishes it, beside the access of epochs after.
//! 5. The committer takes finished epochs in order.
//!
//! Access comes first, since everything waits for it; a worker that finds it taken prepares if
//! nothing stands prepared, else finishes, else prepares further. The number of epochs is fixed, which
//! bounds memory: the gate waits for one to come back.

use crate::access::{ensure_identity, run_serially};
use crate::durable::{Captured, changes};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::options::Scheduling;
use crate::together::{Job, Memory};
use crate::worker::{Machine, Scratch};
use crate::{cascade, finish, prepare};
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tidemill_schedule::{Choice, Decision, EpochCost, Granularity, Policy, Reason, Scheme, Worker};

/// What the workers share.
pub struct Pipeline {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    scheduling: Scheduling,
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    gathered: VecDeque<Box<Epoch>>,
    prepared: BTreeMap<u64, Box<Epoch>>,
    preparing: usize,
    next_access: u64,
    accessing: bool,
    accessed: VecDeque<Box<Epoch>>,
    job: Option<Arc<Job>>,
    /// Kept between such jobs.
    spare: Option<Memory>,
    closed: bool,
    stopped: bool,
    decision: Decision,
}

/// What a worker does next.
enum Task {
    Prepare(Box<Epoch>),
    Access(Box<Epoch>),
    Help(Arc<Job>),
    Finish(Box<Epoch>),
}

impl Pipeline {
    /// For so many workers; `first` is the number of the first epoch.
    pub fn new(
        machine: Arc<Machine>,
        environment: Arc<dyn Environment>,
        scheduling: Scheduling,
        workers: usize,
        first: u64,
    ) -> Self {
        let state = State {
            gathered: VecDeque::new(),
            prepared: BTreeMap::new(),
            preparing: 0,
            next_access: first,
            accessing: false,
            accessed: VecDeque::new(),
            job: None,
            spare: None,
            closed: false,
            stopped: false,
            decision: Decision::new(workers),
        };
        Pipeline { machine, environment, scheduling, workers, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts a gathered epoch in.
    pub fn put(&self, epoch: Box<Epoch>) {
        self.state.lock().gathered.push_back(epoch);
        self.changed.notify_one();
    }

    /// No more epochs will be put in.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Something failed: workers leave as soon as they can.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Whether the access stage would find nothing to do after what it does now.
    pub fn would_idle(&self) -> bool {
        let state = self.state.lock();
        state.gathered.is_empty() && state.prepared.is_empty() && state.preparing == 0
    }

    /// A worker's life. Finished epochs go to `finished`.
    pub fn work(&self, id: usize, finished: &Sender<Box<Epoch>>) {
        let mut scratch = Scratch::new(&self.machine, self.workers);
        let mut worker = Worker::new(id);
        while let Some(task) = self.next_task() {
            match task {
                Task::Prepare(epoch) => self.prepare(&mut scratch, epoch),
                Task::Access(epoch) => self.access(&mut scratch, &mut worker, epoch),
                Task::Help(job) => job.help(&self.machine, &mut scratch, &mut worker),
                Task::Finish(epoch) => {
                    let epoch = self.finish(&mut scratch, epoch);
                    if finished.send(epoch).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(task) = state.pick() {
                return Some(task);
            }
            if state.closed && state.is_empty() {
                self.changed.notify_all();
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn prepare(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) {
        let start = self.environment.now();
        prepare::prepare(&self.machine, scratch, &mut epoch);
        epoch.times.prepare = self.environment.now() - start;
        let mut state = self.state.lock();
        state.preparing -= 1;
        state.prepared.insert(epoch.number, epoch);
        drop(state);
        self.changed.notify_one();
    }

    fn access(&self, scratch: &mut Scratch, worker: &mut Worker, mut epoch: Box<Epoch>) {
        let start = self.environment.now();
        changes::save(&self.machine, &epoch);
        epoch.choice = self.choose(&epoch);
        if self.machine.wiring.cascades {
            cascade::run(&self.machine, scratch, &mut epoch);
            epoch.gathered.push(scratch.context.take());
        } else if let Some(scheme) = self.scheme() {
            epoch = self.access_together(scratch, worker, epoch, Some(scheme));
        } else if epoch.choice.policy.granularity == Granularity::Epoch {
            ensure_identity(&epoch, &mut scratch.identity);
            run_serially(&self.machine, &epoch, &mut scratch.context, &scratch.identity);
            epoch.gathered.push(scratch.context.take());
        } else {
            epoch = self.access_together(scratch, worker, epoch, None);
        }
        epoch.times.access = self.environment.now() - start;
        if let Some(due) = epoch.due.take() {
            epoch.captured = Some(Captured::begin(&self.machine, epoch.number, due));
        }
        let mut state = self.state.lock();
        state.accessing = false;
        state.next_access += 1;
        state.accessed.push_back(epoch);
        drop(state);
        self.changed.notify_all();
    }

    fn choose(&self, epoch: &Epoch) -> Choice {
        let transactions: usize = epoch.inputs.iter().map(|i| i.len).sum();
        match self.scheduling {
            _ if self.machine.wiring.cascades => Choice { policy: Policy::EPOCH, reason: Reason::OneByOne },
            Scheduling::Fixed(policy) => Choice { policy, reason: Reason::Fixed },
            // The scheme stands in for the policy.
            Scheduling::Baseline(_) => Choice { policy: Policy::EPOCH, reason: Reason::Fixed },
            Scheduling::Auto => self.state.lock().decision.choose(transactions as u32),
        }
    }

    /// The scheme to measure, if any. Workers that race must not replace texts, whose memory they would free twice.
    fn scheme(&self) -> Option<Scheme> {
        let program = &self.machine.program;
        let sets_text = || program.transactions.iter().any(|transaction| transaction.sets_text(program));
        match self.scheduling {
            Scheduling::Baseline(Scheme::NoLock) if sets_text() => None,
            Scheduling::Baseline(scheme) => Some(scheme),
            _ => None,
        }
    }

    /// Accesses an epoch together with whoever is free.
    fn access_together(
        &self,
        scratch: &mut Scratch,
        worker: &mut Worker,
        epoch: Box<Epoch>,
        scheme: Option<Scheme>,
    ) -> Box<Epoch> {
        let spare = self.state.lock().spare.take();
        let memory = spare.unwrap_or_else(|| Memory::new(&self.machine, self.workers));
        let job = Arc::new(Job::new(&self.machine, memory, epoch, scheme));
        self.state.lock().job = Some(job.clone());
        self.changed.notify_all();
        job.help(&self.machine, scratch, worker);
        self.state.lock().job = None;
        let (epoch, memory) = Job::end(job);
        self.state.lock().spare = Some(memory);
        epoch
    }

    fn finish(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) -> Box<Epoch> {
        let start = self.environment.now();
        finish::finish(&self.machine, scratch, &mut epoch);
        epoch.times.finish = self.environment.now() - start;
        if self.scheduling == Scheduling::Auto && !self.machine.wiring.cascades {
            let rows = |input: &crate::input::Input| input.rows.iter().map(Vec::len).sum::<usize>();
            self.state.lock().decision.record(EpochCost {
                policy: epoch.choice.policy,
                transactions: epoch.inputs.iter().map(|i| i.len).sum::<usize>() as u32,
                operations: epoch.inputs.iter().filter(|input| input.len > 0).map(rows).sum::<usize>() as u32,
                access_ns: epoch.times.access,
                other_ns: epoch.times.prepare + epoch.times.finish,
            });
        }
        epoch
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.gathered.is_empty()
            && self.prepared.is_empty()
            && self.preparing == 0
            && !self.accessing
            && self.accessed.is_empty()
    }

    fn pick(&mut self) -> Option<Task> {
        if let Some(job) = self.job.as_ref().filter(|job| !job.is_done()) {
            return Some(Task::Help(job.clone()));
        }
        if !self.accessing
            && let Some(epoch) = self.prepared.remove(&self.next_access)
        {
            self.accessing = true;
            return Some(Task::Access(epoch));
        }
        if self.prepared.is_empty()
            && self.preparing == 0
            && let Some(task) = self.pick_prepare()
        {
            return Some(task);
        }
        if let Some(epoch) = self.accessed.pop_front() {
            return Some(Task::Finish(epoch));
        }
        self.pick_prepare()
    }

    fn pick_prepare(&mut self) -> Option<Task> {
        let epoch = self.gathered.pop_front()?;
        self.preparing += 1;
        Some(Task::Prepare(epoch))
    }
}
