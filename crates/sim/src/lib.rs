//! A simulated machine: storage that loses, tears and refuses, a clock, and seeds for both.
//!
//! [`SimStorage`] distinguishes what was written from what is durable. It can fail any call, and it can cut the power
//! before or after any call; what survives is then drawn from all that the promises of
//! [`tidemill_durability::Storage`] allow. [`SimEnvironment`] runs real threads over a clock that moves each time it is
//! read.
//!
//! # What a seed decides
//!
//! Which faults come at which call, what a power cut leaves and what the clock shows are functions of the seed and
//! of the order of calls. Code that runs on one thread is therefore replayed exactly. The engine runs on real
//! threads, where the operating system decides which of two concurrent calls is the n-th: there a seed makes a failure
//! likely to come again, not certain.

mod environment;
mod fault;
mod file;
mod storage;
mod world;

pub use environment::SimEnvironment;
pub use fault::{Call, Fault, Operation};
pub use storage::SimStorage;
pub use world::SECTOR_BYTES;
