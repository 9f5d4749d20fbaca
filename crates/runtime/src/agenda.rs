//! The agenda of the gate: the next time at which rows of tables, or batches, can be due.

use arrow_array::RecordBatch;
use tidemill_durability::StateError;
use tidemill_plan::{Bound, Due, StreamId};
use tidemill_recovery::RunError;
use tidemill_stages::due::{due_of, due_rows};
use tidemill_stages::gate::{Cut, Gate};
use tidemill_stages::machine::Machine;
use tidemill_state::EvictedError;

/// The earliest boundary at which a row can be due, for each stream of due rows.
///
/// # Invariant
///
/// No row is due before its stream's boundary. A boundary is at a row that is there, or as early as a row can be due that
/// events have made since the rows were looked at.
pub struct Agenda {
    dues: Vec<Next>,
    /// A flag: whether all that is due at a time has run, so that what closes at the end of time follows.
    is_last: bool,
}

struct Next {
    /// The rule by which rows are due; none of batches.
    due: Option<Due>,
    bound: Bound,
    /// The least boundary of a row when they were looked at last; the least of all before that.
    known: Option<i64>,
    /// The least time of the events that passed since then.
    since: Option<i64>,
    /// A flag: whether the rows were looked at.
    is_known: bool,
    /// A flag: whether events can make rows due. Not so where rows follow from other streams of due rows alone, as the
    /// top of windows that close.
    by_events: bool,
    /// A flag, for batches: whether the end of time has come, so that those that have no time of their own are due.
    is_at_end: bool,
    /// A flag: whether it is left alone, as others end.
    stays: bool,
}

/// The times of events that the gate knows.
#[derive(Clone, Copy, Debug)]
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
    /// Returns the times that the gate has seen.
    pub fn of(gate: &Gate) -> Times {
        Times { first: gate.first_time(), last: gate.last_time(), shown: gate.shown(), is_end: false }
    }

    /// Returns the times of boundaries beyond all that were shown, where no event is left.
    pub fn at_end(gate: &Gate) -> Times {
        Times { first: None, is_end: true, ..Times::of(gate) }
    }
}

impl Next {
    fn begins_instant(&self) -> bool {
        self.due.as_ref().is_some_and(Due::begins_instant)
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
        if let Some(rows) = self.due.as_ref().filter(|due| due.is_rows() && times.is_end) {
            return times.last.and_then(|last| rows.next_rows(self.known, last, times.shown));
        }
        if let Some(grid) = self.due.as_ref().filter(|due| due.is_ticks() || due.is_rows()) {
            let next = times.last.or(times.first).and_then(|last| match grid.is_rows() {
                true => grid.next_rows(self.known, last, None),
                false => grid.next_tick(self.known, last),
            });
            // Those up to the next event may be left out, but not those after it.
            return next.or_else(|| times.first.and_then(|first| self.bound.after(first)));
        }
        let first = times.first.filter(|_| self.by_events);
        let made = self.since.or(first).and_then(|time| self.bound.after(time));
        [self.known, made].into_iter().flatten().min()
    }
}

/// Returns an error of rows that could not be read.
pub fn unread(error: EvictedError) -> RunError {
    match error.downcast::<StateError>() {
        Ok(error) => RunError::State(*error),
        Err(other) => RunError::Panic(other.to_string()),
    }
}

impl Agenda {
    /// Makes an agenda before the first look: rows may be due at once.
    pub fn new(machine: &Machine) -> Agenda {
        let next = |&stream: &StreamId| {
            let due = due_of(&machine.program, stream).cloned();
            let bound = machine.program.streams[stream].origin.bound().expect("something is due");
            let by_events = due.as_ref().is_none_or(|due| machine.program.is_touched_by_events(due.table));
            Next { due, bound, known: None, since: None, is_known: false, by_events, is_at_end: false, stays: false }
        };
        Agenda { dues: machine.wiring.dues.iter().map(next).collect(), is_last: false }
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.dues.len()
    }

    /// Returns whether nothing is ever due.
    pub fn is_empty(&self) -> bool {
        self.dues.is_empty()
    }

    /// Returns the earliest boundary before the end of time.
    pub fn boundary(&self, times: Times) -> Option<i64> {
        self.timely().filter_map(|next| next.boundary(times)).min()
    }

    /// Returns the streams whose time has come, or can come before the end of time.
    fn timely(&self) -> impl Iterator<Item = &Next> {
        self.dues.iter().filter(|next| self.is_timely(next))
    }

