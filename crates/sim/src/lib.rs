//! A simulated machine: storage that loses, tears and refuses, a clock, and seeds for both.
//!
//! [`SimStorage`] keeps apart what was written and what is durable. It can fail any call, and a power
//! cut can be put before or behind any of them; what survives is then drawn from everything that the
//! promises of [`tidemill_durability::Storage`] allow. [`SimEnvironment`] is a clock that moves when it
//! is looked at.
//!
//! # What a seed decides
//!
//! Which faults come at which call, what a power cut leaves, what the clock shows: all of these are
//! functions of the seed and of the order of calls. Code that runs on one thread is thereby replayed
//! exactly. The engine runs on real threads, and its waits are real, too; where two of them use the
//! storage at once, the operating system decides which call is the n-th. A failure found that way names
//! its seed, and the seed makes it likely, not certain.

mod environment;
mod fault;
mod file;
mod storage;
mod world;

pub use environment::SimEnvironment;
pub use fault::{Call, Fault, Operation};
pub use storage::SimStorage;
pub use world::SECTOR_BYTES;
