//! Streams of ticks: what is due at the times of a clock ([`Bound::Ticks`]). A table of one row holds the next.

use super::fault::{Fault, check_identifier};
use super::streams::{NewStream, Streams, Unresolved};
use super::tables::enter_hidden;
use super::writing::{column, set};
use crate::build::{event, if_else};
use crate::{
    AccessDef, Bound, Due, DueField, Expr, Function, NO_TICK, Operator, OperatorKind, Origin, RoleDef, StreamPart,
    StreamRef, Table, TableId, TablePart, Transaction, TransactionDef, TransactionId, TransactionPart,
};
use tidemill_model::{Field, Schema, Type, Value};
use typed_index_collections::TiVec;

/// Enters a stream of ticks and its table; returns the transaction that notes the next.
pub(super) fn ticks(
    name: &str,
    period: &Value,
    origin: i64,
    id: TransactionId,
    streams: &mut Streams<'_>,
    tables: &mut TiVec<TableId, Table>,
) -> Result<Transaction, Unresolved> {
    check_identifier("stream", name)?;
    let (every, time) = match period {
        Value::Duration(every @ 1..) => (*every, Type::Time),
        Value::Int(every @ 1..) => (*every, Type::Int),
        other => {
            return Err(Fault::new(format!("its period is {}", crate::print::literal(other)))
                .hint("a period is a duration greater than zero, or an int where the event time is one")
                .into());
        }
    };
    let zero = || Some(Value::Int(0));
    let columns = vec![
        column("one", Type::Int, true, None),
        column("due", Type::Int, false, zero()),
        column("first", Type::Int, false, zero()),
    ];
    let of = streams.lower(name);
    let table = enter_hidden(columns, of, TablePart::Next, tables)?;
    let origin = origin.rem_euclid(every);
    let bound = Bound::Ticks { every, origin };
    streams.operators.push(Operator {
        name: name.to_owned(),
        kind: OperatorKind::Ticks { every, origin },
        inputs: Vec::new(),
        time: Some(time),
        definition: None,
    });
    let due = Due { table, due: 1, first: 2, fields: vec![DueField::End], bound, time };
    let schema = Schema { fields: vec![Field::scalar("at", time.into())] };
    let (origin, owner) = (Origin::Due(due), of.owner(StreamPart::Ticks));
    let new = NewStream { name: name.to_owned(), schema, event_time: Some(0), origin, root: None, owner };
    streams.add(StreamRef::Named(name.to_owned()), new);
    let units = match time {
        Type::Time => event("at").call(Function::TotalMicroseconds, []),
        _ => event("at"),
    };
    let is_last = units.clone().gt(i64::MAX - every);
    let role = RoleDef::row("next", TablePart::Next.named(name), vec![Expr::from(0)], AccessDef::Create);
    let next = TransactionDef {
        name: format!("{name}.next"),
        inputs: vec![StreamRef::Named(name.to_owned())],
        over: None,
        join: None,
        nested: false,
        derives: false,
        roles: vec![role],
        body: vec![set("next", "due", if_else(is_last, NO_TICK, units + every))],
    };
    let next = super::transaction(&next, id, streams, tables, None)?;
    Ok(streams.own(next, of, TransactionPart::Next))
}
