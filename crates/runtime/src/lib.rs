//! Epochs, morsels and workers: events in, state transactions, results out.
//!
//! The life of an epoch is the list of modules: `gate` (gather), `prepare`, `access` or `cascade`,
//! `finish`, and the committer in `engine`. `pipeline` decides which worker does which of these next.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod cascade;
mod commit;
mod costs;
mod durable;
mod engine;
mod environment;
mod epoch;
mod finish;
mod gate;
mod gather;
mod gather_columns;
mod grouping;
mod input;
mod inputs;
mod io;
mod keys;
mod options;
mod outputs;
mod pace;
mod parallel;
mod part;
mod pipeline;
mod prepare;
mod records;
mod report;
mod shape;
mod stream_state;
mod summary;
mod together;
mod versions;
mod views;
mod waves;
mod wiring;
mod worker;

pub use durable::{
    Durability, DurabilityOptions, EpochDigest, History, Logging, PastEpoch, PastSource, Reopen, StartingPoint,
    StartingSource, Sync, checkpoint_rows, committed_streams, state_rows,
};
pub use engine::{Control, Engine, Request, RunError};
pub use environment::{Environment, Joined};
pub use io::{BadRecord, IoFailure, Recovered, Resumed, Sink, Source, SourceBatch, SourceProgress};
pub use options::{EpochSize, Options, Policies, Scheduling};
pub use records::epoch_record_schema;
pub use shape::EpochShape;
pub use summary::{
    DurabilitySummary, FailedSummary, LatencySummary, MemorySummary, PolicySummary, SourceSummary, StageSummary,
    Summary, TransactionSummary, WorkerSummary,
};
pub use tidemill_schedule::{Policy, PolicyError, Scheme, SchemeError};
