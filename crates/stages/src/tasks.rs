//! What each worker does next: overlaps the stages of neighbouring epochs.
//!
//! # Protocol
//!
//! 1. The gate puts in a gathered epoch.
//! 2. Any worker prepares it, concurrently with the access of earlier epochs.
//! 3. The prepared epoch with the next number is accessed, one epoch at a time: by one worker, or by all free workers.
//! 4. Any worker finishes it, concurrently with the access of later epochs.
//!
//! Access has priority, because everything waits for it. A worker that finds access taken prepares an epoch if none is
//! prepared, otherwise finishes one, otherwise prepares another.
//!
//! **Invariant.** Every epoch that is put in is handed out once for each stage, accessed in the order of numbers, and a
//! worker leaves only after the last (`tests/loom.rs` explores all interleavings of small runs).

use crate::sync::{Condvar, Mutex};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An epoch, as far as the order of work needs to know it.
pub trait Numbered {
    /// Its number.
    fn number(&self) -> u64;
}

/// An epoch in access that all free workers may help with.
pub trait WantsHelp {
    /// Whether a worker may find something to do in it.
    fn wants_help(&self) -> bool;
}

/// A worker's next task.
pub enum Task<E, J> {
    /// Prepare an epoch, then call [`Tasks::prepared`].
    Prepare(E),
    /// Access an epoch, then call [`Tasks::accessed`].
    Access(E),
    /// Help with the access of an epoch.
    Help(Arc<J>),
    /// Finish an epoch.
    Finish(E),
}

/// The reason why there is no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTask {
    /// There may be one later.
    Yet,
    /// There will be none.
    Ever,
}

/// The number of epochs between the gate and the committer, by what is to be done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnderWay {
    /// To be prepared.
    pub gathered: usize,
    /// Being prepared.
    pub preparing: usize,
    /// To be accessed.
    pub prepared: usize,
    /// Being accessed: one at most.
    pub accessing: usize,
    /// To be finished.
    pub accessed: usize,
}

/// The epochs between the gate and the committer, by what is to be done with them.
pub struct Tasks<E, J> {
    state: Mutex<State<E, J>>,
    /// Signalled when there may be a new task, or when all is over.
    changed: Condvar,
}

struct State<E, J> {
    gathered: VecDeque<E>,
    prepared: BTreeMap<u64, E>,
    preparing: usize,
    next_access: u64,
    accessing: bool,
    accessed: VecDeque<E>,
    /// The epoch in access, if all free workers may help.
    job: Option<Arc<J>>,
    closed: bool,
    stopped: bool,
    /// Time that workers waited for tasks, nanoseconds.
    idle: u64,
}

impl<E: Numbered, J: WantsHelp> Tasks<E, J> {
    /// No epochs; `first` is the number of the first that will be put in.
    pub fn new(first: u64) -> Self {
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
            idle: 0,
        };
        Tasks { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts in a gathered epoch.
    pub fn put(&self, epoch: E) {
        let mut state = self.state.lock();
        assert!(!state.closed, "no epoch comes after the last");
        assert!(epoch.number() >= state.next_access, "epochs come in order");
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

    /// Whether the access stage would have nothing to do after its current epoch.
    pub fn would_idle(&self) -> bool {
        let state = self.state.lock();
        state.gathered.is_empty() && state.prepared.is_empty() && state.preparing == 0
    }

    /// Whether every epoch before this number was accessed.
    pub fn has_accessed(&self, before: u64) -> bool {
        self.state.lock().next_access >= before
    }

    /// Whether no epoch is under way.
    pub fn is_idle(&self) -> bool {
        self.state.lock().is_empty()
    }

    /// How many epochs are under way.
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

    /// The next task of a worker; if it `waits`, blocks until there is one. `now` gives the time in nanoseconds.
    pub fn next(&self, waits: bool, now: impl Fn() -> u64) -> Result<Task<E, J>, NoTask> {
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
            let start = now();
            self.changed.wait(&mut state);
            state.idle += now() - start;
        }
    }

    /// Takes back an epoch that was prepared.
    pub fn prepared(&self, epoch: E) {
        let mut state = self.state.lock();
        assert!(state.preparing > 0, "a prepared epoch was handed out to be prepared");
        state.preparing -= 1;
        let before = state.prepared.insert(epoch.number(), epoch);
        assert!(before.is_none(), "an epoch is prepared once");
        drop(state);
        self.changed.notify_one();
    }

    /// Offers the epoch in access to all free workers; none withdraws it.
    pub fn share(&self, job: Option<Arc<J>>) {
        let begins = job.is_some();
        let mut state = self.state.lock();
        assert!(state.accessing, "only an epoch in access is shared");
        state.job = job;
        drop(state);
        if begins {
            self.changed.notify_all();
        }
    }

    /// Takes back the epoch that was accessed.
    pub fn accessed(&self, epoch: E) {
        let mut state = self.state.lock();
        assert!(state.accessing && state.job.is_none(), "one epoch is accessed at a time, and no longer shared");
        assert_eq!(state.next_access, epoch.number(), "epochs are accessed in order");
        state.accessing = false;
        state.next_access += 1;
        state.accessed.push_back(epoch);
        drop(state);
        self.changed.notify_all();
    }

    /// The time that workers waited since the last call, nanoseconds.
    pub fn take_idle(&self) -> u64 {
        std::mem::take(&mut self.state.lock().idle)
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

    fn pick(&mut self) -> Option<Task<E, J>> {
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

    fn pick_prepare(&mut self) -> Option<Task<E, J>> {
        let epoch = self.gathered.pop_front()?;
        self.preparing += 1;
        Some(Task::Prepare(epoch))
    }
}
