//! States that are read, while a run may go on with them: their tables and the events of their streams.

use crate::frame::Frame;
use crate::run::error_of;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::ops::ControlFlow;
use std::path::PathBuf;
use tidemill_audit::{AuditError, recorded_source, stand, tail};
use tidemill_connect::view_state;

fn refused(py: Python<'_>, error: &AuditError) -> PyErr {
    error_of(py, "RunError", (error.to_string(),))
}

/// Returns the tables of a state as it stands: the application's name, the last epoch that was known to be durable, and
/// a frame by name.
#[pyfunction]
pub fn read_state(py: Python<'_>, path: PathBuf) -> PyResult<(String, u64, Py<PyDict>)> {
    let read = || stand(&view_state(&path)?, &recorded_source);
    let standing = py.detach(read).map_err(|error| refused(py, &error))?;
    let tables = PyDict::new(py);
    for table in standing.tables {
        let frame = Frame::new(table.schema, vec![table.rows], Vec::new());
        tables.set_item(table.name, frame.into_pyobject(py)?)?;
    }
    Ok((standing.application, standing.epoch, tables.unbind()))
}

/// Returns the events of a stream that a state's log has after an epoch: the epoch of the newest checkpoint, the last
/// one that was known to be durable, and by epoch its number with a frame.
#[pyfunction]
pub fn read_stream(py: Python<'_>, path: PathBuf, stream: &str, after: u64) -> PyResult<(u64, u64, Py<PyList>)> {
    let mut found = Vec::new();
    let read = || {
        tail(&view_state(&path)?, stream, after, &recorded_source, &mut |epoch, schema, events| {
            found.push((epoch, Frame::new(schema.clone(), vec![events], Vec::new())));
            ControlFlow::Continue(())
        })
    };
    let tailed = py.detach(read).map_err(|error| refused(py, &error))?;
    let epochs = PyList::empty(py);
    for (epoch, frame) in found {
        epochs.append((epoch, frame.into_pyobject(py)?))?;
    }
    Ok((tailed.from, tailed.through, epochs.unbind()))
}
