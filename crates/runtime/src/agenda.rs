//! When something is due next, as far as the gate knows.

use arrow_array::RecordBatch;
use tidemill_plan::{Bound, StreamId};
use tidemill_recovery::RunError;
use tidemill_stages::due::{due_of, due_rows};
use tidemill_stages::gate::Cut;
use tidemill_stages::machine::Machine;

/// For each stream of what is due, the earliest boundary at which a row can be due.
///
/// # Invariant
///
/// No row is due before its stream's boundary. A boundary is at a row that is there, or as early as a row can be due that
/// events have made since the rows were looked at.
pub struct Agenda {
    dues: Vec<Next>,
}

struct Next {
    stream: StreamId,
    bound: Bound,
    /// The least boundary of a row when they were looked at last; the least of all before that.
    known: Option<i64>,
    /// The time of the first event that passed since then.
    since: Option<i64>,
}

impl Next {
    /// The earliest boundary, if the next event to pass has this time.
    fn boundary(&self, first: Option<i64>) -> Option<i64> {
        let made = self.since.or(first).and_then(|time| self.bound.after(time));
        [self.known, made].into_iter().flatten().min()
    }
}

impl Agenda {
    /// Before the first look: rows may be due at once.
    pub fn new(machine: &Machine) -> Agenda {
        let next = |&stream: &StreamId| {
            let bound = due_of(machine, stream).bound;
            Next { stream, bound, known: Some(i64::MIN), since: None }
        };
        Agenda { dues: machine.wiring.dues.iter().map(next).collect() }
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.dues.len()
    }

    /// Whether nothing is ever due.
    pub fn is_empty(&self) -> bool {
        self.dues.is_empty()
    }

    /// The earliest boundary, if the next event to pass has this time.
    pub fn boundary(&self, first: Option<i64>) -> Option<i64> {
        let timed = self.dues.iter().filter(|next| next.bound != Bound::Never);
        timed.filter_map(|next| next.boundary(first)).min()
    }

    /// The earliest boundary of all, at the end of time too.
    pub fn last_boundary(&self) -> Option<i64> {
        self.dues.iter().filter_map(|next| next.boundary(None)).min()
    }

    /// Whether rows of a stream may be due at a boundary.
    pub fn may_be_due(&self, due: usize, boundary: i64) -> bool {
        self.dues[due].boundary(None).is_some_and(|next| next <= boundary)
    }

    /// The rows of a stream that are due at a boundary, in order, as events.
    pub fn take(&mut self, machine: &Machine, due: usize, boundary: i64) -> Result<Option<RecordBatch>, RunError> {
        let next = &mut self.dues[due];
        let rows = due_rows(machine, next.stream, Some(boundary));
        let rows = rows.map_err(|error| RunError::Panic(error.to_string()))?;
        (next.known, next.since) = (rows.next, None);
        if rows.events.is_some()
            && let Bound::Grid { every, .. } = next.bound
        {
            // Rows of sliding windows stay, and are due again.
            next.known = [next.known, boundary.checked_add(every)].into_iter().flatten().min();
        }
        Ok(rows.events)
    }

    /// Notes that an epoch was cut; `first` is the time of its first event.
    pub fn passes(&mut self, cut: &Cut, first: Option<i64>) {
        let (from, time) = match cut {
            // What follows may make rows of the streams that come later.
            Cut::Due(at) => (at.due + 1, at.boundary.checked_sub(1)),
            Cut::Most(_) | Cut::Exactly(_) => (0, first),
        };
        for next in &mut self.dues[from..] {
            next.since = next.since.or(time);
        }
    }
}
