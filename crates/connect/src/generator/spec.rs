//! How a generated column is made: plain data.

use serde::{Deserialize, Serialize};

/// How one column is made.
///
/// Sequences, uniform and Zipf distributions make integers for `str` columns too; `format` says how
/// they are written (`"acct-{}"`; the plain number when left out).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ColumnSpec {
    /// `start`, `start + step`, … For int, float, Decimal, Time (the step in microseconds), str.
    Sequence {
        /// Of the first event.
        start: Literal,
        /// From event to event; may be negative.
        step: Literal,
        /// For str.
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
        /// For str.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// From 0 to `count - 1`, each `k` with weight `1 / (k + 1)^theta`. For int and str.
    Zipf {
        /// How many different values there are.
        count: u64,
        /// 0 is uniform; the larger, the more skewed.
        theta: f64,
        /// For str.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// One of the values.
    Choice {
        /// Values of the column's type, or null.
        values: Vec<Literal>,
        /// How likely each is against the others; all the same when left out.
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
        /// Of a null, from 0 to 1.
        probability: f64,
        /// What it is otherwise.
        values: Box<ColumnSpec>,
    },
}

/// A value as JSON has it. For decimals integers, floats (by their shortest text) and strings will do;
/// for times strings and microseconds; for bytes strings of base64.
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
