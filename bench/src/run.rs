//! Running an engine on batches in memory, its results counted and dropped.

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_connect::System;
use tidemill_io::{IoFailure, Next, Resumed, Sink, Source, SourceBatch};
use tidemill_runtime::{Durability, Engine, Environment, Options, Request, Summary};

/// Hands over one batch.
pub struct Once(pub Option<RecordBatch>);

impl Source for Once {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(self.0.take().map(|events| SourceBatch { events, bad: Vec::new() }).into())
    }
}

/// Hands over a batch in slices, so that an event arrives when there is room for its slice. It can be read again from any
/// event on, as a file can, so a log has the numbers of events and not the events.
pub struct Slices {
    events: RecordBatch,
    next: usize,
    size: usize,
}

impl Slices {
    /// Makes slices of this number of events.
    pub fn new(events: RecordBatch, size: usize) -> Slices {
        Slices { events, next: 0, size }
    }
}

impl Source for Slices {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let len = self.size.min(self.events.num_rows() - self.next);
        let events = self.events.slice(self.next, len);
        self.next += len;
        Ok((len > 0).then_some(SourceBatch { events, bad: Vec::new() }).into())
    }

    fn token(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    fn replays(&self) -> bool {
        true
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.next = token.and_then(|token| token.parse().ok()).unwrap_or(0);
        Ok(Resumed::Behind)
    }
}

/// Hands over events when they are due, at a rate, whatever becomes of those before: an open loop.
struct Paced {
    events: RecordBatch,
    next: usize,
    per_second: f64,
    clock: Arc<System>,
    start: Option<u64>,
    /// The time when the first event of the last batch was due.
    arrived: u64,
}

/// Events handed over at once at the most, and the time between looks at the clock.
const PACED_MAX: usize = 1024;
const PACED_WAIT: Duration = Duration::from_micros(50);

impl Source for Paced {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if self.next == self.events.num_rows() {
            return Ok(Next::End);
        }
        let start = *self.start.get_or_insert_with(|| self.clock.now());
        let due = loop {
            let due = ((self.clock.now() - start) as f64 * self.per_second / 1e9) as usize;
            if due > self.next {
                break due.min(self.events.num_rows());
            }
            std::thread::sleep(PACED_WAIT);
        };
        let len = (due - self.next).min(PACED_MAX);
        self.arrived = start + (self.next as f64 / self.per_second * 1e9) as u64;
        let events = self.events.slice(self.next, len);
        self.next += len;
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn arrived(&self) -> Option<u64> {
        Some(self.arrived)
    }
}

/// Hands over one batch a number of times, with increasing event times.
pub struct Again {
    batch: RecordBatch,
    left: usize,
    at: i64,
}

impl Again {
    /// Repeats the batch as often as it takes for this number of events.
    pub fn new(batch: RecordBatch, events: usize) -> Again {
        Again { left: events.div_ceil(batch.num_rows()), batch, at: 0 }
    }
}

impl Source for Again {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if self.left == 0 {
            return Ok(Next::End);
        }
        self.left -= 1;
        let mut columns: Vec<ArrayRef> = self.batch.columns().to_vec();
        columns[0] = Arc::new(Int64Array::from_iter_values(self.at..self.at + self.batch.num_rows() as i64));
        self.at += self.batch.num_rows() as i64;
        let events = RecordBatch::try_new(self.batch.schema(), columns).expect("columns of the schema");
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<RecordBatch>>>);

impl Sink for Kept {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.0.lock().expect("nobody panics with it").push(batch.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// Counts rows and drops them.
pub struct Counted(pub Arc<AtomicU64>);

impl Sink for Counted {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.0.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// Runs once over a batch. Returns the summary and the rows that came out.
pub fn run(engine: &Engine, events: &RecordBatch, options: Options) -> (Summary, u64) {
    run_counted(engine, Box::new(Once(Some(events.clone()))), options)
}

/// Runs once over a source. Returns the summary and the rows that came out.
pub fn run_counted(engine: &Engine, source: Box<dyn Source>, options: Options) -> (Summary, u64) {
    let rows = Arc::new(AtomicU64::new(0));
    let sinks = engine.program().sinks.iter().map(|_| Box::new(Counted(rows.clone())) as Box<dyn Sink>).collect();
    let request = Request { options, ..Request::new(vec![source], sinks, Arc::new(System::new())) };
    let summary = engine.run(request, &mut || {}).expect("a run in memory");
    (summary, rows.load(Ordering::Relaxed))
}

/// The arrival of events.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// Batches of this size, each as soon as there is room for it: a closed loop.
    WhenThereIsRoom {
        /// Events.
        size: usize,
    },
    /// At this rate.
    PerSecond(f64),
}

/// The result of a run.
pub struct Ran {
    /// The engine's summary.
    pub summary: Summary,
    /// The events for each sink, by sink.
    pub outputs: Vec<Vec<RecordBatch>>,
    /// A row per epoch ([`tidemill_runtime::epoch_record_schema`]).
    pub records: Vec<RecordBatch>,
}

/// Runs once over a batch.
pub fn run_and_keep(engine: &Engine, events: &RecordBatch, arrival: Arrival, options: Options) -> Ran {
    run_with_state(engine, events, arrival, options, None)
}

/// Runs once over a batch, with a state if one is given.
pub fn run_with_state(
    engine: &Engine,
    events: &RecordBatch,
    arrival: Arrival,
    options: Options,
    durability: Option<Durability>,
) -> Ran {
    let kept: Vec<Kept> = engine.program().sinks.iter().map(|_| Kept::default()).collect();
    let sinks = kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect();
    let clock = Arc::new(System::new());
    let events = events.clone();
    let source: Box<dyn Source> = match arrival {
        Arrival::WhenThereIsRoom { size } => Box::new(Slices::new(events, size)),
        Arrival::PerSecond(per_second) => {
            Box::new(Paced { events, next: 0, per_second, clock: clock.clone(), start: None, arrived: 0 })
        }
    };
    let records = Kept::default();
    let request = Request {
        options,
        records: Some(Box::new(records.clone())),
        durability,
        ..Request::new(vec![source], sinks, clock)
    };
    let summary = engine.run(request, &mut || {}).expect("a run");
    let batches = |kept: Kept| std::mem::take(&mut *kept.0.lock().expect("nobody panics with it"));
    Ran { summary, outputs: kept.into_iter().map(batches).collect(), records: batches(records) }
}
