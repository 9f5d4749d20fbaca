//! Writes that must leave no trace: undone late, in great numbers, or several times in one cell.

use super::values::{ints, str};
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, ListItem, Schema, Type, Value};
use tidemill_plan::{AccessDef, ColumnDef, CompareOp, Expr, ExprNode, Stmt, TableDef};

fn cells() -> TableDef {
    let text = |name: &str| ColumnDef::new(name, ColumnType::optional(Type::Str));
    let number = ColumnDef { default: Some(Value::Null), ..ColumnDef::new("m", ColumnType::optional(Type::Int)) };
    let columns = vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0)), number, text("t"), text("u")];
    table("cells", columns)
}

fn is(field: &str, value: i64) -> Expr {
    compare(CompareOp::Eq, event(field), int(value))
}

/// Transactions whose returned record or last emission cannot be made, after a write that nothing else can undo: one
/// transaction each, so that the write is its last step.
pub fn behind_the_last_write() -> History {
    let schema = || Schema::scalars([("id", Type::Int.into()), ("by", Type::Int.into())]);
    let roles = || vec![role("r", "cells", vec![event("id")], AccessDef::Create)];
    let twice = || add(cell("r", "n"), event("by"));
    let returned = vec![set("r", "n", event("by")), give_back(vec![("n", twice())])];
    let emitted = vec![set("r", "n", event("by")), emit("out", vec![("n", twice())])];
    let inserted = vec![insert("r", vec![("n", event("by"))]), give_back(vec![("n", twice())])];
    let branched = vec![
        when(is("id", 1), vec![set("r", "m", event("by")), set("r", "n", event("by"))], vec![delete("r")]),
        give_back(vec![("n", add(event("by"), event("by")))]),
    ];
    let looped = vec![for_range(
        "i",
        int(0),
        int(3),
        1,
        vec![set("r", "n", event("by")), assign("x", add(twice(), local("i")))],
    )];
    let bodies = [returned, emitted, inserted, branched, looped];
    let work = |(i, body)| transaction(&format!("work{i}"), vec![named("events")], roles(), body);
    let plan = plan(
        "behind_the_last_write",
        vec![cells()],
        vec![source("events", schema())],
        bodies.into_iter().enumerate().map(work).collect(),
    );
    let events = (0..60).map(|i| ints(&[i % 3, if i % 4 == 1 { i64::MAX / 2 + 1 } else { i }])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// A transaction with more writes than there is room for at first, in rows of a list and in one row.
pub fn thousands() -> History {
    let mut schema = Schema::scalars([("rounds", Type::Int.into()), ("fails", Type::Int.into())]);
    schema.fields.push(list("keys", ListItem::Scalar(Type::Int.into())));
    let roles = vec![
        role_over("each", "cells", vec![element("keys", "")], "keys", AccessDef::Create),
        role("one", "cells", vec![int(-1)], AccessDef::Create),
    ];
    let each: Vec<Stmt> = vec![increase("each", "n", int(1)), set("each", "m", local("i"))];
    let body = vec![
        assign("i", int(7)),
        for_each("k", "keys", each),
        for_range("i", int(0), event("rounds"), 1, vec![increase("one", "n", local("i")), set("one", "m", local("i"))]),
        require(is("fails", 0), "in the end"),
        give_back(vec![("n", cell("one", "n")), ("length", expr(ExprNode::Length("keys".into())))]),
    ];
    let plan = plan(
        "thousands",
        vec![cells()],
        vec![source("events", schema)],
        vec![transaction("work", vec![named("events")], roles, body)],
    );
    let event = |rounds: i64, fails: i64, keys: std::ops::Range<i64>| {
        vec![Value::Int(rounds), Value::Int(fails), Value::List(keys.map(|k| ints(&[k % 900])).collect())]
    };
    let events = vec![
        event(3, 0, 0..10),
        event(0, 1, 0..1500),
        event(2000, 1, 0..3),
        event(700, 0, 5..1300),
        event(5000, 1, 100..2000),
        event(1, 0, 0..0),
        event(0, 0, 0..1000),
    ];
    History { plan, preload: vec![], sources: vec![events] }
}

/// Texts that are set several times in one transaction, read in between, shown, and kept or not.
pub fn texts() -> History {
    let schema = Schema::scalars([("id", Type::Int.into()), ("kind", Type::Int.into()), ("text", Type::Str.into())]);
    let roles = vec![
        role("r", "cells", vec![event("id")], AccessDef::Create),
        role("s", "cells", vec![event("id")], AccessDef::Row),
    ];
    let joined = |column| add(event("text"), if_null(cell("r", column)));
    let body = vec![
        set("r", "t", event("text")),
        set("r", "t", joined("t")),
        set("r", "u", cell("s", "t")),
        emit("between", vec![("t", cell("r", "t")), ("u", cell("r", "u"))]),
        when(is("kind", 1), vec![delete("s"), insert("r", vec![("u", event("text"))])], vec![]),
        set("r", "t", literal(Value::Null)),
        when(is("kind", 2), vec![delete("s")], vec![]),
        require(compare(CompareOp::Ne, event("kind"), int(3)), "three"),
        set("r", "u", joined("u")),
        set("r", "t", literal(str(""))),
        set("r", "t", cell("r", "u")),
        require(compare(CompareOp::Ne, event("kind"), int(4)), "four"),
        give_back(vec![("t", cell("s", "t")), ("u", cell("s", "u"))]),
    ];
    let plan = plan(
        "texts",
        vec![cells()],
        vec![source("events", schema)],
        vec![transaction("work", vec![named("events")], roles, body)],
    );
    let text = |i: i64| str(["", "a", "long enough to be somewhere else", "Ü"][(i % 4) as usize]);
    let events = (0..120).map(|i| vec![Value::Int(i % 3), Value::Int(i * i % 11 % 6), text(i)]).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

fn if_null(value: Expr) -> Expr {
    if_else(is_null(value.clone()), text("none"), value)
}
