//! An epoch that all free workers access together: in one part, or in several where groups of its transactions, which
//! share no row, are scheduled by themselves (MorphStream 2023, §6.2.3).
//!
//! **Several parts.** A worker begins with the part of its number and goes on to the next whenever there is nothing to
//! do for it, so parts run beside each other as long as they are, and whoever is done with one helps with another. The
//! last part that is left is waited for as a single one is. Parts share no row, so what orders transactions inside a
//! part is all that need be ordered.

use crate::access::grouping::{GroupSet, Scheduled};
use crate::access::part::{Ended, Part};
pub use crate::access::part::{Memory, may_redo};
use crate::access::serial::ensure_identity;
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::machine::{Machine, Scratch};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_schedule::{Method, Presence, Shared, Worker};

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who began it and will end it.
    Owner,
    /// Any other.
    Helper,
}

/// An epoch that all free workers access together.
pub struct Job {
    epoch: Box<Epoch>,
    parts: Vec<Part>,
    done: AtomicBool,
    /// Whether a worker went by a panic: nobody waits for it.
    abandoned: AtomicBool,
}

impl Job {
    /// Locates a part of the epoch's order and arranges for how it is scheduled, on one worker.
    /// `memory` gives what a part needs.
    pub fn new(machine: &Machine, mut memory: impl FnMut() -> Memory, epoch: Box<Epoch>, range: &Range<usize>) -> Job {
        let wanted = parts(&epoch.scheduled);
        let part = |(groups, method)| Part::new(machine, memory(), &epoch, (range, groups), method);
        let parts = wanted.into_iter().map(part).collect();
        Job { epoch, parts, done: AtomicBool::new(false), abandoned: AtomicBool::new(false) }
    }

    /// Whether somebody may find something to do in it.
    pub fn wants_help(&self) -> bool {
        !self.done.load(Ordering::Acquire) && !self.parts.iter().all(Part::is_taken)
    }

    /// Takes part until all has run, or for a helper, who has other work, until nobody can help.
    pub fn help(
        &self,
        machine: &Machine,
        environment: &dyn Environment,
        (scratch, worker): (&mut Scratch, &mut Worker),
        role: Role,
    ) {
        if self.done.load(Ordering::Acquire) {
            return;
        }
        ensure_identity(&self.epoch, &mut scratch.identity);
        let _presence = Presence(self);
        let epoch = (&*self.epoch, &scratch.identity);
        let (count, first) = (self.parts.len(), worker.id() % self.parts.len());
        let left = || (0..count).map(|k| &self.parts[(first + k) % count]).filter(|part| !part.is_done());
        loop {
            let waits = left().count() == 1;
            left().for_each(|part| part.help(machine, environment, epoch, worker, waits));
            if left().next().is_none() || role == Role::Helper && !self.wants_help() {
                return;
            }
            assert!(!self.abandoned.load(Ordering::Acquire), "the epoch is stopped: another worker panicked");
            std::thread::yield_now();
        }
    }

    /// Ends it, when all has run, for its owner: its epoch, and what is kept. `workers`: how many there are.
    pub fn end(mut job: Arc<Job>, workers: usize) -> (Box<Epoch>, Vec<Memory>) {
        job.done.store(true, Ordering::Release);
        // Helpers are on their way out; the last one's reference makes the job ours alone.
        let job = loop {
            match Arc::try_unwrap(job) {
                Ok(own) => break own,
                Err(shared) => job = shared,
            }
            // A helper may have lost its processor: it needs one to leave.
            std::thread::yield_now();
        };
        let Job { mut epoch, parts, .. } = job;
        let mut memories = Vec::with_capacity(parts.len());
        let is_one = parts.len() == 1;
        for part in parts {
            let (ended, memory) = part.end(&mut epoch);
            memories.push(memory);
            account(&mut epoch.scheduled, &ended, (is_one, workers));
        }
        (epoch, memories)
    }
}

/// The parts that groups are run in: those of one parallel policy together, since one graph is explored better than two;
/// serial ones each by itself, for a worker each.
fn parts(scheduled: &[Scheduled]) -> Vec<(GroupSet, Method)> {
    let mut parts: Vec<(Vec<usize>, Method)> = Vec::new();
    for scheduled in scheduled {
        let method = scheduled.choice.method;
        let Some(group) = scheduled.group else { return vec![(GroupSet::ALL, method)] };
        match parts.iter_mut().find(|part| part.1 == method && !method.is_serial()) {
            Some(part) => part.0.push(group),
            None => parts.push((vec![group], method)),
        }
    }
    parts.into_iter().map(|(groups, method)| (GroupSet::of(groups.into_iter()), method)).collect()
}

/// Divides what a part took among its groups, by their transactions. (What a single part took, the wall says: that is
/// not known here.)
fn account(scheduled: &mut [Scheduled], ended: &Ended, (is_one, workers): (bool, usize)) {
    let of_part = |s: &Scheduled| s.group.is_none_or(|group| ended.groups.has(group));
    let in_all: u64 = scheduled.iter().filter(|s| of_part(s)).map(|s| u64::from(s.transactions)).sum();
    let alone = if ended.method.is_serial() { 1 } else { workers as u64 };
    for scheduled in scheduled.iter_mut().filter(|s| of_part(s)) {
        let share =
            |time: u64| (u128::from(time) * u128::from(scheduled.transactions) / u128::from(in_all.max(1))) as u64;
        (scheduled.access, scheduled.useful) =
            (if is_one { 0 } else { share(ended.busy / alone) }, share(ended.useful));
        scheduled.redone = share(u64::from(ended.redone)) as u32;
    }
}

impl Shared for Job {
    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }
}
