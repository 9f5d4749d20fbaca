//! Running an engine on batches in memory, its results counted and dropped.

use arrow_array::RecordBatch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_connect::System;
use tidemill_runtime::{Control, Engine, IoFailure, Options, Request, Sink, Source, SourceBatch, Summary};

/// Hands over one batch.
pub struct Once(pub Option<RecordBatch>);

impl Source for Once {
    fn next(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        Ok(self.0.take().map(|events| SourceBatch { events, bad: Vec::new() }))
    }
}

/// Hands over a batch in slices, so that an event arrives when there is room for its slice.
pub struct Slices {
    events: RecordBatch,
    next: usize,
    size: usize,
}

impl Source for Slices {
    fn next(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        let len = self.size.min(self.events.num_rows() - self.next);
        let events = self.events.slice(self.next, len);
        self.next += len;
        Ok((len > 0).then_some(SourceBatch { events, bad: Vec::new() }))
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

/// One run over a batch; the summary and the rows that came out.
pub fn run(engine: &Engine, events: &RecordBatch, options: Options) -> (Summary, u64) {
    run_counted(engine, Box::new(Once(Some(events.clone()))), options)
}

/// One run over a source; the summary and the rows that came out.
pub fn run_counted(engine: &Engine, source: Box<dyn Source>, options: Options) -> (Summary, u64) {
    let rows = Arc::new(AtomicU64::new(0));
    let sinks = engine.program().sinks.iter().map(|_| Box::new(Counted(rows.clone())) as Box<dyn Sink>).collect();
    let summary = run_from(engine, source, sinks, options);
    (summary, rows.load(Ordering::Relaxed))
}

/// One run over a batch in slices of so many events; the summary, and by sink what came out.
pub fn run_and_keep(
    engine: &Engine,
    events: &RecordBatch,
    size: usize,
    options: Options,
) -> (Summary, Vec<Vec<RecordBatch>>) {
    let kept: Vec<Kept> = engine.program().sinks.iter().map(|_| Kept::default()).collect();
    let sinks = kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect();
    let source = Slices { events: events.clone(), next: 0, size };
    let summary = run_from(engine, Box::new(source), sinks, options);
    let batches = |kept: Kept| std::mem::take(&mut *kept.0.lock().expect("nobody panics with it"));
    (summary, kept.into_iter().map(batches).collect())
}

fn run_from(engine: &Engine, source: Box<dyn Source>, sinks: Vec<Box<dyn Sink>>, options: Options) -> Summary {
    let request = Request {
        sources: vec![source],
        sinks,
        options,
        environment: Arc::new(System::new()),
        control: Arc::new(Control::default()),
        durability: None,
    };
    engine.run(request, &mut || {}).expect("a run in memory")
}
