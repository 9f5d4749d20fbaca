//! The edges: where batches of events come from and where results go.

use arrow_array::RecordBatch;
use std::fmt;

/// A record that could not be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRecord {
    /// The file or other origin.
    pub origin: Option<String>,
    /// 1-based line (or record number where the format has no lines).
    pub line: Option<u64>,
    /// The column at fault.
    pub column: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// The record's text, as far as it is text; may be cut.
    pub record: Option<String>,
}

/// What a source hands over at once: at least one event or bad record.
#[derive(Debug)]
pub struct SourceBatch {
    /// Decoded events in the order of their offsets, in the canonical Arrow form of the source's
    /// schema ([`tidemill_model::arrow`]).
    pub events: RecordBatch,
    /// Records between them that could not be decoded.
    pub bad: Vec<BadRecord>,
}

/// How far a source has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceProgress {
    /// Units (bytes, or events) done.
    pub done: u64,
    /// Units in all, where known.
    pub total: Option<u64>,
}

/// A source or sink failed; the run stops with this message.
#[derive(Debug)]
pub struct IoFailure {
    /// A lowercase fact that names the file or origin and what is wrong.
    pub message: String,
    /// Whether the schema of the data is at fault, before any event was taken.
    pub schema: bool,
}

impl IoFailure {
    /// An operating failure.
    pub fn new(message: impl Into<String>) -> Self {
        IoFailure { message: message.into(), schema: false }
    }

    /// Data of the wrong schema.
    pub fn schema(message: impl Into<String>) -> Self {
        IoFailure { message: message.into(), schema: true }
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for IoFailure {}

/// Where events come from. Driven by one thread.
pub trait Source: Send {
    /// The next batch, blocking until there is one; none at the end, for ever after.
    fn next(&mut self) -> Result<Option<SourceBatch>, IoFailure>;

    /// How far it has come.
    fn progress(&self) -> SourceProgress {
        SourceProgress::default()
    }
}

/// Where the events of a stream go. Driven by one thread. Dropping an unfinished sink leaves nothing
/// under the final name.
pub trait Sink: Send {
    /// Takes the next events, in canonical Arrow form.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure>;

    /// Called at the end of each epoch that wrote something: an interactive sink shows it now.
    fn flush(&mut self) -> Result<(), IoFailure> {
        Ok(())
    }

    /// The stream has ended: makes the output whole under its final name.
    fn finish(self: Box<Self>) -> Result<(), IoFailure>;
}
