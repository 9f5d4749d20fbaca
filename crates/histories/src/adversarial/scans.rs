//! Transactions that read all rows of a table, while rows come, go and change.

use super::values::{ints, str};
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::{AccessDef, CompareOp, Expr, ExprNode, RoleDef, Stmt, StmtNode, TableDef, TransactionDef};

/// Returns a table whose key has a number that may be negative and a text, in an order that neither hash nor arrival
/// has.
fn things() -> TableDef {
    let keys = [key("number", Type::Int), key("name", Type::Str)];
    let columns = [column("n", Type::Int, Value::Int(0)), column("text", Type::Str, str(""))];
    table("things", keys.into_iter().chain(columns).collect())
}

fn is(field: &str, value: &str) -> Expr {
    compare(CompareOp::Eq, event(field), text(value))
}

/// Reads all rows into a text that shows their order, and what each round found.
fn listing(role: &str) -> Vec<Stmt> {
    vec![
        assign("seen", text("")),
        assign("sum", int(0)),
        for_rows(
            role,
            vec![
                assign("seen", add(add(local("seen"), cell(role, "name")), cell(role, "text"))),
                assign("sum", add(local("sum"), cell(role, "n"))),
            ],
        ),
    ]
}

fn shown(role: &str) -> Vec<(&'static str, Expr)> {
    vec![("seen", local("seen")), ("sum", local("sum")), ("count", row_count(role))]
}

/// A transaction lists all rows, inserts, deletes or changes one, lists them again, and may abort then. The second loop
/// sees what was changed, passes over what was deleted, and does not visit what was inserted; the events after an abort
/// find the rows of before. A loop within one over the same table counts pairs.
pub fn of_changes() -> History {
    let schema = Schema::scalars([
        ("number", ColumnType::required(Type::Int)),
        ("name", Type::Str.into()),
        ("what", Type::Str.into()),
        ("most", Type::Int.into()),
    ]);
    let roles = vec![
        role("own", "things", vec![event("number"), event("name")], AccessDef::Create),
        all_rows("all", "things"),
        all_rows("others", "things"),
        all_rows("apart", "apart"),
        role("log", "apart", vec![event("name")], AccessDef::Create),
    ];
    let mut body = listing("all");
    body.extend([
        emit("before", shown("all")),
        when(expr(ExprNode::All(vec![is("what", "delete"), exists("own")])), vec![delete("own")], vec![]),
        when(
            is("what", "change"),
            vec![increase("own", "n", int(1)), set("own", "text", add(cell("own", "text"), text("!")))],
            vec![],
        ),
        increase("log", "n", int(1)),
    ]);
    body.extend(listing("all"));
    body.extend([
        assign("pairs", int(0)),
        for_rows(
            "all",
            vec![
                when(compare(CompareOp::Eq, cell("all", "n"), int(3)), vec![stmt(StmtNode::Continue)], vec![]),
                for_rows(
                    "others",
                    vec![
                        when(
                            compare(CompareOp::Lt, cell("others", "n"), cell("all", "n")),
                            vec![assign("pairs", add(local("pairs"), int(1)))],
                            vec![],
                        ),
                        when(compare(CompareOp::Gt, local("pairs"), int(40)), vec![stmt(StmtNode::Break)], vec![]),
                    ],
                ),
            ],
        ),
        // A row that is deleted in its round is missing from there on.
        for_rows(
            "all",
            vec![when(
                expr(ExprNode::All(vec![
                    is("what", "trap"),
                    compare(CompareOp::Eq, cell("all", "name"), event("name")),
                    compare(CompareOp::Eq, cell("all", "number"), event("number")),
                ])),
                vec![delete("own"), assign("pairs", cell("all", "n"))],
                vec![],
            )],
        ),
        assign("most", int(0)),
        for_rows("apart", vec![assign("most", add(local("most"), cell("apart", "n")))]),
        require(compare(CompareOp::Le, local("sum"), event("most")), "too much"),
        give_back([shown("all"), vec![("pairs", local("pairs")), ("apart", local("most"))]].concat()),
    ]);
    let work = transaction("work", vec![named("orders")], roles, body);
    let apart = table("apart", vec![key("name", Type::Str), column("n", Type::Int, Value::Int(0))]);
    let plan = plan("of_changes", vec![things(), apart], vec![source("orders", schema)], vec![work]);
    let order = |i: i64| {
        let what = ["change", "change", "delete", "change", "trap", "change", "none"][i as usize % 7];
        let most = if i % 5 == 4 { 6 } else { 500 };
        vec![Value::Int((i * 5) % 7 - 3), str(["b", "a", "", "aa"][i as usize % 4]), str(what), Value::Int(most)]
    };
    History { plan, preload: vec![], sources: vec![(0..120).map(order).collect()] }
}

/// A root and a nested transaction both scan what the other changes; the nested one may abort both.
pub fn nested() -> History {
    let counters = table("counters", vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))]);
    let schema = Schema::scalars([("id", Type::Int.into()), ("most", ColumnType::required(Type::Int))]);
    let roles = || -> Vec<RoleDef> {
        vec![role("own", "counters", vec![event("id")], AccessDef::Create), all_rows("all", "counters")]
    };
    let body = |end: Stmt| {
        let sum = for_rows("all", vec![assign("sum", add(local("sum"), cell("all", "n")))]);
        vec![assign("sum", int(0)), increase("own", "n", int(1)), sum, end]
    };
    let output = || give_back(vec![("id", event("id")), ("most", event("most")), ("sum", local("sum"))]);
    let fits = require(compare(CompareOp::Le, local("sum"), event("most")), "too much");
    let root = transaction("root", vec![named("orders")], roles(), body(output()));
    let inner: TransactionDef =
        TransactionDef { nested: true, ..transaction("inner", vec![committed("root")], roles_of_inner(), body(fits)) };
    let after = transaction(
        "after",
        vec![committed("root")],
        vec![all_rows("all", "counters")],
        vec![
            assign("sum", int(0)),
            for_rows("all", vec![assign("sum", add(local("sum"), cell("all", "n")))]),
            give_back(vec![("sum", local("sum")), ("count", row_count("all"))]),
        ],
    );
    let plan = plan("nested", vec![counters], vec![source("orders", schema)], vec![root, inner, after]);
    let orders = (0..80).map(|i| ints(&[i * 7 % 12, if i % 6 == 5 { 3 } else { 1_000 }])).collect();
    History { plan, preload: vec![], sources: vec![orders] }
}

/// Returns the roles of the nested transaction: another row than that of its root.
fn roles_of_inner() -> Vec<RoleDef> {
    vec![role("own", "counters", vec![event("sum")], AccessDef::Create), all_rows("all", "counters")]
}
