//! Runs a history through the engine and compares all its results with the reference.

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tidemill_connect::System;
use tidemill_histories::{History, same_rows};
use tidemill_io::{IoFailure, Next, Sink, Source, SourceBatch};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Value};
use tidemill_plan::{OriginDef, Plan, Program, SinkDef, StmtNode, StreamRef, analyze};
use tidemill_reference::Reference;
use tidemill_runtime::{
    Bell, Cutter, Engine, Environment, Joined, Options, Request, Run, Summary, epoch_record_schema,
};

/// Batches in memory, cut to size.
pub struct Batches {
    batch: RecordBatch,
    next: usize,
    size: usize,
}

impl Batches {
    pub fn new(schema: &Schema, records: &[Vec<Value>], size: usize) -> Self {
        Batches { batch: batch_of(schema, records), next: 0, size: size.max(1) }
    }
}

impl Source for Batches {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if self.next >= self.batch.num_rows() {
            return Ok(Next::End);
        }
        let len = self.size.min(self.batch.num_rows() - self.next);
        let events = self.batch.slice(self.next, len);
        self.next += len;
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}

/// A sink that keeps its batches.
#[derive(Clone, Default)]
pub struct Kept(pub Arc<Mutex<Vec<RecordBatch>>>);

impl Sink for Kept {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.0.lock().push(batch.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// The system's environment with a given number of sockets, over which workers are spread.
pub struct Sockets {
    pub system: System,
    pub count: usize,
    /// Workers that can run at once, as far as the engine can see.
    pub processors: usize,
    /// The factor by which its clock goes faster than the system's: what takes long is worth sharing out.
    pub haste: u64,
}

impl Sockets {
    /// Machines of several kinds, by the size of batches.
    pub fn by(batch_size: usize) -> Sockets {
        let is_large = batch_size != 16;
        Sockets {
            system: System::new(),
            count: 1 + batch_size % 2,
            processors: if is_large { 16 } else { 2 },
            haste: if batch_size == 3 || batch_size == 1000 { 1_000 } else { 1 },
        }
    }
}

impl Environment for Sockets {
    fn now(&self) -> u64 {
        self.system.now() * self.haste
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        self.system.spawn(name, body)
    }

    /// A short time is over at once by a hasty clock: who waits for it would not leave the processor to others.
    fn wait(&self, bell: &Bell, until: Option<u64>) {
        let least = if self.haste > 1 { WAIT_MIN } else { Duration::ZERO };
        bell.wait(until.map(|until| Duration::from_nanos(until.saturating_sub(self.now())).max(least)));
    }

    fn parallelism(&self) -> usize {
        self.processors
    }

    fn socket(&self, worker: usize, _workers: usize) -> usize {
        worker % self.count
    }
}

/// Returns an engine with empty tables on the sockets of a machine for batches of this size.
pub fn afresh(engine: Engine, options: &Options, batch_size: usize) -> Engine {
    let environment: Arc<dyn Environment> = Arc::new(Sockets::by(batch_size));
    engine.on_sockets_of(&environment, options)
}

/// The least time that somebody waits by a hasty clock.
const WAIT_MIN: Duration = Duration::from_micros(20);

/// Makes a plan with a sink on each of its streams.
pub fn with_all_sinks(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.sinks.clear();
    let mut streams = Vec::new();
    for stream in &plan.streams {
        streams.push(StreamRef::Named(stream.name.clone()));
        match stream.origin {
            OriginDef::Source { .. } => streams.push(StreamRef::Late(stream.name.clone())),
            OriginDef::Every { .. } | OriginDef::Batch { .. } => {}
            _ => streams.push(StreamRef::Failed(stream.name.clone())),
        }
    }
    for transaction in &plan.transactions {
        let name = || transaction.name.clone();
        streams.push(StreamRef::Committed(name()));
        if transaction.over.as_ref().is_none_or(|over| over.first.is_none()) {
            streams.push(StreamRef::Aborted(name()));
        }
        if transaction.over.as_ref().is_some_and(|over| over.top.is_some()) {
            streams.push(StreamRef::Emitted { transaction: name(), name: "top".into() });
        }
        if transaction.over.as_ref().is_some_and(|over| over.early.is_some()) {
            streams.push(StreamRef::Committed(format!("{}.early", name())));
            streams.push(StreamRef::Aborted(format!("{}.early", name())));
        }
        let mut names = Vec::new();
        emit_names(&transaction.body, &mut names);
        streams.extend(names.into_iter().map(|emit| StreamRef::Emitted { transaction: name(), name: emit }));
    }
    let changing = plan.tables.iter().filter(|table| table.changes);
    streams.extend(changing.map(|table| StreamRef::Changes(table.name.clone())));
    let expiring = plan.tables.iter().filter(|table| table.expire.is_some());
    streams.extend(expiring.map(|table| StreamRef::Expired(table.name.clone())));
    let sink = |(i, stream)| SinkDef { name: format!("sink{i}"), stream };
    plan.sinks = streams.into_iter().enumerate().map(sink).collect();
    plan
}

fn emit_names(body: &[tidemill_plan::Stmt], names: &mut Vec<String>) {
    for stmt in body {
        match &stmt.node {
            StmtNode::Emit { name, .. } if !names.contains(name) => names.push(name.clone()),
            StmtNode::If { then, otherwise, .. } => {
                emit_names(then, names);
                emit_names(otherwise, names);
            }
            StmtNode::ForEach { body, .. } | StmtNode::ForRange { body, .. } | StmtNode::ForRows { body, .. } => {
                emit_names(body, names);
            }
            _ => {}
        }
    }
}

/// Each epoch has a record, in order, and the records add up to the summary. Returns how many epochs were listed ahead.
fn check_records(records: &Kept, summary: &Summary) -> u64 {
    let schema = epoch_record_schema();
    let column = |name: &str| schema.fields.iter().position(|field| field.name == name).expect("a column of records");
    let rows: Vec<Vec<Value>> = records.0.lock().iter().flat_map(|batch| rows(batch, &schema)).collect();
    let ints = |name: &str| rows.iter().map(|row| row[column(name)].word().expect("an int")).collect::<Vec<_>>();
    assert_eq!(ints("epoch"), (1..=summary.epochs as i64).collect::<Vec<_>>());
    assert_eq!(ints("events").iter().sum::<i64>(), summary.events as i64);
    let aborted: u64 = summary.transactions.iter().map(|t| t.aborted).sum();
    assert_eq!(ints("aborted").iter().sum::<i64>(), aborted as i64);
    assert!(ints("measured_ns").iter().zip(ints("access_ns")).all(|(measured, access)| *measured <= access));
    // Access changes hands where a reason is given, and nowhere else.
    let reasons = rows.iter().map(|row| row[column("handed_over")] != Value::Null);
    let mut before = None;
    for (accessor, has_reason) in ints("accessor").into_iter().zip(reasons) {
        assert_eq!(before.replace(accessor) != Some(accessor), has_reason, "accessor {accessor}");
    }
    let listed = || ints("listed_ns").into_iter();
    assert!(listed().zip(ints("prepare_ns")).all(|(listed, prepare)| listed <= prepare));
    assert!(listed().zip(ints("construct_ns")).all(|(listed, construct)| listed <= construct));
    listed().filter(|&listed| listed > 0).count() as u64
}

/// The result of an execution: outputs by sink, tables, and counts.
#[derive(Default)]
pub struct Outcome {
    pub outputs: Vec<Vec<Vec<Value>>>,
    pub tables: Vec<Vec<Vec<Value>>>,
    pub counts: Vec<(u64, u64)>,
    /// The number of epochs, for a run in memory.
    pub epochs: u64,
    /// The policies that ran, with the groups that ran under them; empty for the reference.
    pub policies: Vec<(Option<String>, String)>,
    /// The most workers that took part in the access of an epoch; 0 for the reference.
    pub workers: u64,
    /// The transactions that policies ran, without events that were folded; 0 for the reference.
    pub scheduled: u64,
    /// The epochs whose accesses prepare listed for the method that they ran under; 0 for the reference.
    pub listed: u64,
}

impl Outcome {
    /// Returns the outcome of the reference.
    pub fn of(program: &Program, reference: &Reference<'_>) -> Outcome {
        Outcome {
            outputs: program.sinks.iter().map(|s| reference.output(s.stream).to_vec()).collect(),
            tables: program.tables.keys().map(|t| reference.table(t)).collect(),
            counts: reference.counts().iter().map(|c| (c.committed, c.aborted.iter().sum())).collect(),
            ..Outcome::default()
        }
    }

    /// Returns a readable description of how an execution's outcome differs from this one, which is expected; none if
    /// it does not.
    pub fn difference(&self, outcome: &Outcome, program: &Program) -> Option<String> {
        let mut text = String::new();
        for ((sink, ours), expected) in program.sinks.iter().zip(&outcome.outputs).zip(&self.outputs) {
            if !same_rows(ours, expected) {
                let name = &program.streams[sink.stream].name;
                describe(&mut text, &format!("stream {name}"), ours, expected);
            }
        }
        for ((table, ours), expected) in program.tables.iter().zip(&outcome.tables).zip(&self.tables) {
            if !same_rows(ours, expected) {
                describe(&mut text, &format!("table {}", table.name), ours, expected);
            }
        }
        if outcome.counts != self.counts {
            let _ = writeln!(text, "counts {:?}, expected {:?}", outcome.counts, self.counts);
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Drives a run to its end on the calling thread.
pub type Steps = Box<dyn FnMut(&mut Run)>;

/// The deviations of a run from the default.
#[derive(Default)]
pub struct Drive {
    /// Decides where epochs are cut.
    pub cutter: Option<Box<dyn Cutter>>,
    /// Drives the run. None: threads.
    pub steps: Option<Steps>,
    /// Clock and threads.
    pub environment: Option<Arc<dyn Environment>>,
}

/// A program and its data, ready to be run in many ways.
pub struct Subject {
    pub program: Program,
    pub history: History,
    pub expected: Outcome,
}

impl Subject {
    pub fn new(history: History) -> Self {
        let program = analyze(&with_all_sinks(&history.plan)).unwrap_or_else(|e| panic!("{e:?}"));
        let mut reference = Reference::new(&program);
        for (table, rows) in &history.preload {
            reference.preload(*table, rows.clone());
        }
        reference.run(&history.sources);
        reference.end();
        let expected = Outcome::of(&program, &reference);
        Subject { program, history, expected }
    }

    /// Runs it on fresh tables of a compiled engine; on two sockets if the size of batches is odd.
    pub fn run(&self, engine: &Engine, options: Options, batch_size: usize) -> Outcome {
        self.run_driven(engine, options, batch_size, Drive::default())
    }

    /// Runs it on fresh tables of a compiled engine, with the given deviations.
    pub fn run_driven(&self, engine: &Engine, options: Options, batch_size: usize, drive: Drive) -> Outcome {
        let program = engine.program();
        self.preload(engine);
        let sources = program.streams.iter().filter(|s| matches!(s.origin, tidemill_plan::Origin::Source { .. }));
        let sources: Vec<Box<dyn Source>> = sources
            .zip(&self.history.sources)
            .map(|(s, records)| Box::new(Batches::new(&s.schema, records, batch_size)) as Box<dyn Source>)
            .collect();
        let kept: Vec<Kept> = program.sinks.iter().map(|_| Kept::default()).collect();
        let records = Kept::default();
        let request = Request {
            options,
            records: Some(Box::new(records.clone())),
            cutter: drive.cutter,
            ..Request::new(
                sources,
                kept.iter().map(|k| Box::new(k.clone()) as Box<dyn Sink>).collect(),
                drive.environment.unwrap_or_else(|| Arc::new(Sockets::by(batch_size))),
            )
        };
        let summary = match drive.steps {
            None => engine.run(request, &mut || {}),
            Some(mut steps) => engine.begin(request, &mut || {}).and_then(|mut run| {
                steps(&mut run);
                run.end()
            }),
        };
        let summary = summary.expect("a run in memory");
        let listed = check_records(&records, &summary);
        Outcome { listed, ..Subject::outcome(engine, &kept, &summary) }
    }

    /// Puts the first rows into the tables of an engine.
    pub fn preload(&self, engine: &Engine) {
        for (table, rows) in &self.history.preload {
            let schema = table_schema(&engine.program().tables[*table]);
            engine.preload(*table, &batch_of(&schema, rows)).expect("histories preload distinct keys");
        }
    }

    /// Returns the outcome of a run, given its sinks.
    pub fn outcome(engine: &Engine, kept: &[Kept], summary: &Summary) -> Outcome {
        let program = engine.program();
        let values = |(kept, sink): (&Kept, &tidemill_plan::Sink)| {
            let schema = &program.streams[sink.stream].schema;
            kept.0.lock().iter().flat_map(|batch| rows(batch, schema)).collect()
        };
        let table = |(t, table)| rows(&engine.table(t).expect("in memory"), &table_schema(table));
        Outcome {
            outputs: kept.iter().zip(&program.sinks).map(values).collect(),
            tables: program.tables.iter_enumerated().map(table).collect(),
            policies: summary.policies.iter().map(|p| (p.group.clone(), p.policy.clone())).collect(),
            epochs: summary.epochs,
            workers: summary.policies.iter().map(|p| p.workers).max().unwrap_or_default(),
            scheduled: summary.policies.iter().map(|p| p.transactions).sum(),
            listed: 0,
            counts: summary.transactions.iter().map(|t| (t.committed, t.aborted)).collect(),
        }
    }

    /// Returns a readable description of the differences from the reference; none if there are none.
    pub fn difference(&self, outcome: &Outcome) -> Option<String> {
        self.expected.difference(outcome, &self.program)
    }
}

/// Returns the schema of a table's rows.
pub fn table_schema(table: &tidemill_plan::Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|c| (c.name.as_str(), c.ty)))
}

fn describe(text: &mut String, what: &str, ours: &[Vec<Value>], expected: &[Vec<Value>]) {
    let _ = writeln!(text, "{what}: {} rows, expected {}", ours.len(), expected.len());
    let differs = |i: &usize| {
        let (o, e) = (ours.get(*i), expected.get(*i));
        match (o, e) {
            (Some(o), Some(e)) => !same_rows(std::slice::from_ref(o), std::slice::from_ref(e)),
            _ => true,
        }
    };
    for i in (0..ours.len().max(expected.len())).filter(differs).take(3) {
        let _ = writeln!(text, "  row {i}\n    is       {:?}\n    expected {:?}", ours.get(i), expected.get(i));
    }
}
