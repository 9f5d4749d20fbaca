//! The end of a durable run: a last checkpoint, so that the next run begins where this one ended.

use crate::Sync;
use crate::buffer_manager::BufferManager;
use crate::checkpoint::{AtRest, Remembered, SourceAt, forget, merge, save};
use crate::checkpointer::CheckpointState;
use crate::control::RunError;
use crate::digest::{Digests, outputs_by_name};
use crate::logger::{LogState, note};
use crate::packed::PackedCodec;
use crate::replay::Recovery;
use crate::savepoints::Savepoints;
use crate::summary::DurabilitySummary;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Course, Log, Planted, StateDirectory, StateError, Written};
use tidemill_stages::machine::Machine;
use tidemill_state::Generation;

/// The work that remains after all actors are over.
pub struct Ending {
    pub(crate) directory: Arc<Mutex<StateDirectory>>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) checkpoints: Arc<CheckpointState>,
    pub(crate) digests: Arc<Digests>,
    pub(crate) buffers: Option<Arc<BufferManager>>,
    pub(crate) sync: Sync,
    pub(crate) remembered: Arc<Remembered>,
}

/// The final state of gate and logger.
pub struct Left {
    /// The last epoch that was cut.
    pub epoch: u64,
    /// The positions of the sources after the last epoch.
    pub sources: Vec<SourceAt>,
    /// The mark of the rows that have changed since the last checkpoint.
    pub generation: Generation,
    /// The log; none if a replay was aborted before the log began.
    pub log: Option<Log>,
    /// The result of the replay.
    pub recovery: Recovery,
}

impl Ending {
    /// Returns the savepoints of the state.
    pub fn savepoints(&self) -> Savepoints {
        Savepoints::of(&self.directory)
    }

    /// Returns the history of the state.
    pub fn course(&self) -> Course {
        self.directory.lock().course()
    }

    /// Returns the bug that is planted, if any.
    pub fn planted(&self) -> Planted {
        self.directory.lock().planted()
    }

    /// Stops the pauses of a checkpoint in progress: nothing else runs any more.
    pub fn hurry(&self) {
        self.checkpoints.presses.store(true, Ordering::Relaxed);
    }

    /// Takes a last checkpoint, after everything was committed.
    pub fn end(self, machine: &Machine, mut left: Left) -> Result<DurabilitySummary, RunError> {
        let epoch = left.epoch;
        let mut is_behind = false;
        // Without a log the replay was aborted: the next run begins where this one began.
        if let Some(mut log) = left.log.take() {
            assert!(log.is_durable(), "the logger has synced what it wrote");
            assert_eq!(log.epoch(), epoch, "each epoch that was cut is logged");
            note_rest(&mut log, &self.digests)?;
            let checkpoint = self.directory.lock().checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
            assert!(epoch >= checkpoint, "a checkpoint is of an epoch that was cut");
            if epoch > checkpoint {
                let released = self.checkpoints.committed.load(Ordering::Acquire);
                if released < epoch {
                    let text = format!("epochs up to {epoch} were run, and released up to {released}");
                    return Err(RunError::Panic(text));
                }
                is_behind = !self.checkpoint(machine, &mut left, log)?;
            }
        }
        Ok(DurabilitySummary {
            epoch,
            log_bytes: self.log_state.bytes.load(Ordering::Relaxed),
            checkpoints: self.checkpoints.count.load(Ordering::Relaxed),
            replayed_epochs: left.recovery.epochs,
            replayed_events: left.recovery.events,
            lost_epochs: left.recovery.lost,
            sync_seconds: match self.sync {
                Sync::Epoch => None,
                Sync::Every(every) => Some(every.as_secs_f64()),
            },
            recovery_seconds: left.recovery.nanoseconds as f64 / 1e9,
            is_behind,
            memory: self.buffers.as_ref().map(|buffers| buffers.summary()),
        })
    }

    /// Writes the checkpoint and frees the log before it. Returns false if there was no disk space, so that the next
    /// run replays the log.
    fn checkpoint(&self, machine: &Machine, left: &mut Left, mut log: Log) -> Result<bool, RunError> {
        let mut directory = self.directory.lock();
        if directory.planted().is(Bug::TruncatesFirst) {
            log.roll_now()?;
            log.truncate(left.epoch, usize::MAX)?;
        }
        let mut sources = std::mem::take(&mut left.sources);
        forget(&mut sources, directory.planted());
        for SourceAt { standing, .. } in &mut sources {
            if directory.planted().is(Bug::CheckpointForgetsHeld) {
                standing.held.clear();
                standing.places.clear();
            }
            if directory.planted().is(Bug::CheckpointForgetsTimes) {
                standing.greatest = None;
            }
        }
        let outputs = outputs_by_name(&machine.program, self.digests.total());
        let (generation, whole) = (left.generation, self.checkpoints.whole.load(Ordering::Acquire));
        let live = self.buffers.as_ref().map(|buffers| buffers.at_rest());
        let proof = log.proof().map(|chain| chain.proof());
        let state = AtRest { epoch: left.epoch, sources, outputs, generation, whole, live, proof };
        let saved = save(&mut directory, machine, state, Some(&self.remembered));
        match saved.and_then(|checkpoint| directory.switch(checkpoint)) {
            // The log has everything, and the next run replays it.
            Err(error) if error.is_no_room() => return Ok(false),
            switched => switched?,
        }
        // Everything is durable and released.
        directory.weaken(false)?;
        self.checkpoints.count.fetch_add(1, Ordering::Relaxed);
        log.roll_now()?;
        self.log_state.held_by(&mut log);
        log.truncate(left.epoch, usize::MAX)?;
        drop(directory);
        match merge(machine, &self.directory, &self.remembered.answers) {
            // The checkpoint has everything; there are more runs than usual until the next one.
            Err(error) if error.is_no_room() => {}
            merged => merged?,
        }
        if let Some(buffers) = &self.buffers {
            let mut directory = self.directory.lock();
            buffers.end(&directory, &machine.tables.raw)?;
            directory.tidy()?;
        }
        Ok(true)
    }
}

/// Logs the digests of epochs that were committed after the logger had ended.
fn note_rest(log: &mut Log, digests: &Digests) -> Result<(), StateError> {
    let rest = digests.take_unlogged(log.epoch());
    if rest.is_empty() {
        return Ok(());
    }
    note(log, &mut PackedCodec::default(), &rest);
    // Without disk space they are lost; nothing else depends on them.
    match log.write()? {
        Written::All => log.sync(),
        Written::Full(_) => Ok(()),
    }
}
