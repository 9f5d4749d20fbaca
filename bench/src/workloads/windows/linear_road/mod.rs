//! Linear Road (A. Arasu et al., "Linear Road: a stream data management benchmark", VLDB 2004; thesis, ch. 3): accidents and
//! tolls, of which windows and transactions are one history.
//!
//! A car reports twice a minute. A segment is a mile of a road in one direction.
//!
//! - Each minute a segment has the mean speed of the reports of the last five minutes, and the number of cars that reported
//!   in the last one. (The original takes the mean of the mean speeds of cars, then of minutes.)
//! - A car stands when four reports in a row are from one place. Two cars that stand at one place are an accident, until
//!   one of them moves.
//! - A car that enters a segment, other than by the exit lane, is told the toll: 2 (n − 50)² where more than 50 cars were
//!   slower than 40 miles an hour; none where an accident is in the segment or the next four.
//! - It pays what it was told for a segment when it enters the next one.
//!
//! A minute is as long as windows are asked to be, so that small inputs have many. Of the record's 15 fields those are there
//! that the two queries need.

mod cars;
mod plain;
pub mod speeds;

use super::query::{Query, Shape, of, tumbling, window};
use crate::workloads::columns::zero;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{
    PlanBuilder, TableBuilder, all, any, cell, committed, emitted, event, exists, if_else, literal, local, named,
    record,
};
use tidemill_plan::{Expr, Plan, Record, WindowFunction, WindowsDef};

/// The columns of reports.
const FIELDS: [&str; 8] = ["at", "car", "speed", "road", "dir", "seg", "lane", "pos"];

/// Reports from one place after which a car stands.
const STANDS: i64 = 4;
/// The lane of cars that leave the road.
const EXIT: i64 = 4;
/// The number of cars on a segment up to which they drive for nothing.
const FREE: i64 = 50;
/// Miles per hour. On a segment that is faster all do.
const SLOW: f64 = 40.0;
/// The minutes of a mean speed.
const MINUTES: i64 = 5;
/// Segments that an accident is seen in: its own, and those from which cars come to it.
const SEEN_IN: i64 = 5;

/// Returns the events and the loop beside the plan.
pub fn query(shape: &Shape) -> Query {
    let plan = plan(shape);
    let events = cars::reports(&plan, shape);
    let minute = shape.length_ms();
    let by_map = Box::new(move |events: &_| plain::Loop::new(minute).run(events));
    Query { plan, tables: vec![], events, needed: &[0, 1, 2, 3, 4, 5, 6, 7], by_map, by_array: None }
}

const SEGMENT: [&str; 3] = ["road", "dir", "seg"];
const PLACE: [&str; 4] = ["road", "dir", "lane", "pos"];

/// The fields of a car's position.
const WHERE: [&str; 5] = ["road", "dir", "seg", "lane", "pos"];

