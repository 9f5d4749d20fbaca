//! What the engine asks of the machine it runs on. A parameter, so that the same code runs under simulation.

use crate::actor::Bell;
use std::time::Duration;

/// Clock, threads and waiting.
pub trait Environment: Send + Sync {
    /// Nanoseconds since some fixed instant; never decreases.
    fn now(&self) -> u64;

    /// Runs `body` on a thread of its own; the result waits for its end and is an error if it panicked.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined>;

    /// How many workers can run at once.
    fn parallelism(&self) -> usize;

    /// Blocks the thread of an actor until its bell rings or the clock shows `until`.
    fn wait(&self, bell: &Bell, until: Option<u64>) {
        bell.wait(until.map(|until| Duration::from_nanos(until.saturating_sub(self.now()))));
    }

    /// The socket that a worker, one of so many, runs on: workers of one share work first.
    fn socket(&self, _worker: usize, _workers: usize) -> usize {
        0
    }

    /// Called on the thread of a worker, one of so many, when it begins: it may be given a processor of its own.
    fn settle(&self, _worker: usize, _workers: usize) {}
}

/// A thread that can be waited for.
pub trait Joined: Send {
    /// Waits for its end; an error if it panicked, with the panic's message.
    fn join(self: Box<Self>) -> Result<(), String>;
}
