//! Rows that ask to be woken (`docs/formalism.md`, "Timers").

use crate::support::Subject;
use tidemill_histories::History;
use tidemill_model::{Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, cell, event, exists, named, woken};
use tidemill_runtime::{Engine, Options};

/// Reservations of seats: `hold` keeps a seat until `at` and `for`, `free` gives it back, `cancel` cancels the wake. What
/// wakes is counted in a table, and gives the seat back.
fn plan() -> Plan {
    PlanBuilder::new("seats")
        .source("events", |s| {
            s.event_time("at", Type::Int).field("seat", Type::Int).field("what", Type::Str).field("for", Type::Int)
        })
        .table("seats", |t| t.key("seat", Type::Int).column_or("held", Type::Int, Value::Int(0)))
        .table("expired", |t| t.key("one", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .transaction("change", [named("events")], |t| {
            t.create("s", "seats", [event("seat")]).body(|b| {
                b.when(event("what").eq("hold"), |b| {
                    b.set("s", "held", cell("s", "held") + 1);
                    b.wake("s", Some(event("at") + event("for")));
                });
                b.when(event("what").eq("free"), |b| b.when(exists("s"), |b| b.delete("s")));
                b.when(event("what").eq("cancel"), |b| b.wake("s", None));
                b.when(event("what").eq("fail"), |b| {
                    b.wake("s", Some(event("at") + 1));
                    b.abort("as asked");
                });
            })
        })
        .transaction("expire", [woken("seats")], |t| {
            t.row("s", "seats", [event("seat")]).create("e", "expired", [0.into()]).body(|b| {
                b.set("e", "n", cell("e", "n") + 1);
                b.when(cell("s", "held").gt(2), |b| b.wake("s", Some(event("at") + 10)));
                b.set("s", "held", 0);
                b.give([("seat", event("seat")), ("at", event("at")), ("n", cell("e", "n"))]);
            })
        })
        .build()
}

/// What wakes: the seat, and when.
fn wakes(events: &[(i64, i64, &str, i64)]) -> Vec<(i64, i64)> {
    let record = |&(at, seat, what, after): &(i64, i64, &str, i64)| {
        vec![Value::Int(at), Value::Int(seat), Value::Str(what.into()), Value::Int(after)]
    };
    let sources = vec![events.iter().map(record).collect()];
    let subject = Subject::new(History { plan: plan(), preload: vec![], sources });
    let is_it = |s: &tidemill_plan::Sink| subject.program.streams[s.stream].name == "expire.committed";
    let sink = subject.program.sinks.iter().position(is_it).expect("every stream has a sink");
    let engine = Engine::new(subject.program.clone()).expect("it compiles");
    let outcome = subject.run(&engine, Options { workers: 2, ..Options::default() }, 1);
    assert_eq!(subject.difference(&outcome), None, "{events:?}");
    let numbers = |row: &Vec<Value>| (row[0].word().expect("a seat"), row[1].word().expect("a time"));
    for (number, row) in outcome.outputs[sink].iter().enumerate() {
        assert_eq!(row[2], Value::Int(number as i64 + 1), "each wakes once");
    }
    outcome.outputs[sink].iter().map(numbers).collect()
}

#[test]
fn rows_wake_once_when_they_asked_to() {
    let end = (100, 99, "look", 0);
    // At its time, by key, and not beyond the last time that was shown.
    assert_eq!(
        wakes(&[(1, 7, "hold", 5), (1, 3, "hold", 5), (2, 1, "hold", 3), (3, 4, "hold", 98), end]),
        [(1, 5), (3, 6), (7, 6)]
    );
    // Before an event of that time.
    assert_eq!(wakes(&[(1, 7, "hold", 5), (6, 7, "free", 0), end]), [(7, 6)]);
    assert_eq!(wakes(&[(1, 7, "hold", 5), (5, 7, "free", 0), end]), []);
    // Another replaces it, none cancels it, an abort undoes it.
    assert_eq!(wakes(&[(1, 7, "hold", 5), (2, 7, "hold", 20), end]), [(7, 22)]);
    assert_eq!(wakes(&[(1, 7, "hold", 20), (2, 7, "hold", 5), end]), [(7, 7)]);
    assert_eq!(wakes(&[(1, 7, "hold", 5), (2, 7, "cancel", 0), end]), []);
    assert_eq!(wakes(&[(1, 7, "hold", 5), (2, 7, "fail", 0), end]), [(7, 6)]);
    // A time that is over is the next instant.
    assert_eq!(wakes(&[(10, 7, "hold", -5), (10, 8, "hold", 0), end]), [(7, 11), (8, 11)]);
    // A row that is made anew does not wake for the one before.
    assert_eq!(wakes(&[(1, 7, "hold", 5), (2, 7, "free", 0), (3, 7, "look", 0), end]), []);
    // What wakes may ask again: three holds make one more wake.
    assert_eq!(wakes(&[(1, 7, "hold", 5), (1, 7, "hold", 5), (1, 7, "hold", 5), end]), [(7, 6), (7, 16)]);
    assert_eq!(wakes(&[(1, 7, "hold", 5), (1, 7, "hold", 5), (1, 7, "hold", 5), (15, 1, "look", 0)]), [(7, 6)]);
}
