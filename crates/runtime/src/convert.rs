//! Conversions of columns, when a state is migrated: the program of a conversion, run over values in memory.
//!
//! It is a run like any other, on this thread, under a clock that only counts: nothing that it gives depends on the
//! machine.

use crate::engine::{Engine, Request};
use crate::options::{EpochSize, Options};
use crate::run::Run;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_select::concat::concat_batches;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_io::{IoFailure, Next, Sink, Source, SourceBatch};
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Conversion, Program};
use tidemill_recovery::{Converted, RunError};
use tidemill_stages::environment::{Environment, Joined};

/// Values in a batch, and transactions in an epoch.
const VALUES_MAX: usize = 4_096;
/// The time by which the clock advances each time it is read, nanoseconds.
const TICK: u64 = 1_000_000;

/// Runs a conversion over values of the type that it takes.
pub(crate) fn converts(conversion: &Conversion, values: ArrayRef) -> Result<Converted, RunError> {
    let program = &*conversion.program;
    let count = values.len();
    let engine = Engine::new(program.clone()).map_err(|error| RunError::Panic(error.to_string()))?;
    let [converted, failed] = [Kept::default(), Kept::default()];
    let request = Request {
        options: Options { workers: 1, epoch: EpochSize::Events(VALUES_MAX), ..Options::default() },
        ..Request::new(
            vec![Box::new(Values::new(program, values))],
            vec![Box::new(converted.clone()), Box::new(failed.clone())],
            Arc::new(Counting::default()),
        )
    };
    let mut run = Run::begin(&engine, request, None, &mut || {})?;
    let actors = run.actors();
    while !run.is_over() {
        actors.iter().for_each(|&actor| _ = run.step(actor));
    }
    run.end()?;
    let (converted, failed) = (converted.all(program, 0), failed.all(program, 1));
    let reasons = failed.column_by_name("reason").expect("aborted events have a reason").as_string::<i32>();
    let failed: Vec<_> = numbers(&failed).zip(reasons.iter().flatten().map(str::to_owned)).collect();
    assert_eq!(converted.num_rows() + failed.len(), count, "each value is converted or refused");
    assert!(!failed.is_empty() || numbers(&converted).eq(0..count), "results come in the order of the values");
    Ok(Converted { values: converted.column(1).clone(), failed })
}

/// Returns the numbers of the values that events are about.
fn numbers(events: &RecordBatch) -> impl Iterator<Item = usize> {
    events.column(0).as_primitive::<Int64Type>().values().iter().map(|&number| number as usize)
}

/// The values, numbered.
struct Values {
    events: RecordBatch,
    given: usize,
}

impl Values {
    fn new(program: &Program, values: ArrayRef) -> Values {
        let source = program.sources().next().expect("a conversion has a source");
        let numbers = Int64Array::from_iter_values(0..values.len() as i64);
        let events = RecordBatch::try_new(arrow_schema(&source.schema), vec![Arc::new(numbers), values]);
        Values { events: events.expect("the values have the type that it takes"), given: 0 }
    }
}

impl Source for Values {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let count = VALUES_MAX.min(self.events.num_rows() - self.given);
        if count == 0 {
            return Ok(Next::End);
        }
        let events = self.events.slice(self.given, count);
        self.given += count;
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}

/// Keeps what a stream gives.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<RecordBatch>>>);

impl Kept {
    /// Returns all events, of the program's sink of that number.
    fn all(&self, program: &Program, sink: usize) -> RecordBatch {
        let schema = arrow_schema(&program.streams[program.sinks[sink].stream].schema);
        concat_batches(&schema, &std::mem::take(&mut *self.0.lock())).expect("batches of one schema")
    }
}

impl Sink for Kept {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.0.lock().push(batch.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// A clock that goes on by itself, and no threads.
#[derive(Default)]
struct Counting(AtomicU64);

impl Environment for Counting {
    fn now(&self) -> u64 {
        self.0.fetch_add(TICK, Ordering::Relaxed)
    }

    fn spawn(&self, name: &str, _body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        unreachable!("the actors of a conversion are stepped, and '{name}' is none of them")
    }

    fn parallelism(&self) -> usize {
        1
    }
}
