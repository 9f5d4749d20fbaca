//! The specification of a generated column: plain data.

use serde::{Deserialize, Serialize};

/// The way in which the values of one column are made.
///
/// Sequences, uniform and Zipf distributions make integers for `str` columns too; `format` says how
/// they are written (`"acct-{}"`; the plain number when left out).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ColumnSpec {
    /// `start`, `start + step`, … For int, float, Decimal, Time (the step in microseconds), str.
    Sequence {
        /// The value of the first event.
        start: Literal,
        /// The difference from event to event; may be negative.
        step: Literal,
        /// The text around the number, for str.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// Any value from `low` to `high`, all as likely; both included but for floats, which stay below
    /// `high`. For int, float, Decimal, Time, str.
    Uniform {
        /// The least.
        low: Literal,
        /// The greatest.
        high: Literal,
        /// The text around the number, for str.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// A number from 0 to `count - 1`, each `k` with weight `1 / (k + 1)^theta`. For int and str.
    Zipf {
        /// The number of different values.
        count: u64,
        /// 0 is uniform; the larger, the more skewed.
        theta: f64,
        /// The text around the number, for str.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// One of the values.
    Choice {
        /// Values of the column's type, or null.
        values: Vec<Literal>,
        /// The weight of each value; all the same when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weights: Option<Vec<f64>>,
    },
    /// Always the same.
    Constant {
        /// A value of the column's type, or null.
        value: Literal,
    },
    /// Sometimes null.
    Nullable {
        /// The probability of a null, from 0 to 1.
        probability: f64,
        /// The values of the other events.
        values: Box<ColumnSpec>,
    },
}

/// A value in the form that JSON has for it. For decimals integers, floats (by their shortest text) and strings will
/// do; for times strings and microseconds; for bytes strings of base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Literal {
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// Null.
    Null,
}
