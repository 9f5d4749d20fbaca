//! The gate's actor: gathers input into epochs.

mod begin;
mod ending;
mod joining;
mod logged;
mod room;

use self::room::Slots;
use crate::agenda::Agenda;
use crate::ahead::{Ahead, RunTime};
use crate::cutter::{Cutter, Gathering, Intake, source_failed};
use crate::first_calls::FirstCalls;
use crate::idle::raise;
use crate::inputs::Inputs;
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::replay::LogCutter;
use crate::session::at_gate::{AtGate, SessionState};
use crate::session::retries::{KeysAtGate, Retries};
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::IoFailure;
use tidemill_recovery::{GateSide, GateVitals, Left, Recovery, RunError, Shared, SourceAt, SplitVitals};
use tidemill_stages::actor::{Actor, Inbox, Progress, Took};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::{Cut, Gate, SourcePosition};
use tidemill_stages::progress::{Silence, Times};
use tidemill_state::Table;

const SENT_AFTER_END: &str = "events were sent to it after it had ended";

/// Gathers epochs and cuts them.
pub struct Gatherer {
    on: Shared,
    pipeline: Arc<Pipeline>,
    gate: Gate,
    slots: Slots,
    inputs: Inputs,
    /// The events of each source that were delivered and never taken, by source; empty until the gate is left.
    untaken: Vec<u64>,
    /// The events of what this run was given that earlier runs took, by source.
    again: Vec<u64>,
    options: Options,
    /// The number of the next epoch.
    number: u64,
    /// The number of the first epoch.
    first: u64,
    cutter: Box<dyn Cutter>,
    /// While logged epochs are replayed, cuts instead of `cutter`.
    replay: Option<LogCutter>,
    /// The state of a durable run's gate.
    durable: Option<DurableGate>,
    session: Option<AtGate>,
    first_calls: FirstCalls,
    idle: Silence,
    ahead: Ahead,
    keys: KeysAtGate,
    agenda: Agenda,
    /// The stream that may be due at the boundary at hand, and is looked at with the next epoch.
    next_due: Option<DueCut>,
    /// The last epoch that was cut, until it is in the log's file, where there may be no room for it.
    held: Option<Box<Epoch>>,
    /// The last epoch that was passed to the workers, and its punctuation.
    passed: (u64, Option<i64>),
    phase: Phase,
}

/// The gate's state in a durable run.
struct DurableGate {
    side: GateSide,
    /// The time when the run began (time of the clock).
    begun: u64,
    recovery: Recovery,
    /// The need to evict rows when nothing is in flight, if there is one; the value tells whether one epoch needs too
    /// much memory.
    short: Option<bool>,
    /// A flag: whether the gate waits for merges.
    merges: bool,
}

/// The next action.
enum Phase {
    /// Restore the positions of the sources in an earlier run.
    Begin,
    /// Make room for an epoch.
    Room,
    /// Gather the events of the epoch.
    Gather(Box<Epoch>),
    /// Once all epochs before were accessed: run what is due, from this stream on.
    Due(Box<Epoch>, DueCut),
    /// Put in this number of empty epochs, with the numbers of epochs that were released and lost: sinks do not accept
    /// these numbers again.
    PassOver(u64),
    /// Check that sources from this one on have nothing more if they had ended.
    Ended(usize),
    /// Log the records that were taken since the last cut and are held. The last checkpoint contains them, but a reader
    /// that goes through the log from an earlier checkpoint needs them, too.
    Last,
    /// Leave: there are no more epochs.
    Leave,
    Over,
}

/// The final state of the gate.
pub struct GateResult {
    /// The position of each source.
    pub positions: Vec<SourcePosition>,
    /// The events of what this run was given that earlier runs took, by source.
    pub again: Vec<u64>,
    /// A flag: whether the run was stopped.
    pub stopped: bool,
    /// The final state of gate and logger, in a durable run.
    pub left: Option<Left>,
}

