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

    /// When the events that it handed over last arrived, on the run's clock, if it knows better than whoever takes
    /// them: where they waited in it, that is part of their latency.
    fn arrived(&self) -> Option<u64> {
        None
    }

    /// For a durable run: where it stands behind what it handed over last, if it can go there again.
    fn token(&self) -> Option<String> {
        None
    }

    /// Whether it can be read again from any token that it gave, with the same records, as long as the
    /// state lives: then they are not logged, but read again after a crash.
    fn replays(&self) -> bool {
        false
    }

    /// Whether it is a pipe that has come to its end: what it gave last may be half of what its writer meant, if the signal
    /// that stops this run has stopped that, too.
    fn is_at_end_of_pipe(&self) -> bool {
        false
    }

    /// Called once before the first [`Source::next`] where an earlier run took something of it: goes to
    /// where it stood, given the token of that place. Fails where what was taken is not there any more.
    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::New)
    }
}

/// What a source makes of having been read in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It stands behind what was taken.
    Behind,
    /// It begins anew, with the same records: those that were taken are to be dropped.
    Anew,
    /// It has only what was never taken: a pipe, a socket.
    New,
}

/// What a sink knows of earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It keeps no record of epochs. What is released between two checkpoints may be released again
    /// after a crash: at least once, not exactly once.
    Forgets,
    /// What epochs up to this one released is there, and nothing else; none: nothing is there.
    Through(Option<u64>),
}

/// Where the events of a stream go. Driven by one thread.
///
/// # A run without a state directory
///
/// Calls [`Sink::write`] and [`Sink::flush`], then [`Sink::finish`]. Dropping an unfinished sink leaves
/// nothing under the final name.
///
/// # A durable run
///
/// Calls [`Sink::recover`], then any number of times [`Sink::write`], [`Sink::prepare`] and
/// [`Sink::commit`] (or [`Sink::abort`]), then [`Sink::finish`] if the stream has ended. The contract:
///
/// 1. `recover` comes first. It makes undone what was not committed, and says what was.
/// 2. What is written belongs to the epoch that `prepare` names next. Epochs may be committed several
///    at a time, under the number of the last. Numbers grow.
/// 3. `prepare(e)` makes it durable, and releases nothing.
/// 4. `commit(e)` releases what was prepared and records `e` with it, durably and as one. Once it has
///    returned, `recover` says `e` after any crash. Where it is interrupted or fails, `recover` says `e`
///    and everything is there, or it says the epoch before and nothing of it is there.
/// 5. `abort(e)` forgets what was written since the last commit.
/// 6. Calls may come twice. For an epoch at or before the last committed one, `prepare` drops what was
///    written, `commit` and `abort` change nothing, and all succeed. `commit` of a later epoch that was
///    not the last prepared is an error.
/// 7. After an error, which may have come although the call was applied, every call fails: only
///    `recover` of the sink opened anew says what is there.
/// 8. `finish` puts what was committed, and nothing else, under the final name. A sink opened again
///    after that recovers the same epoch, and goes on behind it if there is more.
/// 9. A sink that is dropped keeps what was committed.
///
/// Who drives it owes the sink one thing: `write` comes when the epoch's inputs are durable in the log,
/// so that a replay gives the same events, and a checkpoint of an epoch replaces the log only when
/// every sink has committed that epoch.
///
/// The methods have defaults for sinks that [forget](Recovered::Forgets): they release with `write`, or
/// with the `flush` that their `commit` is.
pub trait Sink: Send {
    /// Takes the next events, in canonical Arrow form.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure>;

    /// Called at the end of each epoch that wrote something: an interactive sink shows it now.
    fn flush(&mut self) -> Result<(), IoFailure> {
        Ok(())
    }

    /// What earlier runs released.
    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        Ok(Recovered::Forgets)
    }

    /// What was written since the last commit is of epochs up to `epoch`; makes it durable.
    fn prepare(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        Ok(())
    }

    /// Releases what was prepared.
    fn commit(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        self.flush()
    }

    /// Forgets what was written since the last commit.
    fn abort(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        Ok(())
    }

    /// The stream has ended: makes the output whole under its final name.
    fn finish(self: Box<Self>) -> Result<(), IoFailure>;
}
