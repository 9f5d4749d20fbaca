//! Answers: which outcome each event of an input had, for callers that wait for it.
//!
//! # Invariant
//!
//! The outcome of an event is the verdict of its transaction, and the record is the one that its transaction gave: the
//! events of an input's outlet stand in the order in which they ran, so the k-th committed event has the k-th record. An event
//! of the root that a filter or map keeps from the input has an outcome too, with the reason. A filter or map that reads rows is a
//! transaction before the input's: the outcome of its event is that of the event which it has given.

use crate::epoch::Epoch;
use crate::finish::outputs::{OutputBuilder, node_of};
use crate::machine::Machine;
use crate::wiring::{InputId, Outlet};
use arrow_array::RecordBatch;
use std::fmt;
use tidemill_plan::{Origin, StreamId};

/// The reason of an event that a filter does not let through.
const LEFT_OUT: &str = "left out by a filter";

/// The outcome of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It committed, and its record is this row of [`Answers::committed`].
    Committed(u32),
    /// It committed and gave no record, or its transaction never returns one.
    Silent,
    /// It aborted, and what its abort shows is this row of [`Answers::aborted`].
    Aborted(u32),
    /// It reached no transaction: a filter left it out, or a filter or map failed. The reason is this one of
    /// [`Answers::untaken`].
    Untaken(u32),
    /// It was no event: a call that was not made. No epoch has this outcome.
    Refused(NotMade),
}

/// The reason why a call is neither made nor, by its key, answered as one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMade {
    /// A call with this key had other arguments.
    OtherArguments,
    /// Too many keys are kept.
    TooMany,
    /// Too many keys are looked up at the time.
    Busy,
    /// The answer was given by a version of the program whose replies have another form.
    OtherVersion,
    /// The run ends, and the tick of its clock has not come, which stands before all calls.
    BeforeTick,
}

impl fmt::Display for NotMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotMade::OtherArguments => "a call with this idempotency key had other arguments",
            NotMade::TooMany => "too many idempotency keys are kept; try again later, or call without a key",
            NotMade::Busy => "too many idempotency keys are looked up; try again later, or call without a key",
            NotMade::OtherVersion => {
                "a call with this idempotency key was answered by another version of the program, in another form"
            }
            NotMade::BeforeTick => {
                "the run ends before its clock has given a tick, and the call was not made; make it again"
            }
        })
    }
}

/// The outcomes of the events of one input in an epoch.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The input.
    pub input: InputId,
    /// The outcome of each event, by row of the source.
    pub outcomes: Vec<Outcome>,
    /// The records of those that committed, unless there are none.
    pub committed: Option<RecordBatch>,
    /// The values that the aborts of the others show, unless there are none.
    pub aborted: Option<RecordBatch>,
    /// The reasons of events that reached no transaction, each once.
    pub untaken: Vec<String>,
}

/// Returns the outcomes of the events of a source, which are calls of the transaction on an input.
pub fn answers(machine: &Machine, epoch: &Epoch, id: InputId) -> Answers {
    let input = &epoch.work.inputs[id];
    let transaction = machine.input(id).transaction;
    let returns = !transaction.committed.passes_event;
    let (mut committed, mut aborted) = (0, 0);
    let mut untaken = Vec::new();
    let mut outcomes = before_access(machine, epoch, id, &mut untaken);
    let mut events: Vec<u32> = (0..input.len as u32).collect();
    if !input.ran_in_order() {
        events.sort_by_key(|&event| input.rank(event));
    }
    for event in events {
        let (row, verdict) = (input.row(event as usize), input.verdicts[event as usize]);
        assert!(row < outcomes.len(), "each event of the input is one of its root");
        let (count, outcome): (&mut u32, fn(u32) -> Outcome) = match verdict {
            verdict if !verdict.is_committed() => (&mut aborted, Outcome::Aborted),
            verdict if returns && verdict.passes_record() => (&mut committed, Outcome::Committed),
            _ => {
                outcomes[row] = Outcome::Silent;
                continue;
            }
        };
        outcomes[row] = outcome(*count);
        *count += 1;
    }
    let mut root = machine.wiring.inputs[id].root;
    while let Some(derived) = machine.wiring.derived_by(&machine.program, root) {
        outcomes = before_derived(machine, epoch, derived, root, &outcomes, &mut untaken);
        root = machine.wiring.inputs[derived].root;
    }
    let builder = OutputBuilder { machine, epoch };
    let given = |stream, outlet| builder.of_input(stream, id, outlet).pop();
    let answers = Answers {
        input: id,
        outcomes,
        committed: returns.then(|| given(transaction.committed.stream, Outlet::Committed)).flatten(),
        aborted: given(transaction.aborted, Outlet::Aborted),
        untaken,
    };
    let rows = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::num_rows);
    assert_eq!(rows(&answers.committed), committed as usize, "each commit has its record");
    assert_eq!(rows(&answers.aborted), aborted as usize, "each abort has its event");
    answers
}

