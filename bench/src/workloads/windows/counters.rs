//! The thesis' RO (4.7): a count of the events of each key, without windows: a transaction on the row of the key. It gives the
//! count with each event.

use super::groups::{ByArray, ByMap, Index};
use super::query::{Query, Shape};
use super::rows::Rows;
use crate::workloads::columns::{column, event_batch, ints, zero};
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
use tidemill_random::{Random, Zipf};

const KEY: usize = 1;

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = PlanBuilder::new("counts of keys")
        .table("counters", |t| t.key("key", Type::Int).column_or("count", Type::Int, zero()))
        .source("events", |s| s.event_time("at", Type::Int).field("key", Type::Int))
        .transaction("add", [named("events")], |t| {
            t.create("counter", "counters", [event("key")]).body(|b| {
                b.set("counter", "count", cell("counter", "count") + 1);
                b.give([("key", event("key")), ("count", cell("counter", "count"))]);
            })
        })
        .sink("counts", committed("add"))
        .build();
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let times = (0..shape.events).map(|number| shape.at(number)).collect();
    let keys = (0..shape.events).map(|_| zipf.rank(|| random.unit()) as i64).collect();
    let events = event_batch(&plan, vec![ints(times), ints(keys)]);
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[KEY],
        by_map: Box::new(run::<ByMap>),
        by_array: Some(Box::new(run::<ByArray>)),
    }
}

fn run<I: Index>(events: &RecordBatch) -> Output {
    let mut rows = Rows::new(["key", "count"]);
    let mut places = I::default();
    let mut counts: Vec<i64> = Vec::new();
    for &key in column(events, KEY) {
        let place = places.place(key, counts.len() as u32) as usize;
        if place == counts.len() {
            counts.push(0);
        }
        counts[place] += 1;
        rows.push([key, counts[place]]);
    }
    rows.output()
}
