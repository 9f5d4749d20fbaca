//! The first calls of a run that goes on with clocks: time goes on before them.
//!
//! A run that was down has missed ticks, and a call that it let through at once would run at the time of the end: it would find
//! what has expired since. So the gate takes no call, and lets none pass that it holds since an earlier run, before each clock has
//! given the tick that is due, and all that may pass with it has passed, with closes and wakes (`docs/formalism.md`, "First
//! calls"). A clock whose next tick is not due yet says so ([`FromSource::UpToDate`](crate::inputs::FromSource)).
//!
//! A split that holds the ticks back holds the calls for as long as it may be silent (`idle`), counted from when input is taken;
//! without that, not at all. Either is said, and `/readyz` names the split until the tick has passed.
//!
//! **Given up.** A session that ends while calls wait waits for the tick, too, but not for ever: after [`CLOSE_WAITS_MAX`] no call is
//! taken any more, neither those that wait nor those that still come, and who made one is told that it was not made. What the
//! gate holds since an earlier run stays held, and the clocks need not tick any more for the run to end: the state has what is held, and
//! the next run begins with it. So does a run without a session, once all that it reads but its clocks has come to its end.
//! A run whose end is for good has no next one: it waits for the tick as long as it holds calls.
//!
//! # Invariant
//!
//! The order of calls, and of events that are sent without event time, stays: first come those that the gate holds, which an earlier
//! run has logged and no epoch had; then those that wait in one queue. Nothing else waits for them. None passes before the tick,
//! however the run ends: those that the gate holds stay, and those of the queue are not taken.

use crate::inputs::Inputs;
use std::time::Duration;
use tidemill_durability::{Bug, Planted};
use tidemill_recovery::{HeldTime, Shared};
use tidemill_stages::gate::Gate;
use tidemill_stages::progress::Silence;

/// A flag: whether calls may be taken.
pub struct FirstCalls {
    stage: Stage,
    /// The time when input was first taken (time of the clock).
    begun: u64,
    /// The number of looks since the split that holds the ticks back had its time.
    looks: u32,
    /// The time until which calls wait in a run that is about to end (time of the clock).
    ends: Option<u64>,
    planted: Planted,
}

/// The time for which calls wait for the tick where the run is about to end, nanoseconds.
pub const CLOSE_WAITS_MAX: u64 = 5_000_000_000;

/// Looks until calls are taken though a split holds the ticks back. Between two of them the gate takes what was sent, and raises
/// the marks of silent splits.
const LOOKS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Calls wait.
    Waits,
    /// No calls are taken any more, and those that the gate holds wait: the run is about to end.
    GivenUp,
    /// Calls are taken, though a split holds the ticks back.
    Behind,
    /// Time has gone on.
    Over,
}

/// The obstacle that keeps time from going on.
enum Held {
    Nothing,
    /// A clock has not said what is due.
    Clock,
    /// A split, for at most these nanoseconds from the beginning.
    Split(usize, Option<u64>),
}

impl FirstCalls {
    /// Returns the state of a run in which nothing waits.
    pub fn over() -> FirstCalls {
        FirstCalls { stage: Stage::Over, begun: 0, looks: 0, ends: None, planted: Planted::default() }
    }

    /// Begins the state of a run that goes on, when input is first taken. `has_session`: whether calls may come.
    pub fn begin(gate: &Gate, inputs: &Inputs, now: u64, planted: Planted, has_session: bool) -> FirstCalls {
        let has_calls = has_session || gate.holds_sent();
        let has_clock = (0..inputs.len()).any(|split| inputs.is_clock(split) && !gate.has_ended(split));
        let waits = has_calls && has_clock && gate.shown().is_some() && !planted.is(Bug::FirstCallBeforeTick);
        let stage = if waits { Stage::Waits } else { Stage::Over };
        FirstCalls { stage, begun: now, looks: 0, ends: None, planted }
    }

