//! Streams of atomic batches: the events of a source, some at a time (S-Store §2.1). The gate makes them.

use super::fault::{Checked, Fault};
use super::streams::{NewStream, Streams};
use crate::build::event;
use crate::{
    Batch, BatchSize, BatchSizeDef, Operator, OperatorKind, Origin, Record, Stmt, StmtNode, Stream, StreamId,
    StreamPart, StreamRef, Transaction, TransactionDef, TransactionId,
};
use std::borrow::Cow;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};
use typed_index_collections::TiSlice;

/// The field with a batch's number.
const NUMBER: &str = "batch";
/// The field with a batch's events.
const EVENTS: &str = "events";

/// Enters a stream of batches.
pub(super) fn batches(name: &str, source: StreamId, size: &BatchSizeDef, streams: &mut Streams<'_>) -> Checked<()> {
    let mut fields = fields(source, streams)?;
    let (size, times) = match size {
        BatchSizeDef::Count(0) => {
            return Err(Fault::new("its batches have no events")
                .hint("write the number of events in a batch, at least 1, or a length of time: batch(\"1s\")"));
        }
        BatchSizeDef::Count(size) => {
            let of = &streams.list[source];
            let time = of.event_time.map(|time| of.schema.fields[time].clone());
            time.iter().try_for_each(|time| check_name(&time.name))?;
            (BatchSize::Count(*size), Vec::from_iter(time))
        }
        BatchSizeDef::Time { length, origin } => {
            let (every, ty) = length_of(source, length, streams)?;
            let times = ["start", "end"].map(|name| Field::scalar(name, ty.into()));
            (BatchSize::Time { every, origin: origin.rem_euclid(every) }, times.into())
        }
    };
    let has_time = !times.is_empty();
    fields.extend(times);
    let event_time = has_time.then(|| fields.len() - 1);
    let (name, batch) = (name.to_owned(), Batch { source, size });
    let owner = streams.lower(&name).owner(StreamPart::Batches);
    streams.operators.push(Operator {
        name: name.clone(),
        kind: OperatorKind::Batch(size),
        inputs: vec![source],
        time: event_time.and_then(|time| fields[time].scalar_type()).map(|time| time.ty),
        definition: None,
    });
    let (schema, origin) = (Schema { fields }, Origin::Batch(batch));
    streams.add(StreamRef::Named(name.clone()), NewStream { name, schema, event_time, origin, root: None, owner });
    Ok(())
}

/// Returns the number of a batch and its events.
fn fields(source: StreamId, streams: &Streams<'_>) -> Checked<Vec<Field>> {
    let of = &streams.list[source];
    if !matches!(of.origin, Origin::Source { .. }) {
        return Err(Fault::new(format!("it is of '{}', which is no source", of.name))
            .hint("a batch has a source's events as they come; leave events out in the transaction's loop"));
    }
    let columns = of.schema.fields.iter().map(|field| match field.scalar_type() {
        Some(ty) => Ok((field.name.clone(), ty)),
        None => Err(Fault::new(format!("the events of '{}' have a list, '{}'", of.name, field.name))
            .hint("a batch is a list of events, and has no list in a list")),
    });
    let columns: Vec<(String, ColumnType)> = columns.collect::<Checked<_>>()?;
    let events = Field { name: EVENTS.into(), ty: FieldType::List(ListItem::Struct(columns)) };
    Ok(vec![Field::scalar(NUMBER, Type::Int.into()), events])
}

fn check_name(time: &str) -> Checked<()> {
    if time == NUMBER || time == EVENTS {
        return Err(Fault::new(format!("the event time of its events is called '{time}', as a field of batches is"))
            .hint("rename the field of event time"));
    }
    Ok(())
}

/// Returns the length of an interval in units of event time, and the type of this.
fn length_of(source: StreamId, length: &Value, streams: &Streams<'_>) -> Checked<(i64, Type)> {
    let of = &streams.list[source];
    let Some(time) = of.event_time else {
        return Err(Fault::new(format!("it is by time, and the events of '{}' have none", of.name))
            .hint("declare their event time, or write the number of events in a batch: batch(10)"));
    };
    let ty = of.schema.fields[time].scalar_type().expect("an event time is a scalar").ty;
    match (length, ty) {
        (Value::Duration(length @ 1..), Type::Time) | (Value::Int(length @ 1..), Type::Int) => Ok((*length, ty)),
        (length, _) => Err(Fault::new(format!("its length is {}", crate::print::literal(length))).hint(match ty {
            Type::Int => "its event time is an int: write batch(over=60), in the unit of the event time",
            _ => "write a duration greater than zero: batch(\"1s\")",
        })),
    }
}

/// Returns a transaction whose outputs have the number of the batch that they come from, if all of its inputs do
/// (S-Store §2.1): the field `batch` is added to each record of no declared schema that has no such field.
pub(super) fn inherit<'a>(
    def: &'a TransactionDef,
    streams: &Streams<'_>,
    transactions: &TiSlice<TransactionId, Option<Transaction>>,
) -> Cow<'a, TransactionDef> {
    let is_numbered =
        |input: &StreamRef| streams.resolve(input).is_ok_and(|stream| has_number(stream, &streams.list, transactions));
    if def.inputs.is_empty() || !def.inputs.iter().all(is_numbered) {
        return Cow::Borrowed(def);
    }
    Cow::Owned(TransactionDef { body: numbered(&def.body), ..def.clone() })
}

/// Returns whether the events of a stream are batches, or come from batches and have their number.
fn has_number(
    stream: StreamId,
    streams: &TiSlice<StreamId, Stream>,
    transactions: &TiSlice<TransactionId, Option<Transaction>>,
) -> bool {
    let of = &streams[stream];
    let comes_from = |input: StreamId| has_number(input, streams, transactions);
    let comes = match &of.origin {
        Origin::Filter { input, .. } | Origin::Map { input, .. } => comes_from(*input),
        Origin::Committed(id) | Origin::Aborted(id) | Origin::Emitted(id, _) => transactions[*id]
            .as_ref()
            .is_some_and(|t| !t.is_hidden() && t.inputs.iter().all(|&input| comes_from(input))),
        origin => matches!(origin, Origin::Batch(_)),
    };
    comes && of.schema.fields.iter().any(|field| field.name == NUMBER && field.scalar_type() == Some(Type::Int.into()))
}

fn numbered(body: &[Stmt]) -> Vec<Stmt> {
    let record = |given: &Record| {
        let mut record = given.clone();
        if record.schema.is_none() && record.fields.iter().all(|(name, _)| name != NUMBER) {
            record.fields.push((NUMBER.to_owned(), event(NUMBER)));
        }
        record
    };
    let statement = |of: &Stmt| {
        let node = match of.node.clone() {
            StmtNode::If { condition, then, otherwise } => {
                StmtNode::If { condition, then: numbered(&then), otherwise: numbered(&otherwise) }
            }
            StmtNode::ForEach { variable, list, body } => StmtNode::ForEach { variable, list, body: numbered(&body) },
            StmtNode::ForRows { variable, role, body } => StmtNode::ForRows { variable, role, body: numbered(&body) },
            StmtNode::ForRange { variable, start, stop, step, body } => {
                StmtNode::ForRange { variable, start, stop, step, body: numbered(&body) }
            }
            StmtNode::Emit { name, record: given } => StmtNode::Emit { name, record: record(&given) },
            StmtNode::Return { record: Some(given) } => StmtNode::Return { record: Some(record(&given)) },
            other => other,
        };
        Stmt { node, span: of.span }
    };
    body.iter().map(statement).collect()
}
