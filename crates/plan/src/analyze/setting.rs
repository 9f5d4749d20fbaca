//! The column that says when a row is due to wake ([`super::wakes`]), and what it is set to.
//!
//! It is an int in any case; its name says what event times are.

use super::fault::{Checked, Fault};
use crate::{Expr, Function, OriginDef, Plan};
use tidemill_model::{ColumnType, Type, Value};

const DUE_TIME: &str = "due_time";
const DUE_INT: &str = "due_int";

/// Returns its name; `time` is the type of event times.
pub(super) fn column(time: Type) -> &'static str {
    if time == Type::Int { DUE_INT } else { DUE_TIME }
}

/// Returns whether a column says when a row is due.
pub(super) fn is_due(column: &str) -> bool {
    column == DUE_TIME || column == DUE_INT
}

/// Returns the value of the column for a wake at `at`; `ty` is the type of the time that was asked for.
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

/// The type of event times.
pub(super) fn time(plan: &Plan) -> Option<Type> {
    plan.streams.iter().find_map(|stream| match &stream.origin {
        OriginDef::Source { schema, event_time, .. } => {
            let field = schema.index_of(event_time.as_deref()?)?;
            schema.fields[field].scalar_type().map(|ty| ty.ty)
        }
        OriginDef::Every { period, .. } => Some(if matches!(period, Value::Int(_)) { Type::Int } else { Type::Time }),
        OriginDef::Filter { .. } | OriginDef::Map { .. } | OriginDef::Batch { .. } => None,
    })
}
