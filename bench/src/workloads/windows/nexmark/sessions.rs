//! NEXMark q11: the bids of each bidder in sessions, which end when nothing came for the length of the gap. And the thesis'
//! NB11 (4.7): persons joined with the bids by them in sessions of both.
//!
//! A join here is over windows of a length, or of events within one of each other. So NB11 is a session of both kinds, and gives
//! the number of its pairs, where the thesis gives the pairs.
//!
//! The loop keeps sessions in a list by their last bid, so that those which end first stand first.

use super::super::query::{Query, Shape, count};
use super::bids::{self, bids};
use super::events::{self, BID, FOUR_BIDS, ID, KIND, PERSON, mixed_events};
use crate::workloads::columns::column;
use crate::workloads::input::Map;
use arrow_array::RecordBatch;
use tidemill_model::Value;
use tidemill_plan::build::{committed, event, if_else, literal, named, none, record};
use tidemill_plan::{Expr, ExprNode, WindowFunction, WindowsDef};

/// q11: plan, events and the loop.
pub fn query(shape: &Shape) -> Query {
    let gap = shape.length_ms();
    let fields = [("bidder", event("bidder")), ("start", event("start")), ("end", event("end")), ("bids", count())];
    let windows = WindowsDef::Session { gap: Value::Int(gap) };
    let plan = bids::plan("sessions", "result", &["bidder"], windows, fields);
    let events = bids(&plan, shape);
    let by_map = Box::new(move |events: &RecordBatch| {
        let [at, bidder] = [bids::AT, bids::BIDDER].map(|number| column(events, number));
        let bids = at.iter().zip(bidder).map(|(&at, &bidder)| (at, bidder, true));
        let [bidders, starts, ends, bids] = Loop::new(gap, |session| Some(session.bids)).run(bids);
        vec![("bidder", bidders), ("start", starts), ("end", ends), ("bids", bids)]
    });
    // Bidders come and go: an array by bidder would grow.
    Query { plan, tables: vec![], events, needed: &[bids::AT, bids::BIDDER], by_map, by_array: None }
}

/// Returns the number of a session's events that are of a kind.
fn of_kind(kind: i64) -> Expr {
    let value = Some(Box::new(if_else(event("kind").eq(kind), literal(1), none())));
    ExprNode::Aggregate { function: WindowFunction::Count, value, by: None, argument: None }.into()
}

/// NB11: plan, events and the loop.
pub fn pairs(shape: &Shape) -> Query {
    let gap = shape.length_ms();
    let person = if_else(event("kind").eq(PERSON), event("id"), event("bidder"));
    let windows = WindowsDef::Session { gap: Value::Int(gap) };
    let fields = ["person", "start", "end"].map(|name| (name, event(name)));
    let pairs = of_kind(PERSON) * of_kind(BID);
    let plan = events::plan("pairs of sessions", &[])
        .window("result", named("events"), [("person", person)], windows, |b| {
            b.when(pairs.clone().gt(0), |b| b.give(record(fields.into_iter().chain([("pairs", pairs)]))));
        })
        .sink("results", committed("result"))
        .build();
    let events = mixed_events(&plan, shape, FOUR_BIDS);
    let by_map = Box::new(move |events: &RecordBatch| {
        let [at, kind, id, bidder] = events::of(events, [events::AT, KIND, ID, events::BIDDER]);
        let key = |row: usize| if kind[row] == PERSON { id[row] } else { bidder[row] };
        let all = (0..at.len()).map(|row| (at[row], key(row), kind[row] == BID));
        let pairs = |session: &Session| Some(session.persons * session.bids).filter(|&pairs| pairs > 0);
        let [persons, starts, ends, pairs] = Loop::new(gap, pairs).run(all);
        vec![("person", persons), ("start", starts), ("end", ends), ("pairs", pairs)]
    });
    Query { plan, tables: vec![], events, needed: &[events::AT, KIND, ID, events::BIDDER], by_map, by_array: None }
}

/// No place in the list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Session {
    key: i64,
    /// The number of the first event: sessions that end together close in this order.
    number: usize,
    start: i64,
    last: i64,
    bids: i64,
    persons: i64,
    before: u32,
    after: u32,
}

struct Loop<R> {
    gap: i64,
    /// Gives the result of a session, if it has one.
    result: R,
    places: Map<i64, u32>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    first: u32,
    last: u32,
    /// Sessions that end at one instant.
    ended: Vec<Session>,
    output: [Vec<i64>; 4],
}

impl<R: Fn(&Session) -> Option<i64>> Loop<R> {
    fn new(gap: i64, result: R) -> Self {
        let (places, sessions, free, ended, output) = Default::default();
        Loop { gap, result, places, sessions, free, first: NONE, last: NONE, ended, output }
    }

    /// Returns the keys, starts, ends and results of sessions, from events with their time and key, and whether they
    /// are bids.
    fn run(mut self, events: impl Iterator<Item = (i64, i64, bool)>) -> [Vec<i64>; 4] {
        for (number, (at, key, is_bid)) in events.enumerate() {
            let (bid, person) = (i64::from(is_bid), i64::from(!is_bid));
            if self.first != NONE && self.sessions[self.first as usize].last + self.gap <= at {
                self.close(at - self.gap);
            }
            let next = self.free.last().copied().unwrap_or(self.sessions.len() as u32);
            let place = *self.places.entry(key).or_insert(next);
            if place == next {
                let (bids, persons) = (bid, person);
                let (before, after) = (self.last, NONE);
                let session = Session { key, number, start: at, last: at, bids, persons, before, after };
                match self.free.pop() {
                    Some(place) => self.sessions[place as usize] = session,
                    None => self.sessions.push(session),
                }
            } else {
                let session = &mut self.sessions[place as usize];
                session.last = at;
                session.bids += bid;
                session.persons += person;
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
        self.output
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
                self.places.remove(&session.key);
                self.free.push(place);
                self.ended.push(session);
            }
            self.ended.sort_unstable_by_key(|session| session.number);
            for session in &self.ended {
                let Some(result) = (self.result)(session) else { continue };
                let values = [session.key, session.start, session.last + self.gap, result];
                values.into_iter().zip(&mut self.output).for_each(|(value, column)| column.push(value));
            }
        }
    }
}
