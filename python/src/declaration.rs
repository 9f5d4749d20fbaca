//! Declarations whose errors show the user's calls and none of the package's.
//!
//! An exception gets an entry in its traceback for each Python function that it leaves. A native callable adds none,
//! so that one between the user's code and the package can take the package's entries away.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Calls a Python function; a `TidemillError` comes out without the calls inside. Works as a method where a class has
/// it as an attribute.
#[pyclass(frozen, dict, module = "tidemill._native")]
pub struct Declaration {
    function: Py<PyAny>,
}

#[pymethods]
impl Declaration {
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        Declaration { function }
    }

    #[pyo3(signature = (*arguments, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        self.function.call(py, arguments, named).map_err(|error| without_calls(py, error))
    }

    fn __get__<'py>(
        slf: Bound<'py, Self>,
        object: Option<Bound<'py, PyAny>>,
        _class: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match object {
            Some(object) => slf.py().import("types")?.getattr("MethodType")?.call1((slf, object)),
            None => Ok(slf.into_any()),
        }
    }
}

/// Returns the error without its traceback so far, if it is one of the package's.
fn without_calls(py: Python<'_>, error: PyErr) -> PyErr {
    let exception = error.value(py).clone();
    let forget = || -> PyResult<bool> {
        let class = py.import("tidemill.errors")?.getattr("TidemillError")?;
        let is_own = exception.is_instance(&class)?;
        if is_own {
            exception.setattr("__traceback__", py.None())?;
        }
        Ok(is_own)
    };
    match forget() {
        // Made anew from the exception, as the error at hand holds the traceback too.
        Ok(true) => PyErr::from_value(exception.into_any()),
        _ => error,
    }
}
