//! Reads the log of an earlier run, epoch by epoch, and compares the replayed results with it.

use crate::control::RunError;
use crate::digest::{Digests, EpochDigests, read_digests};
use crate::encoding::{Malformed, Reader};
use crate::entry::{EpochEntry, LogSchemas};
use std::sync::Arc;
use tidemill_durability::{Log, LogReader, StateError};
use tidemill_plan::Program;
use tidemill_stages::machine::Machine;

/// The beginning of the log in this run.
pub enum Start {
    /// The state is new.
    New(Box<Log>),
    /// The epochs of an earlier run have to be replayed first.
    Replay(Box<Replay>),
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    /// Epochs that were replayed.
    pub epochs: u64,
    /// The events of these epochs.
    pub events: u64,
    /// Epochs whose results an earlier run had released, but which were lost.
    pub lost: u64,
    /// The duration of the replay, nanoseconds.
    pub nanoseconds: u64,
}

/// The epochs that were logged after the checkpoint.
pub struct Replay {
    pub(crate) reader: LogReader,
    pub(crate) schemas: LogSchemas,
    pub(crate) machine: Arc<Machine>,
    pub(crate) digests: Arc<Digests>,
    /// The epoch of the checkpoint.
    pub(crate) checkpoint: u64,
    /// The path of the state, for messages.
    pub(crate) path: String,
    pub(crate) released: Option<(u64, String)>,
    pub(crate) was_weak: bool,
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayProgress {
    /// Bytes of log that were read.
    pub bytes: u64,
    /// Bytes of log in total.
    pub bytes_in_all: u64,
    /// Epochs up to this one are durable.
    pub durable: u64,
}

/// The result of a complete replay.
pub struct Replayed {
    /// The log, to be continued.
    pub log: Log,
    /// Epochs after the end of the log that were released but lost: their numbers are not used again.
    pub lost: u64,
}

impl Replay {
    /// Returns the next epoch that was logged; none after the last.
    pub fn next_epoch(&mut self) -> Result<Option<EpochEntry>, RunError> {
        let Some(logged) = self.reader.next_epoch()? else { return Ok(None) };
        let malformed = |Malformed(reason)| {
            StateError::Refused(format!("epoch {} of the log of {} does not read: {reason}", logged.epoch, self.path))
        };
        let entry = EpochEntry::read(logged.epoch, &logged.payload, &self.schemas).map_err(malformed)?;
        assert!(entry.epoch > self.checkpoint, "no epoch that the checkpoint holds is replayed");
        let mut digests = entry.digests.clone();
        for note in self.reader.take_notes() {
            digests.extend(read_digests(&mut Reader(&note), &self.schemas.committed).map_err(malformed)?);
        }
        self.compare(digests)?;
        Ok(Some(entry))
    }

    /// Returns the progress of the replay.
    pub fn progress(&self) -> ReplayProgress {
        let (bytes, bytes_in_all) = self.reader.progress();
        ReplayProgress { bytes, bytes_in_all, durable: self.reader.durable_epoch() }
    }

    /// Ends the replay: the log continues after the last epoch. Refuses if a sink has released an epoch that is
    /// missing.
    pub fn end(mut self) -> Result<Replayed, RunError> {
        let last = self.reader.epoch();
        let mut lost = 0;
        if let Some((released, sink)) = self.released.as_ref().filter(|(released, _)| *released > last) {
            if !self.was_weak {
                return Err(RunError::State(StateError::Refused(format!(
                    "the state {} ends with epoch {last}, and sink '{sink}' has released epoch {released}: epochs \
                     that were durable are missing",
                    self.path,
                ))));
            }
            lost = *released - last;
        }
        if last < self.checkpoint {
            return Err(RunError::State(StateError::Refused(format!(
                "the log of {} ends with epoch {last}, before epoch {} of the checkpoint",
                self.path, self.checkpoint,
            ))));
        }
        for note in self.reader.take_notes() {
            let malformed =
                |Malformed(reason)| StateError::Refused(format!("a note in the log does not read: {reason}"));
            self.compare(read_digests(&mut Reader(&note), &self.schemas.committed).map_err(malformed)?)?;
        }
        self.digests.read();
        let log = self.reader.into_log()?;
        assert_eq!(log.epoch(), last, "the log goes on after what was read");
        Ok(Replayed { log, lost })
    }

    /// Returns the error if the log lets more events pass than the sources have.
    pub fn too_few_events(&self, epoch: u64) -> RunError {
        RunError::State(StateError::Refused(format!(
            "epoch {epoch} of the log of {} lets more events through than there are",
            self.path
        )))
    }

    /// Compares the replayed results with the digests in the log.
    fn compare(&self, digests: EpochDigests) -> Result<(), StateError> {
        let program: &Program = &self.machine.program;
        // Epochs up to the checkpoint are not replayed.
        let mut replayed = digests.into_iter().filter(|(epoch, _)| *epoch > self.checkpoint);
        replayed.try_for_each(|(epoch, digest)| self.digests.found(epoch, digest, program))
    }
}