/// The parts that a gatherer is made from.
pub struct GatherParts {
    pub on: Shared,
    pub pipeline: Arc<Pipeline>,
    pub inputs: Inputs,
    pub options: Options,
    pub cutter: Box<dyn Cutter>,
    /// The mailbox to which empty epochs return, and the number of epochs.
    pub slots: (Inbox<Box<Epoch>>, usize),
    /// The number of the first epoch.
    pub first: u64,
    pub durable: Option<GateSide>,
    pub session: Option<AtGate>,
    /// The time that each source may be without input, by source; empty if none is watched.
    pub idle: Vec<Option<Duration>>,
    /// The keys of calls.
    pub retries: Arc<Retries>,
    /// The time of day.
    pub time: Arc<RunTime>,
}

impl Gatherer {
    /// Makes a gatherer before the first epoch.
    pub fn new(parts: GatherParts) -> Gatherer {
        let GatherParts { on, pipeline, inputs, options, cutter, slots: (free, count), first, .. } = parts;
        let GatherParts { durable, session, idle, retries, time, .. } = parts;
        assert!(first > 0, "epochs are counted from 1");
        let mut gate = Gate::new(&on.machine.program, &on.machine.wiring.sources);
        // An evicted row is found between epochs only.
        let has_evicted = options.memory.is_some() || on.machine.tables.iter().any(Table::has_evicted_rows);
        if on.machine.wiring.wakes_within && !has_evicted {
            gate.wake_within();
        }
        let begun = on.environment.now();
        let idle = Silence::new(idle, inputs.len(), begun);
        let ahead = Ahead::new(&on.machine.program, &inputs, time);
        let durable =
            durable.map(|side| DurableGate { side, begun, recovery: Recovery::default(), short: None, merges: false });
        let agenda = Agenda::new(&on.machine);
        let slots = Slots { free, stash: Vec::new(), count };
        let (number, replay, phase) = (first, None, Phase::Begin);
        let again = vec![0; inputs.sources()];
        Gatherer {
            on,
            pipeline,
            gate,
            slots,
            inputs,
            untaken: Vec::new(),
            again,
            options,
            number,
            first,
            cutter,
            replay,
            durable,
            session,
            first_calls: FirstCalls::over(),
            idle,
            ahead,
            keys: KeysAtGate::new(retries),
            agenda,
            next_due: None,
            held: None,
            passed: (first - 1, None),
            phase,
        }
    }

    /// Returns the final state, after it is over. `log`: the logger's final log.
    pub fn end(&mut self, log: Option<tidemill_durability::Log>) -> GateResult {
        assert!(matches!(self.phase, Phase::Over), "the gate is left when it is over");
        let mut positions = self.gate.positions();
        let stopped = self.on.control.stops();
        // Batches that the sources delivered and the gate never took were read, too.
        for (source, position) in positions.iter_mut().enumerate().filter(|_| stopped) {
            position.held += self.untaken[source];
        }
        let left = self.durable.as_ref().map(|durable| Left {
            epoch: self.number - 1,
            sources: if log.is_some() { self.sources(durable, stopped) } else { Vec::new() },
            generation: durable.side.trigger.generation(),
            log,
            recovery: durable.recovery,
        });
        GateResult { positions, again: std::mem::take(&mut self.again), stopped, left }
    }

    /// Returns the positions of the splits at the end of the run, which was stopped or came to the end of its input.
    fn sources(&self, durable: &DurableGate, stopped: bool) -> Vec<SourceAt> {
        let mut sources = durable.side.feed.sources(&self.gate);
        if !stopped && !durable.side.replay_only {
            sources.iter_mut().for_each(|at| at.before = at.taken);
        }
        sources
    }

    fn advance(&mut self) -> Result<Progress, RunError> {
        if self.on.failure.is_set() {
            return Ok(self.leave());
        }
        self.answer_as_it_stands();
        self.show_if_asked();
        if !self.put_held() {
            return Ok(Progress::Waits(None));
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin => self.begin(),
            Phase::Room => self.make_room(),
            Phase::Gather(epoch) => self.gather(epoch),
            Phase::Due(epoch, at) => self.run_due(epoch, at),
            Phase::PassOver(lost) => self.pass_over(lost),
            Phase::Ended(source) => self.check_ended(source),
            Phase::Last => self.last(),
            Phase::Leave => Ok(self.leave()),
            Phase::Over => Ok(Progress::Over),
        }
    }

