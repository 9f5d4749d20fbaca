//! A small bank on the crates alone: a plan by the typed builders, run by the engine on made-up
//! transfers. What was rejected goes to standard output, the balances follow.
//!
//! `cargo run -p tidemill-connect --example run_bank`

use std::error::Error;
use std::sync::Arc;
use tidemill_connect::{ColumnSpec, Generate, Literal, System, source_options};
use tidemill_connect::{WriteJsonl, WriteNull};
use tidemill_io::{SinkConnection, SourceConnection};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, event, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Request};

const ACCOUNTS: i64 = 5;
const DEPOSIT: i64 = 100;

fn plan() -> Plan {
    PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Int).column_or("balance", Type::Int, Value::Int(0)))
        .source("transfers", |s| {
            s.event_time("at", Type::Time).field("src", Type::Int).field("dst", Type::Int).field("amount", Type::Int)
        })
        .transaction("transfer", [named("transfers")], |t| {
            t.row("src", "accounts", [event("src")]).row("dst", "accounts", [event("dst")]).body(|b| {
                b.require(cell("src", "balance").ge(event("amount")), "insufficient funds");
                b.set("src", "balance", cell("src", "balance") - event("amount"));
                b.set("dst", "balance", cell("dst", "balance") + event("amount"));
            })
        })
        .sink("rejected", aborted("transfer"))
        .sink("done", committed("transfer"))
        .build()
}

/// Returns a hundred transfers, one a second.
fn transfers() -> Generate {
    let sequence = |start: &str, step| ColumnSpec::Sequence {
        start: Literal::Text(start.into()),
        step: Literal::Int(step),
        format: None,
    };
    let uniform = |low, high| ColumnSpec::Uniform { low: Literal::Int(low), high: Literal::Int(high), format: None };
    Generate {
        events: Some(100),
        rate: None,
        seed: 7,
        columns: vec![
            ("at".into(), sequence("2024-01-01T00:00:00Z", 1_000_000)),
            ("src".into(), uniform(1, ACCOUNTS)),
            ("dst".into(), uniform(1, ACCOUNTS)),
            ("amount".into(), uniform(1, 150)),
        ],
        end: tidemill_io::InputEnd::Pause,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = analyze(&plan()).map_err(|errors| errors[0].to_string())?;
    let engine = Engine::new(program)?;
    let program = engine.program();

    let columns = program.tables.raw[0].columns.iter().map(|column| (column.name.as_str(), column.ty));
    let account = Schema::scalars(columns);
    let opened: Vec<_> = (1..=ACCOUNTS).map(|id| vec![Value::Int(id), Value::Int(DEPOSIT)]).collect();
    engine.preload(0.into(), &batch_of(&account, &opened))?;

    let stream = program.streams.iter().find(|s| s.name == "transfers").expect("the plan has it");
    let schema_of = |sink: usize| &program.streams[program.sinks[sink].stream].schema;
    let rejected = WriteJsonl { path: "-".into(), compression: None };
    let summary = engine.run(
        Request::new(
            vec![transfers().open(&stream.schema, &source_options())?],
            vec![rejected.open(schema_of(0), None)?, WriteNull {}.open(schema_of(1), None)?],
            Arc::new(System::new()),
        ),
        &mut || {},
    )?;

    for transaction in &summary.transactions {
        println!("{}: {} committed, {:?}", transaction.name, transaction.committed, transaction.reasons);
    }
    let mut total = 0;
    for row in rows(&engine.table(0.into())?, &account) {
        if let [Value::Int(id), Value::Int(balance)] = row[..] {
            println!("account {id}: {balance}");
            total += balance;
        }
    }
    assert_eq!(total, ACCOUNTS * DEPOSIT, "money was made or lost");
    Ok(())
}
