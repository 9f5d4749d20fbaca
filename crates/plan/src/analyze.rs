//! From plan to program.
use crate::{Plan, PlanError, Program};

/// Checks and types a plan.
pub fn analyze(_plan: &Plan) -> Result<Program, Vec<PlanError>> {
    unimplemented!()
}
