//! Connectors that users write in Python: subclasses of `tm.SourceConnector` and `tm.SinkConnector`.
//!
//! A source's iterator gives batches with offsets. The offset after the last batch is the source's token: a later run
//! has the iterator begin there. A sink is handed the batches of an epoch with its number when the epoch is committed;
//! if it says which epoch it has stored last, none is handed over twice.

use crate::arrow::batches_of;
use crate::edges::{Raised, frame_batch};
use crate::frame::Frame;
use crate::recall::Recall;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyString};
use serde_json::json;
use std::time::Duration;
use tidemill_connect::canonical;
use tidemill_io::{
    DurableRun, IoFailure, Next, Recovered, Resumed, Sink, SinkConnection, Source, SourceBatch, SourceConnection,
    SourceOptions, SourceProgress, Spec,
};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// Returns the spec under which a state records an object: it can be compared, and cannot be opened again.
fn spec_of(class: &str) -> Spec {
    Spec::of(&format!("python:{class}"), &json!({}))
}

/// Returns whether an object is an instance of a class of `tidemill.own`.
fn is_own(object: &Bound<'_, PyAny>, class: &str) -> PyResult<bool> {
    object.is_instance(&object.py().import("tidemill.own")?.getattr(class)?)
}

/// A `tidemill.own.OpenSource`.
pub struct OwnSource {
    class: String,
    object: Py<PyAny>,
    replays: bool,
    raised: Raised,
    recall: Recall,
}

impl OwnSource {
    /// Returns the connection of an object, if it is one.
    pub fn of(object: &Bound<'_, PyAny>, raised: &Raised, recall: &Recall) -> PyResult<Option<OwnSource>> {
        if !is_own(object, "OpenSource")? {
            return Ok(None);
        }
        Ok(Some(OwnSource {
            class: object.getattr("class_name")?.extract()?,
            replays: object.getattr("replays")?.extract()?,
            object: object.clone().unbind(),
            raised: raised.clone(),
            recall: recall.clone(),
        }))
    }
}

impl SourceConnection for OwnSource {
    fn spec(&self) -> Spec {
        spec_of(&self.class)
    }

    fn is_recorded(&self) -> bool {
        self.replays
    }

    fn open(&self, schema: &Schema, _options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        Ok(Box::new(Reading {
            schema: schema.clone(),
            object: Python::attach(|py| self.object.clone_ref(py)),
            iterator: None,
            replays: self.replays,
            raised: self.raised.clone(),
            recall: self.recall.clone(),
            token: None,
            resumed: false,
            done: 0,
            ended: false,
        }))
    }

    fn shown(&self) -> String {
        format!("{} of the program", self.class)
    }
}

/// An open source of Python's.
struct Reading {
    schema: Schema,
    object: Py<PyAny>,
    /// The iterator of the object, once it was asked for it.
    iterator: Option<Py<PyIterator>>,
    replays: bool,
    raised: Raised,
    recall: Recall,
    /// The offset after the last batch, or the one to begin after.
    token: Option<String>,
    /// A flag: whether it began after an offset.
    resumed: bool,
    done: u64,
    ended: bool,
}

impl Reading {
    /// Asks for the next batch and its offset; none at the end.
    fn item(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        let raised = self.raised.clone();
        Python::attach(|py| self.item_with(py).map_err(|error| raised.keep(py, error)))?
    }

