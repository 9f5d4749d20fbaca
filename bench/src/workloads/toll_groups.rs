//! Toll Processing in two groups of roads (MorphStream §6.2.3): on those of the first, access is skewed and reports
//! abort, by the knobs; on those of the second it is uniform and none do. Half of the reports are of each. Tables are
//! keyed by group and segment, and declare that keys are grouped by the first.
//!
//! Road Speed and Vehicle Count are one transaction here, and the toll is what it returns, so that there is one
//! verdict on a report: a doomed one, which would make a sum of speeds negative, does nothing.

use super::columns::{column, event_batch, ints, zero};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::RecordBatch;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Type};
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, event, named};

const SPEED_MAX: u64 = 120;
const TOO_SLOW: i64 = -1 << 50;
const GROUPS: usize = 2;

/// Returns the application.
pub fn plan(work: i64) -> Plan {
    let table = |name: &'static str| {
        move |t: tidemill_plan::build::TableBuilder| {
            t.key("region", Type::Int)
                .key("segment", Type::Int)
                .column_or(name, Type::Int, zero())
                .key_groups("region", GROUPS)
        }
    };
    PlanBuilder::new("toll processing in groups")
        .table("speeds", table("sum"))
        .table("counts", table("reports"))
        .source("reports", |s| {
            let s = s.event_time("at", Type::Int);
            ["region", "segment", "speed"].into_iter().fold(s, |s, name| s.field(name, Type::Int))
        })
        .transaction("report", [named("reports")], |t| {
            let key = || [event("region"), event("segment")];
            t.row("road", "speeds", key()).row("count", "counts", key()).body(|b| {
                b.require((cell("road", "sum") + event("speed")).ge(0), "negative speed");
                let sum = cell("road", "sum") + event("speed");
                let sum = with_udf(b, "speed_function", cell("road", "sum"), work, sum);
                b.set("road", "sum", sum);
                let reports = cell("count", "reports") + 1;
                let reports = with_udf(b, "count_function", cell("count", "reports"), work, reports);
                b.set("count", "reports", reports);
                b.give([("at", event("at")), ("sum", cell("road", "sum")), ("reports", cell("count", "reports"))]);
            })
        })
        .sink("tolls", committed("report"))
        .sink("rejected", aborted("report"))
        .build()
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs) -> Input {
    let plan = plan(knobs.work);
    let mut random = Random::new(42);
    let zipfs = [Zipf::new(knobs.rows, knobs.theta), Zipf::new(knobs.rows, 0.0)];
    let mut columns: Vec<Vec<i64>> = (0..4).map(|_| Vec::with_capacity(knobs.events)).collect();
    for at in 0..knobs.events {
        let region = random.below(GROUPS as u64) as usize;
        let doomed = region == 0 && random.unit() < knobs.abort;
        let segment = zipfs[region].key(&mut random) as i64;
        let speed = if doomed { TOO_SLOW } else { random.below(SPEED_MAX) as i64 };
        [at as i64, region as i64, segment, speed].into_iter().zip(&mut columns).for_each(|(value, c)| c.push(value));
    }
    let events = event_batch(&plan, columns.into_iter().map(ints).collect());
    let (rows, work) = (knobs.rows as i64, knobs.work);
    let keys = move || (0..GROUPS as i64).flat_map(move |region| (0..rows).map(move |segment| (region, segment)));
    let table = |table: usize| {
        let columns = plan.tables[table].columns.iter().map(|column| (column.name.as_str(), column.ty));
        let (regions, segments) = keys().unzip();
        let arrays = vec![ints(regions), ints(segments), ints(vec![0; GROUPS * rows as usize])];
        RecordBatch::try_new(arrow_schema(&Schema::scalars(columns)), arrays).expect("columns of the table")
    };
    let tables = vec![table(0), table(1)];
    let plain = move || {
        let all = || keys().map(|key| (key, 0)).collect();
        Box::new(Loop { speeds: all(), counts: all(), work }) as Box<dyn Plain>
    };
    Input { plan, tables, events, plain: Box::new(plain) }
}

struct Loop {
    speeds: Map<(i64, i64), i64>,
    counts: Map<(i64, i64), i64>,
    work: i64,
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let [at, region, segment, speed] = [0, 1, 2, 3].map(|c| column(events, c));
        let mut tolls: [Vec<i64>; 3] = std::array::from_fn(|_| Vec::with_capacity(events.num_rows()));
        let mut rejected = [const { Vec::new() }; 2];
        for i in 0..events.num_rows() {
            let key = (region[i], segment[i]);
            let (Some(sum), Some(reports)) = (self.speeds.get_mut(&key), self.counts.get_mut(&key)) else { continue };
            let Some(more) = sum.checked_add(speed[i]).filter(|more| *more >= 0) else {
                rejected[0].push(at[i]);
                rejected[1].push(*sum);
                continue;
            };
            *sum = more + toil(*sum, self.work);
            *reports += 1 + toil(*reports, self.work);
            [at[i], *sum, *reports].into_iter().zip(&mut tolls).for_each(|(value, column)| column.push(value));
        }
        let [at, sum, reports] = tolls;
        let [rejected_at, seen] = rejected;
        vec![vec![("at", at), ("sum", sum), ("reports", reports)], vec![("at", rejected_at), ("road.sum", seen)]]
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        let rows = |map: &Map<(i64, i64), i64>| map.iter().map(|(&(region, key), &n)| vec![region, key, n]).collect();
        vec![rows(&self.speeds), rows(&self.counts)]
    }
}
