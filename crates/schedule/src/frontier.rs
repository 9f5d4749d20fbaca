//! The progress of a run over units: which were claimed, what each still waits for, how many have run.
//!
//! The head of `executor.rs` says how counters work, and why no unit is forgotten or runs twice.

use crate::sync::{AtomicU32, BLOCK_MAX, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Range;
use tidemill_txn::Precedence;

/// Added to a counter by the look at its unit. More than there can be edges that end in one unit.
const LOOKED_AT: u32 = 1 << 31;

/// The frontier of a run. Reused from run to run.
#[derive(Debug)]
pub(crate) struct Frontier {
    units: AtomicU32,
    /// The counter of each unit; the head of `executor.rs` says how it works. Written by workers that ran a predecessor
    /// and by the one that looks; reset to 0 by the one that takes the unit. Not touched where there is no edge.
    counters: Vec<AtomicU32>,
    /// Claimed by workers. Unstructured: the next unit to look at. Breadth first: the next member of the strata to
    /// run.
    next_look: CachePadded<AtomicU32>,
    /// Units run. Added to by workers that have run out of work.
    finished: CachePadded<AtomicU32>,
}

impl Frontier {
    pub(crate) fn new() -> Self {
        Frontier {
            units: AtomicU32::new(0),
            counters: Vec::new(),
            next_look: CachePadded::new(AtomicU32::new(0)),
            finished: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Begins a run over this many units. `afresh`: the run before was ended by a panic, which leaves arrivals in
    /// counters.
    pub(crate) fn begin(&mut self, units: u32, afresh: bool) {
        if afresh {
            self.counters.clear();
        }
        debug_assert!(self.counters_are_zero(), "the run before left arrivals in a counter");
        self.next_look.store(0, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        self.resize(units);
    }

    /// Says how many units there are, before any is claimed.
    pub(crate) fn resize(&mut self, units: u32) {
        assert!(units < LOOKED_AT, "{units} units: counters could not hold their edges");
        self.set_units(units);
        if self.counters.len() < units as usize {
            self.counters.resize_with(units as usize, || AtomicU32::new(0));
        }
    }

    /// Lowers the number of units while workers take part: published by the end of linking.
    pub(crate) fn set_units(&self, units: u32) {
        self.units.store(units, Ordering::Relaxed);
    }

    /// Returns whether every counter is as a run needs it. Each unit that was taken left its counter at 0.
    fn counters_are_zero(&self) -> bool {
        self.counters.iter().all(|counter| counter.load(Ordering::Relaxed) == 0)
    }

    #[inline]
    pub(crate) fn units(&self) -> u32 {
        self.units.load(Ordering::Relaxed)
    }

    pub(crate) fn finished(&self) -> u32 {
        self.finished.load(Ordering::Acquire)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished() == self.units()
    }

    /// Returns whether no unit is left to claim. A hint.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.next_look.load(Ordering::Relaxed) >= self.units()
    }

    /// Adds units that a worker has run to the common count, and returns it.
    pub(crate) fn count(&self, executed: u32) -> u32 {
        let finished = self.finished.fetch_add(executed, Ordering::AcqRel) + executed;
        assert!(finished <= self.units(), "{finished} units run, more than there are");
        finished
    }

    /// Claims a block of units and stacks those that are ready, the first on top, but for those that it gives away. False
    /// if all are claimed.
    pub(crate) fn look<P: Precedence>(
        &self,
        precedence: &P,
        workers: u32,
        ready: &mut Vec<u32>,
        gives: impl Fn(u32) -> bool,
    ) -> bool {
        let Some(block) = self.claim(workers, |_| self.units()) else { return false };
        ready.extend(block.rev().filter(|&unit| self.is_ready(precedence, unit) && !gives(unit)));
        true
    }

    /// Claims the next block of units, of at most what is left before the end that belongs to its beginning.
    pub(crate) fn claim(&self, workers: u32, end_of: impl Fn(u32) -> u32) -> Option<Range<u32>> {
        let mut begin = self.next_look.load(Ordering::Relaxed);
        loop {
            if begin >= self.units() {
                return None;
            }
            let left = end_of(begin) - begin;
            assert!(left > 0, "a block at {begin} of {} units is empty", self.units());
            let end = begin + (left / (2 * workers)).clamp(1, BLOCK_MAX);
            let order = Ordering::Relaxed;
            match self.next_look.compare_exchange_weak(begin, end, order, order) {
                Ok(_) => return Some(begin..end),
                Err(now) => begin = now,
            }
        }
    }

    /// Tells the units that wait for a unit that it has run, and stacks those that became ready and that it does not
    /// give away; but returns the first of them in position order, since most other units may wait for that one.
    #[inline]
    pub(crate) fn release<P: Precedence>(
        &self,
        precedence: &P,
        unit: u32,
        ready: &mut Vec<u32>,
        gives: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut first = None;
        precedence.tell(unit, |told| {
            debug_assert!(told > unit, "unit {unit} tells {told}, which is not after it");
            if self.arrive(told) && !gives(told) {
                match first {
                    None => first = Some(told),
                    Some(other) => {
                        ready.push(other.max(told));
                        first = Some(other.min(told));
                    }
                }
            }
        });
        first
    }

    /// Tells the units that wait for a unit that it has run; the workers that own them look for themselves. True if the
    /// turn of one has come.
    pub(crate) fn notify<P: Precedence>(&self, precedence: &P, unit: u32) -> bool {
        let mut any = false;
        precedence.tell(unit, |told| {
            let arrived = self.counters[told as usize].fetch_add(1, Ordering::AcqRel) + 1;
            any |= arrived == precedence.pending(told);
        });
        any
    }

    /// Returns the number of a unit's predecessors that have run and told it so.
    #[inline]
    pub(crate) fn arrived(&self, unit: u32) -> u32 {
        self.counters[unit as usize].load(Ordering::Acquire)
    }

    /// Takes a unit of which no other worker changes the counter any more in this run.
    #[inline]
    pub(crate) fn take(&self, unit: u32) {
        self.counters[unit as usize].store(0, Ordering::Relaxed);
    }

    /// Looks at a unit. True if all units that it waits for have run: then it is this worker's.
    #[inline]
    fn is_ready<P: Precedence>(&self, precedence: &P, unit: u32) -> bool {
        let pending = precedence.pending(unit);
        if pending == 0 {
            return true;
        }
        assert!(pending < LOOKED_AT, "unit {unit} waits for {pending} others");
        let before = self.arrived(unit);
        assert!(before <= pending, "unit {unit} was told {before} times of {pending}, or looked at twice");
        let counter = &self.counters[unit as usize];
        let has_all = before == pending || counter.fetch_add(LOOKED_AT - pending, Ordering::AcqRel) == pending;
        if has_all {
            self.take(unit);
        }
        has_all
    }

    /// Notes that one of the edges that end in a unit is done. True if the unit was looked at and this is the last:
    /// then it is this worker's.
    #[inline]
    fn arrive(&self, unit: u32) -> bool {
        let now = self.counters[unit as usize].fetch_add(1, Ordering::AcqRel) + 1;
        assert!(now <= LOOKED_AT, "unit {unit} was told more often than edges end in it");
        if now == LOOKED_AT {
            self.take(unit);
        }
        now == LOOKED_AT
    }
}
