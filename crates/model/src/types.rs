//! The types of columns and expressions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most digits a decimal may have: its unscaled value fits one eight-byte cell.
pub const DECIMAL_DIGITS_MAX: u8 = 18;

/// The type of a value that is there. Nullability is said by [`ColumnType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// True or false.
    Bool,
    /// 64-bit signed integer.
    Int,
    /// IEEE 754 double.
    Float,
    /// Exact decimal: `digits` in all, `scale` of them after the point. Stored unscaled.
    Decimal {
        /// Digits in all, 1 to [`DECIMAL_DIGITS_MAX`].
        digits: u8,
        /// Digits after the point, at most `digits`.
        scale: u8,
    },
    /// An instant, microseconds since 1970 UTC.
    Time,
    /// The distance of two instants, microseconds. In expressions only, never in a column.
    Duration,
    /// UTF-8 text.
    Str,
    /// Raw bytes.
    Bytes,
    /// The type of `None` alone; it joins with every type. In expressions only.
    Null,
}

impl Type {
    /// Returns whether one eight-byte cell holds the value itself as a signed integer.
    pub fn is_word(self) -> bool {
        matches!(self, Type::Int | Type::Decimal { .. } | Type::Time | Type::Duration)
    }

    /// Returns whether the value is a run of bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Type::Str | Type::Bytes)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Float => f.write_str("float"),
            Type::Decimal { digits, scale } => write!(f, "Decimal({digits}, {scale})"),
            Type::Time => f.write_str("Time"),
            Type::Duration => f.write_str("Duration"),
            Type::Str => f.write_str("str"),
            Type::Bytes => f.write_str("bytes"),
            Type::Null => f.write_str("None"),
        }
    }
}

/// A type and whether `None` is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnType {
    /// The type of a value that is not `None`.
    #[serde(rename = "type")]
    pub ty: Type,
    /// A flag: whether `None` is allowed.
    #[serde(default)]
    pub nullable: bool,
}

impl ColumnType {
    /// Returns a column that always holds a value.
    pub const fn required(ty: Type) -> Self {
        ColumnType { ty, nullable: false }
    }

    /// Returns a column that may hold `None`.
    pub const fn optional(ty: Type) -> Self {
        ColumnType { ty, nullable: true }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.ty, if self.nullable && self.ty != Type::Null { " | None" } else { "" })
    }
}
