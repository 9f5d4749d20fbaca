//! States of sessions, whose events have the order in which several threads happened to send them: the audit finds the
//! same order in the log, and everything that was acknowledged.

use crate::bank::{logged, open};
use crate::trials;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidemill_audit::verify;
use tidemill_connect::{SinkDurability, System, WriteJsonl};
use tidemill_durability::{Identity, OpenState, Planted, Recorded, StateDirectory, Storage};
use tidemill_histories::Random;
use tidemill_io::{Sink, SinkConnection};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, SourceBuilder, cell, committed, event, late, literal, named};
use tidemill_plan::{Expr, ExprNode, Plan, Program, StreamRef, WindowFunction, WindowsDef, analyze};
use tidemill_runtime::{
    Durability, DurabilityOptions, Engine, EpochSize, Logging, Options, Request, RunError, SentSource, Session,
};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 40;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 3;
const THREADS: usize = 3;

/// The times that the events of a source have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Times {
    None,
    /// The times that the events bring.
    Own,
    /// The times of their positions.
    Filled,
}

/// Two sources whose transactions do not commute. Windows over events with times, and ticks, change the same rows.
pub fn plan(times: [Times; 2]) -> Plan {
    let source = |times: Times| {
        move |s: SourceBuilder| {
            let s = match times {
                Times::None => s,
                Times::Own => s.event_time("at", Type::Int).lateness(3),
                Times::Filled => s.event_time("at", Type::Int).anchored(),
            };
            s.field("key", Type::Int).field("n", Type::Int)
        }
    };
    let mut plan = PlanBuilder::new("order")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("adds", source(times[0]))
        .source("multiplies", source(times[1]));
    for (name, source, factor) in [("add", "adds", 1), ("multiply", "multiplies", 31)] {
        plan = plan.transaction(name, [named(source)], |t| {
            t.create("row", "rows", [event("key")]).body(|b| {
                b.set("row", "value", (cell("row", "value") * literal(factor) + event("n")) % literal(1_000_003));
                b.give([("value", cell("row", "value"))]);
            })
        });
    }
    if times[0] == Times::Own {
        plan = with_windows(plan.sink("late", late("adds")));
    }
    if times[1] == Times::Filled {
        plan = with_sent_windows(plan);
    }
    plan.sink("added", committed("add")).sink("multiplied", committed("multiply")).build()
}

/// A window over the first source, whose closes change the rows, and ticks that do.
fn with_windows(plan: PlanBuilder) -> PlanBuilder {
    let changes = |factor: i64, n: Expr| {
        move |b: &mut Block| {
            b.set("row", "value", (cell("row", "value") * literal(factor) + n) % literal(1_000_003));
            b.give([("value", cell("row", "value"))]);
        }
    };
    let count: Expr =
        ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None }.into();
    let windows = WindowsDef::Tumbling { length: Value::Int(4), origin: 0 };
    plan.every("ticks", Value::Int(3), 0)
        .window("counts", named("adds"), [("key", event("key"))], windows, |b| {
            b.give([("key", event("key")), ("count", count)]);
        })
        .transaction("close", [committed("counts")], |t| {
            t.create("row", "rows", [event("key")]).body(changes(37, event("count")))
        })
        .transaction("tick", [named("ticks")], |t| t.create("row", "rows", [0.into()]).body(changes(41, event("at"))))
        .sink("closes", committed("close"))
        .sink("ticked", committed("tick"))
}

