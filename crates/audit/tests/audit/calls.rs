//! Calls beside crashes: each answered call is in the log once, and its reply is what the audit's interpreter gives at the
//! position that was logged.
//!
//! The sinks have each call's outcome by its number. The audit compares them with what the interpreter gives for the log,
//! and the replies are compared with the sinks.

use crate::bank::{logged, open};
use crate::session::start;
use crate::trials;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use tidemill_audit::verify;
use tidemill_histories::Random;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, SourceBuilder, aborted, cell, committed, event, literal, named};
use tidemill_plan::{Plan, Program, analyze};
use tidemill_runtime::{Reply, Session};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 40;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 3;
const THREADS: usize = 3;
pub const NAMES: [&str; 2] = ["add", "multiply"];

/// Two procedures that do not commute, abort, and return a record or none. Their calls may have keys, if that time is given.
pub fn plan(remembers: Option<i64>) -> Plan {
    let source = |s: SourceBuilder| {
        let source = s.field("id", Type::Int).field("key", Type::Int).field("n", Type::Int);
        remembers.into_iter().fold(source, SourceBuilder::remembers)
    };
    let mut plan = PlanBuilder::new("calls")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("adds", source)
        .source("multiplies", source);
    for (name, source, factor) in [("add", "adds", 1), ("multiply", "multiplies", 31)] {
        plan = plan.transaction(name, [named(source)], |t| {
            t.create("row", "rows", [event("key")]).body(|b| {
                b.set("row", "value", (cell("row", "value") * literal(factor) + event("n")) % literal(1_000_003));
                b.require((cell("row", "value") % literal(5)).gt(0), "five divides it");
                b.when((event("n") % literal(3)).gt(0), |b| {
                    b.give([("id", event("id")), ("value", cell("row", "value"))]);
                });
            })
        });
    }
    let sinks = NAMES.map(|name| (name, committed(name), aborted(name)));
    let plan = sinks.into_iter().fold(plan, |plan, (name, committed, aborted)| {
        plan.sink(name, committed).sink(format!("{name}.aborted"), aborted)
    });
    plan.build()
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Value(i64),
    Nothing,
    /// The call aborted with the value seen, unless there was no row.
    Aborted(Option<i64>),
}

pub fn said(program: &Program, transaction: usize, reply: &Reply, id: i64) -> Said {
    let transaction = &program.transactions.raw[transaction];
    let (batch, stream) = match reply {
        Reply::Committed(None) => return Said::Nothing,
        Reply::Committed(Some(batch)) => (batch, transaction.committed.stream),
        Reply::Aborted(batch) => (batch, transaction.aborted),
        Reply::Untaken(reason) => panic!("call {id}: {reason}"),
        Reply::Refused(why) => panic!("call {id}: {why}"),
    };
    let row = rows(batch, &program.streams[stream].schema).pop().expect("a row");
    assert_eq!(row[0], Value::Int(id), "a reply belongs to its call");
    match (reply, row.last().expect("it has columns")) {
        (Reply::Committed(_), Value::Int(value)) => Said::Value(*value),
        (Reply::Aborted(_), Value::Int(value)) => Said::Aborted(Some(*value)),
        (Reply::Aborted(_), Value::Null) => Said::Aborted(None),
        other => panic!("{other:?} is no outcome"),
    }
}

/// The state that the callers share.
#[derive(Default)]
struct Calls {
    next: AtomicI64,
    /// The number of calls that may have been sent, by procedure.
    sent: [AtomicU64; 2],
    /// The procedure and the reply of each call, by number.
    answered: Mutex<BTreeMap<i64, (usize, Said)>>,
}

