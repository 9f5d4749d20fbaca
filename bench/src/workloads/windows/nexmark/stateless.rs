//! NEXMark q0, q1 and q2, which keep nothing: bids as they are, with their price in another currency, and on some auctions.

use super::super::query::{Query, Shape};
use super::super::rows::Rows;
use super::events::{AT, AUCTION, BID, BIDDER, CHANNEL, KIND, PRICE, events, of, plan, stream};
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_plan::Function;
use tidemill_plan::build::{PlanBuilder, event, named, record};

/// q1: euros for a dollar.
const RATE: f64 = 0.908;
/// q2: the auctions whose number this divides.
const DIVISOR: i64 = 123;

fn query(plan: PlanBuilder, shape: &Shape, needed: &'static [usize], run: fn(&RecordBatch) -> Output) -> Query {
    let plan = plan.sink("results", named("result")).build();
    let events = events(&plan, shape);
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run), by_array: None }
}

/// q0: every bid.
pub fn copy(shape: &Shape) -> Query {
    let fields = ["auction", "bidder", "price", "channel", "at"].map(|name| (name, event(name)));
    let plan = plan("every bid", &[BID]).map("result", stream(BID), record(fields));
    query(plan, shape, &[AT, KIND, AUCTION, BIDDER, PRICE, CHANNEL], |events| {
        let [at, kind, auction, bidder, price, channel] = of(events, [AT, KIND, AUCTION, BIDDER, PRICE, CHANNEL]);
        let mut rows = Rows::new(["auction", "bidder", "price", "channel", "at"]);
        for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
            rows.push([auction[bid], bidder[bid], price[bid], channel[bid], at[bid]]);
        }
        rows.output()
    })
}

/// q1: every bid in euros.
pub fn currency(shape: &Shape) -> Query {
    let euros = event("price").call(Function::Float, []) * RATE;
    let fields = [("auction", event("auction")), ("bidder", event("bidder")), ("price", euros), ("at", event("at"))];
    let plan = plan("bids in euros", &[BID]).map("result", stream(BID), record(fields));
    query(plan, shape, &[AT, KIND, AUCTION, BIDDER, PRICE], |events| {
        let [at, kind, auction, bidder, price] = of(events, [AT, KIND, AUCTION, BIDDER, PRICE]);
        let mut rows = Rows::new(["auction", "bidder", "price", "at"]);
        for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
            let euros = price[bid] as f64 * RATE;
            rows.push([auction[bid], bidder[bid], euros.to_bits() as i64, at[bid]]);
        }
        rows.output()
    })
}

/// q2: bids on some auctions.
pub fn selection(shape: &Shape) -> Query {
    let plan = plan("bids on some auctions", &[BID])
        .filter("some", stream(BID), (event("auction") % DIVISOR).eq(0))
        .map("result", named("some"), record(["auction", "price"].map(|name| (name, event(name)))));
    query(plan, shape, &[KIND, AUCTION, PRICE], |events| {
        let [kind, auction, price] = of(events, [KIND, AUCTION, PRICE]);
        let mut rows = Rows::new(["auction", "price"]);
        for bid in (0..kind.len()).filter(|&row| kind[row] == BID && auction[row] % DIVISOR == 0) {
            rows.push([auction[bid], price[bid]]);
        }
        rows.output()
    })
}
