//! The machine's clock. Only a paced generator and a source of ticks ask for it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tidemill_io::{Clock, SourceOptions};

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Makes a clock that starts at zero now.
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn time(&self) -> i64 {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
        }
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Returns the options of sources with the machine's clock.
pub fn source_options() -> SourceOptions {
    SourceOptions::new(Arc::new(SystemClock::new()))
}
