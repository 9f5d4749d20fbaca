//! Arrow data that Python hands over through the PyCapsule interface. Nothing is copied: the batches
//! point into the producer's memory, which they keep alive.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Schema as ArrowSchema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyCapsuleMethods, PyTuple};
use std::ffi::CStr;
use std::sync::Arc;

/// Batches that a Python object stands for.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Returns the batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`. They may be asked for without
/// holding the interpreter; a producer that needs it takes it.
pub fn batches_of(object: &Bound<'_, PyAny>) -> PyResult<Batches> {
    if object.hasattr("__arrow_c_stream__")? {
        return Ok(Box::new(stream_of(object)?));
    }
    if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let pair = pair.cast::<PyTuple>().map_err(|_| PyTypeError::new_err("__arrow_c_array__ gave no pair"))?;
        let batch = array(&pair.get_item(0)?, &pair.get_item(1)?)?;
        return Ok(Box::new(std::iter::once(Ok(batch))));
    }
    let kind = object.get_type().name()?.to_string();
    Err(PyTypeError::new_err(format!("{kind} is not Arrow data: it has no __arrow_c_stream__ or __arrow_c_array__")))
}

/// Returns the batches of an object with `__arrow_c_stream__`, and their schema.
pub fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    stream(&object.call_method0("__arrow_c_stream__")?)
}

/// Returns the content of a capsule of that name.
fn content<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| PyTypeError::new_err("an Arrow capsule is wanted"))?;
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}

fn unusable(error: ArrowError) -> PyErr {
    PyValueError::new_err(format!("the Arrow data cannot be used: {error}"))
}

fn stream(capsule: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let stream = content::<FFI_ArrowArrayStream>(capsule, c"arrow_array_stream")?;
    // SAFETY: a capsule of this name holds a stream of the C interface, by the PyCapsule interface's
    // contract. It is moved out, and the capsule's content is marked as released.
    unsafe { ArrowArrayStreamReader::from_raw(stream) }.map_err(unusable)
}

fn array(schema: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let schema = content::<FFI_ArrowSchema>(schema, c"arrow_schema")?;
    let array = content::<FFI_ArrowArray>(array, c"arrow_array")?;
    // SAFETY: capsules of these names hold a schema and an array of it, by the PyCapsule interface's
    // contract. The array is moved out, and the capsule's content is marked as
    // released. The schema is only read, while its capsule lives.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array), &*schema) }.map_err(unusable)?;
    let DataType::Struct(fields) = data.data_type().clone() else {
        return Err(PyValueError::new_err(format!("the Arrow array is {}, not a batch of columns", data.data_type())));
    };
    let options = RecordBatchOptions::new().with_row_count(Some(data.len()));
    let (_, columns, _) = StructArray::from(data).into_parts();
    RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options).map_err(unusable)
}

/// Returns the bytes of an Arrow stream with the batches of an object, as a server takes them.
#[pyfunction]
pub fn arrow_stream<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut batches = batches_of(object)?.peekable();
    let schema = match batches.peek() {
        Some(Ok(first)) => first.schema(),
        Some(Err(error)) => return Err(PyValueError::new_err(format!("the Arrow data cannot be used: {error}"))),
        // Without batches a stream says its schema all the same.
        None => stream_of(object)?.schema(),
    };
    let written = py.detach(|| tidemill_connect::arrow_stream(&schema, batches)).map_err(unusable)?;
    Ok(PyBytes::new(py, &written))
}
