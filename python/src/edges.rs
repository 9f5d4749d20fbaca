//! Python objects as sources and sinks. The engine drives them on its own threads; these take the
//! interpreter for as long as Python code runs and no longer.

use crate::arrow::{Batches, batches_of};
use crate::frame::Frame;
use crate::recall::Recall;
use crate::records::Records;
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_connect::canonical;
use tidemill_io::{IoFailure, Next, Resumed, Sink, Source, SourceBatch, SourceProgress};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// Rows of a foreign batch that are converted at once. A batch that needs no conversion is handed over
/// whole.
const CONVERTED_ROWS: usize = 1 << 16;

/// The first exception that Python code raised during a run. Written by the thread that met it, read after the
/// run.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keeps an exception; the failure that stops the run for it.
    pub fn keep(&self, py: Python<'_>, error: PyErr) -> IoFailure {
        let failure = IoFailure::new(text_of(py, &error));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        failure
    }

    /// Returns the exception, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns an exception, and the calls that led to it as Python shows them.
fn text_of(py: Python<'_>, error: &PyErr) -> String {
    let calls = || -> PyResult<String> {
        let calls: Vec<String> =
            py.import("traceback")?.call_method1("format_tb", (error.traceback(py),))?.extract()?;
        Ok(calls.concat())
    };
    match calls() {
        Ok(calls) if !calls.is_empty() => format!("{error}\n{}", calls.trim_end()),
        _ => error.to_string(),
    }
}

/// An iterator of Arrow objects and [`Frame`]s, and of records at its end.
pub struct PythonSource {
    schema: Schema,
    iterator: Py<PyIterator>,
    raised: Raised,
    recall: Recall,
    /// The batches of the iterator's last item that were not handed over yet.
    current: Option<Batches>,
    /// The rest of a batch that is being converted.
    rest: Option<RecordBatch>,
    /// Records, where the iterator has come to them, with the function that makes a [`Frame`] of a list of them.
    records: Option<(Records, Py<PyAny>)>,
    done: u64,
    ended: bool,
}

enum Item {
    End,
    Frame(SourceBatch),
    Arrow(Batches),
    Records(Records, Py<PyAny>),
}

impl PythonSource {
    /// Makes a source of events of `schema`.
    pub fn new(iterator: Py<PyIterator>, schema: &Schema, raised: Raised, recall: Recall) -> Self {
        let schema = schema.clone();
        PythonSource {
            schema,
            iterator,
            raised,
            recall,
            current: None,
            rest: None,
            records: None,
            done: 0,
            ended: false,
        }
    }

    /// Asks the iterator.
    fn item(&self) -> Result<Item, IoFailure> {
        Python::attach(|py| {
            let item = || -> PyResult<Item> {
                let Some(item) = self.iterator.bind(py).clone().next().transpose()? else { return Ok(Item::End) };
                if let Ok(frame) = item.cast::<Frame>() {
                    return frame_batch(py, frame).map(Item::Frame);
                }
                if item.is_instance(&py.import("tidemill.data")?.getattr("Records")?)? {
                    let records = Records::start(item.try_iter()?.unbind(), self.recall.clone());
                    return Ok(Item::Records(records, item.getattr("batch")?.unbind()));
                }
                batches_of(&item).map(Item::Arrow)
            };
            item().map_err(|error| self.raised.keep(py, error))
        })
    }

    /// Returns the records that have come since the last call, as a batch.
    fn taken(&self, records: &Records, batch: &Py<PyAny>) -> Result<Option<SourceBatch>, IoFailure> {
        Python::attach(|py| {
            let taken = || -> PyResult<Option<SourceBatch>> {
                let Some(records) = records.take()? else { return Ok(None) };
                let frame = batch.bind(py).call1((records,))?;
                frame_batch(py, frame.cast::<Frame>()?).map(Some)
            };
            taken().map_err(|error| self.raised.keep(py, error))
        })
    }

