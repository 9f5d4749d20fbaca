//! Calls per second of the embedded interface, with many in flight.
//!
//! Deposits to 10,000 accounts by two threads, without a state. Each sends messages of some calls, and has at most so
//! many calls without a reply.
//!
//!     cargo run --release -p tidemill-server --example calls

use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::System;
use tidemill_model::arrow::batch_of;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, event, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Logging, Options, Procedure, Request, SentSource, Session};

const THREADS: usize = 2;
const IN_FLIGHT_MAX: usize = 2_000;
const ACCOUNTS: i64 = 10_000;
const TIME: Duration = Duration::from_secs(3);

fn plan() -> Plan {
    PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Int).column_or("balance", Type::Int, Value::Int(0)))
        .source("deposits", |s| s.field("account", Type::Int).field("amount", Type::Int))
        .transaction("deposit", [named("deposits")], |t| {
            t.create("a", "accounts", [event("account")]).body(|b| {
                b.require(event("amount").gt(0), "amount must be positive");
                b.set("a", "balance", cell("a", "balance") + event("amount"));
                b.give([("account", cell("a", "id")), ("balance", cell("a", "balance"))]);
            })
        })
        .build()
}

fn start() -> Session {
    let engine = Engine::for_session(analyze(&plan()).expect("a right plan"), Logging::default()).expect("it compiles");
    let request = Request {
        options: Options { workers: 1, ..Options::default() },
        ..Request::new(vec![Box::new(SentSource)], Vec::new(), Arc::new(System::new()))
    };
    Session::start(engine, request, &mut || {}, Box::new(|| {})).expect("it starts")
}

/// Calls for a while; the number of replies.
fn call(session: &Session, procedure: &Procedure, batches: &[RecordBatch]) -> usize {
    let (end, mut waits, mut in_flight, mut replies) = (Instant::now() + TIME, VecDeque::new(), 0, 0);
    for batch in batches.iter().cycle() {
        if Instant::now() > end {
            break;
        }
        in_flight += batch.num_rows();
        waits.push_back(session.call(procedure, batch, None).expect("it runs"));
        while in_flight >= IN_FLIGHT_MAX {
            let mut calling = waits.pop_front().expect("some are in flight");
            while let Some(answered) = calling.next(None).expect("it runs") {
                in_flight -= answered.len();
                replies += answered.replies().count();
            }
        }
    }
    replies
}

fn main() {
    for size in [1, 10, 100, 1000] {
        let session = start();
        let procedure = session.procedure("deposit").expect("it can be called");
        let schema = session.source_schema(procedure.source);
        let row = |n: i64| vec![Value::Int(n * 7919 % ACCOUNTS), Value::Int(1)];
        let batch = |b: i64| batch_of(&schema, &(0..size).map(|n| row(b * size + n)).collect::<Vec<_>>());
        let batches: Vec<RecordBatch> = (0..100).map(batch).collect();
        let replies: usize = thread::scope(|scope| {
            let calls = || call(&session, &procedure, &batches);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(calls)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        println!("{size:>5} calls a message: {:>9.0} calls/s", replies as f64 / TIME.as_secs_f64());
        session.close(&mut || {}).expect("closed once").expect("a run in memory");
    }
}
