//! The tasks of workers: overlaps the stages of neighbouring epochs.
//!
//! # Protocol
//!
//! 1. The gate puts in a gathered epoch.
//! 2. A worker prepares it, concurrently with the access of earlier epochs.
//! 3. The prepared epoch with the next number is accessed, one epoch at a time: by one worker, or by it and as many
//!    helpers as the epoch's policy wants.
//! 4. A worker finishes it, concurrently with the access of later epochs.
//!
//! Access has priority, because everything waits for it. A worker that finds access taken prepares an epoch if none is
//! prepared, otherwise finishes one, otherwise prepares another.
//!
//! **Access stays.** The worker that accessed the last epoch is the *accessor*: the caches of its processor hold the
//! rows. While it has no other task the next access is its own, and others leave it alone. It takes other tasks only
//! where no seat is free for another worker, or there are two seats. If it is busy with one when an epoch can be accessed,
//! or asleep where there are two seats, the worker that looks takes over, and [`HandOver`] says why.
//!
//! **Seats.** At most `seats` workers have tasks at a time, one of them the accessor, unless an epoch in access asks for
//! more helpers. The others are parked and touch nothing. The last one to park is the first to be woken: its caches are
//! warm.
//!
//! **Short epochs.** Where all stages of an epoch take less than it takes to wake a worker for them (`SHORT`), as between
//! sessions that close in each millisecond, a worker that has a task also does the next one, whatever its kind. Another one
//! is woken when two wait.
//!
//! **Wake-ups.** A worker is woken for a task, not for a change: whoever puts in a task, takes one, or is about to park
//! looks under the lock for the first parked worker that may take what is left, and wakes that one. So a worker that
//! is woken wakes the next, as long as there are tasks and seats.
//!
//! **No task is forgotten.** A worker leaves a task to others only in these cases: (a) all seats are taken; then some
//! worker has a task, and asks for the next one after it. (b) It is the accessor's, which has no task: the accessor is
//! on its way to ask, or is parked and is woken. (c) It is the accessor and a seat is free: then it wakes a parked
//! worker, or takes the task itself if none is parked. (d) Epochs are short, and some worker has a task or was woken: it asks
//! for the next one after it.
//!
//! **Invariant.** Every epoch that is put in is handed out once for each stage, accessed in the order of numbers, and a
//! worker leaves only after the last (`tests/loom.rs` explores all interleavings of small runs).

use crate::sync::{Condvar, Mutex};
use crossbeam_utils::CachePadded;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// The time below which epochs are short, all stages together, nanoseconds: waking a worker on another processor takes
/// as long.
const SHORT: u64 = 50_000;
/// The weight of the mean time of epochs against the last epoch's time.
const FOLLOWS: u64 = 8;

/// An epoch, as far as the order of work needs to know it.
pub trait Numbered {
    /// Returns its number.
    fn number(&self) -> u64;
}

/// An epoch in access that all free workers may help with.
pub trait WantsHelp {
    /// Returns whether a worker may find something to do in it.
    fn wants_help(&self) -> bool;
}

/// A worker's next task.
pub enum Task<E, J> {
    /// Prepare an epoch, then call [`Tasks::prepared`].
    Prepare(E),
    /// Access an epoch, then call [`Tasks::accessed`]. Access changes hands for a reason.
    Access(E, Option<HandOver>),
    /// Help with the access of an epoch, drop it, then call [`Tasks::helped`].
    Help(Arc<J>),
    /// Finish an epoch.
    Finish(E),
}

/// The reason why another worker accesses than the one that accessed the epoch before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// There was no epoch before.
    First,
    /// The worker before prepares or finishes an epoch.
    Busy,
    /// The worker before is parked, and there are two seats.
    Asleep,
    /// The worker before has left.
    Left,
}

impl fmt::Display for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandOver::First => "the first epoch",
            HandOver::Busy => "the accessor before prepares or finishes",
            HandOver::Asleep => "the accessor before sleeps, and the other of two workers has the epoch at hand",
            HandOver::Left => "the accessor before has left",
        })
    }
}

/// The reason why there is no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTask {
    /// A task may come later.
    Yet,
    /// No task will come any more.
    Ever,
}

/// The number of epochs between the gate and the committer, by what is to be done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnderWay {
    /// The epochs that wait to be prepared.
    pub gathered: usize,
    /// The epochs that are being prepared.
    pub preparing: usize,
    /// The epochs that wait to be accessed.
    pub prepared: usize,
    /// The epochs that are being accessed: one at most.
    pub accessing: usize,
    /// The epochs that wait to be finished.
    pub accessed: usize,
}

