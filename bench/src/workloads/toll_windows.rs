//! Toll Processing with windows: as in `toll`, but the speed is the average of the recent past, and the vehicles are
//! those that were there in it (TStream 2020, §II-A: both are statistics of a segment; the windows are those of the
//! Linear Road benchmark, Arasu et al., VLDB 2004: five slices). A segment sees some sixty reports in a window.

use super::columns::{column, event_batch, ints, table_rows};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, aborted, committed, event, if_else, local, max, named, window};
use tidemill_plan::{Aggregate, Plan, WindowDef};

const VEHICLES_PER_SEGMENT: u64 = 100;
const SPEED_MAX: u64 = 120;
/// A toll is due above this number of vehicles and below this speed.
const VEHICLES_FREE: i64 = 30;
const SPEED_FREE: i64 = 65;
/// Slices of a window.
const SLICES: i64 = 5;
/// The length of a slice, in reports of a segment on average.
const REPORTS_PER_SLICE: i64 = 12;

/// Returns the application; a slice has this number of reports.
pub fn plan(work: i64, slide: i64) -> Plan {
    let span =
        |distinct| WindowDef::Span { span: Value::Int(SLICES * slide), slide: Some(Value::Int(slide)), distinct };
    PlanBuilder::new("toll processing with windows")
        .table("speeds", |t| t.key("segment", Type::Int).window("speed", Type::Int, span(false)))
        .table("counts", |t| t.key("segment", Type::Int).window("vehicles", Type::Int, span(true)))
        .source("reports", |s| {
            let s = s.event_time("at", Type::Int);
            ["segment", "vehicle", "speed"].into_iter().fold(s, |s, name| s.field(name, Type::Int))
        })
        .transaction("road_speed", [named("reports")], |t| {
            t.row("road", "speeds", [event("segment")]).body(|b| {
                b.require(event("speed").ge(0), "negative speed");
                let speed = with_udf(b, "function", event("speed"), work, event("speed"));
                b.add("road", "speed", speed);
            })
        })
        .transaction("vehicle_count", [named("reports")], |t| {
            t.row("count", "counts", [event("segment")]).body(|b| {
                let vehicle = with_udf(b, "function", event("vehicle"), work, event("vehicle"));
                b.add("count", "vehicles", vehicle);
            })
        })
        .transaction("notify", [named("reports")], |t| {
            t.read("road", "speeds", [event("segment")]).read("count", "counts", [event("segment")]).body(|b| {
                let speed = |aggregate| window("road", "speed", None, aggregate);
                b.assign("speed", speed(Aggregate::Sum).floor_div(max([speed(Aggregate::Count), 1.into()])));
                b.assign("vehicles", window("count", "vehicles", None, Aggregate::Distinct));
                b.assign("excess", local("vehicles") - VEHICLES_FREE);
                let due = local("excess").gt(0).and(local("speed").lt(SPEED_FREE));
                b.give([
                    ("at", event("at")),
                    ("toll", if_else(due, local("excess") * local("excess") * 2, 0)),
                    ("speed", local("speed")),
                    ("vehicles", local("vehicles")),
                ]);
            })
        })
        .sink("tolls", committed("notify"))
        .sink("rejected", aborted("road_speed"))
        .build()
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs) -> Input {
    let slide = REPORTS_PER_SLICE * knobs.rows as i64;
    let plan = plan(knobs.work, slide);
    let mut random = Random::new(42);
    let zipf = Zipf::new(knobs.rows, knobs.theta);
    let mut columns: Vec<Vec<i64>> = (0..4).map(|_| Vec::with_capacity(knobs.events)).collect();
    for at in 0..knobs.events {
        let doomed = random.unit() < knobs.abort;
        let segment = zipf.key(&mut random) as i64;
        let vehicle = random.below(VEHICLES_PER_SEGMENT) as i64;
        let speed = if doomed { -1 } else { random.below(SPEED_MAX) as i64 };
        [at as i64, segment, vehicle, speed].into_iter().zip(&mut columns).for_each(|(value, c)| c.push(value));
    }
    let events = event_batch(&plan, columns.into_iter().map(ints).collect());
    let tables = vec![table_rows(&plan, 0, knobs.rows, &[]), table_rows(&plan, 1, knobs.rows, &[])];
    let (rows, work) = (knobs.rows as i64, knobs.work);
    let plain = move || {
        let speeds = (0..rows).map(|key| (key, Speeds::default())).collect();
        let counts = (0..rows).map(|key| (key, Vehicles::default())).collect();
        Box::new(Loop { speeds, counts, work, slide }) as Box<dyn Plain>
    };
    Input { plan, tables, events, plain: Box::new(plain) }
}

