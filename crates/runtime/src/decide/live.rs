//! Decides by what comes: input, sessions, silence, what is due, and the load.

use super::dividing::{Dividing, Rule};
use super::ending::close_open;
use super::{Decide, Decided, Decision};
use crate::cutter::{ClocksGoOn, Cutter, Gathering, Intake, source_failed};
use crate::entrance::Entrance;
use crate::first_calls::{CLOSE_WAITS_MAX, FirstCalls};
use crate::idle::raise;
use crate::session::at_gate::{AtGate, SessionState};
use std::time::Duration;
use tidemill_io::IoFailure;
use tidemill_recovery::{RunError, SavepointRequest};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::Passed;
use tidemill_stages::progress::Times;

const SENT_AFTER_END: &str = "events were sent to it after it had ended";

/// The decider of all epochs that no log has.
pub struct LiveDecider {
    /// The part that decides where epochs are cut, where nothing is due.
    cutter: Box<dyn Cutter>,
    pub first_calls: FirstCalls,
    /// The choice whether what is due divides epochs.
    dividing: Dividing,
    /// The stream that may be due at the boundary at hand, and is looked at with the next epoch.
    next_due: Option<DueCut>,
}

impl LiveDecider {
    /// Makes a decider that cuts epochs as this cutter does. `divides`: the rule by which what is due divides them.
    pub fn new(cutter: Box<dyn Cutter>, divides: Rule) -> LiveDecider {
        LiveDecider { cutter, first_calls: FirstCalls::over(), dividing: Dividing::new(divides), next_due: None }
    }

    /// Looks whether time has gone on, so that calls may be taken; returns when to look again.
    fn look_at_first_calls(&mut self, at: &mut Entrance) -> Option<u64> {
        if self.first_calls.is_over() {
            return None;
        }
        let ends = self.give_up_first_calls(at);
        let passes = at.is_due() || at.gate.is_due_within() || at.gate.ready(1) > 0;
        let until = self.first_calls.look(&at.gate, &at.inputs, &at.idle, passes, &at.on);
        at.gate.wait_sent(self.first_calls.held_wait());
        until.into_iter().chain(ends).min()
    }

    /// Gives calls up that have waited for too long in a run that is about to end; returns when to look again, where it is.
    fn give_up_first_calls(&mut self, at: &mut Entrance) -> Option<u64> {
        let now = at.on.environment.now();
        if at.session.as_ref().is_some_and(AtGate::ends) {
            self.first_calls.ends(now);
        }
        let until = self.first_calls.wait_until()?;
        if now < until {
            return Some(until);
        }
        let stay = self.first_calls.give_up();
        let events = at.session.as_mut().map_or(0, |session| session.give_up(&at.gate, stay));
        let is_last = self.first_calls.waits_for_clocks(&at.gate, &at.inputs);
        if let Some(remark) = given_up(events, at.gate.sent_held(), is_last) {
            at.on.control.remark(remark);
        }
        None
    }

    /// Takes what a session says.
    fn hear(&self, at: &mut Entrance, events_max: usize) -> Result<SessionState, RunError> {
        let may_keep = at.may_keep();
        let Entrance { session, gate, inputs, idle, keys, durable, on, .. } = at;
        let Some(session) = session else { return Ok(SessionState::default()) };
        if may_keep {
            session.may_keep();
        }
        session.calls_wait(self.first_calls.waits());
        let feed = durable.as_mut().map(|durable| &mut durable.side.feed);
        let taken = session.take(gate, inputs, idle, feed, keys, events_max);
        taken.map_err(|source| source_failed(on, source, IoFailure::new(SENT_AFTER_END)))?;
        Ok(session.state())
    }

    /// Returns the boundary at which something may be due now, and has nothing pass before it has run.
    fn boundary(&mut self, at: &mut Entrance) -> Option<i64> {
        if at.agenda.boundaries.is_empty() {
            return None;
        }
        at.gate.divide(self.dividing.divides(at.pipeline.boundaries()));
        if at.gate.has_stretches() {
            return None;
        }
        let is_beyond = at.gate.is_beyond();
        let boundary = at.agenda.boundaries.next(Times { is_end: is_beyond, ..at.gate.times() });
        at.gate.hold_from(boundary);
        let through = if is_beyond { at.gate.first_time() } else { at.gate.complete() };
        boundary.filter(|&boundary| through >= Some(boundary))
    }

    /// Has the cutter decide.
    fn cut(&mut self, at: &mut Entrance, session: SessionState, events_max: usize) -> Result<Gathering, RunError> {
        let waits = self.first_calls.waits_for_clocks(&at.gate, &at.inputs);
        let mut intake = Intake {
            idle: &mut at.idle,
            ahead: &at.ahead,
            gate: &mut at.gate,
            inputs: &mut at.inputs,
            feed: at.durable.as_mut().map(|durable| &mut durable.side.feed),
            session,
            clocks_go_on: if waits { ClocksGoOn::ForCalls } else { ClocksGoOn::WithOthers },
            on: &at.on,
            pipeline: &at.pipeline,
            events_max,
        };
        let gathering = self.cutter.gather(&mut intake);
        if intake.clocks_go_on == ClocksGoOn::ForCallsAlone {
            self.first_calls.ends(at.on.environment.now());
        }
        gathering
    }

