//! The column that says when a row is due to wake ([`super::wakes`]), and what it is set to.
//!
//! It is an int in any case; its name says what event times are.

use super::fault::{Checked, Fault};
use crate::{Expr, Function};
use tidemill_model::{ColumnType, Type};

const DUE_TIME: &str = "due_time";
const DUE_INT: &str = "due_int";

/// Its name; `time` is the type of event times.
pub(super) fn column(time: Type) -> &'static str {
    if time == Type::Int { DUE_INT } else { DUE_TIME }
}

/// Whether a column says when a row is due.
pub(super) fn is_due(column: &str) -> bool {
    column == DUE_TIME || column == DUE_INT
}

/// What it is set to for a wake at `at`; `ty` is the type of the time that was asked for.
pub(super) fn setting(at: &Expr, ty: ColumnType, column: &str) -> Checked<Expr> {
    let units = match ty.ty {
        _ if ty.nullable => {
            return Err(Fault::new("the time at which a row is woken can be None")
                .hint("ask `if … is None` first; `wake(None)` cancels a wake")
                .at(at.span));
        }
        Type::Time if column == DUE_TIME => at.clone().call(Function::TotalMicroseconds, []),
        Type::Int if column == DUE_INT => at.clone(),
        other => {
            let time = if column == DUE_TIME { Type::Time } else { Type::Int };
            return Err(Fault::new(format!("the time at which a row is woken is {other}"))
                .hint(format!("wake it at an event time, which is {time} here"))
                .at(at.span));
        }
    };
    Ok(Expr { span: at.span, ..units })
}
