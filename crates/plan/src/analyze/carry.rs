//! Streams that carry the time of the position, for windows over streams whose events do not hold it.
//!
//! A filter or map is made a second time, with the time as one more field. Where late events count beside those of their source, so
//! have the events of the source, which hold it in another field than late ones do. Where a transaction gives the events, it emits
//! each a second time, with the time. These streams feed the window alone.

use super::parts::Lowered;
use super::position::{self, POSITION_TIME, PositionTime, each_mut, passes};
use super::streams::{NewStream, Streams};
use crate::program::{Expr, Node, Stmt};
use crate::{EmitOutput, Origin, OutputField, StreamId, StreamPart, StreamRef, Transaction, TransactionId};
use tidemill_model::{ColumnType, Field, Schema, Type};
use typed_index_collections::TiSlice;

/// Returns a stream with the same events that holds the time of their positions, and where; the stream itself if it
/// does. None if the events have no time, or not one that can be passed on.
pub(super) fn carry(
    streams: &mut Streams<'_>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
    of: Lowered<'_>,
) -> Option<(StreamId, PositionTime)> {
    if let Some(time) = position::time(&streams.list, transactions, stream) {
        return Some((stream, time));
    }
    match streams.list[stream].origin.clone() {
        Origin::Filter { input, .. } | Origin::Map { input, .. } => {
            let (input, time) = carry(streams, transactions, input, of)?;
            Some(derive(streams, stream, input, time, of))
        }
        Origin::Committed(id) => emit(streams, transactions, stream, id, of, None),
        Origin::Emitted(id, output) => emit(streams, transactions, stream, id, of, Some(output)),
        _ => None,
    }
}

/// Returns the events of a source and those that are late, as streams that hold the time of their positions in the same field.
pub(super) fn with_late(
    streams: &mut Streams<'_>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
    (source, late): (StreamId, StreamId),
    of: Lowered<'_>,
) -> ([StreamId; 2], PositionTime) {
    let own =
        position::time(&streams.list, transactions, source).expect("late events are of a source with event times");
    let (source, time) = beside(streams, source, own, of);
    let (late, of_late) = carry(streams, transactions, late, of).expect("a late event has the time where it stands");
    assert_eq!(time, of_late, "both hold it behind the fields of the source");
    assert_eq!(streams.list[source].schema, streams.list[late].schema, "they have the fields of the source");
    ([source, late], time)
}

/// Adds a map that passes all fields on, and the time once more.
fn beside(
    streams: &mut Streams<'_>,
    source: StreamId,
    time: PositionTime,
    of: Lowered<'_>,
) -> (StreamId, PositionTime) {
    let mut schema = streams.list[source].schema.clone();
    let pass = |(at, field): (usize, &Field)| match field.scalar_type() {
        Some(ty) => OutputField::Value(Expr { ty, node: Node::Field(at) }),
        None => OutputField::List(at),
    };
    let mut fields: Vec<OutputField> = schema.fields.iter().enumerate().map(pass).collect();
    let ty = schema.fields[time.field].scalar_type().expect("a time is a scalar");
    fields.push(OutputField::Value(Expr { ty, node: Node::Field(time.field) }));
    schema.fields.push(Field::scalar(POSITION_TIME, ty));
    let field = schema.fields.len() - 1;
    let failed = streams.id_after(1);
    let origin = Origin::Map { input: source, fields, reasons: Vec::new(), failed };
    (enter(streams, source, (schema, origin), of), PositionTime { field, ..time })
}

/// Adds a filter or map of an input, and its failures.
fn enter(streams: &mut Streams<'_>, input: StreamId, (schema, origin): (Schema, Origin), of: Lowered<'_>) -> StreamId {
    let (own, root) = (streams.id_after(0), streams.list[input].root);
    let mut failure = streams.list[input].schema.clone();
    failure.fields.push(Field::scalar("reason", ColumnType::required(Type::Str)));
    let name = unused(streams, of);
    let owner = of.owner(StreamPart::Input);
    let new = NewStream { name: name.clone(), schema, event_time: None, origin, root: Some(root), owner };
    streams.add(StreamRef::Named(name.clone()), new);
    let failed = NewStream {
        name: format!("{name}.failed"),
        schema: failure,
        event_time: None,
        origin: Origin::Failed(own),
        root: Some(root),
        owner,
    };
    streams.add(StreamRef::Failed(name), failed);
    own
}