/// Number, sum and count of each slice.
#[derive(Default)]
struct Speeds(VecDeque<(i64, i64, i64)>);

impl Speeds {
    fn add(&mut self, now: i64, speed: i64) {
        while self.0.front().is_some_and(|slice| slice.0 <= now - SLICES) {
            self.0.pop_front();
        }
        match self.0.back_mut().filter(|slice| slice.0 == now) {
            Some((_, sum, count)) => {
                *sum += speed;
                *count += 1;
            }
            None => self.0.push_back((now, speed, 1)),
        }
    }

    fn average(&self, now: i64) -> i64 {
        let recent = self.0.iter().filter(|slice| slice.0 > now - SLICES);
        let (sum, count) = recent.fold((0, 0), |(sum, count), slice| (sum + slice.1, count + slice.2));
        sum.div_euclid(count.max(1))
    }
}

/// The last slice of each vehicle, and how many vehicles have each slice.
#[derive(Default)]
struct Vehicles {
    last: Map<i64, i64>,
    counts: VecDeque<(i64, i64)>,
}

impl Vehicles {
    fn add(&mut self, now: i64, vehicle: i64) {
        if let Some(before) = self.last.insert(vehicle, now)
            && let Some(count) = self.counts.iter_mut().find(|count| count.0 == before)
        {
            count.1 -= 1;
        }
        while self.counts.front().is_some_and(|count| count.0 <= now - SLICES) {
            self.counts.pop_front();
        }
        match self.counts.back_mut().filter(|count| count.0 == now) {
            Some(count) => count.1 += 1,
            None => self.counts.push_back((now, 1)),
        }
    }

    fn distinct(&self, now: i64) -> i64 {
        self.counts.iter().filter(|count| count.0 > now - SLICES).map(|count| count.1).sum()
    }
}

struct Loop {
    speeds: Map<i64, Speeds>,
    counts: Map<i64, Vehicles>,
    work: i64,
    slide: i64,
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let [at, segment, vehicle, speed] = [0, 1, 2, 3].map(|c| column(events, c));
        let mut tolls: [Vec<i64>; 4] = std::array::from_fn(|_| Vec::with_capacity(events.num_rows()));
        let mut rejected = Vec::new();
        for i in 0..events.num_rows() {
            let now = at[i].div_euclid(self.slide);
            let Some(speeds) = self.speeds.get_mut(&segment[i]) else { continue };
            if speed[i] >= 0 {
                speeds.add(now, speed[i] + toil(speed[i], self.work));
            } else {
                rejected.push(at[i]);
            }
            let average = speeds.average(now);
            let Some(vehicles) = self.counts.get_mut(&segment[i]) else { continue };
            vehicles.add(now, vehicle[i] + toil(vehicle[i], self.work));
            let distinct = vehicles.distinct(now);
            let excess = distinct - VEHICLES_FREE;
            let due = excess > 0 && average < SPEED_FREE;
            let toll = if due { excess * excess * 2 } else { 0 };
            [at[i], toll, average, distinct].into_iter().zip(&mut tolls).for_each(|(value, c)| c.push(value));
        }
        let [at, toll, speed, vehicles] = tolls;
        vec![vec![("at", at), ("toll", toll), ("speed", speed), ("vehicles", vehicles)], vec![("at", rejected)]]
    }

    /// Returns the keys of the rows: windows are left out, as outputs show what is in them.
    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        vec![self.speeds.keys().map(|&key| vec![key]).collect(), self.counts.keys().map(|&key| vec![key]).collect()]
    }
}