/// A window over what is sent, whose closes change the rows; and a row that is woken, which does.
fn with_sent_windows(plan: PlanBuilder) -> PlanBuilder {
    let sum: Expr = ExprNode::Aggregate {
        function: WindowFunction::Sum,
        value: Some(Box::new(event("n"))),
        by: None,
        argument: None,
    }
    .into();
    let windows = WindowsDef::Tumbling { length: Value::Int(3), origin: 0 };
    plan.window("sums", named("multiplies"), [("key", event("key"))], windows, |b| {
        b.give([("key", event("key")), ("sum", sum), ("end", event("end"))]);
    })
    .transaction("sleep", [named("multiplies")], |t| {
        t.create("row", "rows", [event("key")]).body(|b| b.wake("row", Some(event("at") + literal(2))))
    })
    .transaction("wake", [StreamRef::Woken("rows".into())], |t| {
        t.create("row", "rows", [event("key")]).body(|b| {
            b.set("row", "value", (cell("row", "value") * literal(41) + event("at")) % literal(1_000_003));
            b.give([("value", cell("row", "value"))]);
        })
    })
    .transaction("sum", [committed("sums")], |t| {
        t.create("row", "rows", [event("key")]).body(|b| {
            b.set("row", "value", (cell("row", "value") * literal(43) + event("sum")) % literal(1_000_003));
            b.give([("value", cell("row", "value")), ("end", event("end"))]);
        })
    })
    .sink("summed", committed("sum"))
    .sink("woken", committed("wake"))
}

pub fn start(machine: &SimStorage, plan: &Plan, program: &Program, seed: u64) -> Result<Session, RunError> {
    start_planted(machine, plan, program, seed, Planted::default())
}

