//! The gate's side of a durable run: sends the taken records to the log with the epoch that they belong to, and
//! triggers a checkpoint after some epochs.

use crate::DurabilityOptions;
use crate::ahead::TooFar;
use crate::buffer_manager::BufferManager;
use crate::checkpoint::{Remembered, SourceAt};
use crate::checkpointer::{CheckpointState, Cut};
use crate::entry::{EpochEntry, JoinedSplit};
use crate::intake::Intake;
use crate::log_room::LogRoom;
use crate::logger::{LogState, Logged};
use crate::savepoints::SavepointRequest;
use crate::unkept::{Totals, Unkept};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, CallKey, Hash256, Log, Planted};
use tidemill_io::SourceBatch;
use tidemill_stages::access::snapshot::SnapshotDue;
use tidemill_stages::actor::Outbox;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::epoch::{Changes, Flaw};
use tidemill_stages::gate::{Gate, Passed};
use tidemill_state::Generation;

/// Logs the records that the gate takes and the epochs that it cuts.
pub struct LogFeed {
    /// The records taken from the sources.
    pub intake: Intake,
    /// The channel to the logger; dropped after the last epoch is cut.
    pub(crate) entries: Option<Outbox<EpochEntry>>,
    /// The channel to the logger for the log; dropped after it has begun.
    pub(crate) start: Option<Outbox<Log>>,
    /// The channel to the committer; dropped after the last message.
    pub(crate) told: Option<Outbox<Logged>>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) room: LogRoom,
}

impl LogFeed {
    /// Takes an ingested batch, after which the source is at `token`. `hash`: that of the batch, if it was made already.
    pub fn take(&mut self, source: usize, batch: &SourceBatch, token: Option<String>, hash: Option<Hash256>) {
        self.intake.take(source, batch, token, hash);
    }

    /// Takes that some of the events of the batch that is taken next are too far ahead of the clock.
    pub fn take_too_far(&mut self, source: usize, too_far: &[TooFar]) {
        self.intake.take_too_far(source, too_far);
    }

    /// Takes the key of a call, which is of the batch that is taken next, or of a push, which is that batch.
    pub fn take_key(&mut self, source: usize, key: CallKey, is_pushed: bool) {
        self.intake.take_key(source, key, is_pushed);
    }

    /// Takes a punctuation of a source.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        self.intake.punctuate(source, time);
    }

    /// Enters a split of a source that joins.
    pub fn join(&mut self, joined: JoinedSplit, replays: bool) {
        self.intake.join(joined, replays);
    }

    /// Returns whether another epoch may be cut: the number of epochs that wait for the log is below its limit.
    pub fn has_room(&self) -> bool {
        self.entries.as_ref().is_none_or(|entries| !entries.is_full())
    }

    /// Logs an epoch that was cut: these events have passed.
    pub fn cut(&mut self, epoch: u64, passed: Passed, gate: &Gate) {
        assert!(self.start.is_none(), "the log goes on before an epoch is logged");
        let entry = self.intake.cut(epoch, passed, gate);
        if let Some(entries) = &self.entries {
            // If the logger is gone, the failure is already set.
            let _ = entries.send(entry);
        }
    }

    /// Returns whether an epoch that was cut must be in the log's file before it is accessed: there may be no room for it.
    pub fn is_short_of_room(&mut self, now: u64) -> bool {
        self.room.is_short(now)
    }

    /// Returns whether an epoch is in the log's file.
    pub fn has_written(&self, epoch: u64) -> bool {
        self.log_state.written.load(Ordering::Acquire) >= epoch
    }

    /// Returns whether an epoch is durable.
    pub fn is_durable(&self, epoch: u64) -> bool {
        self.log_state.durable.load(Ordering::Acquire) >= epoch
    }

    /// Passes the log to the logger, after its whole content has been replayed.
    pub fn begin(&mut self, log: Log) {
        assert!(log.is_durable(), "a run goes on after what is durable");
        self.log_state.written.store(log.epoch(), Ordering::Release);
        self.log_state.durable.fetch_max(log.epoch(), Ordering::AcqRel);
        let start = self.start.take().expect("a log begins once");
        let _ = start.send(log);
    }

    /// Tells the committer that epochs up to this one are durable.
    pub fn tell(&self, epoch: u64) {
        assert!(self.start.is_some(), "the logger tells what is durable once the log goes on");
        self.log_state.durable.fetch_max(epoch, Ordering::AcqRel);
        self.told.iter().for_each(|told| _ = told.send(Logged { epoch, results: 0 }));
    }

    /// Called after the last epoch.
    pub fn close(&mut self) {
        (self.entries, self.start, self.told) = (None, None, None);
    }

    /// Returns the positions of the splits, immediately after a cut.
    pub fn sources(&self, gate: &Gate) -> Vec<SourceAt> {
        let at = |(source, standing)| {
            let (taken, token) = self.intake.of(source);
            SourceAt {
                standing,
                split: self.intake.split(source).cloned(),
                taken,
                token,
                keys: self.intake.keys(source),
                before: self.intake.before(source),
            }
        };
        gate.standings().into_iter().enumerate().map(at).collect()
    }
}

