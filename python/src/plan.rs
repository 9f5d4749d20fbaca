//! Plans as JSON texts.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidemill_plan::Plan;

/// Returns the plan of a JSON text.
pub fn read_plan(plan_json: &str) -> PyResult<Plan> {
    Plan::from_json(plan_json).map_err(|error| PyValueError::new_err(format!("this is not a plan: {error}")))
}
