//! Bugs on purpose.
//!
//! A harness that never found anything may be blind. So each promise has bugs that break it, put into
//! the code behind a switch that only tests can turn (the feature `planted`), and the tests show that
//! they are noticed. Without the feature [`Planted::is`] is the constant `false`.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bug {
    /// A sink takes an epoch that it has committed for a new one.
    SinkTakesOldEpochs,
    /// A sink's recovery leaves what was not committed.
    SinkKeepsTail,
    /// A sink's abort leaves what was written.
    SinkKeepsAborted,
    /// A sink records what is written, not what was prepared.
    SinkCommitsUnprepared,
    /// A sink records an epoch before its data is durable.
    SinkRecordsFirst,
    /// A sink writes its record over the old one.
    SinkRecordsInPlace,
    /// A sink believes a damaged record.
    SinkTrustsRecord,
    /// A sink goes on after a failure as if nothing had been.
    SinkForgetsErrors,
    /// A sink goes on with what another state's run has left.
    SinkIgnoresOwner,
    /// A sink gives its output the final name and does not record it.
    SinkFinishesUnrecorded,
    /// A finished sink that goes on begins anew.
    SinkRestartsFinished,
    /// A sink commits without what it still buffers.
    SinkBuffersBeyondCommit,
    /// A sink begins its text with a header after each recovery.
    SinkRepeatsHeader,
    /// A sink's compressed text goes on over a commit in one frame.
    SinkFramesAcrossCommits,
    /// A sink does not record an epoch that wrote nothing.
    SinkSkipsEmptyEpochs,
}

/// Which bug is planted: none but in tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(#[cfg(feature = "planted")] Option<Bug>);

impl Planted {
    /// Plants one.
    #[cfg(feature = "planted")]
    pub fn new(bug: Bug) -> Planted {
        Planted(Some(bug))
    }

    /// Whether it is this one.
    #[inline]
    pub fn is(self, bug: Bug) -> bool {
        #[cfg(feature = "planted")]
        let planted = self.0 == Some(bug);
        #[cfg(not(feature = "planted"))]
        let planted = {
            let _ = bug;
            false
        };
        planted
    }
}
