//! Online Bidding (TStream 2020, §VI-A): bids, changes of price and top-ups, 6 : 1 : 1. A bid takes from one
//! item's quantity if it is enough and the price is met; the others change a list of items.
//!
//! A doomed bid offers nothing. All others meet the price, and there is enough of everything, so that the
//! share of aborts is what was asked for.

use super::columns::{Draw, column, event_batch, event_schema, ints, lists, table_rows};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::{ListArray, RecordBatch};
use tidemill_model::Type;
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, TransactionBuilder, aborted, cell, committed, element, event, named};

const PRICE: i64 = 500;
const PRICE_MAX: i64 = 1000;
const QUANTITY: i64 = 1_000_000_000;
/// Events' kinds: below it bids, then changes of price, then top-ups.
const ALTER: i64 = 6;
const TOP: i64 = 7;
const KINDS: u64 = 8;

/// Returns the application.
pub fn plan(work: i64) -> Plan {
    let items = |t: TransactionBuilder| t.row("item", "items", [element("lines", "item")]).over("lines");
    PlanBuilder::new("online bidding")
        .table("items", |t| t.key("id", Type::Int).column("price", Type::Int).column("quantity", Type::Int))
        .source("events", |s| {
            ["kind", "item", "price", "quantity"]
                .into_iter()
                .fold(s.event_time("at", Type::Int), |s, name| s.field(name, Type::Int))
                .nested("lines", [("item", Type::Int.into()), ("value", Type::Int.into())])
        })
        .filter("bids", named("events"), event("kind").lt(ALTER))
        .filter("alters", named("events"), event("kind").eq(ALTER))
        .filter("tops", named("events"), event("kind").eq(TOP))
        .transaction("bid", [named("bids")], |t| {
            t.row("item", "items", [event("item")]).body(|b| {
                b.require(event("price").ge(cell("item", "price")), "price not met");
                b.require(cell("item", "quantity").ge(event("quantity")), "sold out");
                let left = cell("item", "quantity") - event("quantity");
                let left = with_udf(b, "function", cell("item", "quantity"), work, left);
                b.set("item", "quantity", left);
                b.give([("at", event("at")), ("left", cell("item", "quantity"))]);
            })
        })
        .transaction("alter", [named("alters")], |t| {
            items(t).body(|b| {
                b.for_each("line", "lines", |b| {
                    let price = with_udf(b, "function", cell("item", "price"), work, element("line", "value"));
                    b.set("item", "price", price);
                });
                b.give([("at", event("at"))]);
            })
        })
        .transaction("top", [named("tops")], |t| {
            items(t).body(|b| {
                b.for_each("line", "lines", |b| {
                    let more = cell("item", "quantity") + element("line", "value");
                    let more = with_udf(b, "function", cell("item", "quantity"), work, more);
                    b.set("item", "quantity", more);
                });
                b.give([("at", event("at"))]);
            })
        })
        .sink("sold", committed("bid"))
        .sink("altered", committed("alter"))
        .sink("topped", committed("top"))
        .sink("rejected", aborted("bid"))
        .build()
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs) -> Input {
    let plan = plan(knobs.work);
    let mut random = Random::new(42);
    let zipf = Zipf::new(knobs.rows, knobs.theta);
    let mut columns: Vec<Vec<i64>> = (0..5).map(|_| Vec::with_capacity(knobs.events)).collect();
    let (mut ends, mut lines) = (Vec::with_capacity(knobs.events), vec![Vec::new(); 2]);
    let draw = Draw::new(&zipf, knobs);
    let mut keys = Vec::new();
    for at in 0..knobs.events {
        let kind = random.below(KINDS) as i64;
        let doomed = kind < ALTER && random.unit() < knobs.abort;
        let price = if doomed { 0 } else { PRICE_MAX };
        let values = [at as i64, kind, zipf.key(&mut random) as i64, price, 1 + random.below(5) as i64];
        values.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
        let count = if kind < ALTER { 0 } else { knobs.length };
        draw.keys(&mut random, count, &mut keys);
        for &key in &keys {
            lines[0].push(key);
            lines[1].push(1 + random.below(PRICE_MAX as u64) as i64);
        }
        ends.push(lines[0].len());
    }
    let mut arrays: Vec<_> = columns.into_iter().map(ints).collect();
    arrays.push(lists(&event_schema(&plan), 5, &ends, lines));
    let (events, tables) = (event_batch(&plan, arrays), vec![table_rows(&plan, 0, knobs.rows, &[PRICE, QUANTITY])]);
    let (rows, work) = (knobs.rows as i64, knobs.work);
    let items = move || (0..rows).map(|key| (key, (PRICE, QUANTITY))).collect();
    Input { plan, tables, events, plain: Box::new(move || Box::new(Loop { items: items(), work })) }
}

struct Loop {
    /// Price and quantity.
    items: Map<i64, (i64, i64)>,
    work: i64,
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let [at, kind, item, price, quantity] = [0, 1, 2, 3, 4].map(|c| column(events, c));
        let list: &ListArray = events.column(5).as_list();
        let lines = list.values().as_struct();
        let line = |c: usize| lines.column(c).as_primitive::<arrow_array::types::Int64Type>().values();
        let (line_item, line_value, offsets) = (line(0), line(1), list.offsets());
        let mut sold: [Vec<i64>; 2] = std::array::from_fn(|_| Vec::with_capacity(events.num_rows()));
        let (mut altered, mut topped, mut rejected) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
        for i in 0..events.num_rows() {
            if kind[i] < ALTER {
                let Some((asked, left)) = self.items.get_mut(&item[i]) else { continue };
                if price[i] < *asked || *left < quantity[i] {
                    let row = [at[i], *asked, *left];
                    rejected.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
                    continue;
                }
                *left -= quantity[i] + toil(*left, self.work);
                sold[0].push(at[i]);
                sold[1].push(*left);
                continue;
            }
            let lines = offsets[i] as usize..offsets[i + 1] as usize;
            // All or nothing: every item must be there and hold the sum.
            let holds =
                |l: usize| self.items.get(&line_item[l]).is_some_and(|i| i.1.checked_add(line_value[l]).is_some());
            if !lines.clone().all(holds) {
                continue;
            }
            for l in lines {
                let (asked, left) = self.items.get_mut(&line_item[l]).expect("just looked up");
                match kind[i] {
                    ALTER => *asked = line_value[l] + toil(*asked, self.work),
                    _ => *left += line_value[l] + toil(*left, self.work),
                }
            }
            if kind[i] == ALTER { &mut altered } else { &mut topped }.push(at[i]);
        }
        let [at, left] = sold;
        let [rejected_at, asked, seen] = rejected;
        vec![
            vec![("at", at), ("left", left)],
            vec![("at", altered)],
            vec![("at", topped)],
            vec![("at", rejected_at), ("item.price", asked), ("item.quantity", seen)],
        ]
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        vec![self.items.iter().map(|(&key, &(price, quantity))| vec![key, price, quantity]).collect()]
    }
}
