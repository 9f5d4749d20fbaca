//! The place of an event in the one serial order (`docs/formalism.md`, "Positions").

use crate::Type;

/// Index of a source in its plan.
pub type SourceId = u32;

/// The position of an event of a source: (event time, source, offset), compared in that order.
///
/// Without a declared event time the offset stands in for the time, so that several such sources
/// interleave round-robin. An event that a transaction emits has its cause's position extended by
/// the path of steps that led to it; the extension is implied by execution order (see
/// `docs/formalism.md`) and not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Microseconds, or a counter for sources without event time.
    pub time: i64,
    /// The source's index in the plan.
    pub source: SourceId,
    /// The event's ordinal in its source, from 0. Late events count; records that could not be decoded
    /// are no events and do not.
    pub offset: u64,
}

/// Returns the time of what is sent before any time is shown: the least of all, of a `Time` that of the year 1.
pub fn least_time(ty: Type) -> i64 {
    const YEAR_1: i64 = -62_135_596_800_000_000;
    if ty == Type::Int { i64::MIN } else { YEAR_1 }
}
