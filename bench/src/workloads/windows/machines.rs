//! The thesis' CM (4.7): the mean of the processor's share that the tasks of a job take, in tumbling windows. Records are laid out
//! as those of Google's trace of a cluster of 2011, but made up: jobs with the skew that is asked for.
//!
//! Shares are whole 4,096ths, so that the loop's plain sums are exact, as the engine's always are.

use super::baselines::{Mean, Part};
use super::groups::{ByArray, ByMap, Groups, Index};
use super::query::{Query, Shape, end_of, of, tumbling, window};
use super::rows::Rows;
use crate::workloads::columns::{column, event_batch, ints};
use crate::workloads::input::Output;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, committed, event, named};
use tidemill_plan::{Plan, WindowFunction};
use tidemill_random::{Random, Zipf};

const AT: usize = 0;
const JOB: usize = 1;
const CPU: usize = 9;
const WORDS: [&str; 8] = ["job", "task", "machine", "event_type", "user", "category", "priority", "constraints"];
const SHARES: [&str; 3] = ["cpu", "ram", "disk"];
/// The number of machines in the trace.
const MACHINES: u64 = 12_500;
const UNITS: u64 = 4_096;

fn plan(shape: &Shape) -> Plan {
    let mut plan = PlanBuilder::new("shares by job")
        .source("tasks", |s| {
            let s = WORDS.into_iter().fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int));
            SHARES.into_iter().fold(s, |s, name| s.field(name, Type::Float))
        })
        .sink("shares", committed("per_job"))
        .build();
    let fields = [("end", event("end")), ("job", event("job")), ("cpu", of(WindowFunction::Mean, "cpu"))];
    plan.transactions.push(window("per_job", named("tasks"), &["job"], tumbling(shape), fields));
    plan
}

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let mut words: Vec<Vec<i64>> = (0..9).map(|_| Vec::with_capacity(shape.events)).collect();
    let mut shares: [Vec<f64>; 3] = Default::default();
    for number in 0..shape.events {
        let job = zipf.rank(|| random.unit()) as i64;
        let [task, machine, kind] = [1_000, MACHINES, 9].map(|below| random.below(below) as i64);
        let [user, category, priority] = [500, 4, 12].map(|below| random.below(below) as i64);
        let task = [shape.at(number), job, task, machine, kind, user, category, priority, 0];
        task.into_iter().zip(&mut words).for_each(|(value, column)| column.push(value));
        shares.iter_mut().for_each(|column| column.push(random.below(UNITS) as f64 / UNITS as f64));
    }
    let mut arrays: Vec<ArrayRef> = words.into_iter().map(ints).collect();
    arrays.extend(shares.map(|values| Arc::new(Float64Array::from(values)) as ArrayRef));
    let events = event_batch(&plan, arrays);
    let length = shape.length_ms();
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, JOB, CPU],
        by_map: Box::new(move |events| run::<ByMap>(events, length)),
        by_array: Some(Box::new(move |events| run::<ByArray>(events, length))),
    }
}

fn run<I: Index>(events: &RecordBatch, length: i64) -> Output {
    let [at, job] = [AT, JOB].map(|number| column(events, number));
    let cpu = events.column(CPU).as_primitive::<Float64Type>().values();
    let mut rows = Rows::new(["end", "job", "cpu"]);
    let mut open = Groups::<I, Mean>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, Mean>, end: i64| {
        open.iter().for_each(|&(job, mean)| rows.push([end, job, mean.bits()]));
        open.clear();
    };
    for ((&at, &job), &cpu) in at.iter().zip(job).zip(cpu) {
        if at >= end {
            close(&mut open, end);
            end = end_of(at, length);
        }
        open.group(job).add(cpu);
    }
    close(&mut open, end);
    rows.output()
}
