//! Running an engine on batches in memory, its results counted and dropped.

use arrow_array::RecordBatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_connect::System;
use tidemill_runtime::{Control, Engine, IoFailure, Options, Request, Sink, Source, SourceBatch, Summary};

/// Hands over one batch.
pub struct Once(pub Option<RecordBatch>);

impl Source for Once {
    fn next(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        Ok(self.0.take().map(|events| SourceBatch { events, bad: Vec::new() }))
    }
}

/// Counts rows and drops them.
struct Counted(Arc<AtomicU64>);

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
    let rows = Arc::new(AtomicU64::new(0));
    let sinks = engine.program().sinks.iter().map(|_| Box::new(Counted(rows.clone())) as Box<dyn Sink>).collect();
    let request = Request {
        sources: vec![Box::new(Once(Some(events.clone())))],
        sinks,
        options,
        environment: Arc::new(System::new()),
        control: Arc::new(Control::default()),
    };
    let summary = engine.run(request, &mut || {}).expect("a run in memory");
    (summary, rows.load(Ordering::Relaxed))
}
