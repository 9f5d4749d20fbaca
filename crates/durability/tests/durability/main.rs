//! Log and checkpoints on a simulated machine.

mod log;
