//! The way in which sources hand over their events, whatever their format.

use crate::clock::{Clock, SystemClock};
use std::sync::Arc;

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

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions { batch_rows: BATCH_ROWS, clock: Arc::new(SystemClock::new()) }
    }
}
