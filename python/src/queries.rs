//! SQL over the tables of a session, answered by the user's DuckDB (`tidemill.sql`) in processes of its own.

use crate::arrow::stream_of;
use arrow_array::RecordBatchReader;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use tidemill_server::{
    IsWanted, ProcessEngine, ProcessFailure, ProcessQuery, QueryForm, Sealed, SharedTable, answer_queries,
};

/// Called, it says whether the answer of a query is still wanted.
#[pyclass(frozen)]
struct Wanted(IsWanted);

#[pymethods]
impl Wanted {
    fn __call__(&self) -> bool {
        self.0.get()
    }
}

/// A table of the server, with the PyCapsule interface. It is asked for when it is first read.
#[pyclass(frozen)]
struct Remote(SharedTable);

#[pymethods]
impl Remote {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer answer with its own schema.
        drop(requested_schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(self.0.reader())), c"arrow_array_stream")
    }
}

/// DuckDB, as Python has it.
struct DuckDb {
    answered: Py<PyAny>,
    prepare: Py<PyAny>,
}

impl ProcessEngine for DuckDb {
    fn answer(
        &mut self,
        query: &ProcessQuery,
        tables: Vec<(String, SharedTable)>,
        is_wanted: IsWanted,
    ) -> Result<Box<dyn RecordBatchReader + Send>, ProcessFailure> {
        Python::attach(|py| {
            let answered = || {
                let named = PyDict::new(py);
                for (name, table) in tables {
                    named.set_item(name, Remote(table))?;
                }
                let ProcessQuery { sql, parameters, form, setup, epoch, .. } = query;
                let form = match form {
                    QueryForm::Own => "own",
                    QueryForm::Plain => "plain",
                    QueryForm::Lists => "lists",
                    QueryForm::Columns => "columns",
                };
                let limits = (query.seconds_max, query.rows_max, query.memory_max);
                let rows = self.answered.bind(py).call1((
                    named,
                    *epoch,
                    sql,
                    parameters,
                    form,
                    limits,
                    Wanted(is_wanted),
                    setup.as_deref(),
                ))?;
                stream_of(&rows)
            };
            match answered() {
                Ok(rows) => Ok(Box::new(rows) as Box<dyn RecordBatchReader + Send>),
                Err(error) => Err(refusal(py, &error)),
            }
        })
    }

    fn prepare(&mut self, last: &ProcessQuery) {
        // If nothing can be made ready, the next query says so.
        let _ = Python::attach(|py| self.prepare.call1(py, (last.memory_max,)));
    }
}

/// Answers the queries of the server that has started this process, by a function of `tidemill.sql`, until it ends. It may
/// take `memory_max` bytes of address space beside what it has.
#[pyfunction]
pub fn answer_queries_with(py: Python<'_>, answered: Py<PyAny>, prepare: Py<PyAny>, memory_max: u64) -> PyResult<()> {
    py.detach(|| answer_queries(&Sealed { memory_max }, || Ok(DuckDb { answered, prepare })))?;
    Ok(())
}

fn refusal(py: Python<'_>, error: &PyErr) -> ProcessFailure {
    let text = error.value(py).to_string();
    let is = |class: &str| {
        let class = py.import("tidemill.sql").and_then(|sqls| sqls.getattr(class));
        class.is_ok_and(|class| error.is_instance(py, &class))
    };
    match (is("QueryError"), is("RunError")) {
        (true, _) => ProcessFailure::Refused(text),
        (_, true) => ProcessFailure::NoEngine(text),
        _ => ProcessFailure::Over(error.to_string()),
    }
}
