//! Events that ask for more than a transaction may do: one below the limit, one at it, one beyond it, far beyond it.

use super::values::{ints, str};
use crate::History;
use crate::ast::*;
use tidemill_model::{ListItem, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, CompareOp, Expr, Function, Limits, OriginDef, Plan, Stmt, StmtNode, StreamDef, TableDef, WindowDef,
};

/// The limits of these histories' plans.
const LIMITS: Limits = Limits { steps: 60, memory: 2_000 };

fn cells() -> TableDef {
    let columns = vec![
        key("id", Type::Int),
        column("n", Type::Int, Value::Int(0)),
        column("t", Type::Str, Value::Str(String::new())),
        windowed("last", Type::Int, WindowDef::Last(3)),
        windowed("names", Type::Str, WindowDef::Last(5)),
    ];
    table("cells", columns)
}

fn numbers() -> TableDef {
    table("numbers", vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))])
}

fn schema() -> Schema {
    let mut schema = Schema::scalars([("id", Type::Int.into()), ("n", Type::Int.into()), ("t", Type::Str.into())]);
    schema.fields.push(list(
        "items",
        ListItem::Struct(vec![("key".into(), Type::Int.into()), ("name".into(), Type::Str.into())]),
    ));
    schema
}

/// Numbers around those at which the bodies below meet their limits, and beyond all bounds.
fn counts() -> impl Iterator<Item = i64> {
    (-2..65).chain([100, 255, 256, 1_000, 1 << 40, i64::MAX, i64::MIN])
}

fn events() -> Vec<Vec<Value>> {
    let item = |i: i64| vec![Value::Int(i % 4), str("ab".repeat(i as usize % 7))];
    let event = |(i, n): (i64, i64)| {
        let items = (0..i % 12).map(item).collect();
        let text = if i % 5 == 0 { "xyz".repeat(100) } else { "tide".repeat(i as usize % 9) };
        vec![Value::Int(i % 3), Value::Int(n), str(text), Value::List(items)]
    };
    // Texts around the limit of memory, each for a row of its own.
    let text = |len: i64| vec![Value::Int(len), Value::Int(0), str("e".repeat(len as usize)), Value::List(vec![])];
    let around = LIMITS.memory - 2..LIMITS.memory + 3;
    (0..).zip(counts()).map(event).chain(around.map(text)).collect()
}

fn history(name: &str, bodies: Vec<Vec<Stmt>>) -> History {
    limited(name, LIMITS, bodies)
}

fn limited(name: &str, limits: Limits, bodies: Vec<Vec<Stmt>>) -> History {
    let create = || role("r", "cells", vec![event("id")], AccessDef::Create);
    let each = || role_over("each", "cells", vec![element("items", "key")], "items", AccessDef::Create);
    let work = |(i, body)| transaction(&format!("work{i}"), vec![named("events")], vec![create(), each()], body);
    let transactions = bodies.into_iter().enumerate().map(work).collect();
    let plan = plan(name, vec![cells()], vec![source("events", schema())], transactions);
    History { plan: Plan { limits, ..plan }, preload: vec![], sources: vec![events()] }
}

fn times(body: Vec<Stmt>) -> Stmt {
    for_range("i", int(0), event("n"), 1, body)
}

/// Loops whose rounds are counted at once, in loops over a list: of three elements the steps are 361, the limit, and 362.
pub fn of_steps_at_once() -> History {
    let toil = || for_range("k", int(0), int(240), 2, vec![assign("x", local("k"))]);
    let each = || for_each("a", "items", vec![toil(), increase("each", "n", int(1))]);
    let limits = Limits { steps: 361, ..LIMITS };
    limited(
        "at_once",
        limits,
        vec![vec![each(), times(vec![assign("y", local("i"))])], vec![each(), times(vec![increase("r", "n", int(1))])]],
    )
}

