//! A server of a session, for Python.

use crate::run::error_of;
use crate::session::{SIGNALS, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidemill_server::{
    ClientCertificates, JwtOptions, Launch, Limits, PlainMetric, ServeOptions, TlsFiles, TraceOptions,
    WithoutCertificate,
};

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
    responses_bytes_max: usize,
    prepared_bytes_max: usize,
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
            responses_bytes_max: self.responses_bytes_max,
            prepared_bytes_max: self.prepared_bytes_max,
            body_bytes_max: self.body_bytes_max,
            silence_max: time("silence_seconds_max", self.silence_seconds_max)?,
            drain_max: time("drain_seconds_max", self.drain_seconds_max)?,
        })
    }
}

/// The program, the arguments and the environment of a process of queries (`tidemill.query_process`).
pub type GivenLaunch = (PathBuf, Vec<OsString>, HashMap<OsString, OsString>);

/// Returns the command that starts processes of queries.
pub fn launch_of(given: Option<GivenLaunch>) -> Option<Launch> {
    given.map(|(program, arguments, environment)| Launch {
        program,
        arguments,
        environment: environment.into_iter().collect(),
    })
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
    clients: Option<(PathBuf, bool)>,
    jwt: Option<(PathBuf, String, String)>,
    insecure: bool,
    traces: Option<(String, f64)>,
    limits: GivenLimits,
    launch: Option<GivenLaunch>,
) -> PyResult<Server> {
    let limits = limits.limits()?;
    let session = session.get().session.clone();
    let served = session.clone();
    let clients = clients.map(|(authority, is_required)| {
        let without = if is_required { WithoutCertificate::IsRefused } else { WithoutCertificate::IsAsked };
        ClientCertificates { authority, without }
    });
    let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key, clients });
    let jwt = jwt.map(|(keys, issuer, audience)| JwtOptions { keys, issuer, audience });
    let traces = traces.map(|(url, share)| TraceOptions { url, share });
    let options = ServeOptions { host, port, postgres_port, users, jwt, tls, insecure, traces, limits };
    let started = py.detach(|| tidemill_server::Server::start_with(served, options, launch_of(launch)));
    let server = started.map_err(|error| error_of(py, "RunError", (error.to_string(),)))?;
    Ok(Server { server, session })
}

#[allow(clippy::disallowed_methods, reason = "Python's callers wait by no other clock")]
fn pause() {
    std::thread::sleep(SIGNALS);
}

#[pymethods]
impl Server {
    /// Returns the URL of the server.
    #[getter]
    fn url(&self) -> String {
        self.server.url()
    }

    /// Returns a message for its operator, if there is one.
    #[getter]
    fn notice(&self) -> Option<&str> {
        self.server.notice()
    }

    /// Returns the URL for clients of PostgreSQL, if they are served.
    #[getter]
    fn postgres_url(&self) -> Option<String> {
        self.server.postgres_url(&self.session.engine().program().name)
    }

    /// Returns a handle to the server's metrics.
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

/// The metrics of a server.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Metrics(pub tidemill_server::Metrics);

/// A metric: the name, the kind, the help, and the counts by labels.
type Counted = (String, &'static str, &'static str, Vec<(HashMap<&'static str, String>, f64)>);

#[pymethods]
impl Metrics {
    /// Returns the counts so far.
    fn now(&self, py: Python<'_>) -> Vec<Counted> {
        let metrics = py.detach(|| self.0.plain());
        let counted = |metric: PlainMetric| {
            let counts = metric.counts.into_iter().map(|(labels, count)| (labels.into_iter().collect(), count));
            (metric.name, metric.kind.word(), metric.help, counts.collect())
        };
        metrics.into_iter().map(counted).collect()
    }
}
