//! NEXMark q4, q6 and q9, which are about auctions that have closed: the mean price by category, the mean of the last ten
//! prices by seller, and the bids that won.
//!
//! An auction is a row that is woken when it has expired. The bid that won is the first of the highest of those that came
//! from the auction up to its expiry; without one, an auction gives nothing. Each closing gives a new mean; as for
//! windows, what is given is final.

use super::super::query::{Query, Shape};
use super::super::rows::Rows;
use super::events::{
    AT, AUCTION, AUCTIONED, BID, BIDDER, CATEGORY, EXPIRES, ID, ITEM, KIND, PRICE, SELLER, events, of, plan, stream,
};
use crate::workloads::columns::zero;
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, committed, event, exists, local, record, window, woken};
use tidemill_plan::{Aggregate, WindowDef};

/// Below all prices.
const NONE: i64 = -1;
/// The fields that are kept of an auction, and of its highest bid.
const OF_AUCTION: [&str; 4] = ["item", "seller", "category", "expires"];
const OF_BID: [&str; 3] = ["bidder", "price", "bid_at"];
/// q6: the prices of a seller of which the mean is taken.
const LAST: usize = 10;

/// Returns a plan whose transaction `close` gives the bids that won.
fn closing(name: &str) -> PlanBuilder {
    plan(name, &[AUCTIONED, BID])
        .table("auctions", |t| {
            let t = t.key("id", Type::Int);
            let t = OF_AUCTION.iter().fold(t, |t, name| t.column_or(*name, Type::Int, zero()));
            OF_BID.iter().fold(t, |t, name| t.column_or(*name, Type::Int, Value::Int(NONE)))
        })
        .transaction("open", [stream(AUCTIONED)], |t| {
            t.create("auction", "auctions", [event("id")]).body(|b| {
                OF_AUCTION.iter().for_each(|name| b.set("auction", name, event(*name)));
                b.wake("auction", Some(event("expires") + 1));
            })
        })
        .transaction("bid", [stream(BID)], |t| {
            t.create("auction", "auctions", [event("auction")]).body(|b| {
                let is_higher = exists("auction").and(event("price").gt(cell("auction", "price")));
                b.when(is_higher, |b| {
                    b.set("auction", "bidder", event("bidder"));
                    b.set("auction", "price", event("price"));
                    b.set("auction", "bid_at", event("at"));
                });
            })
        })
        .transaction("close", [woken("auctions")], |t| {
            t.row("auction", "auctions", [event("id")]).body(|b| {
                let known = || OF_AUCTION.iter().chain(&OF_BID);
                known().for_each(|name| b.assign(*name, cell("auction", *name)));
                b.delete("auction");
                b.when(local("price").gt(NONE), |b| {
                    let of_row = known().map(|&name| (name, local(name)));
                    b.give(record([("auction", event("id"))].into_iter().chain(of_row)));
                });
            })
        })
}

/// The auctions that are open, for the loops.
#[derive(Default)]
struct Open {
    /// The row of each auction, and the row and the price of its highest bid.
    auctions: Map<i64, (usize, usize, i64)>,
    due: BinaryHeap<Reverse<(i64, i64)>>,
}

/// Goes over the events; `won` is called with the rows of an auction and of the bid that won it, in order.
fn run(batch: &RecordBatch, mut won: impl FnMut(usize, usize)) {
    let [at, kind, id, expires, auction, price] = of(batch, [AT, KIND, ID, EXPIRES, AUCTION, PRICE]);
    let mut open = Open::default();
    for row in 0..at.len() {
        while let Some(&Reverse((due, id))) = open.due.peek()
            && due <= at[row]
        {
            open.due.pop();
            let (auction, bid, price) = open.auctions.remove(&id).expect("it is open until it is due");
            if price > NONE {
                won(auction, bid);
            }
        }
        match kind[row] {
            AUCTIONED => {
                open.auctions.insert(id[row], (row, row, NONE));
                open.due.push(Reverse((expires[row] + 1, id[row])));
            }
            BID => {
                if let Some((_, bid, highest)) = open.auctions.get_mut(&auction[row])
                    && price[row] > *highest
                {
                    (*bid, *highest) = (row, price[row]);
                }
            }
            _ => {}
        }
    }
}

