//! Log, checkpoints and the directory of a state, on a simulated machine.

mod directory;
mod log;
