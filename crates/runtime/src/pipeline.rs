//! The workers of a run: each does the task that [`Tasks`] hands it.
//!
//! The number of epochs is fixed, which bounds memory: the gate waits until one returns from the committer, which takes
//! finished epochs in order.

use crate::agenda::unread;
use crate::options::Options;
use crate::pace::{Most, Pace};
use crate::session::calls::Way;
use crate::session::link::Link;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_recovery::Failure;
use tidemill_schedule::Worker;
use tidemill_stages::access::stage::{AccessStage, Crew};
use tidemill_stages::access::together::{Job, Role, Sharing};
use tidemill_stages::actor::{Actor, Bell, Outbox, Progress};
use tidemill_stages::environment::Environment;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::finish;
use tidemill_stages::machine::{Machine, Scratch};
use tidemill_stages::prepare::prepare;
use tidemill_stages::tasks::{NoTask, Task, Tasks};

/// State that the workers share.
pub struct Pipeline {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    access: AccessStage,
    failure: Arc<Failure>,
    tasks: Tasks<Box<Epoch>, Job>,
    seats: usize,
    sizes: Mutex<Sizes>,
    /// The number of boundaries within epochs.
    boundaries: AtomicU64,
    /// Rung when the epochs were accessed that the gate waits for.
    gate: Arc<Bell>,
}

/// The sizes at which epochs are cut.
struct Sizes {
    pace: Pace,
    /// The number of the last epoch whose limit was read.
    asked_last: u64,
}

impl Pipeline {
    /// Makes a pipeline for this number of workers; `first` is the number of the first epoch, `gate` the gate's bell.
    pub fn new(
        machine: Arc<Machine>,
        environment: Arc<dyn Environment>,
        failure: Arc<Failure>,
        options: Options,
        workers: usize,
        first: u64,
        gate: Arc<Bell>,
    ) -> Self {
        let events = options.epoch_events_max;
        let folded = if options.memory.is_none() { options.folded_events_max.max(events) } else { events };
        let sizes = Sizes { pace: Pace::new(options.latency, Most { events, folded }), asked_last: 0 };
        // More than can run at once would only take processors from each other.
        let seats = workers.min(environment.parallelism().max(1));
        let crew = Crew { workers, seats };
        let access = AccessStage::new(machine.clone(), environment.clone(), options.scheduling, crew);
        let tasks = Tasks::new(first, workers, seats);
        Pipeline {
            machine,
            environment,
            access,
            failure,
            tasks,
            seats,
            sizes: Mutex::new(sizes),
            boundaries: AtomicU64::new(0),
            gate,
        }
    }

    /// Returns the most workers that have tasks at a time.
    pub fn seats(&self) -> usize {
        self.seats
    }

    /// Returns the epochs that workers work on.
    pub fn tasks(&self) -> &Tasks<Box<Epoch>, Job> {
        &self.tasks
    }

