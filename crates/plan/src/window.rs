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
//! | `Slices` of words | slice, count, sum (16 bytes), least, greatest | slice that is not empty |
//! | `Slices` of floats | slice, count, sum of the home band (24 bytes), least, greatest | slice that is not empty |
//! | | slice, −1 − band, sum of the band (24 bytes), 0, 0 | other band of a slice whose sum is not 0 |
//! | `Distinct` | slice, value | value, with the last slice it was added in |
//! | `Records` | slice, record | record of the last slices |
//! | `Latest` | slice, record | slice that is not empty, of its last record |
//! | `Moments` | slice, length, moments | slice that is not empty |
//! | `Synopsis` | slice, length, synopsis | slice that is not empty; without slices there is one entry, which says none |
//! | `Last` | value | of the last values |
//!
//! A NaN is always the one of bits 0x7ff8000000000000. The least and the greatest of values with a NaN are NaN; −0 is
//! less than +0. A value of `Distinct` is new in the newest slice or leaves the bytes as they are; an older entry of it
//! is taken out, and the new one is put at the end. A text is its length and its bytes.
//!
//! Words of `Distinct` are in the order of values by *runs*: a slice is one run, but the newest, of *n* entries, has a run for each
//! bit of *n*, the greatest first, of as many entries. So a new value is put in order with the entries of all runs at the end whose
//! sizes are 1, 2, 4 and so on; where a slice begins, the one before is put in order.
//!
//! # Records
//!
//! A window of records, all or the last ones, has no clock: it is added to at the times of positions, which only go forward. So *now* is the slice
//! of the time, and old entries are found from the front. A record is its length and its bytes: for each 64 values, or a
//! part of them, a number with a bit that is 1 for each value that is null, the first value in the lowest bit; then a number
//! for each value, 0 for a null, of a text where in the record its bytes begin in the lower 32 bits and how many there are
//! in the upper; then the bytes of the texts.
//!
//! # Moments
//!
//! Of a slice: how many values there are, how many of them are NaN or infinite, the sum of the others and that of their
//! squares. Both sums are whole numbers: of floats in units of 2^−1074 and 2^−2148, of words in units of 1. A sum is how
//! many of its low limbs of 64 bits are 0, how many limbs follow, and these, the least first, in two's complement: as few
//! as there can be, none of 0.
//!
//! # Synopses
//!
//! Of counts, each value in the order in which they were first added: how often it was added, and the value; a text is its
//! length and its bytes.
//!
//! The *hash* of a value is *mix* of FNV-1a of 64 bits over its eight bytes, or those of its text. *mix*(*x*) is *x* ^= *x* >> 33,
//! *x* *= 0xff51afd7ed558ccd, *x* ^= *x* >> 33, *x* *= 0xc4ceb9fe1a85ec53, *x* ^= *x* >> 33.
//!
//! There are [`REGISTERS`] registers of a byte. The upper 12 bits of a hash say which; its value is the greatest number of zeros
//! in front of the other 52 bits, plus 1. The answer is by Ertl ("New cardinality estimation algorithms for HyperLogLog
//! sketches", 2017, algorithm 6), in that order of operations, rounded half up: it needs no table and has no bias, and no operation
//! that processors round differently.
//!
//! Buckets are numbers of buckets and how many values are in them, in order. A value *x* of 2^−1022 ≤ |*x*| is in the one whose number
//! is the upper 17 bits of the float |*x*| without its sign, with the sign of *x*: exponent and six bits, so a bucket is as wide as a
//! 64th of its lower end at most. It stands for its middle. Values nearer to 0 are in bucket 0, NaNs in the greatest that is.
//!
//! There are [`COUNTER_ROWS`] rows of [`COUNTERS`] counters. A value is counted in each row *i*, by the lower bits of *mix*(hash +
//! *i* · 0x9e3779b97f4a7c15). The answer is the least of its counters.
//!
//! All of these are functions of the multiset of values, and what several slices say is too.
//!
//! # Sums
//!
//! A sum of words has 128 bits. A sum of floats is exact: it has an integer of 192 bits for each *band* of exponents,
//! of the values of that band. The band of a value 2^*e* ≤ |*x*| < 2^(*e* + 1) is (*e* + 1117) div 99, with *e* = −1022
//! for smaller ones, and 2^(99 · band − 1169) is its unit. So band 11, [`HOME_BAND`], has 2^−28 ≤ |*x*| < 2^71 in units
//! of 2^−80. Zeros are in no band. Bands 22, 23 and 24 count NaNs, infinities and negative infinities. The entries of
//! the other bands of a slice come before its entry of the home band, by band. So the bytes of a slice are a function of
//! the values in it, not of their order.

use crate::Synopsis;
use crate::print::literal;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidemill_model::{Type, Value};

/// A windowed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The type of the values that are added.
    pub value: Type,
    /// The form in which they are kept.
    pub keep: Keep,
}

/// The form in which a windowed column keeps the values added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// Count, sum, least and greatest of each of the last slices.
    Slices(Slices),
    /// The distinct values of the last slices.
    Distinct(Slices),
    /// Every record of the last slices, oldest first.
    Records(Slices),
    /// The last record of each of the last slices, oldest first.
    Latest(Slices),
    /// Count, sum and sum of squares of each of the last slices.
    Moments(Slices),
    /// A synopsis of each of the last slices, or of all values.
    Synopsis(Synopsis, Option<Slices>),
    /// This number of the last values, whatever their times.
    Last(i64),
}