    fn is_timely(&self, next: &Next) -> bool {
        !next.stays && (self.is_last || next.is_at_end || next.bound != Bound::Never)
    }

    /// Restricts what is due, from now on, to what operators of these names have open.
    pub fn only(&mut self, machine: &Machine, operators: &[String]) {
        for (next, &stream) in self.dues.iter_mut().zip(&machine.wiring.dues) {
            let (operator, part) = match machine.program.streams[stream].name.split_once('.') {
                Some((operator, part)) => (operator, part),
                None => (&*machine.program.streams[stream].name, ""),
            };
            let is_early = part == "partial";
            next.stays = next.begins_instant() || is_early || !operators.iter().any(|name| name == operator);
        }
    }

    /// Returns the earliest boundary once no event comes any more: everything that is open closes, what has no time of
    /// its own after all that has one, but batches behind all times that were shown. No timer comes any more.
    pub fn last_boundary(&mut self, machine: &Machine, gate: &mut Gate) -> Option<i64> {
        let at = Times::at_end(gate);
        for (due, next) in self.dues.iter_mut().enumerate().filter(|(_, next)| next.due.is_none()) {
            let known = gate.due_batch(machine.wiring.sources.len() + due, None).next;
            (next.known, next.since, next.is_known, next.is_at_end) = (known, None, true, true);
        }
        let least = |of: &Self| of.timely().filter(|next| !next.begins_instant()).filter_map(|n| n.boundary(at)).min();
        let timed = least(self);
        self.is_last |= timed.is_none();
        timed.or_else(|| least(self))
    }

    /// Returns whether rows of a stream may be due at a boundary.
    pub fn may_be_due(&self, due: usize, boundary: i64, times: Times) -> bool {
        let next = &self.dues[due];
        self.is_timely(next) && next.boundary(times).is_some_and(|next| next <= boundary)
    }

    /// Takes the rows of a stream that are due at a boundary, in order, as events.
    pub fn take(
        &mut self,
        machine: &Machine,
        gate: &mut Gate,
        due: usize,
        boundary: i64,
    ) -> Result<Option<RecordBatch>, RunError> {
        let next = &mut self.dues[due];
        next.is_known = true;
        // The first look is at no time.
        let at = Some(boundary).filter(|&boundary| boundary > i64::MIN);
        let rows = match next.due {
            Some(_) => due_rows(machine, due, at).map_err(unread)?,
            None => gate.due_batch(machine.wiring.sources.len() + due, at),
        };
        (next.known, next.since) = (rows.next, None);
        if rows.events.is_some() {
            // Rows of sliding windows stay, and are due again, as those of joins may be.
            let again = match next.bound {
                Bound::Grid { every, .. } => boundary.checked_add(every),
                Bound::Again(_) => boundary.checked_add(1),
                _ => None,
            };
            next.known = [next.known, again].into_iter().flatten().min();
        }
        Ok(rows.events)
    }

    /// Returns, for each stream of times of a grid, how many of these times are left out if events that follow `last`
    /// pass up to `until`.
    pub fn left_out(&self, machine: &Machine, last: Option<i64>, until: Option<i64>) -> Vec<(StreamId, u64)> {
        let (Some(last), Some(until)) = (last, until) else { return Vec::new() };
        let of = |(next, &stream): (&Next, &StreamId)| {
            let grid = next.due.as_ref().filter(|due| due.is_ticks() || due.is_rows())?;
            Some((stream, grid.left_out(next.known, last, until))).filter(|&(_, count)| count > 0)
        };
        self.dues.iter().zip(&machine.wiring.dues).filter_map(of).collect()
    }

    /// Notes that an epoch was cut; `first` is the time of its first event.
    pub fn passes(&mut self, cut: &Cut, first: Option<i64>) {
        let (from, time) = match cut {
            // A timer begins the instant.
            Cut::Due(at) if self.dues[at.due].begins_instant() => (0, Some(at.boundary)),
            // The due rows at hand may make rows of later streams due.
            Cut::Due(at) => (at.due + 1, at.boundary.checked_sub(1)),
            Cut::Most(_) | Cut::Exactly(_) => (0, first),
        };
        let is_due = matches!(cut, Cut::Due(_));
        for next in self.dues[from..].iter_mut().filter(|next| is_due || next.by_events) {
            // A last short batch comes after late events beyond the times that were shown, and has an earlier time.
            next.since = [next.since, time].into_iter().flatten().min();
        }
    }
}
