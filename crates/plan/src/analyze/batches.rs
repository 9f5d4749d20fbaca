//! Streams of atomic batches: the events of a source, some at a time (S-Store §2.1). The gate makes their lists. When those
//! of an interval of time are due is in a hidden table of one row.

use super::fault::{Checked, Fault, check_identifier};
use super::position::PositionTime;
use super::streams::{NewStream, Streams, Unresolved};
use super::tables::enter_hidden;
use super::writing::{column, set, stmt};
use crate::build::event;
use crate::{
    AccessDef, Batch, BatchSize, Bound, Due, DueField, Expr, Function, Origin, Record, RoleDef, Stmt, StmtNode, Stream,
    StreamId, StreamRef, Table, TableDef, TableId, Transaction, TransactionDef, TransactionId,
};
use std::borrow::Cow;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};
use typed_index_collections::{TiSlice, TiVec};

/// The field with a batch's number.
const NUMBER: &str = "batch";
/// The field with a batch's events.
const EVENTS: &str = "events";
/// The role of the row that says when a batch is due.
const OPEN: &str = "open";

/// Enters a stream of batches; returns the transactions, from number `first` on, that note when one is due.
pub(super) fn batches(
    name: &str,
    input: &StreamRef,
    size: &BatchSize,
    first: TransactionId,
    streams: &mut Streams<'_>,
    tables: &mut TiVec<TableId, Table>,
) -> Result<Vec<Transaction>, Unresolved> {
    check_identifier("stream", name)?;
    let source = streams.input(input)?;
    let mut fields = fields(source, streams)?;
    match size {
        BatchSize::Count(0) => Err(Fault::new("its batches have no events")
            .hint("write the number of events in a batch, at least 1, or a length of time: batch(\"1s\")")
            .into()),
        BatchSize::Count(size) => {
            let time = streams.list[source].event_time;
            if let Some(time) = time {
                let time = streams.list[source].schema.fields[time].clone();
                check_name(&time.name)?;
                fields.push(time);
            }
            let event_time = time.map(|_| fields.len() - 1);
            let origin = Origin::Batch(Batch { source, size: *size });
            enter(name, Schema { fields }, event_time, origin, streams);
            Ok(Vec::new())
        }
        BatchSize::Time { length, origin } => {
            let (length, ty) = length_of(source, length, streams)?;
            let table = TableDef {
                name: OPEN.into(),
                columns: vec![
                    column("one", Type::Int, true, None),
                    column("due", Type::Int, false, Some(Value::Int(0))),
                ],
                groups: None,
            };
            let table = enter_hidden(&table, name, tables)?;
            fields.extend(["start", "end"].map(|name| Field::scalar(name, ty.into())));
            let bound = Bound::Grid { every: length, origin: origin.rem_euclid(length) };
            let times = vec![DueField::Start { length }, DueField::End];
            let due = Due { table, due: 1, first: 1, fields: times, bound, time: ty, gathers: Some(source) };
            let end = fields.len() - 1;
            let time = streams.list[source].event_time.expect("its events have a time");
            let time = streams.list[source].schema.fields[time].name.clone();
            enter(name, Schema { fields }, Some(end), Origin::Due(due), streams);
            let units = match ty {
                Type::Time => event(&time).call(Function::TotalMicroseconds, []),
                _ => event(&time),
            };
            let (every, from) = (length, origin.rem_euclid(length));
            let boundary = (units - from).floor_div(every) * every + (every + from);
            let opens = note(name, "opens", input, AccessDef::Create, set(OPEN, "due", boundary));
            let closed = StreamRef::Named(name.to_owned());
            let delete = stmt(StmtNode::Delete { role: OPEN.into() });
            let closes = note(name, "closes", &closed, AccessDef::Row, delete);
            let opens = super::transaction(&opens, first, streams, tables, None)?;
            let second = TransactionId::from(usize::from(first) + 1);
            let at = Some(PositionTime { field: end, shift: -1 });
            Ok(vec![opens, super::transaction(&closes, second, streams, tables, at)?])
        }
    }
}

/// How many transactions note when batches are due.
pub(super) fn width(size: &BatchSize) -> usize {
    match size {
        BatchSize::Count(_) => 0,
        BatchSize::Time { .. } => 2,
    }
}

fn enter(name: &str, schema: Schema, event_time: Option<usize>, origin: Origin, streams: &mut Streams<'_>) {
    let new = NewStream { name: name.to_owned(), schema, event_time, origin, root: None };
    streams.add(StreamRef::Named(name.to_owned()), new);
}

/// The number of a batch and its events.
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

/// The length of an interval in units of event time, and the type of this.
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

fn note(of: &str, name: &str, input: &StreamRef, access: AccessDef, body: Stmt) -> TransactionDef {
    let role =
        RoleDef { name: OPEN.into(), table: format!("{of}.{OPEN}"), key: vec![Expr::from(0)], over: None, access };
    TransactionDef {
        name: format!("{of}.{name}"),
        inputs: vec![input.clone()],
        over: None,
        join: None,
        nested: false,
        roles: vec![role],
        body: vec![body],
    }
}

/// A transaction whose outputs have the number of the batch that they come from, if all of its inputs do (S-Store §2.1): the
/// field `batch` is added to each record of no declared schema that has no such field.
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

/// Whether the events of a stream are batches, or come from such and have the number of theirs.
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
        origin => origin.batched().is_some(),
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
