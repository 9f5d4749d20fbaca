//! The agenda of the gate: the rows of tables, and the batches, that are due at its [`Boundaries`].

use arrow_array::RecordBatch;
use tidemill_durability::StateError;
use tidemill_plan::{StreamId, StreamPart};
use tidemill_recovery::RunError;
use tidemill_stages::due::{DueCut, boundaries, due_of, due_rows};
use tidemill_stages::gate::Gate;
use tidemill_stages::machine::Machine;
use tidemill_stages::progress::Boundaries;
use tidemill_state::EvictedError;

/// The streams of what is due, and the boundaries at which something can be.
pub struct Agenda {
    /// The boundaries, by stream.
    pub boundaries: Boundaries,
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
        Agenda { boundaries: boundaries(&machine.program, &machine.wiring) }
    }

    /// Restricts what is due, from now on, to what operators of these names have open.
    pub fn only(&mut self, machine: &Machine, operators: &[String]) {
        let program = &machine.program;
        let ends = |&stream: &StreamId| {
            let owner = program.streams[stream].owner.expect("what is due is of an operator");
            owner.part != StreamPart::Partial && operators.contains(&program.operators[owner.operator].name)
        };
        self.boundaries.only(machine.wiring.dues.iter().map(ends));
    }

    /// Returns the earliest boundary once no event comes any more ([`Boundaries::last`]).
    pub fn last_boundary(&mut self, machine: &Machine, gate: &mut Gate) -> Option<i64> {
        let sources = machine.wiring.sources.len();
        self.boundaries.last(gate.times(), |due| gate.due_batch(sources + due, None).next)
    }

    /// Takes what is due of a stream, in order, as events.
    pub fn take(&mut self, machine: &Machine, gate: &mut Gate, at: DueCut) -> Result<Option<RecordBatch>, RunError> {
        // The first look is at no time.
        let boundary = Some(at.boundary).filter(|&boundary| boundary > i64::MIN);
        let rows = match due_of(&machine.program, machine.wiring.dues[at.due]) {
            Some(_) => due_rows(machine, at.due, boundary).map_err(unread)?,
            None => gate.due_batch(machine.wiring.sources.len() + at.due, boundary),
        };
        self.boundaries.looked_at(at, rows.events.is_some(), rows.next);
        Ok(rows.events)
    }

    /// Returns, for each stream of times of a grid, how many of these times are left out if events that follow `last`
    /// pass up to `until`.
    pub fn left_out(&self, machine: &Machine, last: Option<i64>, until: Option<i64>) -> Vec<(StreamId, u64)> {
        let left_out = self.boundaries.left_out(last, until);
        left_out.map(|(due, count)| (machine.wiring.dues[due], count)).collect()
    }
}
