//! The size that epochs reach if the user has not set it.

use crate::support::Kept;
use std::sync::Arc;
use std::time::Duration;
use tidemill_connect::System;
use tidemill_io::{IoFailure, Next, Sink, Source, SourceBatch};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Type, Value};
use tidemill_plan::analyze;
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
use tidemill_runtime::{Engine, Environment, Options, Request, Summary};

const EVENTS: usize = 6_000_000;
const BATCH: usize = 16_384;
const RUNS: usize = 5;
/// Well above the time of an epoch here, and well below the time of the run.
const LATENCY_NS: u64 = 20_000_000;

/// A source that gives one batch over and over, all of it available from the beginning.
struct Backlog {
    batch: SourceBatch,
    left: usize,
    arrived: u64,
}

impl Source for Backlog {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let length = self.left.min(BATCH);
        self.left -= length;
        let events = self.batch.events.slice(0, length);
        Ok((length > 0).then(|| SourceBatch { events, bad: Vec::new() }).into())
    }

    fn arrived(&self) -> Option<u64> {
        Some(self.arrived)
    }
}

fn run() -> Summary {
    let plan = PlanBuilder::new("counters")
        .table("counters", |t| t.key("id", Type::Int).column_or("count", Type::Int, Value::Int(0)))
        .source("clicks", |s| s.field("id", Type::Int))
        .transaction("count", [named("clicks")], |t| {
            t.create("counter", "counters", [event("id")]).body(|b| {
                b.set("counter", "count", cell("counter", "count") + 1);
                b.give([("count", cell("counter", "count"))]);
            })
        })
        .sink("counted", committed("count"))
        .build();
    let program = analyze(&plan).expect("a right plan");
    let events: Vec<Vec<Value>> = (0..BATCH as i64).map(|i| vec![Value::Int(i % 1000)]).collect();
    let events = batch_of(&program.streams.raw[0].schema, &events);
    let environment: Arc<dyn Environment> = Arc::new(System::new());
    let batch = SourceBatch { events, bad: Vec::new() };
    let backlog = Backlog { batch, left: EVENTS, arrived: environment.now() };
    let engine = Engine::new(program).expect("it compiles");
    let request = Request {
        options: Options { workers: 2, latency: LATENCY_NS, ..Options::default() },
        ..Request::new(vec![Box::new(backlog)], vec![Box::new(Kept::default()) as Box<dyn Sink>], environment)
    };
    engine.run(request, &mut || {}).expect("it ends")
}

/// Smaller epochs would not shorten the time that input has waited in a queue; they only make the queue longer.
#[test]
fn a_backlog_does_not_make_epochs_small() {
    // A machine that stands still for a while has few of its epochs large: the best of some runs is looked at.
    let mut means = Vec::new();
    while means.len() < RUNS && means.last().is_none_or(|&mean| mean <= 1_000) {
        let summary = run();
        assert_eq!(summary.events, EVENTS as u64);
        means.push(summary.events / summary.epochs);
    }
    assert!(means.last().is_some_and(|&mean| mean > 1_000), "epochs of {means:?} events on average");
}
