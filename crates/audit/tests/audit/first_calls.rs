//! Restarts with a clock: time goes on before the first call, so that a hold that has expired meanwhile is not taken; and
//! what the calls find is what the audit's interpreter gives for the log.

use crate::bank::{logged, open};
use crate::trials;
use arrow_array::RecordBatch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_audit::verify;
use tidemill_connect::System;
use tidemill_durability::{Bug, Identity, Open, OpenState, Planted, Recorded, StateDirectory, Storage};
use tidemill_histories::Random;
use tidemill_io::{IoFailure, Next, Resumed, Source, SourceBatch};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, SourceBuilder, aborted, cell, committed, event, literal, named};
use tidemill_plan::{Plan, Program, StreamRef, analyze};
use tidemill_runtime::{
    Control, Durability, DurabilityOptions, Engine, EpochSize, HeldTime, Logging, NotMade, Options, Procedure, Reply,
    Request, RunError, SentSource, Session, SessionError,
};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 30;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 4;
/// The time for which a hold is good.
pub const HOLD: i64 = 3;
/// The time for which keys are remembered.
const HOUR: i64 = 3_600_000_000;
/// The time that an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A call that is not answered within this time waits.
const WAITS: Duration = Duration::from_millis(300);

/// Holds that expire by a clock, and are taken before that. `orders`: another source, which may hold the clock back.
fn plan(orders: bool) -> Plan {
    let asked = |s: SourceBuilder| s.event_time("at", Type::Int).anchored().remembers(HOUR).field("id", Type::Int);
    let plan = PlanBuilder::new("holds")
        .table("holds", |t| {
            t.key("id", Type::Int).column_or("until", Type::Int, Value::Int(0)).column_or(
                "state",
                Type::Int,
                Value::Int(0),
            )
        })
        .source("ticks", |s| s.event_time("tick", Type::Int).lateness(-1))
        .source("puts", asked)
        .source("takes", asked);
    let plan = match orders {
        true => plan.source("orders", |s| s.event_time("at", Type::Int)),
        false => plan,
    };
    plan.transaction("put", [named("puts")], |t| {
        t.create("hold", "holds", [event("id")]).body(|b| {
            b.set("hold", "until", event("at") + literal(HOLD));
            b.set("hold", "state", literal(1));
            b.wake("hold", Some(event("at") + literal(HOLD)));
            b.give([("at", event("at"))]);
        })
    })
    .transaction("take", [named("takes")], |t| {
        t.row("hold", "holds", [event("id")]).body(|b| {
            b.require(cell("hold", "state").eq(1), "expired");
            b.require(cell("hold", "until").gt(event("at")), "over");
            b.set("hold", "state", literal(2));
            b.wake("hold", None);
            b.give([("at", event("at"))]);
        })
    })
    .transaction("expire", [StreamRef::Woken("holds".into())], |t| {
        t.row("hold", "holds", [event("id")]).body(|b| b.set("hold", "state", literal(3)))
    })
    .sink("taken", committed("take"))
    .sink("refused", aborted("take"))
    .build()
}

/// A clock with a tick each unit of a time that a test sets. Its first answer in a run takes a while.
struct Ticks {
    now: Arc<AtomicI64>,
    last: i64,
    delay: Duration,
    /// It is mute until this says that it speaks.
    speaks: Arc<AtomicBool>,
    schema: Schema,
}

impl Source for Ticks {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        thread::sleep(std::mem::take(&mut self.delay));
        while !self.speaks.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let now = self.now.load(Ordering::Acquire);
        if now <= self.last {
            thread::sleep(wait_max.min(Duration::from_millis(1)));
            return Ok(Next::Nothing);
        }
        self.last = now;
        Ok(Next::Batch(SourceBatch { events: batch_of(&self.schema, &[vec![Value::Int(now)]]), bad: Vec::new() }))
    }

    fn token(&self) -> Option<String> {
        Some(self.last.to_string())
    }

    fn is_clock(&self) -> bool {
        true
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.last = token.map_or(0, |token| token.parse().expect("a number"));
        Ok(Resumed::Behind)
    }
}

