//! Transactions that commit or abort as one.

use super::values::ints;
use crate::History;
use crate::ast::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{
    AccessDef, BinaryOp, CompareOp, Expr, OriginDef, OverDef, RoleDef, Stmt, StreamDef, TableDef, TransactionDef,
    WindowsDef,
};

fn counters(name: &str) -> TableDef {
    let columns =
        vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0)), column("s", Type::Str, text_of(""))];
    table(name, columns)
}

fn text_of(text: &str) -> Value {
    Value::Str(text.into())
}

fn on(table: &str) -> Vec<RoleDef> {
    vec![role("r", table, vec![event("id")], AccessDef::Create)]
}

fn nested(transaction: TransactionDef) -> TransactionDef {
    TransactionDef { nested: true, ..transaction }
}

fn schema() -> Schema {
    Schema::scalars([("id", Type::Int.into()), ("by", Type::Int.into())])
}

fn done() -> Vec<(&'static str, Expr)> {
    vec![("id", event("id")), ("by", cell("r", "n"))]
}

/// Requires that a counter is no multiple of a number.
fn no_multiple(of: i64, reason: &str) -> Stmt {
    let rest = binary(BinaryOp::Mod, cell("r", "n"), int(of));
    require(compare(CompareOp::Ne, rest, int(0)), reason)
}

fn count(table_text: &str) -> Vec<Stmt> {
    vec![
        increase("r", "n", int(1)),
        set("r", "s", add(cell("r", "s"), text(table_text))),
        require(compare(CompareOp::Ne, event("by"), int(7)), "seven"),
    ]
}

/// A partial order of steps, each of which can abort all of them: on rows that they share, with texts that are replaced,
/// with rows that come and go, and with a transaction and a window outside that take what one of them emits.
pub fn all_or_none() -> History {
    let mut first = count("f");
    first.extend([
        no_multiple(5, "a multiple of five"),
        emit("twice", done()),
        emit("twice", done()),
        give_back(done()),
    ]);
    let mut second = count("s");
    second.extend([no_multiple(7, "a multiple of seven"), give_back(done())]);
    let mut third = count("t");
    third.extend([emit("far", done()), no_multiple(4, "a multiple of four")]);
    let last = vec![
        when(exists("r"), vec![delete("r")], vec![set("r", "n", event("by"))]),
        require(compare(CompareOp::Ne, binary(BinaryOp::Mod, event("by"), int(11)), int(0)), "eleven"),
    ];
    let outside = vec![increase("r", "n", int(3)), give_back(done())];
    let few = compare(CompareOp::Ne, binary(BinaryOp::Mod, int(60), event("by")), int(0));
    let few =
        StreamDef { name: "few".into(), origin: OriginDef::Filter { input: committed("second"), predicate: few } };
    let undone = vec![increase("r", "n", int(1000)), give_back(vec![("reason", event("reason"))])];
    let over = Some(OverDef {
        by: vec![],
        windows: WindowsDef::Counting { count: 3 },
        early: None,
        every: None,
        top: None,
        first: None,
        own: vec![],
    });
    let windows =
        TransactionDef { over, roles: vec![], ..transaction("w", vec![emitted("third", "far")], vec![], w()) };
    let plan = plan(
        "all_or_none",
        vec![counters("one"), counters("two")],
        vec![source("starts", schema()), few],
        vec![
            transaction("outside", vec![committed("second")], on("one"), outside),
            transaction("first", vec![named("starts")], on("one"), first),
            nested(transaction("second", vec![emitted("first", "twice")], on("one"), second)),
            nested(transaction("third", vec![committed("first")], on("two"), third)),
            windows,
            nested(transaction("last", vec![named("few"), emitted("third", "far")], on("two"), last)),
            transaction("undone", vec![aborted("first")], on("two"), undone),
        ],
    );
    let events = (0..400).map(|i| ints(&[i * i % 7, i % 9])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

fn w() -> Vec<Stmt> {
    use tidemill_plan::{ExprNode, WindowFunction};
    let count = expr(ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None });
    vec![give_back(vec![("n", count)])]
}

/// A root that runs on an event and again on what follows from it, with a transaction outside that takes what it returns
/// while a nested one does: what waits for the end of the first nest runs after what the second one gave.
pub fn crossed() -> History {
    let first = vec![increase("r", "n", event("by")), give_back(done())];
    let step = vec![increase("r", "n", int(1)), no_multiple(6, "a multiple of six")];
    let outside = vec![increase("r", "n", int(2)), emit("seen", done()), no_multiple(5, "a multiple of five")];
    let plan = plan(
        "crossed_nests",
        vec![counters("one")],
        vec![source("starts", schema())],
        vec![
            transaction("before", vec![named("starts")], on("one"), vec![give_back(done())]),
            transaction("root", vec![named("starts"), committed("before")], on("one"), first),
            nested(transaction("step", vec![committed("root")], on("one"), step)),
            transaction("outside", vec![committed("root"), emitted("other", "more")], on("one"), outside),
            transaction("other", vec![named("starts")], on("one"), vec![emit("more", done())]),
        ],
    );
    let events = (0..200).map(|i| ints(&[i % 3, i % 5])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}
