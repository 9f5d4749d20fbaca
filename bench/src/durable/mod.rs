//! Runs with a state: what the log costs, what a checkpoint of many rows does to the events meanwhile, how fast
//! a run goes on after a crash, and the store of rows alone.

mod larger;
mod log;
mod logging;
mod recovery;
mod store;
mod watch;

use crate::workloads::ledger::{self, KeySpread, Shape};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidemill_connect::{System, open_state};
use tidemill_io::{IoFailure, Next, Resumed, Sink, Source, SourceBatch};
use tidemill_plan::analyze;
use tidemill_runtime::{Control, Durability, DurabilityOptions, Engine, Options, Request, Summary};
use watch::Watch;

/// Events of a batch that the source hands over at once.
const SLICE: usize = 1 << 14;
/// Events that are made; a run goes through them again and again.
const EVENTS: usize = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Runs with and without a state, by value and by offset.
    Log,
    /// A checkpoint in the middle of a run.
    Checkpoint,
    /// A run that is killed, and the next one.
    Recovery,
    /// Rows written, changed, loaded and looked up.
    Store,
    /// Ten times as many rows as the memory limit allows.
    Larger,
    /// Logging of what crosses the border, and of every transaction.
    Logging,
}

#[derive(Parser)]
pub struct DurableBench {
    /// The parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "log,checkpoint,recovery,store,larger,logging")]
    parts: Vec<Part>,
    /// Rows in both tables together, where the log is measured.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Rows in both tables together, where a checkpoint or a recovery is.
    #[arg(long, default_value_t = 5_000_000)]
    checkpoint_rows: u64,
    /// Rows in both tables together, where memory is for a tenth of them.
    #[arg(long, default_value_t = 20_000_000)]
    larger_rows: u64,
    /// Their Zipf skews.
    #[arg(long, value_delimiter = ',', default_value = "0.99,0.2")]
    larger_theta: Vec<f64>,
    /// Events of a run.
    #[arg(long, default_value_t = 20_000_000)]
    events: usize,
    /// Zipf skew.
    #[arg(long, default_value_t = 0.2)]
    theta: f64,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds until the run is killed that is recovered from.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The folder for states, which are removed. It decides which disk is measured.
    #[arg(long, default_value = "target/bench-durable")]
    folder: PathBuf,
    /// Only run on this state until killed.
    #[arg(long, hide = true)]
    live: Option<PathBuf>,
    /// Only make this state.
    #[arg(long, hide = true)]
    make: Option<PathBuf>,
    /// With `live`: a chain of so many transactions, and how it is logged.
    #[arg(long, hide = true)]
    chain: Option<String>,
}

impl DurableBench {
    /// Prints all parts.
    pub fn report(&self) {
        match (&self.live, &self.chain) {
            (Some(state), Some(chain)) => return logging::live_chain(chain, state),
            (Some(state), None) => {
                let batch = ledger::events(self.shape(self.checkpoint_rows), 44);
                return recovery::live(&filled(self.checkpoint_rows), &batch, state);
            }
            (None, _) => {}
        }
        if let Some(state) = &self.make {
            return larger::make(self, state);
        }
        std::fs::create_dir_all(&self.folder).expect("a folder that can be made");
        log::disk(&self.folder);
        for part in &self.parts {
            match part {
                Part::Log => log::measure(self),
                Part::Checkpoint => self.checkpoint(),
                Part::Recovery => recovery::measure(self),
                Part::Larger => larger::measure(self),
                Part::Store => store::measure(self.checkpoint_rows, &self.fresh("store")),
                Part::Logging => logging::measure(self),
            }
        }
        std::fs::remove_dir_all(&self.folder).expect("our own folder");
    }

    fn shape(&self, rows: u64) -> Shape {
        let events = EVENTS.min(self.events);
        Shape { rows, theta: self.theta, events, doomed: 0.01, work: 0, keys: KeySpread::default() }
    }

    /// Checkpoints in the middle of a run, or one.
    fn checkpoint(&self) {
        let batch = ledger::events(self.shape(self.checkpoint_rows), 43);
        let state = self.fresh("checkpoint");
        let options = DurabilityOptions {
            // One in the middle; the last is taken after the end.
            checkpoint_events: self.events as u64 / 2 + 1,
            commit_age_max: Duration::ZERO,
            ..DurabilityOptions::default()
        };
        let due = options.checkpoint_events;
        let mut whole = None;
        for load in ["as fast as it goes", "at half that rate"] {
            let engine = filled(self.checkpoint_rows);
            let durability = open(&engine, &self.fresh("checkpoint"), options.clone());
            let control = Arc::new(Control::default());
            let watch = Watch::start(control.clone(), state.join("manifest"), due);
            let source = Cycle { per_second: whole.map(|rate: f64| rate / 2.0), ..Cycle::new(&batch, self.events) };
            let summary = run(&engine, Box::new(source), Some(durability), &control);
            println!("{load}, {} checkpoints:", summary.durability.expect("a durable run").checkpoints);
            watch.report();
            whole = Some(summary.events_per_second);
        }
    }

