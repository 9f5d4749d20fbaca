//! NEXMark q3, q13 and q20: events that are given the fields of a row. q13's table does not change; those of q3 and q20 are
//! written by transactions on other events of the same stream, and an event sees the rows that came before it.

use super::super::query::{Query, Shape, int_table};
use super::super::rows::Rows;
use super::events::{
    AT, AUCTION, AUCTIONED, BID, BIDDER, CATEGORY, CHANNEL, CITY, EXPIRES, FIRST_CATEGORY, ID, ITEM, KIND, LOCAL, NAME,
    PERSON, PRICE, RESERVE, SELLER, STATE, events, of, plan, stream,
};
use crate::workloads::columns::zero;
use crate::workloads::input::{Map, Output};
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::Expr;
use tidemill_plan::build::{cell, committed, event, exists, named, record};

/// q13: the rows of the table.
const SIDE_ROWS: i64 = 10_000;

/// Fields of the event and columns of a role's row, under their own names.
fn fields<'a>(
    of_event: &'a [&'static str],
    role: &'a str,
    of_row: &'a [&'static str],
) -> impl Iterator<Item = (&'static str, Expr)> + 'a {
    let of_event = of_event.iter().map(|&name| (name, event(name)));
    of_event.chain(of_row.iter().map(move |&name| (name, cell(role, name))))
}

/// q3: who sells in category 10 in three states.
pub fn local_items(shape: &Shape) -> Query {
    let plan = plan("local items", &[PERSON, AUCTIONED])
        .table("people", |t| {
            ["name", "city", "state"]
                .iter()
                .fold(t.key("id", Type::Int), |t, name| t.column_or(*name, Type::Int, zero()))
        })
        .filter("local_people", stream(PERSON), event("state").is_in(LOCAL))
        .filter("of_category", stream(AUCTIONED), event("category").eq(FIRST_CATEGORY))
        .transaction("register", [named("local_people")], |t| {
            t.create("person", "people", [event("id")]).body(|b| {
                ["name", "city", "state"].iter().for_each(|name| b.set("person", name, event(*name)));
            })
        })
        .transaction("suggest", [named("of_category")], |t| {
            t.read_or_default("person", "people", [event("seller")]).body(|b| {
                b.when(exists("person"), |b| b.give(record(fields(&["id"], "person", &["name", "city", "state"]))));
            })
        })
        .sink("results", committed("suggest"))
        .build();
    let events = events(&plan, shape);
    let needed = &[KIND, ID, NAME, CITY, STATE, SELLER, CATEGORY];
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run_local_items), by_array: None }
}

fn run_local_items(events: &RecordBatch) -> Output {
    let [kind, id, seller, category] = of(events, [KIND, ID, SELLER, CATEGORY]);
    let [name, city, state] = of(events, [NAME, CITY, STATE]);
    let mut rows = Rows::new(["id", "name", "city", "state"]);
    let mut people: Map<i64, usize> = Map::default();
    for row in 0..kind.len() {
        if kind[row] == PERSON && LOCAL.contains(&state[row]) {
            people.insert(id[row], row);
        } else if kind[row] == AUCTIONED
            && category[row] == FIRST_CATEGORY
            && let Some(&person) = people.get(&seller[row])
        {
            rows.push([id[row], name[person], city[person], state[person]]);
        }
    }
    rows.output()
}

