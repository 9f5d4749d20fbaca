//! An application at work: threads around the pipeline, from sources to sinks.

use crate::commit::Committer;
use crate::durable::{Durability, Durable, Logging, committed_streams, migrate, seed};
use crate::environment::{Environment, Joined};
use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::gather::Gatherer;
use crate::inputs::Inputs;
use crate::io::{IoFailure, Sink, Source};
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::records::Records;
use crate::report::Report;
use crate::shape::EpochShape;
use crate::summary::Summary;
use crate::wiring::Wiring;
use crate::worker::Machine;
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_compile::{Code, CompileError};
use tidemill_durability::{StateDirectory, StateError};
use tidemill_plan::{Groups, Program, TableId};
use tidemill_state::{ColdError, PreloadError, Table, TableStats};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source failed.
    #[error("source '{name}': {failure}")]
    Source {
        /// The source.
        name: String,
        /// What happened.
        failure: IoFailure,
    },
    /// A sink failed.
    #[error("sink '{name}': {failure}")]
    Sink {
        /// The sink.
        name: String,
        /// What happened.
        failure: IoFailure,
    },
    /// The state cannot be read or kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine itself failed: a bug.
    #[error("internal failure, please report it: {0}")]
    Panic(String),
}

/// What others may see and say while an engine runs.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    failed: AtomicBool,
    /// How often whoever watches the run has begun to look whether it is to stop.
    pub(crate) looks: AtomicU64,
    /// Events whose results were released.
    pub events: AtomicU64,
    /// Epochs whose results were released.
    pub epochs: AtomicU64,
    /// The last epoch of an earlier run that was replayed; 0 where none was.
    pub replayed: AtomicU64,
    /// Whether the log waits for room on the disk: then no epoch is released.
    pub log_waits: AtomicBool,
    /// Whether a sink does. Set by who made the sinks.
    pub sink_waits: AtomicBool,
    /// Per source, how far it has come.
    pub progress: Mutex<Vec<crate::io::SourceProgress>>,
    /// How far it is in going on after an earlier run.
    pub recovery: RecoveryProgress,
}

/// How far a durable run is in going on after an earlier one: rows first, then events.
#[derive(Default)]
pub struct RecoveryProgress {
    /// Rows and deletions in the checkpoint; 0 where there are none.
    pub rows_in_all: AtomicU64,
    /// Rows that were loaded.
    pub rows: AtomicU64,
    /// Bytes of log behind it; 0 until they are known, or where there are none.
    pub log_bytes_in_all: AtomicU64,
    /// Bytes of log that were read.
    pub log_bytes: AtomicU64,
    /// Events that were replayed.
    pub events: AtomicU64,
    /// Whether all is replayed and new events are taken.
    pub done: AtomicBool,
}

impl RecoveryProgress {
    /// While rows are loaded: how many, and of how many at the most.
    pub fn loading(&self) -> Option<(u64, u64)> {
        let (rows, in_all) = (self.rows.load(Ordering::Relaxed), self.rows_in_all.load(Ordering::Relaxed));
        (rows < in_all && !self.done.load(Ordering::Relaxed)).then_some((rows, in_all))
    }

    /// While events are replayed: how many, and of about how many, judged by the bytes of log that they took.
    pub fn replaying(&self) -> Option<(u64, u64)> {
        let (bytes, in_all) = (self.log_bytes.load(Ordering::Relaxed), self.log_bytes_in_all.load(Ordering::Relaxed));
        let events = self.events.load(Ordering::Relaxed);
        let about = (u128::from(events) * u128::from(in_all)).checked_div(bytes.into())? as u64;
        (!self.done.load(Ordering::Relaxed)).then_some((events, about))
    }
}

impl Control {
    /// Asks the run to end after the epoch that is being gathered.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for that.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the log or a sink waits for room on its disk.
    pub fn waits(&self) -> bool {
        self.log_waits.load(Ordering::Relaxed) || self.sink_waits.load(Ordering::Relaxed)
    }

    /// Whether the run is about to end, as somebody has asked for that, or as it has failed: then nothing is waited for
    /// that may never come.
    pub fn ends(&self) -> bool {
        self.stops() || self.failed.load(Ordering::Relaxed)
    }
}

/// What a run works on: one source and one sink for each of the program's, in its order.
pub struct Request {
    /// By source number.
    pub sources: Vec<Box<dyn Source>>,
    /// By sink.
    pub sinks: Vec<Box<dyn Sink>>,
    /// How to run.
    pub options: Options,
    /// Clock and threads.
    pub environment: Arc<dyn Environment>,
    /// Shared with whoever watches.
    pub control: Arc<Control>,
    /// For a run that survives.
    pub durability: Option<Durability>,
    /// Where a record of each epoch goes ([`crate::epoch_record_schema`]).
    pub records: Option<Box<dyn Sink>>,
}

/// An application: program, code and tables.
pub struct Engine {
    machine: Arc<Machine>,
}

/// The first failure of a run; everything else follows from it.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<RunError>>);

