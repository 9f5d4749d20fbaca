//! Exit codes. They are documented in `docs/command-line.md` and in `tidemill --help`.

use crate::{Interrupt, JobError, say};
use tidemill_audit::AuditError;
use tidemill_runtime::RunError;
use tidemill_server::MetricsError;

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
/// A state differs from what the reference interpreter makes of its log.
pub const DIFFERENCE: u8 = 5;

/// Returns the exit code after an interrupt, by which the epoch was finished and the sinks closed: as shells count, 128
/// and the signal's number.
pub fn interrupted(by: Interrupt) -> u8 {
    match by {
        Interrupt::HangUp => 129,
        Interrupt::Key => 130,
        Interrupt::Terminate => 143,
    }
}

/// Returns the exit code for a failure.
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
        JobError::Audit(AuditError::Differs(_)) => DIFFERENCE,
        JobError::Metrics(MetricsError::Insecure(_)) => USAGE,
        JobError::Run(_) | JobError::Audit(_) | JobError::Metrics(_) => RUN,
        JobError::Interrupted => interrupted(Interrupt::Key),
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

/// Reports a failure of a run that the user may have asked to stop; the exit code.
pub fn report_of_run(error: &JobError, stopping: Option<Interrupt>) -> u8 {
    match (report(error), error, stopping) {
        (_, JobError::Interrupted, Some(by)) => interrupted(by),
        (code, ..) => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_a_code_of_its_own() {
        let of = |error: AuditError| code(&JobError::Audit(error));
        assert_eq!((of(AuditError::Differs("it differs".into())), of(AuditError::Unknown("none".into()))), (5, 3));
    }
}
