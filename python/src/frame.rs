//! Rows that Python holds, as Arrow record batches with the PyCapsule interface. Nothing is copied
//! on the way out, but for [`Frame::__arrow_c_array__`] of several batches, which joins them.

use crate::run::error_of;
use crate::values::{ToPython, dict_of};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator, StructArray};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_io::BadRecord;
use tidemill_model::Schema;
use tidemill_model::arrow::{arrow_schema, rows};
use tidemill_plan::TableId;
use tidemill_runtime::{Engine, LateTable};

/// Rows of one schema, in canonical Arrow form.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Frame {
    schema: Schema,
    content: Mutex<Content>,
    bad: Vec<BadRecord>,
}

enum Content {
    Batches(Vec<RecordBatch>),
    /// A table at the end of its run. Its rows are copied when they are first read, as a large table may never be.
    Table(Arc<Engine>, TableId),
    /// A table of a running session, likewise, in no order.
    Late(LateTable),
}

impl Frame {
    /// Makes a frame of batches in the canonical form of `schema`.
    pub fn new(schema: Schema, batches: Vec<RecordBatch>, bad: Vec<BadRecord>) -> Self {
        Frame { schema, content: Mutex::new(Content::Batches(batches)), bad }
    }

    /// Returns a frame of a table's rows. No run of the engine may follow.
    pub fn table(schema: Schema, engine: Arc<Engine>, table: TableId) -> Self {
        Frame { schema, content: Mutex::new(Content::Table(engine, table)), bad: Vec::new() }
    }

    /// Returns a frame of a table of a running session, after an epoch, with the rows in no order.
    pub fn late(schema: Schema, table: LateTable) -> Self {
        Frame { schema, content: Mutex::new(Content::Late(table)), bad: Vec::new() }
    }

    /// Returns the batches.
    fn batches(&self, py: Python<'_>) -> PyResult<Vec<RecordBatch>> {
        // Never wait for the lock with the interpreter held: its owner may be waiting for that.
        py.detach(|| self.loaded()).map_err(|error| error_of(py, "RunError", (error,)))
    }

    fn loaded(&self) -> Result<Vec<RecordBatch>, String> {
        let mut content: MutexGuard<'_, Content> = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let batches = match &*content {
            Content::Batches(batches) => return Ok(batches.clone()),
            Content::Table(engine, table) => vec![engine.table(*table).map_err(|error| error.to_string())?],
            Content::Late(table) => table.batches().map_err(|error| error.to_string())?,
        };
        *content = Content::Batches(batches.clone());
        Ok(batches)
    }

    /// Returns all rows as one batch.
    pub fn whole(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        match self.batches(py)?.as_slice() {
            [one] => Ok(one.clone()),
            several => py.detach(|| concat_batches(&arrow_schema(&self.schema), several)).map_err(arrow_error),
        }
    }

    /// Returns the records that did not fit.
    pub fn bad_records(&self) -> &[BadRecord] {
        &self.bad
    }
}

fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Frame {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.batches(py)?.iter().map(RecordBatch::num_rows).sum())
    }

    /// Returns the records that did not fit.
    #[getter]
    fn bad<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for bad in &self.bad {
            let record = PyDict::new(py);
            record.set_item("origin", &bad.origin)?;
            record.set_item("line", bad.line)?;
            record.set_item("column", &bad.column)?;
            record.set_item("reason", &bad.reason)?;
            record.set_item("record", &bad.record)?;
            list.append(record)?;
        }
        Ok(list)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(arrow_schema(&self.schema).as_ref()).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The interface lets a producer answer with its own schema.
        drop(requested_schema);
        let array = FFI_ArrowArray::new(&StructArray::from(self.whole(py)?).to_data());
        Ok((self.__arrow_c_schema__(py)?, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches: Vec<Result<RecordBatch, ArrowError>> = self.batches(py)?.into_iter().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, arrow_schema(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// One dict per row, of so many rows at most.
    #[pyo3(signature = (limit=None))]
    fn to_pylist<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let convert = ToPython::new(py)?;
        let mut left = limit.unwrap_or(usize::MAX);
        for batch in &self.batches(py)? {
            let batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
            for row in rows(&batch, &self.schema) {
                list.append(dict_of(&convert, &self.schema, &row)?)?;
            }
        }
        Ok(list)
    }
}
