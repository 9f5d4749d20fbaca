//! The first aggregation of Linear Road alone: the mean speed of the reports of each segment, in tumbling windows of a minute.

use super::super::baselines::{Aggregation, Baseline, Part, SmallMean};
use super::super::groups::{ByArray, ByMap, Groups, Index};
use super::super::query::{Query, Shape, end_of, of, tumbling, window};
use super::super::rows::Rows;
use super::{FIELDS, SEGMENT, cars};
use crate::workloads::columns::column;
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, committed, event, named};
use tidemill_plan::{Plan, WindowFunction};

const AT: usize = 0;
const SPEED: usize = 2;
const PLACE: [usize; 3] = [3, 4, 5];
const NAMES: [&str; 5] = ["end", "road", "dir", "seg", "speed"];

fn plan(shape: &Shape) -> Plan {
    let mut plan = PlanBuilder::new("speeds by segment")
        .source("reports", |s| {
            FIELDS[1..].iter().fold(s.event_time(FIELDS[0], Type::Int), |s, name| s.field(*name, Type::Int))
        })
        .sink("speeds", committed("per_segment"))
        .build();
    let [end, road, dir, seg] = ["end", "road", "dir", "seg"].map(|name| (name, event(name)));
    let fields = [end, road, dir, seg, ("speed", of(WindowFunction::Mean, "speed"))];
    plan.transactions.push(window("per_segment", named("reports"), &SEGMENT, tumbling(shape), fields));
    plan
}

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let events = cars::reports(&plan, shape);
    let length = shape.length_ms();
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, SPEED, PLACE[0], PLACE[1], PLACE[2]],
        by_map: Box::new(move |events| run::<ByMap>(&Reports::of(events), length)),
        by_array: Some(Box::new(move |events| run::<ByArray>(&Reports::of(events), length))),
    }
}

fn run<I: Index>(reports: &Reports, length: i64) -> Output {
    let mut rows = Rows::new(NAMES);
    let mut open = Groups::<I, SmallMean>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, SmallMean>, end: i64| {
        open.iter().for_each(|&(segment, speeds)| rows.push(reports.row(end, segment, speeds)));
        open.clear();
    };
    for (report, &at) in reports.at.iter().enumerate() {
        if at >= end {
            close(&mut open, end);
            end = end_of(at, length);
        }
        open.group(reports.key(report)).add(reports.value(report));
    }
    close(&mut open, end);
    rows.output()
}

/// Runs a baseline.
pub fn parallel(shape: &Shape, events: &RecordBatch, baseline: Baseline, workers: usize) -> Vec<Output> {
    baseline.run(&Reports::of(events), shape.length_ms(), shape.groups_max(1), workers)
}

struct Reports<'a> {
    at: &'a [i64],
    speed: &'a [i64],
    place: [&'a [i64]; 3],
}

impl<'a> Reports<'a> {
    fn of(events: &'a RecordBatch) -> Self {
        let place = PLACE.map(|number| column(events, number));
        Reports { at: column(events, AT), speed: column(events, SPEED), place }
    }
}

/// A road has fewer segments than this in a direction.
const SEGMENTS_MAX: i64 = 128;

impl Aggregation<5> for Reports<'_> {
    type Part = SmallMean;

    #[inline(always)]
    fn times(&self) -> &[i64] {
        self.at
    }

    #[inline(always)]
    fn key(&self, report: usize) -> i64 {
        let [road, dir, seg] = self.place.map(|column| column[report]);
        (road * 2 + dir) * SEGMENTS_MAX + seg
    }

    #[inline(always)]
    fn value(&self, report: usize) -> i64 {
        self.speed[report]
    }

    fn names(&self) -> [&'static str; 5] {
        NAMES
    }

    fn row(&self, end: i64, segment: i64, speeds: SmallMean) -> [i64; 5] {
        let place = segment / SEGMENTS_MAX;
        [end, place / 2, place % 2, segment % SEGMENTS_MAX, speeds.bits()]
    }
}
