//! The memory that remains after a long run: slots of keys that come and go do not accumulate.

use crate::support::Subject;
use tidemill_histories::History;
use tidemill_model::{Type, Value};
use tidemill_plan::Function;
use tidemill_plan::build::{PlanBuilder, cell, element, event, exists, named};
use tidemill_runtime::{Engine, EpochSize, Options, Policy, Scheduling};

const EVENTS: i64 = 300_000;
/// Below this many slots a table is not swept.
const SWEPT_FROM: usize = 1 << 16;

/// Visits by name. Each kind of event leaves a slot in a different way: the row was never there, was inserted by a
/// transaction that aborted, or was deleted again. One in a thousand stays.
fn visits() -> History {
    let plan = PlanBuilder::new("visits")
        .table("guests", |t| {
            t.key("name", Type::Str).column_or("visits", Type::Int, Value::Int(0)).column_or(
                "note",
                Type::Str,
                Value::Str("new".into()),
            )
        })
        .source("doors", |s| s.field("kind", Type::Int).field("name", Type::Str))
        .transaction("visit", [named("doors")], |t| {
            t.row("guest", "guests", [event("name")]).create("made", "guests", [event("name")]).body(|b| {
                b.when(event("kind").eq(0), |b| b.require(exists("guest"), "unknown"));
                b.set("made", "visits", cell("made", "visits") + 1);
                b.set("made", "note", event("name"));
                b.require(event("kind").ne(1), "refused");
                b.when(event("kind").eq(2), |b| b.delete("guest"));
            })
        })
        .build();
    let visit = |i: i64| {
        // One in fifty belongs to a guest who stayed.
        let (kind, name) = match i {
            _ if i % 1000 == 999 => (3, i),
            _ if i % 50 == 0 => (0, i / 1000 * 1000 - 1),
            _ => (i % 3, i),
        };
        vec![Value::Int(kind), Value::Str(format!("guest with a name of some length {name}"))]
    };
    History { plan, preload: vec![], sources: vec![(0..EVENTS).map(visit).collect()] }
}

#[test]
fn slots_of_missing_rows_do_not_pile_up() {
    let subject = Subject::new(visits());
    let mut engine = Engine::new(subject.program.clone()).expect("it compiles");
    for (workers, scheduling) in [(1, Scheduling::Fixed(Policy::EPOCH)), (2, Scheduling::Fixed(Policy::TRANSACTION))] {
        let options = Options { workers, scheduling, epoch_events_max: 4096, ..Options::default() };
        engine = engine.with_empty_tables();
        let outcome = subject.run(&engine, options, 4096);
        assert_eq!(subject.difference(&outcome), None);
        let in_flight = (workers + 2) * options.epoch_events_max;
        let stats = engine.table_stats(0.into());
        assert!(stats.slots <= SWEPT_FROM + in_flight, "{stats:?}, of {EVENTS} keys that were touched");
        let row = 32;
        assert!(stats.row_bytes <= 2 * row * (SWEPT_FROM + in_flight), "{stats:?}");
        assert!(outcome.tables[0].len() > 200, "{} guests stayed", outcome.tables[0].len());
    }
}

/// Each event inserts a row, deletes the row of two hundred events before, and names many keys that were never seen, so
/// that sweeps happen all the time.
fn arrivals() -> History {
    let plan = PlanBuilder::new("arrivals")
        .table("guests", |t| t.key("number", Type::Int).column_or("name", Type::Str, Value::Str("new".into())))
        .source("doors", |s| s.field("number", Type::Int).field("last", Type::Int).list("others", Type::Int))
        .transaction("arrive", [named("doors")], |t| {
            let keys = [("guest", "number"), ("last", "last")];
            let t = keys.into_iter().fold(t, |t, (role, key)| t.create(role, "guests", [event(key)]));
            t.read("other", "guests", [element("others", "")]).over("others").body(|b| {
                // Never true: it only creates slots.
                b.when(event("number").lt(0), |b| {
                    b.for_each("one", "others", |b| b.require(exists("other"), "unknown"));
                });
                b.require(exists("guest").eq(false), "lost and found");
                b.set("guest", "name", event("number").call(Function::Str, []));
                b.when(event("last").ge(0), |b| {
                    b.emit("left", [("name", cell("last", "name"))]);
                    b.delete("last");
                });
            })
        })
        .build();
    let arrive = |i: i64| {
        let others = (0..64).map(|k| vec![Value::Int(1_000_000 + i * 64 + k)]).collect();
        vec![Value::Int(i), Value::Int(i - 200), Value::List(others)]
    };
    History { plan, preload: vec![], sources: vec![(0..25_000).map(arrive).collect()] }
}

#[test]
fn sweeps_lose_nothing_that_epochs_in_flight_hold() {
    let subject = Subject::new(arrivals());
    let mut engine = Engine::new(subject.program.clone()).expect("it compiles");
    for (workers, events, scheduling) in [
        (1, 300, Scheduling::Fixed(Policy::EPOCH)),
        (2, 100, Scheduling::Fixed(Policy::EPOCH)),
        (3, 64, Scheduling::Fixed(Policy::TRANSACTION)),
        (4, 200, Scheduling::Fixed(Policy::TRANSACTION)),
    ] {
        let options = Options { workers, scheduling, epoch: EpochSize::Events(events), ..Options::default() };
        engine = engine.with_empty_tables();
        let outcome = subject.run(&engine, options, 1000);
        assert_eq!(subject.difference(&outcome), None);
        assert!(engine.table_stats(0.into()).slots < 2 * SWEPT_FROM);
    }
}