    /// Shows those who watch how the gate stands, if one of them asks.
    fn show_if_asked(&mut self) {
        let vitals = &self.on.control.vitals;
        if vitals.is_asked() {
            let named = |(split, mark)| SplitVitals { mark, name: self.inputs.name(split).map(str::to_owned) };
            let splits = self.gate.marks().into_iter().enumerate().map(named).collect();
            vitals.show_gate(GateVitals { positions: self.gate.positions(), splits, mark: self.gate.mark() });
        }
    }

    fn go_on(&mut self, phase: Phase) -> Result<Progress, RunError> {
        self.phase = phase;
        Ok(Progress::Worked)
    }

    fn wait(&mut self, phase: Phase, until: Option<u64>) -> Result<Progress, RunError> {
        self.phase = phase;
        Ok(Progress::Waits(until))
    }

    /// Ends the gate's work: there are no more epochs.
    fn leave(&mut self) -> Progress {
        self.phase = Phase::Over;
        if self.untaken.is_empty() {
            self.untaken = self.inputs.close();
            let unsent = self.session.iter_mut().flat_map(AtGate::close);
            unsent.for_each(|(source, events)| self.untaken[source] += events);
        }
        self.pipeline.tasks().close();
        if let Some(durable) = &mut self.durable {
            durable.side.feed.close();
        }
        Progress::Over
    }

    /// Continues gathering an epoch.
    fn gather(&mut self, epoch: Box<Epoch>) -> Result<Progress, RunError> {
        if let Some(at) = self.next_due.take() {
            return self.go_on(Phase::Due(epoch, at));
        }
        if self.replay.is_none() && self.ends() {
            return self.close_open(epoch);
        }
        let until = if self.replay.is_none() { self.look_at_first_calls() } else { None };
        let events_max = self.events_max_of_run();
        let memory_max = self.durable.as_ref().and_then(|durable| durable.side.memory.as_ref());
        let events_max = memory_max.map_or(events_max, |memory| memory.events_max().min(events_max));
        let may_keep = self.durable.as_ref().is_some_and(|durable| durable.side.trigger.is_free());
        let feed = self.durable.as_mut().map(|durable| &mut durable.side.feed);
        let mut session = SessionState::default();
        if let Some(at_gate) = self.session.as_mut().filter(|_| self.replay.is_none()) {
            let idle = &mut self.idle;
            if may_keep {
                at_gate.may_keep();
            }
            let keys = &mut self.keys;
            at_gate.calls_wait(self.first_calls.waits());
            let taken = at_gate.take(&mut self.gate, &self.inputs, idle, feed, keys, events_max);
            taken.map_err(|source| source_failed(&self.on, source, IoFailure::new(SENT_AFTER_END)))?;
            session = at_gate.state();
        }
        if self.replay.is_none() {
            self.join_found()?;
        }
        let mut feed = self.durable.as_mut().map(|durable| &mut durable.side.feed);
        if self.replay.is_none() && self.idle.is_needed() {
            let (inputs, now) = (&self.inputs, self.on.environment.now());
            let has_messages = self.session.as_ref().is_some_and(AtGate::has_messages);
            let has_input = |source| !inputs.is_empty(source) || has_messages && inputs.is_sent(source);
            raise(&mut self.idle, &mut self.gate, feed.as_deref_mut(), now, has_input);
        }
        if self.replay.is_none() && !self.agenda.boundaries.is_empty() && !self.gate.wakes_within() {
            let is_beyond = self.gate.is_beyond();
            let boundary = self.agenda.boundaries.next(Times { is_end: is_beyond, ..self.gate.times() });
            self.gate.hold_from(boundary);
            let through = if is_beyond { self.gate.first_time() } else { self.gate.complete() };
            if let Some(boundary) = boundary.filter(|&boundary| through >= Some(boundary)) {
                return self.go_on(Phase::Due(epoch, DueCut { due: 0, boundary }));
            }
        }
        let mut intake = Intake {
            idle: &mut self.idle,
            keys: &mut self.keys,
            ahead: &self.ahead,
            gate: &mut self.gate,
            inputs: &mut self.inputs,
            feed,
            session,
            calls_wait: self.first_calls.held_wait(),
            on: &self.on,
            pipeline: &self.pipeline,
            events_max,
        };
        let cutter: &mut dyn Cutter = match &mut self.replay {
            Some(replay) => replay,
            None => &mut *self.cutter,
        };
        match cutter.gather(&mut intake)? {
            Gathering::Took => self.go_on(Phase::Gather(epoch)),
            Gathering::Waits(at) => self.wait(Phase::Gather(epoch), Some(until.map_or(at, |until| until.min(at)))),
            Gathering::Cut(Cut::Due(at)) => self.go_on(Phase::Due(epoch, at)),
            Gathering::Cut(cut) => {
                self.put(epoch, &cut)?;
                self.go_on(Phase::Room)
            }
            Gathering::Over => {
                if self.replay.is_none() && self.gate.has_wakes() && !self.on.control.stops() {
                    self.put(epoch, &Cut::Most(0))?;
                    return self.go_on(Phase::Room);
                }
                if let Some(boundary) = self.due_at_the_end() {
                    return self.go_on(Phase::Due(epoch, DueCut { due: 0, boundary }));
                }
                self.slots.keep(epoch);
                let Some(replay) = self.replay.take() else { return self.go_on(Phase::Last) };
                match replay.end()? {
                    Some((replayed, recovery)) => self.begin_log(replayed, recovery),
                    None => Ok(self.leave()),
                }
            }
        }
    }

