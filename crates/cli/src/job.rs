//! A job: a plan with its inputs and outputs. It is opened in an order that finds mistakes before the first event,
//! before any sink is touched, and before a state becomes one of this program:
//!
//! 1. the plan is checked and compiled, and inputs and outputs are compared;
//! 2. the state is opened, where the run is durable;
//! 3. sources are opened, and the schemas of their files compared;
//! 4. tables are filled, from a seed or their inputs, unless the state has them;
//! 5. sinks are opened, and the file of epoch records;
//! 6. a state of an earlier schema is migrated, and a savepoint is made.

use crate::options::RunOptions;
use crate::state::bring;
use crate::summary::waits;
use crate::watch::{Thresholds, Watcher};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_audit::{AuditError, recorded_program};
use tidemill_compile::CompileError;
use tidemill_connect::{
    IpcCompression, Named, Patience, Patient, SetTime, SinkDurability, System, WriteIpc, check_overlap, check_paths,
    open_state_as_it_is, source_options,
};
use tidemill_durability::{StateDirectory, StateError, table_taken_over};
use tidemill_io::{
    BadRecord, DurableRun, InputEnd, IoFailure, Next, Registry, Sink, SinkConnection, Source, SourceBatch,
    SourceConnection, Unit,
};
use tidemill_model::Schema;
use tidemill_plan::{Origin, Plan, PlanError, Program, Stream, StreamId, Table, TableId, analyze};
use tidemill_runtime::{
    Control, Durability, Engine, Environment, Logging, Options, Request, RunError, SentSource, Session, Summary,
    Watched, epoch_record_schema,
};
use tidemill_server::MetricsError;

/// Makes a front end's own source, of the schema that is wanted.
pub type OpenSource = Box<dyn FnOnce(&Schema) -> Box<dyn Source> + Send>;

/// Makes a front end's own sink, for events of the schema.
pub type OpenSink = Box<dyn FnOnce(&Schema) -> Box<dyn Sink> + Send>;

/// A callback that says whether to give up before the first event. Is shown how far a replay has come, if one is under
/// way.
pub type Watch<'a> = &'a mut dyn FnMut(Option<&Control>) -> bool;

/// The origin of a source's events or of a table's rows.
pub enum Input {
    /// A connection, to be opened here.
    Connection(Box<dyn SourceConnection>),
    /// The front end's own.
    Own(OpenSource),
    /// The session that sends the events. Not for tables.
    Sent,
}

/// The destination of a stream.
pub enum Output {
    /// A connection, to be opened here.
    Connection(Box<dyn SinkConnection>),
    /// The front end's own.
    Own(OpenSink),
}

/// A plan, and what goes in and comes out of it.
pub struct Job {
    /// The application.
    pub plan: Plan,
    /// The input of each source of the plan, by name.
    pub sources: BTreeMap<String, Input>,
    /// The time without input after which a source holds no other source back until its next input, by name of the
    /// source.
    pub idle: BTreeMap<String, Duration>,
    /// The rows that each table begins with, by name; tables without an input are empty when the run begins.
    pub tables: BTreeMap<String, Input>,
    /// The output of each sink of the plan, by name.
    pub sinks: BTreeMap<String, Output>,
    /// Open what a state has recorded.
    pub connectors: Registry,
    /// The time of day, in place of the machine's.
    pub time: Option<Arc<SetTime>>,
}

/// The reason why a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The plan is wrong.
    #[error("{}", lines(.0))]
    Plan(Vec<PlanError>),
    /// The plan cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Inputs and outputs do not fit together.
    #[error("{0}")]
    Connectors(String),
    /// A table cannot be filled.
    #[error("table '{name}': {failure}")]
    Table {
        /// The table.
        name: String,
        /// The failure.
        failure: IoFailure,
    },
    /// A table's rows contradict each other.
    #[error("{0}")]
    Rows(String),
    /// The run failed, or a source or sink could not be opened for it.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A state cannot be gone through, or differs from what it must be.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Stopped before the first event.
    #[error("stopped before the first event")]
    Interrupted,
}

impl From<StateError> for JobError {
    fn from(error: StateError) -> JobError {
        JobError::Run(RunError::State(error))
    }
}

