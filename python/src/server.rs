//! A server of a session, for Python.

use crate::run::error_of;
use crate::session::{SIGNALS, Session};
use pyo3::prelude::*;
use std::sync::Arc;
use tidemill_server::{Limits, ServeOptions};

/// A server.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Server {
    server: tidemill_server::Server,
    session: Arc<tidemill_runtime::Session>,
}

/// Serves a session. `limits`: calls, connections, bytes of a body.
#[pyfunction]
pub fn serve(
    py: Python<'_>,
    session: &Bound<'_, Session>,
    host: String,
    port: u16,
    insecure: bool,
    limits: (usize, usize, usize),
) -> PyResult<Server> {
    let (calls_max, connections_max, body_bytes_max) = limits;
    let limits = Limits { calls_max, connections_max, body_bytes_max, ..Limits::default() };
    let session = session.get().session.clone();
    let served = session.clone();
    let started = py.detach(|| tidemill_server::Server::start(served, ServeOptions { host, port, insecure, limits }));
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
        format!("http://{}", self.server.address())
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
