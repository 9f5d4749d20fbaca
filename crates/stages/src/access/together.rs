//! An epoch that all free workers access together: in one part, or in several if groups of its transactions, which
//! share no row, are scheduled separately (MorphStream 2023, §6.2.3).
//!
//! **Several parts.** A worker begins with the part that has its number and goes on to the next whenever it finds
//! nothing to do. So parts run concurrently while there are several, and a worker that is done with one part helps with
//! another. The workers wait for the last remaining part as they do for a single one. Parts share no row, so only the
//! transactions inside a part have to be ordered.

use crate::access::grouping::{GroupSet, Scheduled, Selection};
use crate::access::listing::Listing;
use crate::access::part::{Ended, Part};
pub use crate::access::part::{Memory, may_redo};
use crate::access::serial::ensure_identity;
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::machine::{Machine, Scratch};
use crate::tasks::WantsHelp;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_schedule::{Choice, Method, Presence, Shared, Worker};

/// The number of rounds over several parts in which a worker finds nothing to do, before it waits in one of them.
const ROUNDS_MAX: u32 = 16;

/// Announces an epoch that other workers may access, too.
pub trait Sharing {
    /// Offers the epoch to this many helpers at a time.
    fn share(&self, job: Arc<Job>, helpers: usize);

    /// Withdraws the epoch. On return no helper holds it.
    fn withdraw(&self);
}

/// The role of a worker in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The worker that began the job and will end it.
    Owner,
    /// Any other worker.
    Helper,
}

/// An epoch that all free workers access together.
pub struct Job {
    epoch: Box<Epoch>,
    parts: Vec<Part>,
    done: AtomicBool,
    /// A flag: whether a worker has left by a panic, so that the others stop waiting for it.
    abandoned: AtomicBool,
}

impl Job {
    /// Prepares the parts of a range of the epoch's order, on one worker. `memory` supplies the buffers of a part;
    /// `ahead` is what prepare has listed of the epoch.
    pub fn new(
        machine: &Machine,
        mut memory: impl FnMut() -> Memory,
        mut epoch: Box<Epoch>,
        range: &Range<usize>,
        mut ahead: Option<&mut Listing>,
    ) -> Job {
        let wanted = parts(&epoch.accessed.scheduled);
        let part = |(groups, method, workers)| {
            let selection = Selection { range: range.clone(), groups };
            Part::new(machine, memory(), &epoch, ahead.as_deref_mut(), selection, (method, workers))
        };
        let parts: Vec<Part> = wanted.into_iter().map(part).collect();
        epoch.accessed.listed = parts.iter().map(Part::listed).sum();
        epoch.accessed.breakdown.construct += epoch.accessed.listed;
        Job { epoch, parts, done: AtomicBool::new(false), abandoned: AtomicBool::new(false) }
    }

    /// Returns the number of workers that all parts together want.
    pub fn workers(&self) -> usize {
        self.parts.iter().map(|part| part.workers as usize).sum()
    }

    /// Takes part: the owner until all has run; a helper, which has other work, until no worker can help any more. A
    /// worker that finds nothing in any of several parts gives way a few times, then waits in one of them.
    pub fn help(
        &self,
        machine: &Machine,
        environment: &dyn Environment,
        scratch: &mut Scratch,
        worker: &mut Worker,
        role: Role,
    ) {
        if self.done.load(Ordering::Acquire) {
            return;
        }
        ensure_identity(&self.epoch, &mut scratch.identity);
        let _presence = Presence(self);
        let (epoch, identity) = (&*self.epoch, &scratch.identity);
        let (count, first) = (self.parts.len(), worker.id() % self.parts.len());
        let left = || (0..count).map(|k| &self.parts[(first + k) % count]).filter(|part| !part.is_done());
        for round in 0.. {
            let waits = round > ROUNDS_MAX || left().count() == 1;
            left().for_each(|part| part.help(machine, environment, epoch, identity, worker, waits));
            if left().next().is_none() || role == Role::Helper && !self.wants_help() {
                return;
            }
            assert!(!self.abandoned.load(Ordering::Acquire), "the epoch is stopped: another worker panicked");
            std::thread::yield_now();
        }
    }

    /// Marks the job as done: all has run, and helpers leave.
    pub fn finish(&self) {
        self.done.store(true, Ordering::Release);
    }

    /// Ends the job after it was withdrawn, for its owner: returns its epoch and the reusable buffers.
    pub fn end(job: Arc<Job>) -> (Box<Epoch>, Vec<Memory>) {
        let job = Arc::into_inner(job).expect("no helper holds an epoch that was withdrawn");
        let Job { mut epoch, parts, .. } = job;
        let mut memories = Vec::with_capacity(parts.len());
        let is_one = parts.len() == 1;
        for part in parts {
            let (ended, memory) = part.end(&mut epoch);
            memories.push(memory);
            account(&mut epoch.accessed.scheduled, &ended, is_one);
        }
        (epoch, memories)
    }
}

/// Returns the parts that groups are run in. Groups of one parallel policy share a part, because one graph is explored
/// more efficiently than two, and have as many workers as the one of them that wants most; each serial group has a
/// part, and a worker, of its own.
fn parts(scheduled: &[Scheduled]) -> Vec<(GroupSet, Method, u32)> {
    let mut parts: Vec<(Vec<usize>, Method, u32)> = Vec::new();
    for scheduled in scheduled {
        let Choice { method, workers, .. } = scheduled.choice;
        let Some(group) = scheduled.group else { return vec![(GroupSet::ALL, method, workers)] };
        match parts.iter_mut().find(|part| part.1 == method && !method.is_serial()) {
            Some((groups, _, most)) => {
                groups.push(group);
                *most = workers.max(*most);
            }
            None => parts.push((vec![group], method, workers)),
        }
    }
    parts.into_iter().map(|(groups, method, workers)| (GroupSet::of(groups.into_iter()), method, workers)).collect()
}

/// Divides the time of a part among its groups, in proportion to the number of their transactions. (The time of a
/// single part is the wall time, which is not known here.)
fn account(scheduled: &mut [Scheduled], ended: &Ended, is_one: bool) {
    let of_part = |s: &Scheduled| s.group.is_none_or(|group| ended.groups.has(group));
    let in_all: u64 = scheduled.iter().filter(|s| of_part(s)).map(|s| u64::from(s.transactions)).sum();
    let alone = u64::from(ended.workers);
    for scheduled in scheduled.iter_mut().filter(|s| of_part(s)) {
        let share =
            |time: u64| (u128::from(time) * u128::from(scheduled.transactions) / u128::from(in_all.max(1))) as u64;
        (scheduled.access, scheduled.useful) =
            (if is_one { 0 } else { share(ended.busy / alone) }, share(ended.useful));
        scheduled.redone = share(u64::from(ended.redone)) as u32;
    }
}

impl WantsHelp for Job {
    fn wants_help(&self) -> bool {
        !self.done.load(Ordering::Acquire) && !self.parts.iter().all(Part::is_taken)
    }
}

impl Shared for Job {
    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }
}
