//! Calls in random histories: clients on several threads call programs while their streams run, also beside crashes.
//!
//! The oracle takes the calls as events at the positions that the log has ([`Walk`]). Then tables and outputs must be its
//! own, and each reply what it says became of the call. A call that was answered is there once, any other at most once,
//! and each call with a key, which is made until it is answered, once.

mod clients;
mod planted;

use crate::durable::{Again, Committing, Records, Released, random_fault};
use crate::support::{Outcome, Sockets, Subject, table_schema, with_all_sinks};
use clients::{Clients, Said, Wanted};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tidemill_audit::Walk;
use tidemill_durability::{Identity, OpenState, Planted, StateDirectory};
use tidemill_histories::{History, Random, is_of_calls, same_rows};
use tidemill_io::{IoFailure, Sink, Source};
use tidemill_model::Value;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Origin, Plan, Program, Stream, StreamId, TransactionId, analyze};
use tidemill_reference::{NextEvent, Reference};
use tidemill_runtime::{
    Durability, DurabilityOptions, Engine, Logging, Options, Request, RunError, SentSource, Session, SessionError,
    Summary,
};
use tidemill_sim::SimStorage;

/// Threads that call.
const CLIENTS: u64 = 2;
/// The savepoint that keeps the log.
const START: &str = "start";

/// The number of times that each thing has happened.
pub type Tally = BTreeMap<&'static str, u64>;

/// The way in which a history runs.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub seed: u64,
    pub options: Options,
    pub batch_size: usize,
    /// The number of sessions. All but the last may end at any call of the storage.
    pub lives: usize,
    pub planted: Planted,
}

/// A program that is called, compiled.
pub struct Called {
    program: Program,
    /// None while a run goes on, or after one that panicked.
    engine: Option<Arc<Engine>>,
}

impl Called {
    pub fn new(plan: &Plan) -> Called {
        let program = analyze(&with_all_sinks(plan)).unwrap_or_else(|errors| panic!("{}: {errors:?}", plan.name));
        Called::by_engine_of(program.clone(), program)
    }

    /// One that the engine takes for another: `run` is what it runs.
    fn by_engine_of(program: Program, run: Program) -> Called {
        let engine = Engine::for_session(run, Logging::default());
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", program.name));
        Called { program, engine: Some(Arc::new(engine)) }
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a history to its end; what was wrong, or what happened.
    pub fn run(&mut self, history: &History, setting: Setting) -> Result<Tally, String> {
        let Called { program, engine } = self;
        Trial::new(program, history, setting).run(engine)
    }
}

/// The way in which events of a source without calls come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// The source is read.
    Read(Again),
    /// The session sends the source's events, beside the calls.
    Sent,
}

/// A history on a simulated machine.
struct Trial<'a> {
    program: &'a Program,
    history: &'a History,
    setting: Setting,
    random: Random,
    machine: SimStorage,
    released: Vec<Arc<Mutex<Released>>>,
    clients: Clients<'a>,
    /// The way in which each source's events come, by source; none for sources of calls.
    comes: Vec<Option<Comes>>,
    /// The number of events sent so far, by source that is sent.
    sent: Mutex<Vec<usize>>,
}

