//! Bodies and expressions that are as deep as plans are promised to be: three hundred branches, five hundred terms.

use super::values::ints;
use crate::History;
use crate::ast::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{AccessDef, CompareOp, Expr, OriginDef, Stmt, StreamDef};

const BRANCHES: i64 = 300;
const TERMS: usize = 500;

fn n() -> Expr {
    event("n")
}

fn is(value: i64) -> Expr {
    compare(CompareOp::Eq, n(), int(value))
}

/// Returns `if n == 0: … elif n == 1: …`.
fn branches(from: i64) -> Vec<Stmt> {
    let otherwise = if from < BRANCHES { branches(from + 1) } else { vec![abort("none of all")] };
    vec![when(is(from), vec![set("r", "n", int(from * 2))], otherwise)]
}

/// Loops and conditions in each other.
fn blocks(depth: i64) -> Vec<Stmt> {
    let name = format!("i{depth}");
    let inner = if depth > 0 { blocks(depth - 1) } else { vec![increase("r", "n", n())] };
    let inner = vec![when(compare(CompareOp::Gt, n(), int(-depth)), inner, vec![])];
    if depth % 10 == 0 { vec![for_range(&name, int(0), int(1), 1, inner)] } else { inner }
}

/// Sums that lean to the left and to the right, in a filter, a requirement and a cell; branches and blocks.
pub fn deep() -> History {
    let left = || (1..TERMS).fold(n(), |sum, _| add(sum, n()));
    let right = || (1..TERMS).fold(n(), |sum, _| add(n(), sum));
    let small = compare(CompareOp::Lt, left(), int(100_000));
    let some =
        StreamDef { name: "some".into(), origin: OriginDef::Filter { input: named("events"), predicate: small } };
    let bodies = [
        branches(0),
        vec![require(compare(CompareOp::Ge, right(), int(0)), "below"), set("r", "n", sub(left(), right()))],
        vec![set("r", "n", right()), give_back(vec![("n", left())])],
        blocks(BRANCHES),
    ];
    let roles = || vec![role("r", "cells", vec![event("id")], AccessDef::Create)];
    let work = |(i, body)| transaction(&format!("work{i}"), vec![named("some")], roles(), body);
    let schema = Schema::scalars([("id", Type::Int.into()), ("n", Type::Int.into())]);
    let cells = table("cells", vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))]);
    let transactions = bodies.into_iter().enumerate().map(work).collect();
    let plan = plan("deep", vec![cells], vec![source("events", schema), some], transactions);
    let numbers = [0, 1, 7, 150, 199, 200, 298, 299, 300, 301, -1, -300, i64::MAX / 400];
    let events = (0..).zip(numbers.into_iter().cycle().take(40)).map(|(i, n)| ints(&[i % 3, n])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}