fn lines(errors: &[PlanError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A job whose sources and sinks are open and whose tables are filled.
pub struct Ready {
    engine: Engine,
    environment: Arc<dyn Environment>,
    options: Options,
    sources: Vec<Box<dyn Source>>,
    /// The time for which each source may be without input before it holds no other source back, by source.
    idle: Vec<Option<Duration>>,
    sinks: Vec<Box<dyn Sink>>,
    durability: Option<Durability>,
    /// The patience of the sinks of a durable run. Neither has any before it runs: what cannot begin says why.
    patience: Patience,
    /// The patience of its state, for descriptors.
    state_patience: Patience,
    records: Option<Box<dyn Sink>>,
    /// Streams, with the number of their last events that a session keeps.
    keep: Vec<(StreamId, usize)>,
    /// Shows the run to those who watch it, once it has begun.
    pub watched: Watched,
    thresholds: Thresholds,
    /// The unit in which the progress of each source is counted.
    pub units: Vec<Unit>,
    /// Notes on what opening did.
    pub notes: Notes,
}

/// Notes for people on the opening of a job.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Notes that are good to know.
    pub said: Vec<String>,
    /// Warnings, which those hear, too, who want to hear nothing.
    pub warned: Vec<String>,
}

impl Job {
    /// Checks that inputs and outputs do not get into each other's way, with the file of epoch records that a run
    /// may write. Touches nothing.
    pub fn check_connections(&self, epoch_records: Option<&Path>) -> Result<(), JobError> {
        self.check_standard_streams()?;
        self.check_files(epoch_records)
    }

    /// Checks that each sink writes one file, and none that a source or a table reads.
    fn check_files(&self, epoch_records: Option<&Path>) -> Result<(), JobError> {
        fn input<'a>(kind: &str, (name, input): (&String, &'a Input)) -> Option<Named<'a, dyn SourceConnection>> {
            let Input::Connection(connection) = input else { return None };
            Some(Named { name: format!("{kind} '{name}'"), connection: connection.as_ref() })
        }
        fn sink<'a>((name, output): (&String, &'a Output)) -> Option<Named<'a, dyn SinkConnection>> {
            let Output::Connection(connection) = output else { return None };
            Some(Named { name: format!("sink '{name}'"), connection: connection.as_ref() })
        }
        let records = epoch_records.map(records_file);
        let sources = self.sources.iter().filter_map(|source| input("source", source));
        let inputs: Vec<_> = sources.chain(self.tables.iter().filter_map(|table| input("table", table))).collect();
        let mut sinks: Vec<_> = self.sinks.iter().filter_map(sink).collect();
        let records = records.as_ref().map(|file| file as &dyn SinkConnection);
        sinks.extend(records.map(|connection| Named { name: "the file of epoch records".into(), connection }));
        check_paths(&sinks).map_err(JobError::Connectors)?;
        check_overlap(&inputs, &sinks).map_err(JobError::Connectors)
    }

    /// Checks that no source without event time is read beside sources with one.
    pub fn check_sent(&self, program: &Program) -> Result<(), JobError> {
        for stream in program.sources() {
            if let (Some(other), Some(Input::Connection(_) | Input::Own(_))) =
                (program.sent_beside(stream), self.sources.get(&stream.name))
            {
                let (name, other) = (&stream.name, &other.name);
                return Err(JobError::Connectors(match stream.is_anchored() {
                    true => format!(
                        "events of source '{name}' get the time of their position: they can be sent to a session, and \
                         not be read"
                    ),
                    false => format!(
                        "source '{name}' has no event time, but source '{other}' has one: events without event time can \
                         be sent to a session beside it, and not be read; declare the event time of '{name}'"
                    ),
                }));
            }
        }
        Ok(())
    }

    /// Checks that at most one input reads standard input and at most one sink writes standard output.
    fn check_standard_streams(&self) -> Result<(), JobError> {
        let tables = self.tables.iter().filter(|(_, i)| i.is_standard()).map(|(n, _)| format!("table '{n}'"));
        let sources = self.sources.iter().filter(|(_, i)| i.is_standard()).map(|(n, _)| format!("source '{n}'"));
        let readers: Vec<String> = tables.chain(sources).collect();
        let writers: Vec<String> = self.standard_output().map(|n| format!("sink '{n}'")).collect();
        let clash = |who: &[String], what: &str| JobError::Connectors(format!("{} and {} both {what}", who[0], who[1]));
        if readers.len() > 1 {
            return Err(clash(&readers, "read standard input"));
        }
        if writers.len() > 1 {
            return Err(clash(&writers, "write standard output"));
        }
        Ok(())
    }

    /// Returns the sinks that write to standard output.
    pub fn standard_output(&self) -> impl Iterator<Item = &str> {
        self.sinks.iter().filter(|(_, output)| output.is_standard()).map(|(name, _)| name.as_str())
    }

    /// Opens the sources and sinks of the job for a run. `interrupted` is asked now and then whether to give up, and
    /// shown a replay that is under way.
    pub fn open(self, options: &RunOptions, interrupted: Watch) -> Result<Ready, JobError> {
        self.open_with(options, interrupted, Engine::with_logging)
    }

    /// Opens the sources and sinks of the job for a session: every stream can be followed.
    pub fn open_for_session(self, options: &RunOptions, interrupted: Watch) -> Result<Ready, JobError> {
        self.open_with(options, interrupted, Engine::for_session)
    }

    fn open_with(
        mut self,
        options: &RunOptions,
        interrupted: Watch,
        compile: fn(Program, Logging) -> Result<Engine, CompileError>,
    ) -> Result<Ready, JobError> {
        let program = analyze(&self.plan).map_err(JobError::Plan)?;
        self.check_connections(options.epoch_records.as_deref())?;
        self.check_sent(&program)?;
        let system = self.time.take().map_or_else(System::new, System::at);
        let environment: Arc<dyn Environment> = Arc::new(system);
        let engine = compile(program, options.logging.unwrap_or_default())?;
        let mut engine = engine.on_sockets_of(&environment, &options.engine);
        let (mut notes, state_patience) = (Notes::default(), Patience::later());
        let savepoint = options.savepoint.as_deref();
        let mut directory = match &options.state {
            Some(path) => Some(self.open_state(path, &state_patience, options, &engine, &mut notes, interrupted)?),
            None => None,
        };
        let (mut sources, mut units) = (Vec::new(), Vec::new());
        let idle = source_streams(engine.program()).map(|stream| self.idle.get(&stream.name).copied()).collect();
        for stream in source_streams(engine.program()) {
            let sent = || engine.program().sent_beside(stream).map(|_| Input::Sent);
            let input = self.sources.remove(&stream.name).or_else(sent);
            let input = input.ok_or_else(|| JobError::Connectors(format!("source '{}' has no data", stream.name)))?;
            units.push(input.unit());
            let failed = |failure| RunError::Source { name: stream.name.clone(), failure };
            sources.push(input.open(&stream.schema).map_err(failed)?);
        }
        let begun = directory.as_ref().and_then(StateDirectory::manifest);
        let full: Vec<String> = match (begun, &options.seed) {
            (Some(begun), seed) => {
                if let Some(path) = seed {
                    notes.said.push(format!("the state has begun, so that nothing is taken of {}", path.display()));
                }
                let (had, has) = (&begun.program.tables, &engine.program().tables.raw);
                let had_rows = |table: &&Table| table_taken_over(had, has, table).is_some();
                has.iter().filter(had_rows).map(|table| table.name.clone()).collect()
            }
            (None, Some(path)) => seed(&engine, path, &mut notes)?,
            (None, None) => Vec::new(),
        };
        for (id, table) in engine.program().tables.iter_enumerated().filter(|(_, t)| !full.contains(&t.name)) {
            if let Some(input) = self.tables.remove(&table.name) {
                fill(&engine, id, table, input, interrupted)?;
            }
        }
        let patience = Patience::later();
        let durable = directory.as_ref().map(|directory| {
            let storage = Patient::new(directory.storage().clone(), patience.clone());
            SinkDurability::of(directory, Arc::new(storage))
        });
        let mut sinks = Vec::new();
        for sink in &engine.program().sinks {
            let output = self.sinks.remove(&sink.name);
            let output = output.ok_or_else(|| JobError::Connectors(format!("sink '{}' leads nowhere", sink.name)))?;
            let failed = |failure| RunError::Sink { name: sink.name.clone(), failure };
            let schema = &engine.program().streams[sink.stream].schema;
            sinks.push(output.open(schema, durable.as_ref()).map_err(failed)?);
        }
        let records = options.epoch_records.as_ref().map(|path| open_records(path)).transpose()?;
        if let Some(directory) = &mut directory {
            engine = bring(directory, savepoint, engine, &mut notes)?;
        }
        let durability = directory.map(|directory| Durability { directory, options: options.durability() });
        let (given, options, keep) = (options, options.engine, Vec::new());
        Ok(Ready {
            engine,
            environment,
            options,
            sources,
            idle,
            sinks,
            durability,
            patience,
            state_patience,
            records,
            keep,
            watched: Watched::default(),
            thresholds: given.thresholds,
            units,
            notes,
        })
    }
}