/// The time after which a checkpoint that found no room is tried again for the keys of calls alone, nanoseconds.
const RETRIES_AFTER: u64 = 10_000_000_000;

/// Decides with which epochs a checkpoint is due, and how epochs mark the rows that they change.
pub struct CheckpointTrigger {
    pub(crate) options: DurabilityOptions,
    pub(crate) checkpoints: Arc<CheckpointState>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) buffers: Option<Arc<BufferManager>>,
    pub(crate) remembered: Arc<Remembered>,
    pub(crate) planted: Planted,
    /// Amounts since the last checkpoint was due.
    pub(crate) unkept: Unkept,
    /// The number of checkpoints that were taken when one was due last, and the clock then.
    pub(crate) tried: Option<(u64, u64)>,
    /// The current mark; it changes after each checkpoint.
    pub(crate) generation: Generation,
    /// A flag: whether a checkpoint was due with the last epoch.
    pub(crate) is_after_due: bool,
}

impl CheckpointTrigger {
    /// Prepares an epoch that was cut, or is replayed as it was cut, to mark the rows that it changes.
    pub fn mark(&mut self, epoch: &mut Epoch) {
        assert!(epoch.input.changes.is_none(), "an epoch has one mark");
        self.unkept.add(epoch.input.events as u64);
        epoch.input.changes = Some(self.changes());
        epoch.input.is_digested = true;
    }

    /// Returns whether a checkpoint can be due with the next epoch: none is under way.
    pub fn is_free(&self) -> bool {
        !self.checkpoints.busy.load(Ordering::Acquire)
    }

    /// Requests a checkpoint at the end of an epoch that was just cut, if one is due, or if savepoints of it are wanted.
    /// `now`: the clock.
    pub fn cut(&mut self, epoch: &mut Epoch, feed: &LogFeed, gate: &Gate, savepoints: Vec<SavepointRequest>, now: u64) {
        assert!(!epoch.input.replayed, "no checkpoint is due in a replay");
        let bytes = self.log_state.bytes.load(Ordering::Relaxed);
        let totals = Totals { bytes, work: self.checkpoints.work.load(Ordering::Relaxed), now };
        let is_free = self.is_free();
        let is_due = self.unkept.is_due(&self.options, totals, is_free) || is_free && self.keys_are_due(now);
        assert!(savepoints.is_empty() || is_free, "a savepoint waits for the checkpoint under way");
        if !is_due && savepoints.is_empty() {
            return;
        }
        self.log_state.want_head(epoch.number);
        self.checkpoints.busy.store(true, Ordering::Release);
        self.unkept.begin(totals);
        self.tried = Some((self.checkpoints.count.load(Ordering::Acquire), now));
        let whole = self.checkpoints.whole.load(Ordering::Acquire);
        let live = self.buffers.as_ref().map(|buffers| buffers.cut());
        let cut = Cut { epoch: epoch.number, sources: feed.sources(gate), whole, live, savepoints };
        let before = self.checkpoints.cut.lock().replace(cut);
        assert!(before.is_none(), "one checkpoint at a time");
        epoch.input.snapshot_due = Some(SnapshotDue { generation: self.generation, whole });
        self.generation = self.generation.next();
        self.is_after_due = true;
    }

    /// Returns whether so many keys are in memory alone that a checkpoint is due; after one that failed only in a while.
    fn keys_are_due(&self, now: u64) -> bool {
        let has_failed = |(count, at): (u64, u64)| {
            count == self.checkpoints.count.load(Ordering::Acquire) && now.saturating_sub(at) < RETRIES_AFTER
        };
        !self.tried.is_some_and(has_failed) && self.remembered.answers.are_many()
    }

    /// Returns whether a checkpoint was due with the last epoch that was cut.
    pub fn is_after_due(&self) -> bool {
        self.is_after_due
    }

    /// Returns the mark of the rows that have changed since the last checkpoint.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the marking of the rows that the epoch being cut changes.
    fn changes(&mut self) -> Changes {
        let mixes = std::mem::take(&mut self.is_after_due) && self.planted.is(Bug::SnapshotMixesGenerations);
        let generation = if mixes { self.generation.next() } else { self.generation };
        let flaws = [
            (Bug::SnapshotForgetsChanges, Flaw::OmitsMarks),
            (Bug::SnapshotSavesNothing, Flaw::OmitsSaves),
            (Bug::MergeForgetsGroup, Flaw::OmitsGroup),
            (Bug::MergeRepeats, Flaw::MergesTwice),
        ];
        let flaw = flaws.into_iter().find_map(|(bug, flaw)| self.planted.is(bug).then_some(flaw));
        Changes { generation, flaw }
    }
}
