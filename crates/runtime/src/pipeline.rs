//! Overlaps the stages of neighbouring epochs: decides what each worker does next.
//!
//! # Protocol
//!
//! 1. The gate puts in a gathered epoch.
//! 2. Any worker prepares it, concurrently with the access of earlier epochs.
//! 3. The prepared epoch with the next number is accessed, one epoch at a time: by one worker, or by all free workers.
//! 4. Any worker finishes it, concurrently with the access of later epochs.
//! 5. The committer takes finished epochs in order.
//!
//! Access has priority, because everything waits for it. A worker that finds access taken prepares an epoch if none is
//! prepared, otherwise finishes one, otherwise prepares another. The number of epochs is fixed, which bounds memory:
//! the gate waits until one returns.

use crate::options::Options;
use crate::pace::Pace;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_schedule::Worker;
use tidemill_stages::access::stage::AccessStage;
use tidemill_stages::access::together::{Job, Role};
use tidemill_stages::actor::{Actor, Outbox, Progress};
use tidemill_stages::environment::Environment;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::finish;
use tidemill_stages::machine::{Machine, Scratch};
use tidemill_stages::prepare::prepare;

/// State that the workers share.
pub struct Pipeline {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    access: AccessStage,
    state: Mutex<State>,
    /// Signalled when there may be a new task, or when all is over.
    changed: Condvar,
    /// The workers' idle time, nanoseconds. Added to by all workers, taken by the one that finishes an epoch.
    idle: AtomicU64,
}

struct State {
    gathered: VecDeque<Box<Epoch>>,
    prepared: BTreeMap<u64, Box<Epoch>>,
    preparing: usize,
    next_access: u64,
    accessing: bool,
    accessed: VecDeque<Box<Epoch>>,
    /// The epoch in access, if all free workers may help.
    job: Option<Arc<Job>>,
    closed: bool,
    stopped: bool,
    pace: Pace,
    /// The number of the last epoch whose limit was read.
    asked_last: u64,
}

/// A worker's next task.
enum Task {
    Prepare(Box<Epoch>),
    Access(Box<Epoch>),
    Help(Arc<Job>),
    Finish(Box<Epoch>),
}

/// The reason why there is no task.
enum NoTask {
    Yet,
    Ever,
}

