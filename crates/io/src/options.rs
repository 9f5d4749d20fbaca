//! Options of sources, whatever their connector.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A clock that never goes back, but for the time of day.
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed instant.
    fn now(&self) -> Duration;

    /// Returns the time of day: microseconds since 1970 UTC, as the machine has been told. It may go back, and ahead.
    fn time(&self) -> i64;

    /// Comes back after `duration` or a little later.
    fn sleep(&self, duration: Duration);
}

/// The options of a source that concern how it hands over its events.
#[derive(Clone)]
pub struct SourceOptions {
    /// Most records in a batch.
    pub batch_rows: usize,
    /// Paces generators, and tells the time of ticks.
    pub clock: Arc<dyn Clock>,
}

/// Batches fit the second-level cache at a dozen columns, and the cost per batch is spread thin.
const BATCH_ROWS: usize = 8192;

impl SourceOptions {
    /// Makes the options of a run with this clock.
    pub fn new(clock: Arc<dyn Clock>) -> SourceOptions {
        SourceOptions { batch_rows: BATCH_ROWS, clock }
    }
}

/// The meaning of the end of a source's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputEnd {
    /// A pause in a run with a state: a later run continues with what was added. Without a state, the end.
    #[default]
    Pause,
    /// The end for good.
    Last,
    /// None: the run waits for what is added, until it is stopped.
    Follow,
}

impl InputEnd {
    /// Returns whether it is a pause, which specs leave out.
    pub fn is_pause(&self) -> bool {
        *self == InputEnd::Pause
    }
}
