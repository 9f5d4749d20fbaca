//! Durable runs against the serial oracle: runs crash at a storage call or are stopped, and are continued until they
//! end. State and outputs must be those of one uninterrupted run.

mod abnormal;
mod changed;
mod conversions;
mod lateness;
mod pieces;
mod places;
mod splits;

use crate::support::{Outcome, Subject};
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_connect::System;
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_histories::{DataShape, History, PlanSize, Random, random_data, random_plan};
use tidemill_io::{IoFailure, Next, Recovered, Resumed, Sink, Source, SourceBatch, SourceProgress};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, event, named};
use tidemill_plan::{Origin, Program, Stream, TableId};
use tidemill_runtime::{
    Control, Durability, DurabilityOptions, Engine, Environment, Joined, Options, Request, RunError, Summary,
};
use tidemill_sim::{Fault, SimStorage};

/// The system's environment, except that threads sometimes sleep when they read the clock, so that other threads win
/// races that they rarely win.
struct Unsteady {
    system: System,
    looks: AtomicU64,
    /// One in this many reads of the clock sleeps.
    one_in: u64,
}

impl Unsteady {
    fn new(seed: u64) -> Unsteady {
        Unsteady {
            system: System::new(),
            looks: AtomicU64::new(seed << 32),
            one_in: [16, 64, 1_000][seed as usize % 3],
        }
    }
}

impl Environment for Unsteady {
    fn now(&self) -> u64 {
        let chance = Random::new(self.looks.fetch_add(1, Ordering::Relaxed)).bits();
        if chance.is_multiple_of(self.one_in) {
            std::thread::sleep(Duration::from_micros([0, 20, 200, 2_000][(chance >> 32) as usize % 4]));
        }
        self.system.now()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        self.system.spawn(name, body)
    }

    fn parallelism(&self) -> usize {
        16
    }
}

/// The output that the world outside the machine has seen: it survives crashes.
#[derive(Default)]
pub struct Released {
    epoch: Option<u64>,
    pub batches: Vec<RecordBatch>,
}

/// A sink that commits, as long as the machine has power.
pub struct Committing {
    released: Arc<Mutex<Released>>,
    machine: SimStorage,
    written: Vec<RecordBatch>,
    prepared: Option<u64>,
}

impl Committing {
    pub fn new(released: &Arc<Mutex<Released>>, machine: &SimStorage) -> Committing {
        let (released, machine) = (released.clone(), machine.clone());
        Committing { released, machine, written: Vec::new(), prepared: None }
    }

    fn on(&self) -> Result<(), IoFailure> {
        if self.machine.is_off() { Err(IoFailure::new("the power is off")) } else { Ok(()) }
    }
}

impl Sink for Committing {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.written.push(batch.clone());
        self.on()
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        Ok(Recovered::Through(self.released.lock().epoch))
    }

    fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        if self.released.lock().epoch.is_some_and(|released| epoch <= released) {
            self.written.clear();
        }
        self.prepared = Some(epoch);
        self.on()
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.on()?;
        assert_eq!(self.prepared, Some(epoch), "what is committed was prepared");
        let released = &mut *self.released.lock();
        if released.epoch.is_none_or(|last| last < epoch) {
            released.epoch = Some(epoch);
            released.batches.append(&mut self.written);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        assert!(self.written.is_empty(), "all was committed");
        self.on()
    }
}

/// The way in which a source behaves when it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The source begins again from the start.
    Anew,
    /// The source seeks to its token, which need not be where a batch ended before.
    Token,
    /// The source seeks to its token, and can do so at any time, so its records need not be logged.
    Replays,
    /// The source has only what was added since the last life that came to the end of its input.
    Given,
}

/// Records in memory, in batches whose size differs from life to life.
pub struct Records {
    batch: RecordBatch,
    next: usize,
    size: usize,
    again: Again,
    stop: Option<(Stop, Arc<Control>)>,
}

/// A stop of the run by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    /// The number of records after which it stops.
    after: usize,
    /// Only when the gate waits for the next batch.
    behind: bool,
}

impl Records {
    pub fn new(batch: RecordBatch, size: usize, again: Again) -> Records {
        Records { batch, next: 0, size, again, stop: None }
    }

    fn stop(&self, behind: bool) {
        if let Some((stop, control)) = &self.stop
            && stop.behind == behind
            && self.next >= stop.after
            && !control.stops()
        {
            if behind {
                std::thread::sleep(Duration::from_millis(2));
            }
            control.stop();
        }
    }
}

impl Source for Records {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        self.stop(false);
        if self.next >= self.batch.num_rows() {
            return Ok(Next::End);
        }
        let len = self.size.min(self.batch.num_rows() - self.next);
        let events = self.batch.slice(self.next, len);
        self.next += len;
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn progress(&self) -> SourceProgress {
        self.stop(true);
        SourceProgress::default()
    }

    fn token(&self) -> Option<String> {
        matches!(self.again, Again::Token | Again::Replays).then(|| self.next.to_string())
    }

