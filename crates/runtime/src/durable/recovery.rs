//! The gate's side of a durable run: going on after an earlier one, then logging what is taken.

use super::capture::CheckpointState;
use super::checkpoint::SourceAt;
use super::digest::{Digests, EpochDigest, EpochDigests, read_digests};
use super::entry::{EpochEntry, Ingested, LogSchemas, Malformed, Reader};
use super::eviction::Demand;
use super::intake::{Intake, Taken};
use super::logger::{LogState, Logged, Logger};
use super::packed::PackedCodec;
use super::residence::Residence;
use super::{Changes, Due, DurabilityOptions, Recovery};
use crate::engine::{Control, RunError, stopping};
use crate::environment::{Environment, Joined};
use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::gather::Gatherer;
use crate::inputs::Inputs;
use crate::io::{IoFailure, Resumed, SourceBatch};
use crossbeam_channel::{Receiver, Sender, bounded, never};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Log, LogReader, Planted, StateDirectory, StateError};
use tidemill_plan::Program;
use tidemill_state::Generation;

/// Entries that may wait for the log: it bounds what waits for it in memory.
const ENTRIES_MAX: usize = 16;

/// Where the log begins in this run.
pub enum Start {
    /// The state is new.
    New(Log),
    /// It is to be read to its end first.
    Recover(LogReader),
}

/// What the gate needs in a durable run.
pub struct DurableGate {
    /// Taken when the run begins.
    pub start: Option<Start>,
    /// The epoch of the checkpoint.
    pub checkpoint: u64,
    /// Where the sources stood in it.
    pub sources: Vec<SourceAt>,
    /// The path of the state, for messages.
    pub path: String,
    /// The most that a sink has committed, and which.
    pub released: Option<(u64, String)>,
    /// Whether that may be more than is durable.
    pub was_weak: bool,
    /// To the committer; until there is nothing more to tell.
    pub durable: Option<Sender<Logged>>,
    /// For the logger, until it is started: a word that results wait for it. None where they do not.
    pub results: Option<Receiver<()>>,
    /// Shared with the logger.
    pub log_state: Arc<LogState>,
    /// Shared with the logger.
    pub control: Arc<Control>,
    /// How.
    pub options: DurabilityOptions,
    /// The logger's thread, once it is started.
    pub logger: Arc<Mutex<Option<Box<dyn Joined>>>>,
    /// From the logger, when all is logged.
    pub logged: Option<Receiver<Log>>,
    /// What was taken of the sources.
    pub intake: Intake,
    /// To the logger; until the last epoch is cut.
    pub entries: Option<Sender<EpochEntry>>,
    /// What was replayed.
    pub recovery: Recovery,
    /// The bug that is planted, if any.
    pub planted: Planted,
    /// Shared with who takes checkpoints.
    pub checkpoints: Arc<CheckpointState>,
    /// Shared with committer and logger.
    pub digests: Arc<Digests>,
    /// Events since the last checkpoint, and the bytes that were logged when it was due.
    pub events: u64,
    pub bytes: u64,
    /// What epochs mark as; another one behind each checkpoint.
    pub generation: Generation,
    /// Whether a checkpoint was due with the epoch cut last.
    pub is_behind_due: bool,
    /// Where rows may be cold.
    pub residence: Option<Arc<Residence>>,
    /// For the runs that rows are spilled to.
    pub directory: Arc<Mutex<StateDirectory>>,
    /// To the checkpointer: rows were spilled.
    pub spilled: Sender<()>,
    /// Events of an epoch at the most, as far as memory says.
    pub events_max: usize,
    /// What events need of memory.
    pub demand: Demand,
}

impl DurableGate {
    /// A batch is ingested, behind which the source stands at `token`.
    pub fn take(&mut self, source: usize, batch: &SourceBatch, token: Option<String>) {
        self.intake.take(source, batch, token);
    }

