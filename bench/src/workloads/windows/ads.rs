//! Yahoo's streaming benchmark with its join: events carry an advertisement, and a table says of which campaign it is. The
//! table has ten advertisements for each campaign, and is full before the first event.
//!
//! The original has texts of 36 characters for both; here they are ints, those of advertisements anywhere in 64 bits.

use super::groups::{ByArray, ByMap, Groups, Index};
use super::query::{Query, Shape, count, end_of, int_table, tumbling, window};
use super::rows::Rows;
use super::views::{AT, KIND, KINDS, VIEW};
use crate::workloads::columns::{column, event_batch, ints};
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
use tidemill_random::{Random, Zipf, mix};

const ADS_PER_CAMPAIGN: u64 = 10;
const AD: usize = 3;

fn plan(shape: &Shape) -> Plan {
    let mut plan = PlanBuilder::new("views by campaign of advertisements")
        .table("ads", |t| t.key("ad", Type::Int).column("campaign", Type::Int))
        .source("events", |s| {
            let names = ["user", "page", "ad", "ad_type", "event_type", "ip"];
            names.into_iter().fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int))
        })
        .filter("views", named("events"), event("event_type").eq(VIEW))
        // A transaction stands for `views.map(lambda e, ad: {...}, ad=ads.read("ad"))` in a plan.
        .transaction("tagged", [named("views")], |t| {
            t.read("ad", "ads", [event("ad")])
                .body(|b| b.give([("at", event("at")), ("campaign", cell("ad", "campaign"))]))
        })
        .sink("counts", committed("per_campaign"))
        .build();
    let fields = [("end", event("end")), ("campaign", event("campaign")), ("views", count())];
    plan.transactions.push(window("per_campaign", committed("tagged"), &["campaign"], tumbling(shape), fields));
    plan
}

/// Returns the advertisement of a number.
fn ad(number: u64) -> i64 {
    mix(number) as i64
}

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let mut columns: Vec<Vec<i64>> = (0..7).map(|_| Vec::with_capacity(shape.events)).collect();
    for number in 0..shape.events {
        let [user, page] = [(); 2].map(|()| random.bits() as i64);
        let campaign = zipf.rank(|| random.unit());
        let ad = ad(campaign * ADS_PER_CAMPAIGN + random.below(ADS_PER_CAMPAIGN));
        let event = [shape.at(number), user, page, ad, 0, number as i64 % KINDS, 0];
        event.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    let events = event_batch(&plan, columns.into_iter().map(ints).collect());
    let numbers = 0..shape.groups * ADS_PER_CAMPAIGN;
    let campaigns = numbers.clone().map(|number| (number / ADS_PER_CAMPAIGN) as i64);
    let known = Arc::new(numbers.clone().map(ad).zip(campaigns.clone()).collect::<Map<i64, i64>>());
    let ads = int_table([("ad", numbers.map(ad).collect()), ("campaign", campaigns.collect())]);
    let (length, known_by_array) = (shape.length_ms(), known.clone());
    Query {
        plan,
        tables: vec![("ads", ads)],
        events,
        needed: &[AT, AD, KIND],
        by_map: Box::new(move |events| run::<ByMap>(events, &known, length)),
        by_array: Some(Box::new(move |events| run::<ByArray>(events, &known_by_array, length))),
    }
}

/// Groups are found by a map or an array; advertisements by a map in both.
fn run<I: Index>(events: &RecordBatch, ads: &Map<i64, i64>, length: i64) -> Output {
    let [at, ad, kind] = [AT, AD, KIND].map(|number| column(events, number));
    let mut counts = Rows::new(["end", "campaign", "views"]);
    let mut open = Groups::<I, i64>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, i64>, end: i64| {
        open.iter().for_each(|&(campaign, views)| counts.push([end, campaign, views]));
        open.clear();
    };
    for ((&at, ad), &kind) in at.iter().zip(ad).zip(kind) {
        if kind != VIEW {
            continue;
        }
        let Some(&campaign) = ads.get(ad) else { continue };
        if at >= end {
            close(&mut open, end);
            end = end_of(at, length);
        }
        *open.group(campaign) += 1;
    }
    close(&mut open, end);
    counts.output()
}