/// The way in which a session is started.
#[derive(Clone, Copy, Default)]
pub struct How {
    pub delay: Duration,
    /// A flag: whether the clock is mute, until [`World::close_mute`] has it speak.
    pub is_mute: bool,
    /// The time without input after which the other source holds nothing back.
    pub idle: Option<Duration>,
    pub epoch: EpochSize,
    pub planted: Planted,
    /// A flag: whether the end of the input is the end for good.
    pub is_final: bool,
}

pub struct World {
    pub plan: Plan,
    pub program: Program,
    pub machine: SimStorage,
    pub now: Arc<AtomicI64>,
    speaks: Arc<AtomicBool>,
}

impl World {
    pub fn new(seed: u64, orders: bool) -> World {
        let machine = SimStorage::new(seed);
        machine.create_directory(Path::new("out")).expect("no fault");
        World::on(machine, plan(orders))
    }

    pub fn on(machine: SimStorage, plan: Plan) -> World {
        let program = analyze(&plan).expect("a right plan");
        World { plan, program, machine, now: Arc::new(AtomicI64::new(10)), speaks: Arc::default() }
    }

    pub fn start(&self, how: How) -> Result<Session, RunError> {
        let (engine, request) = self.run(how)?;
        Session::start(engine, request, &mut || {}, Box::new(|| {}))
    }

    /// Returns the application, and the request for a run of it.
    pub fn run(&self, how: How) -> Result<(Engine, Request), RunError> {
        let storage: Arc<dyn Storage> = Arc::new(self.machine.clone());
        let recorded = Recorded { plan: self.plan.clone(), sources: BTreeMap::new(), sinks: BTreeMap::new() };
        let mut directory = StateDirectory::open(OpenState {
            storage: storage.clone(),
            path: Path::new("state"),
            holder: "a test",
            id: 7,
            program: Identity::of(&self.program),
            recorded: Some(recorded),
        })?;
        directory.plant(how.planted);
        let sinks = crate::session::open_sinks(&self.program, &directory, storage)?;
        let schema = self.program.sources().next().expect("the clock").schema.clone();
        self.speaks.store(!how.is_mute, Ordering::Release);
        let ticks = Ticks { now: self.now.clone(), last: 0, delay: how.delay, speaks: self.speaks.clone(), schema };
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(ticks)];
        sources.resize_with(self.program.sources().count(), || Box::new(SentSource));
        let is_final = how.is_final;
        let options = DurabilityOptions { savepoint: Some("start".into()), is_final, ..DurabilityOptions::default() };
        let idle = vec![None, None, None, how.idle];
        let request = Request {
            options: Options { workers: 2, epoch: how.epoch, ..Options::default() },
            durability: Some(Durability { directory, options }),
            idle: if sources.len() > 3 { idle } else { Vec::new() },
            ..Request::new(sources, sinks, Arc::new(System::new()))
        };
        let engine = Engine::for_session(self.program.clone(), Logging::default()).expect("it compiles");
        Ok((engine, request))
    }

    /// Returns what a run does from time to time whose clock is mute: once it was said that calls are given up, the clock speaks soon.
    pub fn speaks_once_given_up<'a>(
        &'a self,
        control: &'a Control,
        remarks: &'a mut Vec<String>,
    ) -> impl FnMut() + use<'a> {
        let mut said = None;
        move || {
            remarks.extend(control.take_remarks());
            let are_given_up = remarks.iter().any(|remark| remark.contains("the tick of a clock has not come"));
            if are_given_up && said.get_or_insert_with(Instant::now).elapsed() > WAITS {
                self.speaks.store(true, Ordering::Release);
            }
        }
    }

    /// Closes a session whose clock is mute; returns what was said.
    pub fn close_mute(&self, session: &Session) -> Vec<String> {
        let mut remarks = Vec::new();
        let closed = session.close(&mut self.speaks_once_given_up(session.control(), &mut remarks));
        closed.expect("it is closed once").expect("nothing fails");
        remarks
    }

    /// Returns the events of a procedure's source that call it for these holds.
    pub fn calls(&self, procedure: &Procedure, ids: impl IntoIterator<Item = i64>) -> RecordBatch {
        let stream = self.program.sources().nth(procedure.source).expect("a source");
        let ids: Vec<Vec<Value>> = ids.into_iter().map(|id| vec![Value::Int(id)]).collect();
        batch_of(&stream.brought(), &ids)
    }

    /// Calls a procedure; the time at which it ran, none if it aborted.
    pub fn call(&self, session: &Session, name: &str, id: i64, most: Duration) -> Result<Option<i64>, SessionError> {
        let procedure = session.procedure(name).expect("it can be called");
        let mut calling = session.call(&procedure, &self.calls(&procedure, [id]), None)?;
        let answered = calling.next(Some(Instant::now() + most))?.ok_or(SessionError::Over)?;
        let transaction = self.program.transactions.iter().find(|one| one.name == name).expect("a transaction");
        match answered.replies().next().expect("one call") {
            Reply::Committed(Some(batch)) => {
                let row = rows(&batch, &self.program.streams[transaction.committed.stream].schema).pop();
                Ok(Some(row.expect("a row")[0].word().expect("an int")))
            }
            Reply::Aborted(_) => Ok(None),
            Reply::Refused(NotMade::BeforeTick) => Err(SessionError::Over),
            other => panic!("{other:?}"),
        }
    }
}

