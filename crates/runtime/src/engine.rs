//! An application at work: threads around the pipeline, from sources to sinks.

use crate::environment::{Environment, Joined};
use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::io::{IoFailure, Sink, Source, SourceBatch};
use crate::options::{EpochSize, Options};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::summary::Summary;
use crate::wiring::Wiring;
use crate::worker::Machine;
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_compile::{Code, CompileError};
use tidemill_plan::{Program, TableId};
use tidemill_state::{PreloadError, Table, TableStats};

/// Batches that a source may be ahead of the gate.
const SOURCE_AHEAD: usize = 4;
/// How long the gate waits for more input before it looks around again.
const GATE_POLL: Duration = Duration::from_micros(100);
const IDLE_POLL: Duration = Duration::from_millis(20);
/// How long input must pause before an epoch of fixed size is closed short of it, nanoseconds.
const PAUSE: u64 = 100_000_000;

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
    /// The engine itself failed: a bug.
    #[error("internal failure, please report it: {0}")]
    Panic(String),
}

/// What others may see and say while an engine runs.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    /// Events whose results were released.
    pub events: AtomicU64,
    /// Epochs whose results were released.
    pub epochs: AtomicU64,
    /// Per source, how far it has come.
    pub progress: Mutex<Vec<crate::io::SourceProgress>>,
}

impl Control {
    /// Asks the run to end after the epoch that is being gathered.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
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
}

/// An application: program, code and tables.
pub struct Engine {
    machine: Arc<Machine>,
}

enum FromSource {
    Batch(SourceBatch),
    End,
    Failed(IoFailure),
}

/// The first failure of a run; everything else follows from it.
#[derive(Default)]
struct Failure(Mutex<Option<RunError>>);

impl Failure {
    fn set(&self, error: RunError) {
        self.0.lock().get_or_insert(error);
    }

    fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl Engine {
    /// Compiles a program; its tables are empty.
    pub fn new(program: Program) -> Result<Engine, CompileError> {
        let mut wanted = vec![false; program.streams.len()];
        program.sinks.iter().for_each(|sink| wanted[sink.stream] = true);
        let code = Code::compile(&program, &wanted)?;
        let wiring = Wiring::of(&program, &code);
        let tables = program.tables.iter().map(Table::new).collect();
        Ok(Engine { machine: Arc::new(Machine { program, code, wiring, tables }) })
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

    /// The rows of a table, sorted by key. Between runs only.
    pub fn table(&self, table: TableId) -> RecordBatch {
        self.machine.tables[table].to_batch()
    }

    /// What a table holds.
    pub fn table_stats(&self, table: TableId) -> TableStats {
        self.machine.tables[table].stats()
    }

    /// Runs until the sources end or the run is stopped. `tick` is called now and then on this thread.
    pub fn run(&self, request: Request, tick: &mut dyn FnMut()) -> Result<Summary, RunError> {
        let Request { sources, sinks, options, environment, control } = request;
        let started = environment.now();
        let workers = if options.workers == 0 { environment.parallelism() } else { options.workers };
        let pipeline = Arc::new(Pipeline::new(self.machine.clone(), environment.clone(), options.scheduling, workers));
        let failure = Arc::new(Failure::default());
        let (free, slots) = unbounded();
        for _ in 0..workers + 2 {
            let _ = free.send(Box::new(Epoch::new(&self.machine.program, &self.machine.code, &self.machine.wiring)));
        }
        let (finished, to_commit) = unbounded();
        let mut threads = Vec::new();
        *control.progress.lock() = vec![Default::default(); sources.len()];
        let mut readers = Vec::new();
        let inputs: Vec<Receiver<FromSource>> = sources
            .into_iter()
            .enumerate()
            .map(|(s, source)| {
                let (sender, receiver) = bounded(SOURCE_AHEAD);
                let control = control.clone();
                readers.push(environment.spawn("source", Box::new(move || read(s, source, &sender, &control))));
                receiver
            })
            .collect();
        for id in 0..workers {
            let (pipeline, finished, failure) = (pipeline.clone(), finished.clone(), failure.clone());
            let body = move || {
                let guard = StopOnPanic { pipeline: &pipeline, failure: &failure };
                pipeline.work(id, &finished);
                std::mem::forget(guard);
            };
            threads.push(environment.spawn("worker", Box::new(body)));
        }
        drop(finished);
        let (done, is_done) = bounded(1);
        let committer = Committer {
            machine: self.machine.clone(),
            environment: environment.clone(),
            control: control.clone(),
            failure: failure.clone(),
            pipeline: pipeline.clone(),
            sinks: sinks.into_iter().map(Some).collect(),
            free,
            report: Report::new(&self.machine.program),
        };
        threads.push(environment.spawn(
            "committer",
            Box::new(move || {
                let _ = done.send(committer.run(&to_commit));
            }),
        ));
        let gatherer = Gatherer {
            machine: self.machine.clone(),
            environment: environment.clone(),
            control: control.clone(),
            failure: failure.clone(),
            pipeline: pipeline.clone(),
            gate: Gate::new(&self.machine.program, &self.machine.wiring.sources),
            slots,
            stash: Vec::new(),
            slot_count: workers + 2,
            inputs,
            options,
            number: 0,
        };
        let (gathered, is_gathered) = bounded(1);
        threads.push(environment.spawn(
            "gate",
            Box::new(move || {
                let _ = gathered.send(gatherer.run());
            }),
        ));
        let report = loop {
            match is_done.recv_timeout(Duration::from_millis(50)) {
                Ok(report) => break Some(report),
                Err(RecvTimeoutError::Timeout) => tick(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        tick();
        let positions = is_gathered.recv().ok();
        join(threads, &failure);
        if !control.stops() && !failure.is_set() {
            // Otherwise a source may wait for input that never comes; it ends with its next record.
            join(readers, &failure);
        }
        if let Some(error) = failure.0.lock().take() {
            return Err(error);
        }
        let (Some(mut report), Some((positions, stopped))) = (report, positions) else {
            return Err(RunError::Panic("a thread ended early".into()));
        };
        report.scheduling = pipeline.choice();
        Ok(report.summary(&self.machine.program, &positions, stopped, environment.now() - started))
    }
}

fn join(threads: Vec<Box<dyn Joined>>, failure: &Failure) {
    for thread in threads {
        if let Err(message) = thread.join() {
            failure.set(RunError::Panic(message));
        }
    }
}

/// Lets a panicking worker take the others with it, rather than leave them waiting.
struct StopOnPanic<'a> {
    pipeline: &'a Pipeline,
    failure: &'a Failure,
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.failure.set(RunError::Panic("a worker panicked".into()));
        self.pipeline.stop();
    }
}

/// The life of a source's thread.
fn read(number: usize, mut source: Box<dyn Source>, sender: &Sender<FromSource>, control: &Control) {
    loop {
        let message = match source.next() {
            Ok(Some(batch)) => FromSource::Batch(batch),
            Ok(None) => FromSource::End,
            Err(failure) => FromSource::Failed(failure),
        };
        control.progress.lock()[number] = source.progress();
        let last = !matches!(message, FromSource::Batch(_));
        // The gate has gone where sending fails; there is nobody left to tell.
        if sender.send(message).is_err() || last || control.stops() {
            return;
        }
    }
}

/// The gate's thread.
struct Gatherer {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
    failure: Arc<Failure>,
    pipeline: Arc<Pipeline>,
    gate: Gate,
    slots: Receiver<Box<Epoch>>,
    /// Empty epochs that came back and were not used yet.
    #[allow(clippy::vec_box, reason = "boxed as they travel")]
    stash: Vec<Box<Epoch>>,
    slot_count: usize,
    inputs: Vec<Receiver<FromSource>>,
    options: Options,
    number: u64,
}

impl Gatherer {
    /// Gathers until the sources end or the run stops; where the sources then stand, and whether it
    /// was stopped.
    fn run(mut self) -> (Vec<crate::gate::SourcePosition>, bool) {
        let mut go_on = true;
        while go_on && !self.failure.is_set() {
            self.sweep();
            let Some(mut epoch) = self.slot() else { break };
            go_on = self.fill();
            let most = self.events_max();
            let empty = self.gate.ready(1) == 0 && !self.gate.has_rejects();
            if self.failure.is_set() || empty {
                self.stash.push(epoch);
                continue;
            }
            epoch.number = self.number;
            self.number += 1;
            self.gate.cut(most, &mut epoch);
            self.pipeline.put(epoch);
        }
        self.pipeline.close();
        let mut positions = self.gate.positions();
        // What sources have handed over and the gate never took was read, too.
        for (input, position) in self.inputs.iter().zip(&mut positions) {
            while let Ok(FromSource::Batch(batch)) = input.try_recv() {
                position.held += batch.events.num_rows() as u64;
            }
        }
        (positions, self.control.stops())
    }

    fn events_max(&self) -> usize {
        match self.options.epoch {
            EpochSize::Events(events) => events.max(1),
            _ => self.options.epoch_events_max,
        }
    }

    /// Takes input until the gate should close. False after the last epoch.
    fn fill(&mut self) -> bool {
        let most = self.events_max();
        let mut last_input = self.environment.now();
        loop {
            if self.failure.is_set() || self.control.stops() {
                return false;
            }
            let ready = self.gate.ready(most);
            if ready >= most {
                return true;
            }
            if self.gate.ended() {
                return ready > 0;
            }
            if (ready > 0 || self.gate.has_rejects()) && self.closes(last_input) {
                return true;
            }
            let wait = if ready > 0 { GATE_POLL } else { IDLE_POLL };
            if self.take_input(wait) {
                last_input = self.environment.now();
            }
        }
    }

    /// Whether an epoch that could still grow should be closed now.
    fn closes(&self, last_input: u64) -> bool {
        let slowest = self.gate.slowest().expect("not all sources have ended");
        let now = self.environment.now();
        let age = now.saturating_sub(self.gate.oldest_arrival().unwrap_or(now));
        let pauses = self.inputs[slowest].is_empty();
        match self.options.epoch {
            EpochSize::Auto => (pauses && self.pipeline.would_idle()) || age >= self.options.epoch_age_max,
            EpochSize::Age(limit) => age >= limit,
            EpochSize::Events(_) => pauses && now - last_input >= PAUSE,
        }
    }

    /// Takes one message of the source that holds the others back; false if none came in time.
    fn take_input(&mut self, wait: Duration) -> bool {
        let slowest = self.gate.slowest().expect("not all sources have ended");
        let message = match self.inputs[slowest].try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => self.gone(),
            Err(TryRecvError::Empty) => match self.inputs[slowest].recv_timeout(wait) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => self.gone(),
            },
        };
        match message {
            FromSource::Batch(batch) => self.gate.ingest(slowest, batch, self.environment.now()),
            FromSource::End => self.gate.end(slowest),
            FromSource::Failed(failure) => {
                let stream = self.machine.wiring.sources[slowest];
                let name = self.machine.program.streams[stream].name.clone();
                self.failure.set(RunError::Source { name, failure });
                self.pipeline.stop();
            }
        }
        true
    }

    /// A source's thread has gone without a last word: by request, or it panicked.
    fn gone(&self) -> FromSource {
        if !self.control.stops() {
            self.failure.set(RunError::Panic("a source's thread ended early".into()));
            self.pipeline.stop();
        }
        FromSource::End
    }

    /// Frees slots of rows that do not exist, when so many were made that it may pay: waits until no
    /// epoch holds a row.
    fn sweep(&mut self) {
        if !self.machine.tables.iter().any(Table::wants_sweep) {
            return;
        }
        let epochs: Vec<_> = (0..self.slot_count).map_while(|_| self.slot()).collect();
        if epochs.len() == self.slot_count {
            for table in self.machine.tables.iter().filter(|t| t.wants_sweep()) {
                #[allow(unsafe_code)]
                // SAFETY: all epochs are here, cleared: nothing holds a row's address or text.
                unsafe {
                    table.sweep();
                }
            }
        }
        self.stash = epochs;
    }

    /// An empty epoch, as soon as there is one; none where nobody will give one back any more.
    fn slot(&mut self) -> Option<Box<Epoch>> {
        self.stash.pop().or_else(|| self.slots.recv().ok())
    }
}

/// The committer's thread: epochs in order, to the sinks.
struct Committer {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
    failure: Arc<Failure>,
    pipeline: Arc<Pipeline>,
    sinks: Vec<Option<Box<dyn Sink>>>,
    free: Sender<Box<Epoch>>,
    report: Report,
}

impl Committer {
    fn run(mut self, finished: &Receiver<Box<Epoch>>) -> Report {
        let mut waiting: BTreeMap<u64, Box<Epoch>> = BTreeMap::new();
        let mut next = 0;
        while let Ok(epoch) = finished.recv() {
            waiting.insert(epoch.number, epoch);
            while let Some(mut epoch) = waiting.remove(&next) {
                next += 1;
                self.commit(&mut epoch);
                epoch.clear();
                let _ = self.free.send(epoch);
            }
        }
        if !self.failure.is_set() {
            for s in 0..self.sinks.len() {
                if let Some(sink) = self.sinks[s].take()
                    && let Err(failure) = sink.finish()
                {
                    self.failed(s, failure);
                }
            }
        }
        self.report
    }

    fn commit(&mut self, epoch: &mut Epoch) {
        let start = self.environment.now();
        for s in 0..self.sinks.len() {
            if let Some(sink) = &mut self.sinks[s]
                && !self.failure.is_set()
                && let Err(failure) = write(sink.as_mut(), &epoch.outputs[s])
            {
                self.failed(s, failure);
            }
        }
        let now = self.environment.now();
        self.report.add(epoch, start, now);
        self.control.events.fetch_add(epoch.events as u64, Ordering::Relaxed);
        self.control.epochs.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, sink: usize, failure: IoFailure) {
        let name = self.machine.program.sinks[sink].name.clone();
        self.failure.set(RunError::Sink { name, failure });
        self.pipeline.stop();
    }
}

fn write(sink: &mut dyn Sink, batches: &[RecordBatch]) -> Result<(), IoFailure> {
    for batch in batches {
        sink.write(batch)?;
    }
    if batches.is_empty() { Ok(()) } else { sink.flush() }
}
