//! Events that go far, twice, late, or not at all.

use super::values::ints;
use crate::History;
use crate::ast::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{
    AccessDef, Ahead, BinaryOp, CallerFields, CompareOp, Expr, OriginDef, RoleDef, Stmt, StreamDef, TableDef,
};

fn counters() -> TableDef {
    table_named("counters")
}

fn table_named(name: &str) -> TableDef {
    table(name, vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))])
}

fn counter() -> Vec<RoleDef> {
    vec![role("r", "counters", vec![event("id")], AccessDef::Create)]
}

fn schema() -> Schema {
    Schema::scalars([("id", Type::Int.into()), ("by", Type::Int.into())])
}

/// Returns a record of the step, as an event that the next step can take.
fn done() -> Vec<(&'static str, Expr)> {
    vec![("id", event("id")), ("by", cell("r", "n"))]
}

/// Three steps on the row of the first event, with aborts that feed a step of their own.
pub fn cascade_on_one_row() -> History {
    let first = vec![
        increase("r", "n", event("by")),
        emit("again", done()),
        require(compare(CompareOp::Ne, event("by"), int(3)), "three"),
        emit("again", vec![("id", event("id")), ("by", int(-1))]),
        give_back(done()),
    ];
    let doubled = binary(BinaryOp::Mod, binary(BinaryOp::Mul, cell("r", "n"), int(2)), int(1013));
    let second = vec![set("r", "n", doubled), give_back(done())];
    let third = vec![
        increase("r", "n", event("by")),
        set("r", "n", binary(BinaryOp::Mod, cell("r", "n"), int(997))),
        require(compare(CompareOp::Ne, binary(BinaryOp::Mod, cell("r", "n"), int(4)), int(0)), "a multiple of four"),
    ];
    let undone = vec![increase("r", "n", int(1000)), give_back(vec![("reason", event("reason"))])];
    let plan = plan(
        "cascade_on_one_row",
        vec![counters()],
        vec![source("starts", schema())],
        vec![
            transaction("first", vec![named("starts")], counter(), first),
            transaction("second", vec![emitted("first", "again"), committed("first")], counter(), second),
            transaction("third", vec![committed("second")], counter(), third),
            transaction("undone", vec![aborted("first")], counter(), undone),
        ],
    );
    let events = (0..60).map(|i| ints(&[i % 3, i % 5])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// A cascade with a table for each step, and with counts that tell the order of their events: the steps may run one
/// after the other for many events. The first two share theirs.
pub fn cascade_over_tables_apart() -> History {
    let shifted = |by| binary(BinaryOp::Mod, add(binary(BinaryOp::Mul, cell("r", "n"), int(31)), by), int(10_007));
    let on = |table: &str| vec![role("r", table, vec![event("id")], AccessDef::Create)];
    let first = vec![
        set("r", "n", shifted(event("by"))),
        emit("again", done()),
        require(compare(CompareOp::Ne, event("by"), int(3)), "three"),
        emit("again", vec![("id", event("by")), ("by", int(-1))]),
        give_back(done()),
    ];
    let count = || vec![set("r", "n", shifted(event("by"))), give_back(done())];
    let few = compare(CompareOp::Ne, binary(BinaryOp::Mod, event("by"), int(3)), int(0));
    let few =
        StreamDef { name: "few".into(), origin: OriginDef::Filter { input: committed("second"), predicate: few } };
    let third = vec![
        set("r", "n", shifted(event("by"))),
        require(compare(CompareOp::Ne, binary(BinaryOp::Mod, cell("r", "n"), int(4)), int(0)), "a multiple of four"),
        emit("out", done()),
    ];
    let plan = plan(
        "cascade_over_tables_apart",
        ["shared", "second", "third", "fourth", "undone"].map(table_named).into(),
        vec![timed("left", 2), timed("right", 0), few],
        vec![
            transaction("beside", vec![named("right")], on("shared"), count()),
            transaction("first", vec![named("left"), named("right")], on("shared"), first),
            transaction("second", vec![emitted("first", "again")], on("second"), count()),
            transaction("third", vec![named("few")], on("third"), third),
            transaction("fourth", vec![emitted("third", "out")], on("fourth"), count()),
            transaction("undone", vec![aborted("first")], on("undone"), count()),
        ],
    );
    let event = |i: i64| vec![Value::Time(i * 7 % 11 + i), Value::Int(i % 3), Value::Int(i % 5)];
    History { plan, preload: vec![], sources: vec![(0..90).map(event).collect(), (0..70).map(event).collect()] }
}

/// `both` runs on the event itself and, later, on what `before` emitted for it; but the first event
/// that it emitted itself comes after that of `before`.
pub fn crossed_emissions() -> History {
    let mark = |by| vec![increase("r", "n", event("by")), emit("out", vec![("id", event("id")), ("by", by)])];
    let plan = plan(
        "crossed_emissions",
        vec![counters()],
        vec![source("starts", schema())],
        vec![
            transaction("before", vec![named("starts")], counter(), mark(int(100))),
            transaction("both", vec![named("starts"), emitted("before", "out")], counter(), mark(cell("r", "n"))),
            transaction("behind", vec![emitted("both", "out")], counter(), mark(cell("r", "n"))),
        ],
    );
    let events = (0..10).map(|i| ints(&[i % 2, i])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// Crossed emissions as in [`crossed_emissions`], but what follows runs on streams derived from the emissions, which
/// have failures of their own. They come in the order of emission too, though what follows from the second is run
/// before what follows from the first.
pub fn crossed_derivations() -> History {
    let mark = |by| vec![increase("r", "n", event("by")), emit("out", vec![("id", event("id")), ("by", by)])];
    let even = StreamDef {
        name: "even".into(),
        origin: OriginDef::Filter {
            input: emitted("both", "out"),
            predicate: compare(CompareOp::Eq, binary(BinaryOp::Mod, event("by"), int(2)), int(0)),
        },
    };
    let inverse = binary(BinaryOp::FloorDiv, int(1000), binary(BinaryOp::Mod, event("by"), int(4)));
    let mapped = record(vec![("id", event("id")), ("by", inverse)]);
    let other = StreamDef { name: "other".into(), origin: OriginDef::Map { input: named("even"), record: mapped } };
    let plan = plan(
        "crossed_derivations",
        vec![counters()],
        vec![source("starts", schema()), even, other],
        vec![
            transaction("before", vec![named("starts")], counter(), mark(int(100))),
            transaction("both", vec![named("starts"), emitted("before", "out")], counter(), mark(cell("r", "n"))),
            transaction("behind", vec![named("even"), named("other")], counter(), mark(cell("r", "n"))),
        ],
    );
    let events = (0..40).map(|i| ints(&[i % 3, i * i % 7])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// An event runs one transaction directly, through a filter, and through a map that may fail.
pub fn arrives_twice() -> History {
    let few = StreamDef {
        name: "few".into(),
        origin: OriginDef::Filter {
            input: named("starts"),
            predicate: compare(CompareOp::Lt, binary(BinaryOp::FloorDiv, int(12), event("by")), int(5)),
        },
    };
    let mapped =
        record(vec![("id", event("by")), ("by", binary(BinaryOp::FloorDiv, int(100), sub(event("by"), int(2))))]);
    let other = StreamDef { name: "other".into(), origin: OriginDef::Map { input: named("few"), record: mapped } };
    let body = vec![increase("r", "n", event("by")), give_back(done())];
    let plan = plan(
        "arrives_twice",
        vec![counters()],
        vec![source("starts", schema()), few, other],
        vec![
            transaction("count", vec![named("other"), named("starts"), named("few")], counter(), body.clone()),
            transaction("again", vec![named("few"), committed("count")], counter(), body),
        ],
    );
    let events = (0..40).map(|i| ints(&[i % 3, i % 7 - 1])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// Several transactions take the same events, two of them only a few; each finds what the one before did to the same row,
/// in a count that tells their order. Some abort, one emits.
pub fn several_on_each_event() -> History {
    let few = StreamDef {
        name: "few".into(),
        origin: OriginDef::Filter {
            input: named("starts"),
            predicate: compare(CompareOp::Ne, binary(BinaryOp::Mod, event("by"), int(3)), int(0)),
        },
    };
    let shifted = |by| binary(BinaryOp::Mod, add(binary(BinaryOp::Mul, cell("r", "n"), int(31)), by), int(10_007));
    let step = |by: i64| set("r", "n", shifted(add(event("by"), int(by))));
    let odd = || compare(CompareOp::Ne, binary(BinaryOp::Mod, cell("r", "n"), int(4)), int(0));
    let aborting = vec![step(2), require(odd(), "a multiple of four"), step(3), give_back(done())];
    let repeated =
        vec![for_range("i", int(0), binary(BinaryOp::Mod, event("by"), int(4)), 1, vec![step(5)]), emit("out", done())];
    let on = |stream: &str| vec![named(stream)];
    let plan = plan(
        "several_on_each_event",
        vec![counters()],
        vec![source("starts", schema()), few],
        vec![
            transaction("first", on("starts"), counter(), vec![step(1), give_back(done())]),
            transaction("second", on("starts"), counter(), aborting.clone()),
            transaction("third", on("starts"), counter(), repeated),
            transaction("fourth", on("few"), counter(), aborting),
            transaction("fifth", on("few"), counter(), vec![step(7), give_back(done())]),
            transaction("last", on("starts"), counter(), vec![step(11), require(odd(), "again"), give_back(done())]),
        ],
    );
    let events = (0..300).map(|i| ints(&[i * i % 7, i % 11])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

fn timed(name: &str, lateness: i64) -> StreamDef {
    let schema = Schema::scalars([("at", Type::Time.into()), ("id", Type::Int.into()), ("by", Type::Int.into())]);
    StreamDef {
        name: name.into(),
        origin: OriginDef::Source {
            schema,
            event_time: Some("at".into()),
            lateness,
            anchored: false,
            remembers: None,
            keys_max: None,
            ahead: Ahead::ByInput,
            caller: CallerFields::default(),
        },
    }
}

/// Returns the statements of a count whose result depends on the order of its events.
fn ordered() -> Vec<Stmt> {
    let shifted = add(binary(BinaryOp::Mul, cell("r", "n"), int(31)), event("by"));
    vec![set("r", "n", binary(BinaryOp::Mod, shifted, int(10_007))), give_back(done())]
}

fn two_sources(name: &str, lateness: i64, events: Vec<Vec<(i64, i64)>>) -> History {
    let plan = plan(
        name,
        vec![counters()],
        vec![timed("left", lateness), timed("right", lateness)],
        vec![
            transaction("count", vec![named("left"), named("right")], counter(), ordered()),
            transaction("right_only", vec![named("right")], counter(), ordered()),
        ],
    );
    let event = |(at, by): &(i64, i64)| vec![Value::Time(*at), Value::Int(by % 2), Value::Int(*by)];
    let sources = events.iter().map(|events| events.iter().map(event).collect()).collect();
    History { plan, preload: vec![], sources }
}

/// A source without events, and gaps in the other one's time that many epochs fit into.
pub fn empty_epochs() -> History {
    let far = (0..20).map(|i| (i * i * i * 1_000_000_000, i)).collect();
    two_sources("empty_epochs", 0, vec![far, vec![]])
}

/// Many events of two sources at few times: source and offset decide.
pub fn equal_times() -> History {
    let left = (0..40).map(|i| (i / 10, i)).collect();
    let right = (0..40).map(|i| (i / 15, 100 + i)).collect();
    two_sources("equal_times", 0, vec![left, right])
}

/// Times at and beyond the border of lateness, and at the ends of time.
pub fn late() -> History {
    let left = [100, 95, 90, 89, 110, 100, 99, 101, i64::MIN, 111, 105].iter().zip(0..).map(|(at, by)| (*at, by));
    let right = [i64::MIN, i64::MIN + 5, i64::MIN, 0, -10, -11, i64::MAX, i64::MAX - 10, i64::MAX - 11, 5];
    let right = right.iter().zip(50..).map(|(at, by)| (*at, by));
    two_sources("late", 10, vec![left.collect(), right.collect()])
}