/// The epochs between the gate and the committer, by what is to be done with them.
pub struct Tasks<E, J> {
    state: Mutex<State<E, J>>,
    /// The condition of each worker, by worker, signalled when it is woken.
    woken: Vec<CachePadded<Condvar>>,
    /// Signalled when the last helper has left an epoch that is no longer shared.
    alone: Condvar,
}

/// The present task of a worker, as far as the others need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The worker has no task: it has not come yet, or is about to ask for one.
    Nothing,
    /// The worker is parked, until it is woken.
    Parked,
    /// The worker was woken and has not asked for a task yet.
    Called,
    /// The worker prepares or finishes an epoch, and has a seat.
    Stage,
    /// The worker accesses an epoch, or helps with one.
    Access,
    /// The worker has left.
    Left,
}

struct State<E, J> {
    gathered: VecDeque<E>,
    prepared: BTreeMap<u64, E>,
    preparing: usize,
    next_access: u64,
    /// The gate waits until every epoch before this number was accessed.
    awaited: Option<u64>,
    accessing: bool,
    accessed: VecDeque<E>,
    /// The epoch in access, if others may help, and how many may at a time.
    job: Option<(Arc<J>, usize)>,
    /// Workers that help now.
    helpers: usize,
    /// The present task of each worker, by worker.
    doing: Vec<Doing>,
    /// Workers that are parked, the last one on top.
    parked: Vec<usize>,
    accessor: Option<usize>,
    seats: usize,
    /// The mean time of epochs, all stages together, nanoseconds.
    epoch_time: u64,
    closed: bool,
    stopped: bool,
    /// Time that workers waited for tasks while they had a seat, nanoseconds.
    idle: u64,
}

impl<E: Numbered, J: WantsHelp> Tasks<E, J> {
    /// Makes a pipeline without epochs; `first` is the number of the first that will be put in. At most `seats` of the
    /// workers have tasks at a time.
    pub fn new(first: u64, workers: usize, seats: usize) -> Self {
        assert!(seats > 0 && seats <= workers, "{seats} of {workers} workers work");
        let state = State {
            gathered: VecDeque::new(),
            prepared: BTreeMap::new(),
            preparing: 0,
            next_access: first,
            awaited: None,
            accessing: false,
            accessed: VecDeque::new(),
            job: None,
            helpers: 0,
            doing: vec![Doing::Nothing; workers],
            parked: Vec::with_capacity(workers),
            accessor: None,
            seats,
            epoch_time: SHORT,
            closed: false,
            stopped: false,
            idle: 0,
        };
        let woken = (0..workers).map(|_| CachePadded::new(Condvar::new())).collect();
        Tasks { state: Mutex::new(state), woken, alone: Condvar::new() }
    }

    /// Puts in a gathered epoch.
    pub fn put(&self, epoch: E) {
        let mut state = self.state.lock();
        assert!(!state.closed, "no epoch comes after the last");
        assert!(epoch.number() >= state.next_access, "epochs come in order");
        state.gathered.push_back(epoch);
        self.call_one(&mut state);
    }