/// Runs one life of a random trial: its first call runs at the time of the clock, and the others not before it.
fn live(world: &World, session: &Session, random: &mut Random, puts: &mut i64) -> Result<u64, SessionError> {
    let began = world.now.load(Ordering::Acquire);
    let mut refused = 0;
    for step in 0..4 + random.below(6) {
        let is_put = *puts == 0 || random.chance(40);
        *puts += i64::from(is_put);
        let (name, id) = if is_put { ("put", *puts) } else { ("take", 1 + random.below(*puts as usize) as i64) };
        match world.call(session, name, id, PATIENCE)? {
            // Nothing was shown before the first tick of all.
            Some(at) => assert!(at >= began || at < 10, "call {step} ran at {at}, and the run began at {began}"),
            None => refused += 1,
        }
        if random.chance(50) {
            world.now.fetch_add(random.below(3) as i64, Ordering::AcqRel);
        }
    }
    Ok(refused)
}

#[test]
fn restarts_with_a_clock_equal_the_interpreter() {
    let (mut crashes, mut refused) = (0, 0);
    trials(TRIALS, |seed| {
        let (world, mut random, mut puts) = (World::new(seed, false), Random::new(seed), 0);
        for life in 0..LIVES {
            if life + 1 < LIVES && random.chance(75) {
                let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
                world.machine.fail(world.machine.call_count() + random.below(120), fault);
            }
            let how = How { delay: Duration::from_millis(random.below(5) as u64), ..How::default() };
            let ended = world.start(how).and_then(|session| {
                refused += live(&world, &session, &mut random, &mut puts).unwrap_or(0);
                session.close(&mut || {}).expect("it is closed once")
            });
            world.machine.heal();
            if let Err(error) = ended {
                assert!(world.machine.is_off(), "seed {seed}: {error}");
                crashes += 1;
                world.machine.cut_power();
            }
            world.now.fetch_add(random.below(6) as i64, Ordering::AcqRel);
        }
        let state = open(&world.machine);
        let verified = verify(&state, Some("start"), &logged).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(verified.tables_compared && verified.events > 0, "seed {seed}: {:?}", verified.notes);
        crashes > TRIALS / 3 && refused > 20
    });
}

/// Takes a hold of before a restart, long after it has expired. Returns whether it was given.
fn takes_an_expired_hold(seed: u64, planted: Planted) -> bool {
    let world = World::new(seed, false);
    let session = world.start(How::default()).expect("it starts");
    // The first tick may come after the first call.
    while world.call(&session, "put", 1, PATIENCE).expect("it is answered") < Some(10) {}
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    world.now.fetch_add(10 * HOLD, Ordering::AcqRel);
    let how = How { delay: Duration::from_millis(50), planted, ..How::default() };
    let session = world.start(how).expect("it starts again");
    let taken = world.call(&session, "take", 1, PATIENCE).expect("it is answered");
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    taken.is_some()
}

