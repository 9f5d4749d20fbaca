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
mod operators;
mod place;
mod planted;
mod proof;
mod savepoint;
mod state_lock;
mod storage;
pub mod store;
mod view;

pub use blocks::{BlockFile, BlockReader, BlockWriter};
pub use directory::{OpenState, StateDirectory};
pub use error::StateError;
pub use fit::{Fit, Migration, conversion_of, table_fits, table_taken_over, taken_over};
pub use log::{Log, LogReader, LoggedEpoch, Written};
pub use manifest::{
    AnswerBlock, BatchState, Block, CallKey, Checkpoint, Identity, KeptBlock, KeptState, KeyRun, Manifest, Recorded,
    SourceIdentity, SourceState, SplitState, TableState,
};
pub use nodes::NodeRange;
pub use operators::{ChangedOperator, changed_operators};
pub use place::{Course, NoPlace, Place, Position};
pub use planted::{Bug, Planted, overwrite};
pub use proof::{Chain, Hash256, Hasher, Head, Proof, Restored};
pub use savepoint::{Remains, Savepoint};
pub use state_lock::Guard;
pub use storage::{
    Entry, File, Kind, Lock, Locked, Mapped, Open, Storage, copy, directory_of, is_lack_of_descriptors, is_shortage,
    read_all, replace,
};
