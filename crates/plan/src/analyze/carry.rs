//! Streams that carry the time of the position, for windows over streams whose events do not hold it.
//!
//! A filter or map is made a second time, with the time as one more field. Where a transaction gives the events, it emits
//! each a second time, with the time. These streams feed the window alone.

use super::position::{self, POSITION_TIME, PositionTime, each_mut, passes};
use super::streams::{NewStream, Streams};
use crate::program::{Expr, Node, Stmt};
use crate::{EmitOutput, Origin, OutputField, StreamId, StreamRef, Transaction, TransactionId};
use tidemill_model::{ColumnType, Field, Type};
use typed_index_collections::TiSlice;

/// A stream with the same events that holds the time of their positions, and where; the stream itself if it does. None if
/// the events have no time, or not one that can be passed on.
pub(super) fn carry(
    streams: &mut Streams<'_>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
    name: &str,
) -> Option<(StreamId, PositionTime)> {
    if let Some(time) = position::time(&streams.list, transactions, stream) {
        return Some((stream, time));
    }
    match streams.list[stream].origin.clone() {
        Origin::Filter { input, .. } | Origin::Map { input, .. } => {
            let (input, time) = carry(streams, transactions, input, name)?;
            Some(derive(streams, stream, input, time, name))
        }
        Origin::Committed(id) => emit(streams, transactions, stream, id, name, None),
        Origin::Emitted(id, output) => emit(streams, transactions, stream, id, name, Some(output)),
        _ => None,
    }
}

fn unused(streams: &Streams<'_>, name: &str) -> String {
    let number = streams.list.iter().filter(|stream| stream.name.starts_with(&format!("{name}.input"))).count();
    format!("{name}.input{number}")
}

/// A filter or map on another input, which has the fields of its own and perhaps more.
fn derive(
    streams: &mut Streams<'_>,
    stream: StreamId,
    input: StreamId,
    time: PositionTime,
    name: &str,
) -> (StreamId, PositionTime) {
    let (own, failed) = (streams.id_after(0), streams.id_after(1));
    let (root, schema_of_input) = (streams.list[input].root, streams.list[input].schema.clone());
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
    let name = unused(streams, name);
    let new = NewStream { name: name.clone(), schema, event_time: None, origin, root: Some(root) };
    streams.add(StreamRef::Named(name.clone()), new);
    let mut schema = schema_of_input;
    schema.fields.push(Field::scalar("reason", ColumnType::required(Type::Str)));
    let failed = NewStream {
        name: format!("{name}.failed"),
        schema,
        event_time: None,
        origin: Origin::Failed(own),
        root: Some(root),
    };
    streams.add(StreamRef::Failed(name), failed);
    (own, time)
}

/// A second emission of what a transaction returns, or emits.
fn emit(
    streams: &mut Streams<'_>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
    stream: StreamId,
    id: TransactionId,
    name: &str,
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
    let name = unused(streams, name);
    let new =
        NewStream { name: name.clone(), schema, event_time: None, origin: Origin::Emitted(id, output), root: None };
    let own = streams.add(StreamRef::Named(name.clone()), new);
    transaction.emits.push(EmitOutput { name, stream: own });
    Some((own, PositionTime { field, ..time }))
}
