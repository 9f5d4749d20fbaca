//! NEXMark q11: the bids of each bidder in sessions, which end when nothing came for the length of the gap.
//!
//! The loop keeps sessions in a list by their last bid, so that those which end first stand first.

use super::super::query::{Query, Shape, count};
use super::bids::{AT, BIDDER, bids, plan};
use crate::workloads::columns::column;
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use tidemill_model::Value;
use tidemill_plan::WindowsDef;
use tidemill_plan::build::event;

/// Plan, events and the loop.
pub fn query(shape: &Shape) -> Query {
    let gap = shape.length_ms();
    let fields = [("bidder", event("bidder")), ("start", event("start")), ("end", event("end")), ("bids", count())];
    let plan = plan("sessions", "result", &["bidder"], WindowsDef::Session { gap: Value::Int(gap) }, fields);
    let events = bids(&plan, shape);
    let by_map = Box::new(move |events: &RecordBatch| Loop::new(gap).run(events));
    // Bidders come and go: an array by bidder would grow.
    Query { plan, tables: vec![], events, needed: &[AT, BIDDER], by_map, by_array: None }
}

/// No place in the list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Session {
    bidder: i64,
    /// The number of the first bid: sessions that end together close in this order.
    number: usize,
    start: i64,
    last: i64,
    bids: i64,
    before: u32,
    after: u32,
}

struct Loop {
    gap: i64,
    places: Map<i64, u32>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    first: u32,
    last: u32,
    /// Sessions that end at one instant.
    ended: Vec<Session>,
    output: [Vec<i64>; 4],
}

impl Loop {
    fn new(gap: i64) -> Self {
        let (places, sessions, free, ended, output) = Default::default();
        Loop { gap, places, sessions, free, first: NONE, last: NONE, ended, output }
    }

    fn run(mut self, events: &RecordBatch) -> Output {
        let [at, bidder] = [AT, BIDDER].map(|number| column(events, number));
        for (number, (&at, &bidder)) in at.iter().zip(bidder).enumerate() {
            if self.first != NONE && self.sessions[self.first as usize].last + self.gap <= at {
                self.close(at - self.gap);
            }
            let next = self.free.last().copied().unwrap_or(self.sessions.len() as u32);
            let place = *self.places.entry(bidder).or_insert(next);
            if place == next {
                let session = Session { bidder, number, start: at, last: at, bids: 1, before: self.last, after: NONE };
                match self.free.pop() {
                    Some(place) => self.sessions[place as usize] = session,
                    None => self.sessions.push(session),
                }
            } else {
                let session = &mut self.sessions[place as usize];
                session.last = at;
                session.bids += 1;
                if place == self.last {
                    continue;
                }
                self.unlink(place);
                self.sessions[place as usize].before = self.last;
                self.sessions[place as usize].after = NONE;
            }
            match self.last {
                NONE => self.first = place,
                last => self.sessions[last as usize].after = place,
            }
            self.last = place;
        }
        self.close(i64::MAX);
        let [bidders, starts, ends, bids] = self.output;
        vec![("bidder", bidders), ("start", starts), ("end", ends), ("bids", bids)]
    }

    #[inline(always)]
    fn unlink(&mut self, place: u32) {
        let Session { before, after, .. } = self.sessions[place as usize];
        match before {
            NONE => self.first = after,
            before => self.sessions[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.sessions[after as usize].before = before,
        }
    }

    /// Closes the sessions whose last bid is not after `until`.
    fn close(&mut self, until: i64) {
        while self.first != NONE && self.sessions[self.first as usize].last <= until {
            let last = self.sessions[self.first as usize].last;
            self.ended.clear();
            while self.first != NONE && self.sessions[self.first as usize].last == last {
                let place = self.first;
                let session = self.sessions[place as usize];
                self.unlink(place);
                self.places.remove(&session.bidder);
                self.free.push(place);
                self.ended.push(session);
            }
            self.ended.sort_unstable_by_key(|session| session.number);
            for session in &self.ended {
                let values = [session.bidder, session.start, session.last + self.gap, session.bids];
                values.into_iter().zip(&mut self.output).for_each(|(value, column)| column.push(value));
            }
        }
    }
}
