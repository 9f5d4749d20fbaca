//! The stages of neighbouring epochs, overlapping: what each worker does next.
//!
//! # Protocol
//!
//! 1. The gate puts a gathered epoch in.
//! 2. Any worker prepares it, beside the access of epochs before.
//! 3. The prepared epoch with the next number is accessed, one epoch at a time: by one worker
//!    (`Epoch`), or by all that are free (`Chain`).
//! 4. Any worker finishes it, beside the access of epochs after.
//! 5. The committer takes finished epochs in order.
//!
//! Access comes first, since everything waits for it; a worker that finds it taken prepares if
//! nothing stands prepared, else finishes, else prepares further. The number of epochs is fixed, which
//! bounds memory: the gate waits for one to come back.

use crate::access::{ChainWork, Located, ensure_identity, run_serially};
use crate::epoch::Epoch;
use crate::options::Scheduling;
use crate::worker::{Machine, Scratch};
use crate::{cascade, finish, prepare};
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_compile::AccessContext;
use tidemill_schedule::{ChainExecutor, Decision, EpochCost, Granularity, Policy, Worker};
use tidemill_txn::{Partitioning, Run};

use crate::environment::Environment;

/// An epoch that all free workers access together.
struct ChainJob {
    epoch: Box<Epoch>,
    located: Located,
    executor: ChainExecutor,
    contexts: Vec<Mutex<Box<AccessContext>>>,
    done: AtomicBool,
}

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
    chain: Option<Arc<ChainJob>>,
    /// Kept between chain epochs for their memory.
    #[allow(clippy::type_complexity, reason = "the parts of a `ChainJob`")]
    spare: Option<(Located, ChainExecutor, Vec<Mutex<Box<AccessContext>>>)>,
    closed: bool,
    stopped: bool,
    decision: Decision,
    choice: String,
}

/// What a worker does next.
enum Task {
    Prepare(Box<Epoch>),
    Access(Box<Epoch>),
    Help(Arc<ChainJob>),
    Finish(Box<Epoch>),
}

impl Pipeline {
    /// For so many workers.
    pub fn new(
        machine: Arc<Machine>,
        environment: Arc<dyn Environment>,
        scheduling: Scheduling,
        workers: usize,
    ) -> Self {
        let state = State {
            gathered: VecDeque::new(),
            prepared: BTreeMap::new(),
            preparing: 0,
            next_access: 0,
            accessing: false,
            accessed: VecDeque::new(),
            chain: None,
            spare: None,
            closed: false,
            stopped: false,
            decision: Decision::new(workers),
            choice: String::new(),
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

    /// Why the last epoch was scheduled as it was.
    pub fn choice(&self) -> String {
        self.state.lock().choice.clone()
    }

    /// A worker's life. Finished epochs go to `finished`.
    pub fn work(&self, id: usize, finished: &Sender<Box<Epoch>>) {
        let mut scratch = Scratch::new(&self.machine);
        let mut worker = Worker::new(id);
        while let Some(task) = self.next_task() {
            match task {
                Task::Prepare(epoch) => self.prepare(&mut scratch, epoch),
                Task::Access(epoch) => self.access(&mut scratch, &mut worker, epoch),
                Task::Help(job) => {
                    self.help(&mut scratch, &mut worker, &job);
                }
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
        epoch.granularity = self.choose(&epoch);
        match epoch.granularity {
            _ if self.machine.wiring.cascades => {
                cascade::run(&self.machine, scratch, &mut epoch);
                epoch.gathered.push(scratch.context.take());
            }
            Granularity::Epoch => {
                ensure_identity(&epoch, &mut scratch.identity);
                run_serially(&self.machine, &epoch, &mut scratch.context, &scratch.identity);
                epoch.gathered.push(scratch.context.take());
            }
            Granularity::Chain => epoch = self.access_chains(scratch, worker, epoch),
        }
        epoch.times.access = self.environment.now() - start;
        let mut state = self.state.lock();
        state.accessing = false;
        state.next_access += 1;
        state.accessed.push_back(epoch);
        drop(state);
        self.changed.notify_all();
    }

    fn choose(&self, epoch: &Epoch) -> Granularity {
        let transactions: usize = epoch.inputs.iter().map(|i| i.len).sum();
        match self.scheduling {
            Scheduling::Epoch => Granularity::Epoch,
            _ if self.machine.wiring.cascades => Granularity::Epoch,
            Scheduling::Chain => Granularity::Chain,
            Scheduling::Auto => {
                let mut state = self.state.lock();
                let choice = state.decision.choose(transactions as u32);
                state.choice = choice.to_string();
                choice.policy.granularity
            }
        }
    }

    /// Accesses an epoch along chains together with whoever is free.
    fn access_chains(&self, scratch: &mut Scratch, worker: &mut Worker, epoch: Box<Epoch>) -> Box<Epoch> {
        let spare = self.state.lock().spare.take();
        let (mut located, mut executor, contexts) = spare.unwrap_or_else(|| self.new_chain_memory());
        located.fill(&self.machine, &epoch);
        let partitioning = Partitioning::for_accesses(located.accesses().rows().len());
        let mut run = Run::new();
        run.partition(partitioning, located.accesses());
        executor.prepare(&mut vec![run]);
        let mut job = Arc::new(ChainJob { epoch, located, executor, contexts, done: AtomicBool::new(false) });
        self.state.lock().chain = Some(job.clone());
        self.changed.notify_all();
        self.help(scratch, worker, &job);
        job.done.store(true, Ordering::Release);
        self.state.lock().chain = None;
        // Helpers are on their way out; the last one's reference makes the job ours alone.
        let mut job = loop {
            match Arc::try_unwrap(job) {
                Ok(job) => break job,
                Err(shared) => job = shared,
            }
            std::hint::spin_loop();
        };
        for context in &mut job.contexts {
            job.epoch.gathered.push(context.get_mut().take());
        }
        self.state.lock().spare = Some((job.located, job.executor, job.contexts));
        job.epoch
    }

    fn new_chain_memory(&self) -> (Located, ChainExecutor, Vec<Mutex<Box<AccessContext>>>) {
        let context = |_| Mutex::new(AccessContext::new(&self.machine.code.emission_types, false));
        (Located::default(), ChainExecutor::new(self.workers), (0..self.workers).map(context).collect())
    }

    /// Takes part in a chain epoch until it is done.
    fn help(&self, scratch: &mut Scratch, worker: &mut Worker, job: &ChainJob) {
        if job.done.load(Ordering::Acquire) {
            return;
        }
        ensure_identity(&job.epoch, &mut scratch.identity);
        let work = ChainWork::new(&self.machine, &job.epoch, &job.located, &job.contexts, &scratch.identity);
        job.executor.work(worker, &work);
    }

    fn finish(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) -> Box<Epoch> {
        let start = self.environment.now();
        finish::finish(&self.machine, scratch, &mut epoch);
        epoch.times.finish = self.environment.now() - start;
        if self.scheduling == Scheduling::Auto && !self.machine.wiring.cascades {
            let policy = match epoch.granularity {
                Granularity::Epoch => Policy::EPOCH,
                Granularity::Chain => Policy::CHAIN,
            };
            let rows = |input: &crate::input::Input| input.rows.iter().map(Vec::len).sum::<usize>();
            self.state.lock().decision.record(EpochCost {
                policy,
                transactions: epoch.inputs.iter().map(|i| i.len).sum::<usize>() as u32,
                operations: epoch.inputs.iter().map(rows).sum::<usize>() as u32,
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
        if let Some(job) = self.chain.as_ref().filter(|job| !job.done.load(Ordering::Acquire)) {
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
