//! Events beyond the limits of steps and of memory: the limits have the same effect as in the oracle, and a limit that
//! is off by one is noticed.

use crate::support::Subject;
use std::time::{Duration, Instant};
use tidemill_histories::{History, adversarial};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, event, local, named};
use tidemill_plan::{Limits, Plan, analyze};
use tidemill_runtime::{Engine, Options};

/// Returns the histories that test the limits.
pub fn histories() -> Vec<(&'static str, History)> {
    let mut found = adversarial();
    found.retain(|(name, _)| name.starts_with("too m"));
    assert!(found.len() >= 5, "{} histories", found.len());
    found
}

#[test]
fn a_limit_off_by_one_is_noticed() {
    for (name, history) in histories() {
        let subject = Subject::new(history);
        let limits = subject.program.limits;
        let with = |limits: Limits| {
            let engine = Engine::new(tidemill_plan::Program { limits, ..subject.program.clone() }).expect(name);
            subject.difference(&subject.run(&engine, Options::default(), 16))
        };
        assert_eq!(with(limits), None, "{name}");
        let is_of_memory = name.contains("memory") || name.contains("filters");
        for by in [-1, 1] {
            let planted = match is_of_memory {
                true => Limits { memory: limits.memory + by, ..limits },
                false => Limits { steps: limits.steps + by, ..limits },
            };
            assert!(with(planted).is_some(), "{name}: {planted:?} for {limits:?} makes no difference");
        }
    }
}

/// Returns a plan that declares no limits: the default limits apply.
fn unbounded() -> Plan {
    PlanBuilder::new("unbounded")
        .table("cells", |t| {
            t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0)).column_or(
                "t",
                Type::Str,
                Value::Str("x".into()),
            )
        })
        .source("ticks", |s| s.field("id", Type::Int).field("n", Type::Int))
        .transaction("spin", [named("ticks")], |t| {
            t.create("c", "cells", [event("id")]).body(|b| {
                b.for_range("i", 0, event("n"), |b| b.assign("x", local("i")));
                b.set("c", "n", cell("c", "n") + 1);
            })
        })
        .transaction("double", [named("ticks")], |t| {
            t.create("c", "cells", [event("id")]).body(|b| b.set("c", "t", cell("c", "t") + cell("c", "t")))
        })
        .build()
}

/// Endless rounds take a moment, and a text that doubles with every event stops at the limit of memory.
#[test]
fn no_event_hangs_or_swells_a_run() {
    let plan = unbounded();
    assert_eq!(plan.limits, Limits { steps: 10_000_000, memory: 64 << 20 });
    let events = (0..40).map(|i| vec![Value::Int(1), Value::Int(if i % 20 == 3 { i64::MAX } else { 3 })]).collect();
    let history = History { plan, preload: vec![], sources: vec![events] };
    let program = analyze(&history.plan).expect("a right plan");
    let engine = Engine::new(program.clone()).expect("it compiles");
    let subject = Subject { program, history, expected: crate::support::Outcome::default() };
    let begun = Instant::now();
    let outcome = subject.run(&engine, Options::default(), 8);
    // Far more than the run takes, and far less than it would take without limits.
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(outcome.counts, [(38, 2), (26, 14)]);
    let Value::Str(text) = &outcome.tables[0][0][2] else { panic!("a text") };
    assert_eq!(text.len(), 64 << 20);
}
