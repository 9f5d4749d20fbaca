//! Rows that ask to be woken (`docs/formalism.md`, "Timers").

use crate::support::{Subject, with_all_sinks};
use tidemill_histories::History;
use tidemill_model::{Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::analyze;
use tidemill_plan::build::{PlanBuilder, cell, committed, emitted, event, exists, named, woken};
use tidemill_runtime::{Engine, EpochSize, Options};

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

/// Returns the seats that wake, with the times.
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
    // A row that wakes may ask again: three holds make one more wake.
    assert_eq!(wakes(&[(1, 7, "hold", 5), (1, 7, "hold", 5), (1, 7, "hold", 5), end]), [(7, 6), (7, 16)]);
    assert_eq!(wakes(&[(1, 7, "hold", 5), (1, 7, "hold", 5), (1, 7, "hold", 5), (15, 1, "look", 0)]), [(7, 6)]);
}

/// Auctions by a text, of two kinds, each in a table of its own; bids wake nothing. What closes is counted by a transaction
/// that follows, in a table of its own.
fn auctions() -> Plan {
    let kinds = ["first", "second"];
    let mut plan = PlanBuilder::new("auctions");
    for name in ["events", "others"] {
        plan = plan.source(name, |s| {
            let s = s.event_time("at", Type::Int).field("id", Type::Str);
            s.field("kind", Type::Int).field("until", Type::Int).field("price", Type::Int)
        });
    }
    for (kind, table) in (0..).zip(kinds) {
        plan = plan
            .table(table, |t| t.key("id", Type::Str).column_or("price", Type::Int, Value::Int(0)))
            .transaction(format!("open_{table}"), [named("events"), named("others")], |t| {
                t.create("a", table, [event("id")]).body(|b| {
                    b.when(event("kind").eq(kind), |b| b.wake("a", Some(event("at") + event("until"))));
                    b.when(event("kind").eq(kind + 4), |b| b.wake("a", None));
                })
            })
            .transaction(format!("bid_{table}"), [named("others")], |t| {
                t.create("a", table, [event("id")]).body(|b| {
                    let is_higher =
                        event("kind").eq(kind + 2).and(exists("a")).and(event("price").gt(cell("a", "price")));
                    b.when(is_higher, |b| b.set("a", "price", event("price")));
                })
            })
            .transaction(format!("close_{table}"), [woken(table)], |t| {
                t.row("a", table, [event("id")]).body(|b| {
                    b.when(cell("a", "price").gt(60), |b| {
                        b.set("a", "price", cell("a", "price") - 20);
                        b.wake("a", Some(event("at") + cell("a", "price") - 45));
                    });
                    b.give([("id", event("id")), ("at", event("at")), ("price", cell("a", "price"))]);
                })
            });
    }
    plan.table("closed", |t| {
        let t = t.key("id", Type::Str).column_or("n", Type::Int, Value::Int(0));
        t.column_or("last", Type::Int, Value::Int(0))
    })
    .transaction("count", [committed("close_first")], |t| {
        t.create("c", "closed", [event("id")]).body(|b| {
            b.set("c", "n", cell("c", "n") + 1);
            b.set("c", "last", event("at"));
            b.give([("id", event("id")), ("n", cell("c", "n"))]);
        })
    })
    .build()
}

/// A transaction that follows from an event asks to be woken, and one that follows from a wake touches what events touch.
fn chained() -> Plan {
    let counts =
        |t: tidemill_plan::build::TableBuilder| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0));
    PlanBuilder::new("chained")
        .source("events", |s| s.event_time("at", Type::Int).field("id", Type::Int))
        .table("open", counts)
        .table("all", counts)
        .transaction("take", [named("events")], |t| {
            t.create("a", "all", [0.into()]).body(|b| {
                b.set("a", "n", cell("a", "n") + 1);
                b.give([("at", event("at")), ("id", event("id")), ("n", cell("a", "n"))]);
            })
        })
        .transaction("ask", [committed("take")], |t| {
            t.create("o", "open", [event("id")]).body(|b| {
                b.set("o", "n", cell("o", "n") + 1);
                b.wake("o", Some(event("at") + 2));
                b.give([("id", event("id")), ("n", cell("o", "n"))]);
            })
        })
        .transaction("close", [woken("open")], |t| {
            t.row("o", "open", [event("id")]).body(|b| {
                b.set("o", "n", 0);
                b.give([("id", event("id")), ("at", event("at"))]);
            })
        })
        .transaction("count", [committed("close")], |t| {
            t.create("a", "all", [0.into()]).body(|b| {
                b.set("a", "n", cell("a", "n") * 2);
                b.give([("n", cell("a", "n"))]);
            })
        })
        .build()
}

