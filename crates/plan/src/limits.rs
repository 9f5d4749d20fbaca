//! The limits of one transaction, beyond which it aborts.
//!
//! The limits are part of the plan: a log that is replayed must decide as the run did that wrote it. A plan without
//! them has the defaults, of which no version of the plan's format has others. What counts is explicit in the program
//! ([`crate::typed::Stmt::Count`], [`crate::typed::Node::Counted`]), so the reference and compiled code count alike.
//!
//! **The defaults.** Ten million steps are a tenth of a second in rounds of a loop that does next to nothing, and a
//! nest of two loops over three thousand elements each; 64 MiB of texts are more than a record of any source holds. An
//! event beyond them is a mistake or an attack, and takes at most seconds of one worker before it is refused.

use serde::{Deserialize, Serialize};

/// The most steps and bytes of one transaction on one event, or of one filter or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Steps, of which the last is still taken.
    pub steps: i64,
    /// Bytes of texts made and of events emitted.
    pub memory: i64,
}

/// The greatest limit. What is added to a sum at once is far smaller, so that sums of 64 bits never overflow.
pub const LIMIT_MAX: i64 = 1 << 60;

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 10_000_000, memory: 64 << 20 }
    }
}

impl Limits {
    /// Returns whether the limits are the default ones, which a plan need not name.
    pub fn is_default(&self) -> bool {
        *self == Limits::default()
    }
}