    /// Returns a state directory without anything in it.
    fn fresh(&self, name: &str) -> PathBuf {
        let state = self.folder.join(name);
        let _ = std::fs::remove_dir_all(&state);
        state
    }
}

/// Returns an engine without rows.
fn empty() -> Engine {
    Engine::new(analyze(&ledger::plan(0)).expect("a valid plan")).expect("a plan that compiles")
}

/// Returns an engine with the ledger's rows.
fn filled(rows: u64) -> Engine {
    let engine = empty();
    for table in engine.program().tables.keys() {
        let columns = &engine.program().tables[table].columns;
        let schema = tidemill_model::Schema::scalars(columns.iter().map(|c| (c.name.as_str(), c.ty)));
        let rows = ledger::initial_rows(rows, KeySpread::default(), &schema);
        rows.for_each(|batch| engine.preload(table, &batch).expect("distinct keys"));
    }
    engine
}

fn open(engine: &Engine, state: &Path, options: DurabilityOptions) -> Durability {
    let options = DurabilityOptions { is_final: true, ..options };
    Durability { directory: open_state(state, engine.program(), None).expect("a state"), options }
}

/// Runs, and returns the seconds from when its first events were asked for to when its last results were released: what
/// it costs to open a state and to leave it is no part of the rate at which events go through.
fn run_timed(
    engine: &Engine,
    source: Box<dyn Source>,
    durability: Option<Durability>,
    control: &Arc<Control>,
) -> (Summary, f64) {
    run_with(engine, source, durability, control, Options::default())
}

fn run_with(
    engine: &Engine,
    source: Box<dyn Source>,
    durability: Option<Durability>,
    control: &Arc<Control>,
    options: Options,
) -> (Summary, f64) {
    let span = Arc::new(Mutex::new(None));
    let sink = |_| Box::new(Released(span.clone())) as Box<dyn Sink>;
    let request = Request {
        options,
        control: control.clone(),
        durability,
        ..Request::new(
            vec![Box::new(Begun { source, span: span.clone() })],
            engine.program().sinks.iter().map(sink).collect(),
            Arc::new(System::new()),
        )
    };
    let summary = engine.run(request, &mut || {}).expect("a run");
    let span = *span.lock().expect("no panic under it");
    (summary, span.map_or(0.0, |(first, last): (Instant, Instant)| last.duration_since(first).as_secs_f64()))
}

fn run(engine: &Engine, source: Box<dyn Source>, durability: Option<Durability>, control: &Arc<Control>) -> Summary {
    run_timed(engine, source, durability, control).0
}

/// The time when events were first asked for, and the time when results were last released.
type Span = Arc<Mutex<Option<(Instant, Instant)>>>;

/// A source that notes when it is asked first.
struct Begun {
    source: Box<dyn Source>,
    span: Span,
}

impl Source for Begun {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let now = Instant::now();
        self.span.lock().expect("no panic under it").get_or_insert((now, now));
        self.source.next(wait_max)
    }

    fn token(&self) -> Option<String> {
        self.source.token()
    }

    fn replays(&self) -> bool {
        self.source.replays()
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.source.resume(token)
    }
}

/// Drops results and notes when the last were released.
struct Released(Span);

impl Released {
    fn note(&self) {
        if let Some((_, last)) = &mut *self.0.lock().expect("no panic under it") {
            *last = Instant::now();
        }
    }
}

impl Sink for Released {
    fn write(&mut self, _: &RecordBatch) -> Result<(), IoFailure> {
        self.note();
        Ok(())
    }

    fn commit(&mut self, _: u64) -> Result<(), IoFailure> {
        self.note();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// Goes through a batch again and again, the event times going on.
struct Cycle {
    batch: RecordBatch,
    at: usize,
    end: usize,
    /// Events a second; none: as fast as they are taken.
    per_second: Option<f64>,
    began: Option<Instant>,
}

impl Cycle {
    fn new(batch: &RecordBatch, events: usize) -> Cycle {
        Cycle { batch: batch.clone(), at: 0, end: events, per_second: None, began: None }
    }
}

fn source(batch: &RecordBatch, events: usize) -> Box<dyn Source> {
    Box::new(Cycle::new(batch, events))
}

impl Source for Cycle {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if let Some(per_second) = self.per_second {
            let due = Duration::from_secs_f64(self.at as f64 / per_second);
            let elapsed = self.began.get_or_insert_with(Instant::now).elapsed();
            std::thread::sleep(due.saturating_sub(elapsed));
        }
        let slice = if self.per_second.is_some() { SLICE / 8 } else { SLICE };
        let from = self.at % self.batch.num_rows();
        let len = slice.min(self.batch.num_rows() - from).min(self.end - self.at);
        if len == 0 {
            return Ok(Next::End);
        }
        let slice = self.batch.slice(from, len);
        let mut columns: Vec<ArrayRef> = slice.columns().to_vec();
        columns[0] = Arc::new(Int64Array::from_iter_values(self.at as i64..(self.at + len) as i64));
        self.at += len;
        let events = RecordBatch::try_new(slice.schema(), columns).expect("columns of the schema");
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}