/// Slices of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// The number of slices in the longest window; at least 1.
    pub count: i64,
    /// The length of each, in the unit of the event time; at least 1.
    pub slide: i64,
    /// The type of the event time: `Time` or `Int`.
    pub time: Type,
}

impl Slices {
    /// Returns the length in time of `count` slices, as it is written in a plan.
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
            Keep::Records(slices) => write!(f, "records of {slices}"),
            Keep::Latest(slices) => write!(f, "a record for each slice of {slices}"),
            Keep::Moments(slices) => write!(f, "moments of {value} over {slices}"),
            Keep::Synopsis(of, slices) => {
                write!(f, "{} of {value}", of.name())?;
                slices.map_or(Ok(()), |slices| write!(f, " over {slices}"))
            }
            Keep::Last(count) => write!(f, "window of the last {count} {value}"),
        }
    }
}

/// Returns the number of bytes of null bits that stand before the values of a record: a word for each 64 values.
pub fn record_nulls(values: usize) -> usize {
    8 * values.div_ceil(64)
}

/// Registers of a synopsis.
pub const REGISTERS: usize = 1 << 12;
/// Rows of counters of a synopsis.
pub const COUNTER_ROWS: usize = 4;
/// Counters in each row.
pub const COUNTERS: usize = 256;

/// Bands of floats, with those that count NaNs and infinities.
pub const BANDS: usize = 25;
/// The band of most floats, whose sum is with the count of a slice.
pub const HOME_BAND: usize = 11;

impl Window {
    /// Returns the bytes of an entry of [`Keep::Slices`].
    pub fn slice_bytes(&self) -> usize {
        if self.value == Type::Float { 56 } else { 48 }
    }

    /// Returns the slices, where there are any.
    pub fn slices(&self) -> Option<Slices> {
        match self.keep {
            Keep::Slices(slices)
            | Keep::Distinct(slices)
            | Keep::Records(slices)
            | Keep::Latest(slices)
            | Keep::Moments(slices) => Some(slices),
            Keep::Synopsis(_, slices) => slices,
            Keep::Last(_) => None,
        }
    }

    /// Returns whether it is of records, which are read one by one.
    pub fn is_of_records(&self) -> bool {
        matches!(self.keep, Keep::Records(_) | Keep::Latest(_))
    }

    /// Returns whether a slice has one entry at most.
    fn has_one_a_slice(&self) -> bool {
        matches!(self.keep, Keep::Latest(_) | Keep::Moments(_) | Keep::Synopsis(..))
    }

    /// Returns whether an entry says how long it is.
    pub fn has_lengths(&self) -> bool {
        self.value.is_bytes() || matches!(self.keep, Keep::Moments(_) | Keep::Synopsis(..))
    }

    /// Returns whether bytes are what a cell of this column may hold, as far as its shape goes.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        if let Keep::Slices(slices) = self.keep {
            return self.holds_slices(bytes, slices);
        }
        let number = |at: usize| Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let mut at = 0;
        let mut entries = 0;
        let mut before = None;
        while at < bytes.len() {
            if self.slices().is_some() {
                let Some(slice) = number(at) else { return false };
                if before.is_some_and(|before| slice < before || slice == before && self.has_one_a_slice()) {
                    return false;
                }
                before = Some(slice);
                at += 8;
            }
            at += match number(at) {
                Some(len) if self.has_lengths() => match usize::try_from(len) {
                    Ok(len) if len <= bytes.len() => 8 + len,
                    _ => return false,
                },
                _ => 8,
            };
            entries += 1;
        }
        let most = match self.keep {
            Keep::Last(count) => count,
            Keep::Latest(slices) | Keep::Moments(slices) | Keep::Synopsis(_, Some(slices)) => slices.count,
            Keep::Synopsis(_, None) => 1,
            _ => i64::MAX,
        };
        at == bytes.len() && entries <= most
    }

    fn holds_slices(&self, bytes: &[u8], slices: Slices) -> bool {
        let word = |entry: &[u8], at: usize| i64::from_le_bytes(std::array::from_fn(|byte| entry[8 * at + byte]));
        let entries = bytes.chunks_exact(self.slice_bytes());
        let mut whole = entries.remainder().is_empty();
        let mut count = 0;
        let mut before = None;
        // Slice and band of an entry of another band, whose slice is not complete.
        let mut open: Option<(i64, usize)> = None;
        for entry in entries {
            let (slice, tag) = (word(entry, 0), word(entry, 1));
            whole &= open.map_or(before.is_none_or(|before| slice > before), |(open, _)| slice == open);
            if tag > 0 {
                (before, open) = (Some(slice), None);
                count += 1;
                continue;
            }
            let band = usize::try_from(tag.wrapping_neg()).ok().and_then(|tag| tag.checked_sub(1));
            let Some(band) = band.filter(|&band| self.value == Type::Float && band < BANDS) else { return false };
            let sum = [2, 3, 4].map(|at| word(entry, at));
            whole &= band != HOME_BAND && open.is_none_or(|(_, before)| band > before);
            whole &= sum != [0; 3] && [5, 6].map(|at| word(entry, at)) == [0; 2];
            open = Some((slice, band));
        }
        whole && open.is_none() && count <= slices.count
    }
}