    /// An epoch was cut: logs it.
    pub fn cut(&mut self, epoch: &mut Epoch, gate: &Gate) {
        epoch.digest = Some(EpochDigest::default());
        let entry = self.intake.cut(epoch, gate);
        self.events += epoch.events as u64;
        self.demand.events += epoch.events as u64;
        epoch.changes = Some(self.changes());
        if self.checkpoint_is_due() {
            self.checkpoint_with(epoch, gate);
        }
        if let Some(entries) = &self.entries {
            // Where the logger has gone, the failure is set.
            let _ = entries.send(entry);
        }
    }

    /// Has a checkpoint taken of the end of an epoch that was just cut.
    fn checkpoint_with(&mut self, epoch: &mut Epoch, gate: &Gate) {
        self.checkpoints.busy.store(true, Ordering::Release);
        (self.events, self.bytes) = (0, self.log_state.bytes.load(Ordering::Relaxed));
        let whole = self.checkpoints.whole.load(Ordering::Acquire);
        let live = self.residence.as_ref().map(|residence| residence.cut());
        epoch.due = Some(Due { sources: self.sources(gate), generation: self.generation, whole, live });
        self.generation = self.generation.next();
        self.is_behind_due = true;
    }

    /// How the epoch that is cut now marks what it changes.
    fn changes(&mut self) -> Changes {
        let mixes = std::mem::take(&mut self.is_behind_due) && self.planted.is(Bug::SnapshotMixesGenerations);
        let generation = if mixes { self.generation.next() } else { self.generation };
        Changes { generation, planted: self.planted }
    }

    fn checkpoint_is_due(&self) -> bool {
        let bytes = self.log_state.bytes.load(Ordering::Relaxed) - self.bytes;
        let is_long = self.events >= self.options.checkpoint_events || bytes >= self.options.checkpoint_log_bytes;
        is_long && !self.checkpoints.busy.load(Ordering::Acquire)
    }

    /// There will be no more epochs.
    pub fn close(&mut self) {
        self.entries = None;
        self.durable = None;
    }

    /// The log, when the logger has ended; none if it never began.
    pub fn end_log(&self) -> Result<Option<Log>, RunError> {
        let Some(logged) = &self.logged else { return Ok(None) };
        let ended = |_| RunError::Panic("the logger ended early".into());
        logged.recv().map(Some).map_err(ended)
    }

    /// Tells the committer up to where epochs are durable.
    fn tell(&self, epoch: u64) {
        self.log_state.durable.fetch_max(epoch, Ordering::AcqRel);
        if let Some(durable) = &self.durable {
            let _ = durable.send(Logged { epoch, results: 0 });
        }
    }

    /// Where the sources stand, right after a cut.
    pub fn sources(&self, gate: &Gate) -> Vec<SourceAt> {
        let at = |(source, standing)| {
            let (taken, token) = self.intake.of(source);
            SourceAt { standing, taken, token }
        };
        gate.standings().into_iter().enumerate().map(at).collect()
    }

    /// Replays what was logged behind the checkpoint, then starts the log and the sources. False if the
    /// run is stopped meanwhile, or was to do no more than that.
    pub fn recover(&mut self, gatherer: &mut Gatherer) -> Result<bool, RunError> {
        let now = gatherer.environment.now();
        let mut before = Vec::new();
        for (source, at) in std::mem::take(&mut self.sources).into_iter().enumerate() {
            before.push((at.taken, at.token));
            gatherer.gate.stand(source, at.standing, now);
        }
        before.resize_with(gatherer.inputs.len(), Default::default);
        let mut replays = |source| gatherer.inputs.source(source).is_some_and(|source| source.replays());
        let replays: Vec<bool> = (0..before.len()).map(&mut replays).collect();
        let intake = before.into_iter().zip(&replays).map(|((taken, token), &replays)| (taken, token, replays));
        self.intake = Intake::new(intake);
        for source in (0..replays.len()).filter(|&source| replays[source]) {
            self.resume(gatherer, source)?;
        }
        let log = match self.start.take().expect("a run begins once") {
            Start::New(log) => log,
            Start::Recover(reader) => {
                let replayed = self.replay(gatherer, reader)?;
                self.recovery.nanoseconds = gatherer.environment.now() - now;
                match replayed {
                    Some(log) => log,
                    None => return Ok(false),
                }
            }
        };
        gatherer.control.recovery.done.store(true, Ordering::Relaxed);
        self.start_log(log, gatherer.environment.clone(), gatherer);
        if self.options.replay_only {
            return Ok(false);
        }
        if !self.pass_over_lost(gatherer) {
            return Ok(false);
        }
        for source in 0..replays.len() {
            self.resume(gatherer, source)?;
        }
        Ok(true)
    }

