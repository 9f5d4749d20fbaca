//! Reading the log of an earlier run, epoch by epoch, and holding what is replayed against it.

use crate::checkpoint::SourceAt;
use crate::control::RunError;
use crate::digest::{Digests, EpochDigests, read_digests};
use crate::entry::{EpochEntry, LogSchemas, Malformed, Reader};
use std::sync::Arc;
use tidemill_durability::{Log, LogReader, StateError};
use tidemill_plan::Program;
use tidemill_stages::machine::Machine;

/// Where the log begins in this run.
pub enum Start {
    /// The state is new.
    New(Log),
    /// An earlier run's epochs are to be replayed first.
    Replay(Replay),
}

/// What a run found of an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    /// Epochs that were replayed.
    pub epochs: u64,
    /// Their events.
    pub events: u64,
    /// Epochs whose results an earlier run had released, and which were lost.
    pub lost: u64,
    /// How long it took, nanoseconds.
    pub nanoseconds: u64,
}

/// Where the sources and sinks stood when the run began.
pub struct Standings {
    /// Where the sources stood in the checkpoint.
    pub sources: Vec<SourceAt>,
    /// The most that a sink has committed, and which.
    pub released: Option<(u64, String)>,
    /// Whether that may be more than is durable.
    pub was_weak: bool,
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

/// How far a replay is.
#[derive(Clone, Copy, Debug)]
pub struct ReplayProgress {
    /// Bytes of log that were read.
    pub bytes: u64,
    /// And in all.
    pub bytes_in_all: u64,
    /// Epochs up to this one are durable.
    pub durable: u64,
}

/// What is known when all was replayed.
pub struct Replayed {
    /// The log, to go on with.
    pub log: Log,
    /// Epochs after it that were released, and are lost: none takes their numbers again.
    pub lost: u64,
}

impl Replay {
    /// The next epoch that was logged; none after the last.
    pub fn next_epoch(&mut self) -> Result<Option<EpochEntry>, RunError> {
        let Some(logged) = self.reader.next_epoch()? else { return Ok(None) };
        let malformed = |Malformed(reason)| {
            StateError::Refused(format!("epoch {} of the log of {} does not read: {reason}", logged.epoch, self.path))
        };
        let entry = EpochEntry::read(logged.epoch, &logged.payload, &self.schemas).map_err(malformed)?;
        assert_eq!(entry.epoch, logged.epoch, "an entry is of the epoch of its record");
        let mut digests = entry.digests.clone();
        for note in self.reader.take_notes() {
            digests.extend(read_digests(&mut Reader(&note), &self.schemas.committed).map_err(malformed)?);
        }
        self.compare(digests)?;
        Ok(Some(entry))
    }

    /// How far it is.
    pub fn progress(&self) -> ReplayProgress {
        let (bytes, bytes_in_all) = self.reader.progress();
        ReplayProgress { bytes, bytes_in_all, durable: self.reader.durable_epoch() }
    }

    /// The log goes on after the last epoch. Refuses where a sink has released an epoch that is missing.
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

    /// The refusal where the log lets more events through than the sources have.
    pub fn too_few_events(&self, epoch: u64) -> RunError {
        RunError::State(StateError::Refused(format!(
            "epoch {epoch} of the log of {} lets more events through than there are",
            self.path
        )))
    }

    /// Holds what is replayed against what the log says came of it.
    fn compare(&self, digests: EpochDigests) -> Result<(), StateError> {
        let program: &Program = &self.machine.program;
        // Those up to the checkpoint are not replayed.
        let mut replayed = digests.into_iter().filter(|(epoch, _)| *epoch > self.checkpoint);
        replayed.try_for_each(|(epoch, digest)| self.digests.found(epoch, digest, program))
    }
}
