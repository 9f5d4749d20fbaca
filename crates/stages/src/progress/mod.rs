//! The progress of time, on integers alone: what may still come, what may pass, and what is due next.
//!
//! The gate tells it which times splits have shown and promised ([`SplitMarks`]). From these follow:
//!
//! - the *frontier*, the position before which nothing more can come, and with it the greatest time up to which events of
//!   each split may pass ([`Marks::limit`]);
//! - the program's mark, and the punctuation of an epoch ([`Marks::mark`], [`Marks::complete`]);
//! - the punctuations of splits that hold others back in silence ([`Silence`]);
//! - the next boundary at which something can be due ([`Boundaries`]).
//!
//! Nothing here has seen an event, a batch or a row, so all of it is tested on integers, against definitions that try
//! every time.
//!
//! # Invariant
//!
//! A low mark never falls. What passes at a time is not less than what passed at that time before, unless a boundary
//! holds it: what is still to come stands after all that may pass.

mod boundaries;
mod marks;
mod silence;
#[cfg(test)]
mod tests;

pub use boundaries::{Boundaries, Rule, Times};
pub use marks::{Admission, SplitMarks};
pub use silence::Silence;

/// A split, in the order that positions of one time have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitPlace {
    /// Its source.
    pub source: usize,
    /// Its number there.
    pub split: u32,
}

impl SplitPlace {
    /// A place after all splits.
    const LAST: SplitPlace = SplitPlace { source: usize::MAX, split: u32::MAX };
}

/// A position up to which everything may pass: a time, and the last split of which it passes at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontier {
    time: i64,
    place: SplitPlace,
}

impl Frontier {
    /// The end of time.
    const END: Frontier = Frontier { time: i64::MAX, place: SplitPlace::LAST };

    /// Returns the greatest time up to which what is of a split passes.
    pub fn limit(self, place: SplitPlace) -> Option<i64> {
        // At equal times the smaller split comes first.
        if place <= self.place { Some(self.time) } else { self.time.checked_sub(1) }
    }
}

/// The marks of all splits.
pub struct Marks {
    /// The marks of each split, by split: the first of each source, then those that joined.
    splits: Vec<SplitMarks>,
    /// A flag for each source: whether further splits may join.
    expects: Vec<bool>,
    /// A flag: whether late events of some source are inputs.
    takes_late: bool,
    /// No event of this time or a later one may pass before what is due then.
    boundary: Option<i64>,
}

impl Marks {
    /// Begins with the first split of each source, by source. `takes_late`: whether late events of some source are inputs.
    pub fn new(splits: Vec<SplitMarks>, takes_late: bool) -> Marks {
        let is_first = |(source, of): (usize, &SplitMarks)| of.place == SplitPlace { source, split: 0 };
        assert!(splits.iter().enumerate().all(is_first), "each source begins with its first split");
        Marks { expects: vec![false; splits.len()], splits, takes_late, boundary: None }
    }

    /// Returns the number of splits of all sources.
    pub fn splits(&self) -> usize {
        self.splits.len()
    }

    /// Returns the number of sources.
    pub fn sources(&self) -> usize {
        self.expects.len()
    }

    /// Returns the marks of a split.
    pub fn of(&self, split: usize) -> &SplitMarks {
        &self.splits[split]
    }

    /// Returns the marks of a split, to change them.
    pub fn of_mut(&mut self, split: usize) -> &mut SplitMarks {
        &mut self.splits[split]
    }

    /// Returns the marks of all splits, by split.
    pub fn iter(&self) -> impl Iterator<Item = &SplitMarks> {
        self.splits.iter()
    }

    /// Lets a split of a source join, with a mark; none if nothing was shown before. Returns its number.
    pub fn join(&mut self, source: usize, begin: Option<i64>) -> usize {
        let place = self.next_place(source);
        let first = &self.splits[source];
        assert!(first.has_time(), "only sources with event time have several splits");
        self.splits.push(SplitMarks { begin, ..SplitMarks::new(place, first.lateness) });
        self.splits.len() - 1
    }

    /// Returns the place of the next split of a source that joins.
    fn next_place(&self, source: usize) -> SplitPlace {
        SplitPlace { source, split: self.splits.iter().filter(|of| of.place.source == source).count() as u32 }
    }

    /// Returns the mark with which a split of a source joins now: the program's mark, or where something has passed
    /// that stands after the beginning of the split at that time, the next time. None before anything was shown.
    /// `passed`: the greatest position that has passed.
    pub fn mark_to_join(&self, source: usize, passed: Option<(i64, SplitPlace)>) -> Option<i64> {
        let place = self.next_place(source);
        let after = |(time, last): (i64, SplitPlace)| if last < place { time } else { time.saturating_add(1) };
        self.mark().max(passed.map(after))
    }

