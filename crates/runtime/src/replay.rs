//! Cuts epochs as the log of an earlier run prescribes.

use crate::cutter::{Cutter, Gathering, Intake, source_failed};
use crate::splits::{Known, join};
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Planted, StateError};
use tidemill_io::SourceBatch;
use tidemill_recovery::{
    Control, EpochEntry, Ingested, JoinedSplit, LogFeed, LoggedInput, Recovery, Replay, Replayed, RunError, Taken,
    TimedEvents, in_order,
};
use tidemill_stages::gate::{Cut, Passed};

/// Cuts the epochs of a log at their original positions, from the input that the log records for their sources.
pub struct LogCutter {
    replay: Replay,
    /// The current epoch, and the first source of which not all records have been taken.
    entry: Option<(EpochEntry, usize)>,
    /// The number of the last epoch that was cut.
    pub cut: u64,
    /// The result of the replay so far.
    pub recovery: Recovery,
    /// A flag: whether the log was read to its end.
    is_done: bool,
    planted: Planted,
}

impl LogCutter {
    /// Makes a cutter for a replay.
    pub fn new(replay: Replay, planted: Planted) -> LogCutter {
        LogCutter { replay, entry: None, cut: 0, recovery: Recovery::default(), is_done: false, planted }
    }

    /// Returns the log, to be continued, and the result of the replay; none if the run was stopped before the end of
    /// the log.
    pub fn end(self) -> Result<Option<(Replayed, Recovery)>, RunError> {
        if !self.is_done {
            return Ok(None);
        }
        let replayed = self.replay.end()?;
        let recovery = Recovery { lost: replayed.lost, ..self.recovery };
        Ok(Some((replayed, recovery)))
    }

    /// Notes that an epoch was cut with this number of events.
    pub fn put(&mut self, epoch: u64, events: usize, control: &Control, feed: &LogFeed) {
        assert!(epoch > self.cut, "epochs are logged in order");
        self.cut = epoch;
        self.recovery.epochs += 1;
        self.recovery.events += events as u64;
        let (progress, shown) = (self.replay.progress(), &control.recovery);
        shown.log_bytes_in_all.store(progress.bytes_in_all, Ordering::Relaxed);
        shown.log_bytes.store(progress.bytes, Ordering::Relaxed);
        shown.events.store(self.recovery.events, Ordering::Relaxed);
        control.replayed.store(epoch, Ordering::Relaxed);
        feed.tell(progress.durable);
    }

    /// Returns the error if the log lets more events pass than the sources have.
    pub fn too_few_events(&self, epoch: u64) -> RunError {
        self.replay.too_few_events(epoch)
    }

    /// Lets the splits join that joined before an epoch.
    fn join(&self, intake: &mut Intake<'_>, entry: &EpochEntry) -> Result<(), RunError> {
        for JoinedSplit { source, split, mark, name } in entry.joined.iter().cloned() {
            let (known, now) = (Known { source, split, name, mark }, intake.now());
            let joined = join(known, intake.gate, intake.inputs, intake.idle, now).and_then(|split| {
                if intake.inputs.replays(split) {
                    intake.inputs.open(split)?;
                    intake.inputs.start(split, Taken::default());
                }
                Ok(())
            });
            joined.map_err(|failure| source_failed(intake.on, source, failure))?;
        }
        Ok(())
    }

