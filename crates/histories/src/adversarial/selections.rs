//! Transactions that read the rows that a condition chooses, while the columns that it is about change.

use super::values::str;
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, ColumnDef, CompareOp, Direction, Expr, ExprNode, RoleDef, Stmt, TableDef, TransactionDef,
};

/// Orders with texts that begin alike, prices that meet, and values that may be missing.
fn orders() -> TableDef {
    let optional = |name: &str, ty| ColumnDef { ty: ColumnType::optional(ty), ..column(name, ty, Value::Null) };
    let columns = [
        key("id", Type::Int),
        optional("side", Type::Str),
        optional("price", Type::Int),
        column("speed", Type::Float, Value::Float(0.0)),
        column("amount", decimal(2), Value::Decimal(0)),
    ];
    table("orders", columns.to_vec())
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|&column| column.into()).collect()
}

/// Appends the keys of a role's rows, in the order in which they come, to a text.
fn list(roles: &[&str]) -> Vec<Stmt> {
    let of = |role: &&str| {
        vec![
            assign("seen", add(local("seen"), text(";"))),
            for_rows(role, vec![assign("seen", add(add(local("seen"), text(",")), as_text(cell(role, "id"))))]),
        ]
    };
    std::iter::once(assign("seen", text(""))).chain(roles.iter().flat_map(of)).collect()
}

fn or_zero(value: Expr) -> Expr {
    expr(ExprNode::OrZero(Box::new(value)))
}

fn as_text(value: Expr) -> Expr {
    call(tidemill_plan::Function::Str, [value])
}

fn roles() -> Vec<RoleDef> {
    let (up, down) = (Direction::Ascending, Direction::Descending);
    let side = || same("side", event("side"));
    let within = || between("price", Some(event("low")), Some(event("high")));
    vec![
        role("own", "orders", vec![event("id")], AccessDef::Create),
        role("other", "orders", vec![event("other")], AccessDef::Row),
        rows_of("alike", "orders", vec![same("side", event("side"))], None),
        rows_of("as_own", "orders", vec![same("side", cell("own", "side"))], None),
        // There are no such rows if the other row is missing.
        rows_of("as_other", "orders", vec![same("price", cell("other", "price"))], None),
        rows_of("none", "orders", vec![same("side", literal(Value::Null))], None),
        rows_of("near", "orders", vec![between("price", Some(event("low")), Some(event("high")))], None),
        rows_of("upward", "orders", vec![between("side", Some(event("side")), None)], first("side", up, 4)),
        rows_of("fast", "orders", vec![between("speed", None, Some(event("speed")))], first("speed", down, 3)),
        rows_of("slow", "orders", vec![], first("speed", up, 50)),
        rows_of("best", "orders", vec![same("side", event("side"))], first("price", down, 2)),
        rows_of("least", "orders", vec![between("amount", Some(event("amount")), None)], first("amount", up, 1)),
        rows_of("key", "orders", vec![same("id", event("other"))], None),
        rows_of("cheap", "orders", vec![side(), between("price", Some(event("low")), None)], first("price", up, 2)),
        rows_of("large", "orders", vec![side(), within()], first("amount", down, 3)),
    ]
}

const LISTED: [&str; 13] =
    ["alike", "as_own", "as_other", "none", "near", "upward", "fast", "slow", "best", "least", "key", "cheap", "large"];

/// Indexes of several columns: such that serve conditions, an order, or both, by all of their columns or by the first.
pub const SEVERAL: [&[&str]; 5] =
    [&["side", "price"], &["side", "amount", "price"], &["price", "id"], &["amount", "side"], &["id", "side"]];

