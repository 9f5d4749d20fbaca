//! The place of an event in the one serial order (`docs/formalism.md`, "Positions").

/// Index of a source in its plan.
pub type SourceId = u32;

/// Where an event of a source stands: (event time, source, offset), compared in that order.
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
