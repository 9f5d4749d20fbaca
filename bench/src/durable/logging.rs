//! What it costs to log every transaction and not only what crosses the border (S-Store, Meehan et al. 2015, Fig. 8):
//! chains of transactions, each on a table of its own and on what the one before gave.

use super::recovery::{Recovered, killed, live, recover};
use super::{DurableBench, EVENTS, run_timed, source};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_model::Value;
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Logging};

/// Transactions of the chains that are measured.
const LENGTHS: [usize; 4] = [1, 2, 4, 8];
/// Rows of each table.
const ROWS: i64 = 10_000;
/// Events that a run has released when it is killed.
const RELEASED: u64 = 4_000_000;

fn plan(length: usize) -> Plan {
    let plan = PlanBuilder::new("chain")
        .source("events", |s| s.event_time("at", Type::Int).field("id", Type::Int).field("amount", Type::Int));
    let transaction = |plan: PlanBuilder, step: usize| {
        let table = format!("table{step}");
        let input = if step == 0 { named("events") } else { committed(format!("step{}", step - 1)) };
        plan.table(&table, |t| t.key("id", Type::Int).column_or("sum", Type::Int, Value::Int(0))).transaction(
            format!("step{step}"),
            [input],
            |t| {
                t.create("row", &table, [event("id")]).body(|b| {
                    b.set("row", "sum", cell("row", "sum") + event("amount"));
                    b.give([("at", event("at")), ("id", event("id")), ("amount", event("amount"))]);
                })
            },
        )
    };
    (0..length).fold(plan, transaction).sink("done", committed(format!("step{}", length - 1))).build()
}

fn engine(length: usize, logging: Logging) -> Engine {
    let program = analyze(&plan(length)).expect("a right plan");
    Engine::with_logging(program, logging).expect("a plan that compiles")
}

fn batch() -> RecordBatch {
    let numbers = |of: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..EVENTS as i64).map(of))) as ArrayRef;
    let columns = [
        ("at", numbers(|i| i)),
        ("id", numbers(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).rem_euclid(ROWS))),
        ("amount", numbers(|i| i % 100)),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    batch.with_schema(tidemill_model::arrow::arrow_schema(&schema())).expect("the source's columns")
}

fn schema() -> tidemill_model::Schema {
    analyze(&plan(1)).expect("a right plan").streams.raw[0].schema.clone()
}

/// A run of one until it is killed: `LENGTH border` or `LENGTH full`.
pub fn live_chain(chain: &str, state: &Path) {
    let (length, logging) = chain.split_once(' ').expect("a length and a way of logging");
    let logging = if logging == "full" { Logging::Full } else { Logging::Border };
    live(&engine(length.parse().expect("a number"), logging), &batch(), state);
}

/// Prints the rates of all chains.
pub fn measure(bench: &DurableBench) {
    println!("chains of transactions: million events/s without a state, with what is logged, and recovered");
    let batch = batch();
    for length in LENGTHS {
        let events = (bench.events / length).min(RELEASED as usize);
        let (_, seconds) = run_timed(&engine(length, Logging::Border), source(&batch, events), None, &Arc::default());
        print!("  {length}: {:.2}", events as f64 / seconds / 1e6);
        for (name, logging) in [("border", Logging::Border), ("full", Logging::Full)] {
            let state = bench.fresh("logging");
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["durable", "--chain", &format!("{length} {name}"), "--live"]).arg(&state);
            let (released, seconds) = killed(&mut command, |_, released| released >= events as u64);
            let bytes: u64 = std::fs::read_dir(state.join("log"))
                .expect("a log")
                .map(|file| file.and_then(|file| file.metadata()).map_or(0, |file| file.len()))
                .sum();
            let Recovered { loaded, whole, events } = recover(&engine(length, logging), &batch, &state);
            print!(
                "; {name} {:.2} live, {:.1} bytes an event, {:.2} recovered in {whole:.2} s",
                released as f64 / seconds / 1e6,
                bytes as f64 / events as f64,
                events as f64 / (whole - loaded) / 1e6,
            );
        }
        println!();
    }
}
