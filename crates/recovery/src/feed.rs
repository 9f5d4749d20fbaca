//! The gate's side of a durable run: sends the taken records to the log with the epoch that they belong to, and
//! triggers a checkpoint after some epochs.

use crate::DurabilityOptions;
use crate::buffer_manager::BufferManager;
use crate::checkpoint::SourceAt;
use crate::checkpointer::{CheckpointState, Cut};
use crate::entry::{EpochEntry, JoinedSplit};
use crate::intake::Intake;
use crate::logger::{LogState, Logged};
use crate::savepoints::SavepointRequest;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, CallKey, Log, Planted};
use tidemill_stages::access::snapshot::SnapshotDue;
use tidemill_stages::actor::Outbox;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::epoch::{Changes, Flaw};
use tidemill_stages::gate::Gate;
use tidemill_stages::io::SourceBatch;
use tidemill_state::Generation;

/// Logs the records that the gate takes and the epochs that it cuts.
pub struct LogFeed {
    /// The records taken from the sources.
    pub intake: Intake,
    /// To the logger; dropped after the last epoch is cut.
    pub(crate) entries: Option<Outbox<EpochEntry>>,
    /// To the logger; dropped after it has begun.
    pub(crate) start: Option<Outbox<Log>>,
    /// To the committer; dropped after the last message.
    pub(crate) told: Option<Outbox<Logged>>,
    pub(crate) log_state: Arc<LogState>,
}

impl LogFeed {
    /// Takes an ingested batch, after which the source is at `token`.
    pub fn take(&mut self, source: usize, batch: &SourceBatch, token: Option<String>) {
        self.intake.take(source, batch, token);
    }

    /// Takes the key of a call, which is of the batch that is taken next.
    pub fn take_key(&mut self, source: usize, key: CallKey) {
        self.intake.take_key(source, key);
    }

    /// Takes a punctuation of a source.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        self.intake.punctuate(source, time);
    }

    /// A split of a source joins.
    pub fn join(&mut self, joined: JoinedSplit, replays: bool) {
        self.intake.join(joined, replays);
    }

    /// Whether another epoch may be cut: the number of epochs that wait for the log is below its limit.
    pub fn has_room(&self) -> bool {
        self.entries.as_ref().is_none_or(|entries| !entries.is_full())
    }

    /// Logs an epoch that was cut.
    pub fn cut(&mut self, epoch: &Epoch, gate: &Gate) {
        assert!(self.start.is_none(), "the log goes on before an epoch is logged");
        let entry = self.intake.cut(epoch, gate);
        if let Some(entries) = &self.entries {
            // If the logger is gone, the failure is already set.
            let _ = entries.send(entry);
        }
    }

    /// Passes the log to the logger, after its whole content has been replayed.
    pub fn begin(&mut self, log: Log) {
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

    /// The positions of the splits, immediately after a cut.
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

/// Decides with which epochs a checkpoint is due, and how epochs mark the rows that they change.
pub struct CheckpointTrigger {
    pub(crate) options: DurabilityOptions,
    pub(crate) checkpoints: Arc<CheckpointState>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) buffers: Option<Arc<BufferManager>>,
    pub(crate) planted: Planted,
    /// Events since the last checkpoint, and the value of the log's byte count when that checkpoint was due.
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// The current mark; it changes after each checkpoint.
    pub(crate) generation: Generation,
    /// Whether a checkpoint was due with the last epoch.
    pub(crate) is_after_due: bool,
}

impl CheckpointTrigger {
    /// Prepares an epoch that was cut, or is replayed as it was cut, to mark the rows that it changes.
    pub fn mark(&mut self, epoch: &mut Epoch) {
        assert!(epoch.input.changes.is_none(), "an epoch has one mark");
        self.events += epoch.input.events as u64;
        epoch.input.changes = Some(self.changes());
        epoch.input.is_digested = true;
    }

    /// Whether a checkpoint can be due with the next epoch: none is under way.
    pub fn is_free(&self) -> bool {
        !self.checkpoints.busy.load(Ordering::Acquire)
    }

    /// Requests a checkpoint at the end of an epoch that was just cut, if one is due, or if savepoints of it are wanted.
    pub fn cut(&mut self, epoch: &mut Epoch, feed: &LogFeed, gate: &Gate, savepoints: Vec<SavepointRequest>) {
        assert!(!epoch.input.replayed, "no checkpoint is due in a replay");
        let bytes = self.log_state.bytes.load(Ordering::Relaxed);
        assert!(self.bytes <= bytes, "the log only grows");
        let is_long =
            self.events >= self.options.checkpoint_events || bytes - self.bytes >= self.options.checkpoint_log_bytes;
        assert!(savepoints.is_empty() || self.is_free(), "a savepoint waits for the checkpoint under way");
        if (!is_long && savepoints.is_empty()) || !self.is_free() {
            return;
        }
        self.checkpoints.busy.store(true, Ordering::Release);
        (self.events, self.bytes) = (0, bytes);
        let whole = self.checkpoints.whole.load(Ordering::Acquire);
        let live = self.buffers.as_ref().map(|buffers| buffers.cut());
        let cut = Cut { epoch: epoch.number, sources: feed.sources(gate), whole, live, savepoints };
        let before = self.checkpoints.cut.lock().replace(cut);
        assert!(before.is_none(), "one checkpoint at a time");
        epoch.input.snapshot_due = Some(SnapshotDue { generation: self.generation, whole });
        self.generation = self.generation.next();
        self.is_after_due = true;
    }

    /// Whether a checkpoint was due with the last epoch that was cut.
    pub fn is_after_due(&self) -> bool {
        self.is_after_due
    }

    /// The mark of the rows that have changed since the last checkpoint.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How the epoch that is being cut marks the rows that it changes.
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