/// The clock answers late: without the bug the call waits for it, and with it the call does not.
#[test]
fn a_first_call_before_the_tick_is_found() {
    const SEEDS: u64 = 10;
    let found = (0..SEEDS).any(|seed| {
        assert!(!takes_an_expired_hold(seed, Planted::default()), "seed {seed}: without the bug");
        takes_an_expired_hold(seed, Planted::new(Bug::FirstCallBeforeTick))
    });
    assert!(found, "none of {SEEDS} calls was let through before the tick");
}

/// Returns a world whose other source was left at time 1, and holds the clock back; the session goes on at time 20.
fn held_back(how: How) -> (World, Session) {
    let world = World::new(1, true);
    let session = world.start(How::default()).expect("it starts");
    let stream = world.program.sources().nth(3).expect("orders");
    session.send(3, &batch_of(&stream.brought(), &[vec![Value::Int(1)]]), None).expect("there is room");
    assert_eq!(world.call(&session, "put", 1, PATIENCE).expect("it is answered"), Some(1));
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    world.now.store(20, Ordering::Release);
    let session = world.start(how).expect("it starts again");
    (world, session)
}

/// Returns whether a call is answered although another source holds the clock back, for ever.
fn is_answered(planted: Planted, most: Duration) -> bool {
    let (world, session) = held_back(How { planted, ..How::default() });
    let answered = match world.call(&session, "take", 1, most) {
        Ok(at) => {
            assert_eq!(at, Some(1), "time does not go on");
            let held = HeldTime { source: "orders".into(), split: None, calls_wait: None };
            assert_eq!(session.held_time(), Some(held.clone()));
            assert_eq!(session.control().take_remarks(), [held.to_string()]);
            true
        }
        Err(SessionError::Timeout) => false,
        Err(error) => panic!("{error}"),
    };
    let _ = session.close(&mut || {}).expect("it is closed once");
    answered
}

#[test]
fn a_source_without_idle_holds_no_call() {
    assert!(is_answered(Planted::default(), PATIENCE));
    assert!(!is_answered(Planted::new(Bug::CallWaitsWithoutIdle), WAITS), "the bug shows");
}

#[test]
fn a_source_holds_the_first_calls_for_as_long_as_it_may_be_silent() {
    let idle = Some(Duration::from_millis(200));
    let (world, session) = held_back(How { idle, ..How::default() });
    assert_eq!(world.call(&session, "take", 1, PATIENCE).expect("it is answered"), None, "it has expired");
    assert_eq!(world.call(&session, "put", 2, PATIENCE).expect("it is answered"), Some(20), "time has gone on");
    assert_eq!(session.held_time(), None);
    let said = session.control().take_remarks();
    assert_eq!(said, [HeldTime { source: "orders".into(), split: None, calls_wait: idle }.to_string()]);
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
}

/// The calls that are sent together, of which an epoch takes two.
pub const TOGETHER: i64 = 12;

/// Returns a plan whose outputs are the rows alone.
pub fn without_sinks() -> Plan {
    Plan { sinks: Vec::new(), ..plan(false) }
}

/// Returns the disk after a life that took calls together and was killed, and the number of its events before these.
pub fn killed_after_calls() -> (SimStorage, u64) {
    let world = World::on(SimStorage::new(1), without_sinks());
    let session = world.start(How { epoch: EpochSize::Events(2), ..How::default() }).expect("it starts");
    let mut before = 2;
    while world.call(&session, "put", 0, PATIENCE).expect("it is answered") < Some(10) {
        before += 1;
    }
    let puts = session.procedure("put").expect("it can be called");
    let mut calling = session.call(&puts, &world.calls(&puts, 1..=TOGETHER), None).expect("there is room");
    let (mut answered, until) = (0, Some(Instant::now() + PATIENCE));
    while answered < TOGETHER as usize {
        answered += calling.next(until).expect("it is answered").expect("the run goes on").len();
    }
    world.machine.kill_power();
    let _ = session.close(&mut || {}).expect("it is closed once");
    world.machine.kill();
    (world.machine, before)
}

