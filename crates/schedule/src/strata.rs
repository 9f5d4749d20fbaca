//! The strata of an epoch, which structured exploration follows (MorphStream §4.1.1), found by all of its workers.
//!
//! **Definition.** As of [`tidemill_txn::Strata`]: the stratum of a unit is the number of edges on the longest path that
//! ends in it.
//! **Numbering.** An unstructured exploration that runs nothing: a worker that comes to a unit raises those that wait for it
//! to the stratum after its own. All that may raise a unit have done so before a worker comes to it, so its stratum is
//! final then. A worker that has run out of units adds those that it came to to the sizes of their strata, which gives
//! them numbers there.
//! **Placing.** The worker that completes the sizes says where each stratum begins. Workers then put blocks of units into
//! their places.
//! **Cost.** As much as the counters of an unstructured exploration, and 16 bytes for each unit. Of two workers one goes over
//! the units in order, without counters, which takes as long as both with them.

use crate::frontier::Frontier;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Range;
use tidemill_txn::Precedence;

/// Units that a worker puts into their places at once.
const BLOCK: u32 = if cfg!(feature = "loom") { 2 } else { 256 };

/// The units of an epoch by stratum, in any order inside each. Reused from epoch to epoch.
#[derive(Debug)]
pub(crate) struct Strata {
    /// The progress over units that workers have come to.
    pub frontier: Frontier,
    /// Unit → its stratum. Raised by workers that come to a unit before it.
    strata: Vec<AtomicU32>,
    /// Unit → its number in its stratum. Set by the worker that came to it.
    numbers: Vec<AtomicU32>,
    /// Stratum → its units. Added to while units get their numbers; then those that have not run, counted down where
    /// aborts are handled stratum by stratum.
    sizes: Vec<AtomicU32>,
    /// Stratum → where it begins among the members; then their number. Set by the worker that completed the sizes.
    starts: Vec<AtomicU32>,
    /// The units, stratum by stratum. Set by the worker that claimed the unit's block.
    members: Vec<AtomicU32>,
    /// A flag: whether the sizes are complete.
    numbered: AtomicBool,
    /// The next unit to place. Claimed by workers.
    next_place: CachePadded<AtomicU32>,
    /// Units placed. Added to by the workers that place.
    placed: CachePadded<AtomicU32>,
    /// A flag: whether all units are in their places.
    found: AtomicBool,
}

impl Strata {
    pub fn new() -> Self {
        Strata {
            frontier: Frontier::new(),
            strata: Vec::new(),
            numbers: Vec::new(),
            sizes: Vec::new(),
            starts: Vec::new(),
            members: Vec::new(),
            numbered: AtomicBool::new(false),
            next_place: CachePadded::new(AtomicU32::new(0)),
            placed: CachePadded::new(AtomicU32::new(0)),
            found: AtomicBool::new(false),
        }
    }

    /// Forgets what an epoch that was ended by a panic left.
    pub fn forget(&mut self) {
        self.frontier.begin(0, true);
    }

    /// Begins an epoch of at most this many units.
    pub fn begin(&mut self, units: u32) {
        self.frontier.begin(units, false);
        let units = units as usize;
        for (list, length) in [
            (&mut self.strata, units),
            (&mut self.numbers, units),
            (&mut self.members, units),
            (&mut self.sizes, units),
            (&mut self.starts, units + 1),
        ] {
            if list.len() < length {
                list.resize_with(length, || AtomicU32::new(0));
            }
        }
        for list in [&self.strata, &self.sizes] {
            list[..units].iter().for_each(|value| value.store(0, Ordering::Relaxed));
        }
        self.next_place.store(0, Ordering::Relaxed);
        self.placed.store(0, Ordering::Relaxed);
        self.numbered.store(false, Ordering::Relaxed);
        self.found.store(false, Ordering::Relaxed);
    }

    /// Says how many units there are, before a worker comes to any. Of none, the strata are found.
    pub fn set_units(&self, units: u32) {
        self.frontier.set_units(units);
        self.found.store(units == 0, Ordering::Release);
    }

    pub fn is_numbered(&self) -> bool {
        self.numbered.load(Ordering::Acquire)
    }

    pub fn is_found(&self) -> bool {
        self.found.load(Ordering::Acquire)
    }

    /// Returns the stratum of a unit.
    #[inline]
    pub fn of(&self, unit: u32) -> u32 {
        self.strata[unit as usize].load(Ordering::Relaxed)
    }

    /// Returns the unit at a place among all, stratum by stratum.
    #[inline]
    pub fn member(&self, place: u32) -> u32 {
        self.members[place as usize].load(Ordering::Relaxed)
    }

    /// Returns the places of a stratum.
    pub fn bounds(&self, stratum: u32) -> Range<u32> {
        let start = |stratum: u32| self.starts[stratum as usize].load(Ordering::Relaxed);
        start(stratum)..start(stratum + 1)
    }

