//! Rows that expire, as a column, statements and transactions.
//!
//! If the rows of the table `seats` expire ([`crate::TableDef::expire`]), there are
//!
//! | what | of |
//! |---|---|
//! | column `seats.gone_at` | the time at which the row is gone; None: it stays |
//! | statements | after each write that makes another time of it: they set the column |
//! | stream `seats.gone` | the rows whose time has come: their keys, and the time ([`crate::Due`]) |
//! | transaction `seats.expired` | `seats.gone`: deletes the row, and passes it on as the stream `seats.expired` |
//!
//! The column is one of the row, so aborts undo it, a deletion takes it along, and a write touches no other row for it. No
//! write sets a time that is over. A row may be written after it was found to be due and before its turn comes; so
//! `seats.expired` looks at the column.

use super::fault::{Checked, Fault};
use super::setting::time;
use super::writing::{assign, stmt, when};
use crate::build::{cell, event, exists, local};
use crate::{
    AccessDef, ColumnDef, Expire, Plan, PlanError, Record, RoleDef, StmtNode, StreamRef, TableDef, TransactionDef,
};
use std::borrow::Cow;
use tidemill_model::civil::span_text;
use tidemill_model::{ColumnType, Field, Schema, Type, Value};

/// The end of the names of transactions and streams of rows that have expired.
const EXPIRED: &str = ".expired";

/// The column with the time at which a row is gone.
pub(super) const GONE_AT: &str = "gone_at";

/// Returns the name of the transaction that deletes the expired rows of a table.
pub(super) fn name(table: &str) -> String {
    format!("{table}{EXPIRED}")
}

/// Returns the name of the stream of a table's rows whose time has come.
pub(super) fn gone(table: &str) -> String {
    format!("{table}.gone")
}

/// Returns the plan with the columns and transactions that expiring rows stand for. The transactions come last, in the order of
/// their tables.
pub(super) fn expand<'a>(plan: &'a Plan, errors: &mut Vec<PlanError>) -> Cow<'a, Plan> {
    if plan.tables.iter().all(|table| table.expire.is_none()) {
        return Cow::Borrowed(plan);
    }
    let (mut expanded, time) = (plan.clone(), time(plan));
    for table in &mut expanded.tables {
        let Some(expire) = table.expire.clone() else { continue };
        match check(table, &expire, time) {
            Ok(time) => {
                table.columns.push(ColumnDef::new(GONE_AT, ColumnType::optional(time)));
                expanded.transactions.push(delete(table, time));
            }
            Err(fault) => errors.push(fault.of("table", &table.name)),
        }
    }
    Cow::Owned(expanded)
}

/// Checks how rows of a table expire; gives the type of their times, which is that of event times where there are some yet.
fn check(table: &TableDef, expire: &Expire, time: Option<Type>) -> Checked<Type> {
    if table.columns.iter().any(|column| column.name == GONE_AT) {
        let what = format!("its rows expire, and it has a column '{GONE_AT}', as that of their time is called");
        return Err(Fault::new(what).hint("give the column another name"));
    }
    let (said, ty) = match expire {
        Expire::After(value) => {
            let said = format!("after {}", shown(value));
            match value {
                Value::Int(1..) => (said, Type::Int),
                Value::Duration(1..) => (said, Type::Time),
                Value::Int(_) | Value::Duration(_) => {
                    return Err(Fault::new(format!("its rows expire {said}")).hint("give a time greater than zero"));
                }
                _ => return Err(Fault::new(format!("its rows expire {said}")).hint("give a duration, such as \"15m\"")),
            }
        }
        Expire::At(name) => {
            let names = table.columns.iter().map(|column| column.name.as_str());
            let column = table.columns.iter().find(|column| column.name == *name);
            let column = column.ok_or_else(|| Fault::unknown("column", name, names))?;
            let said = format!("by '{name}'");
            if column.window.is_some() {
                return Err(Fault::new(format!("its rows expire {said}, which is a window")));
            }
            if !matches!(column.ty.ty, Type::Int | Type::Time) {
                return Err(Fault::new(format!("its rows expire {said}, which is {}", column.ty))
                    .hint("use a column of event times"));
            }
            (said, column.ty.ty)
        }
    };
    match time.filter(|&time| time != ty) {
        None => Ok(ty),
        Some(time) => {
            let hint = match (expire, time) {
                (Expire::At(_), _) => "use a column of event times",
                (Expire::After(_), Type::Int) => "give a number",
                (Expire::After(_), _) => "give a duration, such as \"15m\"",
            };
            let ty = if matches!(expire, Expire::At(_)) { format!(", which is {ty}") } else { String::new() };
            Err(Fault::new(format!("its rows expire {said}{ty}, and event times are {time}")).hint(hint))
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Duration(length) => span_text(*length),
        other => crate::print::literal(other),
    }
}

/// Returns the transaction that deletes a row whose time has come, and gives it.
fn delete(table: &TableDef, time: Type) -> TransactionDef {
    const ROW: &str = "row";
    let saved = |column: &ColumnDef| format!("__was_{}", column.name);
    let kept = table.columns.iter().filter(|column| column.window.is_none());
    let (mut schema, mut fields, mut body) = (Schema::default(), Vec::new(), Vec::new());
    for column in kept {
        let is_time = column.name == GONE_AT;
        let (ty, value) = match is_time || column.key {
            true => (if is_time { time.into() } else { column.ty }, event(&column.name)),
            false => (column.ty, local(saved(column))),
        };
        if !is_time && !column.key {
            body.push(assign(&saved(column), cell(ROW, &column.name)));
        }
        schema.fields.push(Field::scalar(&column.name, ty));
        fields.push((column.name.clone(), value));
    }
    body.push(stmt(StmtNode::Delete { role: ROW.into() }));
    let record = Record { fields, schema: Some(schema), event_time: Some(GONE_AT.into()) };
    body.push(stmt(StmtNode::Return { record: Some(record) }));
    let key = table.columns.iter().filter(|column| column.key).map(|column| event(&column.name)).collect();
    let is_due = exists(ROW).and(cell(ROW, GONE_AT).eq(event(GONE_AT)));
    TransactionDef {
        name: name(&table.name),
        inputs: vec![StreamRef::Named(gone(&table.name))],
        over: None,
        join: None,
        nested: false,
        derives: false,
        roles: vec![RoleDef::row(ROW, &table.name, key, AccessDef::Row)],
        body: vec![when(is_due, body)],
    }
}