    /// Returns whether time has gone on.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns whether calls that come wait.
    pub fn waits(&self) -> bool {
        self.stage == Stage::Waits
    }

    /// Returns whether time has still to go on before a call passes.
    fn is_before_tick(&self) -> bool {
        matches!(self.stage, Stage::Waits | Stage::GivenUp)
    }

    /// Returns whether the calls wait that the gate holds.
    pub fn held_wait(&self) -> bool {
        self.is_before_tick() && !self.planted.is(Bug::HeldCallBeforeTick)
    }

    /// Returns whether the run waits for its clocks: for calls, or for what the gate holds where no later run has it.
    pub fn waits_for_clocks(&self, gate: &Gate, inputs: &Inputs) -> bool {
        let is_last = || (0..inputs.len()).any(|split| inputs.is_clock(split) && !inputs.pauses(split));
        self.held_wait() && (self.waits() || gate.holds_sent() && is_last())
    }

    /// Notes that the run is about to end, but for what waits for the clocks.
    pub fn ends(&mut self, now: u64) {
        self.ends.get_or_insert(now.saturating_add(CLOSE_WAITS_MAX));
    }

    /// Returns the time until which calls wait in a run that is about to end.
    pub fn wait_until(&self) -> Option<u64> {
        self.ends.filter(|_| self.waits())
    }

    /// Gives up the calls that wait and those that come; returns whether the others stay as they are.
    pub fn give_up(&mut self) -> bool {
        let stay = !self.planted.is(Bug::GivenUpCallPasses);
        self.stage = if stay { Stage::GivenUp } else { Stage::Over };
        stay
    }

    /// Looks whether time has gone on. `passes`: whether something may pass, or is due, that has not been cut. Returns when to
    /// look again, if nothing happens before.
    pub fn look(&mut self, gate: &Gate, inputs: &Inputs, idle: &Silence, passes: bool, on: &Shared) -> Option<u64> {
        if self.stage == Stage::Over {
            return None;
        }
        match self.held(gate, inputs, idle) {
            _ if on.control.ends() => *on.control.held_time.lock() = None,
            Held::Nothing if !passes => self.end(on),
            Held::Nothing | Held::Clock => {}
            Held::Split(split, after) => return self.held_by(split, after, inputs, on),
        }
        None
    }

    fn end(&mut self, on: &Shared) {
        self.stage = Stage::Over;
        *on.control.held_time.lock() = None;
    }

    fn held(&self, gate: &Gate, inputs: &Inputs, idle: &Silence) -> Held {
        match gate.slowest_of(|split| !idle.is_silent(split)) {
            None => Held::Nothing,
            // All other splits have shown as much: their ticks are not due either.
            Some(split) if inputs.is_clock(split) && inputs.is_up_to_date(split) => Held::Nothing,
            Some(split) if inputs.is_clock(split) => Held::Clock,
            Some(split) => Held::Split(split, idle.allowed(gate.progress(), split)),
        }
    }

    /// Returns the state in which a split holds the ticks back.
    fn held_by(&mut self, split: usize, after: Option<u64>, inputs: &Inputs, on: &Shared) -> Option<u64> {
        let until = match after {
            Some(after) => self.begun.saturating_add(after),
            None if self.planted.is(Bug::CallWaitsWithoutIdle) => u64::MAX,
            None => 0,
        };
        if self.is_before_tick() && on.environment.now() >= until {
            self.looks += 1;
            if self.looks > LOOKS {
                self.stage = Stage::Behind;
            }
        }
        if self.stage == Stage::GivenUp {
            return Some(until);
        }
        let stream = on.machine.wiring.sources[inputs.source_of(split)];
        on.control.hold_time(HeldTime {
            source: on.machine.program.streams[stream].name.clone(),
            split: inputs.name(split).map(str::to_owned),
            calls_wait: after.filter(|_| self.waits()).map(Duration::from_nanos),
        });
        self.waits().then_some(until)
    }
}
