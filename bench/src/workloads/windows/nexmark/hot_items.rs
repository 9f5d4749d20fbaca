//! NEXMark q5, its counts: bids by auction in sliding windows that begin every fifth of their length. (q5 goes on to the
//! auctions with the most bids of each window.)
//!
//! The loop counts by slices and adds up five of them when a window closes.

use super::super::groups::{ByArray, ByMap, Groups, Index};
use super::super::query::{Query, Shape, count, end_of};
use super::bids::{AT, AUCTION, bids, plan};
use crate::workloads::columns::column;
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use tidemill_model::Value;
use tidemill_plan::WindowsDef;
use tidemill_plan::build::event;

/// Slices of a window.
const SLICES: i64 = 5;

/// Plan, events and loops.
pub fn query(shape: &Shape) -> Query {
    let length = shape.length_ms();
    let every = length / SLICES;
    let windows = WindowsDef::Sliding { length: Value::Int(length), every: Value::Int(every), origin: 0 };
    let fields = [("end", event("end")), ("auction", event("auction")), ("bids", count())];
    let plan = plan("hot items", &["auction"], windows, fields);
    let events = bids(&plan, shape);
    Query {
        plan,
        tables: vec![],
        events,
        needed: &[AT, AUCTION],
        by_map: Box::new(move |events| Loop::<ByMap>::new(every).run(events)),
        by_array: Some(Box::new(move |events| Loop::<ByArray>::new(every).run(events))),
    }
}

struct Loop<I> {
    every: i64,
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
    fn new(every: i64) -> Self {
        let (open, window) = (Groups::default(), Groups::default());
        let (ends, auctions, counts) = Default::default();
        Loop { every, end: i64::MIN, open, slices: VecDeque::new(), window, ends, auctions, counts }
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
            while self.slices.front().is_some_and(|slice| slice.0 <= end.saturating_sub(SLICES * self.every)) {
                self.slices.pop_front();
            }
        }
    }
}
