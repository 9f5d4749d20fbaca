//! The command line over applications in Python files.

use crate::recall::Recall;
use crate::run::{Given, Signals};
use crate::server::{Metrics, launch_of};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tidemill_cli::{Interrupt, Job, Loader, Look, LookAt, Output, Purpose, Template};
use tidemill_connect::WriteNull;
use tidemill_server::Launch;

/// The files of a new application, from files to files. `NAME` in them is its name.
const FILES: &[(&str, &str)] = &[
    ("app.py", include_str!("template/files/app.py")),
    ("test_app.py", include_str!("template/files/test_app.py")),
    ("accounts.csv", include_str!("template/files/accounts.csv")),
    ("transfers.csv", include_str!("template/files/transfers.csv")),
];
/// The files of a new application from topic to topic.
const KAFKA: &[(&str, &str)] =
    &[("app.py", include_str!("template/kafka/app.py")), ("test_app.py", include_str!("template/kafka/test_app.py"))];

struct PythonLoader {
    /// `load(path, name)` gives the `App`.
    load: Py<PyAny>,
    /// The recall of the sources of the job that was loaded.
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

    fn interrupted(&mut self) -> Option<Interrupt> {
        let mut signals = Signals::default();
        signals.interrupted();
        signals.0.map(|raised| Python::attach(|py| interrupt(py, &raised)))
    }

    fn launch(&self) -> Option<Launch> {
        Python::attach(|py| {
            let found = py.import("tidemill.query_process").and_then(|module| module.call_method0("launch"));
            launch_of(found.and_then(|found| found.extract()).ok()?)
        })
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

    fn savepoint(&self, url: &str, name: &str, ca: Option<&Path>) -> Result<u64, String> {
        Python::attach(|py| {
            let module = py.import("tidemill.remote")?;
            module.call_method1("savepoint", (url, name, ca))?.extract()
        })
        .map_err(|error: PyErr| Python::attach(|py| error.value(py).to_string()))
    }

    fn look(&mut self, wanted: &Look) -> PyResult<u8> {
        Python::attach(|py| {
            let module = py.import("tidemill.looking")?;
            let asked = |LookAt { place, token, ca }: &LookAt| module.call_method1("At", (place, token, ca));
            let code = match wanted {
                Look::Tail { stream, after, follows, at } => {
                    module.call_method1("tail", (asked(at)?, stream, after, follows))
                }
                Look::Table { name, condition, format, at } => {
                    module.call_method1("table", (asked(at)?, name, condition, format))
                }
                Look::Top { seconds, is_once, is_json, at } => {
                    module.call_method1("top", (asked(at)?, seconds, is_once, is_json))
                }
            };
            code?.extract()
        })
    }

    fn template(&self, name: &str, template: Template) -> Vec<(PathBuf, String)> {
        let files = match template {
            Template::Files => FILES,
            Template::Kafka => KAFKA,
        };
        files.iter().map(|(path, text)| (PathBuf::from(path), text.replace("NAME", name))).collect()
    }
}

/// Returns the request to stop that the user makes by a signal whose handler has raised this
/// (`tidemill.serving.Interrupted`).
fn interrupt(py: Python<'_>, raised: &PyErr) -> Interrupt {
    let signal = raised.value(py).getattr("signal").and_then(|signal| signal.getattr("name")?.extract::<String>());
    match signal.as_deref() {
        Ok("SIGTERM") => Interrupt::Terminate,
        Ok("SIGHUP") => Interrupt::HangUp,
        _ => Interrupt::Key,
    }
}

/// Runs the command line; returns its exit code. Raises what loading the application raises.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>, load: Py<PyAny>) -> PyResult<u8> {
    let mut loader = PythonLoader { load, recall: Recall::default() };
    let code = py.detach(|| tidemill_cli::main(arguments, &mut loader));
    loader.recall.end(py);
    code
}
