//! NEXMark q15, q16 and q17: bids of a day, counted in three ranks of prices; of all, by channel and by auction. The suite
//! gives a new row for each bid; a window gives the last one, when the day is over.

use super::super::groups::{ByMap, Groups};
use super::super::query::{Query, Shape, count, end_of, of as aggregate, tumbling, window};
use super::super::rows::Rows;
use super::events::{AT, AUCTION, BID, BIDDER, CHANNEL, KIND, PRICE, events, of, plan, stream};
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use tidemill_plan::build::{committed, event, if_else, literal, none};
use tidemill_plan::{Expr, ExprNode, WindowFunction};

/// Prices below the first are of rank 1, from the second on of rank 3.
const BOUNDS: [i64; 2] = [10_000, 1_000_000];
const MINUTE: i64 = 60_000;

/// Returns the rank of a price, from 0 on.
fn rank_of(price: i64) -> usize {
    BOUNDS.iter().filter(|&&bound| price >= bound).count()
}

/// Tests whether a bid is of a rank.
fn is_of(rank: usize) -> Expr {
    let from = |bound: i64| event("price").ge(bound);
    match rank {
        0 => event("price").lt(BOUNDS[0]),
        1 => from(BOUNDS[0]).and(event("price").lt(BOUNDS[1])),
        _ => from(BOUNDS[1]),
    }
}

/// Returns an aggregate of the bids of a rank.
fn ranked(function: WindowFunction, value: Expr, rank: usize) -> Expr {
    let value = Some(Box::new(if_else(is_of(rank), value, none())));
    ExprNode::Aggregate { function, value, by: None, argument: None }.into()
}

/// Returns the number of bids of each rank.
fn counts() -> [Expr; 3] {
    [0, 1, 2].map(|rank| ranked(WindowFunction::Count, literal(1), rank))
}

/// Returns the numbers of different values, in all and of each rank.
fn distinct(field: &str) -> [Expr; 4] {
    let of_rank = |rank| ranked(WindowFunction::Distinct, event(field), rank);
    [aggregate(WindowFunction::Distinct, field), of_rank(0), of_rank(1), of_rank(2)]
}

const BIDS: [&str; 4] = ["bids", "bids_1", "bids_2", "bids_3"];
const BIDDERS: [&str; 4] = ["bidders", "bidders_1", "bidders_2", "bidders_3"];
const AUCTIONS: [&str; 4] = ["auctions", "auctions_1", "auctions_2", "auctions_3"];