/// Calls until it is done or the session ends.
fn call(session: &Session, program: &Program, random: &mut Random, calls: &Calls) {
    let procedures = NAMES.map(|name| session.procedure(name).expect("it can be called"));
    let mut waits = Vec::new();
    for _ in 0..20 {
        let which = random.below(2);
        let stream = program.transactions.raw[which].inputs[0];
        let count = 1 + random.below(6);
        let first = calls.next.fetch_add(count as i64, Ordering::Relaxed);
        let mut event = |id| [id, random.below(3) as i64, random.below(1000) as i64].map(Value::Int).to_vec();
        let events: Vec<_> = (0..count as i64).map(|k| event(first + k)).collect();
        calls.sent[which].fetch_add(count as u64, Ordering::Relaxed);
        let batch = batch_of(&program.streams[stream].schema, &events);
        // Events that nobody waits for, between the calls.
        if random.chance(20) {
            if session.send(procedures[which].source, &batch, None).is_err() {
                return;
            }
            continue;
        }
        let Ok(calling) = session.call(&procedures[which], &batch, None) else { return };
        waits.push((which, first, calling));
        if random.chance(40) {
            for (which, first, mut calling) in waits.drain(..) {
                let mut at = 0;
                while let Ok(Some(answered)) = calling.next(None) {
                    assert_eq!(answered.first, at, "replies come in the order of the calls");
                    let replies = answered.replies().zip(first + at as i64..);
                    let replies = replies.map(|(reply, id)| (id, (which, said(program, which, &reply, id))));
                    calls.answered.lock().expect("no panic").extend(replies);
                    at += answered.len();
                }
            }
        }
    }
}

/// Returns the outcomes that a sink has, by the number of the call. Panics if one is there twice.
pub fn released(machine: &SimStorage, which: usize, is_aborted: bool) -> BTreeMap<i64, Said> {
    let path = format!("out/{}{}", NAMES[which], if is_aborted { ".aborted" } else { "" });
    let files = machine.files();
    let Some(text) = files.get(Path::new(&path)) else { panic!("{path} is not among {:?}", files.keys()) };
    let text = String::from_utf8(text.clone()).expect("it is text");
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        let number = |field: &str| record[field].as_i64().expect("it is a number");
        let said = if is_aborted { Said::Aborted(record["row.value"].as_i64()) } else { Said::Value(number("value")) };
        assert!(all.insert(number("id"), said).is_none(), "{path}: the outcome of a call is there once: {line}");
    }
    all
}

#[test]
fn answered_calls_are_in_the_log_once_with_their_outcomes() {
    let plan = plan(None);
    let program = analyze(&plan).expect("a right plan");
    let (mut crashes, mut answered, mut aborted, mut silent) = (0, 0, 0, 0);
    trials(TRIALS, |seed| {
        let machine = SimStorage::new(seed);
        tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
        let mut random = Random::new(seed);
        let calls = Calls::default();
        for life in 0..LIVES {
            if life + 1 < LIVES {
                let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
                machine.fail(machine.call_count() + random.below(160), fault);
            }
            let ended = start(&machine, &plan, &program, seed).and_then(|session| {
                thread::scope(|scope| {
                    for number in 0..THREADS {
                        let mut random = Random::new(seed * 100 + (life * THREADS + number) as u64);
                        let (session, program, calls) = (&session, &program, &calls);
                        scope.spawn(move || call(session, program, &mut random, calls));
                    }
                });
                session.close(&mut || {}).expect("it is closed once")
            });
            machine.heal();
            if let Err(error) = ended {
                assert!(machine.is_off(), "seed {seed}: {error}");
                crashes += 1;
                machine.cut_power();
            }
        }
        let state = open(&machine);
        let verified = verify(&state, Some("start"), &logged).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(verified.tables_compared && verified.events > 0, "seed {seed}: {:?}", verified.notes);
        let outcomes = [0, 1].map(|which| [false, true].map(|is_aborted| released(&machine, which, is_aborted)));
        let replies = calls.answered.into_inner().expect("no panic");
        for (id, (which, reply)) in &replies {
            let [committed, refused] = &outcomes[*which];
            let expected = committed.get(id).or(refused.get(id)).copied().unwrap_or(Said::Nothing);
            assert_eq!(*reply, expected, "seed {seed}: the reply to call {id} of {}", NAMES[*which]);
            aborted += u64::from(matches!(reply, Said::Aborted(_)));
            silent += u64::from(*reply == Said::Nothing);
        }
        for (which, at) in state.checkpoint().expect("the last session has ended").sources.iter().enumerate() {
            let least = replies.values().filter(|(of, _)| *of == which).count() as u64;
            let most = calls.sent[which].load(Ordering::Relaxed);
            assert!((least..=most).contains(&at.events), "seed {seed}: {} of {least} to {most}", at.events);
        }
        answered += replies.len();
        crashes > TRIALS / 2 && answered > 1000 && aborted > 100 && silent > 100
    });
}
