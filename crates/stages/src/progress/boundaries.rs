//! Boundaries: the next time at which rows of tables, or batches, can be due.

use crate::due::DueCut;
use tidemill_plan::{Bound, Due};

/// The earliest boundary at which something can be due, for each stream of what is due.
///
/// # Invariant
///
/// No row is due before its stream's boundary. A boundary is at a row that is there, or as early as a row can be due that
/// events have made since the rows were looked at.
pub struct Boundaries {
    streams: Vec<Next>,
    /// A flag: whether all that is due at a time has run, so that what closes at the end of time follows.
    is_last: bool,
}

/// The rule by which the rows of a stream, or its batches, are due.
pub struct Rule {
    /// The rule of rows; none of batches.
    pub due: Option<Due>,
    /// The earliest boundary that an event can make.
    pub bound: Bound,
    /// A flag: whether events can make rows due. Not so where rows follow from other streams of due rows alone, as the
    /// top of windows that close.
    pub by_events: bool,
}

struct Next {
    rule: Rule,
    /// The least boundary of a row when they were looked at last; the least of all before that.
    known: Option<i64>,
    /// The least time of the events that passed since then.
    since: Option<i64>,
    /// A flag: whether the rows were looked at.
    is_known: bool,
    /// A flag, for batches: whether the end of time has come, so that those that have no time of their own are due.
    is_at_end: bool,
    /// A flag: whether it is left alone, as others end.
    stays: bool,
}

/// The times of events that the gate knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The least of those that are held.
    pub first: Option<i64>,
    /// The greatest of those that have passed.
    pub last: Option<i64>,
    /// The greatest that was shown.
    pub shown: Option<i64>,
    /// A flag: whether the boundary is beyond all times that were shown, so that only open windows and batches close
    /// there.
    pub is_end: bool,
}

impl Times {
    /// Returns the times of boundaries beyond all that were shown, where no event is left.
    pub fn at_end(self) -> Times {
        Times { first: None, is_end: true, ..self }
    }
}

impl Next {
    fn begins_instant(&self) -> bool {
        self.rule.due.as_ref().is_some_and(Due::begins_instant)
    }

    /// Returns the rule of times of a grid, if it has one.
    fn grid(&self) -> Option<&Due> {
        self.rule.due.as_ref().filter(|due| due.is_ticks() || due.is_rows())
    }

    /// Returns the earliest boundary.
    fn boundary(&self, times: Times) -> Option<i64> {
        // Also in a run that goes on within the end of time, and has not looked.
        if self.begins_instant() && times.is_end {
            return None;
        }
        if !self.is_known {
            return Some(i64::MIN);
        }
        if let Some(rows) = self.rule.due.as_ref().filter(|due| due.is_rows() && times.is_end) {
            return times.last.and_then(|last| rows.next_rows(self.known, last, times.shown));
        }
        if let Some(grid) = self.grid() {
            let next = times.last.or(times.first).and_then(|last| match grid.is_rows() {
                true => grid.next_rows(self.known, last, None),
                false => grid.next_tick(self.known, last),
            });
            // Those up to the next event may be left out, but not those after it.
            return next.or_else(|| times.first.and_then(|first| self.rule.bound.after(first)));
        }
        let first = times.first.filter(|_| self.rule.by_events);
        let made = self.since.or(first).and_then(|time| self.rule.bound.after(time));
        [self.known, made].into_iter().flatten().min()
    }
}

