//! Bugs planted on purpose.
//!
//! A test harness that never found anything may be blind. So each promise has bugs that break it. They are in the
//! code, behind a switch that only tests can turn on (the feature `planted`), and the tests show that each is
//! noticed. Without the feature [`Planted::is`] is the constant `false`.

use crate::storage::{Open, Storage, directory_of};
use std::io;
use std::path::Path;

/// Replaces a file in the wrong way, unlike [`crate::replace`]: a crash may leave neither the old content nor the new.
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
    /// A sink treats an epoch that it has committed as a new one.
    SinkTakesOldEpochs,
    /// A sink's recovery keeps output that was not committed.
    SinkKeepsTail,
    /// A sink's abort keeps the output written.
    SinkKeepsAborted,
    /// A sink records everything written, not only the prepared part.
    SinkCommitsUnprepared,
    /// A sink records an epoch before its data is durable.
    SinkRecordsFirst,
    /// A sink writes its record over the old one.
    SinkRecordsInPlace,
    /// A sink believes a damaged record.
    SinkTrustsRecord,
    /// A sink continues after an existing part of its output without verifying the checksum.
    SinkTrustsPart,
    /// A sink goes on after a failure as if there had been none.
    SinkForgetsErrors,
    /// A sink continues the output of another state's run.
    SinkIgnoresOwner,
    /// A sink cuts off what a later copy of its state has released.
    SinkIgnoresNote,
    /// A sink gives its output the final name and does not record it.
    SinkFinishesUnrecorded,
    /// A finished sink that goes on begins its output anew.
    SinkRestartsFinished,
    /// A sink commits without the data that it still buffers.
    SinkBuffersBeyondCommit,
    /// A sink begins its text with a header after each recovery.
    SinkRepeatsHeader,
    /// A sink's compressed text continues across a commit in one frame.
    SinkFramesAcrossCommits,
    /// A sink does not record epochs that wrote nothing, though a checkpoint relies on them.
    SinkSkipsEmptyEpochs,
    /// A sink syncs and records epochs that wrote nothing.
    SilentSinkSyncs,
    /// The log is not synced.
    LogUnsynced,
    /// Zeros are written ahead of a record from where the log is durable on, over the records that wait for a sync.
    LogFillsUnsynced,
    /// A record says that data is durable before the data is synced.
    LogMarksUnsynced,
    /// A record's check is not verified.
    LogUnchecked,
    /// Recovery continues after a torn record.
    LogKeepsTornTail,
    /// Recovery drops the records that no marker says were durable.
    LogDropsUnmarked,
    /// Recovery continues after records that may not be durable, without writing them anew.
    LogTrustsUnmarked,
    /// The hash of an entry leaves out its epoch.
    HeadLeavesOutEpoch,
    /// A head is shown before its entry is durable.
    ShowsHeadEarly,
    /// A run begins a new chain, although the state has one.
    ChainBeginsAnew,
    /// The hash of what was taken from a source is not compared with what it gives again.
    SourceHashNotCompared,
    /// The manifest is written over the old one.
    CheckpointInPlace,
    /// A checkpoint becomes the newest before its blocks are durable.
    CheckpointUnsynced,
    /// A checkpoint forgets the events that the gate holds back.
    CheckpointForgetsHeld,
    /// A checkpoint forgets the greatest time of a source, by which lateness is decided.
    CheckpointForgetsTimes,
    /// An epoch changes rows before they are copied for a checkpoint in progress, which needs their earlier version.
    SnapshotSavesNothing,
    /// Some epochs do not mark the rows that they change.
    SnapshotForgetsChanges,
    /// Epochs after a snapshot mark their rows as if they were before it.
    SnapshotMixesGenerations,
    /// The rows that a failed checkpoint had taken are not taken again.
    SnapshotForgetsFailed,
    /// Some epochs do not merge all groups of events that they folded.
    MergeForgetsGroup,
    /// Some epochs merge the groups of events that they folded twice.
    MergeRepeats,
    /// A merge of some of the runs leaves out deletions.
    MergeDropsDeletions,
    /// A merge puts the newest of its runs first.
    MergeTurnsOrder,
    /// Every fifth evicted row that is looked up is treated as absent.
    EvictedIsAbsent,
    /// Rows are evicted although no run has their current version.
    EvictsDirty,
    /// Rows are evicted although only a checkpoint in progress has their current version.
    EvictsCopied,
    /// A checkpoint does not name the rows spilled since the last one.
    CheckpointForgetsSpills,
    /// A checkpoint names spilled rows before they are durable.
    SpillsUnsynced,
    /// Rows that a checkpoint has copied hide rows spilled since.
    CheckpointHidesSpills,
    /// Files that the next checkpoint does not need are removed before the manifest names those that it needs.
    CheckpointRemovesFirst,
    /// The log is truncated before the checkpoint that replaces it exists.
    TruncatesFirst,
    /// Epochs are released before they are synced.
    ReleasesUnsynced,
    /// Epochs are released when they are written, and synced later.
    ReleasesWritten,
    /// With full logging, results are released before the log records which transactions they belong to.
    ReleasesUnrecorded,
    /// The first epoch after the checkpoint is not replayed.
    ReplaySkipsFirst,
    /// An epoch that the checkpoint holds is replayed.
    ReplayRepeats,
    /// A replay applies the entry of an epoch twice.
    EntryAppliedTwice,
    /// A replay cuts epochs anew.
    ReplayCutsAnew,
    /// Output that sinks have committed is released again.
    ReplayReleasesAgain,
    /// Sources continue where the checkpoint left them, not where the log did.
    ReplayForgetsTaken,
    /// A replay asks its clock which events are too far ahead of it.
    ReplayAsksClock,
    /// A replay forgets the keys of calls that the log has.
    ReplayForgetsKeys,
    /// The answers that a checkpoint has are forgotten.
    CheckpointForgetsAnswers,
    /// A lookup of a key leaves out the newest run of keys.
    FilterForgetsRun,
    /// A run of keys is removed before the time of its keys is over.
    KeyRunsExpireEarly,
    /// A run begins without the events of streams that its checkpoint has kept.
    CheckpointForgetsKept,
    /// A checkpoint forgets the keys of calls that the gate holds back.
    CheckpointForgetsKeys,
    /// A call that is made again is answered before the epoch of the first is durable.
    AnswersAgainUnsynced,
    /// A call that is made again with other arguments is answered as the first one.
    AnswersOtherArguments,
    /// Calls are answered when their epoch has run, before it is durable.
    AnswersUnsynced,
    /// A run that goes on takes calls before the tick of its clock.
    FirstCallBeforeTick,
    /// A run that goes on lets calls pass before the tick of its clock that an earlier run has logged and no epoch had.
    HeldCallBeforeTick,
    /// A run that ends gives up the calls that wait for the tick of its clock, and lets those pass that come later or are held.
    GivenUpCallPasses,
    /// The first calls wait for a split that may be silent for ever.
    CallWaitsWithoutIdle,
    /// The log does not have the order between the sources of what was sent.
    LogForgetsOrder,
    /// A checkpoint forgets the order between the sources of the calls that the gate holds back.
    CheckpointForgetsOrder,
    /// A checkpoint forgets the events of batches that are not full.
    CheckpointForgetsBatches,
    /// A migration takes over what is open of an operator whose definition is another.
    OpenTakenOver,
    /// A migration that drops a column neither keeps a savepoint nor says so.
    DropsUnsaid,
    /// A follower that goes on after a place gets the events of its epoch before the place again.
    FollowerRepeats,
    /// A position of another history is taken for one of the present.
    FollowerIgnoresCourse,
    /// The holder of a lock does not compare what it has locked with what has the name.
    LockNotCompared,
    /// A server applies a limit to clients of HTTP, and not to those of PostgreSQL.
    LimitOfOneProtocol,
    /// A server counts a place twice that a client takes.
    ShareCountsTwice,
    /// A server closes a connection whose client takes what it is sent, but slowly.
    TimeoutEndsSlowClient,
}

/// The planted bug: always none outside of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(#[cfg(feature = "planted")] Option<Bug>);

impl Planted {
    /// Plants this bug.
    #[cfg(feature = "planted")]
    pub fn new(bug: Bug) -> Planted {
        Planted(Some(bug))
    }

    /// Returns whether this bug is planted.
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
