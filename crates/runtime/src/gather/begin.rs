//! The beginning of a run at the gate: the positions of an earlier run, its log, and where the sources go on after both.

use super::{Gatherer, Phase};
use crate::cutter::source_failed;
use crate::first_calls::FirstCalls;
use crate::inputs::{FromSource, Nothing};
use crate::replay::LogCutter;
use crate::splits::{Known, join};
use std::sync::atomic::Ordering;
use tidemill_io::{IoFailure, Resumed};
use tidemill_recovery::{Recovery, Replayed, RunError, SplitName, Start, Taken};
use tidemill_stages::actor::{Progress, Took};
use tidemill_stages::gate::Cut;

/// The interval at which the gate checks whether the run is to stop while a source that had ended is read, nanoseconds.
const ENDED_POLL: u64 = 20_000_000;

const IS_ONE_STREAM: &str = "it was read as one stream, file after file, and is to be read in splits now: a state keeps \
     what it began with; take splits=True away, or begin a new state";

impl Gatherer {
    /// Restores the positions of the sources, and starts the sources that are needed to replay the log; without a
    /// state, starts all sources.
    pub(super) fn begin(&mut self) -> Result<Progress, RunError> {
        let Some(durable) = &mut self.durable else {
            for source in 0..self.inputs.sources() {
                self.gate.send(source, self.inputs.is_sent(source));
                self.inputs.start(source, Taken::default());
            }
            self.begin_splits()?;
            self.end_unsent();
            return self.take_input();
        };
        let mut sources = std::mem::take(&mut durable.side.sources);
        for (split, at) in sources.iter().enumerate() {
            if let Some(SplitName { source, split, name }) = at.split.clone() {
                let known = Known { source, split, name, mark: at.standing.begin };
                join(known, &mut self.gate, &mut self.inputs, &mut self.idle, durable.begun)
                    .map_err(|failure| source_failed(&self.on, source, failure))?;
            } else if at.taken != Taken::default() && self.inputs.has_splits(split) {
                return Err(source_failed(&self.on, split, IoFailure::new(IS_ONE_STREAM)));
            }
            self.gate.stand(split, at.standing.clone(), durable.begun);
            self.keys.restore(split, &at.keys);
        }
        sources.resize_with(self.inputs.len(), Default::default);
        let replays: Vec<bool> = (0..sources.len()).map(|source| self.inputs.replays(source)).collect();
        let taken_before = sources.into_iter().zip(replays.iter().copied());
        durable.side.feed.intake = tidemill_recovery::Intake::new(self.inputs.sources(), taken_before);
        if durable.side.proves {
            durable.side.feed.intake.hash_taken();
        }
        let start = durable.side.take_start();
        for source in (0..replays.len()).filter(|&source| replays[source]) {
            self.resume(source)?;
        }
        match start {
            Start::New(log) => self.begin_log(Replayed { log: *log, lost: 0 }, Recovery::default()),
            Start::Replay(replay) => {
                let planted = self.durable.as_ref().expect("looked at above").side.planted;
                self.replay = Some(LogCutter::new(*replay, planted));
                self.go_on(Phase::Room)
            }
        }
    }

    /// Called after the whole log has been replayed: the log continues, and so do the sources.
    pub(super) fn begin_log(&mut self, replayed: Replayed, recovery: Recovery) -> Result<Progress, RunError> {
        assert!(self.replay.is_none(), "a log goes on after its replay");
        self.check_taken();
        let durable = self.durable.as_mut().expect("only a durable run has a log");
        let nanoseconds = self.on.environment.now() - durable.begun;
        durable.recovery = Recovery { nanoseconds, ..recovery };
        durable.side.feed.begin(replayed.log);
        self.idle.begin(self.on.environment.now());
        self.on.control.recovery.done.store(true, Ordering::Relaxed);
        if durable.side.replay_only && durable.side.ends.is_empty() {
            return Ok(self.leave());
        }
        self.go_on(Phase::PassOver(replayed.lost))
    }

    /// Checks, before the sources go on, that what the gate has of each is no more than what was taken from it.
    fn check_taken(&self) {
        let Some(durable) = &self.durable else { return };
        for split in 0..self.gate.splits() {
            let (taken, _) = durable.side.feed.intake.of(split);
            assert!(
                self.gate.has_of(split) <= taken.events,
                "a source goes on after the events that the gate has of it"
            );
        }
    }