    /// Called after the last epoch was put in.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if state.is_empty() {
            self.call_all(&mut state);
        }
    }

    /// Called after a failure: workers exit as soon as they can.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.call_all(&mut state);
    }

    /// Returns whether the access stage would have nothing to do after its current epoch.
    pub fn would_idle(&self) -> bool {
        let state = self.state.lock();
        state.gathered.is_empty() && state.prepared.is_empty() && state.preparing == 0
    }

    /// Returns whether every epoch before this number was accessed. If not, [`Tasks::accessed`] says when they are.
    pub fn awaits(&self, before: u64) -> bool {
        let mut state = self.state.lock();
        let is_over = state.next_access >= before;
        state.awaited = (!is_over).then_some(before);
        is_over
    }

    /// Returns the number of parked workers.
    pub fn parked_count(&self) -> usize {
        self.state.lock().parked.len()
    }

    /// Returns whether no epoch is under way.
    pub fn is_idle(&self) -> bool {
        self.state.lock().is_empty()
    }

    /// Returns the numbers of epochs under way, by stage.
    pub fn under_way(&self) -> UnderWay {
        let state = self.state.lock();
        UnderWay {
            gathered: state.gathered.len(),
            preparing: state.preparing,
            prepared: state.prepared.len(),
            accessing: usize::from(state.accessing),
            accessed: state.accessed.len(),
        }
    }

    /// Returns the next task of a worker, which has none; if it `waits`, blocks until there is one. `now` gives the
    /// time in nanoseconds.
    pub fn next(&self, worker: usize, waits: bool, now: impl Fn() -> u64) -> Result<Task<E, J>, NoTask> {
        let mut state = self.state.lock();
        state.doing[worker] = Doing::Nothing;
        loop {
            if state.stopped || state.closed && state.is_empty() {
                state.doing[worker] = Doing::Left;
                self.call_all(&mut state);
                return Err(NoTask::Ever);
            }
            let task = state.pick(worker);
            self.call_one(&mut state);
            match task {
                Some(task) => return Ok(task),
                None if !waits => return Err(NoTask::Yet),
                None => {}
            }
            let start = now();
            state.doing[worker] = Doing::Parked;
            state.parked.push(worker);
            while state.doing[worker] == Doing::Parked {
                self.woken[worker].wait(&mut state);
            }
            state.doing[worker] = Doing::Nothing;
            // A worker that is not wanted does not count as idle, or seldom.
            if state.with_seats() < state.seats {
                state.idle += now() - start;
            }
        }
    }

    /// Wakes a worker for what is left, if there is one that may take it.
    fn call_one(&self, state: &mut State<E, J>) {
        if let Some(worker) = state.wanted() {
            state.parked.retain(|&other| other != worker);
            state.doing[worker] = Doing::Called;
            self.woken[worker].notify_one();
        }
    }

    fn call_all(&self, state: &mut State<E, J>) {
        for worker in std::mem::take(&mut state.parked) {
            state.doing[worker] = Doing::Called;
            self.woken[worker].notify_one();
        }
        self.alone.notify_all();
    }

    /// Takes back an epoch that a worker prepared. The worker then asks for its next task.
    pub fn prepared(&self, worker: usize, epoch: E) {
        let mut state = self.state.lock();
        state.doing[worker] = Doing::Nothing;
        assert!(state.preparing > 0, "a prepared epoch was handed out to be prepared");
        state.preparing -= 1;
        let before = state.prepared.insert(epoch.number(), epoch);
        assert!(before.is_none(), "an epoch is prepared once");
    }

    /// Offers the epoch in access to this many helpers at a time.
    pub fn share(&self, job: Arc<J>, helpers: usize) {
        let mut state = self.state.lock();
        assert!(state.accessing && state.job.is_none(), "only an epoch in access is shared, once");
        state.job = Some((job, helpers));
        self.call_one(&mut state);
    }

    /// Withdraws the epoch that is shared, and waits until its helpers have left.
    pub fn withdraw(&self) {
        let mut state = self.state.lock();
        state.job = None;
        while state.helpers > 0 {
            self.alone.wait(&mut state);
        }
    }

    /// Counts a helper as having left the epoch in access; it holds no reference to the epoch.
    pub fn helped(&self) {
        let mut state = self.state.lock();
        assert!(state.helpers > 0, "a helper leaves that has not come");
        state.helpers -= 1;
        if state.helpers == 0 {
            self.alone.notify_one();
        }
    }

    /// Takes back the epoch that a worker accessed. The worker then asks for its next task. Says whether the gate waits for
    /// it ([`Tasks::awaits`]).
    pub fn accessed(&self, worker: usize, epoch: E) -> bool {
        let mut state = self.state.lock();
        state.doing[worker] = Doing::Nothing;
        assert!(state.accessing && state.job.is_none(), "one epoch is accessed at a time, and no longer shared");
        assert_eq!(state.next_access, epoch.number(), "epochs are accessed in order");
        state.accessing = false;
        state.next_access += 1;
        state.accessed.push_back(epoch);
        let next = state.next_access;
        state.awaited.take_if(|before| next >= *before).is_some()
    }

    /// Notes that an epoch was finished whose stages took this time, nanoseconds. Gives the time that workers waited
    /// since the last one.
    pub fn finished(&self, took: u64) -> u64 {
        let mut state = self.state.lock();
        let before = state.epoch_time / FOLLOWS * (FOLLOWS - 1);
        state.epoch_time = before.saturating_add(took / FOLLOWS);
        std::mem::take(&mut state.idle)
    }
}

impl<E, J: WantsHelp> State<E, J> {
    fn is_empty(&self) -> bool {
        self.gathered.is_empty()
            && self.prepared.is_empty()
            && self.preparing == 0
            && !self.accessing
            && self.accessed.is_empty()
    }

    /// Returns the number of workers that have a task, or are woken for one.
    fn with_seats(&self) -> usize {
        self.doing.iter().filter(|doing| matches!(doing, Doing::Stage | Doing::Access | Doing::Called)).count()
    }

