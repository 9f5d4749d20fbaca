//! The beginning of a run at the gate: the positions of an earlier run, its log, and where the sources go on after both.

use super::{Gatherer, Phase};
use crate::cutter::source_failed;
use crate::decide::log::LogDecider;
use crate::first_calls::FirstCalls;
use crate::inputs::{FromSource, Nothing};
use crate::splits::{Known, join};
use std::sync::atomic::Ordering;
use tidemill_io::{IoFailure, Resumed};
use tidemill_recovery::{Recovery, Replayed, RunError, SplitName, Start, Taken};
use tidemill_stages::actor::{Progress, Took};

/// The interval at which the gate checks whether the run is to stop while a source that had ended is read, nanoseconds.
const ENDED_POLL: u64 = 20_000_000;

const IS_ONE_STREAM: &str = "it was read as one stream, file after file, and is to be read in splits now: a state keeps \
     what it began with; take splits=True away, or begin a new state";

impl Gatherer {
    /// Restores the positions of the sources, and starts the sources that are needed to replay the log; without a
    /// state, starts all sources.
    pub(super) fn begin(&mut self) -> Result<Progress, RunError> {
        let Some(durable) = &mut self.at.durable else {
            for source in 0..self.at.inputs.sources() {
                self.at.gate.send(source, self.at.inputs.is_sent(source));
                self.at.inputs.start(source, Taken::default());
            }
            self.at.begin_splits()?;
            self.end_unsent();
            return self.take_input();
        };
        let mut sources = std::mem::take(&mut durable.side.sources);
        for (split, at) in sources.iter().enumerate() {
            if let Some(SplitName { source, split, name }) = at.split.clone() {
                let known = Known { source, split, name, mark: at.standing.begin };
                join(known, &mut self.at.gate, &mut self.at.inputs, &mut self.at.idle, durable.begun)
                    .map_err(|failure| source_failed(&self.at.on, source, failure))?;
            } else if at.taken != Taken::default() && self.at.inputs.has_splits(split) {
                return Err(source_failed(&self.at.on, split, IoFailure::new(IS_ONE_STREAM)));
            }
            self.at.gate.stand(split, at.standing.clone(), durable.begun);
            self.at.keys.restore(split, &at.keys);
        }
        sources.resize_with(self.at.inputs.len(), Default::default);
        let replays: Vec<bool> = (0..sources.len()).map(|source| self.at.inputs.replays(source)).collect();
        let taken_before = sources.into_iter().zip(replays.iter().copied());
        durable.side.feed.intake = tidemill_recovery::Intake::new(self.at.inputs.sources(), taken_before);
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
                let planted = self.at.durable.as_ref().expect("looked at above").side.planted;
                self.log = Some(LogDecider::new(*replay, planted));
                self.go_on(Phase::Room)
            }
        }
    }

    /// Called after the whole log has been replayed: the log continues, and so do the sources.
    pub(super) fn begin_log(&mut self, replayed: Replayed, recovery: Recovery) -> Result<Progress, RunError> {
        assert!(self.log.is_none(), "a log goes on after its replay");
        self.check_taken();
        let durable = self.at.durable.as_mut().expect("only a durable run has a log");
        let nanoseconds = self.at.on.environment.now() - durable.begun;
        durable.recovery = Recovery { nanoseconds, ..recovery };
        durable.side.feed.begin(replayed.log);
        self.at.idle.begin(self.at.on.environment.now());
        self.at.on.control.recovery.done.store(true, Ordering::Relaxed);
        if durable.side.replay_only && durable.side.ends.is_empty() {
            return Ok(self.leave());
        }
        self.go_on(Phase::PassOver(replayed.lost))
    }

    /// Checks, before the sources go on, that what the gate has of each is no more than what was taken from it.
    fn check_taken(&self) {
        let Some(durable) = &self.at.durable else { return };
        for split in 0..self.at.gate.splits() {
            let (taken, _) = durable.side.feed.intake.of(split);
            assert!(
                self.at.gate.has_of(split) <= taken.events,
                "a source goes on after the events that the gate has of it"
            );
        }
    }

    pub(super) fn pass_over(&mut self, lost: u64) -> Result<Progress, RunError> {
        if lost == 0 && !self.at.ends().is_empty() {
            return self.go_on(Phase::Room);
        }
        if lost == 0 {
            for source in 0..self.at.inputs.len() {
                self.resume(source)?;
            }
            self.at.begin_splits()?;
            self.end_unsent();
            return self.go_on(Phase::Ended(0));
        }
        if !self.log_has_room() {
            return self.wait(Phase::PassOver(lost), None);
        }
        match self.slots.take() {
            Took::Message(epoch) => {
                self.put_empty(epoch, true)?;
                self.go_on(Phase::PassOver(lost - 1))
            }
            Took::Nothing => self.wait(Phase::PassOver(lost), None),
            Took::Closed => Ok(self.leave()),
        }
    }

    /// Checks that sources from this one on have nothing more if they had ended for good.
    pub(super) fn check_ended(&mut self, source: usize) -> Result<Progress, RunError> {
        if source == self.at.inputs.len() {
            return self.take_input();
        }
        let is_clock = self.at.inputs.is_clock(source);
        if self.at.gate.has_ended(source) && is_clock {
            self.at.inputs.forget(source);
        }
        if !self.at.gate.has_ended(source) || self.at.inputs.is_sent(source) || is_clock {
            return self.go_on(Phase::Ended(source + 1));
        }
        match self.at.inputs.receive(source) {
            Ok(FromSource::Batch(..) | FromSource::Rest(..)) => {
                let failure = IoFailure::new(
                    "it has ended for good, by --final or as the last of its input, and there is more of it now: give \
                     it as it was, or put the state back to a savepoint from before its end",
                );
                Err(self.split_failed(source, failure))
            }
            Ok(FromSource::Failed(failure)) if !failure.schema => Err(self.split_failed(source, failure)),
            Err(Nothing::Yet) if !self.at.on.control.ends() => {
                let until = self.at.on.environment.now() + ENDED_POLL;
                self.wait(Phase::Ended(source), Some(until))
            }
            // A pipe without anything has no header, either.
            Ok(FromSource::End | FromSource::UpToDate | FromSource::Failed(_)) | Err(_) => {
                self.at.inputs.forget(source);
                self.go_on(Phase::Ended(source + 1))
            }
        }
    }

    /// Begins to take new events.
    fn take_input(&mut self) -> Result<Progress, RunError> {
        if let Some(durable) = &self.at.durable {
            let (now, planted, has_session) =
                (self.at.on.environment.now(), durable.side.planted, self.at.session.is_some());
            self.live.first_calls = FirstCalls::begin(&self.at.gate, &self.at.inputs, now, planted, has_session);
            self.at.gate.wait_sent(self.live.first_calls.held_wait());
        }
        self.at.on.control.ready.store(true, Ordering::Release);
        self.go_on(Phase::Room)
    }

    /// Ends the input of sources that are sent to at once if there is no session, as nobody sends.
    fn end_unsent(&mut self) {
        let sent = (0..self.at.inputs.sources()).filter(|&source| self.at.inputs.is_sent(source));
        for source in sent.filter(|_| self.at.session.is_none()) {
            self.at.inputs.end(source, &mut self.at.gate);
        }
    }

    /// Starts a split at its position, unless it was started before.
    fn resume(&mut self, source: usize) -> Result<(), RunError> {
        let is_open = self.at.inputs.source(source).is_some() || self.at.inputs.is_started(source);
        if !is_open && self.at.inputs.name(source).is_some() {
            self.at.inputs.open(source).map_err(|failure| self.split_failed(source, failure))?;
        }
        let is_sent = self.at.inputs.is_sent(source);
        self.at.gate.send(source, is_sent);
        let durable = self.at.durable.as_mut().expect("only a durable run goes on");
        let intake = &mut durable.side.feed.intake;
        intake.send(source, is_sent);
        let ((taken, token), before) = (intake.of(source), intake.before(source));
        let resumed = match self.at.inputs.source(source) {
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
        self.at.inputs.start(source, drop);
        Ok(())
    }

    fn split_failed(&self, split: usize, failure: IoFailure) -> RunError {
        source_failed(&self.at.on, self.at.inputs.source_of(split), failure)
    }
}