    pub(super) fn pass_over(&mut self, lost: u64) -> Result<Progress, RunError> {
        if lost == 0 && self.ends() {
            return self.go_on(Phase::Room);
        }
        if lost == 0 {
            for source in 0..self.inputs.len() {
                self.resume(source)?;
            }
            self.begin_splits()?;
            self.end_unsent();
            return self.go_on(Phase::Ended(0));
        }
        if !self.log_has_room() {
            return self.wait(Phase::PassOver(lost), None);
        }
        match self.slots.take() {
            Took::Message(epoch) => {
                self.put(epoch, &Cut::Most(0))?;
                self.go_on(Phase::PassOver(lost - 1))
            }
            Took::Nothing => self.wait(Phase::PassOver(lost), None),
            Took::Closed => Ok(self.leave()),
        }
    }

    /// Checks that sources from this one on have nothing more if they had ended for good.
    pub(super) fn check_ended(&mut self, source: usize) -> Result<Progress, RunError> {
        if source == self.inputs.len() {
            return self.take_input();
        }
        let is_clock = self.inputs.is_clock(source);
        if self.gate.has_ended(source) && is_clock {
            self.inputs.forget(source);
        }
        if !self.gate.has_ended(source) || self.inputs.is_sent(source) || is_clock {
            return self.go_on(Phase::Ended(source + 1));
        }
        match self.inputs.receive(source) {
            Ok(FromSource::Batch(..) | FromSource::Rest(..)) => {
                let failure = IoFailure::new(
                    "it has ended for good, by --final or as the last of its input, and there is more of it now: give \
                     it as it was, or put the state back to a savepoint from before its end",
                );
                Err(self.split_failed(source, failure))
            }
            Ok(FromSource::Failed(failure)) if !failure.schema => Err(self.split_failed(source, failure)),
            Err(Nothing::Yet) if !self.on.control.ends() => {
                let until = self.on.environment.now() + ENDED_POLL;
                self.wait(Phase::Ended(source), Some(until))
            }
            // A pipe without anything has no header, either.
            Ok(FromSource::End | FromSource::UpToDate | FromSource::Failed(_)) | Err(_) => {
                self.inputs.forget(source);
                self.go_on(Phase::Ended(source + 1))
            }
        }
    }

    /// Begins to take new events.
    fn take_input(&mut self) -> Result<Progress, RunError> {
        if let Some(durable) = &self.durable {
            let (now, planted, has_session) = (self.on.environment.now(), durable.side.planted, self.session.is_some());
            self.first_calls = FirstCalls::begin(&self.gate, &self.inputs, now, planted, has_session);
            self.gate.wait_sent(self.first_calls.held_wait());
        }
        self.on.control.ready.store(true, Ordering::Release);
        self.go_on(Phase::Room)
    }

    /// Ends the input of sources that are sent to at once if there is no session, as nobody sends.
    fn end_unsent(&mut self) {
        let sent = (0..self.inputs.sources()).filter(|&source| self.inputs.is_sent(source));
        for source in sent.filter(|_| self.session.is_none()) {
            self.inputs.end(source, &mut self.gate);
        }
    }

    /// Starts a split at its position, unless it was started before.
    fn resume(&mut self, source: usize) -> Result<(), RunError> {
        let is_open = self.inputs.source(source).is_some() || self.inputs.is_started(source);
        if !is_open && self.inputs.name(source).is_some() {
            self.inputs.open(source).map_err(|failure| self.split_failed(source, failure))?;
        }
        let is_sent = self.inputs.is_sent(source);
        self.gate.send(source, is_sent);
        let durable = self.durable.as_mut().expect("only a durable run goes on");
        let intake = &mut durable.side.feed.intake;
        intake.send(source, is_sent);
        let ((taken, token), before) = (intake.of(source), intake.before(source));
        let resumed = match self.inputs.source(source) {
            Some(reader) if taken != Taken::default() => reader.resume(token.as_deref()),
            _ => Ok(Resumed::New),
        };
        let resumed = resumed.map_err(|failure| self.split_failed(source, failure))?;
        let drop = match resumed {
            Resumed::Anew => taken,
            Resumed::Given => taken.since(before),
            Resumed::Behind | Resumed::New => Taken::default(),
        };
        if resumed == Resumed::Given {
            self.again[source] = drop.events;
        }
        self.inputs.start(source, drop);
        Ok(())
    }

    fn split_failed(&self, split: usize, failure: IoFailure) -> RunError {
        source_failed(&self.on, self.inputs.source_of(split), failure)
    }
}
