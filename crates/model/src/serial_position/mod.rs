//! The position of anything in the one serial order (`docs/formalism.md`, "Positions"): of records of splits, of timers,
//! of results that complete with an instant, and of what is sent without a time.
//!
//! # Invariant
//!
//! The derived order is the serial order: by time; then by the variants of [`Place`] from first to last, which are the
//! phases and what stands in them; then what is sent, after what it is anchored at and before all else.
//!
//! Given up: size. A position is for logs, messages and the reference; what runs per event uses [`crate::Position`],
//! which orders the events of sources of one split as this does.

mod text;

use crate::{Position, SourceId};
pub use text::ParsePositionError;

/// A position in the serial order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SerialPosition {
    /// Microseconds, units of an `int`, or a counter: the time of whatever runs here.
    pub time: i64,
    /// The place within the instant; for what is sent without a time, that of its anchor.
    pub place: Place,
    /// The ordinal in the program, for what is sent without a time. It follows its anchor, which is the same without.
    pub sent: Option<u64>,
}

/// A place within an instant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The place before everything of the instant. Only an anchor.
    Begin,
    /// A tick.
    Tick {
        /// The declaration's index.
        every: u32,
    },
    /// The wake of a row.
    Wake {
        /// The table's index in the plan.
        table: u32,
        /// The row's key.
        key: Vec<KeyPart>,
    },
    /// A record of a source: an event, or a late or bad record.
    Record {
        /// The source's index in the plan.
        source: SourceId,
        /// The split's number in its source.
        split: u32,
        /// The record's ordinal in its split, or what its medium numbers it by.
        offset: u64,
    },
    /// A result that completes with the instant.
    Result {
        /// The operator's index.
        operator: u32,
        /// Among the operator's results of the instant.
        ordinal: u64,
    },
}

/// A value of a key. Those of one key column are all of one variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// A value of a type that is one word; false is 0.
    Word(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// The phases of an instant, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Ticks, then wakes. The beginning of an instant counts as its first point.
    Timers,
    /// Records of sources.
    Records,
    /// Results that complete with the instant.
    Results,
}

impl Place {
    /// Returns the phase in which it is.
    pub fn phase(&self) -> Phase {
        match self {
            Place::Begin | Place::Tick { .. } | Place::Wake { .. } => Phase::Timers,
            Place::Record { .. } => Phase::Records,
            Place::Result { .. } => Phase::Results,
        }
    }
}

impl SerialPosition {
    /// Makes a position that is not anchored.
    pub fn new(time: i64, place: Place) -> Self {
        SerialPosition { time, place, sent: None }
    }

    /// Returns the position of a record.
    pub fn record(time: i64, source: SourceId, split: u32, offset: u64) -> Self {
        SerialPosition::new(time, Place::Record { source, split, offset })
    }

    /// Returns the beginning of an instant, which only anchors what is sent.
    pub fn begin(time: i64) -> Self {
        SerialPosition::new(time, Place::Begin)
    }

    /// Returns the position of what is sent after this one, with its ordinal in the program. Of what is sent itself,
    /// the same anchor.
    pub fn then_sent(&self, ordinal: u64) -> Self {
        SerialPosition { sent: Some(ordinal), ..self.clone() }
    }

    /// Returns the anchor of what is sent; any other position is its own.
    pub fn anchor(&self) -> Self {
        SerialPosition { sent: None, ..self.clone() }
    }
}

/// The position of an event of a source with one split.
impl From<Position> for SerialPosition {
    fn from(position: Position) -> Self {
        SerialPosition::record(position.time, position.source, 0, position.offset)
    }
}

#[cfg(test)]
mod tests;