/// Loops whose rounds, or whose writes, are too many: also where they break off in time, where something else aborts
/// first, and where they stand in each other.
pub fn of_steps() -> History {
    let leave = stmt(StmtNode::Break);
    let at = |n: i64| compare(CompareOp::Eq, local("i"), int(n));
    let wide = for_range("k", int(0), int(101), 1, vec![assign("x", local("k"))]);
    history(
        "steps",
        vec![
            vec![times(vec![increase("r", "n", int(1))])],
            vec![times(vec![assign("x", local("i"))]), give_back(vec![("n", event("n"))])],
            vec![increase("r", "n", int(1)), times(vec![when(at(59), vec![leave.clone()], vec![])])],
            vec![increase("r", "n", int(1)), times(vec![when(at(60), vec![leave], vec![])])],
            vec![times(vec![require(not(at(58)), "before the limit"), require(not(at(60)), "after the limit")])],
            vec![for_each("a", "items", vec![for_each("b", "items", vec![increase("each", "n", int(1))])])],
            vec![for_each(
                "a",
                "items",
                vec![for_range("k", int(0), int(100), 1, vec![increase("each", "n", int(1))])],
            )],
            vec![set("r", "n", int(7)), when(compare(CompareOp::Gt, event("n"), int(30)), vec![wide], vec![])],
            vec![for_range("i", event("n"), int(0), -1, vec![times_inside()])],
            vec![assign("k", int(0)), repeat_while(compare(CompareOp::Lt, local("k"), event("n")), vec![next("k")])],
            vec![
                assign("k", event("n")),
                repeat_while(compare(CompareOp::Ne, local("k"), int(64)), vec![next("k"), increase("r", "n", int(1))]),
            ],
        ],
    )
}

/// `while condition: body`, as front ends write it: only the limit of steps bounds the rounds.
fn repeat_while(condition: Expr, mut body: Vec<Stmt>) -> Stmt {
    body.insert(0, when(not(condition), vec![stmt(StmtNode::Break)], vec![]));
    for_range("round", int(0), int(1 << 62), 1, body)
}

/// `name += 1`
fn next(name: &str) -> Stmt {
    assign(name, add(local(name), int(1)))
}

fn times_inside() -> Stmt {
    for_range("k", int(0), local("i"), 1, vec![assign("x", local("k"))])
}

/// Transactions with limits that speculation takes apart.
pub fn of_steps_apart() -> History {
    let schema = Schema::scalars(["a", "b", "n"].map(|name| (name, Type::Int.into())));
    let roles = || ["a", "b"].map(|name| role(name, "numbers", vec![event(name)], AccessDef::Row)).to_vec();
    let bodies = [
        vec![times(vec![increase("a", "n", int(1))]), increase("b", "n", event("n"))],
        vec![
            times(vec![increase("a", "n", int(1))]),
            for_range("k", int(0), event("n"), 2, vec![increase("b", "n", local("k"))]),
            give_back(vec![("a", cell("a", "n"))]),
        ],
        // The update of one row needs nothing of this loop but its counter.
        vec![assign("i", int(0)), times(vec![increase("a", "n", int(1))]), increase("b", "n", local("i"))],
        // No update needs this loop, and the verdict does.
        vec![increase("a", "n", int(1)), increase("b", "n", int(1)), times(vec![assign("x", local("i"))])],
        vec![
            increase("a", "n", int(1)),
            increase("b", "n", int(1)),
            when(compare(CompareOp::Gt, cell("a", "n"), int(30)), vec![times(vec![assign("x", local("i"))])], vec![]),
        ],
    ];
    let work = |(i, body)| transaction(&format!("work{i}"), vec![named("events")], roles(), body);
    let transactions = bodies.into_iter().enumerate().map(work).collect();
    let plan = plan("steps_apart", vec![numbers()], vec![source("events", schema)], transactions);
    let rows = (0..6).map(|id| ints(&[id, id])).collect();
    let events = (0..).zip(counts()).map(|(i, n)| ints(&[i % 6, (i * 5 + 1) % 6, n])).collect();
    History { plan: Plan { limits: LIMITS, ..plan }, preload: vec![(0.into(), rows)], sources: vec![events] }
}