    fn pick(&mut self, worker: usize) -> Option<Task<E, J>> {
        if let Some(job) = self.wants_helper() {
            self.helpers += 1;
            self.doing[worker] = Doing::Access;
            return Some(Task::Help(job));
        }
        if self.can_access() && self.is_given_access(worker) {
            return Some(self.give_access(worker));
        }
        if !self.may_take_stage(worker) {
            return None;
        }
        let task = self.pick_stage()?;
        self.doing[worker] = Doing::Stage;
        Some(task)
    }

    fn pick_stage(&mut self) -> Option<Task<E, J>> {
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

    fn pick_prepare(&mut self) -> Option<Task<E, J>> {
        let epoch = self.gathered.pop_front()?;
        self.preparing += 1;
        Some(Task::Prepare(epoch))
    }

    fn wants_helper(&self) -> Option<Arc<J>> {
        let (job, helpers) = self.job.as_ref()?;
        (self.helpers < *helpers && job.wants_help()).then(|| job.clone())
    }

    /// Returns whether the next epoch can be accessed.
    fn can_access(&self) -> bool {
        !self.accessing && self.prepared.contains_key(&self.next_access)
    }

    fn is_free(&self, worker: usize) -> bool {
        matches!(self.doing[worker], Doing::Nothing | Doing::Parked | Doing::Called)
    }

    /// Returns whether two workers have seats: then both do all kinds of tasks. The rows' lines go back and forth
    /// between them in any case, and while one wakes the other for a task that it has at hand, less gets done.
    fn are_two(&self) -> bool {
        self.seats == 2
    }

    /// Returns whether epochs are so short that a worker that has a task does the next one, too.
    fn are_short(&self) -> bool {
        self.epoch_time < SHORT
    }

    /// Returns whether the accessor is parked and not worth waking.
    fn is_asleep(&self, accessor: usize) -> bool {
        (self.are_two() || self.are_short()) && self.doing[accessor] == Doing::Parked
    }

    fn is_given_access(&self, worker: usize) -> bool {
        let is_left = |accessor: usize| !self.is_free(accessor) || self.is_asleep(accessor);
        self.accessor.is_none_or(|accessor| accessor == worker || is_left(accessor))
    }

    fn give_access(&mut self, worker: usize) -> Task<E, J> {
        let epoch = self.prepared.remove(&self.next_access).expect("the next epoch is prepared");
        let reason = match self.accessor {
            None => Some(HandOver::First),
            Some(accessor) if accessor == worker => None,
            Some(accessor) if self.doing[accessor] == Doing::Left => Some(HandOver::Left),
            Some(accessor) if self.is_asleep(accessor) => Some(HandOver::Asleep),
            Some(_) => Some(HandOver::Busy),
        };
        self.accessing = true;
        self.accessor = Some(worker);
        self.doing[worker] = Doing::Access;
        Task::Access(epoch, reason)
    }

    /// Returns whether a worker that has no task may prepare or finish.
    fn may_take_stage(&self, worker: usize) -> bool {
        let (taken, seats) = (self.with_seats(), self.seats);
        let is_accessor = |other: usize| self.accessor == Some(other);
        if is_accessor(worker) {
            // The accessor takes the last seat, or one that nobody else comes for.
            let is_shared = !self.are_two() && !self.are_short();
            let could_another = || is_shared && self.parked.iter().any(|&other| other != worker);
            return taken < seats && (taken + 1 == seats || !could_another());
        }
        let kept = self.accessor.is_some_and(|accessor| matches!(self.doing[accessor], Doing::Nothing | Doing::Parked));
        taken + usize::from(kept) < seats
    }

    /// Returns a parked worker that may take a task which is left, and for which no other one was woken.
    fn wanted(&self) -> Option<usize> {
        let is_parked = |worker: &usize| self.doing[*worker] == Doing::Parked;
        let left = usize::from(self.can_access()) + self.gathered.len() + self.accessed.len();
        if self.are_short() && self.job.is_none() && left <= 1 && self.with_seats() > 0 {
            return None;
        }
        if self.can_access() {
            match self.accessor {
                Some(accessor) if self.is_free(accessor) => {
                    if is_parked(&accessor) {
                        return Some(accessor);
                    }
                }
                _ => return self.parked.last().copied(),
            }
        }
        let called = self.doing.iter().filter(|doing| **doing == Doing::Called).count();
        let others = self.parked.iter().rev().copied().find(|&worker| self.accessor != Some(worker));
        if let Some((job, helpers)) = &self.job
            && self.helpers + called < *helpers
            && job.wants_help()
        {
            return others;
        }
        if self.gathered.len() + self.accessed.len() <= called {
            return None;
        }
        let accessor = self.accessor.filter(is_parked);
        others.filter(|&worker| self.may_take_stage(worker)).or(accessor.filter(|&worker| self.may_take_stage(worker)))
    }
}