    /// Looks whether time has gone on, so that calls may be taken; returns when to look again.
    fn look_at_first_calls(&mut self) -> Option<u64> {
        if self.first_calls.is_over() {
            return None;
        }
        if self.session.as_ref().is_some_and(AtGate::is_closing) {
            self.first_calls = FirstCalls::over();
        }
        let boundary = self.agenda.boundaries.next(self.gate.times()).filter(|_| !self.gate.wakes_within());
        let is_due = boundary.is_some_and(|boundary| self.gate.complete() >= Some(boundary));
        let passes = is_due || self.gate.has_wakes() || self.gate.ready(1) > 0;
        let until = self.first_calls.look(&self.gate, &self.inputs, &self.idle, passes, &self.on);
        self.gate.wait_sent(self.first_calls.held_wait());
        until
    }

    /// Returns, at the end of time, the first boundary at which something may be due.
    fn due_at_the_end(&mut self) -> Option<i64> {
        let is_end = self.replay.is_none() && self.gate.ended() && !self.on.control.stops();
        if self.gate.wakes_within() {
            // Timers have run up to what was shown, and nothing else is open.
            return None;
        }
        if is_end { self.agenda.last_boundary(&self.on.machine, &mut self.gate) } else { None }
    }

    /// Runs what is due at a boundary, once all epochs before were accessed: the rows of one stream in one epoch. Rows that
    /// it makes due at the same boundary are in streams that come later.
    fn run_due(&mut self, mut epoch: Box<Epoch>, at: DueCut) -> Result<Progress, RunError> {
        if !self.pipeline.tasks().awaits(self.number) {
            return self.wait(Phase::Due(epoch, at), None);
        }
        let DueCut { mut due, boundary } = at;
        let is_replay = self.replay.is_some();
        // At the end of time no timer comes any more.
        let is_end = self.gate.complete() < Some(boundary);
        let times = if is_end { self.gate.times().at_end() } else { self.gate.times() };
        let mut has_events = false;
        while due < self.agenda.boundaries.len() && !has_events {
            if is_replay || self.agenda.boundaries.may_be_due(DueCut { due, boundary }, times) {
                let events = self.agenda.take(&self.on.machine, &mut self.gate, DueCut { due, boundary })?;
                has_events = events.is_some();
                epoch.input.given_due(self.inputs.sources() + due, events);
            }
            due += 1;
        }
        if has_events {
            self.put(epoch, &Cut::Due(DueCut { due: due - 1, boundary }))?;
        } else {
            assert!(!is_replay, "what was due is due again");
            self.slots.keep(epoch);
        }
        self.next_due = Some(DueCut { due, boundary }).filter(|at| at.due < self.agenda.boundaries.len() && !is_replay);
        self.go_on(Phase::Room)
    }

    /// Cuts the next epoch and passes it to the workers.
    fn put(&mut self, epoch: Box<Epoch>, cut: &Cut) -> Result<(), RunError> {
        self.put_with(epoch, cut, true)
    }

