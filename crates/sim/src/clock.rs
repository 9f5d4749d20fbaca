//! Simulated time: it passes when it is told to, never by itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that its owner moves. Clones of its `Arc` show the same time.
#[derive(Debug, Default)]
pub struct SimulatedClock {
    /// Nanoseconds. Written by whoever steps the simulation, read by all.
    now: AtomicU64,
}

impl SimulatedClock {
    /// Returns the nanoseconds since the simulation began.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Lets time pass up to an instant, which is not past.
    pub fn advance(&self, to: u64) {
        let before = self.now.swap(to, Ordering::Relaxed);
        assert!(before <= to, "time goes on, from {before} to {to}");
    }
}
