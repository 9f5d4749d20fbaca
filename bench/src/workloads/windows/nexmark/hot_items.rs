//! NEXMark q5: bids by auction in sliding windows that begin every fifth of their length; all counts, or those of the
//! auctions with the most bids in each window. The thesis' NBQ5 (5.4) has all, in windows that begin every sixth.
//!
//! The loop counts by slices and adds up those of a window when it closes.

use super::super::groups::{ByArray, ByMap, Groups, Index};
use super::super::query::{Query, Shape, count, end_of};
use super::super::rows::Rows;
use super::bids::{AT, AUCTION, bids, plan};
use crate::workloads::columns::column;
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use tidemill_model::Value;
use tidemill_plan::build::{committed, emitted, event};
use tidemill_plan::{OverDef, TopDef, TransactionDef, WindowsDef};

/// Slices of a window of q5.
const SLICES: i64 = 5;
/// Slices of a window of NBQ5.
const SLICES_NBQ5: i64 = 6;

/// Returns all counts.
pub fn counts(shape: &Shape) -> Query {
    query(shape, SLICES, "result", |output| output)
}

/// Returns all counts of NBQ5.
pub fn aggregate(shape: &Shape) -> Query {
    query(shape, SLICES_NBQ5, "result", |output| output)
}

/// Returns the greatest counts of each window, those that are equal in the order of the auctions' first bids.
pub fn hottest(shape: &Shape) -> Query {
    let mut query = query(shape, SLICES, "counts", greatest);
    let top = TopDef { count: 1, by: event("bids"), ties: true };
    // The top takes the place of windows and body.
    let windows = WindowsDef::Counting { count: 1 };
    let over =
        Some(OverDef { by: vec![], windows, early: None, top: Some(top), first: None, own: vec![], every: None });
    let inputs = vec![committed("counts")];
    let name = "hot".into();
    query.plan.transactions.push(TransactionDef {
        name,
        inputs,
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![],
    });
    query.plan.sinks[0].stream = emitted("hot", "top");
    query
}

/// Returns the rows with the greatest count of each end.
fn greatest(output: Output) -> Output {
    let [ends, auctions, counts] = [0, 1, 2].map(|column: usize| &output[column].1);
    let mut rows = Rows::new(["end", "auction", "bids"]);
    let mut start = 0;
    for window in ends.chunk_by(|one, next| one == next) {
        let of_window = start..start + window.len();
        start = of_window.end;
        let most = counts[of_window.clone()].iter().max().expect("a window has a row");
        of_window.filter(|&row| counts[row] == *most).for_each(|row| rows.push([ends[row], auctions[row], *most]));
    }
    rows.output()
}

fn query(shape: &Shape, slices: i64, name: &str, of_counts: fn(Output) -> Output) -> Query {
    let every = shape.length_ms() / slices;
    let length = every * slices;
    let windows = WindowsDef::Sliding { length: Value::Int(length), every: Value::Int(every), origin: 0 };
    let fields = [("end", event("end")), ("auction", event("auction")), ("bids", count())];
    let plan = plan("hot items", name, &["auction"], windows, fields);
    let events = bids(&plan, shape);
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, AUCTION],
        by_map: Box::new(move |events| of_counts(Loop::<ByMap>::new(every, length).run(events))),
        by_array: Some(Box::new(move |events| of_counts(Loop::<ByArray>::new(every, length).run(events)))),
    }
}

struct Loop<I> {
    every: i64,
    length: i64,
    /// The end of the slice that is open.
    end: i64,
    open: Groups<I, i64>,
    /// The slices before it, of which the last windows are made: each with its end, groups in order with their counts.
    slices: VecDeque<(i64, Vec<(i64, i64)>)>,
    window: Groups<I, i64>,
    ends: Vec<i64>,
    auctions: Vec<i64>,
    counts: Vec<i64>,
}

impl<I: Index> Loop<I> {
    fn new(every: i64, length: i64) -> Self {
        let (open, window) = (Groups::default(), Groups::default());
        let (ends, auctions, counts) = Default::default();
        Loop { every, length, end: i64::MIN, open, slices: VecDeque::new(), window, ends, auctions, counts }
    }

    fn run(mut self, events: &RecordBatch) -> Output {
        let [at, auction] = [AT, AUCTION].map(|number| column(events, number));
        for (&at, &auction) in at.iter().zip(auction) {
            if at >= self.end {
                self.close(at);
                self.end = end_of(at, self.every);
            }
            *self.open.group(auction) += 1;
        }
        self.close(i64::MAX);
        vec![("end", self.ends), ("auction", self.auctions), ("bids", self.counts)]
    }

    /// Closes the windows whose end is not after `now`.
    fn close(&mut self, now: i64) {
        self.slices.push_back((self.end, self.open.iter().copied().collect()));
        self.open.clear();
        let mut end = self.end;
        while end <= now && !self.slices.is_empty() {
            for &(auction, count) in self.slices.iter().flat_map(|slice| &slice.1) {
                *self.window.group(auction) += count;
            }
            for &(auction, count) in self.window.iter() {
                self.ends.push(end);
                self.auctions.push(auction);
                self.counts.push(count);
            }
            self.window.clear();
            end = end.saturating_add(self.every);
            // The next window holds the slices that end less than its length before its end.
            while self.slices.front().is_some_and(|slice| slice.0 <= end.saturating_sub(self.length)) {
                self.slices.pop_front();
            }
        }
    }
}
