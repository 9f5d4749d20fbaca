//! NEXMark q7: the highest bid of each tumbling window, the first of equals. One group, so every event changes one row. And the
//! thesis' NB7 (4.7): the highest price of each auction in each tumbling window.

use super::super::baselines::{Aggregation, Baseline, Best};
use super::super::groups::{ByArray, ByMap, Groups, Index};
use super::super::query::{Query, Shape, argmax, end_of, of, tumbling};
use super::super::rows::Rows;
use super::bids::{AT, AUCTION, PRICE, bids, plan};
use crate::workloads::columns::column;
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_plan::WindowFunction;
use tidemill_plan::build::event;

/// NB7: plan, events and loops.
pub fn by_auction(shape: &Shape) -> Query {
    let highest = ("price", of(WindowFunction::Max, "price"));
    let fields = [("end", event("end")), ("auction", event("auction")), highest];
    let plan = plan("highest bids", "result", &["auction"], tumbling(shape), fields);
    let events = bids(&plan, shape);
    let length = shape.length_ms();
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, AUCTION, PRICE],
        by_map: Box::new(move |events| run_by_auction::<ByMap>(events, length)),
        by_array: Some(Box::new(move |events| run_by_auction::<ByArray>(events, length))),
    }
}

/// Prices are above 0 or are it, so none yet is below all.
fn run_by_auction<I: Index>(events: &RecordBatch, length: i64) -> Output {
    let [at, auction, price] = [AT, AUCTION, PRICE].map(|number| column(events, number));
    let mut rows = Rows::new(["end", "auction", "price"]);
    let mut open = Groups::<I, i64>::default();
    let mut end = i64::MIN;
    let mut close = |open: &mut Groups<I, i64>, end: i64| {
        open.iter().for_each(|&(auction, price)| rows.push([end, auction, price]));
        open.clear();
    };
    for ((&at, &auction), &price) in at.iter().zip(auction).zip(price) {
        if at >= end {
            close(&mut open, end);
            end = end_of(at, length);
        }
        let highest = open.group(auction);
        *highest = price.max(*highest);
    }
    close(&mut open, end);
    rows.output()
}

/// q7: plan, events and the loop.
pub fn query(shape: &Shape) -> Query {
    let fields =
        [("end", event("end")), ("auction", argmax("price", "auction")), ("price", of(WindowFunction::Max, "price"))];
    let plan = plan("highest bid", "result", &[], tumbling(shape), fields);
    let events = bids(&plan, shape);
    let length = shape.length_ms();
    let by_map = Box::new(move |events: &RecordBatch| run(events, length));
    Query { plan, tables: vec![], events, needed: &[AT, AUCTION, PRICE], by_map, by_array: None }
}

/// Runs the query; it has no groups, so that there is no map.
fn run(events: &RecordBatch, length: i64) -> Output {
    let [at, auction, price] = [AT, AUCTION, PRICE].map(|number| column(events, number));
    let [mut ends, mut auctions, mut prices] = [(); 3].map(|()| Vec::new());
    let mut close = |best: usize, end: i64| {
        ends.push(end);
        auctions.push(auction[best]);
        prices.push(price[best]);
    };
    let Some(&first) = at.first() else { return vec![("end", ends)] };
    let (mut best, mut highest, mut end) = (0, price[0], end_of(first, length));
    for (bid, (&at, &price)) in at.iter().zip(price).enumerate() {
        if at >= end {
            close(best, end);
            (best, highest, end) = (bid, price, end_of(at, length));
        } else if price > highest {
            (best, highest) = (bid, price);
        }
    }
    close(best, end);
    vec![("end", ends), ("auction", auctions), ("price", prices)]
}

/// Runs a baseline.
pub fn parallel(shape: &Shape, events: &RecordBatch, baseline: Baseline, workers: usize) -> Vec<Output> {
    let [at, auction, price] = [AT, AUCTION, PRICE].map(|number| column(events, number));
    baseline.run(&Bids { at, auction, price }, shape.length_ms(), 1, workers)
}

struct Bids<'a> {
    at: &'a [i64],
    auction: &'a [i64],
    price: &'a [i64],
}

/// All bids are of one group.
impl Aggregation<3> for Bids<'_> {
    type Part = Best;

    #[inline(always)]
    fn times(&self) -> &[i64] {
        self.at
    }

    fn key(&self, _bid: usize) -> i64 {
        0
    }

    #[inline(always)]
    fn value(&self, bid: usize) -> (i64, usize) {
        (self.price[bid], bid)
    }

    fn names(&self) -> [&'static str; 3] {
        ["end", "auction", "price"]
    }

    fn row(&self, end: i64, _key: i64, best: Best) -> [i64; 3] {
        [end, self.auction[best.event()], self.price[best.event()]]
    }
}