    fn item_with(&mut self, py: Python<'_>) -> PyResult<Result<Option<SourceBatch>, IoFailure>> {
        let iterator = match &self.iterator {
            Some(iterator) => iterator.bind(py).clone(),
            None => {
                let iterator = self.object.bind(py).call_method1("start", (self.token.as_deref(),))?.try_iter()?;
                self.iterator.insert(iterator.unbind()).bind(py).clone()
            }
        };
        let Some(item) = iterator.clone().next().transpose()? else { return Ok(Ok(None)) };
        let (parts, offset): (Bound<'_, PyList>, Option<String>) = item.extract()?;
        let mut whole = SourceBatch { events: RecordBatch::new_empty(arrow_schema(&self.schema)), bad: Vec::new() };
        let mut batches = Vec::new();
        for part in parts.iter() {
            match part.cast::<Frame>() {
                Ok(frame) => {
                    let part = frame_batch(py, frame)?;
                    batches.push(part.events);
                    whole.bad.extend(part.bad);
                }
                Err(_) => {
                    let read = batches_of(&part)?;
                    let read: Result<Vec<_>, _> = py.detach(|| read.collect());
                    let failed = |error| PyValueError::new_err(format!("the Arrow data failed: {error}"));
                    batches.extend(read.map_err(failed)?);
                }
            }
        }
        self.token = offset;
        Ok(py.detach(|| {
            whole.events = joined(batches, &self.schema)?;
            Ok(Some(whole))
        }))
    }
}

/// Batches as one: an offset stands after all of them.
fn joined(batches: Vec<RecordBatch>, schema: &Schema) -> Result<RecordBatch, IoFailure> {
    let canonical = batches.iter().map(|batch| canonical(batch, schema)).collect::<Result<Vec<_>, _>>()?;
    match canonical.as_slice() {
        [one] => Ok(one.clone()),
        several => concat_batches(&arrow_schema(schema), several).map_err(|error| IoFailure::new(error.to_string())),
    }
}

impl Source for Reading {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let recall = self.recall.clone();
        while !self.ended {
            let Some(_inside) = recall.enter() else { return Ok(Next::End) };
            match self.item() {
                // The iterator says that nothing has come.
                Ok(Some(batch)) if batch.events.num_rows() == 0 && batch.bad.is_empty() => return Ok(Next::Nothing),
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

    fn progress(&self) -> SourceProgress {
        SourceProgress { done: self.done, total: None }
    }

    fn token(&self) -> Option<String> {
        self.token.clone()
    }

    fn replays(&self) -> bool {
        self.replays
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        assert!(self.iterator.is_none(), "a source resumes before it is read");
        self.token = token.map(str::to_owned);
        self.resumed = token.is_some();
        Ok(if self.resumed { Resumed::Behind } else { Resumed::New })
    }

    fn outlook(&self) -> Option<String> {
        self.token.as_ref().filter(|_| self.resumed).map(|token| format!("goes on after offset '{token}'"))
    }
}

/// A `tidemill.own.SinkConnector`.
pub struct OwnSink {
    class: String,
    /// The name of the sink in the program.
    name: String,
    object: Py<PyAny>,
    /// A flag: whether it says which epoch it has stored last.
    keeps_epochs: bool,
    raised: Raised,
}

impl OwnSink {
    /// Returns the connection of an object, if it is one.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, raised: &Raised) -> PyResult<Option<OwnSink>> {
        if !is_own(object, "SinkConnector")? {
            return Ok(None);
        }
        let class = object.get_type();
        let base = object.py().import("tidemill.own")?.getattr("SinkConnector")?;
        Ok(Some(OwnSink {
            class: class.qualname()?.extract()?,
            name: name.to_owned(),
            keeps_epochs: !class.getattr("committed")?.is(&base.getattr("committed")?),
            object: object.clone().unbind(),
            raised: raised.clone(),
        }))
    }
}

impl SinkConnection for OwnSink {
    fn spec(&self) -> Spec {
        spec_of(&self.class)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        // Two sinks of a state may keep their epochs in one place.
        let state = durable.map(|durable| format!("{} {}", durable.owner(), self.name));
        let object = Python::attach(|py| {
            let named = self.object.bind(py).setattr("state", state);
            named.map(|()| self.object.clone_ref(py)).map_err(|error| self.raised.keep(py, error))
        })?;
        Ok(Box::new(Writing {
            schema: schema.clone(),
            object,
            keeps_epochs: self.keeps_epochs,
            is_durable: durable.is_some(),
            raised: self.raised.clone(),
            batches: Vec::new(),
            committed: None,
            prepared: None,
            failed: false,
        }))
    }

    fn shown(&self) -> String {
        format!("{} of the program", self.class)
    }
}

/// An open sink of Python's.
struct Writing {
    schema: Schema,
    object: Py<PyAny>,
    keeps_epochs: bool,
    is_durable: bool,
    raised: Raised,
    /// Written, and not handed over yet.
    batches: Vec<RecordBatch>,
    committed: Option<u64>,
    prepared: Option<u64>,
    failed: bool,
}

impl Writing {
    /// Calls the object. After an exception it is not called again: the call may have taken effect.
    fn call<T: Send>(
        &mut self,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T> + Send,
    ) -> Result<T, IoFailure> {
        self.check()?;
        let called = Python::attach(|py| call(py, self.object.bind(py)).map_err(|error| self.raised.keep(py, error)));
        self.failed = called.is_err();
        called
    }

    fn check(&self) -> Result<(), IoFailure> {
        if self.failed { Err(IoFailure::new("it failed before")) } else { Ok(()) }
    }

    /// Hands over what was written.
    fn hand_over(&mut self, epoch: Option<u64>) -> Result<(), IoFailure> {
        let batches = std::mem::take(&mut self.batches);
        let frame = Frame::new(self.schema.clone(), batches, Vec::new());
        self.call(|_, object| object.call_method1("write", (frame, epoch)).map(drop))
    }
}

/// Returns the epoch that a sink says it has stored last.
fn stored_epoch(stored: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let wrong = || PyTypeError::new_err(format!("committed() gave {stored}, and not the number of an epoch or None"));
    if stored.is_instance_of::<pyo3::types::PyBool>() || stored.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    stored.extract().map_err(|_| wrong())
}

impl Sink for Writing {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.check()?;
        self.batches.push(batch.clone());
        Ok(())
    }

    /// Hands the batches over at the end of an epoch, in a run without a state.
    fn flush(&mut self) -> Result<(), IoFailure> {
        match self.is_durable || self.batches.is_empty() {
            true => Ok(()),
            false => self.hand_over(None),
        }
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        if !self.keeps_epochs {
            return Ok(Recovered::Forgets);
        }
        self.committed = self.call(|_, object| stored_epoch(&object.call_method0("committed")?))?;
        Ok(Recovered::Through(self.committed))
    }

    fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.check()?;
        if self.committed.is_some_and(|committed| epoch <= committed) {
            self.batches.clear();
        } else {
            self.prepared = Some(epoch);
        }
        Ok(())
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.check()?;
        if self.committed.is_some_and(|committed| epoch <= committed) {
            return Ok(());
        }
        if self.prepared != Some(epoch) {
            return Err(IoFailure::new(format!("epoch {epoch} is committed and was not prepared")));
        }
        if self.keeps_epochs || !self.batches.is_empty() {
            self.hand_over(Some(epoch))?;
        }
        self.committed = Some(epoch);
        Ok(())
    }

    fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.check()?;
        if self.committed.is_none_or(|committed| epoch > committed) {
            self.batches.clear();
            self.prepared = None;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.flush()
    }
}
