//! A server of a session, for Python.

use crate::queries::DuckDb;
use crate::run::error_of;
use crate::session::{SIGNALS, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidemill_server::{Limits, Metric, ServeOptions, TlsFiles};

/// A server.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Server {
    server: tidemill_server::Server,
    session: Arc<tidemill_runtime::Session>,
}

/// The limits of a server, by name (`Limits` of the server); times are in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenLimits {
    calls_max: usize,
    asks_max: usize,
    connections_max: usize,
    readers_max: usize,
    body_bytes_max: usize,
    queries_max: usize,
    queries_waiting_max: usize,
    query_seconds_max: f64,
    query_rows_max: usize,
    table_rows_max: usize,
    query_memory_max: usize,
    silence_seconds_max: f64,
    drain_seconds_max: f64,
}

impl GivenLimits {
    fn limits(self) -> PyResult<Limits> {
        let time = |name: &str, seconds: f64| {
            let wrong = |_| PyValueError::new_err(format!("{name}={seconds} is no number of seconds"));
            Duration::try_from_secs_f64(seconds).map_err(wrong)
        };
        Ok(Limits {
            calls_max: self.calls_max,
            asks_max: self.asks_max,
            queries_max: self.queries_max,
            queries_waiting_max: self.queries_waiting_max,
            query_time_max: time("query_seconds_max", self.query_seconds_max)?,
            query_rows_max: self.query_rows_max,
            table_rows_max: self.table_rows_max,
            query_memory_max: self.query_memory_max,
            connections_max: self.connections_max,
            readers_max: self.readers_max,
            body_bytes_max: self.body_bytes_max,
            silence_max: time("silence_seconds_max", self.silence_seconds_max)?,
            drain_max: time("drain_seconds_max", self.drain_seconds_max)?,
        })
    }
}

/// Serves a session.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn serve(
    py: Python<'_>,
    session: &Bound<'_, Session>,
    host: String,
    port: u16,
    postgres_port: Option<u16>,
    users: Option<PathBuf>,
    tls: Option<(PathBuf, PathBuf)>,
    insecure: bool,
    limits: GivenLimits,
) -> PyResult<Server> {
    let limits = limits.limits()?;
    let session = session.get().session.clone();
    let served = session.clone();
    let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key });
    let options = ServeOptions { host, port, postgres_port, users, tls, insecure, limits };
    let engine = Arc::new(DuckDb(session.clone()));
    let started = py.detach(|| tidemill_server::Server::start_with(served, options, Some(engine)));
    let server = started.map_err(|error| error_of(py, "RunError", (error.to_string(),)))?;
    Ok(Server { server, session })
}

#[allow(clippy::disallowed_methods, reason = "Python's callers wait by no other clock")]
fn pause() {
    std::thread::sleep(SIGNALS);
}

#[pymethods]
impl Server {
    /// Where it is served.
    #[getter]
    fn url(&self) -> String {
        self.server.url()
    }

    /// Where clients of PostgreSQL connect to.
    #[getter]
    fn postgres_url(&self) -> Option<String> {
        self.server.postgres_url(&self.session.engine().program().name)
    }

    /// What it counts.
    fn metrics(&self) -> Metrics {
        Metrics(self.server.metrics())
    }

    /// Waits until the run of the session is over.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        while !self.session.is_over() {
            py.detach(pause);
            py.check_signals()?;
        }
        Ok(())
    }

    /// Answers what is under way, and ends.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.server.drain());
    }
}

/// What a server counts.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Metrics(pub tidemill_server::Metrics);

/// Of a metric: the name, the kind, the help, and the counts by labels.
type Counted = (&'static str, &'static str, &'static str, Vec<(HashMap<&'static str, String>, f64)>);

#[pymethods]
impl Metrics {
    /// The counts so far.
    fn now(&self, py: Python<'_>) -> Vec<Counted> {
        let metrics = py.detach(|| self.0.now());
        let counted = |metric: Metric| {
            let counts = metric.counts.into_iter().map(|(labels, count)| (labels.into_iter().collect(), count));
            (metric.name, metric.kind.word(), metric.help, counts.collect())
        };
        metrics.into_iter().map(counted).collect()
    }
}
