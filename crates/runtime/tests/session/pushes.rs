//! Pushes with a key: the answer names the epoch that has the last of the events, also when a push is made again, after a crash too.

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, unbounded};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_connect::System;
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_histories::Random;
use tidemill_io::{IoFailure, Recovered, Sink};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, committed, event, named};
use tidemill_plan::{Program, analyze};
use tidemill_runtime::{
    Answered, Durability, DurabilityOptions, Engine, EpochSize, Logging, Options, Outcome, ReplyTo, Request,
    RequestKey, RunError, SentSource, Session, SessionError, When,
};
use tidemill_sim::{Fault, SimStorage};

/// The events of a push, of which an epoch takes two.
const EVENTS: i64 = 9;
/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
const TRIALS: u64 = 40;

fn program(has_time: bool) -> Program {
    let plan = PlanBuilder::new("pushes").source("events", |s| {
        let s = s.remembers(3_600_000_000);
        let s = if has_time { s.event_time("at", Type::Int) } else { s };
        s.field("n", Type::Int)
    });
    // Two transactions: what one alone takes is its calls.
    let plan = ["pass", "also"].into_iter().fold(plan, |plan, name| {
        plan.transaction(name, [named("events")], |t| t.body(|b| b.give([("n", event("n"))])))
    });
    analyze(&plan.sink("passed", committed("pass")).build()).expect("a right plan")
}

/// Notes the epochs, and the number of their results. It outlives crashes.
#[derive(Clone, Default)]
struct ByEpoch {
    done: Arc<Mutex<Vec<(u64, usize)>>>,
    rows: usize,
}

impl Sink for ByEpoch {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.rows += batch.num_rows();
        Ok(())
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        Ok(Recovered::Through(self.done.lock().last().map(|(epoch, _)| *epoch)))
    }

    fn prepare(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        Ok(())
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        let (rows, done) = (std::mem::take(&mut self.rows), &mut *self.done.lock());
        if done.last().is_none_or(|(last, _)| *last < epoch) {
            done.push((epoch, rows));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

fn start(program: &Program, machine: &SimStorage, sink: &ByEpoch) -> Result<Session, RunError> {
    let directory = StateDirectory::open(OpenState {
        storage: Arc::new(machine.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(program),
        recorded: None,
    })?;
    let options = DurabilityOptions { checkpoint_events: 3, ..DurabilityOptions::default() };
    let sink: Box<dyn Sink> = Box::new(ByEpoch { done: sink.done.clone(), rows: 0 });
    let request = Request {
        options: Options { workers: 1, epoch: EpochSize::Events(2), ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(vec![Box::new(SentSource)], vec![sink], Arc::new(System::new()))
    };
    let engine = Engine::for_session(program.clone(), Logging::default()).expect("it compiles");
    Session::start(engine, request, &mut || {}, Box::new(|| {}))
}

/// Pushes the events with a key. Where they have a time, the last of them is held until there are later ones.
fn push(program: &Program, session: &Session, key: &str) -> Result<Receiver<Answered>, SessionError> {
    let stream = program.sources().next().expect("one source");
    let row = |n| if stream.event_time.is_some() { vec![Value::Int(n), Value::Int(n)] } else { vec![Value::Int(n)] };
    let batch = batch_of(&stream.schema, &(0..EVENTS).map(row).collect::<Vec<_>>());
    let (to, answered) = unbounded();
    let reply = ReplyTo { to: Arc::new(to), when: When::Durable };
    let key = RequestKey { user: String::new(), key: key.into(), called: 1 };
    session.push(0, &batch, &key, &reply, Some(Instant::now() + PATIENCE))?;
    Ok(answered)
}

/// Pushes the events; returns the epoch that the answer names.
fn answered(program: &Program, session: &Session) -> Result<u64, SessionError> {
    let answered = push(program, session, "one")?;
    session.flush(Some(Instant::now() + PATIENCE))?;
    let answered = answered.recv_timeout(PATIENCE).map_err(|_| SessionError::Over)?;
    assert_eq!(answered.outcomes(), [Outcome::Silent]);
    Ok(answered.epoch)
}

/// A push that is made again, at once, after a crash at any point, and in later runs, is answered with the epoch of the last event.
#[test]
fn the_answer_names_the_epoch_that_has_the_last_event() {
    let mut crashes = 0;
    for seed in 0..TRIALS {
        let (program, mut random) = (program(seed % 2 == 1), Random::new(seed));
        let (machine, sink) = (SimStorage::new(seed), ByEpoch::default());
        start(&program, &machine, &sink).map(|session| session.close(&mut || {})).expect("no fault");
        if seed > 3 {
            machine.fail(machine.call_count() + 20 + random.below(150), Fault::CutAfter);
        }
        let mut named = Vec::new();
        for life in 0..4 {
            let ended = start(&program, &machine, &sink).and_then(|session| {
                for _ in 0..2 {
                    named.extend(answered(&program, &session).ok());
                }
                session.close(&mut || {}).expect("it is closed once")
            });
            if let Err(error) = &ended {
                println!("seed {seed}, life {life}: {error}");
            }
            machine.heal();
            crashes += usize::from(ended.is_err());
            if machine.is_off() {
                machine.cut_power();
            } else if life > 0 {
                machine.kill();
            }
        }
        let done = sink.done.lock().clone();
        let rows: usize = done.iter().map(|(_, rows)| rows).sum();
        assert_eq!(rows, EVENTS as usize, "seed {seed}: {done:?}");
        // Epochs that are released together are committed together, under the number of the last.
        let last = done.iter().rposition(|(_, rows)| *rows > 0).expect("results");
        let before = last.checked_sub(1).map_or(0, |before| done[before].0);
        let is_last = |epoch: &u64| before < *epoch && *epoch <= done[last].0;
        assert!(named.len() > 3 && named.iter().all(is_last), "seed {seed}: {named:?}, {done:?}");
        assert!(named.iter().all(|epoch| *epoch == named[0]), "seed {seed}: {named:?}");
    }
    println!("{crashes} crashes");
}