fn unused(streams: &Streams<'_>, of: Lowered<'_>) -> String {
    let owner = of.owner(StreamPart::Input);
    let number = streams.list.iter().filter(|stream| stream.owner == owner).count();
    format!("{}.input{number}", of.name)
}

/// Returns a filter or map on another input, which has the fields of its own and perhaps more.
fn derive(
    streams: &mut Streams<'_>,
    stream: StreamId,
    input: StreamId,
    time: PositionTime,
    of: Lowered<'_>,
) -> (StreamId, PositionTime) {
    let failed = streams.id_after(1);
    let schema_of_input = streams.list[input].schema.clone();
    let mut schema = streams.list[stream].schema.clone();
    let (origin, time) = match streams.list[stream].origin.clone() {
        Origin::Filter { predicate, reasons, .. } => {
            schema = schema_of_input.clone();
            (Origin::Filter { input, predicate, reasons, failed }, time)
        }
        Origin::Map { mut fields, reasons, .. } => {
            let passed = fields.iter().position(|field| passes(field, time.field));
            let field = passed.unwrap_or(fields.len());
            if passed.is_none() {
                let ty = schema_of_input.fields[time.field].scalar_type().expect("a time is a scalar");
                fields.push(OutputField::Value(Expr { ty, node: Node::Field(time.field) }));
                schema.fields.push(Field::scalar(POSITION_TIME, ty));
            }
            (Origin::Map { input, fields, reasons, failed }, PositionTime { field, ..time })
        }
        _ => unreachable!("a filter or a map"),
    };
    (enter(streams, input, (schema, origin), of), time)
}

/// Returns a second emission of what a transaction returns, or emits.
fn emit(
    streams: &mut Streams<'_>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
    id: TransactionId,
    of: Lowered<'_>,
    emission: Option<usize>,
) -> Option<(StreamId, PositionTime)> {
    let inputs = transactions[id].as_ref()?.inputs.clone();
    let mut times = inputs.into_iter().map(|input| position::time(&streams.list, transactions, input));
    let time = times.next()??;
    if !times.all(|other| other == Some(time)) {
        return None;
    }
    let transaction = transactions[id].as_mut()?;
    let ty = transaction.schema.fields[time.field].scalar_type().expect("a time is a scalar");
    let output = transaction.emits.len();
    each_mut(&mut transaction.body, &mut |block| {
        let mut at = 0;
        while at < block.len() {
            let fields = match &block[at] {
                Stmt::Return { fields: Some(fields) } if emission.is_none() => Some(fields),
                Stmt::Emit { output, fields } if emission == Some(*output) => Some(fields),
                _ => None,
            };
            if let Some(fields) = fields {
                let mut fields = fields.clone();
                fields.push(OutputField::Value(Expr { ty, node: Node::Field(time.field) }));
                block.insert(at, Stmt::Emit { output, fields });
                at += 1;
            }
            at += 1;
        }
    });
    let mut schema = streams.list[stream].schema.clone();
    schema.fields.push(Field::scalar(POSITION_TIME, ty));
    let field = schema.fields.len() - 1;
    let name = unused(streams, of);
    let owner = of.owner(StreamPart::Input);
    let origin = Origin::Emitted(id, output);
    let new = NewStream { name: name.clone(), schema, event_time: None, origin, root: None, owner };
    let own = streams.add(StreamRef::Named(name.clone()), new);
    transaction.emits.push(EmitOutput { name, stream: own });
    Some((own, PositionTime { field, ..time }))
}