    /// Returns the boundary at which something may be due at the end of time.
    fn boundary_at_the_end(at: &mut Entrance) -> Option<i64> {
        if !at.gate.ended() || at.on.control.stops() {
            return None;
        }
        at.agenda.last_boundary(&at.on.machine, &mut at.gate)
    }

    /// Notes what a session wants of an epoch that was applied; the savepoints to keep of it.
    fn answer(at: &mut Entrance, epoch: &mut Epoch, may_keep: bool) -> Vec<SavepointRequest> {
        let (more_is_due, is_free) = (at.session.is_some() && at.is_due(), at.may_keep());
        let session = at.session.as_mut();
        session.map_or(Vec::new(), |session| session.cut(epoch, &at.gate, more_is_due, may_keep && is_free))
    }

    /// Decides where there is nothing more to cut.
    fn end(at: &mut Entrance) -> Decision {
        if at.gate.is_due_within() && !at.on.control.stops() {
            return Decision::Epoch(next(at, at.gate.choose(0)));
        }
        match LiveDecider::boundary_at_the_end(at) {
            Some(boundary) => Decision::Due(DueCut { due: 0, boundary }),
            None => Decision::Over,
        }
    }
}

/// Returns what is said of calls that are given up: of so many that waited, and so many that the gate holds. `is_last`: no later run has
/// these.
fn given_up(waited: u64, held: usize, is_last: bool) -> Option<String> {
    let waited = (waited > 0).then(|| format!("what waited for it was not taken ({waited} calls or events)"));
    let until = if is_last { "so the run waits for it" } else { "which stay for the next run" };
    let held = (held > 0).then(|| format!("an earlier run has logged {held} calls or events, {until}"));
    let said = waited.into_iter().chain(held).reduce(|waited, held| format!("{waited}; {held}"))?;
    let seconds = Duration::from_nanos(CLOSE_WAITS_MAX).as_secs();
    Some(format!("the run is to end, and the tick of a clock has not come for {seconds} s: {said}"))
}

/// Returns the decision that the next epoch takes these events.
pub fn next(at: &Entrance, passed: Passed) -> Decided {
    Decided { epoch: at.number, passed }
}

impl Decide for LiveDecider {
    fn decide(&mut self, at: &mut Entrance) -> Result<Decision, RunError> {
        if let Some(due) = self.next_due.take() {
            return Ok(Decision::Due(due));
        }
        if !at.ends().is_empty() {
            return Ok(close_open(at));
        }
        let until = self.look_at_first_calls(at);
        let events_max = at.events_max();
        let session = self.hear(at, events_max)?;
        at.join_found()?;
        if at.idle.is_needed() {
            raise_silent(at);
        }
        if let Some(boundary) = self.boundary(at) {
            self.dividing.passes_boundary();
            return Ok(Decision::Due(DueCut { due: 0, boundary }));
        }
        Ok(match self.cut(at, session, events_max)? {
            Gathering::Took => Decision::Took,
            Gathering::Waits(time) => Decision::Waits(until.map_or(time, |until| until.min(time))),
            Gathering::Cut(cut) => Decision::Epoch(next(at, at.gate.chosen(cut))),
            Gathering::Over => LiveDecider::end(at),
        })
    }

    /// Rows that the due ones make due at the same boundary are in streams that come later.
    fn take_due(&mut self, at: &mut Entrance, from: DueCut, epoch: &mut Epoch) -> Result<Option<Decided>, RunError> {
        let times = at.times_at(from.boundary);
        let mut streams = (from.due..at.agenda.boundaries.len()).map(|due| DueCut { due, ..from });
        while let Some(due) = streams.next() {
            if at.agenda.boundaries.may_be_due(due, times) && at.take_due(due, epoch)? {
                self.next_due = streams.next();
                return Ok(Some(next(at, at.gate.choose_due(due))));
            }
        }
        Ok(None)
    }

    fn account(&mut self, at: &mut Entrance, decided: Decided, epoch: &mut Epoch, may_keep: bool) {
        let Decided { epoch: number, passed } = decided;
        assert!(passed.due.is_some() || self.next_due.is_none(), "nothing passes within what is due at one boundary");
        self.dividing.passes(epoch.input.events);
        let savepoints = LiveDecider::answer(at, epoch, may_keep);
        at.mark(epoch);
        if let Some(durable) = &mut at.durable {
            let side = &mut durable.side;
            side.feed.cut(number, passed, &at.gate);
            if may_keep {
                let now = at.on.environment.now();
                side.trigger.cut(epoch, &side.feed, &at.gate, savepoints, now);
            }
        }
    }

    fn too_few_events(&self, _epoch: u64) -> RunError {
        RunError::Panic("a cut takes more events than there are".into())
    }
}

/// Raises the marks of silent sources.
fn raise_silent(at: &mut Entrance) {
    let (inputs, now) = (&at.inputs, at.on.environment.now());
    let has_messages = at.session.as_ref().is_some_and(AtGate::has_messages);
    let has_input = |source| !inputs.is_empty(source) || has_messages && inputs.is_sent(source);
    let feed = at.durable.as_mut().map(|durable| &mut durable.side.feed);
    raise(&mut at.idle, &mut at.gate, feed, now, has_input);
}