/// Starts a session with a bug.
pub fn start_planted(
    machine: &SimStorage,
    plan: &Plan,
    program: &Program,
    seed: u64,
    planted: Planted,
) -> Result<Session, RunError> {
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let recorded = Recorded { plan: plan.clone(), sources: BTreeMap::new(), sinks: BTreeMap::new() };
    let mut directory = StateDirectory::open(OpenState {
        storage: storage.clone(),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(program),
        recorded: Some(recorded),
    })?;
    directory.plant(planted);
    let sinks = open_sinks(program, &directory, storage)?;
    if !directory.is_new() && directory.savepoint("start").is_err() {
        directory.create_savepoint("start")?;
    }
    let options = DurabilityOptions {
        savepoint: Some("start".into()),
        checkpoint_events: 40 + seed % 50,
        // Some have all keys in memory.
        keys_in_memory: if seed % 4 == 3 { 1 << 20 } else { 1 + seed as usize * 7 % 60 },
        ..DurabilityOptions::default()
    };
    let epoch = if seed.is_multiple_of(2) { EpochSize::Auto } else { EpochSize::Events(1 + seed as usize % 9) };
    let request = Request {
        options: Options { workers: 2, epoch, ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(vec![Box::new(SentSource), Box::new(SentSource)], sinks, Arc::new(System::new()))
    };
    let engine = Engine::for_session(program.clone(), Logging::default()).expect("it compiles");
    let keep: Vec<_> = program.sinks.iter().map(|sink| (sink.stream, kept_events(seed))).collect();
    Session::start_keeping(engine, request, &keep, &mut || {}, Box::new(|| {}))
}

/// Returns the sinks of a program, each to a file of its name.
pub fn open_sinks(
    program: &Program,
    directory: &StateDirectory,
    storage: Arc<dyn Storage>,
) -> Result<Vec<Box<dyn Sink>>, RunError> {
    let durable = SinkDurability::of(directory, storage);
    let open = |sink: &tidemill_plan::Sink| {
        let file = WriteJsonl { path: format!("out/{}", sink.name), compression: None };
        let failed = |failure| RunError::Sink { name: sink.name.clone(), failure };
        file.open(&program.streams[sink.stream].schema, Some(&durable)).map_err(failed)
    };
    program.sinks.iter().map(open).collect()
}

/// Returns the number of events of each stream that are kept: all, or a few.
pub fn kept_events(seed: u64) -> usize {
    if seed % 4 == 3 { 1 } else { 1_000_000 }
}

/// Sends until it is done or the session ends; counts what was sent and what was acknowledged, by source.
pub fn send(
    session: &Session,
    program: &Program,
    random: &mut Random,
    clock: &AtomicU64,
    counts: &[[AtomicU64; 2]; 2],
) {
    let [sent, acknowledged] = counts;
    let mut pending = [0; 2];
    for _ in 0..20 {
        let source = random.below(2);
        let stream = program.sources().nth(source).expect("two sources");
        let has_times = stream.own_time().is_some();
        let now = clock.fetch_add(1, Ordering::Relaxed) as i64;
        let mut event = || {
            let at = Value::Int(now - random.below(6) as i64);
            let [key, n] = [3, 1000].map(|below| Value::Int(random.below(below) as i64));
            if has_times { vec![at, key, n] } else { vec![key, n] }
        };
        let events: Vec<_> = (0..source + 4).map(|_| event()).collect();
        sent[source].fetch_add(events.len() as u64, Ordering::Relaxed);
        if session.send(source, &batch_of(&stream.brought(), &events), None).is_err() {
            return;
        }
        pending[source] += events.len() as u64;
        if has_times && random.chance(40) {
            let said = match random.chance(50) {
                true => session.idle(source, None),
                false => session.punctuate(source, now - 4, None),
            };
            if said.is_err() {
                return;
            }
        }
        if random.chance(30) {
            if session.flush(None).is_err() {
                return;
            }
            for (count, pending) in acknowledged.iter().zip(&mut pending) {
                count.fetch_add(std::mem::take(pending), Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn several_threads_send_and_the_log_has_their_order() {
    crash_under([Times::None; 2]);
}

#[test]
fn several_threads_send_events_with_times_and_the_log_has_their_punctuations() {
    crash_under([Times::Own; 2]);
}

#[test]
fn several_threads_send_events_with_times_and_without_and_the_log_has_their_anchors() {
    crash_under([Times::Own, Times::None]);
}

#[test]
fn several_threads_send_events_that_get_times_and_the_log_has_their_anchors() {
    crash_under([Times::Own, Times::Filled]);
}

fn crash_under(times: [Times; 2]) {
    let plan = plan(times);
    let program = analyze(&plan).expect("a right plan");
    let (mut crashes, mut replayed) = (0, 0);
    trials(TRIALS, |seed| {
        let machine = SimStorage::new(seed);
        tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
        let mut random = Random::new(seed);
        let counts: [[AtomicU64; 2]; 2] = Default::default();
        let clock = AtomicU64::new(10);
        for life in 0..LIVES {
            if life + 1 < LIVES {
                let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
                machine.fail(machine.call_count() + random.below(300), fault);
            }
            let ended = start(&machine, &plan, &program, seed).and_then(|session| {
                thread::scope(|scope| {
                    for number in 0..THREADS {
                        let mut random = Random::new(seed * 100 + (life * THREADS + number) as u64);
                        let (session, program, clock, counts) = (&session, &program, &clock, &counts);
                        scope.spawn(move || send(session, program, &mut random, clock, counts));
                    }
                });
                session.close(&mut || {}).expect("it is closed once")
            });
            machine.heal();
            match ended {
                Err(_) if machine.is_off() => {
                    crashes += 1;
                    machine.cut_power();
                }
                Err(error) => panic!("seed {seed}: {error}"),
                Ok(summary) => replayed += summary.durability.expect("it has a state").replayed_events,
            }
        }
        let state = open(&machine);
        let [sent, acknowledged] = &counts;
        for (source, at) in state.checkpoint().expect("the last session has ended").sources.iter().enumerate() {
            let (least, most) = (acknowledged[source].load(Ordering::Relaxed), sent[source].load(Ordering::Relaxed));
            // Late events were taken and have not passed.
            assert!((least..=most).contains(&at.events), "seed {seed}: {} of {least} to {most}", at.events);
        }
        let verified = verify(&state, Some("start"), &logged).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(verified.tables_compared && verified.events > 0, "seed {seed}: {verified:?}");
        crashes > TRIALS / 2 && replayed > 0
    });
}