    /// Puts an empty epoch in the place of each that was released and lost: sinks do not take its number again.
    /// False if the run is stopped meanwhile.
    fn pass_over_lost(&mut self, gatherer: &mut Gatherer) -> bool {
        for _ in 0..self.recovery.lost {
            let Some(mut epoch) = gatherer.slot() else { return false };
            epoch.number = gatherer.number;
            gatherer.number += 1;
            self.cut(&mut epoch, &gatherer.gate);
            gatherer.pipeline.put(epoch);
        }
        true
    }

    /// Starts a source where it was left, if it was not started and had not ended.
    fn resume(&self, gatherer: &mut Gatherer, source: usize) -> Result<(), RunError> {
        if gatherer.gate.has_ended(source) {
            gatherer.inputs.forget(source);
            return Ok(());
        }
        let (taken, token) = self.intake.of(source);
        let resumed = match gatherer.inputs.source(source) {
            Some(reader) if taken != Taken::default() => reader.resume(token.as_deref()),
            _ => Ok(Resumed::New),
        };
        let resumed = resumed.map_err(|failure| gatherer.source_failed(source, failure))?;
        let drop = if resumed == Resumed::Anew { taken } else { Taken::default() };
        gatherer.inputs.start(source, drop);
        Ok(())
    }

    /// Has the logged epochs go through gate and workers again. None if the run is stopped meanwhile.
    fn replay(&mut self, gatherer: &mut Gatherer, mut reader: LogReader) -> Result<Option<Log>, RunError> {
        let program = &gatherer.machine.clone().program;
        let schemas = LogSchemas::of(program);
        while let Some(logged) = reader.next_epoch()? {
            if gatherer.control.stops() || gatherer.failure.is_set() {
                return Ok(None);
            }
            let malformed = |Malformed(reason)| {
                StateError::Refused(format!(
                    "epoch {} of the log of {} does not read: {reason}",
                    logged.epoch, self.path
                ))
            };
            let entry = EpochEntry::read(logged.epoch, &logged.payload, &schemas).map_err(malformed)?;
            let mut digests = entry.digests.clone();
            for note in reader.take_notes() {
                digests.extend(read_digests(&mut Reader(&note), &schemas.committed).map_err(malformed)?);
            }
            self.compare(digests, program)?;
            self.relieve(gatherer);
            let Some(epoch) = gatherer.slot() else { return Ok(None) };
            match self.replay_epoch(gatherer, entry, epoch) {
                // A source that is read again gives no more, either.
                Err(_) if gatherer.control.stops() => return Ok(None),
                done => done?,
            }
            let (read, in_all) = reader.progress();
            let shown = &gatherer.control.recovery;
            shown.log_bytes_in_all.store(in_all, Ordering::Relaxed);
            shown.log_bytes.store(read, Ordering::Relaxed);
            shown.events.store(self.recovery.events, Ordering::Relaxed);
            self.tell(reader.durable_epoch());
        }
        if let Some((released, sink)) = &self.released
            && *released > reader.epoch()
        {
            if self.was_weak {
                self.recovery.lost = *released - reader.epoch();
                gatherer.number = reader.epoch() + 1;
            } else {
                return Err(RunError::State(StateError::Refused(format!(
                    "the state {} ends with epoch {}, and sink '{sink}' has released epoch {released}: epochs that were \
                 durable are missing",
                    self.path,
                    reader.epoch()
                ))));
            }
        }
        for note in reader.take_notes() {
            let malformed =
                |Malformed(reason)| StateError::Refused(format!("a note in the log does not read: {reason}"));
            self.compare(read_digests(&mut Reader(&note), &schemas.committed).map_err(malformed)?, program)?;
        }
        self.digests.read();
        let log = reader.into_log()?;
        self.tell(log.epoch());
        Ok(Some(log))
    }

