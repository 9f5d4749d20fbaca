//! Sources and sinks against real files.

mod columnar;
mod csv;
mod disk;
mod durable;
mod fuzz;
mod generator;
mod inputs;
mod jsonl;
mod overlap;
mod round_trip;
mod sinks;
mod support;
