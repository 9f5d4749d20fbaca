//! The reply of a call: a row of what its transaction returns, or an error with its reason.

use super::backend;
use super::error::{PgError, PgResult, code};
use super::frontend::{Form, form_of};
use super::queue::NoOutcome;
use super::statement::{Call, Prepared, Statement};
use super::types;
use super::wire::Wire;
use crate::calls::Made;
use std::sync::Arc;
use tidemill_runtime::{NotMade, Outcome};

/// The form in which a call's reply is written.
pub struct CallShape {
    pub prepared: Arc<Prepared>,
    pub forms: Arc<[Form]>,
    /// A flag: whether the columns are described before the row.
    pub describes: bool,
}

impl CallShape {
    /// Returns the call.
    pub fn call(&self) -> &Call {
        match &self.prepared.statement {
            Statement::Call(call) => call,
            other => unreachable!("{other:?} is no call"),
        }
    }
}

/// Returns whether the call's transaction committed.
pub fn is_committed(made: &Made) -> bool {
    matches!(made.outcome(), Outcome::Committed(_) | Outcome::Silent)
}

/// Writes the reply, or says why there is none.
pub fn write(out: &mut Vec<u8>, wire: &Wire, shape: &CallShape, outcome: Result<Made, NoOutcome>) -> PgResult<()> {
    let call = shape.call();
    let procedure = &wire.catalog.procedures[call.procedure];
    let made = outcome.map_err(|why| no_outcome(why, &procedure.name))?;
    let row = match made.outcome() {
        Outcome::Aborted(row) => return Err(aborted(wire, call, &made, row as usize)),
        Outcome::Untaken(reason) => return Err(PgError::new(code::ABORTED, made.answered().untaken(reason))),
        Outcome::Refused(why) => {
            return Err(match why {
                NotMade::TooMany | NotMade::Busy => PgError::busy(why.to_string()),
                NotMade::OtherArguments | NotMade::OtherVersion => {
                    PgError::new(code::BAD_VALUE_OF_SETTING, why.to_string())
                }
                NotMade::BeforeTick => PgError::fatal(code::RUN_OVER, why.to_string()),
            });
        }
        Outcome::Silent => None,
        Outcome::Committed(row) => Some(row as usize),
    };
    if shape.describes
        && let Some(columns) = &shape.prepared.columns
    {
        backend::columns(out, columns, |_| Form::Text);
    }
    // A procedure that returns nothing has no columns, so that it has no row either.
    let row = row.filter(|_| shape.prepared.columns.as_ref().is_some_and(|columns| !columns.is_empty()));
    if let Some(row) = row {
        let batch = made.answered().committed().expect("it has the row");
        backend::row(out, call.columns.len(), |out, place| {
            let column = call.columns[place];
            let form = form_of(&shape.forms, place).expect("it was checked when values were bound");
            types::write(out, batch, column, &procedure.returns[column], row, form)
        });
    }
    match call.is_select {
        true => backend::complete(out, if row.is_some() { "SELECT 1" } else { "SELECT 0" }),
        false => backend::complete(out, "CALL"),
    }
    Ok(())
}

fn aborted(wire: &Wire, call: &Call, made: &Made, row: usize) -> PgError {
    let batch = made.answered().aborted().expect("it has the row");
    let error = PgError::new(code::ABORTED, wire.calls.reason(call.procedure, batch, row));
    match wire.calls.seen(call.procedure, batch, row) {
        seen if seen == "{}" => error,
        seen => error.detail(seen),
    }
}

fn no_outcome(why: NoOutcome, procedure: &str) -> PgError {
    match why {
        NoOutcome::Over => {
            PgError::fatal(code::RUN_OVER, format!("the run is over: whether {procedure} ran is known to the next run"))
        }
        NoOutcome::Canceled => PgError::new(code::CANCELED, format!("{procedure} is not waited for any more"))
            .detail("a call that was made is not taken back: it runs or has run")
            .hint("read what it changes"),
    }
}
