//! The cutters, which decide where epochs are cut, where nothing else ends them: by input and load.

use crate::ahead::{Ahead, Decided};
use crate::inputs::{FromSource, Inputs, Nothing};
use crate::options::{EpochSize, Options};
use crate::pipeline::Pipeline;
use crate::session::at_gate::SessionState;
use tidemill_io::{IoFailure, SourceBatch};
use tidemill_plan::StreamId;
use tidemill_recovery::{LogFeed, LoggedInput, RunError, Shared, TooFar};
use tidemill_stages::gate::{Cut, Gate};
use tidemill_stages::progress::Silence;

/// The time that the gate waits for more input before it checks again, nanoseconds.
const GATE_POLL: u64 = 100_000;
const IDLE_POLL: u64 = 20_000_000;
/// The pause in the input after which an epoch of fixed size is closed early, nanoseconds.
const PAUSE: u64 = 100_000_000;

/// Decides where epochs are cut.
///
/// # Law
///
/// A cutter sees events only through the gate, and the events that pass are a prefix of those that the gate's invariant
/// allows (or the same as in an earlier run). So no cutter can change a result.
pub trait Cutter: Send {
    /// Continues gathering the current epoch. Called again until it returns a cut; then for the next epoch.
    fn gather(&mut self, intake: &mut Intake<'_>) -> Result<Gathering, RunError>;
}

/// The result of a cutter's step.
#[derive(Debug)]
pub enum Gathering {
    /// The cutter has taken input; there may be more.
    Took,
    /// There is nothing to take before this time of the clock, or until the gate's bell rings.
    Waits(u64),
    /// The epoch is closed with this cut.
    Cut(Cut),
    /// There is nothing more to cut.
    Over,
}

/// A cutter's view of the run: the gate, the sources before it, and the log after it.
pub struct Intake<'a> {
    pub(crate) gate: &'a mut Gate,
    pub(crate) inputs: &'a mut Inputs,
    pub(crate) feed: Option<&'a mut LogFeed>,
    pub(crate) on: &'a Shared,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) session: SessionState,
    pub(crate) clocks_go_on: ClocksGoOn,
    pub(crate) idle: &'a mut Silence,
    pub(crate) ahead: &'a Ahead,
    /// The maximum number of events of the epoch.
    pub(crate) events_max: usize,
}

/// The inputs for which clocks go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClocksGoOn {
    /// Other sources that do.
    WithOthers,
    /// Calls, too, which wait for a tick.
    ForCalls,
    /// Nothing but such calls. Set where the clocks would end otherwise.
    ForCallsAlone,
}

/// The result of taking input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// A batch or an end of input was taken.
    Something,
    /// Nothing has arrived yet.
    Nothing,
    /// Nothing will arrive: the run was asked to stop.
    Stopped,
}