    /// Cuts the next epoch and passes it to the workers; `may_be_due` says whether a checkpoint may be due with it.
    fn put_with(&mut self, mut epoch: Box<Epoch>, cut: &Cut, may_be_due: bool) -> Result<(), RunError> {
        epoch.number = self.number;
        let is_due = matches!(cut, Cut::Due(_));
        assert!(is_due || self.next_due.is_none(), "nothing passes within what is due at one boundary");
        assert!(epoch.input.events == 0 && epoch.input.merge.is_empty() != is_due, "an epoch begins empty");
        assert!(
            epoch.input.snapshot_due.is_none() && !epoch.accessed.has_snapshot,
            "an epoch begins without a snapshot"
        );
        let last = self.gate.last_time();
        if !self.gate.cut(cut, &mut epoch) {
            let replay = self.replay.as_ref();
            let error = replay.map(|replay| replay.too_few_events(self.number));
            return Err(error.unwrap_or_else(|| RunError::Panic("a cut takes more events than there are".into())));
        }
        if let Cut::Due(at) = cut {
            epoch.input.due = Some(*at);
        }
        epoch.input.left_out = self.agenda.left_out(&self.on.machine, last, self.gate.last_time());
        match cut {
            Cut::Due(at) => self.agenda.boundaries.passes_due(*at),
            Cut::Most(_) | Cut::Exactly(_) => self.agenda.boundaries.passes(epoch.input.least_time),
        }
        self.number += 1;
        let mut savepoints = Vec::new();
        if let Some(session) = self.session.as_ref().filter(|_| self.replay.is_some()) {
            session.replays(&mut epoch);
        } else if let Some(session) = &mut self.session {
            let boundary = self.agenda.boundaries.next(self.gate.times()).filter(|_| !self.gate.wakes_within());
            let more_is_due = boundary.is_some_and(|boundary| self.gate.complete() >= Some(boundary));
            let is_free = self.durable.as_ref().is_some_and(|durable| durable.side.trigger.is_free());
            savepoints = session.cut(&mut epoch, &self.gate, more_is_due, may_be_due && is_free);
        }
        self.keys.cut(&mut epoch, &self.gate);
        if let Some(durable) = &mut self.durable {
            let side = &mut durable.side;
            side.trigger.mark(&mut epoch);
            side.memory.iter_mut().for_each(|memory| memory.cut(epoch.input.events));
            match &mut self.replay {
                Some(replay) => {
                    epoch.input.replayed = true;
                    replay.put(epoch.number, epoch.input.events, &self.on.control, &side.feed);
                }
                None => {
                    side.feed.cut(&epoch, &self.gate);
                    if may_be_due {
                        let now = self.on.environment.now();
                        side.trigger.cut(&mut epoch, &side.feed, &self.gate, savepoints, now);
                    }
                }
            }
        }
        self.put_logged(epoch);
        Ok(())
    }

    /// Returns whether one more epoch is cut: for records that were taken since the last one, or so that there is a
    /// checkpoint which says that the input came to its end.
    fn needs_last(&self) -> bool {
        let Some(DurableGate { side, .. }) = &self.durable else { return false };
        let has_checkpoint = self.number == self.first || side.trigger.is_after_due();
        side.feed.intake.has_uncut() || (has_checkpoint && side.feed.intake.has_new() && !self.on.control.stops())
    }

    /// Logs the records that were taken since the last cut and are held.
    fn last(&mut self) -> Result<Progress, RunError> {
        if self.needs_last() {
            if !self.log_has_room() {
                return self.wait(Phase::Last, None);
            }
            match self.slots.take() {
                // The checkpoint after it is taken at the end: it alone says that the input came to its end.
                Took::Message(epoch) => self.put_with(epoch, &Cut::Most(0), false)?,
                Took::Nothing => return self.wait(Phase::Last, None),
                Took::Closed => {}
            }
        }
        self.go_on(Phase::Leave)
    }
}

impl Actor for Gatherer {
    fn step(&mut self) -> Progress {
        match self.advance() {
            Ok(progress) => progress,
            Err(error) => {
                self.on.failure.set(error);
                self.leave()
            }
        }
    }
}