impl Boundaries {
    /// Begins before the first look: rows may be due at once. The rules are those of the streams, by stream.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Boundaries {
        let next = |rule| Next { rule, known: None, since: None, is_known: false, is_at_end: false, stays: false };
        Boundaries { streams: rules.into_iter().map(next).collect(), is_last: false }
    }

    /// Forgets all looks: the rows were changed by what nobody told of.
    pub fn forget(&mut self) {
        self.streams.iter_mut().for_each(|next| (next.known, next.since, next.is_known) = (None, None, false));
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether nothing is ever due.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the earliest boundary before the end of time.
    pub fn next(&self, times: Times) -> Option<i64> {
        self.timely().filter_map(|next| next.boundary(times)).min()
    }

    /// Returns the streams whose time has come, or can come before the end of time.
    fn timely(&self) -> impl Iterator<Item = &Next> {
        self.streams.iter().filter(|next| self.is_timely(next))
    }

    fn is_timely(&self, next: &Next) -> bool {
        !next.stays && (self.is_last || next.is_at_end || next.rule.bound != Bound::Never)
    }

    /// Leaves alone, from now on, timers and the streams that do not end. `ends`: by stream, whether it does.
    pub fn only(&mut self, ends: impl IntoIterator<Item = bool>) {
        for (next, ends) in self.streams.iter_mut().zip(ends) {
            next.stays = next.begins_instant() || !ends;
        }
    }

    /// Returns the earliest boundary once no event comes any more: everything that is open closes, what has no time of
    /// its own after all that has one, but batches behind all times that were shown. No timer comes any more.
    /// `batch`: the boundary of the open batch of a stream of batches, by stream.
    pub fn last(&mut self, times: Times, mut batch: impl FnMut(usize) -> Option<i64>) -> Option<i64> {
        for (due, next) in self.streams.iter_mut().enumerate().filter(|(_, next)| next.rule.due.is_none()) {
            (next.known, next.since, next.is_known, next.is_at_end) = (batch(due), None, true, true);
        }
        let at = times.at_end();
        let least = |of: &Self| of.timely().filter(|next| !next.begins_instant()).filter_map(|n| n.boundary(at)).min();
        let timed = least(self);
        self.is_last |= timed.is_none();
        timed.or_else(|| least(self))
    }

    /// Returns whether rows of a stream may be due at a boundary.
    pub fn may_be_due(&self, at: DueCut, times: Times) -> bool {
        let next = &self.streams[at.due];
        self.is_timely(next) && next.boundary(times).is_some_and(|next| next <= at.boundary)
    }

    /// Notes that the rows of a stream were looked at, and those taken that are due at a boundary, if there were any.
    /// `next`: the least boundary of the others.
    pub fn looked_at(&mut self, at: DueCut, is_taken: bool, next: Option<i64>) {
        let of = &mut self.streams[at.due];
        (of.known, of.since, of.is_known) = (next, None, true);
        if is_taken {
            // Rows of sliding windows stay, and are due again, as those of joins may be.
            let again = match of.rule.bound {
                Bound::Grid { every, .. } => at.boundary.checked_add(every),
                Bound::Again(_) => at.boundary.checked_add(1),
                _ => None,
            };
            of.known = [of.known, again].into_iter().flatten().min();
        }
    }

    /// Returns, for each stream of times of a grid, how many of these times are left out if events that follow `last`
    /// pass up to `until`.
    pub fn left_out(&self, last: Option<i64>, until: Option<i64>) -> impl Iterator<Item = (usize, u64)> {
        let times = last.zip(until);
        let of = move |(due, next): (usize, &Next)| {
            let ((last, until), grid) = (times?, next.grid()?);
            Some((due, grid.left_out(next.known, last, until))).filter(|&(_, count)| count > 0)
        };
        self.streams.iter().enumerate().filter_map(of)
    }

    /// Notes that events of sources passed, the first of them at a time.
    pub fn passes(&mut self, first: Option<i64>) {
        self.streams.iter_mut().filter(|next| next.rule.by_events).for_each(|next| next.follows(first));
    }

    /// Notes that what was due passed.
    pub fn passes_due(&mut self, at: DueCut) {
        let (from, time) = match self.streams[at.due].begins_instant() {
            // A timer begins the instant.
            true => (0, Some(at.boundary)),
            // The due rows at hand may make rows of later streams due.
            false => (at.due + 1, at.boundary.checked_sub(1)),
        };
        self.streams[from..].iter_mut().for_each(|next| next.follows(time));
    }
}

impl Next {
    /// Notes that something of this time passed, which may make rows due.
    fn follows(&mut self, time: Option<i64>) {
        // A last short batch comes after late events beyond the times that were shown, and has an earlier time.
        self.since = [self.since, time].into_iter().flatten().min();
    }
}
