//! Plans that are deep: those within the limits pass through all of this crate, those beyond are refused at their place.

use std::fmt::Write;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, all, any, cell, event, literal, named};
use tidemill_plan::{
    BLOCK_DEPTH_MAX, EXPRESSION_DEPTH_MAX, Expr, Operations, Plan, PlanError, Span, Waves, analyze, explain,
    with_deep_stack,
};

fn plan(filter: Option<Expr>, body: impl FnOnce(&mut Block)) -> Plan {
    let builder = PlanBuilder::new("deep")
        .table("cells", |t| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .source("ticks", |s| s.field("id", Type::Int).field("n", Type::Int));
    let builder = match filter {
        Some(predicate) => builder.filter("some", named("ticks"), predicate),
        None => builder,
    };
    builder.transaction("t", [named("ticks")], |t| t.create("c", "cells", [event("id")]).body(body)).build()
}

/// Returns a sum that leans to the left, as written without parentheses.
fn sum(terms: usize) -> Expr {
    (1..terms).fold(event("n"), |sum, _| sum + event("n"))
}

/// One that leans to the right, in parentheses.
fn nested(terms: usize) -> Expr {
    (1..terms).fold(event("n"), |sum, _| event("n") + sum)
}

fn chain(block: &mut Block, count: i64) {
    block.when_else(
        event("n").eq(count),
        |b| b.set("c", "n", literal(Expr::from(count))),
        |b| {
            if count > 1 {
                chain(b, count - 1)
            }
        },
    );
    block.at(Span { line: count as u32, column: 4, end_line: count as u32, end_column: 9 });
}

/// Everything that this crate does with a plan, its way as text included.
fn passes(plan: &Plan) {
    let json = with_deep_stack(|| serde_json::to_string(plan).expect("plans can be written"));
    let read = Plan::from_json(&json).unwrap_or_else(|error| panic!("{error}"));
    let program = analyze(&read).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let text = explain(&program);
    assert!(text.contains("transaction t"), "{text}");
    with_deep_stack(|| {
        Operations::of(&program, 0.into());
        assert!(Waves::of(&program).is_some());
        assert_eq!(program.clone(), program);
        let mut json = String::new();
        write!(json, "{}", serde_json::to_string(&program).expect("programs can be written")).expect("in memory");
        assert!(json.len() > 1000);
    });
}

#[test]
fn what_is_within_the_limits_passes() {
    passes(&plan(None, |b| chain(b, 300)));
    passes(&plan(None, |b| chain(b, BLOCK_DEPTH_MAX as i64)));
    passes(&plan(Some(sum(500).lt(7)), |b| b.set("c", "n", sum(500))));
    passes(&plan(None, |b| b.set("c", "n", sum(EXPRESSION_DEPTH_MAX))));
    passes(&plan(None, |b| b.set("c", "n", nested(500))));
    let conditions = || (0..5_000).map(|i| event("n").ne(i));
    passes(&plan(Some(all(conditions())), |b| b.require(any(conditions()), "never")));
    passes(&plan(Some(event("n").is_in(0..5_000)), |b| b.set("c", "n", cell("c", "n") + 1)));
}

fn refusal(plan: &Plan) -> PlanError {
    let mut errors = analyze(plan).expect_err("it is too deep");
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn what_is_deeper_is_refused_at_its_place() {
    let error = refusal(&plan(None, |b| chain(b, BLOCK_DEPTH_MAX as i64 + 1)));
    assert_eq!(error.message, "blocks are in each other here, more than 400 deep");
    assert_eq!((error.place.as_str(), error.span.map(|s| s.line)), ("transaction 't'", Some(1)));

    let span = Span { line: 7, column: 3, end_line: 7, end_column: 9 };
    let error = refusal(&plan(None, |b| b.set("c", "n", sum(EXPRESSION_DEPTH_MAX + 1).at(span))));
    assert_eq!(error.message, "operations are in each other here, more than 600 deep");
    assert_eq!(error.span, Some(span));
    let error = refusal(&plan(Some(sum(700).lt(7).at(span)), |_| {}));
    assert_eq!((error.place.as_str(), error.span), ("stream 'some'", Some(span)));
}

#[test]
fn text_without_end_is_refused() {
    let text = "[".repeat(1_000_000);
    assert!(Plan::from_json(&text).expect_err("it is no plan").contains("nested more than"));
    assert!(Plan::from_json("{}").is_err());
    assert!(Plan::from_json("{} {}").is_err());
    // Brackets in texts are none.
    let plan = plan(None, |b| b.require(event("n").gt(0), "[{\\\"".repeat(10_000)));
    let json = serde_json::to_string(&plan).expect("plans can be written");
    assert_eq!(Plan::from_json(&json), Ok(plan));
}