    /// Notes that a unit of a stratum has run. True if it is the last one.
    pub fn end(&self, stratum: u32) -> bool {
        let before = self.sizes[stratum as usize].fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "stratum {stratum} has run more units than it has");
        before == 1
    }

    /// Raises a unit that waits for one of the stratum before this one.
    #[inline]
    pub fn raise(&self, unit: u32, stratum: u32) {
        let own = &self.strata[unit as usize];
        if own.load(Ordering::Relaxed) < stratum {
            own.fetch_max(stratum, Ordering::Relaxed);
        }
    }

    /// Gives numbers to the units that a worker has come to, at least one. True if all have their numbers now.
    pub fn number(&self, met: &mut Met) -> bool {
        let Met { units, counts, next } = met;
        let count = units.len() as u32;
        assert!(count > 0, "no units get numbers");
        for &unit in &*units {
            let stratum = self.of(unit) as usize;
            if counts.len() <= stratum {
                counts.resize(stratum + 1, 0);
                next.resize(stratum + 1, 0);
            }
            counts[stratum] += 1;
        }
        for unit in units.drain(..) {
            let stratum = self.of(unit) as usize;
            let count = std::mem::take(&mut counts[stratum]);
            if count > 0 {
                // The first one takes numbers for all of its stratum.
                next[stratum] = self.sizes[stratum].fetch_add(count, Ordering::Relaxed);
            }
            self.numbers[unit as usize].store(next[stratum], Ordering::Relaxed);
            next[stratum] += 1;
        }
        let is_last = self.frontier.count(count) == self.frontier.units();
        if is_last {
            self.close();
        }
        is_last
    }

    /// Says where each stratum begins.
    fn close(&self) {
        let units = self.frontier.units();
        let (mut stratum, mut start) = (0, 0);
        self.starts[0].store(0, Ordering::Relaxed);
        while start < units {
            let size = self.sizes[stratum as usize].load(Ordering::Relaxed);
            assert!(size > 0, "stratum {stratum} is empty, and {start} of {units} units lie before it");
            (stratum, start) = (stratum + 1, start + size);
            self.starts[stratum as usize].store(start, Ordering::Relaxed);
        }
        assert_eq!(start, units, "every unit is in one stratum");
        self.numbered.store(true, Ordering::Release);
    }

    /// Puts the next block of units into their places. True if all are in theirs now; none if all are claimed.
    pub fn place_block(&self, placed: impl FnMut(u32, u32)) -> Option<bool> {
        let units = self.frontier.units();
        if self.next_place.load(Ordering::Relaxed) >= units {
            return None;
        }
        let begin = self.next_place.fetch_add(BLOCK, Ordering::Relaxed).min(units);
        let end = begin.saturating_add(BLOCK).min(units);
        if begin == end {
            return None;
        }
        self.place(begin..end, placed);
        let in_place = self.placed.fetch_add(end - begin, Ordering::AcqRel) + (end - begin);
        assert!(in_place <= units, "{in_place} units placed of {units}");
        if in_place == units {
            self.found.store(true, Ordering::Release);
        }
        Some(in_place == units)
    }

    /// Puts units into their places, and tells each one's.
    fn place(&self, units: Range<u32>, mut placed: impl FnMut(u32, u32)) {
        for unit in units {
            let start = self.starts[self.of(unit) as usize].load(Ordering::Relaxed);
            let place = start + self.numbers[unit as usize].load(Ordering::Relaxed);
            self.members[place as usize].store(unit, Ordering::Relaxed);
            placed(place, unit);
        }
    }

    /// Finds all, for one worker that does so alone: all that may raise a unit come before it. False if another one does.
    pub fn find_alone(&self, precedence: &impl Precedence, placed: impl FnMut(u32, u32)) -> bool {
        let (units, order) = (self.frontier.units(), Ordering::Relaxed);
        if self.next_place.compare_exchange(0, units, order, order).is_err() {
            return false;
        }
        for unit in 0..units {
            let stratum = self.of(unit);
            let size = &self.sizes[stratum as usize];
            let number = size.load(Ordering::Relaxed);
            size.store(number + 1, Ordering::Relaxed);
            self.numbers[unit as usize].store(number, Ordering::Relaxed);
            precedence.tell(unit, |told| {
                debug_assert!(told > unit, "unit {unit} tells {told}, which is not after it");
                let own = &self.strata[told as usize];
                own.store(own.load(Ordering::Relaxed).max(stratum + 1), Ordering::Relaxed);
            });
        }
        self.close();
        self.place(0..units, placed);
        self.found.store(true, Ordering::Release);
        true
    }
}

/// Units that a worker has come to, and that have no numbers yet.
#[derive(Debug, Default)]
pub(crate) struct Met {
    units: Vec<u32>,
    /// The number of the worker's units in each stratum. All zero between uses.
    counts: Vec<u32>,
    /// The number that the next unit of each stratum gets. Read where the count was not zero.
    next: Vec<u32>,
}

impl Met {
    /// Forgets what a panic may have left.
    pub fn clear(&mut self) {
        self.units.clear();
        self.counts.clear();
        self.next.clear();
    }

    pub fn push(&mut self, unit: u32) {
        self.units.push(unit);
    }

    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
}