#[test]
fn what_follows_from_events_and_wakes_stands_in_their_order() {
    let program = analyze(&with_all_sinks(&chained())).expect("a right plan");
    let mut engine = Engine::new(program).expect("it compiles");
    let record = |at: i64| vec![Value::Int(at), Value::Int(at % 3)];
    let subject =
        Subject::new(History { plan: chained(), preload: vec![], sources: vec![(0..60).map(record).collect()] });
    for events in [1, 7, 1_000] {
        let options = Options { workers: 2, epoch: EpochSize::Events(events), ..Options::default() };
        engine = engine.with_empty_tables();
        let outcome = subject.run(&engine, options, 8);
        assert_eq!(subject.difference(&outcome), None, "epochs of {events} events");
    }
}

/// Random events of the auctions; times lie as dense as `span` is small.
fn bidding(seed: u64, span: usize) -> Vec<Vec<Vec<Value>>> {
    let mut random = tidemill_histories::Random::new(seed);
    let mut source = || {
        let mut at = 0;
        let mut event = || {
            at += random.below(span) as i64;
            let id = ["a", "b", "", "a longer name than fits a word", "c", "d", "e"][random.below(7)];
            let numbers = [random.below(6), random.below(30), random.below(100)].map(|n| Value::Int(n as i64));
            [vec![Value::Int(at), Value::Str(id.into())], numbers.to_vec()].concat()
        };
        (0..400).map(|_| event()).collect::<Vec<_>>()
    };
    vec![source(), source()]
}

#[test]
fn rows_wake_between_the_events_of_an_epoch() {
    let program = analyze(&with_all_sinks(&auctions())).expect("a right plan");
    assert!(program.has_stretches());
    let mut engine = Engine::new(program).expect("it compiles");
    for seed in 0..30 {
        let sources = bidding(seed, 1 + seed as usize % 5);
        let subject = Subject::new(History { plan: auctions(), preload: vec![], sources });
        for (events, workers) in [(1_000_000, 1), (50, 2), (3, 2)] {
            let options = Options { workers, epoch: EpochSize::Events(events), ..Options::default() };
            engine = engine.with_empty_tables();
            let outcome = subject.run(&engine, options, 64);
            assert_eq!(subject.difference(&outcome), None, "seed {seed}, epochs of {events} events");
            // More than a hundred instants have wakes.
            assert!(events < 1_000_000 || outcome.epochs < 20, "{} epochs", outcome.epochs);
        }
    }
}

/// Wakes a fixed time later; most epochs have none. What wakes, and each event, is told twice to a transaction that follows.
fn reminders() -> Plan {
    PlanBuilder::new("reminders")
        .source("events", |s| s.event_time("at", Type::Int).field("id", Type::Int))
        .table("open", |t| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .table("told", |t| t.key("id", Type::Int).column_or("last", Type::Int, Value::Int(0)))
        .transaction("ask", [named("events")], |t| {
            t.create("o", "open", [event("id")]).body(|b| {
                b.set("o", "n", cell("o", "n") + 1);
                b.wake("o", Some(event("at") + 40));
                b.emit("told", [("id", event("id")), ("n", cell("o", "n"))]);
                b.emit("told", [("id", event("id") + 1), ("n", cell("o", "n") * 2)]);
            })
        })
        .transaction("remind", [woken("open")], |t| {
            t.row("o", "open", [event("id")]).body(|b| {
                b.set("o", "n", 0);
                b.give([("id", event("id")), ("n", event("at"))]);
            })
        })
        .transaction("hear", [emitted("ask", "told")], |t| {
            t.create("t", "told", [event("id")]).body(|b| {
                b.set("t", "last", cell("t", "last") * 3 + event("n"));
                b.give([("id", event("id")), ("last", cell("t", "last"))]);
            })
        })
        .build()
}

#[test]
fn epochs_with_and_without_wakes_alternate() {
    let program = analyze(&with_all_sinks(&reminders())).expect("a right plan");
    assert!(program.has_stretches());
    let mut engine = Engine::new(program).expect("it compiles");
    for seed in 0..20 {
        let mut random = tidemill_histories::Random::new(seed);
        let mut at = 0;
        let mut record = || {
            at += if random.chance(5) { 60 } else { random.below(3) as i64 };
            vec![Value::Int(at), Value::Int(random.below(9) as i64)]
        };
        let sources = vec![(0..500).map(|_| record()).collect()];
        let subject = Subject::new(History { plan: reminders(), preload: vec![], sources });
        for events in [2, 10, 40] {
            let options = Options { workers: 1 + events % 2, epoch: EpochSize::Events(events), ..Options::default() };
            engine = engine.with_empty_tables();
            let outcome = subject.run(&engine, options, 32);
            assert_eq!(subject.difference(&outcome), None, "seed {seed}, epochs of {events} events");
        }
    }
}