/// Each event changes or deletes a row, or those that it has chosen, lists what conditions choose before and after, and may abort then; the next event
/// finds the rows of before. A second transaction on the same event sees what the first has left.
///
/// `indexes`: of which columns there are some.
pub fn of_changes(indexes: &[&[&str]]) -> History {
    let schema = Schema::scalars([
        ("id", ColumnType::required(Type::Int)),
        ("other", Type::Int.into()),
        ("side", ColumnType::optional(Type::Str)),
        ("price", ColumnType::optional(Type::Int)),
        ("speed", Type::Float.into()),
        ("amount", decimal(2).into()),
        ("low", ColumnType::optional(Type::Int)),
        ("high", ColumnType::optional(Type::Int)),
        ("what", Type::Str.into()),
    ]);
    let is = |what: &str| compare(CompareOp::Eq, event("what"), text(what));
    let mut body = list(&LISTED);
    body.extend([
        emit("before", vec![("seen", local("seen"))]),
        when(expr(ExprNode::All(vec![is("delete"), exists("own")])), vec![delete("own")], vec![]),
        when(
            is("change"),
            ["side", "price", "speed", "amount"].map(|name| set("own", name, event(name))).to_vec(),
            vec![],
        ),
    ]);
    let takes = expr(ExprNode::Any(vec![is("take"), is("take then abort")]));
    let take = vec![
        set("best", "amount", event("amount")),
        set("best", "price", add(or_zero(cell("best", "price")), int(1))),
        when(compare(CompareOp::Lt, or_zero(cell("best", "price")), int(2)), vec![delete("best")], vec![]),
    ];
    let clear = vec![when(exists("own"), vec![set("own", "side", event("side"))], vec![]), delete("near")];
    body.extend([
        when(takes, vec![for_rows("best", take)], vec![]),
        when(is("take then abort"), vec![for_rows("near", clear), abort("after all were taken")], vec![]),
    ]);
    body.extend(list(&LISTED));
    body.extend([
        assign("sum", row_count("near")),
        for_rows("best", vec![assign("sum", add(local("sum"), or_zero(cell("best", "price"))))]),
        require(not(is("abort")), "not wanted"),
        when(is("change then abort"), vec![set("own", "side", event("side")), abort("after a write")], vec![]),
        give_back(vec![("seen", local("seen")), ("sum", local("sum"))]),
    ]);
    let work = transaction("work", vec![named("changes")], roles(), body);
    let after = TransactionDef {
        body: [list(&LISTED), vec![give_back(vec![("seen", local("seen"))])]].concat(),
        ..transaction("after", vec![named("changes")], roles(), vec![])
    };
    let indexes = indexes.iter().map(|index| names(index)).collect();
    let orders = TableDef { indexes, changes: true, ..orders() };
    let plan = plan("of_changes", vec![orders], vec![source("changes", schema)], vec![work, after]);
    let optional = |i: i64, every: i64, value: Value| if i % every == 0 { Value::Null } else { value };
    let change = |i: i64| {
        let whats = ["change", "change", "change", "take", "delete", "abort", "change then abort", "take then abort"];
        let what = whats[(i * 7 % 23) as usize % whats.len()];
        let speed = [0.0, -0.0, 1.5, f64::NAN, -2.0, f64::INFINITY][i as usize % 6];
        vec![
            Value::Int((i * 5) % 11 - 5),
            Value::Int((i * 3) % 13 - 6),
            optional(i, 6, str(["a", "aa", "", "ab", "aaa", "b", "a"][i as usize % 7])),
            optional(i, 5, Value::Int((i * 11) % 4 - 1)),
            Value::Float(speed),
            Value::Decimal((i * 13) % 5 * 50),
            optional(i, 4, Value::Int(i % 3 - 1)),
            optional(i, 7, Value::Int(i % 4)),
            str(what),
        ]
    };
    History { plan, preload: vec![], sources: vec![(0..70).map(change).collect()] }
}

/// A nested transaction changes what its root has chosen rows by, and aborts both now and then.
pub fn nested(indexes: &[&[&str]]) -> History {
    let schema = Schema::scalars([
        ("id", Type::Int.into()),
        ("side", ColumnType::optional(Type::Str)),
        ("most", ColumnType::required(Type::Int)),
    ]);
    let role_of = |key: Expr| -> Vec<RoleDef> {
        vec![
            role("own", "orders", vec![key], AccessDef::Create),
            rows_of("alike", "orders", vec![same("side", event("side"))], None),
            rows_of("best", "orders", vec![], first("price", Direction::Descending, 3)),
        ]
    };
    let body = |end: Stmt| {
        let change =
            vec![set("own", "side", event("side")), set("own", "price", add(or_zero(cell("own", "price")), int(1)))];
        [change, list(&["alike", "best"]), vec![assign("count", row_count("alike")), end]].concat()
    };
    let output = || {
        let fields = ["id", "side", "most"].map(|name| (name, event(name))).to_vec();
        give_back([fields, vec![("seen", local("seen")), ("count", local("count"))]].concat())
    };
    let root = transaction("root", vec![named("changes")], role_of(event("id")), body(output()));
    let fits = require(compare(CompareOp::Le, local("count"), event("most")), "too many");
    let inner = transaction("inner", vec![committed("root")], role_of(event("count")), body(fits));
    let inner = TransactionDef { nested: true, ..inner };
    let listing = [list(&["alike", "best"]), vec![give_back(vec![("seen", local("seen"))])]].concat();
    let after = transaction("after", vec![committed("root")], role_of(event("id")), listing);
    let indexes = indexes.iter().map(|index| names(index)).collect();
    let orders = TableDef { indexes, changes: true, ..orders() };
    let plan = plan("nested", vec![orders], vec![source("changes", schema)], vec![root, inner, after]);
    let change = |i: i64| {
        let side = if i % 5 == 4 { Value::Null } else { str(["x", "xy", "y"][i as usize % 3]) };
        vec![Value::Int(i * 7 % 12), side, Value::Int(if i % 4 == 3 { 1 } else { 1_000 })]
    };
    History { plan, preload: vec![], sources: vec![(0..60).map(change).collect()] }
}