impl<'a> Trial<'a> {
    fn new(program: &'a Program, history: &'a History, setting: Setting) -> Trial<'a> {
        let mut random = Random::new(setting.seed ^ 0xca_11ed);
        let kinds = [Again::Anew, Again::Token, Again::Replays].map(Comes::Read);
        let mut comes = |stream: &Stream| match random.chance(50) {
            _ if is_of_calls(stream) => None,
            true => Some(Comes::Sent),
            false => Some(*random.pick(&kinds)),
        };
        let comes: Vec<_> = program.sources().map(&mut comes).collect();
        let mut wanted = Vec::new();
        for (source, (stream, records)) in program.sources().zip(&history.sources).enumerate() {
            let some = if comes[source].is_none() { &records[..] } else { &[] };
            let wants_key = |random: &mut Random| stream.remembers().is_some() && random.chance(70);
            wanted.extend(some.iter().map(|record| Wanted {
                source,
                event: brought(stream, record),
                wants_key: wants_key(&mut random),
            }));
        }
        random.shuffle(&mut wanted);
        Trial {
            program,
            setting,
            machine: SimStorage::new(setting.seed),
            released: program.sinks.iter().map(|_| Arc::default()).collect(),
            clients: Clients::new(program, wanted),
            sent: Mutex::new(vec![0; comes.len()]),
            comes,
            history,
            random,
        }
    }

    /// Runs all lives, and compares.
    fn run(mut self, engine: &mut Option<Arc<Engine>>) -> Result<Tally, String> {
        let lives = self.setting.lives;
        let mut crashes = 0;
        for life in 1..lives {
            let ended = self.live(&emptied(engine), life, lives);
            self.machine.heal();
            match ended {
                Ok(_) => {}
                Err(error @ RunError::Panic(_)) => return Err(format!("life {life} of {lives}: {error}")),
                Err(_) => crashes += 1,
            }
            if self.machine.is_off() || self.random.chance(50) { self.machine.cut_power() } else { self.machine.kill() }
        }
        let engine = emptied(engine);
        let ended = self.live(&engine, lives, lives);
        if let Some(wrong) = self.clients.wrong() {
            return Err(wrong);
        }
        let summary = ended.map_err(|error| format!("life {lives} of {lives}: {error}"))?;
        let mut tally = self.compare(&engine, &summary, lives == 1)?;
        tally.insert("crashes", crashes);
        Ok(tally)
    }

    /// Runs one session, from its start to its end or a crash.
    fn live(&self, engine: &Arc<Engine>, life: usize, lives: usize) -> Result<Summary, RunError> {
        let mut random = Random::new(self.setting.seed * 100 + life as u64);
        let is_last = life == lives;
        if !is_last {
            let (call, fault) = (random.below(100), random_fault(&mut random));
            self.machine.fail(self.machine.call_count() + call, fault);
        }
        let session = self.start(engine.clone(), is_last)?;
        self.clients.meet(&session);
        let share = (life, lives);
        let mut waits = thread::scope(|scope| {
            let session = &session;
            let client = |seed| {
                let clients = &self.clients;
                scope.spawn(move || clients.live(session, part(clients.wanted.len(), share), &mut Random::new(seed)))
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| client(random.bits())).collect();
            // The run may end meanwhile.
            let _ = self.send(session, share, &mut random);
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect::<Vec<_>>()
        });
        if is_last {
            waits.extend(self.clients.end(&session));
        }
        let ended = session.close(&mut || {}).expect("it is closed once");
        for wait in &mut waits {
            // Calls that the gate holds when a session pauses are not answered: clients that have keys ask again.
            let all_came = self.clients.hear(wait, None);
            if is_last && ended.is_ok() && !all_came {
                self.clients.is_wrong(format!("{} calls of a session that has ended well have no answer", wait.left()));
            }
        }
        ended
    }

    /// Sends a part of the events of each source that is sent beside the calls, a few of one source at a time.
    fn send(&self, session: &Session, share: (usize, usize), random: &mut Random) -> Result<(), SessionError> {
        let streams: Vec<&Stream> = self.program.sources().collect();
        let mut sent = self.sent.lock();
        let mut open: Vec<usize> = (0..streams.len()).filter(|&s| self.comes[s] == Some(Comes::Sent)).collect();
        while !open.is_empty() {
            let place = random.below(open.len());
            let source = open[place];
            let records = &self.history.sources[source];
            let left = &records[sent[source]..part(records.len(), share)];
            if left.is_empty() {
                open.swap_remove(place);
                if share.0 == share.1 {
                    session.end_source(source, None)?;
                }
                continue;
            }
            let some = &left[..left.len().min(1 + random.below(7))];
            sent[source] += some.len();
            session.send(source, &batch_of(&streams[source].schema, some), None)?;
        }
        Ok(())
    }

    fn open_state(&self) -> Result<StateDirectory, RunError> {
        let mut directory = StateDirectory::open(OpenState {
            storage: Arc::new(self.machine.clone()),
            path: Path::new("state"),
            holder: "a test",
            id: 7,
            program: Identity::of(self.program),
            recorded: None,
        })?;
        directory.plant(self.setting.planted);
        Ok(directory)
    }

    fn start(&self, engine: Arc<Engine>, is_final: bool) -> Result<Session, RunError> {
        let directory = self.open_state()?;
        if directory.is_new() {
            for (table, rows) in &self.history.preload {
                let batch = batch_of(&table_schema(&self.program.tables[*table]), rows);
                engine.preload(*table, &batch).expect("histories preload distinct keys");
            }
        } else if directory.savepoint(START).is_err() {
            directory.create_savepoint(START)?;
        }
        let sources = self.program.sources().enumerate().map(|(source, stream)| self.source(source, stream));
        let sinks = self.released.iter().map(|to| Box::new(Committing::new(to, &self.machine)) as Box<dyn Sink>);
        let checkpoint_events = [10, 40, u64::MAX][self.setting.seed as usize % 3];
        let savepoint = Some(START.to_owned());
        let commit_age_max = Duration::from_micros([0, 100][self.setting.seed as usize % 2]);
        let options = DurabilityOptions {
            savepoint,
            checkpoint_events,
            commit_age_max,
            is_final,
            // In some few keys are in memory, and the others are looked up.
            keys_in_memory: if self.setting.seed % 4 == 1 { 1 + self.setting.seed as usize % 8 } else { 1 << 20 },
            ..DurabilityOptions::default()
        };
        let request = Request {
            options: self.setting.options,
            durability: Some(Durability { directory, options }),
            ..Request::new(sources.collect(), sinks.collect(), Arc::new(Sockets::by(self.setting.batch_size)))
        };
        Session::start(engine, request, &mut || {}, Box::new(|| {}))
    }

    fn source(&self, source: usize, stream: &Stream) -> Box<dyn Source> {
        match self.comes[source] {
            None | Some(Comes::Sent) => Box::new(SentSource),
            Some(Comes::Read(again)) => {
                let batch = batch_of(&stream.schema, &self.history.sources[source]);
                Box::new(Records::new(batch, self.setting.batch_size, again))
            }
        }
    }

    /// Compares all with the oracle, which goes by the log.
    fn compare(&self, engine: &Engine, summary: &Summary, has_one_life: bool) -> Result<Tally, String> {
        let Expected { outcome: expected, calls } = self.walk()?;
        let program = self.program;
        let output = |(released, sink): (&Arc<Mutex<Released>>, &tidemill_plan::Sink)| {
            let schema = &program.streams[sink.stream].schema;
            released.lock().batches.iter().flat_map(|batch| rows(batch, schema)).collect()
        };
        let mut ours = Subject::outcome(engine, &[], summary);
        ours.outputs = self.released.iter().zip(&program.sinks).map(output).collect();
        if !has_one_life {
            // They are those of the last life.
            ours.counts.clone_from(&expected.counts);
        }
        if let Some(difference) = expected.difference(&ours, program) {
            return Err(difference);
        }
        self.compare_calls(&calls, has_one_life)?;
        Ok(self.tally(&expected, &calls))
    }

    /// Compares what clients were told with what became of their calls.
    fn compare_calls(&self, became: &BTreeMap<i64, Said>, has_one_life: bool) -> Result<(), String> {
        let told = self.clients.said.lock();
        let most = self.clients.wanted.len() as i64;
        if let Some(call) = became.keys().find(|call| !(0..most).contains(call)) {
            return Err(format!("the history has call {call}, which nobody made"));
        }
        for call in 0..self.clients.wanted.len() {
            let (became, told) = (became.get(&(call as i64)), told.get(&call));
            match (became, told) {
                (None, Some(told)) => return Err(format!("the history lacks call {call}, answered with {told:?}")),
                (Some(became), Some(told)) if !became.is(told) => {
                    return Err(format!("call {call} was answered with {told:?}, and this became of it: {became:?}"));
                }
                (None, None) if has_one_life => return Err(format!("the history lacks call {call}")),
                (_, None) if self.clients.has_key(call) => {
                    return Err(format!("call {call}, which has a key, was not answered"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the oracle's results, by the log since the state began.
    fn walk(&self) -> Result<Expected, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the log cannot be walked through: {error}");
        let storage = Arc::new(self.machine.clone());
        let directory = StateDirectory::open_as_it_is(storage, Path::new("state"), "an oracle");
        let directory = directory.map_err(|error| failed(&error))?;
        let start = directory.savepoint(START).and_then(|savepoint| directory.open_savepoint(&savepoint));
        let start = start.map_err(|error| failed(&error))?;
        let open = |_: &StateDirectory, stream: &Stream| -> Result<_, IoFailure> {
            let Origin::Source { source, .. } = stream.origin else { unreachable!("a source's stream") };
            Ok(Some(self.source(source as usize, stream)))
        };
        let mut walk = Walk::begin(&directory, Some(&start), self.program, &open).map_err(|error| failed(&error))?;
        let mut calls = BTreeMap::new();
        self.compare_snapshots(&walk)?;
        while walk.next_epoch(&mut |_| {}).map_err(|error| failed(&error))?.is_some() {
            while let Some(event) = walk.next_event() {
                let Some((call, said)) = process(self.program, &mut walk.reference, event) else { continue };
                if calls.insert(call, said).is_some() {
                    return Err(format!("the history has call {call} twice"));
                }
            }
            self.compare_snapshots(&walk)?;
        }
        Ok(Expected { outcome: Outcome::of(self.program, &walk.reference), calls })
    }

    /// Compares the tables that clients read with those after the same epoch.
    fn compare_snapshots(&self, walk: &Walk<'_>) -> Result<(), String> {
        for read in self.clients.read.lock().iter().filter(|read| read.epoch == walk.epoch) {
            for (batch, (id, table)) in read.tables.iter().zip(self.program.tables.iter_enumerated()) {
                if !same_rows(&rows(batch, &table_schema(table)), &walk.reference.table(id)) {
                    return Err(format!("a snapshot of table {} differs from epoch {}", table.name, walk.epoch));
                }
            }
        }
        Ok(())
    }

    fn tally(&self, expected: &Outcome, calls: &BTreeMap<i64, Said>) -> Tally {
        let counts = *self.clients.counts.lock();
        let said = self.clients.said.lock();
        let count = |is: fn(&Said) -> bool| said.values().filter(|said| is(said)).count() as u64;
        let is_undone = |said: &Said| {
            let reason =
                |value: &Value| matches!(value, Value::Str(text) if text.starts_with('t') && text.contains(": "));
            matches!(said, Said::Aborted(event) if event.iter().any(reason))
        };
        let of_batches = self.program.sinks.iter().zip(&expected.outputs);
        let of_batches = of_batches.filter(|(sink, _)| has_batches_of_calls(self.program, sink.stream));
        Tally::from([
            ("histories", 1),
            ("calls in histories", calls.len() as u64),
            ("answered", counts.answered),
            ("made again", counts.again),
            ("refused", counts.refused),
            ("with a record", count(|said| matches!(said, Said::Committed(Some(_))))),
            ("without a record", count(|said| matches!(said, Said::Committed(None)))),
            ("aborted", count(|said| matches!(said, Said::Aborted(_)))),
            ("taken by no transaction", count(|said| matches!(said, Said::Untaken(_)))),
            ("undone with a nested step", said.values().filter(|said| is_undone(said)).count() as u64),
            ("snapshots", self.clients.read.lock().len() as u64),
            ("batches of calls", of_batches.map(|(_, events)| events.len() as u64).sum()),
        ])
    }
}

/// Returns whether the events of a stream are batches of calls.
fn has_batches_of_calls(program: &Program, stream: StreamId) -> bool {
    let Origin::Batch(of) = &program.streams[stream].origin else { return false };
    is_of_calls(&program.streams[of.source])
}

/// Returns whether a program has batches of calls.
pub fn has_batches(program: &Program) -> bool {
    program.streams.keys().any(|stream| has_batches_of_calls(program, stream))
}

/// Returns whether a procedure of a program has nested steps.
pub fn has_nests(program: &Program) -> bool {
    let is_called = |stream: &StreamId| is_of_calls(&program.streams[*stream]);
    program.transactions.iter().any(|of| of.is_root() && of.inputs.iter().any(is_called))
}

/// Returns the things that have happened to few calls, or to none.
pub fn rare(tally: &Tally) -> Vec<String> {
    let rare = tally.iter().filter(|(_, count)| **count < 20).map(|(what, count)| format!("calls {what}: {count}"));
    if tally.is_empty() { vec!["calls".into()] } else { rare.collect() }
}

/// The results of the oracle.
struct Expected {
    outcome: Outcome,
    /// The outcomes of the calls in the history, by number.
    calls: BTreeMap<i64, Said>,
}

/// Runs an event; if it is a call, its number, and what became of it.
fn process(program: &Program, reference: &mut Reference, event: NextEvent) -> Option<(i64, Said)> {
    let stream = event.root;
    let input_of = |t: TransactionId| {
        let inputs = program.transactions[t].inputs.iter().copied();
        let mut inputs = inputs.filter(|&input| first_root(program, input) == stream);
        inputs.next().filter(|_| !program.transactions[t].is_hidden() && !program.transactions[t].derives)
    };
    let mut procedures = program.transactions.keys().filter_map(|t| Some((t, input_of(t)?)));
    let procedure = procedures.next().filter(|_| is_of_calls(&program.streams[stream]));
    let number = event.event.first().and_then(Value::word);
    let Some((procedure, input)) = procedure else {
        reference.process(event);
        return number.filter(|_| is_of_calls(&program.streams[stream])).map(|call| (call, Said::Committed(None)));
    };
    let transaction = &program.transactions[procedure];
    let streams = [transaction.committed.stream, transaction.aborted];
    let before = streams.map(|stream| reference.output(stream).len());
    let way = way_to(program, input);
    let passed = way.iter().map(|&(derived, failed)| [derived, failed].map(|s| reference.output(s).len()));
    let passed: Vec<[usize; 2]> = passed.collect();
    reference.process(event);
    for (&(derived, failed), [had, had_failed]) in way.iter().zip(passed) {
        let said = match (reference.output(derived).len() > had, reference.output(failed).get(had_failed)) {
            (true, _) => continue,
            (false, None) => "left out by a filter".to_owned(),
            (false, Some(failure)) => match &failure[reason_of(program, failed)] {
                Value::Str(reason) => reason.clone(),
                other => unreachable!("{other:?} is no reason"),
            },
        };
        return Some((number.expect("each call has a number"), Said::Untaken(said)));
    }
    let [record, abort] = [0, 1].map(|of: usize| reference.output(streams[of]).get(before[of]).cloned());
    // If nothing is returned, the stream of commits has the event itself, which is no record.
    let record = record.filter(|_| !transaction.committed.passes_event);
    let said = abort.map(Said::Aborted).unwrap_or(Said::Committed(record));
    Some((number.expect("each call has a number"), said))
}

/// Returns the field of the reason among those of a stream of failures.
fn reason_of(program: &Program, failed: StreamId) -> usize {
    let fields = &program.streams[failed].schema.fields;
    match program.streams[failed].origin {
        Origin::Aborted(of) => program.transactions[of].schema.fields.len(),
        _ => fields.len() - 1,
    }
}

/// Returns the filters and maps from a root to a stream, each with where its failures go.
fn way_to(program: &Program, mut stream: StreamId) -> Vec<(StreamId, StreamId)> {
    let mut way = Vec::new();
    loop {
        let (input, failed) = match program.streams[stream].origin {
            Origin::Filter { input, failed, .. } | Origin::Map { input, failed, .. } => (input, failed),
            Origin::Committed(of) if program.transactions[of].derives => {
                (program.transactions[of].inputs[0], program.transactions[of].aborted)
            }
            _ => return way,
        };
        way.insert(0, (stream, failed));
        stream = input;
    }
}

/// Returns the root that a stream comes from by filters and maps, also those that read rows.
fn first_root(program: &Program, stream: StreamId) -> StreamId {
    way_to(program, stream).first().map_or(program.streams[stream].root, |&(first, _)| {
        match program.streams[first].origin {
            Origin::Committed(of) => program.streams[program.transactions[of].inputs[0]].root,
            _ => program.streams[first].root,
        }
    })
}

/// Returns the engine with empty tables. No other use of it goes on.
fn emptied(engine: &mut Option<Arc<Engine>>) -> Arc<Engine> {
    let own = engine.take().and_then(Arc::into_inner).expect("no run goes on");
    engine.insert(Arc::new(own.with_empty_tables())).clone()
}

/// Returns the number of the first of `all` that are there in a life, of a number of lives.
fn part(all: usize, (life, lives): (usize, usize)) -> usize {
    all * life / lives
}

/// Returns an event as clients bring it: without the time that it gets.
fn brought(stream: &Stream, record: &[Value]) -> Vec<Value> {
    let fields = record.iter().enumerate().filter(|(field, _)| stream.filled_time() != Some(*field));
    fields.map(|(_, value)| value.clone()).collect()
}
