//! Time as a parameter. Only a paced generator asks for it.

use std::time::{Duration, Instant};

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// The time since some fixed instant.
    fn now(&self) -> Duration;

    /// Comes back after `duration` or a little later.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
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

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
