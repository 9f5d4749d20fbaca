//! Sources and sinks against real files.

mod clock;
mod columnar;
mod csv;
mod disk;
mod durable;
mod follow;
mod fuzz;
mod generator;
mod growing;
mod inputs;
mod int96;
mod jsonl;
mod overlap;
mod own;
mod patient;
mod registry;
mod round_trip;
mod sinks;
mod support;