    fn replays(&self) -> bool {
        self.again == Again::Replays
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        match self.again {
            Again::Anew => return Ok(Resumed::Anew),
            Again::Given => return Ok(Resumed::Given),
            Again::Token | Again::Replays => {}
        }
        let token = token.ok_or_else(|| IoFailure::new("no token"))?;
        self.next = token.parse().map_err(|_| IoFailure::new("no number"))?;
        Ok(Resumed::Behind)
    }
}

/// A program and its data on a simulated machine.
struct Trial<'a> {
    seed: u64,
    subject: &'a Subject,
    machine: SimStorage,
    released: Vec<Arc<Mutex<Released>>>,
    again: Vec<Again>,
    /// The records that lives before the current piece of the input had, and those that there are now, by source.
    piece: Vec<(usize, usize)>,
}

impl<'a> Trial<'a> {
    fn new(subject: &'a Subject, machine: SimStorage, random: &mut Random) -> Self {
        let seed = random.bits();
        let again = |_| [Again::Anew, Again::Token, Again::Replays][random.below(3)];
        Trial {
            seed,
            subject,
            machine,
            released: subject.program.sinks.iter().map(|_| Arc::default()).collect(),
            again: (0..subject.history.sources.len()).map(again).collect(),
            piece: subject.history.sources.iter().map(|records| (0, records.len())).collect(),
        }
    }

    fn open(&self) -> Result<StateDirectory, RunError> {
        let how = OpenState {
            storage: Arc::new(self.machine.clone()),
            path: Path::new("state"),
            holder: "a test",
            id: 77,
            program: Identity::of(&self.subject.program),
            recorded: None,
        };
        Ok(StateDirectory::open(how)?)
    }

    /// Runs one life of the process, from its start to its end or a crash.
    fn live(
        &self,
        engine: &Engine,
        options: Options,
        batch_size: usize,
        stop: Option<Stop>,
        durability: DurabilityOptions,
    ) -> Result<Summary, RunError> {
        let control = Arc::new(Control::default());
        let streams = engine.program().streams.iter().filter(|s| matches!(s.origin, Origin::Source { .. }));
        let source = |(i, (stream, records)): (usize, (&Stream, &Vec<Vec<Value>>))| {
            let (before, end) = self.piece[i];
            let begin = if self.again[i] == Again::Given { before } else { 0 };
            let batch = batch_of(&stream.schema, &records[begin..end]);
            let stop = stop.map(|stop| (stop, control.clone()));
            Box::new(Records { stop, ..Records::new(batch, batch_size, self.again[i]) }) as Box<dyn Source>
        };
        let sources = streams.zip(&self.subject.history.sources).enumerate().map(source).collect();
        self.live_on(engine, options, sources, control.clone(), durability)
    }

    /// Runs a life with other sources.
    fn live_on(
        &self,
        engine: &Engine,
        options: Options,
        sources: Vec<Box<dyn Source>>,
        control: Arc<Control>,
        durability: DurabilityOptions,
    ) -> Result<Summary, RunError> {
        let program = engine.program();
        let directory = self.open()?;
        if directory.is_new() {
            for (table, rows) in &self.subject.history.preload {
                let schema = Schema::scalars(program.tables[*table].columns.iter().map(|c| (c.name.as_str(), c.ty)));
                engine.preload(*table, &batch_of(&schema, rows)).expect("histories preload distinct keys");
            }
        }
        let sink =
            |released: &Arc<Mutex<Released>>| Box::new(Committing::new(released, &self.machine)) as Box<dyn Sink>;
        let request = Request {
            options,
            control,
            durability: Some(Durability { directory, options: durability }),
            ..Request::new(sources, self.released.iter().map(sink).collect(), Arc::new(Unsteady::new(self.seed)))
        };
        engine.run(request, &mut || {})
    }

    /// Has one of the next calls of the machine fail.
    fn fail(&self, random: &mut Random) {
        self.machine.fail(self.machine.call_count() + random.below(80), random_fault(random));
    }

    /// Returns the released output, and the engine's final tables.
    fn outcome(&self, engine: &Engine) -> Outcome {
        let program = &self.subject.program;
        let output = |(released, sink): (&Arc<Mutex<Released>>, &tidemill_plan::Sink)| {
            let schema = &program.streams[sink.stream].schema;
            released.lock().batches.iter().flat_map(|batch| rows(batch, schema)).collect()
        };
        let table = |t: TableId| {
            let columns = program.tables[t].columns.iter().map(|c| (c.name.as_str(), c.ty));
            rows(&engine.table(t).expect("it reads"), &Schema::scalars(columns))
        };
        Outcome {
            outputs: self.released.iter().zip(&program.sinks).map(output).collect(),
            tables: program.tables.keys().map(table).collect(),
            // The counts are those of one life.
            counts: self.subject.expected.counts.clone(),
            ..Outcome::default()
        }
    }
}

/// Returns a fault that ends a run.
pub fn random_fault(random: &mut Random) -> Fault {
    let kinds = [
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::Dropped(ErrorKind::Other),
        Fault::Half(ErrorKind::Other),
        Fault::Refused(ErrorKind::Other),
        Fault::Applied(ErrorKind::Other),
    ];
    kinds[random.below(6)]
}

