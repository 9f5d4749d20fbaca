//! Answers: which outcome each event of an input had, for callers that wait for it.
//!
//! # Invariant
//!
//! The outcome of an event is the verdict of its transaction, and the record is the one that its transaction gave: the
//! events of an input's outlet stand in the order of its events, so the k-th committed event has the k-th record.

use crate::epoch::Epoch;
use crate::finish::outputs::OutputBuilder;
use crate::machine::Machine;
use crate::wiring::{InputId, Outlet};
use arrow_array::RecordBatch;
use std::fmt;

/// The outcome of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It committed, and its record is this row of [`Answers::committed`].
    Committed(u32),
    /// It committed and gave no record, or its transaction never returns one.
    Silent,
    /// It aborted, and what its abort shows is this row of [`Answers::aborted`].
    Aborted(u32),
    /// It was no event: a call whose key has another meaning, or cannot be kept. No epoch has this outcome.
    Refused(KeyRefused),
}

/// Why a call with a key is neither made nor answered as one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefused {
    /// A call with this key had other arguments.
    OtherArguments,
    /// Too many keys are kept.
    TooMany,
    /// The answer was given by a version of the program whose replies have another form.
    OtherVersion,
}

impl fmt::Display for KeyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyRefused::OtherArguments => "a call with this idempotency key had other arguments",
            KeyRefused::TooMany => "too many idempotency keys are kept; try again later, or call without a key",
            KeyRefused::OtherVersion => {
                "a call with this idempotency key was answered by another version of the program, in another form"
            }
        })
    }
}

/// The outcomes of the events of one input in an epoch.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The input.
    pub input: InputId,
    /// By row of the input's root.
    pub outcomes: Vec<Outcome>,
    /// The records of those that committed, unless there are none.
    pub committed: Option<RecordBatch>,
    /// What the aborts of the others show, unless there are none.
    pub aborted: Option<RecordBatch>,
}

/// The outcomes of an input's events, which are all events of its root.
pub fn answers(machine: &Machine, epoch: &Epoch, id: InputId) -> Answers {
    let input = &epoch.work.inputs[id];
    let transaction = machine.input(id).transaction;
    let returns = !transaction.committed.passes_event;
    let (mut committed, mut aborted) = (0, 0);
    let mut outcomes = vec![Outcome::Silent; input.len];
    for (event, verdict) in input.verdicts[..input.len].iter().enumerate() {
        let (count, outcome): (&mut u32, fn(u32) -> Outcome) = match verdict {
            verdict if !verdict.is_committed() => (&mut aborted, Outcome::Aborted),
            verdict if returns && verdict.passes_record() => (&mut committed, Outcome::Committed),
            _ => continue,
        };
        let row = input.row(event);
        assert!(row < outcomes.len(), "the input has each event of its root");
        outcomes[row] = outcome(*count);
        *count += 1;
    }
    let builder = OutputBuilder { machine, epoch };
    let given = |stream, outlet| builder.of_input(stream, id, outlet).pop();
    let answers = Answers {
        input: id,
        outcomes,
        committed: returns.then(|| given(transaction.committed.stream, Outlet::Committed)).flatten(),
        aborted: given(transaction.aborted, Outlet::Aborted),
    };
    let rows = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::num_rows);
    assert_eq!(rows(&answers.committed), committed as usize, "each commit has its record");
    assert_eq!(rows(&answers.aborted), aborted as usize, "each abort has its event");
    answers
}
