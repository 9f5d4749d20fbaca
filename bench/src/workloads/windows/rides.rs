//! Taxi rides (thesis, ch. 3: NYT): of one vendor and more than five miles, by region in tumbling windows, their number and
//! the mean of their fares.
//!
//! Rides are made up: half of a vendor's, distances exponential with a mean of three miles, so that 9 % pass. The region
//! is a field and not found from coordinates. Fares are whole quarters, so that the loop's plain sums are exact, as the
//! engine's always are.

use super::baselines::{Aggregation, Baseline, Mean};
use super::groups::{ByArray, ByMap, Groups, Index};
use super::query::{Query, Shape, count, end_of, of, tumbling, window};
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

/// The vendor whose rides count.
const VTS: i64 = 1;
const MILES_MIN: f64 = 5.0;
const MILES_MEAN: f64 = 3.0;
const AT: usize = 0;
const VENDOR: usize = 2;
const REGION: usize = 3;
const DISTANCE: usize = 5;
const FARE: usize = 6;

fn plan(shape: &Shape) -> Plan {
    let mut plan = PlanBuilder::new("rides by region")
        .source("rides", |s| {
            let names = ["medallion", "vendor", "region", "seconds"];
            let s = names.into_iter().fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int));
            s.field("distance", Type::Float).field("fare", Type::Float)
        })
        .filter("long_rides", named("rides"), event("vendor").eq(VTS).and(event("distance").gt(MILES_MIN)))
        .sink("regions", committed("per_region"))
        .build();
    let mean = of(WindowFunction::Mean, "fare");
    let fields = [("end", event("end")), ("region", event("region")), ("rides", count()), ("fare", mean)];
    plan.transactions.push(window("per_region", named("long_rides"), &["region"], tumbling(shape), fields));
    plan
}

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let mut columns: Vec<Vec<i64>> = (0..5).map(|_| Vec::with_capacity(shape.events)).collect();
    let (mut distances, mut fares) = (Vec::with_capacity(shape.events), Vec::with_capacity(shape.events));
    for number in 0..shape.events {
        let distance = -MILES_MEAN * (1.0 - random.unit()).ln();
        let medallion = random.below(13_000) as i64;
        let region = zipf.rank(|| random.unit()) as i64;
        let ride = [shape.at(number), medallion, random.below(2) as i64, region, (distance * 240.0) as i64];
        ride.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
        distances.push(distance);
        fares.push((10.0 + 10.0 * distance).round() / 4.0);
    }
    let mut arrays: Vec<ArrayRef> = columns.into_iter().map(ints).collect();
    arrays.extend([distances, fares].map(|values| Arc::new(Float64Array::from(values)) as ArrayRef));
    let events = event_batch(&plan, arrays);
    let length = shape.length_ms();
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, VENDOR, REGION, DISTANCE, FARE],
        by_map: Box::new(move |events| run::<ByMap>(events, length)),
        by_array: Some(Box::new(move |events| run::<ByArray>(events, length))),
    }
}

fn floats(events: &RecordBatch, number: usize) -> &[f64] {
    events.column(number).as_primitive::<Float64Type>().values()
}

fn run<I: Index>(events: &RecordBatch, length: i64) -> Output {
    let [at, vendor, region] = [AT, VENDOR, REGION].map(|number| column(events, number));
    let [distance, fare] = [DISTANCE, FARE].map(|number| floats(events, number));
    let [mut ends, mut regions, mut rides, mut means] = [(); 4].map(|()| Vec::new());
    let mut open = Groups::<I, (i64, f64)>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, (i64, f64)>, end: i64| {
        for &(region, (count, sum)) in open.iter() {
            ends.push(end);
            regions.push(region);
            rides.push(count);
            means.push((sum / count as f64).to_bits() as i64);
        }
        open.clear();
    };
    for ride in 0..at.len() {
        if vendor[ride] != VTS || distance[ride] <= MILES_MIN {
            continue;
        }
        if at[ride] >= end {
            close(&mut open, end);
            end = end_of(at[ride], length);
        }
        let (count, sum) = open.group(region[ride]);
        *count += 1;
        *sum += fare[ride];
    }
    close(&mut open, end);
    vec![("end", ends), ("region", regions), ("rides", rides), ("fare", means)]
}

/// Runs a baseline.
pub fn parallel(shape: &Shape, events: &RecordBatch, baseline: Baseline, workers: usize) -> Vec<Output> {
    let [at, vendor, region] = [AT, VENDOR, REGION].map(|number| column(events, number));
    let [distance, fare] = [DISTANCE, FARE].map(|number| floats(events, number));
    let rides = Rides { at, vendor, region, distance, fare };
    baseline.run(&rides, shape.length_ms(), shape.groups_max(1), workers)
}

struct Rides<'a> {
    at: &'a [i64],
    vendor: &'a [i64],
    region: &'a [i64],
    distance: &'a [f64],
    fare: &'a [f64],
}

impl Aggregation<4> for Rides<'_> {
    type Part = Mean;

    #[inline(always)]
    fn times(&self) -> &[i64] {
        self.at
    }

    #[inline(always)]
    fn passes(&self, ride: usize) -> bool {
        self.vendor[ride] == VTS && self.distance[ride] > MILES_MIN
    }

    #[inline(always)]
    fn key(&self, ride: usize) -> i64 {
        self.region[ride]
    }

    #[inline(always)]
    fn value(&self, ride: usize) -> f64 {
        self.fare[ride]
    }

    fn names(&self) -> [&'static str; 4] {
        ["end", "region", "rides", "fare"]
    }

    fn row(&self, end: i64, region: i64, fares: Mean) -> [i64; 4] {
        [end, region, fares.count, fares.bits()]
    }
}