impl Intake<'_> {
    /// Returns the gate.
    pub fn gate(&self) -> &Gate {
        self.gate
    }

    /// Returns the time by the clock.
    pub fn now(&self) -> u64 {
        self.on.environment.now()
    }

    /// Returns whether the run is to end after this epoch.
    pub fn stops(&self) -> bool {
        self.on.failure.is_set() || self.on.control.stops()
    }

    /// Returns the maximum number of events of the epoch, by memory and load.
    pub fn events_max(&self) -> usize {
        self.events_max
    }

    /// Returns the source to take from next: the one with the smallest low mark, because no other source can let more
    /// events pass. Where a paused source holds back every event that may come, only sources are read on that give this
    /// run what no later one can read.
    pub fn source(&self) -> Option<usize> {
        if let Some(source) = self.idle.silent().find(|&source| !self.inputs.is_empty(source)) {
            return Some(source);
        }
        let is_held_back = self.idle.is_held_back(self.gate.progress());
        let stays = |s| self.gate.has_paused(s) || (is_held_back && self.inputs.replays(s));
        let heard = self.gate.slowest_of(|s| !stays(s) && !self.idle.is_silent(s));
        heard.or_else(|| self.gate.slowest_of(|s| !stays(s)))
    }

    /// Returns the time at which the clock raises a paused split, if sources that it holds back are to be read on then.
    fn waits_for_silence(&self) -> Option<u64> {
        let goes_on = self.gate.slowest_of(|split| !self.gate.has_paused(split)).is_some();
        self.idle.holds_until(self.gate.progress()).filter(|_| goes_on)
    }

    /// Ends the input of the clocks where no other source has more: a run does not go on for its clocks, unless it has no
    /// other sources at all.
    fn end_clocks(&mut self) {
        let count = self.inputs.len();
        let is_over = |gate: &Gate, source| gate.has_ended(source) || gate.has_paused(source);
        let (inputs, gate) = (&self.inputs, &self.gate);
        let goes_on = |source| !inputs.is_clock(source) && !is_over(gate, source);
        if self.session.is_open || self.inputs.watches() || (0..count).any(goes_on) {
            return;
        }
        if !self.session.is_there && (0..count).all(|source| inputs.is_clock(source)) {
            return;
        }
        if self.clocks_go_on != ClocksGoOn::WithOthers {
            self.clocks_go_on = ClocksGoOn::ForCallsAlone;
            return;
        }
        for source in 0..count {
            if self.inputs.is_clock(source) && !is_over(self.gate, source) {
                self.inputs.end(source, self.gate);
                self.inputs.forget(source);
            }
        }
    }

    /// Takes the next message of a source.
    pub fn take(&mut self, source: usize) -> Result<Taking, RunError> {
        match self.inputs.take(source) {
            Ok(FromSource::Batch(batch, token, arrived, hash)) => {
                let too_far = match self.ahead.decide(self.gate.source_of(source), &batch.events) {
                    Decided::None => Vec::new(),
                    Decided::These(too_far) => too_far,
                    Decided::NotYet => {
                        self.inputs.give_back(source, FromSource::Batch(batch, token, arrived, hash));
                        return Ok(Taking::Nothing);
                    }
                };
                if let Some(feed) = &mut self.feed {
                    feed.take_too_far(source, &too_far);
                    feed.take(source, &batch, token, hash);
                }
                let now = self.on.environment.now();
                self.idle.heard(source, now);
                self.inputs.is_now_up_to_date(source);
                self.ingest(source, batch, &too_far, arrived.unwrap_or(now));
                Ok(Taking::Something)
            }
            Ok(FromSource::UpToDate) => {
                self.inputs.is_now_up_to_date(source);
                Ok(Taking::Something)
            }
            Ok(FromSource::End) => {
                self.inputs.end(source, self.gate);
                Ok(Taking::Something)
            }
            Ok(FromSource::Rest(..)) => unreachable!("it is not taken"),
            Ok(FromSource::Failed(failure)) => Err(source_failed(self.on, self.gate.source_of(source), failure)),
            Err(Nothing::Yet) => Ok(Taking::Nothing),
            // The source has not ended: a later run will continue it.
            Err(Nothing::Ever) if self.on.control.stops() => Ok(Taking::Stopped),
            Err(Nothing::Ever) => Err(RunError::Panic("the reader of a source ended early".into())),
        }
    }

    /// Passes a batch of a split to the gate; some of its events are too far ahead of the clock.
    fn ingest(&mut self, split: usize, batch: SourceBatch, too_far: &[TooFar], arrived: u64) {
        if too_far.is_empty() {
            return self.gate.ingest(split, batch, arrived);
        }
        for input in self.ahead.divide(self.gate.source_of(split), batch, too_far) {
            give(self.gate, split, input, arrived);
        }
    }
}

/// Gives the gate input of a split that arrived at a time of the clock.
pub(crate) fn give(gate: &mut Gate, split: usize, input: LoggedInput, arrived: u64) {
    match input {
        LoggedInput::Records(batch) => gate.ingest(split, batch, arrived),
        LoggedInput::TooFar(far) => gate.ingest(split, far.into_batch(), arrived),
        LoggedInput::Punctuation(time) => gate.punctuate(split, time),
    }
}

