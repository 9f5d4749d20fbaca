//! Silent sources: those that hold others back although nothing comes from them.
//!
//! A source that is declared silent, or that has been without input for as long as it allows, gets punctuations: its mark
//! follows the least mark of the others. They are inputs like records, and logged, so a replay and the audit know no clock
//! (`docs/formalism.md`, "Marks and lateness").
//!
//! # Invariant
//!
//! If all sources are silent, nothing moves. A punctuation shows no time that was not shown before: the mark of a clock is
//! its next tick, which others are not raised to until it comes.

use std::collections::BTreeSet;
use std::time::Duration;
use tidemill_recovery::LogFeed;
use tidemill_stages::gate::Gate;

/// The silence of sources.
pub struct Idle {
    /// The time that each source may be without input, by source, nanoseconds.
    after: Vec<Option<u64>>,
    /// The time of each source's last input, by source (time of the clock).
    heard: Vec<u64>,
    silent: BTreeSet<usize>,
}

impl Idle {
    /// Begins at time `now`, when no source of `count` is silent. `after`: by source, how long it may be without input.
    pub fn new(after: Vec<Option<Duration>>, count: usize, now: u64) -> Idle {
        let nanoseconds = |after: Option<Duration>| after.map(|after| after.as_nanos() as u64);
        let mut after: Vec<Option<u64>> = after.into_iter().map(nanoseconds).collect();
        after.resize(count, None);
        Idle { after, heard: vec![now; count], silent: BTreeSet::new() }
    }

    /// Adds a split of a source, which may be without input for as long as the source allows.
    pub fn join(&mut self, source: usize, now: u64) {
        self.after.push(self.after[source]);
        self.heard.push(now);
    }

    /// Notes input of a source.
    pub fn heard(&mut self, source: usize, now: u64) {
        self.heard[source] = now;
        self.silent.remove(&source);
    }

    /// Begins to count silence: no source has been silent so far.
    pub fn begin(&mut self, now: u64) {
        self.heard.fill(now);
    }

    /// Returns whether a source is silent.
    pub fn is_silent(&self, source: usize) -> bool {
        self.silent.contains(&source)
    }

    /// Returns the silent sources.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        self.silent.iter().copied()
    }

    /// Declares a source silent until its next input.
    pub fn declare(&mut self, source: usize) {
        self.silent.insert(source);
    }

    /// Returns whether a source is silent, or may become so by the clock.
    pub fn is_needed(&self) -> bool {
        !self.silent.is_empty() || self.after.iter().any(Option::is_some)
    }

    /// Raises the marks of silent sources. `has_input`: whether a source has input that the gate has not taken.
    pub fn raise(
        &mut self,
        gate: &mut Gate,
        mut feed: Option<&mut LogFeed>,
        now: u64,
        has_input: impl Fn(usize) -> bool,
    ) {
        // Only a source that holds others back is worth it, and there is one at a time.
        if let Some(slowest) = gate.slowest_of(|source| !self.silent.contains(&source))
            && self.silent_from(gate, slowest).is_some_and(|from| now >= from)
            && !has_input(slowest)
        {
            self.silent.insert(slowest);
        }
        let least = gate.slowest_of(|source| !self.silent.contains(&source)).and_then(|source| gate.low(source));
        let (Some(least), Some(shown)) = (least, gate.shown()) else { return };
        let least = least.min(shown);
        for &source in &self.silent {
            // Input that a source gives after its silence comes first.
            if !has_input(source) && may_rise(gate, source) && gate.low(source) < Some(least) {
                punctuate(gate, feed.as_deref_mut(), source, least);
            }
        }
    }

    /// Returns the time (of the clock) at which a paused split that holds others back is raised by the clock, if it is
    /// not silent yet.
    pub fn holds_until(&self, gate: &Gate) -> Option<u64> {
        let slowest = gate.slowest_of(|source| !self.silent.contains(&source))?;
        self.silent_from(gate, slowest).filter(|_| gate.has_paused(slowest))
    }

    /// Returns the time for which a split may be without input until it does not hold others back any more,
    /// nanoseconds; none: for ever.
    pub fn allowed(&self, gate: &Gate, split: usize) -> Option<u64> {
        self.after[split].filter(|_| gate.has_time(split) && may_rise(gate, split))
    }

    /// Returns the time from which a source is silent if nothing comes of it (time of the clock).
    fn silent_from(&self, gate: &Gate, source: usize) -> Option<u64> {
        Some(self.heard[source].saturating_add(self.allowed(gate, source)?))
    }

    /// Returns whether a paused split holds back every event that may still come, and is not raised with the others.
    pub fn is_held_back(&self, gate: &Gate) -> bool {
        let rises = |split| self.silent.contains(&split) && may_rise(gate, split);
        gate.slowest_of(|split| !rises(split)).is_some_and(|slowest| gate.has_paused(slowest))
    }
}

/// Returns whether silence raises the mark of a split. A pause leaves the mark of a whole source as it is; one of
/// several splits is silent while others are read, and what it gets for a later run is compared with what they had.
fn may_rise(gate: &Gate, split: usize) -> bool {
    !gate.has_paused(split) || gate.is_one_of_several(split)
}

/// Gives a punctuation of a source to the gate and the log.
pub fn punctuate(gate: &mut Gate, feed: Option<&mut LogFeed>, source: usize, time: i64) {
    if gate.has_ended(source) {
        return;
    }
    if let Some(feed) = feed {
        feed.punctuate(source, time);
    }
    gate.punctuate(source, time);
}