/// Returns the fields that q15 and q16 have in common: 12 numbers.
fn numbers() -> [(&'static str, Expr); 12] {
    let [low, middle, high] = counts();
    let values = [[count(), low, middle, high], distinct("bidder"), distinct("auction")];
    let mut fields = [BIDS, BIDDERS, AUCTIONS].concat().into_iter().zip(values.concat());
    std::array::from_fn(|_| fields.next().expect("twelve fields"))
}

fn query<const FIELDS: usize>(
    name: &str,
    shape: &Shape,
    by: &[&str],
    fields: [(&'static str, Expr); FIELDS],
    run: fn(&RecordBatch, i64) -> Output,
) -> Query {
    let mut plan = plan(name, &[BID]).sink("results", committed("report")).build();
    plan.transactions.push(window("report", stream(BID), by, tumbling(shape), fields));
    let events = events(&plan, shape);
    let length = shape.length_ms();
    let by_map = Box::new(move |events: &RecordBatch| run(events, length));
    let needed = &[AT, KIND, AUCTION, BIDDER, PRICE, CHANNEL];
    Query { plan, tables: vec![], events, needed, by_map, by_array: None }
}

/// Different values, in all and of each rank.
#[derive(Default)]
struct Different([HashSet<i64, FixedState>; 4]);

impl Different {
    fn add(&mut self, rank: usize, value: i64) {
        self.0[0].insert(value);
        self.0[1 + rank].insert(value);
    }
}

/// The statistics of a group's bids, for q15 and q16.
#[derive(Default)]
struct Report {
    bids: [i64; 3],
    last: i64,
    bidders: Different,
    auctions: Different,
}

impl Report {
    fn numbers(&self) -> [i64; 12] {
        let [low, middle, high] = self.bids;
        let of = |different: &Different| [0, 1, 2, 3].map(|rank| different.0[rank].len() as i64);
        let values = [[low + middle + high, low, middle, high], of(&self.bidders), of(&self.auctions)].concat();
        values.try_into().expect("twelve numbers")
    }
}

/// Goes over the bids in windows, and calls `close` with the groups of each.
fn in_windows<P: Default>(
    batch: &RecordBatch,
    length: i64,
    group_of: impl Fn(usize) -> i64,
    add: impl Fn(&mut P, usize),
    mut close: impl FnMut(i64, i64, &P),
) {
    let [at, kind] = of(batch, [AT, KIND]);
    let mut open = Groups::<ByMap, P>::default();
    let mut end = i64::MIN;
    for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
        if at[bid] >= end {
            open.iter().for_each(|(group, report)| close(end - length, *group, report));
            open.clear();
            end = end_of(at[bid], length);
        }
        add(open.group(group_of(bid)), bid);
    }
    open.iter().for_each(|(group, report)| close(end - length, *group, report));
}

fn reports(batch: &RecordBatch, length: i64, group_of: impl Fn(usize) -> i64, close: impl FnMut(i64, i64, &Report)) {
    let [at, auction, bidder, price] = of(batch, [AT, AUCTION, BIDDER, PRICE]);
    let add = |report: &mut Report, bid: usize| {
        let rank = rank_of(price[bid]);
        report.bids[rank] += 1;
        report.last = at[bid];
        report.bidders.add(rank, bidder[bid]);
        report.auctions.add(rank, auction[bid]);
    };
    in_windows(batch, length, group_of, add, close);
}

/// Names, then those of the twelve numbers.
fn names<const LEN: usize>(first: &[&'static str]) -> [&'static str; LEN] {
    [first, &BIDS, &BIDDERS, &AUCTIONS].concat().try_into().expect("as many names as columns")
}

/// q15: of all bids.
pub fn by_day(shape: &Shape) -> Query {
    let mut numbers = numbers().into_iter();
    let fields: [_; 13] =
        std::array::from_fn(|at| if at == 0 { ("day", event("start")) } else { numbers.next().expect("twelve") });
    query("bids by day", shape, &[], fields, |batch, length| {
        let mut rows = Rows::<13>::new(names(&["day"]));
        reports(
            batch,
            length,
            |_| 0,
            |start, _, report| {
                let row = [&[start], &report.numbers()[..]].concat();
                rows.push(row.try_into().expect("as many as names"));
            },
        );
        rows.output()
    })
}

/// q16: by channel, with the minute of the last bid.
pub fn by_channel(shape: &Shape) -> Query {
    let first = [
        ("channel", event("channel")),
        ("day", event("start")),
        ("minute", aggregate(WindowFunction::Max, "at").floor_div(MINUTE)),
    ];
    let mut fields = first.into_iter().chain(numbers());
    let fields: [_; 15] = std::array::from_fn(|_| fields.next().expect("fifteen fields"));
    query("bids by channel", shape, &["channel"], fields, |batch, length| {
        let [channel] = of(batch, [CHANNEL]);
        let mut rows = Rows::<15>::new(names(&["channel", "day", "minute"]));
        reports(
            batch,
            length,
            |bid| channel[bid],
            |start, channel, report| {
                let row = [&[channel, start, report.last.div_euclid(MINUTE)], &report.numbers()[..]].concat();
                rows.push(row.try_into().expect("as many as names"));
            },
        );
        rows.output()
    })
}

/// The statistics of an auction's bids, for q17.
#[derive(Default)]
struct Prices {
    bids: [i64; 3],
    least: i64,
    greatest: i64,
    sum: i64,
}

/// q17: by auction, with their prices.
pub fn by_auction(shape: &Shape) -> Query {
    let [low, middle, high] = counts();
    let fields = [
        ("auction", event("auction")),
        ("day", event("start")),
        ("bids", count()),
        ("bids_1", low),
        ("bids_2", middle),
        ("bids_3", high),
        ("least", aggregate(WindowFunction::Min, "price")),
        ("greatest", aggregate(WindowFunction::Max, "price")),
        ("mean", aggregate(WindowFunction::Mean, "price")),
        ("sum", aggregate(WindowFunction::Sum, "price")),
    ];
    query("bids by auction", shape, &["auction"], fields, run_by_auction)
}

fn run_by_auction(batch: &RecordBatch, length: i64) -> Output {
    let [auction, price] = of(batch, [AUCTION, PRICE]);
    let names = ["auction", "day", "bids", "bids_1", "bids_2", "bids_3", "least", "greatest", "mean", "sum"];
    let mut rows = Rows::new(names);
    let add = |prices: &mut Prices, bid: usize| {
        let price = price[bid];
        let is_first = prices.bids == [0; 3];
        prices.bids[rank_of(price)] += 1;
        prices.least = if is_first { price } else { prices.least.min(price) };
        prices.greatest = prices.greatest.max(price);
        prices.sum += price;
    };
    in_windows(
        batch,
        length,
        |bid| auction[bid],
        add,
        |start, auction, prices: &Prices| {
            let Prices { bids: [low, middle, high], least, greatest, sum } = *prices;
            let count = low + middle + high;
            let mean = (sum as f64 / count as f64).to_bits() as i64;
            rows.push([auction, start, count, low, middle, high, least, greatest, mean, sum]);
        },
    );
    rows.output()
}