    /// Says whether further splits of a source may join: its end is not that of its splits.
    pub fn expect(&mut self, source: usize, more: bool) {
        self.expects[source] = more;
    }

    /// Returns whether further splits of a source may join.
    pub fn is_open(&self, source: usize) -> bool {
        self.expects[source]
    }

    /// Returns whether a source has ended for good: all of its splits, and no further one may join.
    pub fn is_over(&self, source: usize) -> bool {
        !self.expects[source] && self.splits.iter().all(|of| of.place.source != source || of.ended)
    }

    /// Returns whether all sources have ended: all of their splits, and no further one may join.
    pub fn ended(&self) -> bool {
        self.splits.iter().all(|of| of.ended) && !self.expects.contains(&true)
    }

    /// Returns whether the source of a split has several splits.
    pub fn is_one_of_several(&self, split: usize) -> bool {
        let source = self.splits[split].place.source;
        self.splits.iter().filter(|of| of.place.source == source).nth(1).is_some()
    }

    /// Returns the split with the smallest low mark, among those that hold others back and are `wanted`.
    pub fn slowest_of(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let open = (0..self.splits.len()).filter(|&split| self.splits[split].holds_back() && wanted(split));
        open.min_by_key(|&split| (self.splits[split].low(), self.splits[split].place))
    }

    /// Returns the position up to which events may pass: no event with a smaller one can come any more. None while a
    /// split that holds others back has shown nothing.
    pub fn frontier(&self) -> Option<Frontier> {
        let mut least = Frontier::END;
        for of in self.splits.iter().filter(|of| of.holds_back()) {
            least = least.min(Frontier { time: of.low()?, place: of.place });
        }
        // A late event may stand beyond the times that were shown.
        if self.takes_late && !self.ended() {
            least = least.min(Frontier { time: self.shown()?, place: SplitPlace::LAST });
        }
        Some(least)
    }

    /// Returns the position up to which late and bad records may pass: no record with a smaller one can come, and it is
    /// not beyond the program's mark; at the end of time there is no limit.
    pub fn frontier_aside(&self) -> Frontier {
        if self.ended() {
            return Frontier::END;
        }
        let mark = Frontier { time: self.mark().unwrap_or(i64::MIN), place: SplitPlace::LAST };
        let open = self.splits.iter().filter(|of| of.holds_back());
        open.map(|of| Frontier { time: of.low().unwrap_or(i64::MIN), place: of.place }).fold(mark, Ord::min)
    }

    /// Returns the greatest time up to which events of a split may pass, given the frontier.
    pub fn limit(&self, frontier: Option<Frontier>, split: usize) -> Option<i64> {
        let limit = self.limit_of_marks(frontier, split)?;
        match self.boundary {
            Some(boundary) => Some(limit.min(boundary.checked_sub(1)?)),
            None => Some(limit),
        }
    }

    /// Returns the greatest time up to which events of a split may pass by the frontier alone, without regard to the
    /// boundary.
    pub fn limit_of_marks(&self, frontier: Option<Frontier>, split: usize) -> Option<i64> {
        frontier?.limit(self.splits[split].place)
    }

    /// Lets no event of this time or a later one pass, until it is called again.
    pub fn hold_from(&mut self, boundary: Option<i64>) {
        self.boundary = boundary;
    }

    /// Returns whether nothing more passes before what is due at the boundary has run.
    pub fn is_held_by_boundary(&self) -> bool {
        self.boundary.is_some_and(|boundary| self.mark() >= Some(boundary))
    }

    /// Returns the program's mark: the time below which no event comes any more, and not more than the greatest that
    /// was shown.
    pub fn mark(&self) -> Option<i64> {
        let mut mark = self.shown()?;
        for of in self.timed().filter(|of| !of.ended) {
            mark = mark.min(of.low()?);
        }
        Some(mark)
    }

    /// Returns the time below which every event has passed, and none comes any more. `first`: the least time of the
    /// events that are held.
    pub fn complete(&self, first: Option<i64>) -> Option<i64> {
        let mark = self.mark()?;
        Some(first.map_or(mark, |first| first.min(mark)))
    }

    /// Returns the greatest time that was shown: that of an event, or of a punctuation.
    pub fn shown(&self) -> Option<i64> {
        self.timed().filter_map(SplitMarks::shown).max()
    }

    /// Returns whether all sources have ended and the events left have later times than any that was shown, as late
    /// events of a split that joined there may. Before such events only open windows and batches close. `first`: the
    /// least time of the events that are held.
    pub fn is_beyond(&self, first: Option<i64>) -> bool {
        self.takes_late && self.ended() && first > self.shown()
    }

    fn timed(&self) -> impl Iterator<Item = &SplitMarks> {
        self.splits.iter().filter(|of| of.has_time())
    }
}
