//! NEXMark q18 and q19: the last bid of each bidder on each auction, and the ten highest bids on each auction. The suite
//! gives a table that changes; here that is a table, and what comes out says how each bid changes it.

use super::super::query::{Query, Shape};
use super::super::rows::Rows;
use super::events::{AT, AUCTION, BID, BIDDER, CHANNEL, KIND, PRICE, events, of, plan, stream};
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{cell, committed, event, if_else, local, record};

/// Below all prices.
const NONE: i64 = -1;

/// q18: each bid takes the place of the one before of its bidder on its auction, whose price it gives, or −1.
pub fn last_bids(shape: &Shape) -> Query {
    let given = ["auction", "bidder", "price", "channel", "at"];
    let kept = ["price", "channel", "at"];
    let plan = plan("last bids", &[BID])
        .table("bids", |t| {
            let t = t.key("auction", Type::Int).key("bidder", Type::Int);
            kept.iter().fold(t, |t, name| t.column_or(*name, Type::Int, Value::Int(NONE)))
        })
        .transaction("replace", [stream(BID)], |t| {
            t.create("last", "bids", [event("auction"), event("bidder")]).body(|b| {
                b.assign("before", cell("last", "price"));
                kept.iter().for_each(|name| b.set("last", name, event(*name)));
                let fields = given.into_iter().map(|name| (name, event(name)));
                b.give(record(fields.chain([("before", local("before"))])));
            })
        })
        .sink("results", committed("replace"))
        .build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, AUCTION, BIDDER, PRICE, CHANNEL];
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run_last_bids), by_array: None }
}

fn run_last_bids(events: &RecordBatch) -> Output {
    let [at, kind, auction, bidder, price, channel] = of(events, [AT, KIND, AUCTION, BIDDER, PRICE, CHANNEL]);
    let mut rows = Rows::new(["auction", "bidder", "price", "channel", "at", "before"]);
    let mut last: Map<(i64, i64), [i64; 3]> = Map::default();
    for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
        let now = [price[bid], channel[bid], at[bid]];
        let before = last.insert((auction[bid], bidder[bid]), now).map_or(NONE, |before| before[0]);
        rows.push([auction[bid], bidder[bid], price[bid], channel[bid], at[bid], before]);
    }
    rows.output()
}

/// The number of ranks that q19 gives.
const TOP: usize = 10;

/// q19: each bid that is among the ten highest of its auction when it comes, with its rank from 1 on; of equals the earlier is
/// higher. Those of its rank and below fall by one.
pub fn highest_bids(shape: &Shape) -> Query {
    let names: [String; TOP] = std::array::from_fn(|place| format!("price_{place}"));
    let price = |place: usize| cell("top", names[place].as_str());
    let plan = plan("highest bids", &[BID])
        .table("tops", |t| {
            names.iter().fold(t.key("auction", Type::Int), |t, name| t.column_or(name, Type::Int, Value::Int(NONE)))
        })
        .transaction("place", [stream(BID)], |t| {
            t.create("top", "tops", [event("auction")]).body(|b| {
                let is_higher = |place| if_else(price(place).ge(event("price")), 1, 0);
                let higher = (0..TOP).map(is_higher).reduce(|sum, one| sum + one).expect("places");
                b.assign("higher", higher);
                b.when(local("higher").lt(TOP as i64), |b| {
                    for place in (0..TOP).rev() {
                        let number = place as i64;
                        let own = if_else(local("higher").eq(number), event("price"), price(place));
                        let before =
                            if place == 0 { own } else { if_else(local("higher").lt(number), price(place - 1), own) };
                        b.set("top", &names[place], before);
                    }
                    let fields = ["auction", "bidder", "price", "at"].map(|name| (name, event(name)));
                    b.give(record(fields.into_iter().chain([("rank", local("higher") + 1)])));
                });
            })
        })
        .sink("results", committed("place"))
        .build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, AUCTION, BIDDER, PRICE];
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run_highest_bids), by_array: None }
}

fn run_highest_bids(events: &RecordBatch) -> Output {
    let [at, kind, auction, bidder, price] = of(events, [AT, KIND, AUCTION, BIDDER, PRICE]);
    let mut rows = Rows::new(["auction", "bidder", "price", "at", "rank"]);
    let mut tops: Map<i64, [i64; TOP]> = Map::default();
    for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
        let top = tops.entry(auction[bid]).or_insert([NONE; TOP]);
        let place = top.partition_point(|&higher| higher >= price[bid]);
        if place < TOP {
            top[place..].rotate_right(1);
            top[place] = price[bid];
            rows.push([auction[bid], bidder[bid], price[bid], at[bid], place as i64 + 1]);
        }
    }
    rows.output()
}
