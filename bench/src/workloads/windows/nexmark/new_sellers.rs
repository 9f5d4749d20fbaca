//! NEXMark q8: the auctions of persons who registered in the same tumbling window, with their reserves. The thesis' NB8 (4.7)
//! is the same of four auctions a person, in longer windows.

use super::super::query::{Query, Shape, end_of, tumbling};
use super::super::rows::Rows;
use super::events::{AT, AUCTIONED, ID, KIND, NAME, PERSON, RESERVE, SELLER, of, plan, stream};
use super::events::{FOUR_AUCTIONS, Mix, NEXMARK, mixed_events};
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use tidemill_plan::build::{committed, event};
use tidemill_plan::{JoinBound, JoinDef, JoinHow, TransactionDef};

/// q8.
pub fn query(shape: &Shape) -> Query {
    of_mix(shape, NEXMARK)
}

/// NB8.
pub fn of_four_auctions(shape: &Shape) -> Query {
    of_mix(shape, FOUR_AUCTIONS)
}

/// Plan, events and the loop.
fn of_mix(shape: &Shape, mix: Mix) -> Query {
    let join = JoinDef {
        left: "p".into(),
        right: Some("a".into()),
        on: vec![(event("id"), event("seller"))],
        bound: JoinBound::Over(tumbling(shape)),
        how: JoinHow::Inner,
    };
    let mut plan = plan("new sellers", &[PERSON, AUCTIONED])
        .transaction("sellers", [stream(PERSON), stream(AUCTIONED)], |t| {
            t.body(|b| b.give([("id", event("p.id")), ("name", event("p.name")), ("reserve", event("a.reserve"))]))
        })
        .sink("results", committed("sellers"))
        .build();
    let sellers = plan.transactions.pop().expect("it was just added");
    plan.transactions.push(TransactionDef { join: Some(join), ..sellers });
    let events = mixed_events(&plan, shape, mix);
    let length = shape.length_ms();
    let by_map = Box::new(move |events: &RecordBatch| run(events, length));
    Query { plan, tables: vec![], events, needed: &[AT, KIND, ID, NAME, SELLER, RESERVE], by_map, by_array: None }
}

/// A pair comes with its later event; a person never comes after an auction of his.
fn run(events: &RecordBatch, length: i64) -> Output {
    let [at, kind, id, name, seller, reserve] = of(events, [AT, KIND, ID, NAME, SELLER, RESERVE]);
    let mut rows = Rows::new(["id", "name", "reserve"]);
    let mut people: Map<i64, usize> = Map::default();
    let mut end = i64::MIN;
    for row in 0..at.len() {
        if at[row] >= end {
            people.clear();
            end = end_of(at[row], length);
        }
        match kind[row] {
            PERSON => _ = people.insert(id[row], row),
            AUCTIONED => {
                if let Some(&person) = people.get(&seller[row]) {
                    rows.push([id[person], name[person], reserve[row]]);
                }
            }
            _ => {}
        }
    }
    rows.output()
}