impl Ready {
    /// Returns the program.
    pub fn program(&self) -> &Program {
        self.engine.program()
    }

    /// Runs it to its end. `tick` is called some twenty times a second on this thread.
    pub fn run(self, control: Arc<Control>, tick: &mut dyn FnMut()) -> Result<(Engine, Summary), JobError> {
        let (engine, request, mut watch) = self.into_parts(control);
        let ran = engine.run(request, &mut || {
            watch();
            tick();
        });
        // The last look: at what happened since the one before.
        watch();
        let mut summary = ran?;
        say_waits(&mut summary, engine.program());
        Ok((engine, summary))
    }

    /// Starts it as a session. `tick` is called from time to time on this thread while a state is loaded.
    pub fn start(self, control: Arc<Control>, tick: &mut dyn FnMut()) -> Result<Session, JobError> {
        let keep = self.keep.clone();
        let (engine, request, watch) = self.into_parts(control);
        Ok(Session::start_keeping(engine, request, &keep, tick, Box::new(watch))?)
    }

    /// Has the session keep the last events of a stream, so that it can be followed from an earlier place.
    pub fn keep(&mut self, stream: &str, events: usize) -> Result<(), JobError> {
        let streams = &self.engine.program().streams;
        let found = streams.iter_enumerated().find(|(_, known)| known.name == stream).map(|(id, _)| id);
        let id = found.ok_or_else(|| JobError::Connectors(format!("there is no stream '{stream}' to keep")))?;
        self.keep.push((id, events));
        Ok(())
    }

