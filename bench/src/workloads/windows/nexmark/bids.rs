//! The bids of NEXMark: 32 bytes, time, auction, bidder and price.

use super::super::query::{Shape, window};
use crate::workloads::columns::{event_batch, ints};
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, committed, named};
use tidemill_plan::{Expr, Plan, WindowsDef};
use tidemill_random::{Random, Zipf};

/// The columns.
pub const AT: usize = 0;
pub const AUCTION: usize = 1;
pub const BIDDER: usize = 2;
pub const PRICE: usize = 3;

/// A bid's price is below it.
const PRICE_MAX: u64 = 10_000_000;
/// Bids for each new person: of 50 events of NEXMark 46 are bids, 3 auctions, and 1 a person.
const BIDS_PER_PERSON: usize = 46;

/// Returns an application with one window over bids, whose results go out.
pub fn plan<const FIELDS: usize>(
    name: &str,
    window_name: &str,
    by: &[&str],
    windows: WindowsDef,
    fields: [(&'static str, Expr); FIELDS],
) -> Plan {
    let mut plan = PlanBuilder::new(name)
        .source("bids", |s| {
            let names = ["auction", "bidder", "price"];
            names.into_iter().fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int))
        })
        .sink("results", committed(window_name))
        .build();
    plan.transactions.push(window(window_name, named("bids"), by, windows, fields));
    plan
}

/// Bids: on `groups` auctions that do not change; by one of the last `groups` persons, of whom a new one comes after
/// every 46 bids and takes the place of the oldest.
pub fn bids(plan: &Plan, shape: &Shape) -> RecordBatch {
    let mut random = Random::new(42);
    let zipf = Zipf::new(shape.groups, shape.theta);
    let mut columns: Vec<Vec<i64>> = (0..4).map(|_| Vec::with_capacity(shape.events)).collect();
    for number in 0..shape.events {
        let auction = zipf.rank(|| random.unit()) as i64;
        let newest = (number / BIDS_PER_PERSON) as i64 + shape.groups as i64 - 1;
        let bidder = newest - zipf.rank(|| random.unit()) as i64;
        let bid = [shape.at(number), auction, bidder, random.below(PRICE_MAX) as i64];
        bid.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    event_batch(plan, columns.into_iter().map(ints).collect())
}
