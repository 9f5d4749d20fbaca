//! The command line over applications in Python files.

use crate::queries::DuckDb;
use crate::recall::Recall;
use crate::run::{Given, Signals};
use crate::server::Metrics;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_cli::{Job, Loader, Output, Purpose};
use tidemill_connect::WriteNull;
use tidemill_runtime::Session;
use tidemill_server::Queries;

/// The files of a new application. `NAME` in them is its name.
const TEMPLATE: [(&str, &str); 4] = [
    ("app.py", include_str!("template/app.py")),
    ("test_app.py", include_str!("template/test_app.py")),
    ("accounts.csv", include_str!("template/accounts.csv")),
    ("transfers.csv", include_str!("template/transfers.csv")),
];

struct PythonLoader {
    /// `load(path, name)` gives the `App`.
    load: Py<PyAny>,
    /// Of the job that was loaded.
    recall: Recall,
}

impl Loader for PythonLoader {
    type Error = PyErr;

    fn load(&mut self, file: &str, name: Option<&str>, purpose: Purpose) -> PyResult<Job> {
        Python::attach(|py| {
            let app = self.load.bind(py).call1((file, name))?;
            let method = match purpose {
                Purpose::Run => "_job",
                Purpose::Serve => "_served",
                Purpose::Look => "_connections",
            };
            let Given { mut job, collections, recall, .. } = Given::read(&app.call_method0(method)?)?;
            self.recall = recall;
            // Collected streams are not used after the command has ended.
            for name in collections.into_keys() {
                job.sinks.insert(name, Output::Connection(Box::new(WriteNull {})));
            }
            Ok(job)
        })
    }

    fn interrupted(&mut self) -> bool {
        let mut signals = Signals::default();
        signals.interrupted()
    }

    fn queries(&self, session: &Arc<Session>) -> Option<Arc<dyn Queries>> {
        Some(Arc::new(DuckDb(session.clone())))
    }

    fn telemetry(&self, metrics: tidemill_server::Metrics, name: &str) -> Result<Box<dyn FnOnce()>, String> {
        let started = Python::attach(|py| {
            let module = py.import("tidemill.telemetry")?;
            module.call_method1("Telemetry", (Metrics(metrics), name)).map(Bound::unbind)
        });
        let telemetry = started.map_err(|error| Python::attach(|py| error.value(py).to_string()))?;
        Ok(Box::new(move || {
            Python::attach(|py| {
                if let Err(error) = telemetry.call_method0(py, "stop") {
                    error.write_unraisable(py, None);
                }
            });
        }))
    }

    fn template(&self, name: &str) -> Vec<(PathBuf, String)> {
        TEMPLATE.iter().map(|(path, text)| (PathBuf::from(path), text.replace("NAME", name))).collect()
    }
}

/// The command line; returns its exit code. Raises what loading the application raises.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>, load: Py<PyAny>) -> PyResult<u8> {
    let mut loader = PythonLoader { load, recall: Recall::default() };
    let code = py.detach(|| tidemill_cli::main(arguments, &mut loader));
    loader.recall.end(py);
    code
}