    /// Returns the engine, what it is to run, and what its watcher calls from time to time.
    fn into_parts(self, control: Arc<Control>) -> (Engine, Request, impl FnMut() + Send + use<>) {
        let Ready { engine, environment, options, sources, idle, sinks, durability, records, .. } = self;
        let Ready { patience, state_patience, watched, thresholds, .. } = self;
        let (seen, mut watcher) = (control.clone(), Watcher::new(control.clone(), watched.clone(), thresholds));
        let request = Request {
            options,
            control,
            durability,
            records,
            idle,
            watched,
            ..Request::new(sources, sinks, environment)
        };
        let watch = move || {
            watcher.remarks(&seen.take_remarks());
            seen.sink_waits.store(patience.waits(), Ordering::Relaxed);
            let wants_descriptors = [&patience, &state_patience].iter().any(|one| one.waits_for_descriptors());
            seen.descriptors_wait.store(wants_descriptors, Ordering::Relaxed);
            let change = if seen.ends() { Patience::end } else { Patience::begin };
            [&patience, &state_patience].into_iter().for_each(change);
            watcher.look();
        };
        (engine, request, watch)
    }
}

/// Says of each source of a run with a state what its held events wait for.
pub fn say_waits(summary: &mut Summary, program: &Program) {
    if summary.durability.is_some() && !summary.stopped {
        for (source, stream) in summary.sources.iter_mut().zip(source_streams(program)) {
            source.waits = waits(source, stream);
        }
    }
}

fn records_file(path: &Path) -> WriteIpc {
    WriteIpc { path: path.to_string_lossy().into_owned(), compression: IpcCompression::default() }
}

/// Opens the file for a record of each epoch: Arrow, uncompressed, as a file with a footer.
fn open_records(path: &Path) -> Result<Box<dyn Sink>, RunError> {
    let failed = |failure| RunError::Sink { name: "epoch records".into(), failure };
    records_file(path).open(&epoch_record_schema(), None).map_err(failed)
}

