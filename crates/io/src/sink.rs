//! Sinks: the interface through which results leave.

use crate::IoFailure;
use arrow_array::RecordBatch;

/// A sink's record of earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The sink keeps no record of epochs. Output that is released between two checkpoints may be released again after
    /// a crash: at least once, not exactly once.
    Forgets,
    /// The sink contains exactly the output of the epochs up to this one; none: it is empty.
    Through(Option<u64>),
}

/// A sink for the events of a stream. Driven by one thread.
///
/// # A run without a state directory
///
/// Calls [`Sink::write`] and [`Sink::flush`], then [`Sink::finish`]. Dropping an unfinished sink leaves
/// nothing under the final name.
///
/// # A durable run
///
/// Calls [`Sink::recover`], then any number of times [`Sink::write`], [`Sink::prepare`] and
/// [`Sink::commit`] (or [`Sink::abort`]), [`Sink::keep`] before a checkpoint, then [`Sink::finish`] if the stream has ended.
/// The contract:
///
/// 1. `recover` comes first. It removes uncommitted output, and returns the last committed epoch.
/// 2. Everything that is written belongs to the epoch that `prepare` names next. Several epochs may be committed
///    together, under the number of the last. Numbers increase.
/// 3. `prepare(e)` makes the written output durable, and releases nothing.
/// 4. `commit(e)` releases the prepared output and records `e` with it, durably and atomically. After it has returned,
///    `recover` returns `e` after any crash. If it is interrupted or fails, `recover` returns either `e`, and all of
///    the output exists, or the epoch before, and none of it does. Two exceptions keep commits cheap. An epoch that wrote
///    nothing need not be recorded before `keep`: until then `recover` may return an earlier one, after which nothing was
///    written. And sinks that share a record may be committed together, once all of them have prepared `e`, with the first.
/// 5. `abort(e)` discards everything that was written since the last commit.
/// 6. Calls may be repeated. For an epoch at or before the last committed one, `prepare` discards the written output,
///    `commit` and `abort` change nothing, and all succeed. `commit` of a later epoch that was not the last prepared is
///    an error.
/// 7. After an error, every call fails, because the failed call may have taken effect: only `recover` on a newly opened
///    sink tells whether it did.
/// 8. `finish` publishes the committed output, and nothing else, under the final name. A sink that is opened again
///    after that recovers the same epoch, and appends to the output if there is more.
/// 9. A sink that is dropped keeps its committed output.
/// 10. After `keep` has returned, `recover` returns no epoch before the last committed one. A checkpoint relies on that.
///
/// The caller guarantees this to the sink: it calls `write` after the epoch's inputs are durable in the log, so that a
/// replay gives the same events, and it lets a checkpoint of an epoch replace the log only after every sink has
/// committed that epoch.
///
/// The methods have defaults for sinks that [keep no record](Recovered::Forgets): these release output in `write`, or
/// in `flush`, which is their `commit`.
pub trait Sink: Send {
    /// Takes the next events, in canonical Arrow form.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure>;

    /// Called at the end of each epoch that wrote something: an interactive sink shows its output now.
    fn flush(&mut self) -> Result<(), IoFailure> {
        Ok(())
    }

    /// Returns the output that earlier runs released.
    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        Ok(Recovered::Forgets)
    }

    /// Makes everything written since the last commit durable; it belongs to epochs up to `epoch`.
    fn prepare(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        Ok(())
    }

    /// Releases the prepared output.
    fn commit(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        self.flush()
    }

    /// Returns the bytes of output that it has made in this run, if it counts them.
    fn bytes(&mut self) -> Option<u64> {
        None
    }

    /// Records the last committed epoch durably, if [`Sink::commit`] has not.
    fn keep(&mut self) -> Result<(), IoFailure> {
        Ok(())
    }

    /// Discards everything that was written since the last commit.
    fn abort(&mut self, _epoch: u64) -> Result<(), IoFailure> {
        Ok(())
    }

    /// Completes the output under its final name.
    fn finish(self: Box<Self>) -> Result<(), IoFailure>;
}
