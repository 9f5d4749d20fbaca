//! The services that the engine needs from the machine it runs on. A parameter, so that the same code runs under
//! simulation.

use crate::actor::Bell;
use std::ops::Range;
use std::time::Duration;

/// Clock, threads and waiting.
pub trait Environment: Send + Sync {
    /// Returns the nanoseconds since some fixed instant; never decreases.
    fn now(&self) -> u64;

    /// Returns the time of day, microseconds since 1970, as the machine has been told: it may be wrong, and go back and
    /// ahead. None where the machine knows none.
    fn time(&self) -> Option<i64> {
        None
    }

    /// Returns a number that no other run has, as far as somebody compares the histories of runs.
    fn unique(&self) -> u64 {
        0
    }

    /// Runs `body` on a thread of its own; the returned handle joins it, with an error if it panicked.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined>;

    /// Returns the number of workers that can run at once.
    fn parallelism(&self) -> usize;

    /// Blocks the thread of an actor until its bell rings or the clock shows `until`.
    fn wait(&self, bell: &Bell, until: Option<u64>) {
        bell.wait(until.map(|until| Duration::from_nanos(until.saturating_sub(self.now()))));
    }

    /// Returns the socket that a worker, one of `workers`, runs on: workers on one socket share work first.
    fn socket(&self, _worker: usize, _workers: usize) -> usize {
        0
    }

    /// Binds memory that was not touched yet to a socket. If that fails, the memory is where the system puts it.
    fn bind(&self, _memory: Range<usize>, _socket: usize) {}

    /// Called on the thread of a worker, one of `workers`, when it begins: the implementation may pin it to a
    /// processor.
    fn settle(&self, _worker: usize, _workers: usize) {}
}

/// A thread that can be joined.
pub trait Joined: Send {
    /// Waits until the thread ends; an error carries the message of its panic.
    fn join(self: Box<Self>) -> Result<(), String>;
}
