//! Bugs on purpose.
//!
//! A harness that never found anything may be blind. So each promise has bugs that break it, put into
//! the code behind a switch that only tests can turn (the feature `planted`), and the tests show that
//! they are noticed. Without the feature [`Planted::is`] is the constant `false`.

use crate::storage::{Open, Storage, directory_of};
use std::io;
use std::path::Path;

/// What [`crate::replace`] must not be: a crash may leave neither the old nor the new.
pub fn overwrite(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = storage.open(path, Open::AppendOrCreate)?;
    file.truncate(0)?;
    file.append(bytes)?;
    file.sync()?;
    storage.sync_directory(&directory_of(path))
}

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
    /// A sink goes on behind what it finds, without its checksum.
    SinkTrustsPart,
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
    /// The log is not synced.
    LogUnsynced,
    /// A record says that what is not synced yet is durable.
    LogMarksUnsynced,
    /// A record's check is not looked at.
    LogUnchecked,
    /// Recovery goes on behind a torn record.
    LogKeepsTornTail,
    /// Recovery drops the records that no marker says were durable.
    LogDropsUnmarked,
    /// Recovery goes on behind records that may not be durable, without writing them anew.
    LogTrustsUnmarked,
    /// The manifest is written over the old one.
    CheckpointInPlace,
    /// A checkpoint becomes the newest before its blocks are durable.
    CheckpointUnsynced,
    /// A checkpoint forgets the events that the gate holds back.
    CheckpointForgetsHeld,
    /// A checkpoint forgets the greatest time of a source, by which lateness is decided.
    CheckpointForgetsTimes,
    /// Rows are not copied before an epoch changes them that a checkpoint under way still wants as they are.
    SnapshotSavesNothing,
    /// Some epochs do not mark the rows that they change.
    SnapshotForgetsChanges,
    /// Epochs behind a snapshot mark their rows as if they were before it.
    SnapshotMixesGenerations,
    /// What a checkpoint that failed had taken is not taken again.
    SnapshotForgetsFailed,
    /// A merge of some of the runs leaves out deletions.
    MergeDropsDeletions,
    /// A merge puts the newest of its runs first.
    MergeTurnsOrder,
    /// Every fifth cold row that is looked for is taken for absent.
    ColdIsAbsent,
    /// Rows are evicted that no run has as they are.
    EvictsDirty,
    /// Rows are evicted that only a checkpoint under way has as they are.
    EvictsCopied,
    /// A checkpoint does not name what was spilled since the last one.
    CheckpointForgetsSpills,
    /// A checkpoint names what was spilled before it is durable.
    SpillsUnsynced,
    /// Rows that a checkpoint has copied hide what was spilled since.
    CheckpointHidesSpills,
    /// Files that the next checkpoint does not need are removed before the manifest names what it needs.
    CheckpointRemovesFirst,
    /// The log is cut before the checkpoint is there that replaces it.
    TruncatesFirst,
    /// Epochs are released before they are synced.
    ReleasesUnsynced,
    /// Where logging is full, results are released before it is logged which transactions they are of.
    ReleasesUnrecorded,
    /// The first epoch behind the checkpoint is not replayed.
    ReplaySkipsFirst,
    /// An epoch that the checkpoint holds is replayed.
    ReplayRepeats,
    /// A replay cuts epochs anew.
    ReplayCutsAnew,
    /// What sinks have committed is released again.
    ReplayReleasesAgain,
    /// Sources go on where the checkpoint left them, not where the log did.
    ReplayForgetsTaken,
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
