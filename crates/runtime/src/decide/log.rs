//! Decides as the log of an earlier run has it.

use super::{Decide, Decided, Decision};
use crate::cutter::{give, source_failed};
use crate::entrance::Entrance;
use crate::splits::{Known, join};
use std::sync::atomic::Ordering;
use tidemill_durability::{Bug, Planted, StateError};
use tidemill_io::SourceBatch;
use tidemill_recovery::{
    EpochEntry, Ingested, JoinedSplit, Recovery, Replay, Replayed, RunError, Taken, TimedEvents, in_order,
};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;

/// The decider of a replay: each epoch is as its entry in the log has it, and so is the input of its sources.
pub struct LogDecider {
    replay: Replay,
    /// The current epoch, and the first source of which not all records have been taken.
    entry: Option<(EpochEntry, usize)>,
    /// The epoch at hand that has what is due, until that can be taken.
    due: Option<Decided>,
    /// The decision before, as a planted bug repeats it.
    repeats: Option<Decided>,
    /// The result of the replay so far.
    recovery: Recovery,
    /// A flag: whether the log was read to its end.
    is_done: bool,
    planted: Planted,
}

impl LogDecider {
    /// Makes a decider for a replay.
    pub fn new(replay: Replay, planted: Planted) -> LogDecider {
        let recovery = Recovery::default();
        LogDecider { replay, entry: None, due: None, repeats: None, recovery, is_done: false, planted }
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

    /// Lets the splits join that joined before an epoch.
    fn join(&self, at: &mut Entrance, entry: &EpochEntry) -> Result<(), RunError> {
        for JoinedSplit { source, split, mark, name } in entry.joined.iter().cloned() {
            let (known, now) = (Known { source, split, name, mark }, at.on.environment.now());
            let joined = join(known, &mut at.gate, &mut at.inputs, &mut at.idle, now).and_then(|split| {
                if at.inputs.replays(split) {
                    at.inputs.open(split)?;
                    at.inputs.start(split, Taken::default());
                }
                Ok(())
            });
            joined.map_err(|failure| source_failed(&at.on, source, failure))?;
        }
        Ok(())
    }

    /// Passes the next source's input for the epoch to the gate; false until that input has arrived.
    fn give(&mut self, at: &mut Entrance) -> Result<bool, RunError> {
        let Some((entry, source)) = &mut self.entry else { return Ok(true) };
        let (split, now) = (*source, at.on.environment.now());
        let logged = &mut entry.sources[split];
        let failed = |failure| source_failed(&at.on, logged.source, failure);
        at.gate.send(split, logged.is_sent);
        let batches: Vec<SourceBatch> = match std::mem::replace(&mut logged.ingested, Ingested::Again) {
            Ingested::Values(batches) => batches,
            Ingested::Again if logged.taken == Taken::default() => Vec::new(),
            Ingested::Again => match at.inputs.take_exactly(split, logged.taken) {
                Ok(Some(batches)) => {
                    let hashed = logged.hashed.as_ref().filter(|_| !self.planted.is(Bug::SourceHashNotCompared));
                    hashed.map_or(Ok(()), |hashed| hashed.compare(entry.epoch, &batches)).map_err(failed)?;
                    batches
                }
                Ok(None) => return Ok(false),
                Err(failure) => return Err(failed(failure)),
            },
        };
        let program = &at.on.machine.program;
        let timed = program.sources().nth(logged.source).and_then(TimedEvents::of);
        let too_far = match self.planted.is(Bug::ReplayAsksClock) {
            true => at.ahead.decide_anew(logged.source, &batches),
            false => std::mem::take(&mut logged.too_far),
        };
        for input in in_order(batches, &logged.punctuations, &too_far, timed.as_ref()) {
            give(&mut at.gate, split, input, now);
        }
        at.gate.expect(logged.source, logged.is_open);
        if logged.ended {
            at.gate.end(split);
        }
        *source += 1;
        Ok(true)
    }

    /// Begins the next epoch of the log; returns whether there is one.
    fn begin(&mut self, at: &mut Entrance) -> Result<bool, RunError> {
        let Some(entry) = self.replay.next_epoch()? else { return Ok(false) };
        if entry.passed.due_through.is_some() && !at.on.machine.wiring.has_stretches {
            return Err(woken_otherwise(entry.epoch));
        }
        self.join(at, &entry)?;
        assert_eq!(entry.sources.len(), at.inputs.len(), "an entry has a part of each split");
        if let Some(feed) = at.feed().filter(|_| !self.planted.is(Bug::ReplayForgetsTaken)) {
            feed.intake.replayed(&entry);
        }
        if !self.planted.is(Bug::ReplayForgetsKeys) {
            let keyed = entry.sources.iter().enumerate();
            keyed.for_each(|(split, source)| at.keys.restore(split, &source.keys));
        }
        self.entry = Some((entry, 0));
        Ok(true)
    }

    /// Decides on the epoch of an entry whose input the gate has.
    fn decided(&mut self, at: &Entrance, entry: EpochEntry) -> Decision {
        let decided = Decided { epoch: entry.epoch, passed: entry.passed };
        if let Some(due) = decided.passed.due {
            self.due = Some(decided);
            return Decision::Due(due);
        }
        if self.planted.is(Bug::ReplayCutsAnew) {
            return Decision::Epoch(Decided { passed: at.gate.choose(usize::MAX), ..decided });
        }
        if self.planted.is(Bug::EntryAppliedTwice) {
            self.repeats = Some(decided.clone());
        }
        Decision::Epoch(decided)
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

impl Decide for LogDecider {
    fn decide(&mut self, at: &mut Entrance) -> Result<Decision, RunError> {
        if at.stops() {
            return Ok(Decision::Over);
        }
        if let Some(decided) = self.repeats.take() {
            return Ok(Decision::Epoch(decided));
        }
        if self.entry.is_none() && !self.begin(at)? {
            self.is_done = true;
            return Ok(Decision::Over);
        }
        let sources = at.inputs.len();
        while self.entry.as_ref().is_some_and(|(_, source)| *source < sources) {
            match self.give(at) {
                Ok(true) => {}
                Ok(false) => return Ok(Decision::Waits(at.on.environment.now() + STOP_POLL)),
                // A source that is being read again delivers nothing more, either.
                Err(_) if at.on.control.stops() => return Ok(Decision::Over),
                Err(error) => return Err(error),
            }
        }
        let (entry, _) = self.entry.take().expect("an epoch is at hand");
        Ok(self.decided(at, entry))
    }

    fn take_due(&mut self, at: &mut Entrance, from: DueCut, epoch: &mut Epoch) -> Result<Option<Decided>, RunError> {
        let decided = self.due.take().filter(|decided| decided.passed.due == Some(from));
        assert!(at.take_due(from, epoch)? && decided.is_some(), "what was due is due again");
        Ok(decided)
    }

    fn account(&mut self, at: &mut Entrance, decided: Decided, epoch: &mut Epoch, _may_keep: bool) {
        if let Some(session) = &at.session {
            session.replays(epoch);
        }
        at.mark(epoch);
        epoch.input.replayed = true;
        self.recovery.epochs += 1;
        self.recovery.events += epoch.input.events as u64;
        let (progress, shown) = (self.replay.progress(), &at.on.control.recovery);
        shown.log_bytes_in_all.store(progress.bytes_in_all, Ordering::Relaxed);
        shown.log_bytes.store(progress.bytes, Ordering::Relaxed);
        shown.events.store(self.recovery.events, Ordering::Relaxed);
        at.on.control.replayed.store(decided.epoch, Ordering::Relaxed);
        if let Some(feed) = at.feed() {
            feed.tell(progress.durable);
        }
    }

    fn too_few_events(&self, epoch: u64) -> RunError {
        self.replay.too_few_events(epoch)
    }
}
