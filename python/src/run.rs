//! A run started from Python: `tidemill._engine.Job` in, [`Outcome`] out.

use crate::edges::{Collection, PythonSink, PythonSource, Raised};
use crate::frame::Frame;
use crate::own::{OwnSink, OwnSource};
use crate::plan::read_plan;
use crate::recall::Recall;
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyMapping, PyString};
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::sync::Arc;
use std::time::Duration;
use tidemill_cli::{Input, Job, JobError, OptionError, Output, RunOptions, table_schema};
use tidemill_connect::{SetTime, standard_connectors};
use tidemill_io::{Registry, Sink, Source, Spec, SpecError};
use tidemill_model::Schema;
use tidemill_runtime::{Control, Engine, Summary};

/// The results of a run.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Outcome {
    #[pyo3(get)]
    summary: String,
    #[pyo3(get)]
    collected: Py<PyDict>,
    #[pyo3(get)]
    tables: Py<PyDict>,
}

/// A job of Python's as one of ours, with what is to be looked at after the run.
pub struct Given {
    pub job: Job,
    pub collections: BTreeMap<String, Collection>,
    pub raised: Raised,
    pub recall: Recall,
}

impl Given {
    /// Reads the attributes of a `tidemill._engine.Job`.
    pub fn read(job: &Bound<'_, PyAny>) -> PyResult<Given> {
        let (raised, recall) = (Raised::default(), Recall::default());
        let mut collections = BTreeMap::new();
        let connectors = all_connectors();
        let plan: String = job.getattr("plan")?.extract()?;
        let input = |place: String, value: &Bound<'_, PyAny>| input(&place, value, &connectors, &raised, &recall);
        let job = Job {
            plan: read_plan(&plan)?,
            sources: entries(job, "sources", |name, value| input(format!("source '{name}'"), value))?,
            idle: entries(job, "idle", |_, value| Ok(Duration::from_micros(value.extract()?)))?,
            tables: entries(job, "tables", |name, value| input(format!("table '{name}'"), value))?,
            sinks: entries(job, "sinks", |name, value| output(name, value, &connectors, &raised, &mut collections))?,
            connectors,
            time: job.getattr("time")?.extract::<Option<i64>>()?.map(|time| Arc::new(SetTime::new(time))),
        };
        Ok(Given { job, collections, raised, recall })
    }
}

/// Returns the connectors that programs may name: the standard ones, and topics of Kafka.
fn all_connectors() -> Registry {
    let mut connectors = standard_connectors();
    connectors.register(tidemill_kafka::Kafka).expect("each kind is registered once");
    connectors
}

/// Returns the entries of a job's mapping.
fn entries<T>(
    job: &Bound<'_, PyAny>,
    attribute: &str,
    mut entry: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<BTreeMap<String, T>> {
    let mapping = job.getattr(attribute)?;
    let mut all = BTreeMap::new();
    for item in mapping.cast::<PyMapping>()?.items()?.iter() {
        let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
        let value = entry(&name, &value)?;
        all.insert(name, value);
    }
    Ok(all)
}

fn input(
    place: &str,
    value: &Bound<'_, PyAny>,
    connectors: &Registry,
    raised: &Raised,
    recall: &Recall,
) -> PyResult<Input> {
    if let Ok(text) = value.cast::<PyString>() {
        let spec = spec(&text.to_cow()?)?;
        if spec.kind == "sent" {
            return Ok(Input::Sent);
        }
        let connection = connectors.source(&spec).map_err(|error| refused(value.py(), &error, place))?;
        return Ok(Input::Connection(connection));
    }
    if let Some(own) = OwnSource::of(value, raised, recall)? {
        return Ok(Input::Connection(Box::new(own)));
    }
    let iterator: Py<PyIterator> = value.try_iter()?.unbind();
    let (raised, recall) = (raised.clone(), recall.clone());
    let open = move |schema: &Schema| Box::new(PythonSource::new(iterator, schema, raised, recall)) as Box<dyn Source>;
    Ok(Input::Own(Box::new(open)))
}

fn output(
    name: &str,
    value: &Bound<'_, PyAny>,
    connectors: &Registry,
    raised: &Raised,
    collections: &mut BTreeMap<String, Collection>,
) -> PyResult<Output> {
    if let Some(own) = OwnSink::of(value, name, raised)? {
        return Ok(Output::Connection(Box::new(own)));
    }
    let Ok(text) = value.cast::<PyString>() else {
        let (function, raised) = (value.clone().unbind(), raised.clone());
        let open = move |schema: &Schema| Box::new(PythonSink::new(function, schema, raised)) as Box<dyn Sink>;
        return Ok(Output::Own(Box::new(open)));
    };
    let spec = spec(&text.to_cow()?)?;
    if spec.kind == "collect" {
        let collection = Collection::default();
        collections.insert(name.to_owned(), collection.clone());
        return Ok(Output::Own(Box::new(move |_: &Schema| Box::new(collection) as Box<dyn Sink>)));
    }
    let connection = connectors.sink(&spec).map_err(|error| refused(value.py(), &error, &format!("sink '{name}'")))?;
    Ok(Output::Connection(connection))
}

fn spec(text: &str) -> PyResult<Spec> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("a connector cannot be read: {error}")))
}

