//! The bank of the introduction: transfers between accounts, as a plan, analyzed and explained.
//!
//! `cargo run -p tidemill-plan --example bank`

use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, event, late, named};
use tidemill_plan::{analyze, explain};

fn main() {
    let plan = PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Str).column_or("balance", Type::Int, Value::Int(0)))
        .source("transfers", |s| {
            s.event_time("at", Type::Time)
                .field("src", Type::Str)
                .field("dst", Type::Str)
                .field("amount", Type::Int)
                .lateness(2_000_000)
        })
        .transaction("transfer", [named("transfers")], |t| {
            t.row("src", "accounts", [event("src")]).row("dst", "accounts", [event("dst")]).body(|b| {
                b.require(cell("src", "balance").ge(event("amount")), "insufficient funds");
                b.set("src", "balance", cell("src", "balance") - event("amount"));
                b.set("dst", "balance", cell("dst", "balance") + event("amount"));
                b.give([("at", event("at")), ("src", cell("src", "id")), ("left", cell("src", "balance"))]);
            })
        })
        .sink("done", committed("transfer"))
        .sink("rejected", aborted("transfer"))
        .sink("late", late("transfers"))
        .build();

    match analyze(&plan) {
        Ok(program) => print!("{}", explain(&program)),
        Err(errors) => errors.iter().for_each(|error| eprintln!("error: {error}")),
    }
}
