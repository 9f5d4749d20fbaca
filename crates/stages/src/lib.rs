//! The life of an epoch, stage by stage: [`gate`], [`prepare`], [`access`], [`finish`].
//!
//! A stage is a function over the [`Machine`](machine::Machine), which all workers share and of which only rows change,
//! and one [`Epoch`](epoch::Epoch), which one worker owns at a time. This crate starts no thread, opens no file and
//! reads only the clock of its [`Environment`](environment::Environment). `tidemill-recovery` logs and restores epochs
//! and state; `tidemill-runtime` drives both.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod access;
pub mod actor;
pub mod digest;
pub mod due;
pub mod environment;
pub mod epoch;
pub mod finish;
pub mod folded;
pub mod gate;
pub mod given;
mod incoming;
pub mod input;
mod listed;
pub mod machine;
pub mod prepare;
pub mod progress;
pub mod stream_state;
mod sync;
pub mod tasks;
pub mod time_of_day;
pub mod views;
pub mod wiring;
