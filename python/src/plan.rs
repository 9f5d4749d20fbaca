//! Plans as JSON texts.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidemill_plan::Plan;

/// The plan of a JSON text.
pub fn read_plan(plan_json: &str) -> PyResult<Plan> {
    serde_json::from_str(plan_json).map_err(|error| PyValueError::new_err(format!("this is no plan: {error}")))
}