/// Returns the outcomes of the events of the root of a filter or map that reads rows, given those of the events that it gives to
/// another root.
fn before_derived(
    machine: &Machine,
    epoch: &Epoch,
    derived: InputId,
    gives: StreamId,
    outcomes: &[Outcome],
    untaken: &mut Vec<String>,
) -> Vec<Outcome> {
    let input = &epoch.work.inputs[derived];
    let mut before = before_access(machine, epoch, derived, untaken);
    let reasons = &machine.input(derived).transaction.reasons;
    let verdicts = input.verdicts[..input.len].iter().enumerate();
    for (event, verdict) in verdicts.filter(|(_, verdict)| !verdict.passes_record()) {
        let text = verdict.reason().map_or(LEFT_OUT, |reason| reasons[reason as usize].as_str());
        before[input.row(event)] = Outcome::Untaken(place_of(untaken, text));
    }
    let log = epoch.work.logs[gives].as_ref().expect("a stream that leads on has a log");
    assert_eq!(log.len, outcomes.len(), "each event that it gives has an outcome");
    for (owner, &outcome) in log.owners[..log.len].iter().zip(outcomes) {
        assert_eq!(owner.input, derived, "nothing else gives it events");
        before[input.row(owner.event as usize)] = outcome;
    }
    before
}

/// Returns the place of a reason, which is added where it is new.
fn place_of(reasons: &mut Vec<String>, text: &str) -> u32 {
    let place = reasons.iter().position(|reason| reason == text).unwrap_or_else(|| {
        reasons.push(text.to_owned());
        reasons.len() - 1
    });
    place as u32
}

/// Returns the outcomes of the events of an input's root as they are where no transaction has run. Adds reasons.
fn before_access(machine: &Machine, epoch: &Epoch, id: InputId, reasons: &mut Vec<String>) -> Vec<Outcome> {
    let wiring = &machine.wiring.inputs[id];
    let rows = match machine.wiring.given.iter().position(|&given| given == wiring.root) {
        Some(source) => epoch.input.sources[source].events.as_ref().map_or(0, RecordBatch::num_rows),
        None => epoch.work.logs[wiring.root].as_ref().map_or(0, |log| log.len),
    };
    let (streams, input) = (&machine.program.streams, &epoch.work.inputs[id]);
    if input.len == rows {
        return vec![Outcome::Silent; rows];
    }
    assert!(wiring.node > 0, "only a filter or map leaves events out");
    let mut outcomes = vec![Outcome::Untaken(place_of(reasons, LEFT_OUT)); rows];
    let mut stream = machine.input(id).transaction.inputs[wiring.input];
    while let Origin::Filter { input, reasons: texts, .. } | Origin::Map { input, reasons: texts, .. } =
        &streams[stream].origin
    {
        let node = &epoch.work.pipelines[wiring.root].nodes[node_of(machine, stream)];
        for failure in &node.failures[..node.failure_len] {
            let place = place_of(reasons, &texts[*failure as u32 as usize]);
            outcomes[(failure >> 32) as usize] = Outcome::Untaken(place);
        }
        stream = *input;
    }
    assert_eq!(stream, wiring.root, "what is derived is so by filters and maps");
    outcomes
}