/// Returns the record that one car more or less stands at a place.
fn stands(of: impl Fn(&'static str) -> Expr, change: i64) -> Record {
    record(WHERE.into_iter().map(|name| (name, of(name))).chain([("change", literal(change))]))
}

fn keyed(table: TableBuilder, key: &[&str], columns: &[&str]) -> TableBuilder {
    let table = key.iter().fold(table, |table, name| table.key(*name, Type::Int));
    columns.iter().fold(table, |table, name| table.column_or(*name, Type::Int, zero()))
}

fn plan(shape: &Shape) -> Plan {
    let minute = shape.length_ms();
    let five = WindowsDef::Sliding { length: Value::Int(MINUTES * minute), every: Value::Int(minute), origin: 0 };
    let of_group =
        |value| [("end", event("end")), ("road", event("road")), ("dir", event("dir")), ("seg", event("seg")), value];
    let speed = of_group(("speed", of(WindowFunction::Mean, "speed")));
    let crowd = of_group(("cars", of(WindowFunction::Distinct, "car")));
    let plan = PlanBuilder::new("linear road")
        .table("segments", |t| {
            keyed(t, &SEGMENT, &["cars", "counted", "accidents"]).column_or("speed", Type::Float, Value::Float(0.0))
        })
        .table("cars", |t| {
            keyed(t, &["id"], &["dir", "seg", "lane", "pos", "reports", "due"]).column_or(
                "road",
                Type::Int,
                Value::Int(-1),
            )
        })
        .table("accounts", |t| keyed(t, &["car"], &["paid"]))
        .table("places", |t| keyed(t, &PLACE, &["cars"]))
        .source("reports", |s| {
            FIELDS[1..].iter().fold(s.event_time(FIELDS[0], Type::Int), |s, name| s.field(*name, Type::Int))
        });
    let mut plan = publish(accidents(drive(plan, minute))).sink("tolls", committed("drive")).build();
    // Windows stand before the transactions on what they give.
    plan.transactions.insert(0, window("traffic", named("reports"), &SEGMENT, five, speed));
    plan.transactions.insert(1, window("crowd", named("reports"), &SEGMENT, tumbling(shape), crowd));
    plan
}

/// Writes the results of windows into the row of their segment.
fn publish(plan: PlanBuilder) -> PlanBuilder {
    plan.transaction("slow", [committed("traffic")], |t| {
        t.create("segment", "segments", SEGMENT.map(event)).body(|b| b.set("segment", "speed", event("speed")))
    })
    .transaction("fill", [committed("crowd")], |t| {
        t.create("segment", "segments", SEGMENT.map(event)).body(|b| {
            b.set("segment", "cars", event("cars"));
            b.set("segment", "counted", event("end"));
        })
    })
}

/// A report: the car's place, what it pays, what it is told.
fn drive(plan: PlanBuilder, minute: i64) -> PlanBuilder {
    plan.transaction("drive", [named("reports")], |t| {
        t.create("car", "cars", [event("car")])
            .create("account", "accounts", [event("car")])
            .read_or_default("segment", "segments", SEGMENT.map(event))
            .body(|b| {
                let is_there = |names: &[&str]| all(names.iter().map(|name| cell("car", *name).eq(event(*name))));
                b.assign("entered", !is_there(&SEGMENT));
                b.when_else(
                    exists("car").and(is_there(&PLACE)),
                    |b| {
                        b.set("car", "reports", cell("car", "reports") + 1);
                        b.when(cell("car", "reports").eq(STANDS), |b| {
                            b.emit("stands", stands(event, 1));
                        });
                    },
                    |b| {
                        b.when(cell("car", "reports").ge(STANDS), |b| {
                            b.emit("stands", stands(|name| cell("car", name), -1));
                        });
                        WHERE.iter().for_each(|name| b.set("car", name, event(*name)));
                        b.set("car", "reports", 1);
                    },
                );
                b.when(local("entered"), |b| {
                    b.set("account", "paid", cell("account", "paid") + cell("car", "due"));
                    b.set("car", "due", 0);
                    b.when(event("lane").ne(EXIT), |b| {
                        let is_counted = cell("segment", "counted").eq(event("at") - event("at") % minute);
                        b.assign("cars", if_else(is_counted, cell("segment", "cars"), 0));
                        b.assign("more", local("cars") - FREE);
                        let conditions = [
                            local("more").gt(0),
                            cell("segment", "speed").lt(SLOW),
                            cell("segment", "accidents").eq(0),
                        ];
                        b.assign("toll", if_else(all(conditions), local("more") * local("more") * 2, 0));
                        b.set("car", "due", local("toll"));
                        b.give([
                            ("at", event("at")),
                            ("car", event("car")),
                            ("road", event("road")),
                            ("dir", event("dir")),
                            ("seg", event("seg")),
                            ("cars", local("cars")),
                            ("toll", local("toll")),
                            ("paid", cell("account", "paid")),
                        ]);
                    });
                });
            })
    })
}

/// Cars that begin and cease to stand, and the segments that see an accident.
fn accidents(plan: PlanBuilder) -> PlanBuilder {
    let seen: [String; SEEN_IN as usize] = std::array::from_fn(|number| format!("seg_{number}"));
    plan.transaction("stand", [emitted("drive", "stands")], |t| {
        t.create("place", "places", PLACE.map(event)).body(|b| {
            b.set("place", "cars", cell("place", "cars") + event("change"));
            b.assign("cars", cell("place", "cars"));
            b.when(local("cars").eq(0), |b| b.delete("place"));
            let begins = event("change").eq(1).and(local("cars").eq(2));
            let ends = event("change").eq(-1).and(local("cars").eq(1));
            b.when(any([begins, ends]), |b| {
                let back = |number: usize| event("seg") - (literal(1) - event("dir") * 2) * number as i64;
                let segments = seen.iter().enumerate().map(|(number, name)| (name.clone(), back(number)));
                let same = ["road", "dir", "change"].map(|name| (name.to_owned(), event(name)));
                b.give(record(same.into_iter().chain(segments)));
            });
        })
    })
    .transaction("block", [committed("stand")], |t| {
        let t = seen
            .iter()
            .fold(t, |t, name| t.create(name, "segments", [event("road"), event("dir"), event(name.as_str())]));
        t.body(|b| {
            let more = |name: &str| cell(name, "accidents") + event("change");
            seen.iter().for_each(|name| b.set(name, "accidents", more(name)));
        })
    })
}