    /// Passes the next source's input for the epoch to the gate; false until that input has arrived.
    fn give(&mut self, intake: &mut Intake<'_>) -> Result<bool, RunError> {
        let Some((entry, source)) = &mut self.entry else { return Ok(true) };
        let (at, now) = (*source, intake.now());
        let logged = &mut entry.sources[at];
        intake.gate.send(at, logged.is_sent);
        let batches: Vec<SourceBatch> = match std::mem::replace(&mut logged.ingested, Ingested::Again) {
            Ingested::Values(batches) => batches,
            Ingested::Again if logged.taken == Taken::default() => Vec::new(),
            Ingested::Again => match intake.inputs.take_exactly(at, logged.taken) {
                Ok(Some(batches)) => {
                    let hashed = logged.hashed.as_ref().filter(|_| !self.planted.is(Bug::SourceHashNotCompared));
                    let compared = hashed.map_or(Ok(()), |hashed| hashed.compare(entry.epoch, &batches));
                    compared.map_err(|failure| source_failed(intake.on, logged.source, failure))?;
                    batches
                }
                Ok(None) => return Ok(false),
                Err(failure) => return Err(source_failed(intake.on, logged.source, failure)),
            },
        };
        let program = &intake.on.machine.program;
        let timed = program.sources().nth(logged.source).and_then(TimedEvents::of);
        let too_far = match self.planted.is(Bug::ReplayAsksClock) {
            true => intake.ahead.decide_anew(logged.source, &batches),
            false => std::mem::take(&mut logged.too_far),
        };
        for input in in_order(batches, &logged.punctuations, &too_far, timed.as_ref()) {
            match input {
                LoggedInput::Records(batch) => intake.gate.ingest(at, batch, now),
                LoggedInput::TooFar(far) => intake.gate.ingest(at, far.into_batch(), now),
                LoggedInput::Punctuation(time) => intake.gate.punctuate(at, time),
            }
        }
        intake.gate.expect(logged.source, logged.is_open);
        if logged.ended {
            intake.gate.end(at);
        }
        *source += 1;
        Ok(true)
    }
}

/// Returns why an epoch is not replayed in which rows woke between events, where the program now has an epoch for each instant of wakes.
fn woken_otherwise(epoch: u64) -> RunError {
    let why = format!(
        "epoch {epoch} of the log has rows that woke between events, which this version does in another order; go on once with the \
         version of tidemill that wrote it, to the end of a run, and then with this one"
    );
    StateError::Refused(why).into()
}

/// The interval at which to check whether the run is to stop while waiting for a source, nanoseconds.
const STOP_POLL: u64 = 20_000_000;

impl Cutter for LogCutter {
    fn gather(&mut self, intake: &mut Intake<'_>) -> Result<Gathering, RunError> {
        if intake.stops() {
            return Ok(Gathering::Over);
        }
        if self.entry.is_none() {
            let Some(entry) = self.replay.next_epoch()? else {
                self.is_done = true;
                return Ok(Gathering::Over);
            };
            if entry.wakes.is_some() && !intake.on.machine.wiring.wakes_within {
                return Err(woken_otherwise(entry.epoch));
            }
            self.join(intake, &entry)?;
            if let Some(feed) = &mut intake.feed
                && !self.planted.is(Bug::ReplayForgetsTaken)
            {
                feed.intake.replayed(&entry);
            }
            if !self.planted.is(Bug::ReplayForgetsKeys) {
                let keyed = entry.sources.iter().enumerate();
                keyed.for_each(|(split, source)| intake.keys.restore(split, &source.keys));
            }
            self.entry = Some((entry, 0));
        }
        let sources = intake.inputs.len();
        while self.entry.as_ref().is_some_and(|(_, source)| *source < sources) {
            match self.give(intake) {
                Ok(true) => {}
                Ok(false) => return Ok(Gathering::Waits(intake.now() + STOP_POLL)),
                // A source that is being read again delivers nothing more, either.
                Err(_) if intake.on.control.stops() => return Ok(Gathering::Over),
                Err(error) => return Err(error),
            }
        }
        let (entry, _) = self.entry.take().expect("an epoch is at hand");
        if let Some(due) = entry.due {
            return Ok(Gathering::Cut(Cut::Due(due)));
        }
        let counts = entry.sources.iter().map(|source| source.passed as usize).collect();
        let cuts_anew = self.planted.is(Bug::ReplayCutsAnew);
        let passed = Passed { counts, sent: entry.sent, wakes: entry.wakes };
        Ok(Gathering::Cut(if cuts_anew { Cut::Most(usize::MAX) } else { Cut::Exactly(passed) }))
    }
}
