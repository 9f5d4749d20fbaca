//! Short names for the plans of these tests, and a run of them.
#![allow(dead_code, reason = "no test uses all of it")]

use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::build::PlanBuilder;
use tidemill_plan::{
    AccessDef, Ahead, BinaryOp, CallerFields, ColumnDef, CompareOp, Expr, ExprNode, OriginDef, Plan, Program, Record,
    RoleDef, Stmt, StmtNode, StreamDef, StreamRef, TableDef, TransactionDef, analyze,
};
use tidemill_reference::Reference;

pub fn expr(node: ExprNode) -> Expr {
    Expr { node, span: None }
}

pub fn stmt(node: StmtNode) -> Stmt {
    Stmt { node, span: None }
}

pub fn int(value: i64) -> Expr {
    expr(ExprNode::Literal(Value::Int(value)))
}

pub fn ev(name: &str) -> Expr {
    expr(ExprNode::Event(name.into()))
}

pub fn item(name: &str) -> Expr {
    expr(ExprNode::Element { variable: name.into(), field: String::new() })
}

pub fn cell(role: &str, column: &str) -> Expr {
    expr(ExprNode::Cell { role: role.into(), column: column.into() })
}

pub fn exists(role: &str) -> Expr {
    expr(ExprNode::Exists(role.into()))
}

pub fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    expr(ExprNode::Binary { op, left: Box::new(left), right: Box::new(right) })
}

pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    expr(ExprNode::Compare { op, left: Box::new(left), right: Box::new(right) })
}

pub fn set(role: &str, column: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Set { role: role.into(), column: column.into(), value })
}

pub fn increase(role: &str, column: &str, by: Expr) -> Stmt {
    set(role, column, binary(BinaryOp::Add, cell(role, column), by))
}

pub fn insert(role: &str) -> Stmt {
    stmt(StmtNode::Insert { role: role.into(), values: vec![] })
}

pub fn delete(role: &str) -> Stmt {
    stmt(StmtNode::Delete { role: role.into() })
}

pub fn require(condition: Expr, reason: &str) -> Stmt {
    stmt(StmtNode::Require { condition, reason: reason.into() })
}

pub fn when(condition: Expr, then: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::If { condition, then, otherwise: vec![] })
}

pub fn for_each(variable: &str, list: &str, body: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::ForEach { variable: variable.into(), list: list.into(), body })
}

pub fn record(fields: &[(&str, Expr)]) -> Record {
    let fields = fields.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
    Record { fields, schema: None, event_time: None }
}

pub fn emit(name: &str, fields: &[(&str, Expr)]) -> Stmt {
    stmt(StmtNode::Emit { name: name.into(), record: record(fields) })
}

pub fn give_back(fields: &[(&str, Expr)]) -> Stmt {
    stmt(StmtNode::Return { record: Some(record(fields)) })
}

pub fn named(name: &str) -> StreamRef {
    StreamRef::Named(name.into())
}

/// Returns a role on the one table, `cells(id, n = 5)`.
pub fn role(name: &str, key: Expr, access: AccessDef) -> RoleDef {
    RoleDef::row(name, "cells", vec![key], access)
}

pub fn transaction(name: &str, inputs: Vec<StreamRef>, roles: Vec<RoleDef>, body: Vec<Stmt>) -> TransactionDef {
    TransactionDef { name: name.into(), inputs, over: None, join: None, nested: false, derives: false, roles, body }
}

pub fn source(name: &str, schema: Schema) -> StreamDef {
    StreamDef {
        name: name.into(),
        origin: OriginDef::Source {
            schema,
            event_time: None,
            lateness: 0,
            anchored: false,
            remembers: None,
            keys_max: None,
            ahead: Ahead::ByInput,
            caller: CallerFields::default(),
        },
    }
}

/// Returns a source `events` of two ints `a` and `b`, the latter nullable.
pub fn events() -> StreamDef {
    let b = ColumnType::optional(Type::Int);
    source("events", Schema::scalars([("a", Type::Int.into()), ("b", b)]))
}

/// Returns a program with the table `cells`.
pub fn program(streams: Vec<StreamDef>, transactions: Vec<TransactionDef>) -> Program {
    let id = ColumnDef { key: true, ..ColumnDef::new("id", Type::Int) };
    let n = ColumnDef { default: Some(Value::Int(5)), ..ColumnDef::new("n", Type::Int) };
    let tables = vec![TableDef::new("cells", vec![id, n])];
    let plan = Plan { tables, streams, transactions, ..PlanBuilder::new("test").build() };
    analyze(&plan).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

pub fn ints<const N: usize>(values: [i64; N]) -> Vec<Value> {
    values.map(Value::Int).into()
}

/// Returns the events of a stream, printed.
pub fn output(program: &Program, reference: &Reference, stream: &str) -> Vec<String> {
    let id = program.streams.position(|s| s.name == stream);
    let events = reference.output(id.unwrap_or_else(|| panic!("no stream {stream}")));
    events.iter().map(|event| line(event)).collect()
}

/// Returns the rows of `cells`, printed.
pub fn cells(reference: &Reference) -> Vec<String> {
    reference.table(0.into()).iter().map(|row| line(row)).collect()
}

fn line(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
}
