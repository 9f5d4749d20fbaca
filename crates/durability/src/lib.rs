//! Log, checkpoints and recovery, over files as a parameter.
//!
//! Everything that must survive a crash is written through [`Storage`], so that the same code runs on
//! the operating system's files and on simulated ones that lose, tear and refuse.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod blocks;
mod directory;
mod error;
mod fit;
mod log;
mod manifest;
mod nodes;
mod place;
mod planted;
mod savepoint;
mod storage;
pub mod store;
mod view;

pub use blocks::{BlockFile, BlockReader, BlockWriter};
pub use directory::{OpenState, StateDirectory};
pub use error::StateError;
pub use fit::{Fit, conversion_of, table_fits, taken_over};
pub use log::{Log, LogReader, LoggedEpoch, Written};
pub use manifest::{
    AnswerBlock, BatchState, Block, CallKey, Checkpoint, Identity, KeptBlock, KeptState, Manifest, Recorded,
    SourceIdentity, SourceState, SplitState, TableState,
};
pub use nodes::NodeRange;
pub use place::{NoPlace, Place};
pub use planted::{Bug, Planted, overwrite};
pub use savepoint::Savepoint;
pub use storage::{Entry, File, Kind, Lock, Locked, Mapped, Open, Storage, copy, directory_of, read_all, replace};