/// Texts that double, that grow from event to event, that are copied over and over, and events that are emitted so.
pub fn of_memory() -> History {
    let double = assign("x", add(local("x"), local("x")));
    let digits = |value: Expr| call(Function::Str, [value]);
    let emission = || vec![("t", event("t")), ("u", cell("r", "t")), ("items", event("items"))];
    let upper = call(Function::Upper, [cell("r", "t")]);
    history(
        "memory",
        vec![
            vec![assign("x", event("t")), times(vec![double]), give_back(vec![("x", local("x"))])],
            vec![set("r", "t", add(cell("r", "t"), event("t")))],
            vec![set("r", "t", add(cell("r", "t"), cell("r", "t"))), give_back(vec![("t", upper)])],
            vec![times(vec![assign("x", digits(local("i")))]), increase("r", "n", int(1))],
            vec![times(vec![set("r", "t", event("t"))])],
            vec![for_each(
                "a",
                "items",
                vec![set("each", "t", event("t")), emit("part", vec![("t", element("a", "name"))])],
            )],
            vec![increase("r", "n", int(1)), times(vec![emit("out", emission())])],
            vec![times(vec![add_to("r", "last", local("i")), add_to("r", "names", event("t"))])],
            vec![for_each(
                "a",
                "items",
                vec![add_to("each", "names", event("t")), add_to("r", "last", element("a", "key"))],
            )],
        ],
    )
}

/// Operations that read much and make nothing, in loops.
pub fn of_reading() -> History {
    let within = |part: Expr, whole: Expr| call(Function::Contains, [whole, part]);
    let length = |value: Expr| call(Function::Len, [value]);
    let at_least = compare(CompareOp::Ge, event("t"), cell("r", "t"));
    let longer = when(at_least, vec![increase("each", "n", int(1))], vec![]);
    let loops = vec![
        vec![times(vec![when(within(text("q"), event("t")), vec![increase("r", "n", int(1))], vec![])])],
        vec![set("r", "t", event("t")), times(vec![assign("x", length(cell("r", "t")))])],
        vec![for_each(
            "a",
            "items",
            vec![when(
                compare(CompareOp::Eq, element("a", "name"), text("ab")),
                vec![increase("each", "n", int(1))],
                vec![],
            )],
        )],
        vec![for_each("a", "items", vec![longer; 6])],
    ];
    let mut history = history("reading", loops);
    for event in &mut history.sources[0] {
        let Value::Int(n) = event[1] else { unreachable!("the second field is an int") };
        event[2] = str("long".repeat(n.rem_euclid(300) as usize));
    }
    history
}

/// Filters and maps that make too much of one event, before and after each other.
pub fn of_derived_streams() -> History {
    let many = |count: usize| (1..count).fold(event("t"), |sum, _| add(sum, event("t")));
    let map = |name: &str, input: &str, value: Expr| {
        let fields = record(vec![("id", event("id")), ("t", value)]);
        StreamDef { name: name.into(), origin: OriginDef::Map { input: named(input), record: fields } }
    };
    // More parts than are put together without being counted, of which all but one are empty.
    let same = (0..16).fold(event("t"), |sum, _| add(sum, text("")));
    let longer = compare(CompareOp::Ne, many(18), text("tidetide"));
    let streams = vec![
        source("events", schema()),
        map("small", "events", many(16)),
        map("large", "events", many(17)),
        map("larger", "large", many(17)),
        map("same", "events", same),
        StreamDef { name: "some".into(), origin: OriginDef::Filter { input: named("larger"), predicate: longer } },
    ];
    let body = vec![set("r", "t", event("t"))];
    let roles = || vec![role("r", "cells", vec![event("id")], AccessDef::Create)];
    let keep = |stream: &str| transaction(&format!("keep_{stream}"), vec![named(stream)], roles(), body.clone());
    let transactions = ["small", "large", "larger", "same", "some"].map(keep).to_vec();
    let plan = plan("derived", vec![cells()], streams, transactions);
    History { plan: Plan { limits: LIMITS, ..plan }, preload: vec![], sources: vec![events()] }
}