impl Pipeline {
    /// A pipeline for this number of workers; `first` is the number of the first epoch.
    pub fn new(
        machine: Arc<Machine>,
        environment: Arc<dyn Environment>,
        options: Options,
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
            closed: false,
            stopped: false,
            pace: Pace::new(options.latency, options.epoch_events_max),
            asked_last: 0,
        };
        let access = AccessStage::new(machine.clone(), environment.clone(), options.scheduling, workers);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Pipeline { machine, environment, access, state, changed, idle: AtomicU64::new(0) }
    }

    /// Puts in a gathered epoch.
    pub fn put(&self, epoch: Box<Epoch>) {
        let mut state = self.state.lock();
        assert!(!state.closed, "no epoch comes after the last");
        assert!(epoch.number >= state.next_access, "epochs come in order");
        state.gathered.push_back(epoch);
        drop(state);
        self.changed.notify_one();
    }

    /// Called after the last epoch was put in.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Called after a failure: workers exit as soon as they can.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The maximum number of events of an epoch that is about to be cut.
    pub fn events_max(&self, epoch: u64) -> usize {
        let mut state = self.state.lock();
        state.asked_last = epoch;
        state.pace.limit()
    }

    /// Reports that the results of an epoch are ready, `latency` nanoseconds after its first event arrived.
    pub fn done(&self, epoch: u64, events: usize, latency: u64) {
        let mut state = self.state.lock();
        let asked = state.asked_last;
        state.pace.done(epoch, events, latency, asked);
    }

    /// Whether the access stage would have nothing to do after its current epoch.
    pub fn would_idle(&self) -> bool {
        let state = self.state.lock();
        state.gathered.is_empty() && state.prepared.is_empty() && state.preparing == 0
    }

    /// The next task of a worker; if it `waits`, blocks until there is one.
    fn next_task(&self, waits: bool) -> Result<Task, NoTask> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return Err(NoTask::Ever);
            }
            if let Some(task) = state.pick() {
                return Ok(task);
            }
            if state.closed && state.is_empty() {
                self.changed.notify_all();
                return Err(NoTask::Ever);
            }
            if !waits {
                return Err(NoTask::Yet);
            }
            let start = self.environment.now();
            self.changed.wait(&mut state);
            self.idle.fetch_add(self.environment.now() - start, Ordering::Relaxed);
        }
    }

    fn prepare(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) {
        let start = self.environment.now();
        prepare(&self.machine, scratch, &mut epoch);
        epoch.times.prepare = self.environment.now() - start;
        let mut state = self.state.lock();
        state.preparing -= 1;
        let before = state.prepared.insert(epoch.number, epoch);
        assert!(before.is_none(), "an epoch is prepared once");
        drop(state);
        self.changed.notify_one();
    }

    fn access(&self, scratch: &mut Scratch, worker: &mut Worker, epoch: Box<Epoch>) {
        let publish = |job: Option<Arc<Job>>| {
            let begins = job.is_some();
            self.state.lock().job = job;
            if begins {
                self.changed.notify_all();
            }
        };
        let epoch = self.access.run(scratch, worker, epoch, &publish);
        let mut state = self.state.lock();
        assert!(state.accessing, "one epoch is accessed at a time");
        assert_eq!(state.next_access, epoch.number, "epochs are accessed in order");
        state.accessing = false;
        state.next_access += 1;
        state.accessed.push_back(epoch);
        drop(state);
        self.changed.notify_all();
    }

    fn finish(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) -> Box<Epoch> {
        let start = self.environment.now();
        finish(&self.machine, scratch, &mut epoch);
        epoch.times.finish = self.environment.now() - start;
        epoch.finished.idle = self.idle.swap(0, Ordering::Relaxed);
        self.access.learn(&epoch);
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
        if let Some(job) = self.job.as_ref().filter(|job| job.wants_help()) {
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

/// A worker: prepares, accesses and finishes epochs, in the order that the pipeline decides.
pub struct StageWorker {
    pipeline: Arc<Pipeline>,
    id: usize,
    workers: usize,
    scratch: Scratch,
    worker: Worker,
    /// To the committer; dropped after the last epoch.
    finished: Option<Outbox<Box<Epoch>>>,
}

impl StageWorker {
    /// The worker number `id` of `workers`.
    pub fn new(pipeline: Arc<Pipeline>, id: usize, workers: usize, finished: Outbox<Box<Epoch>>) -> StageWorker {
        assert!(id < workers, "workers are numbered from 0");
        let scratch = Scratch::new(&pipeline.machine, workers);
        StageWorker { pipeline, id, workers, scratch, worker: Worker::new(id), finished: Some(finished) }
    }

    /// Works until there are no more epochs: the main function of a thread. It waits for tasks at the pipeline, as all
    /// workers do.
    pub fn run(&mut self) {
        self.pipeline.environment.settle(self.id, self.workers);
        while self.work(true) != Progress::Over {}
    }

    fn work(&mut self, waits: bool) -> Progress {
        let task = match self.pipeline.next_task(waits) {
            Ok(task) => task,
            Err(NoTask::Yet) => return Progress::Waits(None),
            Err(NoTask::Ever) => return self.leave(),
        };
        let StageWorker { pipeline, scratch, worker, finished, .. } = self;
        match task {
            Task::Prepare(epoch) => pipeline.prepare(scratch, epoch),
            Task::Access(epoch) => pipeline.access(scratch, worker, epoch),
            Task::Help(job) => {
                job.help(&pipeline.machine, pipeline.environment.as_ref(), scratch, worker, Role::Helper);
            }
            Task::Finish(epoch) => {
                let epoch = pipeline.finish(scratch, epoch);
                if !finished.as_ref().is_some_and(|finished| finished.send(epoch)) {
                    return self.leave();
                }
            }
        }
        Progress::Worked
    }

    fn leave(&mut self) -> Progress {
        self.finished = None;
        Progress::Over
    }
}

impl Actor for StageWorker {
    fn step(&mut self) -> Progress {
        self.work(false)
    }
}
