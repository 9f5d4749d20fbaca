//! A simulated machine: storage that loses, tears and refuses, a clock, and seeds for both.
//!
//! [`SimStorage`] distinguishes what was written from what is durable. It can fail any call, and it can cut the power
//! before or after any call; what survives is then drawn from all that the promises of
//! [`tidemill_durability::Storage`] allow. [`step_through`] steps a run's actors on one
//! thread, in an order drawn from a seed, over a [`SimulatedClock`]. [`SimEnvironment`] runs real threads, over a clock
//! that moves each time it is read.
//!
//! # What a seed decides
//!
//! Which faults come at which call, what a power cut leaves and what the clock shows are functions of the seed and
//! of the order of calls. Code that runs on one thread is therefore replayed exactly, and so is an engine that is
//! stepped: a failing seed fails again, step for step. On real threads the operating system decides which of two
//! concurrent calls is the n-th: there a seed makes a failure likely to come again, not certain.

mod clock;
mod environment;
mod fault;
mod file;
mod stepped;
mod stepper;
mod storage;
mod trace;
mod world;

pub use clock::SimulatedClock;
pub use environment::{SimEnvironment, panic_message};
pub use fault::{Call, Fault, Operation};
pub use stepped::{SteppedEnvironment, step_through};
pub use stepper::{Stepped, Stepper, Stuck};
pub use storage::{HeldSyncs, SimStorage};
pub use trace::{Event, Trace};
pub use world::SECTOR_BYTES;
