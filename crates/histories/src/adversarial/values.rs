//! Values of events and rows, written briefly.

use tidemill_model::Value;

/// Returns a record of integers.
pub(super) fn ints(values: &[i64]) -> Vec<Value> {
    values.iter().copied().map(Value::Int).collect()
}

/// Returns a text value.
pub(super) fn str(text: impl Into<String>) -> Value {
    Value::Str(text.into())
}