/// Returns a source's failure, with the source's name.
pub(crate) fn source_failed(on: &Shared, source: usize, failure: IoFailure) -> RunError {
    let stream: StreamId = on.machine.wiring.sources[source];
    RunError::Source { name: on.machine.program.streams[stream].name.clone(), failure }
}

/// Cuts by input: an epoch is closed when it is large enough or old enough, or when access would idle.
pub struct LocalCutter {
    options: Options,
    /// The time at which input was last taken for the current epoch; none before it begins.
    last_input: Option<u64>,
    /// A flag: whether the last epoch was cut because the run was asked to stop.
    is_over: bool,
}

impl LocalCutter {
    /// Makes a cutter that follows these options.
    pub fn new(options: Options) -> LocalCutter {
        LocalCutter { options, last_input: None, is_over: false }
    }

    /// Returns whether to close an epoch now although it could still grow.
    fn closes(&self, intake: &Intake<'_>, slowest: Option<usize>, last_input: u64) -> bool {
        let now = intake.now();
        let age = now.saturating_sub(intake.gate.oldest_arrival().unwrap_or(now));
        let pauses = slowest.is_none_or(|slowest| intake.inputs.is_empty(slowest));
        match self.options.epoch {
            EpochSize::Auto => {
                // The stages after the gate take time, too.
                let age_max = self.options.epoch_age_max.min(self.options.latency / 2);
                (pauses && intake.pipeline.tasks().would_idle()) || age >= age_max
            }
            // Timers and closes have no age.
            EpochSize::Age(limit) => {
                let has_none = intake.gate.oldest_arrival().is_none();
                age >= limit || (has_none && pauses && intake.pipeline.tasks().would_idle())
            }
            EpochSize::Events(_) => pauses && now.saturating_sub(last_input) >= PAUSE,
        }
    }

    fn cut(&mut self, intake: &Intake<'_>) -> Gathering {
        self.last_input = None;
        Gathering::Cut(Cut::Most(intake.events_max))
    }

    /// Cuts the events that may pass and the late and bad records, if there are any.
    fn last(&mut self, intake: &Intake<'_>) -> Gathering {
        let is_empty = intake.gate.ready(1) == 0 && !intake.gate.has_rejects();
        if is_empty || self.is_over { Gathering::Over } else { self.cut(intake) }
    }

    /// Cuts the last epoch: the run is to end after it.
    fn stop(&mut self, intake: &Intake<'_>) -> Gathering {
        let gathering = self.last(intake);
        self.is_over = true;
        gathering
    }
}

impl Cutter for LocalCutter {
    fn gather(&mut self, intake: &mut Intake<'_>) -> Result<Gathering, RunError> {
        let last_input = *self.last_input.get_or_insert_with(|| intake.now());
        if intake.stops() {
            return Ok(self.stop(intake));
        }
        let most = intake.events_max;
        let ready = intake.gate.ready(most);
        if ready >= most || intake.session.asks || (ready > 0 && intake.gate.is_held_by_boundary()) {
            return Ok(self.cut(intake));
        }
        intake.end_clocks();
        let slowest = intake.source();
        let silence = if slowest.is_none() { intake.waits_for_silence() } else { None };
        if slowest.is_none() && silence.is_none() && !intake.session.is_open && !intake.inputs.watches() {
            return Ok(self.last(intake));
        }
        let is_empty = ready == 0 && !intake.gate.has_rejects() && !intake.gate.is_due_within();
        if !is_empty && self.closes(intake, slowest, last_input) {
            return Ok(self.cut(intake));
        }
        match slowest.map_or(Ok(Taking::Nothing), |slowest| intake.take(slowest))? {
            Taking::Something => {
                self.last_input = Some(intake.now());
                Ok(Gathering::Took)
            }
            Taking::Nothing => {
                let (now, poll) = (intake.now(), if ready > 0 { GATE_POLL } else { IDLE_POLL });
                Ok(Gathering::Waits(silence.map_or(now + poll, |silence| silence.clamp(now + GATE_POLL, now + poll))))
            }
            Taking::Stopped => Ok(self.stop(intake)),
        }
    }
}
