//! Functions that convert a column's values when a state is migrated.
//!
//! A conversion is lowered to a program of its own: a transaction without rows on a source of values. So it has the checks,
//! the machine code, the aborts and the reasons of any other body, and the interpreter runs it as well.

use super::fault::{Checked, Fault};
use super::types::check_column_type;
use crate::visit::each_statement;
use crate::{
    Ahead, CallerFields, ColumnDef, ConvertDef, Expr, ExprNode, Limits, OriginDef, PLAN_VERSION, Plan, Record, SinkDef,
    Stmt, StmtNode, StreamDef, StreamRef, TransactionDef,
};
use tidemill_model::{ColumnType, Field, Schema, Type};

/// The field with the number of a row.
const ROW: &str = "row";

/// Checks what concerns no types.
pub(super) fn check(column: &ColumnDef, convert: &ConvertDef) -> Checked<()> {
    check_column(column, convert)?;
    check_column_type(&column.name, convert.from.ty)?;
    check_body(&convert.body)
}

fn check_column(column: &ColumnDef, convert: &ConvertDef) -> Checked<()> {
    let name = &column.name;
    if column.key {
        return Err(Fault::new(format!("'{name}' is part of the key, which no function converts"))
            .hint("keys keep their types: keep a table with the other key beside this one"));
    }
    if column.window.is_some() {
        return Err(Fault::new(format!("'{name}' is a windowed column, which no function converts"))
            .hint("give the new window a name of its own: it begins empty"));
    }
    if column.was.is_none() && convert.from == column.ty {
        let message = format!("'{name}' is {} before and after: nothing says whether it was converted", column.ty);
        return Err(Fault::new(message).hint("rename it, and say what it was"));
    }
    Ok(())
}

fn check_body(body: &[Stmt]) -> Checked<()> {
    let mut wrong = None;
    each_statement(body, &mut |statement: &Stmt| {
        let what = match &statement.node {
            StmtNode::Emit { .. } => "a conversion emits nothing",
            StmtNode::Return { .. } => "a conversion returns at its end",
            _ => return,
        };
        wrong.get_or_insert(Fault::new(what).hint("what it gives is one value").at(statement.span));
    });
    wrong.map_or(Ok(()), Err)
}

/// Returns the program of a conversion; with numbers of rows beside the values, or without.
pub(super) fn plan(column: &ColumnDef, convert: &ConvertDef, limits: Limits, is_numbered: bool) -> Plan {
    let row = is_numbered.then(|| ColumnType::required(Type::Int));
    let schema = |value: ColumnType| {
        let row = row.map(|ty| Field::scalar(ROW, ty));
        Schema { fields: row.into_iter().chain([Field::scalar(ConvertDef::VALUE, value)]).collect() }
    };
    let number = row.map(|_| (ROW.to_owned(), Expr { node: ExprNode::Event(ROW.into()), span: None }));
    let fields = number.into_iter().chain([(ConvertDef::VALUE.to_owned(), convert.value.clone())]).collect();
    let record = Record { fields, schema: Some(schema(column.ty)), event_time: None };
    let end = Stmt { node: StmtNode::Return { record: Some(record) }, span: convert.value.span };
    let origin = OriginDef::Source {
        schema: schema(convert.from),
        event_time: None,
        lateness: 0,
        anchored: false,
        remembers: None,
        keys_max: None,
        ahead: Ahead::ByInput,
        caller: CallerFields::default(),
    };
    let name = || "conversion".to_owned();
    let transaction = TransactionDef {
        name: name(),
        inputs: vec![StreamRef::Named("values".into())],
        over: None,
        join: None,
        nested: false,
        derives: false,
        roles: Vec::new(),
        body: convert.body.iter().cloned().chain([end]).collect(),
    };
    let sink = |name: &str, stream| SinkDef { name: name.into(), stream };
    Plan {
        version: PLAN_VERSION,
        name: name(),
        schema_version: 1,
        tables: Vec::new(),
        streams: vec![StreamDef { name: "values".into(), origin }],
        transactions: vec![transaction],
        sinks: vec![sink("converted", StreamRef::Committed(name())), sink("failed", StreamRef::Aborted(name()))],
        limits,
        retired: Vec::new(),
    }
}
