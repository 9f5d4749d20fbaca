//! The bound on how far ahead of the machine's clock an event may be.
//!
//! An event with a time that is further ahead when it is taken is no event: it is refused to the client that pushes it, and
//! otherwise it is a bad record. So one wrong time does not make all later events of its source late. Which events these are is
//! a decision of the clock: an input, which is logged (`docs/formalism.md`, "Times ahead of the clock").

use serde::{Deserialize, Serialize};

/// The bound of sources that others write to, unless another is declared: a day, microseconds.
pub const AHEAD_OF_OTHERS: i64 = 86_400_000_000;

/// The bound on how far ahead of the machine's clock the events of a source may be. Only events with a `Time` are
/// compared with a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ahead {
    /// [`AHEAD_OF_OTHERS`] where clients push the events, and where they are in files that are followed; without a bound
    /// elsewhere.
    #[default]
    ByInput,
    /// There is no bound.
    Unbounded,
    /// At most this number of microseconds.
    Most(i64),
}

impl Ahead {
    /// Returns whether it follows from where the events come from.
    pub fn is_by_input(&self) -> bool {
        *self == Ahead::ByInput
    }

    /// Returns the bound, microseconds, if there is one. `is_of_others`: clients push the events, or they are in files
    /// that are followed.
    pub fn most(self, is_of_others: bool) -> Option<i64> {
        match self {
            Ahead::ByInput => is_of_others.then_some(AHEAD_OF_OTHERS),
            Ahead::Unbounded => None,
            Ahead::Most(most) => Some(most),
        }
    }
}