/// Returns the exception for a spec that means nothing.
fn refused(py: Python<'_>, error: &SpecError, place: &str) -> PyErr {
    error_of(py, "PlanError", (error.to_string(), "", place))
}

/// Returns an exception of `tidemill.errors`.
pub fn error_of(py: Python<'_>, class: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) -> PyErr {
    let error = py.import("tidemill.errors").and_then(|m| m.getattr(class)).and_then(|c| c.call1(arguments));
    error.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for a failure, unless Python code raised one itself.
pub fn raise(py: Python<'_>, error: &JobError, raised: &Raised) -> PyErr {
    if let Some(error) = raised.take() {
        return error;
    }
    match error {
        JobError::Plan(errors) if !errors.is_empty() => {
            error_of(py, "PlanError", (&errors[0].message, &errors[0].hint, &errors[0].place))
        }
        _ => error_of(py, "RunError", (error.to_string(),)),
    }
}

/// Watches for signals on the thread that waits for a run.
#[derive(Default)]
pub struct Signals(pub Option<PyErr>);

impl Signals {
    /// Returns whether there was a signal, now or before.
    pub fn interrupted(&mut self) -> bool {
        if let Err(error) = Python::attach(|py| py.check_signals()) {
            self.0.get_or_insert(error);
        }
        self.0.is_some()
    }
}

/// Options by name, as the command line has them.
pub fn options_of(given: BTreeMap<String, OsString>) -> Result<RunOptions, OptionError> {
    let mut options = RunOptions::default();
    given.iter().try_for_each(|(option, value)| options.set(option, value))?;
    options.check().map(|()| options)
}

/// Returns the option that is wrong, and what is wrong with it.
#[pyfunction]
pub fn check_options(options: BTreeMap<String, OsString>) -> Option<(String, String)> {
    options_of(options).err().map(|OptionError { option, message }| (option, message))
}

/// Runs a `tidemill._engine.Job` to its end.
///
/// A signal whose handler raises (Ctrl-C) ends the run after the epoch at hand, with all sinks whole;
/// then the exception is raised.
#[pyfunction]
pub fn run(job: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let py = job.py();
    let options = options_of(job.getattr("options")?.extract()?)
        .map_err(|error| error_of(py, "RunError", (format!("{}: {}", error.option, error.message),)))?;
    let Given { job, collections, raised, recall } = Given::read(job)?;
    let mut signals = Signals::default();
    let mut warned = Vec::new();
    let result = py.detach(|| {
        let ready = job.open(&options, &mut |_| signals.interrupted())?;
        warned.clone_from(&ready.notes.warned);
        let control = Arc::new(Control::default());
        let mut tick = || {
            if signals.interrupted() {
                control.stop();
            }
        };
        ready.run(control.clone(), &mut tick)
    });
    recall.end(py);
    warn(py, &warned)?;
    match (result, signals.0) {
        (Err(JobError::Interrupted) | Ok(_), Some(signal)) => Err(signal),
        (Err(error), _) => Err(raise(py, &error, &raised)),
        (Ok((engine, summary)), None) => outcome(py, Arc::new(engine), &summary, collections),
    }
}

/// Warns of what must be known.
pub fn warn(py: Python<'_>, warned: &[String]) -> PyResult<()> {
    let category = py.get_type::<PyUserWarning>();
    warned.iter().try_for_each(|text| PyErr::warn(py, &category, &CString::new(text.as_str())?, 2))
}

pub fn outcome(
    py: Python<'_>,
    engine: Arc<Engine>,
    summary: &Summary,
    collections: BTreeMap<String, Collection>,
) -> PyResult<Outcome> {
    let program = engine.program();
    let (collected, tables) = (PyDict::new(py), PyDict::new(py));
    for sink in &program.sinks {
        if let Some(collection) = collections.get(&sink.name) {
            let schema = program.streams[sink.stream].schema.clone();
            collected.set_item(&sink.name, Frame::new(schema, collection.take(), Vec::new()).into_pyobject(py)?)?;
        }
    }
    for (id, table) in program.tables.iter_enumerated() {
        let frame = Frame::table(table_schema(table), engine.clone(), id);
        tables.set_item(&table.name, frame.into_pyobject(py)?)?;
    }
    let summary = serde_json::to_string(summary).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Outcome { summary, collected: collected.unbind(), tables: tables.unbind() })
}
