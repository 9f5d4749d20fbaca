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

use crate::access::{CALLS_PER_SAMPLE, ensure_identity, run_serially};
use crate::costs::Costs;
use crate::durable::{Captured, changes};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::grouping::{GroupSet, Scheduled};
use crate::input::Input;
use crate::options::{Options, Scheduling};
use crate::pace::Pace;
use crate::together::{Job, Memory, Role, may_redo};
use crate::worker::{Machine, Scratch};
use crate::{cascade, finish, prepare, waves};
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_schedule::{Abort, Choice, Decision, EpochCost, Model, Policy, Reason, Scheme, Worker};

/// What the workers share.
pub struct Pipeline {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    scheduling: Scheduling,
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Time that workers had nothing to do, nanoseconds, since an epoch last took it down.
    idle: AtomicU64,
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
    spare: Vec<Memory>,
    closed: bool,
    stopped: bool,
    /// By group of transactions.
    decisions: Vec<Decision>,
    costs: Costs,
    pace: Pace,
    /// The number of the last epoch whose limit was asked for.
    asked_last: u64,
}

/// Transactions that are run to know what transactions cost, and the time after which that is known, nanoseconds. The
/// first few, which warm up, do not count.
const SAMPLED_MAX: usize = 256;
const SAMPLED_NS: u64 = 100_000;
const WARM_UP: usize = 8;

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
        options: Options,
        workers: usize,
        first: u64,
    ) -> Self {
        let scheduling = options.scheduling;
        let model = match scheduling {
            Scheduling::MorphStream => Model::MorphStream,
            _ => Model::Measured,
        };
        let state = State {
            gathered: VecDeque::new(),
            prepared: BTreeMap::new(),
            preparing: 0,
            next_access: first,
            accessing: false,
            accessed: VecDeque::new(),
            job: None,
            spare: Vec::new(),
            closed: false,
            stopped: false,
            decisions: vec![Decision::new(workers, model, may_redo(&machine)); machine.groups.names.len()],
            costs: Costs::new(machine.wiring.inputs.len()),
            pace: Pace::new(options.latency, options.epoch_events_max),
            asked_last: 0,
        };
        let idle = AtomicU64::new(0);
        Pipeline { idle, machine, environment, scheduling, workers, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts a gathered epoch in.
    pub fn put(&self, epoch: Box<Epoch>) {
        let mut state = self.state.lock();
        state.gathered.push_back(epoch);
        drop(state);
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

    /// Events at the most of an epoch that is about to be cut.
    pub fn events_max(&self, epoch: u64) -> usize {
        let mut state = self.state.lock();
        state.asked_last = epoch;
        state.pace.limit()
    }

    /// The results of an epoch are there, so long after its first event arrived.
    pub fn done(&self, epoch: u64, events: usize, latency: u64) {
        let mut state = self.state.lock();
        let asked = state.asked_last;
        state.pace.done(epoch, events, latency, asked);
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
                Task::Help(job) => {
                    let own = (&mut scratch, &mut worker);
                    job.help(&self.machine, self.environment.as_ref(), own, Role::Helper);
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
            let start = self.environment.now();
            self.changed.wait(&mut state);
            self.idle.fetch_add(self.environment.now() - start, Ordering::Relaxed);
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
        let range = self.choose(scratch, &mut epoch);
        let decided = self.environment.now();
        let is_serial = epoch.scheduled.iter().all(|s| s.choice.method.is_serial());
        if self.machine.wiring.cascades {
            cascade::run(&self.machine, scratch, &mut epoch);
            epoch.breakdown.useful += self.environment.now() - decided;
        } else if is_serial {
            self.access_serially(scratch, &mut epoch, (range, CALLS_PER_SAMPLE));
        } else {
            epoch = self.access_together(scratch, worker, epoch, range);
        }
        epoch.gathered.push(scratch.context.take());
        let end = self.environment.now();
        epoch.decided = end - decided;
        if epoch.scheduled.iter().all(|scheduled| scheduled.access == 0) {
            self.account(&mut epoch);
        }
        waves::run(&self.machine, self.environment.as_ref(), scratch, &mut epoch);
        let over = self.environment.now();
        epoch.breakdown.useful += over - end;
        epoch.times.access = over - start;
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

    fn access_serially(&self, scratch: &mut Scratch, epoch: &mut Epoch, range: (Range<usize>, u32)) {
        let start = self.environment.now();
        ensure_identity(epoch, &mut scratch.identity);
        let worker = (&mut *scratch.context, &scratch.identity);
        run_serially(&self.machine, self.environment.as_ref(), epoch, worker, range);
        epoch.breakdown.useful += self.environment.now() - start;
    }

    /// Divides what an epoch took that was accessed in one part among its groups, by what their transactions cost.
    fn account(&self, epoch: &mut Epoch) {
        let Epoch { scheduled, decided, breakdown, .. } = epoch;
        if let [whole] = &mut scheduled[..] {
            (whole.access, whole.useful) = (*decided, breakdown.useful);
            return;
        }
        let costs = self.state.lock().costs.clone();
        let mut weights = vec![0.0; self.machine.groups.names.len()];
        for (id, input) in epoch.inputs.iter().enumerate() {
            (0..input.len).for_each(|i| weights[epoch.grouping.of(id, i)] += costs.of(id));
        }
        let in_all: f64 = weights.iter().sum();
        for scheduled in &mut epoch.scheduled {
            let share = scheduled.group.map_or(1.0, |group| weights[group] / in_all.max(1.0));
            scheduled.access = (epoch.decided as f64 * share) as u64;
            scheduled.useful = (epoch.breakdown.useful as f64 * share) as u64;
        }
    }

    /// Chooses how to access an epoch; what of its order is still to be.
    fn choose(&self, scratch: &mut Scratch, epoch: &mut Epoch) -> Range<usize> {
        let all = 0..epoch.transactions();
        let choice = match self.scheduling {
            _ if self.machine.wiring.cascades => Choice::given(Policy::EPOCH, Reason::OneByOne),
            Scheduling::Fixed(policy) => self.asked_for(policy),
            Scheduling::Baseline(asked @ Scheme::NoLock) if self.sets_text() => {
                Choice::given(Policy::EPOCH, Reason::Racing { asked })
            }
            Scheduling::Baseline(scheme) => Choice::scheme(scheme),
            Scheduling::ByGroup(policies) => {
                self.group(epoch, &all);
                for scheduled in &mut epoch.scheduled {
                    let policy = policies.of(scheduled.group.unwrap_or(0));
                    scheduled.choice = self.asked_for(policy);
                }
                return all;
            }
            Scheduling::Auto | Scheduling::MorphStream => return self.decide(scratch, epoch, all),
        };
        epoch.scheduled.push(Scheduled::new(None, choice, all.len() as u32));
        all
    }

    /// A policy that was asked for; without speculation where the program forbids it.
    fn asked_for(&self, policy: Policy) -> Choice {
        match policy.speculates() && !may_redo(&self.machine) {
            true => Choice::given(Policy { abort: Abort::VoteFirst, ..policy }, Reason::Final { asked: policy }),
            false => Choice::given(policy, Reason::Fixed),
        }
    }

    /// Finds the groups of an epoch's transactions and those that have any in a part of its order.
    fn group(&self, epoch: &mut Epoch, range: &Range<usize>) {
        let groups = self.machine.groups.names.len();
        if groups == 1 {
            epoch.scheduled.push(Scheduled { transactions: range.len() as u32, ..Scheduled::default() });
            return;
        }
        let Epoch { grouping, inputs, .. } = &mut *epoch;
        grouping.fill(&self.machine, inputs);
        let mut counts = vec![0u32; groups];
        epoch.each_in(&self.machine.wiring.joints, range, |id, i| {
            counts[epoch.grouping.of(id, i)] += 1;
            true
        });
        let some = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let fresh = |(group, count)| Scheduled { group: Some(group), transactions: count, ..Scheduled::default() };
        epoch.scheduled.extend(some.map(fresh));
        if epoch.scheduled.is_empty() {
            epoch.scheduled.push(Scheduled::default());
        }
    }

    /// Chooses by what is known of transactions, and where need be finds out.
    fn decide(&self, scratch: &mut Scratch, epoch: &mut Epoch, mut range: Range<usize>) -> Range<usize> {
        let count = range.len() as u32;
        if self.state.lock().decisions.iter().any(|decision| decision.wants_sample(count)) {
            range.start = self.sample(scratch, epoch);
        }
        let start = self.environment.now();
        self.group(epoch, &range);
        let per_transaction = epoch.operations() as f64 / epoch.transactions().max(1) as f64;
        let mut scheduled = std::mem::take(&mut epoch.scheduled);
        for scheduled in &mut scheduled {
            let group = scheduled.group.unwrap_or(0);
            let count = (f64::from(scheduled.transactions) * per_transaction) as u32;
            let mut state = self.state.lock();
            if let Some(operations) = state.decisions[group].wants_survey(count) {
                drop(state);
                self.survey(epoch, &range, (scheduled.group, operations));
                state = self.state.lock();
            }
            let decision = &mut state.decisions[group];
            scheduled.choice = decision.choose(count);
            epoch.survey = epoch.survey.or(decision.survey().copied());
        }
        epoch.scheduled = scheduled;
        epoch.times.decide = self.environment.now() - start;
        range
    }

    /// Looks at the transactions of a group, at so many operations of them.
    fn survey(&self, epoch: &mut Epoch, range: &Range<usize>, (group, operations): (Option<usize>, u32)) {
        let costs = self.state.lock().costs.clone();
        let start = self.environment.now();
        let mut memory = self.memory();
        let groups = group.map_or(GroupSet::ALL, |group| GroupSet::of(std::iter::once(group)));
        let (part, cost) = ((range, groups, operations), |input| costs.of(input));
        let survey = memory.survey(&self.machine, epoch, part, (self.workers, &cost));
        let took = self.environment.now() - start;
        epoch.breakdown.construct += took;
        let mut state = self.state.lock();
        state.spare.push(memory);
        state.decisions[group.unwrap_or(0)].surveyed(survey, took);
    }

    /// Runs the first transactions of an epoch serially to see what those of each input cost, and so all of them;
    /// how many they were.
    fn sample(&self, scratch: &mut Scratch, epoch: &mut Epoch) -> usize {
        let (all, operations) = (epoch.transactions(), epoch.operations());
        let mut at = WARM_UP.min(all);
        self.access_serially(scratch, epoch, (0..at, CALLS_PER_SAMPLE));
        let (first, start) = (at, self.environment.now());
        while at < all.min(SAMPLED_MAX) && self.environment.now() - start < SAMPLED_NS {
            let next = (at + WARM_UP.max(at - first)).min(all).min(SAMPLED_MAX);
            self.access_serially(scratch, epoch, (at..next, 1));
            at = next;
        }
        let mut state = self.state.lock();
        state.costs.add(&epoch.sampled);
        let of_input = |(id, input): (usize, &Input)| input.len as f64 * state.costs.of(id);
        let access_ns = epoch.inputs.iter().enumerate().map(of_input).sum::<f64>() as u64;
        let others_ns = epoch.times.prepare;
        state.decisions.iter_mut().for_each(|d| d.sample(operations as u32, access_ns, others_ns));
        at
    }

    /// The memory of jobs.
    fn memory(&self) -> Memory {
        let spare = self.state.lock().spare.pop();
        spare.unwrap_or_else(|| {
            let sockets = (0..self.workers).map(|worker| self.environment.socket(worker, self.workers));
            Memory::new(&self.machine, &sockets.collect::<Vec<_>>())
        })
    }

    /// Whether a transaction sets texts. Workers that race must not: both would free the memory of the text before.
    fn sets_text(&self) -> bool {
        let program = &self.machine.program;
        program.transactions.iter().any(|transaction| transaction.sets_text(program))
    }

    /// Accesses a part of an epoch's order together with whoever is free.
    fn access_together(
        &self,
        scratch: &mut Scratch,
        worker: &mut Worker,
        epoch: Box<Epoch>,
        range: Range<usize>,
    ) -> Box<Epoch> {
        let start = self.environment.now();
        let job = Arc::new(Job::new(&self.machine, || self.memory(), epoch, &range));
        let begun = self.environment.now();
        self.state.lock().job = Some(job.clone());
        self.changed.notify_all();
        job.help(&self.machine, self.environment.as_ref(), (scratch, worker), Role::Owner);
        let done = self.environment.now();
        self.state.lock().job = None;
        let (mut epoch, memories) = Job::end(job, self.workers);
        self.state.lock().spare.extend(memories);
        epoch.breakdown.construct += begun - start;
        epoch.breakdown.other += self.environment.now() - done;
        epoch
    }

    fn finish(&self, scratch: &mut Scratch, mut epoch: Box<Epoch>) -> Box<Epoch> {
        let start = self.environment.now();
        finish::finish(&self.machine, scratch, &mut epoch);
        epoch.times.finish = self.environment.now() - start;
        epoch.idle = self.idle.swap(0, Ordering::Relaxed);
        if matches!(self.scheduling, Scheduling::Auto | Scheduling::MorphStream) && !self.machine.wiring.cascades {
            self.learn(&epoch);
        }
        epoch
    }
}

impl Pipeline {
    /// Lets decisions know what an epoch cost: each what was its group's, and its share of the other stages.
    fn learn(&self, epoch: &Epoch) {
        // What was decided about is the first wave.
        let first = |id| self.machine.wiring.is_first(id);
        let aborted: Vec<u32> = epoch.scheduled.iter().map(|s| epoch.aborted_of(s.group, first)).collect();
        let operations = epoch.operations_of(first) as f64;
        let others = (epoch.times.prepare + epoch.times.finish) as f64;
        let in_all: u32 = epoch.scheduled.iter().map(|s| s.transactions).sum();
        let mut state = self.state.lock();
        state.costs.add(&epoch.sampled);
        for (scheduled, aborted) in epoch.scheduled.iter().zip(aborted) {
            let share = f64::from(scheduled.transactions) / f64::from(in_all.max(1));
            state.decisions[scheduled.group.unwrap_or(0)].record(EpochCost {
                choice: scheduled.choice,
                transactions: scheduled.transactions,
                operations: (operations * share) as u32,
                aborted,
                access_ns: scheduled.access,
                useful_ns: scheduled.useful,
                other_ns: (others * share) as u64,
            });
        }
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
