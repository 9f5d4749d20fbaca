//! Toll Processing (TStream 2020, §II-A and §VI-A): a vehicle reports its speed on a road segment. Three
//! transactions run on each report: Road Speed keeps the segment's average speed, Vehicle Count its number of
//! distinct vehicles, and Toll Notification reads both and sets the toll.
//!
//! Both are of the whole past; `toll_windows` has them of the recent past. The papers keep a set of vehicles in the
//! count's record; here a table of (segment, vehicle) says who was there, an access more. The toll is that of
//! the Linear Road benchmark (Arasu et al., VLDB 2004). A doomed report would make a sum of speeds negative.

use super::columns::{column, event_batch, ints, table_rows, zero};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, event, exists, if_else, local, max, named};

const VEHICLES_PER_SEGMENT: u64 = 100;
const SPEED_MAX: u64 = 120;
const TOO_SLOW: i64 = -1 << 50;
/// A toll is due above this number of vehicles and below this speed.
const VEHICLES_FREE: i64 = 50;
const SPEED_FREE: i64 = 70;

/// Returns the application.
pub fn plan(work: i64) -> Plan {
    PlanBuilder::new("toll processing")
        .table("speeds", |t| {
            t.key("segment", Type::Int).column_or("sum", Type::Int, zero()).column_or("reports", Type::Int, zero())
        })
        .table("counts", |t| t.key("segment", Type::Int).column_or("vehicles", Type::Int, zero()))
        .table("seen", |t| {
            t.key("segment", Type::Int).key("vehicle", Type::Int).column_or("reports", Type::Int, zero())
        })
        .source("reports", |s| {
            let s = s.event_time("at", Type::Int);
            ["segment", "vehicle", "speed"].into_iter().fold(s, |s, name| s.field(name, Type::Int))
        })
        .transaction("road_speed", [named("reports")], |t| {
            t.row("road", "speeds", [event("segment")]).body(|b| {
                b.require((cell("road", "sum") + event("speed")).ge(0), "negative speed");
                let sum = cell("road", "sum") + event("speed");
                let sum = with_udf(b, "function", cell("road", "sum"), work, sum);
                b.set("road", "sum", sum);
                b.set("road", "reports", cell("road", "reports") + 1);
            })
        })
        .transaction("vehicle_count", [named("reports")], |t| {
            t.row("count", "counts", [event("segment")])
                .create("seen", "seen", [event("segment"), event("vehicle")])
                .body(|b| {
                    let more = if_else(exists("seen"), 0, 1);
                    let vehicles = cell("count", "vehicles") + more;
                    let vehicles = with_udf(b, "function", cell("count", "vehicles"), work, vehicles);
                    b.set("count", "vehicles", vehicles);
                    b.set("seen", "reports", cell("seen", "reports") + 1);
                })
        })
        .transaction("notify", [named("reports")], |t| {
            t.read("road", "speeds", [event("segment")]).read("count", "counts", [event("segment")]).body(|b| {
                b.assign("speed", cell("road", "sum").floor_div(max([cell("road", "reports"), 1.into()])));
                b.assign("excess", cell("count", "vehicles") - VEHICLES_FREE);
                let due = local("excess").gt(0).and(local("speed").lt(SPEED_FREE));
                b.give([("at", event("at")), ("toll", if_else(due, local("excess") * local("excess") * 2, 0))]);
            })
        })
        .sink("tolls", committed("notify"))
        .sink("rejected", aborted("road_speed"))
        .build()
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs) -> Input {
    let plan = plan(knobs.work);
    let mut random = Random::new(42);
    let zipf = Zipf::new(knobs.rows, knobs.theta);
    let mut columns: Vec<Vec<i64>> = (0..4).map(|_| Vec::with_capacity(knobs.events)).collect();
    for at in 0..knobs.events {
        let doomed = random.unit() < knobs.abort;
        let segment = zipf.key(&mut random) as i64;
        let vehicle = random.below(knobs.rows * VEHICLES_PER_SEGMENT) as i64;
        let speed = if doomed { TOO_SLOW } else { random.below(SPEED_MAX) as i64 };
        [at as i64, segment, vehicle, speed].into_iter().zip(&mut columns).for_each(|(value, c)| c.push(value));
    }
    let events = event_batch(&plan, columns.into_iter().map(ints).collect());
    let tables = vec![table_rows(&plan, 0, knobs.rows, &[0, 0]), table_rows(&plan, 1, knobs.rows, &[0])];
    let (rows, work) = (knobs.rows as i64, knobs.work);
    let plain = move || {
        let (speeds, counts) = ((0..rows).map(|k| (k, (0, 0))).collect(), (0..rows).map(|k| (k, 0)).collect());
        Box::new(Loop { speeds, counts, seen: Map::default(), work }) as Box<dyn Plain>
    };
    Input { plan, tables, events, plain: Box::new(plain) }
}

struct Loop {
    /// Sum and number of reports.
    speeds: Map<i64, (i64, i64)>,
    counts: Map<i64, i64>,
    seen: Map<(i64, i64), i64>,
    work: i64,
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let [at, segment, vehicle, speed] = [0, 1, 2, 3].map(|c| column(events, c));
        let mut tolls: [Vec<i64>; 2] = std::array::from_fn(|_| Vec::with_capacity(events.num_rows()));
        let mut rejected = [const { Vec::new() }; 2];
        for i in 0..events.num_rows() {
            let Some((sum, reports)) = self.speeds.get_mut(&segment[i]) else { continue };
            match sum.checked_add(speed[i]) {
                Some(more) if more >= 0 => {
                    *sum = more + toil(*sum, self.work);
                    *reports += 1;
                }
                _ => {
                    rejected[0].push(at[i]);
                    rejected[1].push(*sum);
                }
            }
            let average = sum.div_euclid((*reports).max(1));
            let Some(vehicles) = self.counts.get_mut(&segment[i]) else { continue };
            let reports = self.seen.entry((segment[i], vehicle[i])).or_insert(0);
            *vehicles += i64::from(*reports == 0) + toil(*vehicles, self.work);
            *reports += 1;
            let excess = *vehicles - VEHICLES_FREE;
            let due = excess > 0 && average < SPEED_FREE;
            tolls[0].push(at[i]);
            tolls[1].push(if due { excess * excess * 2 } else { 0 });
        }
        let [at, toll] = tolls;
        let [rejected_at, seen] = rejected;
        vec![vec![("at", at), ("toll", toll)], vec![("at", rejected_at), ("road.sum", seen)]]
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        vec![
            self.speeds.iter().map(|(&key, &(sum, reports))| vec![key, sum, reports]).collect(),
            self.counts.iter().map(|(&key, &vehicles)| vec![key, vehicles]).collect(),
            self.seen.iter().map(|(&(segment, vehicle), &reports)| vec![segment, vehicle, reports]).collect(),
        ]
    }
}
