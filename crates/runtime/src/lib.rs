//! Epochs, morsels and workers: events in, state transactions, results out.

mod io;

pub use io::{BadRecord, IoFailure, Sink, Source, SourceBatch, SourceProgress};