impl Failure {
    /// Keeps a failure, if it is the first.
    pub fn set(&self, error: RunError) {
        self.0.lock().get_or_insert(error);
    }

    /// Whether there was one.
    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    fn take(&self) -> Option<RunError> {
        self.0.lock().take()
    }
}

impl Engine {
    /// Compiles a program; its tables are empty.
    pub fn new(program: Program) -> Result<Engine, CompileError> {
        Engine::with_logging(program, Logging::default())
    }

    /// The same, for durable runs that log in a certain way.
    pub fn with_logging(program: Program, logging: Logging) -> Result<Engine, CompileError> {
        let mut wanted = vec![false; program.streams.len()];
        program.sinks.iter().for_each(|sink| wanted[sink.stream] = true);
        if logging == Logging::Full {
            committed_streams(&program).for_each(|stream| wanted[stream] = true);
        }
        let code = Code::compile(&program, &wanted)?;
        let wiring = Wiring::of(&program, &code);
        let tables = program.tables.iter().map(Table::new).collect();
        let groups = Groups::of(&program);
        Ok(Engine { machine: Arc::new(Machine { program, code, wiring, groups, tables, logging }) })
    }

    /// The same application with empty tables. Panics while a run goes on.
    pub fn with_empty_tables(self) -> Engine {
        let machine = Arc::into_inner(self.machine).expect("no run goes on");
        let tables = machine.program.tables.iter().map(Table::new).collect();
        Engine { machine: Arc::new(Machine { tables, ..machine }) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.machine.program
    }

    /// Functions compiled and their bytes.
    pub fn code_size(&self) -> (usize, usize) {
        (self.machine.code.function_count, self.machine.code.code_bytes)
    }

    /// Puts rows into a table: a batch in canonical form. Between runs only.
    pub fn preload(&self, table: TableId, batch: &RecordBatch) -> Result<(), PreloadError> {
        self.machine.tables[table].preload(batch)
    }

    /// Makes a state of an earlier version of the program one of this one, whose tables have the rows that new
    /// tables begin with; nothing may be logged behind its checkpoint. The rows are those of the state then.
    pub fn migrate(&self, directory: &mut StateDirectory, old: &Program) -> Result<(), RunError> {
        migrate(directory, old, &self.machine)
    }

    /// Puts the rows that a state or savepoint, of the program `of`, has in tables of the same names into these
    /// tables: the names, and how many rows. Fails where columns do not fit.
    pub fn seed(&self, from: &StateDirectory, of: &Program) -> Result<Vec<(String, usize)>, RunError> {
        seed(from, of, &self.machine.tables)
    }

    /// The rows of a table, sorted by key. Between runs only. Fails where rows are cold and cannot be read.
    pub fn table(&self, table: TableId) -> Result<RecordBatch, RunError> {
        let failed = |error: ColdError| match error.downcast::<StateError>() {
            Ok(error) => RunError::State(*error),
            Err(other) => RunError::Panic(other.to_string()),
        };
        self.machine.tables[table].to_batch().map_err(failed)
    }

    /// What an epoch of these events of the first source accesses. Between runs only; not of programs that cascade.
    pub fn shape(&self, events: &RecordBatch) -> EpochShape {
        EpochShape::of(&self.machine, events)
    }

    /// What a table holds.
    pub fn table_stats(&self, table: TableId) -> TableStats {
        self.machine.tables[table].stats()
    }

    /// Runs until the sources end or the run is stopped. `tick` is called now and then on this thread.
    ///
    /// A durable run of a state that is not new needs empty tables: it fills them. One with a memory limit reads
    /// rows as they are needed, and goes on doing so for [`Engine::table`] when it has ended.
    pub fn run(&self, request: Request, tick: &mut dyn FnMut()) -> Result<Summary, RunError> {
        let Request { sources, mut sinks, options, environment, control, durability, records } = request;
        let started = environment.now();
        if options.memory.is_some() && durability.is_none() {
            return Err(RunError::State(StateError::Refused(
                "a memory limit needs a state, in whose checkpoints the other rows are; give a state directory, or no limit".into(),
            )));
        }
        let failure = Arc::new(Failure::default());
        let open = |durability| {
            let memory = options.memory;
            Durable::open(durability, memory, &self.machine, &mut sinks, &environment, &control, &failure, tick)
        };
        let durable = durability.map(open).transpose()?;
        let first = durable.as_ref().map_or(1, Durable::first_epoch);
        let workers = if options.workers == 0 { environment.parallelism() } else { options.workers };
        let machine = self.machine.clone();
        let pipeline = Arc::new(Pipeline::new(machine.clone(), environment.clone(), options, workers, first));
        let (free, slots) = unbounded();
        for _ in 0..workers + 2 {
            let _ = free.send(Box::new(Epoch::new(&machine.program, &machine.code, &machine.wiring)));
        }
        let (finished, to_commit) = unbounded();
        // Should this thread panic, or be refused another, those that there are leave.
        let guard = StopOnPanic { pipeline: &pipeline, failure: &failure };
        let (mut threads, readers) = (Vec::new(), Arc::new(Mutex::new(Vec::new())));
        let inputs = Inputs::new(sources, environment.clone(), control.clone(), readers.clone(), durable.is_some());
        for id in 0..workers {
            let (shared, settled, finished) = (pipeline.clone(), environment.clone(), finished.clone());
            let life = move |finished: &Sender<_>| {
                settled.settle(id, workers);
                shared.work(id, finished);
            };
            threads.push(environment.spawn("worker", stopping(&pipeline, &failure, finished, life)));
        }
        drop(finished);
        let (mut finish, at_gate, at_commit) = Durable::divide(durable, &machine, &control);
        let committer = Committer {
            machine: machine.clone(),
            environment: environment.clone(),
            control: control.clone(),
            failure: failure.clone(),
            pipeline: pipeline.clone(),
            sinks: sinks.into_iter().map(Some).collect(),
            free,
            report: Report::new(&machine.program, &machine.groups),
            records: records.map(Records::new),
            first,
            finished_over: false,
            logged_over: false,
            durable: at_commit,
        };
        if let Some(finish) = &mut finish {
            let checkpointer = finish.checkpointer(&machine, &environment, &failure, &pipeline);
            let life = stopping(&pipeline, &failure, (), move |()| checkpointer.run());
            threads.push(environment.spawn("checkpoint", life));
        }
        let (done, is_done) = bounded(1);
        let life = move |(): &()| _ = done.send(committer.run(&to_commit));
        threads.push(environment.spawn("committer", stopping(&pipeline, &failure, (), life)));
        let gatherer = Gatherer {
            machine: machine.clone(),
            environment: environment.clone(),
            control: control.clone(),
            failure: failure.clone(),
            pipeline: pipeline.clone(),
            gate: Gate::new(&machine.program, &machine.wiring.sources),
            slots,
            stash: Vec::new(),
            slot_count: workers + 2,
            inputs,
            options,
            number: first,
            durable: at_gate,
        };
        let (gathered, is_gathered) = bounded(1);
        let life = move |(): &()| _ = gathered.send(gatherer.run());
        threads.push(environment.spawn("gate", stopping(&pipeline, &failure, (), life)));
        let mut look = || {
            control.failed.store(failure.is_set(), Ordering::Relaxed);
            control.looks.fetch_add(1, Ordering::Release);
            tick();
        };
        let report = watched(&is_done, &mut look);
        let gathered = watched(&is_gathered, &mut look);
        std::mem::forget(guard);
        if let Some(finish) = &finish {
            finish.hurry();
        }
        join(threads, &failure);
        if !control.stops() && !failure.is_set() {
            // Otherwise a source may wait for input that never comes; it ends with its next record.
            join(std::mem::take(&mut *readers.lock()), &failure);
        }
        if let Some(finish) = &finish {
            // The state is in use until the log has come to rest.
            finish.join_logger();
        }
        if let Some(error) = failure.take() {
            return Err(error);
        }
        let (Some(report), Some(gathered)) = (report, gathered) else {
            return Err(RunError::Panic("a thread ended early".into()));
        };
        let (positions, stopped) = (gathered.positions.clone(), gathered.stopped);
        let durability = finish.take().map(|finish| finish.end(&machine, gathered)).transpose()?;
        let elapsed = environment.now() - started;
        Ok(Summary { durability, ..report.summary(&machine.program, &positions, stopped, elapsed) })
    }
}

/// What a thread says in the end, if it comes to that; meanwhile, and then once more, `look` is called now and then.
fn watched<T>(says: &Receiver<T>, look: &mut dyn FnMut()) -> Option<T> {
    let said = loop {
        match says.recv_timeout(Duration::from_millis(50)) {
            Ok(said) => break Some(said),
            Err(RecvTimeoutError::Timeout) => look(),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    look();
    said
}

fn join(threads: Vec<Box<dyn Joined>>, failure: &Failure) {
    for thread in threads {
        if let Err(message) = thread.join() {
            failure.set(RunError::Panic(message));
        }
    }
}

/// A thread's life: if it panics, the others leave, too, rather than wait for it. What it keeps is let go of only when
/// they can see that: the end of a channel is not to be taken for that of a run.
pub(crate) fn stopping<T: Send + 'static>(
    pipeline: &Arc<Pipeline>,
    failure: &Arc<Failure>,
    keeps: T,
    life: impl FnOnce(&T) + Send + 'static,
) -> Box<dyn FnOnce() + Send> {
    let (pipeline, failure) = (pipeline.clone(), failure.clone());
    Box::new(move || {
        // Locals are dropped in reverse.
        let keeps = keeps;
        let guard = StopOnPanic { pipeline: &pipeline, failure: &failure };
        life(&keeps);
        std::mem::forget(guard);
    })
}

struct StopOnPanic<'a> {
    pipeline: &'a Pipeline,
    failure: &'a Failure,
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.failure.set(RunError::Panic("a thread of the run panicked".into()));
        self.pipeline.stop();
    }
}