/// q13: each bid with a value by its auction.
pub fn side_input(shape: &Shape) -> Query {
    let given = ["auction", "bidder", "price", "at"];
    let plan = plan("bids with a side input", &[BID])
        .table("side", |t| t.key("key", Type::Int).column("value", Type::Int))
        .transaction("expand", [stream(BID)], |t| {
            t.read("side", "side", [event("auction") % SIDE_ROWS])
                .body(|b| b.give(record(fields(&given, "side", &["value"]))))
        })
        .sink("results", committed("expand"))
        .build();
    let events = events(&plan, shape);
    let values = |key: i64| key * key;
    let side = int_table([("key", (0..SIDE_ROWS).collect()), ("value", (0..SIDE_ROWS).map(values).collect())]);
    let known: Map<i64, i64> = (0..SIDE_ROWS).map(|key| (key, values(key))).collect();
    let list: Vec<i64> = (0..SIDE_ROWS).map(values).collect();
    let run = |events: &RecordBatch, value: &dyn Fn(i64) -> Option<i64>| {
        let [at, kind, auction, bidder, price] = of(events, [AT, KIND, AUCTION, BIDDER, PRICE]);
        let mut rows = Rows::new(["auction", "bidder", "price", "at", "value"]);
        for bid in (0..at.len()).filter(|&row| kind[row] == BID) {
            if let Some(value) = value(auction[bid] % SIDE_ROWS) {
                rows.push([auction[bid], bidder[bid], price[bid], at[bid], value]);
            }
        }
        rows.output()
    };
    Query {
        plan,
        tables: vec![("side", side)],
        events,
        needed: &[AT, KIND, AUCTION, BIDDER, PRICE],
        by_map: Box::new(move |events| run(events, &|key| known.get(&key).copied())),
        by_array: Some(Box::new(move |events| run(events, &|key| list.get(key as usize).copied()))),
    }
}

/// The fields that a bid gets from its auction.
const EXPANDED: [&str; 5] = ["item", "reserve", "expires", "seller", "category"];

/// q20: bids on auctions of category 10, with what is known of these.
pub fn expanded(shape: &Shape) -> Query {
    let given = ["auction", "bidder", "price", "channel", "at"];
    let plan = plan("bids with their auctions", &[AUCTIONED, BID])
        .table("auctions", |t| {
            EXPANDED.iter().fold(t.key("id", Type::Int), |t, name| t.column_or(*name, Type::Int, zero()))
        })
        .filter("of_category", stream(AUCTIONED), event("category").eq(FIRST_CATEGORY))
        .transaction("open", [named("of_category")], |t| {
            t.create("item", "auctions", [event("id")])
                .body(|b| EXPANDED.iter().for_each(|name| b.set("item", name, event(*name))))
        })
        .transaction("expand", [stream(BID)], |t| {
            t.read_or_default("item", "auctions", [event("auction")])
                .body(|b| b.when(exists("item"), |b| b.give(record(fields(&given, "item", &EXPANDED)))))
        })
        .sink("results", committed("expand"))
        .build();
    let events = events(&plan, shape);
    let needed = &[AT, KIND, ID, SELLER, CATEGORY, RESERVE, EXPIRES, ITEM, AUCTION, BIDDER, PRICE, CHANNEL];
    Query { plan, tables: vec![], events, needed, by_map: Box::new(run_expanded), by_array: None }
}

fn run_expanded(events: &RecordBatch) -> Output {
    let [at, kind, id, seller, category] = of(events, [AT, KIND, ID, SELLER, CATEGORY]);
    let [item, reserve, expires] = of(events, [ITEM, RESERVE, EXPIRES]);
    let [auction, bidder, price, channel] = of(events, [AUCTION, BIDDER, PRICE, CHANNEL]);
    let names = ["auction", "bidder", "price", "channel", "at", "item", "reserve", "expires", "seller", "category"];
    let mut rows = Rows::new(names);
    let mut open: Map<i64, usize> = Map::default();
    for row in 0..kind.len() {
        if kind[row] == AUCTIONED && category[row] == FIRST_CATEGORY {
            open.insert(id[row], row);
        } else if kind[row] == BID
            && let Some(&of) = open.get(&auction[row])
        {
            let bid = [auction[row], bidder[row], price[row], channel[row], at[row]];
            let [a, b, c, d, e] = bid;
            rows.push([a, b, c, d, e, item[of], reserve[of], expires[of], seller[of], category[of]]);
        }
    }
    rows.output()
}
