//! Yahoo's streaming benchmark, without its join: the events are views, clicks and purchases, each a third, and carry
//! their campaign. Views are counted by campaign in tumbling windows.
//!
//! The record's 78 bytes hold texts of 16 bytes; here all fields are ints. `ads` has the variant with the join.

use super::baselines::{Aggregation, Baseline, Count};
use super::groups::{ByArray, ByMap, Groups, Index};
use super::query::{Query, Shape, count, end_of, tumbling, window};
use crate::workloads::columns::{column, event_batch, ints};
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, committed, event, named};
use tidemill_random::{Random, Zipf};

pub(super) const VIEW: i64 = 0;
pub(super) const KINDS: i64 = 3;
pub(super) const AT: usize = 0;
const CAMPAIGN: usize = 3;
pub(super) const KIND: usize = 5;

fn plan(shape: &Shape) -> Plan {
    let mut plan = PlanBuilder::new("views by campaign")
        .source("events", |s| {
            let names = ["user", "page", "campaign", "ad_type", "event_type", "ip"];
            names.into_iter().fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int))
        })
        .filter("views", named("events"), event("event_type").eq(VIEW))
        .sink("counts", committed("per_campaign"))
        .build();
    let fields = [("end", event("end")), ("campaign", event("campaign")), ("views", count())];
    plan.transactions.push(window("per_campaign", named("views"), &["campaign"], tumbling(shape), fields));
    plan
}

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let mut columns: Vec<Vec<i64>> = (0..7).map(|_| Vec::with_capacity(shape.events)).collect();
    for number in 0..shape.events {
        let [user, page] = [(); 2].map(|()| random.bits() as i64);
        let campaign = zipf.rank(|| random.unit()) as i64;
        let event = [shape.at(number), user, page, campaign, 0, number as i64 % KINDS, 0];
        event.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    let events = event_batch(&plan, columns.into_iter().map(ints).collect());
    let length = shape.length_ms();
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, CAMPAIGN, KIND],
        by_map: Box::new(move |events| run::<ByMap>(events, length)),
        by_array: Some(Box::new(move |events| run::<ByArray>(events, length))),
    }
}

fn run<I: Index>(events: &RecordBatch, length: i64) -> Output {
    let [at, campaign, kind] = [AT, CAMPAIGN, KIND].map(|number| column(events, number));
    let [mut ends, mut campaigns, mut views] = [(); 3].map(|()| Vec::new());
    let mut open = Groups::<I, i64>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, i64>, end: i64| {
        for &(campaign, count) in open.iter() {
            ends.push(end);
            campaigns.push(campaign);
            views.push(count);
        }
        open.clear();
    };
    for ((&at, &campaign), &kind) in at.iter().zip(campaign).zip(kind) {
        if kind != VIEW {
            continue;
        }
        if at >= end {
            close(&mut open, end);
            end = end_of(at, length);
        }
        *open.group(campaign) += 1;
    }
    close(&mut open, end);
    vec![("end", ends), ("campaign", campaigns), ("views", views)]
}

/// Runs a baseline.
pub fn parallel(shape: &Shape, events: &RecordBatch, baseline: Baseline, workers: usize) -> Vec<Output> {
    let [at, campaign, kind] = [AT, CAMPAIGN, KIND].map(|number| column(events, number));
    baseline.run(&Views { at, campaign, kind }, shape.length_ms(), shape.groups_max(KINDS as u64), workers)
}

struct Views<'a> {
    at: &'a [i64],
    campaign: &'a [i64],
    kind: &'a [i64],
}

impl Aggregation<3> for Views<'_> {
    type Part = Count;

    #[inline(always)]
    fn times(&self) -> &[i64] {
        self.at
    }

    #[inline(always)]
    fn passes(&self, event: usize) -> bool {
        self.kind[event] == VIEW
    }

    #[inline(always)]
    fn key(&self, event: usize) -> i64 {
        self.campaign[event]
    }

    fn value(&self, _event: usize) {}

    fn names(&self) -> [&'static str; 3] {
        ["end", "campaign", "views"]
    }

    fn row(&self, end: i64, campaign: i64, Count(views): Count) -> [i64; 3] {
        [end, campaign, views]
    }
}
