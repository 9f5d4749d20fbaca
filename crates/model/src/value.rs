//! A single value, for literals, the reference interpreter, messages and tests; never the hot path.

use crate::Type;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value of any type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// `None`.
    Null,
    /// bool
    Bool(bool),
    /// int
    Int(i64),
    /// float
    Float(f64),
    /// Unscaled decimal; its type says the scale.
    Decimal(i64),
    /// Microseconds since 1970 UTC.
    Time(i64),
    /// Microseconds.
    Duration(i64),
    /// str
    Str(String),
    /// bytes
    Bytes(Vec<u8>),
    /// The elements of a list field; each element's columns in order (one for scalars).
    List(Vec<Vec<Value>>),
}

impl Value {
    /// Returns whether this is `None`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns the value as one signed word, for the types of [`Type::is_word`].
    pub fn word(&self) -> Option<i64> {
        match self {
            Value::Int(v) | Value::Decimal(v) | Value::Time(v) | Value::Duration(v) => Some(*v),
            _ => None,
        }
    }

    /// Returns a word read as a value of type `ty`. Panics unless [`Type::is_word`].
    pub fn from_word(ty: Type, word: i64) -> Value {
        match ty {
            Type::Int => Value::Int(word),
            Type::Decimal { .. } => Value::Decimal(word),
            Type::Time => Value::Time(word),
            Type::Duration => Value::Duration(word),
            other => panic!("{other} is not held in a word"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(v) | Value::Decimal(v) | Value::Time(v) | Value::Duration(v) => v.fmt(f),
            Value::Float(v) => write!(f, "{v:?}"),
            Value::Str(v) => write!(f, "{v:?}"),
            Value::Bytes(v) => write!(f, "b{:?}", String::from_utf8_lossy(v)),
            Value::List(v) => write!(f, "{v:?}"),
        }
    }
}

/// Returns the text of an unscaled decimal: sign, digits, and exactly `scale` digits after the point.
pub fn format_decimal(unscaled: i64, scale: u8) -> String {
    if scale == 0 {
        return unscaled.to_string();
    }
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale as usize + 1);
    let (whole, part) = digits.split_at(digits.len() - scale as usize);
    format!("{}{whole}.{part}", if unscaled < 0 { "-" } else { "" })
}

/// Returns the unscaled value of a decimal text (`[+-]digits[.digits]`), or none where it is no decimal, has more than
/// `scale` digits after the point, or more than `digits` in all.
pub fn parse_decimal(text: &str, digits: u8, scale: u8) -> Option<i64> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, part) = rest.split_once('.').unwrap_or((rest, ""));
    let part = part.trim_end_matches('0');
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !all_digits(whole) || !all_digits(part) {
        return None;
    }
    if part.len() > scale as usize {
        return None;
    }
    let mut unscaled: i64 = 0;
    let zeros = std::iter::repeat_n(b'0', scale as usize - part.len());
    for digit in whole.bytes().chain(part.bytes()).chain(zeros) {
        unscaled = unscaled.checked_mul(10)?.checked_add((digit - b'0') as i64)?;
    }
    (unscaled < 10i64.pow(digits as u32)).then_some(if negative { -unscaled } else { unscaled })
}
