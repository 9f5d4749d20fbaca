//! The fields in which the events of a stream hold the time of their position.

use super::fault::{Checked, Fault};
use crate::program::{Expr, Node, Stmt};
use crate::{
    BatchSize, Operator, OperatorId, OperatorKind, Origin, OutputField, Stream, StreamId, StreamPart, Transaction,
    TransactionId,
};
use typed_index_collections::TiSlice;

/// The name of a field that was made to hold the time of the position. No user can write it.
pub(super) const POSITION_TIME: &str = "time of the position";

/// The slide of windowed columns whose row stands for one window, which is over no grid: all values are in one slice.
pub(super) const ONE_SLICE: i64 = 1 << 61;

/// The time of the position: a field, and what is to be added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PositionTime {
    pub field: usize,
    pub shift: i64,
}

/// Returns the field of a stream's events that holds the time of their positions, if all of them hold it in one. A
/// field has it where it is the source's event time, or the end of a window, and was passed on as it is.
pub(super) fn time(
    streams: &TiSlice<StreamId, Stream>,
    transactions: &TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
) -> Option<PositionTime> {
    let of = |stream| time(streams, transactions, stream);
    let of_inputs = |id: TransactionId| {
        let transaction = transactions[id].as_ref()?;
        let mut times = transaction.inputs.iter().map(|&input| of(input));
        let first = times.next()??;
        times.all(|other| other == Some(first)).then_some((transaction, first))
    };
    match &streams[stream].origin {
        Origin::Source { .. } | Origin::LateRoot(_) => {
            Some(PositionTime { field: streams[stream].event_time?, shift: 0 })
        }
        Origin::Batch(of) => {
            let shift = if matches!(of.size, BatchSize::Time { .. }) { -1 } else { 0 };
            Some(PositionTime { field: streams[stream].event_time?, shift })
        }
        Origin::Due(due) => {
            let shift = if due.begins_instant() { 0 } else { -1 };
            Some(PositionTime { field: streams[stream].event_time?, shift })
        }
        Origin::Filter { input, .. } => of(*input),
        Origin::Map { input, fields, .. } => {
            let time = of(*input)?;
            let holds = |field: &usize| passes(&fields[*field], time.field);
            // The one that was made for it, as late events have it there, too.
            let made = streams[stream].schema.fields.iter().position(|field| field.name == POSITION_TIME);
            let field = made.filter(holds).or_else(|| (0..fields.len()).find(holds))?;
            Some(PositionTime { field, ..time })
        }
        Origin::Aborted(id) => of_inputs(*id).map(|(_, time)| time),
        Origin::Committed(id) => {
            let (transaction, time) = of_inputs(*id)?;
            if transaction.committed.passes_event {
                return Some(time);
            }
            passed(&transaction.body, time, &|stmt| match stmt {
                Stmt::Return { fields: Some(fields) } => Some(fields),
                _ => None,
            })
        }
        Origin::Emitted(id, emit) => {
            // The pairs of a join hold it as their event time.
            if let Some(field) =
                streams[stream].event_time.filter(|_| streams[stream].part() == Some(StreamPart::Pairs))
            {
                return Some(PositionTime { field, shift: 0 });
            }
            let (transaction, time) = of_inputs(*id)?;
            passed(&transaction.body, time, &|stmt| match stmt {
                Stmt::Emit { output, fields } if output == emit => Some(fields),
                _ => None,
            })
        }
        Origin::Late(_) | Origin::Bad(_) | Origin::Failed(_) => None,
    }
}

/// Returns the windows, joins and batches from whose results of an instant the events of a stream follow: the
/// transactions that run on these first.
fn windows(
    streams: &TiSlice<StreamId, Stream>,
    transactions: &TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
) -> Vec<TransactionId> {
    let root = streams[stream].root;
    let (Origin::Committed(id) | Origin::Aborted(id) | Origin::Emitted(id, _)) = streams[root].origin else {
        return Vec::new();
    };
    let Some(transaction) = &transactions[id] else { return Vec::new() };
    let is_close = |input: &StreamId| streams[streams[*input].root].origin.bound().is_some();
    let mut windows: Vec<_> = transaction.inputs.iter().filter(|input| is_close(input)).map(|_| id).collect();
    windows.extend(transaction.inputs.iter().flat_map(|&input| self::windows(streams, transactions, input)));
    windows
}

/// Refuses, of an operator whose first transaction is `own`, results of an operator that is declared after it: these stand
/// after its own in an instant. `does` is how it takes them.
pub(super) fn check_declared(
    streams: &TiSlice<StreamId, Stream>,
    operators: &TiSlice<OperatorId, Operator>,
    transactions: &TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
    own: TransactionId,
    does: &str,
) -> Checked<()> {
    let found = windows(streams, transactions, stream).into_iter().find(|&t| t > own);
    let Some(later) = found.and_then(|t| transactions[t].as_ref()) else { return Ok(()) };
    let (kind, name) = match later.owner.map(|owner| &operators[owner.operator]) {
        None => ("transaction", &later.name),
        Some(operator) if operator.table().is_some() => ("transaction", &later.name),
        Some(Operator { kind: OperatorKind::Join { .. }, name, .. }) => ("join", name),
        Some(Operator { name, .. }) => ("window", name),
    };
    Err(Fault::new(format!("it {does} results of the {kind} '{name}', which is declared after it"))
        .hint("declare it after what it takes its events from"))
}

/// Returns the first field that holds the time in each record that `record` picks out of a body.
fn passed<'a>(
    body: &'a [Stmt],
    time: PositionTime,
    record: &dyn Fn(&'a Stmt) -> Option<&'a Vec<OutputField>>,
) -> Option<PositionTime> {
    let mut records = Vec::new();
    each(body, &mut |stmt| records.extend(record(stmt)));
    let width = records.first()?.len();
    let field = (0..width).find(|&i| records.iter().all(|fields| passes(&fields[i], time.field)))?;
    Some(PositionTime { field, ..time })
}

fn each<'a>(body: &'a [Stmt], visit: &mut dyn FnMut(&'a Stmt)) {
    for stmt in body {
        visit(stmt);
        match stmt {
            Stmt::If { then, otherwise, .. } => {
                each(then, visit);
                each(otherwise, visit);
            }
            Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => each(body, visit),
            _ => {}
        }
    }
}

/// Calls `visit` for a block and for each block within.
pub(super) fn each_mut(body: &mut Vec<Stmt>, visit: &mut dyn FnMut(&mut Vec<Stmt>)) {
    visit(body);
    for stmt in body {
        match stmt {
            Stmt::If { then, otherwise, .. } => {
                each_mut(then, visit);
                each_mut(otherwise, visit);
            }
            Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => each_mut(body, visit),
            _ => {}
        }
    }
}

/// Returns whether a field is the time, unchanged.
pub(super) fn passes(field: &OutputField, time: usize) -> bool {
    matches!(field, OutputField::Value(Expr { node: Node::Field(field), .. }) if *field == time)
}
