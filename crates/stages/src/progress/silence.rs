//! Silence: splits that hold others back although nothing comes from them.
//!
//! A split that is declared silent, or that has been without input for as long as it allows, gets punctuations: its mark
//! follows the least mark of the others. They are inputs like records, and logged, so a replay and the audit know no clock
//! (`docs/formalism.md`, "Marks and lateness").
//!
//! # Invariant
//!
//! If all splits are silent, nothing moves. A punctuation shows no time that was not shown before: the mark of a clock is
//! its next tick, which others are not raised to until it comes.

use super::Marks;
use std::collections::BTreeSet;
use std::time::Duration;

/// The silence of splits.
pub struct Silence {
    /// The time that each split may be without input, by split, nanoseconds.
    after: Vec<Option<u64>>,
    /// The time of each split's last input, by split (time of the clock).
    heard: Vec<u64>,
    silent: BTreeSet<usize>,
}

impl Silence {
    /// Begins at time `now`, when no split of `count` is silent. `after`: by split, how long it may be without input.
    pub fn new(after: Vec<Option<Duration>>, count: usize, now: u64) -> Silence {
        let nanoseconds = |after: Option<Duration>| after.map(|after| after.as_nanos() as u64);
        let mut after: Vec<Option<u64>> = after.into_iter().map(nanoseconds).collect();
        after.resize(count, None);
        Silence { after, heard: vec![now; count], silent: BTreeSet::new() }
    }

    /// Adds a split of a source, which may be without input for as long as the source's first one.
    pub fn join(&mut self, source: usize, now: u64) {
        self.after.push(self.after[source]);
        self.heard.push(now);
    }

    /// Notes input of a split.
    pub fn heard(&mut self, split: usize, now: u64) {
        self.heard[split] = now;
        self.silent.remove(&split);
    }

    /// Begins to count silence: no split has been silent so far.
    pub fn begin(&mut self, now: u64) {
        self.heard.fill(now);
    }

    /// Returns whether a split is silent.
    pub fn is_silent(&self, split: usize) -> bool {
        self.silent.contains(&split)
    }

    /// Returns the silent splits.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        self.silent.iter().copied()
    }

    /// Declares a split silent until its next input.
    pub fn declare(&mut self, split: usize) {
        self.silent.insert(split);
    }

    /// Returns whether a split is silent, or may become so by the clock.
    pub fn is_needed(&self) -> bool {
        !self.silent.is_empty() || self.after.iter().any(Option::is_some)
    }

    /// Returns the punctuations that silent splits get at time `now`: their numbers, with the time of each. `has_input`:
    /// whether a split has input that the gate has not taken.
    pub fn raise(&mut self, marks: &Marks, now: u64, has_input: impl Fn(usize) -> bool) -> Vec<(usize, i64)> {
        // Only a split that holds others back is worth it, and there is one at a time.
        if let Some(slowest) = self.slowest_heard(marks)
            && self.silent_from(marks, slowest).is_some_and(|from| now >= from)
            && !has_input(slowest)
        {
            self.silent.insert(slowest);
        }
        let least = self.slowest_heard(marks).and_then(|split| marks.of(split).low());
        let (Some(least), Some(shown)) = (least, marks.shown()) else { return Vec::new() };
        let least = least.min(shown);
        // Input that a split gives after its silence comes first.
        let is_raised = |&split: &usize| {
            let of = marks.of(split);
            !of.ended && !has_input(split) && may_rise(marks, split) && of.low() < Some(least)
        };
        self.silent().filter(is_raised).map(|split| (split, least)).collect()
    }

    /// Returns the split that holds others back, and is not silent.
    fn slowest_heard(&self, marks: &Marks) -> Option<usize> {
        marks.slowest_of(|split| !self.silent.contains(&split))
    }

    /// Returns the time (of the clock) at which a paused split that holds others back is raised by the clock, if it is
    /// not silent yet.
    pub fn holds_until(&self, marks: &Marks) -> Option<u64> {
        let slowest = self.slowest_heard(marks)?;
        self.silent_from(marks, slowest).filter(|_| marks.of(slowest).paused)
    }

    /// Returns the time for which a split may be without input until it does not hold others back any more,
    /// nanoseconds; none: for ever.
    pub fn allowed(&self, marks: &Marks, split: usize) -> Option<u64> {
        self.after[split].filter(|_| marks.of(split).has_time() && may_rise(marks, split))
    }

    /// Returns the time from which a split is silent if nothing comes of it (time of the clock).
    fn silent_from(&self, marks: &Marks, split: usize) -> Option<u64> {
        Some(self.heard[split].saturating_add(self.allowed(marks, split)?))
    }

    /// Returns whether a paused split holds back every event that may still come, and is not raised with the others.
    pub fn is_held_back(&self, marks: &Marks) -> bool {
        let rises = |split| self.silent.contains(&split) && may_rise(marks, split);
        marks.slowest_of(|split| !rises(split)).is_some_and(|slowest| marks.of(slowest).paused)
    }
}

/// Returns whether silence raises the mark of a split. A pause leaves the mark of a whole source as it is; one of
/// several splits is silent while others are read, and what it gets for a later run is compared with what they had.
fn may_rise(marks: &Marks, split: usize) -> bool {
    !marks.of(split).paused || marks.is_one_of_several(split)
}
