//! Streams: order, names, schemas, roots, deliveries.

use super::{program, stream, transaction};
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, emitted, event, failed, late, named, record};
use tidemill_plan::{Delivery, Origin};

fn counters() -> PlanBuilder {
    PlanBuilder::new("counters")
        .table("counts", |t| t.key("name", Type::Str).column_or("count", Type::Int, Value::Int(0)))
        .source("words", |s| s.event_time("at", Type::Time).field("word", Type::Str).field("n", Type::Int).lateness(5))
}

#[test]
fn streams_come_after_what_they_derive_from() {
    let program = program(
        counters()
            .filter("big", named("words"), event("n").gt(10))
            .map("totals", committed("count"), [("word", event("name"))])
            .transaction("again", [named("totals")], |t| {
                t.create("c", "counts", [event("word")]).body(|b| b.set("c", "count", cell("c", "count") + 1))
            })
            .transaction("count", [named("big"), named("words")], |t| {
                t.create("c", "counts", [event("word")]).body(|b| {
                    b.set("c", "count", cell("c", "count") + event("n"));
                    b.emit("alerts", [("word", event("word"))]);
                    b.give([("name", event("word")), ("count", cell("c", "count"))]);
                })
            })
            .sink("totals", named("totals"))
            .sink("alerts", emitted("count", "alerts"))
            .sink("late", late("words"))
            .sink("failed", failed("big")),
    );
    let names: Vec<&str> = program.streams.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "words",
            "words.late",
            "words.bad",
            "big",
            "big.failed",
            "count.committed",
            "count.aborted",
            "count.emitted.alerts",
            "totals",
            "totals.failed",
            "again.committed",
            "again.aborted",
        ]
    );
    // Transactions keep the order of their declaration, which is the order of delivery.
    assert_eq!(
        (program.transactions.raw[0].name.as_str(), program.transactions.raw[1].name.as_str()),
        ("again", "count")
    );
    let delivery = |transaction: usize, input| Delivery { transaction: transaction.into(), input };
    assert_eq!(stream(&program, "words").deliveries, [delivery(1, 0), delivery(1, 1)]);
    assert_eq!(stream(&program, "count.committed").deliveries, [delivery(0, 0)]);
    assert_eq!(stream(&program, "big").deliveries, []);
    assert_eq!(stream(&program, "big").root, 0.into());
    assert_eq!(stream(&program, "totals").root, 5.into());
    assert!(transaction(&program, "count").cascades);
    assert!(!transaction(&program, "again").cascades);
    assert_eq!(stream(&program, "big").event_time, Some(0));
    assert_eq!(stream(&program, "count.aborted").event_time, Some(0));
    assert_eq!(stream(&program, "count.committed").event_time, None);
    assert_eq!(stream(&program, "again.committed").schema.to_string(), "word: str");
}

#[test]
fn a_field_that_is_called_reason_steps_aside() {
    let program = program(
        PlanBuilder::new("reasons")
            .table("t", |t| t.key("id", Type::Int))
            .source("s", |s| s.field("reason", Type::Int))
            .filter("f", named("s"), event("reason").gt(0))
            .transaction("first", [named("f")], |t| t.row("r", "t", [event("reason")]).body(|b| b.delete("r")))
            .transaction("second", [aborted("first")], |t| t.body(|b| b.abort("no"))),
    );
    assert_eq!(stream(&program, "f.failed").schema.to_string(), "event.reason: int, reason: str");
    let first = "event.reason: int, reason: str, r.id: int | None";
    assert_eq!(stream(&program, "first.aborted").schema.to_string(), first);
    let second = "event.reason: int, event.event.reason: str, r.id: int | None, reason: str";
    assert_eq!(stream(&program, "second.aborted").schema.to_string(), second);
}

#[test]
fn declared_records_are_brought_into_shape() {
    let schema = || {
        let optional = ColumnType::optional(Type::Int);
        Schema::scalars([("at", Type::Time.into()), ("x", Type::Float.into()), ("maybe", optional)])
    };
    let program = program(
        counters()
            .map(
                "shaped",
                named("words"),
                record([("x", event("n")), ("at", event("at"))]).declared(schema()).timed("at"),
            )
            .filter("later", named("shaped"), event("x").gt(1.0))
            .sink("out", named("later")),
    );
    assert_eq!(stream(&program, "later").schema, schema());
    assert_eq!(stream(&program, "later").event_time, Some(0));
    assert!(matches!(&stream(&program, "shaped").origin, Origin::Map { fields, .. } if fields.len() == 3));
}

#[test]
fn lists_pass_through_transactions_unopened() {
    let program = program(
        PlanBuilder::new("lists")
            .source("orders", |s| s.field("id", Type::Int).list("items", Type::Str))
            .transaction("first", [named("orders")], |t| t.body(|b| b.require(event("id").gt(0), "no id")))
            .transaction("second", [committed("first")], |t| {
                t.body(|b| b.give([("id", event("id")), ("items", event("items"))]))
            }),
    );
    assert_eq!(stream(&program, "second.committed").schema.to_string(), "id: int, items: list[str]");
}