/// q9: the bids that won.
pub fn winning(shape: &Shape) -> Query {
    let plan = closing("winning bids").sink("results", committed("close")).build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, ID, SELLER, CATEGORY, EXPIRES, ITEM, AUCTION, BIDDER, PRICE];
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run_winning), by_array: None }
}

fn run_winning(batch: &RecordBatch) -> Output {
    let [at, id, item, seller, category, expires] = of(batch, [AT, ID, ITEM, SELLER, CATEGORY, EXPIRES]);
    let [bidder, price] = of(batch, [BIDDER, PRICE]);
    let mut rows = Rows::new(["auction", "item", "seller", "category", "expires", "bidder", "price", "bid_at"]);
    run(batch, |a, bid| {
        rows.push([id[a], item[a], seller[a], category[a], expires[a], bidder[bid], price[bid], at[bid]]);
    });
    rows.output()
}

/// q4: after each closing, the mean price of the auctions of its category.
pub fn by_category(shape: &Shape) -> Query {
    let plan = closing("mean price by category")
        .table("categories", |t| {
            ["sum", "closed"].iter().fold(t.key("id", Type::Int), |t, name| t.column_or(*name, Type::Int, zero()))
        })
        .transaction("average", [committed("close")], |t| {
            t.create("category", "categories", [event("category")]).body(|b| {
                b.set("category", "sum", cell("category", "sum") + event("price"));
                b.set("category", "closed", cell("category", "closed") + 1);
                let mean = cell("category", "sum") / cell("category", "closed");
                b.give([("category", event("category")), ("price", mean)]);
            })
        })
        .sink("results", committed("average"))
        .build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, ID, CATEGORY, EXPIRES, AUCTION, PRICE];
    let by_map = Box::new(|batch: &RecordBatch| {
        let [category, price] = of(batch, [CATEGORY, PRICE]);
        let mut rows = Rows::new(["category", "price"]);
        let mut sums: Map<i64, (i64, i64)> = Map::default();
        run(batch, |auction, bid| {
            let (sum, closed) = sums.entry(category[auction]).or_default();
            *sum += price[bid];
            *closed += 1;
            rows.push([category[auction], (*sum as f64 / *closed as f64).to_bits() as i64]);
        });
        rows.output()
    });
    Query { plan, tables: vec![], events, needed, by_map, by_array: None }
}

/// q6: after each closing, the mean price of the last ten auctions of its seller.
pub fn by_seller(shape: &Shape) -> Query {
    let plan = closing("mean price by seller")
        .table("sellers", |t| t.key("id", Type::Int).window("prices", Type::Int, WindowDef::Last(LAST as i64)))
        .transaction("average", [committed("close")], |t| {
            t.create("seller", "sellers", [event("seller")]).body(|b| {
                b.add("seller", "prices", event("price"));
                let mean = window("seller", "prices", None, Aggregate::Mean);
                b.give([("seller", event("seller")), ("price", mean)]);
            })
        })
        .sink("results", committed("average"))
        .build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, ID, SELLER, EXPIRES, AUCTION, PRICE];
    let by_map = Box::new(|batch: &RecordBatch| {
        let [seller, price] = of(batch, [SELLER, PRICE]);
        let mut rows = Rows::new(["seller", "price"]);
        let mut sellers: Map<i64, VecDeque<i64>> = Map::default();
        run(batch, |auction, bid| {
            let prices = sellers.entry(seller[auction]).or_default();
            if prices.len() == LAST {
                prices.pop_front();
            }
            prices.push_back(price[bid]);
            let mean = prices.iter().sum::<i64>() as f64 / prices.len() as f64;
            rows.push([seller[auction], mean.to_bits() as i64]);
        });
        rows.output()
    });
    Query { plan, tables: vec![], events, needed, by_map, by_array: None }
}
