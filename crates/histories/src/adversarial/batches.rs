//! Atomic batches: of a number of events and of intervals of time, with aborts, equal times and late events.

use super::values::ints;
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, BatchSizeDef, CompareOp, OriginDef, Stmt, StreamDef, StreamRef, TableDef, TransactionDef,
};

fn counters() -> TableDef {
    let columns =
        [key("id", Type::Int), column("n", Type::Int, Value::Int(0)), column("last", Type::Int, Value::Int(0))];
    table("counters", columns.into())
}

fn batches(name: &str, source: &str, size: BatchSizeDef) -> StreamDef {
    StreamDef { name: name.into(), origin: OriginDef::Batch { input: named(source), size } }
}

/// Counts each event of a batch in its row. A batch in which the amounts come to more than `most` changes nothing.
fn adds(name: &str, input: StreamRef, most: i64) -> TransactionDef {
    let each = role_over("each", "counters", vec![element("events", "id")], "events", AccessDef::Create);
    let body: Vec<Stmt> = vec![
        assign("sum", int(0)),
        assign("seen", int(0)),
        for_each(
            "vote",
            "events",
            vec![
                increase("each", "n", element("vote", "amount")),
                set("each", "last", event("batch")),
                assign("sum", add(local("sum"), element("vote", "amount"))),
                assign("seen", add(local("seen"), cell("each", "n"))),
            ],
        ),
        require(compare(CompareOp::Le, local("sum"), int(most)), "too much"),
        give_back(vec![("batch", event("batch")), ("sum", local("sum")), ("seen", local("seen"))]),
    ];
    transaction(name, vec![input], vec![each], body)
}

/// A transaction on each event, whose committed events cause another one; batches of two sizes of the same source, and of
/// single events. A batch stands behind all that follows from its last event, and batches of one event in the order of
/// their declaration.
pub fn counted() -> History {
    let schema = Schema::scalars([("id", ColumnType::required(Type::Int)), ("amount", Type::Int.into())]);
    let own = |name: &str| role(name, "counters", vec![event("id")], AccessDef::Create);
    let first = transaction(
        "first",
        vec![named("votes")],
        vec![own("one")],
        vec![
            require(compare(CompareOp::Ne, event("amount"), int(3)), "three"),
            increase("one", "n", event("amount")),
            give_back(vec![("id", event("id")), ("amount", event("amount")), ("n", cell("one", "n"))]),
        ],
    );
    let second = transaction(
        "second",
        vec![committed("first")],
        vec![own("one")],
        vec![increase("one", "n", event("n")), give_back(vec![("n", cell("one", "n"))])],
    );
    let mut plan = plan("counted_batches", vec![counters()], vec![source("votes", schema)], vec![]);
    plan.streams.push(batches("threes", "votes", BatchSizeDef::Count(3)));
    plan.streams.push(batches("twos", "votes", BatchSizeDef::Count(2)));
    plan.streams.push(batches("ones", "votes", BatchSizeDef::Count(1)));
    plan.transactions = vec![
        first,
        second,
        adds("by_threes", named("threes"), 9),
        adds("by_twos", named("twos"), 5),
        adds("by_ones", named("ones"), 3),
    ];
    let vote = |i: i64| ints(&[(i * i) % 5, i % 6 - 1]);
    History { plan, preload: vec![], sources: vec![(0..200).map(vote).collect()] }
}

/// Intervals of time of two lengths, with events at their edges, out of order, late, and before 0; and batches of a number of
/// events of the same source, beside a second source that holds the first back.
pub fn of_intervals() -> History {
    let schema = Schema::scalars([
        ("at", ColumnType::required(Type::Int)),
        ("id", Type::Int.into()),
        ("amount", Type::Int.into()),
    ]);
    let timed = |name: &str, lateness: i64| {
        let mut source = source(name, schema.clone());
        let OriginDef::Source { event_time, lateness: allowed, .. } = &mut source.origin else {
            unreachable!("a source")
        };
        (*event_time, *allowed) = (Some("at".into()), lateness);
        source
    };
    let mut plan = plan("batches_of_intervals", vec![counters()], vec![timed("votes", 4), timed("others", 0)], vec![]);
    let interval = |length: i64, origin: i64| BatchSizeDef::Time { length: Value::Int(length), origin };
    plan.streams.push(batches("tens", "votes", interval(10, 0)));
    plan.streams.push(batches("threes", "votes", interval(3, -7)));
    plan.streams.push(batches("fives", "votes", BatchSizeDef::Count(5)));
    plan.streams.push(batches("others_of_ten", "others", interval(10, 0)));
    plan.transactions = vec![
        adds("by_tens", named("tens"), 20),
        adds("by_threes", named("threes"), 9),
        adds("by_fives", named("fives"), 12),
        adds("by_others", named("others_of_ten"), 9),
    ];
    let vote = |i: i64| ints(&[i - 25 + [0, 3, -2, 0, -9, 9, 0][i as usize % 7], i % 4, i % 7]);
    let other = |i: i64| ints(&[2 * i - 30, i % 3, i % 4]);
    History { plan, preload: vec![], sources: vec![(0..150).map(vote).collect(), (0..60).map(other).collect()] }
}
