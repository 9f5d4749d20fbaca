//! Sources: the interface through which events enter.

use crate::IoFailure;
use arrow_array::RecordBatch;
use std::time::Duration;

/// A record that could not be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRecord {
    /// The file or other origin.
    pub origin: Option<String>,
    /// 1-based line (or record number where the format has no lines).
    pub line: Option<u64>,
    /// The column at fault.
    pub column: Option<String>,
    /// The reason.
    pub reason: String,
    /// The record's text, as far as it can be decoded; may be truncated.
    pub record: Option<String>,
    /// The number of events of its batch that come before it.
    pub after: u64,
}

/// A batch from a source: at least one event or bad record.
#[derive(Debug)]
pub struct SourceBatch {
    /// Decoded events in the order of their offsets, in the canonical Arrow form of the source's
    /// schema ([`tidemill_model::arrow`]).
    pub events: RecordBatch,
    /// Undecodable records among the events.
    pub bad: Vec<BadRecord>,
}

/// The answer of a source that was asked for its next batch.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(SourceBatch),
    /// No input has arrived in the time given; there may be some later.
    Nothing,
    /// There is no more.
    End,
}

impl Next {
    /// Returns the batch, if there is one.
    pub fn batch(self) -> Option<SourceBatch> {
        match self {
            Next::Batch(batch) => Some(batch),
            Next::Nothing | Next::End => None,
        }
    }
}

impl From<Option<SourceBatch>> for Next {
    /// Returns the end where there is no batch.
    fn from(batch: Option<SourceBatch>) -> Next {
        batch.map_or(Next::End, Next::Batch)
    }
}

/// The splits of a source that has several: parts that are read side by side, each with an order, offsets and a mark of its
/// own. Each is a source by itself.
pub trait Splits: Send {
    /// Returns the names of those that there are and are not `known`, in the order in which they are to join. Fails if
    /// a known one is not there any more.
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure>;

    /// Opens a split.
    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure>;

    /// Returns whether splits may join while they are read: then [`Splits::new_splits`] is asked again and again.
    fn follows(&self) -> bool {
        false
    }
}

/// The amount of input that a source has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceProgress {
    /// Units (bytes, or events) read.
    pub done: u64,
    /// Units in total, if known.
    pub total: Option<u64>,
}

/// A source of events. Driven by one thread.
pub trait Source: Send {
    /// Returns the next batch. A source whose input may arrive late waits for it no longer than `wait_max`, if it can
    /// help it, and then says [`Next::Nothing`]: so a reader can be interrupted. After [`Next::End`] it says that at
    /// every call.
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure>;

    /// Returns the amount of input that it has read.
    fn progress(&self) -> SourceProgress {
        SourceProgress::default()
    }

    /// Returns the time at which the last batch of events arrived, on the run's clock, if the source knows better than
    /// the caller: the time that events waited inside the source is part of their latency.
    fn arrived(&self) -> Option<u64> {
        None
    }

    /// Returns its splits, if it has several. They are read then, and never the source itself; it says whether they
    /// [replay](Source::replays) and what the end of all of them is ([`Source::is_last`]).
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        None
    }

    /// Returns a token for the position after the last batch, for a durable run, if the source can seek to it again.
    fn token(&self) -> Option<String> {
        None
    }

    /// Returns whether it can be read again from any token that it gave, with the same records, for the lifetime of the
    /// state. Its records are then not logged, but read again after a crash.
    fn replays(&self) -> bool {
        false
    }

    /// Returns whether nothing is read from it: a session sends its events.
    fn is_sent(&self) -> bool {
        false
    }

    /// Returns whether it is a clock: it has no end, and a run in which all other sources have ended does not go on for
    /// it.
    fn is_clock(&self) -> bool {
        false
    }

    /// Returns whether it reads files to which others write while it does.
    fn is_followed(&self) -> bool {
        false
    }

    /// Returns its remark for users, once.
    fn remark(&mut self) -> Option<String> {
        None
    }

    /// Returns whether it is a pipe that has reached its end. The last record may be truncated, if the signal that
    /// stops this run has also stopped the writer.
    fn is_at_end_of_pipe(&self) -> bool {
        false
    }

    /// Returns whether its end is final, also in a run with a state: nothing will follow in a later run.
    fn is_last(&self) -> bool {
        false
    }

    /// Called once before the first [`Source::next`] if the end of input is a pause. From then on the source keeps back
    /// what may be the beginning of a record that a later run will find whole.
    fn pauses(&mut self) {}

    /// Returns the record that the source keeps back, after [`Next::End`]: it is a record only if nothing follows.
    /// Given once.
    fn rest(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        Ok(None)
    }

    /// Returns a text for users, after [`Source::resume`], that says what the next calls of [`Source::next`] will read.
    fn outlook(&self) -> Option<String> {
        None
    }

    /// Called once before the first [`Source::next`] if an earlier run took records from it: seeks to the position of
    /// the given token. Fails if the records that were taken no longer exist.
    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::New)
    }
}

/// The way in which a source continues after it was read in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The source is positioned after the records that were taken.
    Behind,
    /// The source starts again from the beginning, with the same records: the caller drops those that were taken.
    Anew,
    /// The source delivers only records that were never taken: a pipe, a socket.
    New,
    /// The source delivers what this run was given. That follows what was given to the last run that came to the end of
    /// its input; later runs, which crashed or were stopped, were given the same: the caller drops what they took.
    Given,
}
