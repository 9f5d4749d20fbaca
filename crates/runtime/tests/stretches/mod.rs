//! Stretches: sessions end between the events of an epoch, beside rows that wake.

use crate::support::{Subject, with_all_sinks};
use tidemill_histories::{History, Random};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named, record, woken};
use tidemill_plan::{Expr, ExprNode, Plan, Waves, WindowFunction, WindowsDef, analyze};
use tidemill_runtime::{Engine, EpochSize, Options};

/// Returns the number of events of a window.
fn count() -> Expr {
    ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None }.into()
}

/// Visits in sessions of two gaps, beside rows that wake. What closes is counted by a transaction that follows: in a table
/// of its own, or in that which events write; so is what follows from events, so that each is followed before the next.
fn plan(shares_table: bool) -> Plan {
    let [counted, again] = if shares_table { ["seen", "seen"] } else { ["closed", "told"] };
    let session = |gap| WindowsDef::Session { gap: Value::Int(gap) };
    let visit = |b: &mut tidemill_plan::build::Block| {
        let fields = ["id", "start", "end"].map(|name| (name, event(name)));
        b.give(record(fields.into_iter().chain([("n", count())])));
    };
    let mut plan = PlanBuilder::new("visits");
    for name in ["events", "others"] {
        plan = plan.source(name, |s| s.event_time("at", Type::Int).field("id", Type::Int).field("for", Type::Int));
    }
    let counts =
        |t: tidemill_plan::build::TableBuilder| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0));
    plan.table("seen", counts)
        .table("closed", counts)
        .table("told", counts)
        .transaction("see", [named("others")], |t| {
            t.create("s", "seen", [event("id")]).body(|b| {
                b.set("s", "n", cell("s", "n") * 3 + 1);
                b.when(event("for").gt(0), |b| b.wake("s", Some(event("at") + event("for"))));
                b.give([("id", event("id")), ("n", cell("s", "n"))]);
            })
        })
        .window("visits", named("events"), [("id", event("id"))], session(3), visit)
        .window("stays", named("others"), [("id", event("id"))], session(5), visit)
        .transaction("count", [committed("visits")], |t| {
            t.create("c", counted, [event("id")]).body(|b| {
                b.require(event("n").lt(5), "too many");
                b.set("c", "n", cell("c", "n") * 2 + event("n"));
                b.give([("id", event("id")), ("n", cell("c", "n")), ("end", event("end"))]);
            })
        })
        .transaction("forget", [woken("seen")], |t| {
            t.row("s", "seen", [event("id")]).body(|b| {
                b.set("s", "n", cell("s", "n") + 100);
                b.when(cell("s", "n").lt(400), |b| b.wake("s", Some(event("at") + 1)));
                b.give([("id", event("id")), ("at", event("at")), ("n", cell("s", "n"))]);
            })
        })
        .transaction("again", [committed("see")], |t| {
            t.create("a", again, [event("id")]).body(|b| b.set("a", "n", cell("a", "n") * 2 + event("n")))
        })
        .build()
}

/// Random events; times lie as dense as `span` is small.
fn events(seed: u64, span: usize) -> Vec<Vec<Vec<Value>>> {
    let mut random = Random::new(seed);
    let mut source = || {
        let mut at = 0;
        let mut event = || {
            at += random.below(span) as i64;
            vec![Value::Int(at), Value::Int(random.below(9) as i64), Value::Int(random.below(12) as i64 - 3)]
        };
        (0..400).map(|_| event()).collect::<Vec<_>>()
    };
    vec![source(), source()]
}

#[test]
fn sessions_end_between_the_events_of_an_epoch() {
    for shares_table in [false, true] {
        let plan = plan(shares_table);
        let program = analyze(&with_all_sinks(&plan)).expect("a right plan");
        assert!(program.has_stretches() && !program.only_wakes());
        assert_eq!(Waves::of(&program).is_some(), !shares_table);
        let mut engine = Engine::new(program).expect("it compiles");
        for seed in 0..8 {
            let sources = events(seed, 2 + seed as usize % 4);
            let subject = Subject::new(History { plan: plan.clone(), preload: vec![], sources });
            for (events, workers) in [(100_000, 1), (50, 2), (3, 2)] {
                let options = Options { workers, epoch: EpochSize::Events(events), ..Options::default() };
                engine = engine.with_empty_tables();
                let outcome = subject.run(&engine, options, 64);
                assert_eq!(subject.difference(&outcome), None, "seed {seed}, epochs of {events} events");
                // Each of some hundred instants has a boundary. The first few, and those at the end of time, have epochs of
                // their own.
                assert!(events < 100_000 || outcome.epochs < 60, "{} epochs", outcome.epochs);
            }
        }
    }
}

/// Sparse boundaries have epochs of their own, and the events between them are folded; dense ones divide epochs. A run changes
/// from one to the other and back.
#[test]
fn dense_and_sparse_boundaries_alternate() {
    let plan = PlanBuilder::new("visits")
        .source("events", |s| s.event_time("at", Type::Int).field("id", Type::Int))
        .window("visits", named("events"), [("id", event("id"))], WindowsDef::Session { gap: Value::Int(100) }, |b| {
            let fields = ["id", "start", "end"].map(|name| (name, event(name)));
            b.give(record(fields.into_iter().chain([("n", count())])));
        })
        .build();
    let mut engine = Engine::new(analyze(&with_all_sinks(&plan)).expect("a right plan")).expect("it compiles");
    let mut random = Random::new(1);
    let (mut at, mut records) = (0, Vec::new());
    for part in 0..4 {
        let (count, ids) = if part % 2 == 0 { (60_000, 5) } else { (6_000, 2_000) };
        for _ in 0..count {
            at += i64::from(random.chance(if part % 2 == 0 { 1 } else { 50 }));
            records.push(vec![Value::Int(at), Value::Int(random.below(ids) as i64)]);
        }
    }
    let subject = Subject::new(History { plan, preload: vec![], sources: vec![records] });
    for workers in [1, 2] {
        let options = Options { workers, epoch: EpochSize::Events(2_000), ..Options::default() };
        engine = engine.with_empty_tables();
        let outcome = subject.run(&engine, options, 1_000);
        assert_eq!(subject.difference(&outcome), None, "{workers} workers");
        assert!(outcome.epochs < 1_000, "{} epochs", outcome.epochs);
        assert!((10_000..110_000).contains(&outcome.scheduled), "{} transactions are not folded", outcome.scheduled);
    }
}