    /// Returns the next rows of `batch`, converted; all of them where they need no conversion.
    fn converted(&mut self, batch: RecordBatch) -> Result<RecordBatch, IoFailure> {
        let wanted = arrow_schema(&self.schema);
        let fits = |field: &Arc<arrow_schema::Field>| {
            batch.column_by_name(field.name()).is_some_and(|column| column.data_type() == field.data_type())
        };
        if batch.num_rows() <= CONVERTED_ROWS || wanted.fields().iter().all(fits) {
            return canonical(&batch, &self.schema);
        }
        self.rest = Some(batch.slice(CONVERTED_ROWS, batch.num_rows() - CONVERTED_ROWS));
        canonical(&batch.slice(0, CONVERTED_ROWS), &self.schema)
    }

    fn nothing(&self) -> SourceBatch {
        SourceBatch { events: RecordBatch::new_empty(arrow_schema(&self.schema)), bad: Vec::new() }
    }

    /// Returns the next batch, empty ones included.
    fn step(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        if let Some((records, batch)) = &self.records {
            return self.taken(records, batch);
        }
        if let Some(rest) = self.rest.take() {
            return Ok(Some(SourceBatch { events: self.converted(rest)?, bad: Vec::new() }));
        }
        if let Some(batches) = &mut self.current {
            let next = batches.next().transpose();
            match next.map_err(|error| IoFailure::new(format!("the Arrow stream failed: {error}")))? {
                Some(batch) => return Ok(Some(SourceBatch { events: self.converted(batch)?, bad: Vec::new() })),
                None => self.current = None,
            }
        }
        Ok(match self.item()? {
            Item::End => None,
            Item::Arrow(batches) => {
                self.current = Some(batches);
                Some(self.nothing())
            }
            Item::Records(records, batch) => {
                self.records = Some((records, batch));
                Some(self.nothing())
            }
            Item::Frame(SourceBatch { events, bad }) => Some(SourceBatch { events: self.converted(events)?, bad }),
        })
    }
}

/// Returns a frame as a batch, with the records that did not fit.
pub fn frame_batch(py: Python<'_>, frame: &Bound<'_, Frame>) -> PyResult<SourceBatch> {
    let frame = frame.get();
    Ok(SourceBatch { events: frame.whole(py)?, bad: frame.bad_records().to_vec() })
}

impl Source for PythonSource {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let recall = self.recall.clone();
        while !self.ended {
            if let Some((records, _)) = &self.records {
                records.wait();
            }
            let Some(_inside) = recall.enter() else { return Ok(Next::End) };
            let batch = self.step();
            match batch {
                Ok(Some(batch)) if batch.events.num_rows() == 0 && batch.bad.is_empty() => {}
                Ok(Some(batch)) => {
                    self.done += (batch.events.num_rows() + batch.bad.len()) as u64;
                    return Ok(Next::Batch(batch));
                }
                Ok(None) => self.ended = true,
                Err(failure) => {
                    self.ended = true;
                    return Err(failure);
                }
            }
        }
        Ok(Next::End)
    }

    /// Data given to a run follows that given to the runs before.
    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::Given)
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress { done: self.done, total: None }
    }
}

/// A function that takes a [`Frame`] per epoch.
pub struct PythonSink {
    schema: Schema,
    function: Py<PyAny>,
    raised: Raised,
    /// The batches of the present epoch.
    batches: Vec<RecordBatch>,
}

impl PythonSink {
    /// Makes a sink for events of `schema`.
    pub fn new(function: Py<PyAny>, schema: &Schema, raised: Raised) -> Self {
        PythonSink { schema: schema.clone(), function, raised, batches: Vec::new() }
    }
}

impl Sink for PythonSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.batches.push(batch.clone());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        let batches = std::mem::take(&mut self.batches);
        if batches.is_empty() {
            return Ok(());
        }
        let frame = Frame::new(self.schema.clone(), batches, Vec::new());
        Python::attach(|py| match self.function.call1(py, (frame,)) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.raised.keep(py, error)),
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.flush()
    }
}

/// The batches of a collected stream, to be read after the run.
#[derive(Clone, Default)]
pub struct Collection(Arc<Mutex<Vec<RecordBatch>>>);

impl Collection {
    /// Returns the collected batches.
    pub fn take(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Collection {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(batch.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}
