//! Windowed columns: what their cells hold, and as which bytes.
//!
//! The cell of a windowed column is a value of type `Bytes`, empty in a new row. What it means is said here and
//! read nowhere else in this crate: [`crate::Node::WindowAdd`] makes new bytes from old ones, and
//! [`crate::Node::WindowRead`] an aggregate from bytes. So whatever is done with cells (undo, versions,
//! checkpoints) is done with windows too.
//!
//! # Time
//!
//! The slice of a time `t` is `floor(t / slide)`. A cell has a *clock*: the greatest slice in it. It only goes
//! forward: where an event's slice is less than the clock, which needs a stream whose times are not in the
//! order of its events, the clock stands for it, in `add` and in aggregates. With *now* so defined, an add
//! counts for slice *now*, and everything at or before slice *now − slices* leaves the cell. An aggregate over
//! `within` slices is over what was added in slices *now − within + 1* to *now*.
//!
//! # Bytes
//!
//! Entries, least slice first, nothing between them; numbers are eight bytes, little-endian, signed.
//!
//! | [`Keep`] | an entry | one for each |
//! |---|---|---|
//! | `Slices` | slice, count, sum (16 bytes), least, greatest | slice that is not empty |
//! | `Distinct` | slice, value | value, with the last slice it was added in |
//! | `Last` | value | of the last values |
//!
//! A sum of words has 128 bits. A sum of floats is a float and eight bytes of zero; it is taken in the order in
//! which the values were added, beginning with the first. A NaN is always the one of bits 0x7ff8000000000000. The
//! least and the greatest of values with a NaN are NaN; of equal ones the first. A value of `Distinct` is new in
//! the newest slice or leaves the bytes as they are; an older entry of it is taken out, and the new one is put at
//! the end. A text is its length and its bytes.

use crate::print::literal;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidemill_model::{Type, Value};

/// A windowed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Of the values that are added.
    pub value: Type,
    /// What is kept of them.
    pub keep: Keep,
}

/// What a windowed column keeps of the values added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// Count, sum, least and greatest of each of the last slices.
    Slices(Slices),
    /// The distinct values of the last slices.
    Distinct(Slices),
    /// The last so many values, whatever their times.
    Last(i64),
}

/// Slices of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// How many there are in the longest window; at least 1.
    pub count: i64,
    /// The length of each, in the unit of the event time; at least 1.
    pub slide: i64,
    /// The type of the event time: `Time` or `Int`.
    pub time: Type,
}

impl Slices {
    /// The length of so many slices, as it is written in a plan.
    pub(crate) fn span(self, count: i64) -> String {
        let length = self.slide.saturating_mul(count);
        literal(&if self.time == Type::Int { Value::Int(length) } else { Value::Duration(length) })
    }
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.span(self.count))?;
        if self.slide > 1 {
            write!(f, " in slides of {}", self.span(1))?;
        }
        Ok(())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.keep {
            Keep::Slices(slices) => write!(f, "window of {value} over {slices}"),
            Keep::Distinct(slices) => write!(f, "window of distinct {value} over {slices}"),
            Keep::Last(count) => write!(f, "window of the last {count} {value}"),
        }
    }
}

/// Bytes of an entry of [`Keep::Slices`].
pub const SLICE_BYTES: usize = 48;

impl Window {
    /// The slices, where there are any.
    pub fn slices(&self) -> Option<Slices> {
        match self.keep {
            Keep::Slices(slices) | Keep::Distinct(slices) => Some(slices),
            Keep::Last(_) => None,
        }
    }

    /// Whether bytes are what a cell of this column may hold, as far as its shape goes.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let number = |at: usize| Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let mut at = 0;
        let mut entries = 0;
        let mut before = None;
        while at < bytes.len() {
            if self.slices().is_some() {
                let Some(slice) = number(at) else { return false };
                let strict = matches!(self.keep, Keep::Slices(_));
                if before.is_some_and(|before| slice < before || (strict && slice == before)) {
                    return false;
                }
                before = Some(slice);
                at += 8;
            }
            let value = match (self.keep, number(at)) {
                (Keep::Slices(_), Some(..=0)) => return false,
                (Keep::Slices(_), _) => SLICE_BYTES - 8,
                (_, Some(len)) if self.value.is_bytes() => match usize::try_from(len) {
                    Ok(len) if len <= bytes.len() => 8 + len,
                    _ => return false,
                },
                _ => 8,
            };
            at += value;
            entries += 1;
        }
        let most = match self.keep {
            Keep::Last(count) | Keep::Slices(Slices { count, .. }) => count,
            Keep::Distinct(_) => i64::MAX,
        };
        at == bytes.len() && entries <= most
    }
}