    /// Returns the number of boundaries within epochs.
    pub fn boundaries(&self) -> u64 {
        self.boundaries.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of events of an epoch that is about to be cut.
    pub fn events_max(&self, epoch: u64) -> usize {
        let mut sizes = self.sizes.lock();
        sizes.asked_last = epoch;
        sizes.pace.limit()
    }

    /// Reports that the results of an epoch are ready, `latency` nanoseconds after its first event arrived. `folded`:
    /// all of its events were.
    pub fn done(&self, epoch: u64, events: usize, folded: bool, latency: u64) {
        let mut sizes = self.sizes.lock();
        let asked = sizes.asked_last;
        sizes.pace.done(epoch, events, folded, latency, asked);
    }

    fn prepare(&self, scratch: &mut Scratch, worker: usize, mut epoch: Box<Epoch>) {
        let start = self.environment.now();
        prepare(&self.machine, scratch, &mut epoch);
        self.access.list_ahead(&epoch);
        epoch.times.prepare = self.environment.now() - start;
        epoch.times.began = start;
        self.tasks.prepared(worker, epoch);
    }

    fn access(&self, scratch: &mut Scratch, worker: &mut Worker, epoch: Box<Epoch>) {
        let mut epoch = self.access.run(scratch, worker, epoch, &Offers(&self.tasks));
        if let Some(error) = epoch.accessed.unread.take() {
            self.failure.set(unread(error));
        }
        self.boundaries.fetch_add(epoch.accessed.boundaries, Ordering::Relaxed);
        if self.tasks.accessed(worker.id(), epoch) {
            self.gate.ring();
        }
    }

    fn help(&self, scratch: &mut Scratch, worker: &mut Worker, job: Arc<Job>) {
        // Also if it panics: the worker that began the epoch waits for its helpers.
        let _helping = Helping(&self.tasks);
        let job = job;
        job.help(&self.machine, self.environment.as_ref(), scratch, worker, Role::Helper);
    }

    fn finish(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) -> Box<Epoch> {
        let start = self.environment.now();
        finish(&self.machine, scratch, &mut epoch);
        epoch.times.ended = self.environment.now();
        epoch.times.finish = epoch.times.ended - start;
        let times = &epoch.times;
        epoch.finished.idle = self.tasks.finished(times.prepare + times.access + times.finish);
        self.access.learn(&epoch);
        epoch
    }
}

/// Offers epochs in access to the workers.
struct Offers<'a>(&'a Tasks<Box<Epoch>, Job>);

impl Sharing for Offers<'_> {
    fn share(&self, job: Arc<Job>, helpers: usize) {
        self.0.share(job, helpers);
    }

    fn withdraw(&self) {
        self.0.withdraw();
    }
}

/// A worker that helps. Dropped after its reference to the job.
struct Helping<'a>(&'a Tasks<Box<Epoch>, Job>);

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.0.helped();
    }
}

/// A worker: prepares, accesses and finishes epochs, in the order that the pipeline decides.
pub struct StageWorker {
    pipeline: Arc<Pipeline>,
    id: usize,
    workers: usize,
    scratch: Scratch,
    worker: Worker,
    /// The channel to the committer; dropped after the last epoch.
    finished: Option<Outbox<Box<Epoch>>>,
    /// The session that the run belongs to.
    link: Option<Arc<Link>>,
}

impl StageWorker {
    /// Makes the worker number `id` of `workers`.
    pub fn new(
        pipeline: Arc<Pipeline>,
        id: usize,
        workers: usize,
        finished: Outbox<Box<Epoch>>,
        link: Option<Arc<Link>>,
    ) -> StageWorker {
        assert!(id < workers, "workers are numbered from 0");
        let scratch = Scratch::new(&pipeline.machine, workers);
        StageWorker { pipeline, id, workers, scratch, worker: Worker::new(id), finished: Some(finished), link }
    }

    /// Works until there are no more epochs: the main function of a thread. It waits for tasks at the pipeline, as all
    /// workers do.
    pub fn run(&mut self) {
        self.pipeline.environment.settle(self.id, self.workers);
        while self.work(true) != Progress::Over {}
    }

    fn work(&mut self, waits: bool) -> Progress {
        let task = match self.pipeline.tasks.next(self.id, waits, || self.pipeline.environment.now()) {
            Ok(task) => task,
            Err(NoTask::Yet) => return Progress::Waits(None),
            Err(NoTask::Ever) => return self.leave(),
        };
        let StageWorker { pipeline, id, scratch, worker, finished, link, .. } = self;
        match task {
            Task::Prepare(epoch) => pipeline.prepare(scratch, *id, epoch),
            Task::Access(mut epoch, handed_over) => {
                epoch.accessed.handed_over = handed_over;
                pipeline.access(scratch, worker, epoch);
            }
            Task::Help(job) => pipeline.help(scratch, worker, job),
            Task::Finish(epoch) => {
                let epoch = pipeline.finish(scratch, epoch);
                // A replay answers nobody.
                if let Some(link) = link.as_ref().filter(|_| !epoch.input.replayed && !pipeline.failure.is_set()) {
                    link.answer_early(epoch.number, &epoch.finished.answers, Way::of(&epoch.times));
                }
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