fn options(program: &Program, random: &mut Random) -> (Options, usize) {
    let (options, batch_size) = crate::configuration(random);
    let memory = random.chance(40).then(|| [1, 16 << 10 | random.below(48 << 10)][random.below(2)]);
    let memory = memory.filter(|_| program.scan().is_none());
    (Options { workers: 1 + random.below(2), memory, ..options }, batch_size)
}

/// Runs lives until the end, with a fault or a stop in some of them.
fn endure(subject: &Subject, mut engine: Engine, seed: u64) -> Engine {
    let mut random = Random::new(seed);
    let trial = Trial::new(subject, SimStorage::new(seed), &mut random);
    let records = subject.history.sources.iter().map(Vec::len).sum::<usize>();
    for life in 0..20 {
        engine = engine.with_empty_tables();
        let (options, batch_size) = options(&subject.program, &mut random);
        let last = life >= 3;
        if !last {
            trial.fail(&mut random);
        }
        let stop = |random: &mut Random| Stop { after: random.below(records.max(1)), behind: random.chance(50) };
        let stop = (!last && random.chance(30)).then(|| stop(&mut random));
        let checkpoint_events = if random.chance(50) { 1 + random.below(30) as u64 } else { u64::MAX };
        let durability = DurabilityOptions { checkpoint_events, is_final: true, ..DurabilityOptions::default() };
        let result = trial.live(&engine, options, batch_size, stop, durability);
        trial.machine.heal();
        let what = format!("seed {seed}, life {life}, {:?}, {options:?}, batches of {batch_size}", trial.again);
        match result {
            Ok(summary) if !summary.stopped => {
                if let Some(difference) = subject.difference(&trial.outcome(&engine)) {
                    panic!("{what}: {difference}");
                }
                break;
            }
            Ok(_) => {}
            Err(error) => assert!(!last && !matches!(error, RunError::Panic(_)), "{what}: {error}"),
        }
        if trial.machine.is_off() || random.chance(50) { trial.machine.cut_power() } else { trial.machine.kill() }
    }
    // A state that has reached its end stays there.
    engine = engine.with_empty_tables();
    let summary = trial
        .live(&engine, Options::default(), 10, None, DurabilityOptions::default())
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(summary.events, 0, "seed {seed}: nothing is taken again");
    if let Some(difference) = subject.difference(&trial.outcome(&engine)) {
        panic!("seed {seed}, after the end: {difference}");
    }
    engine
}

#[test]
fn random_histories_with_crashes() {
    let total = crate::number("TIDEMILL_CRASHES", 600);
    let first = crate::number("TIDEMILL_SEED", 1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (plans, start) = (total.div_ceil(20), Instant::now());
    std::thread::scope(|scope| {
        for t in 0..threads {
            let seeds = (first + t..first + plans).step_by(threads as usize);
            scope.spawn(move || seeds.take_while(|_| crate::has_time(start)).for_each(crashes_of_plan));
        }
    });
}

/// Events beyond the limits are logged, replayed and recovered like others.
#[test]
fn events_beyond_the_limits_recover() {
    for (name, history) in crate::limits::histories() {
        let subject = Subject::new(history);
        let mut engine = Engine::new(subject.program.clone()).expect(name);
        for seed in 0..12 {
            engine = endure(&subject, engine, seed);
        }
    }
}

/// The state of a history on a machine, after a run to its end.
fn run_to_end(history: History, machine: &SimStorage) {
    let subject = Subject::new(history);
    let engine = Engine::new(subject.program.clone()).expect("it compiles");
    let trial = Trial::new(&subject, machine.clone(), &mut Random::new(0));
    trial.live(&engine, Options::default(), 10, None, DurabilityOptions::default()).expect("no fault");
}

/// Sums of a hundred amounts.
fn sums() -> Subject {
    let plan = PlanBuilder::new("sums")
        .table("sums", |t| t.key("id", Type::Int).column_or("sum", Type::Int, Value::Int(0)))
        .source("amounts", |s| s.field("id", Type::Int).field("amount", Type::Int))
        .transaction("add", [named("amounts")], |t| {
            t.create("sum", "sums", [event("id")]).body(|b| {
                b.set("sum", "sum", cell("sum", "sum") + event("amount"));
            })
        })
        .build();
    let records = (0..100).map(|i| vec![Value::Int(i % 7), Value::Int(i)]).collect();
    Subject::new(History { plan, preload: Vec::new(), sources: vec![records] })
}

fn crashes_of_plan(seed: u64) {
    let size = if seed.is_multiple_of(3) { PlanSize::Large } else { PlanSize::Small };
    let plan = random_plan(seed, size);
    let program = tidemill_plan::analyze(&crate::support::with_all_sinks(&plan)).expect("random plans are valid");
    let mut engine = Engine::new(program.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for data in 0..20 {
        let data_seed = seed * 1_000 + data;
        let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
        let subject = Subject::new(History { plan: plan.clone(), preload, sources });
        engine = endure(&subject, engine, data_seed);
    }
}