/// Returns the streams of a program's sources, by source number.
pub fn source_streams(program: &Program) -> impl Iterator<Item = &Stream> {
    program.streams.iter().filter(|s| matches!(s.origin, Origin::Source { .. }))
}

/// Returns the schema of a table's rows.
pub fn table_schema(table: &Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|c| (c.name.as_str(), c.ty)))
}

/// Puts the rows of a state or savepoint into the tables of the same names, and returns these names.
fn seed(engine: &Engine, path: &Path, notes: &mut Notes) -> Result<Vec<String>, JobError> {
    let from = open_state_as_it_is(path)?;
    let seeded = engine.seed(&from, &recorded_program(&from)?)?;
    if seeded.is_empty() {
        let tables: Vec<&str> = engine.program().tables.iter().map(|table| table.name.as_str()).collect();
        let (path, tables) = (path.display(), tables.join(", "));
        return Err(JobError::Connectors(format!("{path} has no rows for any table of the program ({tables})")));
    }
    for (name, rows) in &seeded {
        notes.said.push(format!("table {name} begins with {rows} rows of {}", path.display()));
    }
    Ok(seeded.into_iter().map(|(name, _)| name).collect())
}

/// Returns the schema of the rows that a table begins with: all windows are empty then. The last column of a table whose rows expire is not
/// the user's.
pub fn first_rows_schema(table: &Table) -> Schema {
    let declared = table.columns.len() - usize::from(table.expire.is_some());
    let plain = table.columns[..declared].iter().filter(|c| c.window.is_none());
    Schema::scalars(plain.map(|c| (c.name.as_str(), c.ty)))
}

/// Puts all of an input into a table. A row that cannot be decoded is a failure: a table that lacks
/// rows would give wrong results without a sign.
pub(crate) fn fill(
    engine: &Engine,
    id: TableId,
    table: &Table,
    input: Input,
    interrupted: Watch,
) -> Result<(), JobError> {
    let failed = |failure: IoFailure| JobError::Table { name: table.name.clone(), failure };
    if matches!(&input, Input::Connection(connection) if connection.end() == InputEnd::Follow) {
        return Err(failed(IoFailure::new("the first rows of a table cannot be followed")));
    }
    let mut source = input.open(&first_rows_schema(table)).map_err(failed)?;
    while let Next::Batch(SourceBatch { events, bad }) = source.next(Duration::MAX).map_err(failed)? {
        if let Some(bad) = bad.first() {
            return Err(failed(IoFailure::schema(located(bad))));
        }
        engine.preload_declared(id, &events).map_err(|error| JobError::Rows(error.to_string()))?;
        if interrupted(None) {
            return Err(JobError::Interrupted);
        }
    }
    Ok(())
}

/// Returns a bad record as one sentence.
fn located(bad: &BadRecord) -> String {
    let mut text = bad.origin.clone().unwrap_or_else(|| "the data".into());
    if let Some(line) = bad.line {
        let _ = write!(text, ", line {line}");
    }
    if let Some(column) = &bad.column {
        let _ = write!(text, ", column '{column}'");
    }
    let _ = write!(text, ": {}", bad.reason);
    text
}

impl Input {
    fn open(self, schema: &Schema) -> Result<Box<dyn Source>, IoFailure> {
        match self {
            Input::Connection(connection) => connection.open(schema, &source_options()),
            Input::Own(open) => Ok(open(schema)),
            Input::Sent => Ok(Box::new(SentSource)),
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Input::Connection(connection) => connection.unit(),
            Input::Own(_) | Input::Sent => Unit::Events,
        }
    }

    fn is_standard(&self) -> bool {
        matches!(self, Input::Connection(connection) if connection.paths().iter().any(|path| path == "-"))
    }
}

impl Output {
    fn open(self, schema: &Schema, durable: Option<&SinkDurability>) -> Result<Box<dyn Sink>, IoFailure> {
        match self {
            Output::Connection(connection) => connection.open(schema, durable.map(|run| run as &dyn DurableRun)),
            Output::Own(open) => Ok(open(schema)),
        }
    }

    fn is_standard(&self) -> bool {
        matches!(self, Output::Connection(connection) if matches!(connection.path(), Some("-" | "/dev/stdout")))
    }
}
