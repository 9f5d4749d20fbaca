//! Values of events and rows, written briefly.

use tidemill_model::Value;

/// A record of integers.
pub(super) fn ints(values: &[i64]) -> Vec<Value> {
    values.iter().copied().map(Value::Int).collect()
}

/// A text.
pub(super) fn str(text: impl Into<String>) -> Value {
    Value::Str(text.into())
}