    /// Holds what is replayed against what the log says came of it.
    fn compare(&self, digests: EpochDigests, program: &Program) -> Result<(), StateError> {
        // Those up to the checkpoint are not replayed.
        let replayed = digests.into_iter().filter(|(epoch, _)| *epoch > self.checkpoint);
        replayed.into_iter().try_for_each(|(epoch, digest)| self.digests.found(epoch, digest, program))
    }

    fn replay_epoch(
        &mut self,
        gatherer: &mut Gatherer,
        entry: EpochEntry,
        mut epoch: Box<Epoch>,
    ) -> Result<(), RunError> {
        if !self.planted.is(Bug::ReplayForgetsTaken) {
            self.intake.replayed(&entry);
        }
        let now = gatherer.environment.now();
        let counts: Vec<usize> = entry.sources.iter().map(|source| source.passed as usize).collect();
        for (source, logged) in entry.sources.into_iter().enumerate() {
            let batches = match logged.ingested {
                Ingested::Values(batches) => batches,
                Ingested::Again => again(&mut gatherer.inputs, source, logged.taken)
                    .map_err(|failure| gatherer.source_failed(source, failure))?,
            };
            batches.into_iter().for_each(|batch| gatherer.gate.ingest(source, batch, now));
            if logged.ended {
                gatherer.gate.end(source);
            }
        }
        if self.planted.is(Bug::ReplayCutsAnew) {
            gatherer.gate.cut(usize::MAX, &mut epoch);
        } else if !gatherer.gate.cut_again(&counts, &mut epoch) {
            return Err(RunError::State(StateError::Refused(format!(
                "epoch {} of the log of {} lets more events through than there are",
                entry.epoch, self.path
            ))));
        }
        epoch.number = entry.epoch;
        epoch.changes = Some(self.changes());
        epoch.replayed = true;
        epoch.digest = Some(EpochDigest::default());
        gatherer.number = entry.epoch + 1;
        self.recovery.epochs += 1;
        self.recovery.events += epoch.events as u64;
        self.events += epoch.events as u64;
        self.demand.events += epoch.events as u64;
        self.recovery.last = entry.epoch;
        gatherer.control.replayed.store(entry.epoch, Ordering::Relaxed);
        gatherer.pipeline.put(epoch);
        Ok(())
    }

    fn start_log(&mut self, log: Log, environment: Arc<dyn Environment>, gatherer: &Gatherer) {
        let (entries, waiting) = bounded(ENTRIES_MAX);
        let (sender, logged) = bounded(1);
        let results = self.results.take();
        let logger = Logger {
            log,
            entries: waiting,
            entries_over: false,
            results_over: results.is_none(),
            results: results.unwrap_or_else(never),
            results_epoch: 0,
            codec: PackedCodec::default(),
            payload: Vec::new(),
            durable: self.durable.clone().expect("the run goes on"),
            control: self.control.clone(),
            failure: gatherer.failure.clone(),
            state: self.log_state.clone(),
            digests: self.digests.clone(),
            environment: environment.clone(),
            options: self.options.clone(),
        };
        let (failure, pipeline) = (gatherer.failure.clone(), gatherer.pipeline.clone());
        let life = move |_: &_| match logger.run() {
            Ok(log) => {
                let _ = sender.send(log);
            }
            Err(error) => {
                failure.set(RunError::State(error));
                pipeline.stop();
            }
        };
        // The committer takes the end of what it is told for that of the log.
        let life = stopping(&gatherer.pipeline, &gatherer.failure, self.durable.clone(), life);
        *self.logger.lock() = Some(environment.spawn("log", life));
        self.entries = Some(entries);
        self.logged = Some(logged);
    }
}

/// Records of a source that are read again.
fn again(inputs: &mut Inputs, source: usize, taken: Taken) -> Result<Vec<SourceBatch>, IoFailure> {
    if taken == Taken::default() { Ok(Vec::new()) } else { inputs.take_exactly(source, taken) }
}
