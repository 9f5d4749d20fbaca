//! Time as a parameter. Only a paced generator and a source of ticks ask for it.

use std::time::{Duration, Instant, SystemTime};

/// A clock that never goes back, but for the time of day.
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed instant.
    fn now(&self) -> Duration;

    /// Returns the time of day: microseconds since 1970 UTC, as the machine has been told. It may go back, and ahead.
    fn time(&self) -> i64;

    /// Comes back after `duration` or a little later.
    fn sleep(&self, duration: Duration);
}

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
