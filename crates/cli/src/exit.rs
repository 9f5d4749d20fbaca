//! Exit codes. They are documented in `docs/command-line.md` and in `tidemill --help`.

use crate::{JobError, say};
use tidemill_runtime::RunError;

/// Success.
pub const SUCCESS: u8 = 0;
/// The program or its plan is wrong.
pub const PROGRAM: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// The run failed: a source, a sink or the engine.
pub const RUN: u8 = 3;
/// The data does not fit its schema, found before the first event.
pub const SCHEMA: u8 = 4;
/// Interrupted; the epoch was finished and the sinks closed.
pub const INTERRUPTED: u8 = 130;

/// The exit code for a failure.
pub fn code(error: &JobError) -> u8 {
    match error {
        JobError::Plan(_) | JobError::Compile(_) | JobError::Connectors(_) => PROGRAM,
        JobError::Rows(_) => SCHEMA,
        JobError::Table { failure, .. }
        | JobError::Run(RunError::Source { failure, .. } | RunError::Sink { failure, .. }) => {
            if failure.schema {
                SCHEMA
            } else {
                RUN
            }
        }
        JobError::Run(_) | JobError::Audit(_) => RUN,
        JobError::Interrupted => INTERRUPTED,
    }
}

/// Prints a failure; its exit code.
pub fn report(error: &JobError) -> u8 {
    match error {
        JobError::Plan(errors) => errors.iter().for_each(|error| say::error(&error.to_string())),
        other => say::error(&other.to_string()),
    }
    code(error)
}