/// Returns the disk after a crash that left so many bytes of the log.
pub fn left_after(crashed: &SimStorage, log: &Path, bytes: u64) -> World {
    let world = World::on(crashed.copy(), without_sinks());
    world.machine.open(log, Open::Append).and_then(|file| file.truncate(bytes)).expect("no fault");
    world.now.fetch_add(10 * HOLD, Ordering::AcqRel);
    world
}

/// Returns the holds of a state but for that of number 0: their numbers, the times until which they are good, and their states.
pub fn holds(session: &Session) -> Vec<[i64; 3]> {
    let table = session.table("holds").expect("it is there");
    let at = session.tables(&[table], Some(Instant::now() + PATIENCE)).expect("it is answered");
    let schema = Schema::scalars(["id", "until", "state"].map(|name| (name, Type::Int.into())));
    let int = |value: &Value| value.word().expect("an int");
    let holds = rows(&at.tables[0], &schema);
    holds.iter().map(|row| [0, 1, 2].map(|column| int(&row[column]))).filter(|[id, ..]| *id != 0).collect()
}

/// Goes on with a clock that shows a later time, late. Returns by the time at which they ran the numbers of the calls that were
/// sent together, and how many events the replay had.
pub fn goes_on(world: &World, planted: Planted) -> ([u64; 2], u64) {
    let how = How { delay: Duration::from_millis(20), planted, epoch: EpochSize::Events(2), ..How::default() };
    let session = world.start(how).expect("it starts again");
    assert_eq!(world.call(&session, "put", 0, PATIENCE).expect("it is answered"), Some(10 + 10 * HOLD));
    let mut ran = [0, 0];
    for [_, until, _] in holds(&session) {
        ran[usize::from(until != 10 + HOLD)] += 1;
    }
    let summary = session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    let replayed = summary.durability.expect("a durable run").replayed_events;
    let verified = verify(&open(&world.machine), Some("start"), &logged).expect("it is as the log has it");
    assert!(verified.tables_compared, "{:?}", verified.notes);
    (ran, replayed)
}

/// Goes on after a crash that left so many bytes of the log, as [`goes_on`] does: without the events before those that were sent together.
pub fn goes_on_after(crashed: &SimStorage, log: &Path, bytes: u64, before: u64, planted: Planted) -> ([u64; 2], u64) {
    let (ran, replayed) = goes_on(&left_after(crashed, log, bytes), planted);
    (ran, replayed.saturating_sub(before))
}

/// Returns the log of a state, and the number of bytes of its records.
pub fn log_of(crashed: &SimStorage) -> (PathBuf, usize) {
    let logs: Vec<_> = crashed.files().into_iter().filter(|(path, _)| path.starts_with("state/log")).collect();
    let (log, whole) = logs.last().expect("it has a log");
    // Zeros follow its records.
    (log.clone(), whole.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1))
}

/// Calls that were taken, so that the log has them, and that no epoch had when the process was killed: they run after the replay,
/// and not before the tick.
#[test]
fn calls_that_the_gate_held_at_a_crash_wait_for_the_tick() {
    let (crashed, before) = killed_after_calls();
    let (log, records) = log_of(&crashed);
    let mut random = Random::new(1);
    let (mut held, mut found) = (0, false);
    // An entry of the log has the calls, and those after it nothing but what passes.
    for bytes in (1..20).map(|part| records - part * 40 - random.below(40)) {
        let ([early, late], replayed) = goes_on_after(&crashed, &log, bytes as u64, before, Planted::default());
        assert_eq!(early, replayed, "after {bytes} bytes of the log a call ran before the tick");
        held += late;
        let planted = Planted::new(Bug::HeldCallBeforeTick);
        let ([early, _], replayed) = goes_on_after(&crashed, &log, bytes as u64, before, planted);
        found |= early > replayed;
    }
    assert!(held > 0 && found, "{held} calls were held");
}
