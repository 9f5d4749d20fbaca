//! The gate with what stands beside it: the inputs before it, silence, clocks and keys, the agenda, a session, and the log
//! after it. Deciders look at it, and epochs are applied to it.

mod joining;

use crate::agenda::Agenda;
use crate::ahead::Ahead;
use crate::decide::Decided;
use crate::inputs::Inputs;
use crate::options::{EpochSize, Options};
use crate::pipeline::Pipeline;
use crate::session::at_gate::AtGate;
use crate::session::retries::KeysAtGate;
use std::sync::Arc;
use tidemill_recovery::{GateSide, LogFeed, Recovery, RunError, Shared};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::Gate;
use tidemill_stages::progress::{Silence, Times};

/// The gate with what stands beside it.
pub struct Entrance {
    pub on: Shared,
    pub pipeline: Arc<Pipeline>,
    pub gate: Gate,
    pub inputs: Inputs,
    pub options: Options,
    /// The number of the next epoch.
    pub number: u64,
    /// The state of a durable run's gate.
    pub durable: Option<DurableGate>,
    pub session: Option<AtGate>,
    pub idle: Silence,
    pub ahead: Ahead,
    pub keys: KeysAtGate,
    pub agenda: Agenda,
}

/// The gate's state in a durable run.
pub struct DurableGate {
    pub side: GateSide,
    /// The time when the run began (time of the clock).
    pub begun: u64,
    pub recovery: Recovery,
    /// The need to evict rows when nothing is in flight, if there is one; the value tells whether one epoch needs too
    /// much memory.
    pub short: Option<bool>,
    /// A flag: whether the gate waits for merges.
    pub merges: bool,
}

impl Entrance {
    /// Returns whether the run is to end after this epoch.
    pub fn stops(&self) -> bool {
        self.on.failure.is_set() || self.on.control.stops()
    }

    /// Returns the names of the operators that the run ends; none in most runs.
    pub fn ends(&self) -> &[String] {
        self.durable.as_ref().map_or(&[][..], |durable| durable.side.ends.as_slice())
    }

    /// Returns the log that epochs go to, if there is one.
    pub fn feed(&mut self) -> Option<&mut LogFeed> {
        self.durable.as_mut().map(|durable| &mut durable.side.feed)
    }

    /// Returns whether a checkpoint can be due with the next epoch.
    pub fn may_keep(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.side.trigger.is_free())
    }

    /// Returns the maximum number of events of the next epoch.
    pub fn events_max(&self) -> usize {
        let events_max = self.events_max_of_run();
        let memory = self.durable.as_ref().and_then(|durable| durable.side.memory.as_ref());
        memory.map_or(events_max, |memory| memory.events_max().min(events_max))
    }

    /// Returns the maximum number of events of the next epoch, before the limit by memory.
    pub fn events_max_of_run(&self) -> usize {
        match self.options.epoch {
            EpochSize::Events(events) => events.max(1),
            EpochSize::Auto => self.pipeline.events_max(self.number),
            EpochSize::Age(_) => self.options.epoch_events_max,
        }
    }

    /// Returns whether something is due that may run now, by times that were shown.
    pub fn is_due(&self) -> bool {
        let boundary = self.agenda.boundaries.next(self.gate.times()).filter(|_| !self.gate.has_stretches());
        boundary.is_some_and(|boundary| self.gate.complete() >= Some(boundary))
    }

    /// Returns the times for what is due at a boundary: at the end of time no timer comes any more.
    pub fn times_at(&self, boundary: i64) -> Times {
        let is_end = self.gate.complete() < Some(boundary);
        if is_end { self.gate.times().at_end() } else { self.gate.times() }
    }

    /// Gives an epoch what is due of a stream at a boundary; returns whether anything is. All epochs before were accessed.
    pub fn take_due(&mut self, at: DueCut, epoch: &mut Epoch) -> Result<bool, RunError> {
        let events = self.agenda.take(&self.on.machine, &mut self.gate, at)?;
        let has_events = events.is_some();
        epoch.input.given_due(self.inputs.sources() + at.due, events);
        Ok(has_events)
    }

    /// Applies a decision: makes it the next epoch. The only way by which events pass. Returns false, and does nothing, if it
    /// takes more events than there are.
    pub fn apply(&mut self, decided: &Decided, epoch: &mut Epoch) -> bool {
        let Decided { epoch: number, passed } = decided;
        assert_eq!(*number, self.number, "each epoch is applied once, in the order of numbers");
        let is_empty = epoch.input.events == 0 && epoch.input.merge.is_empty() == passed.due.is_none();
        assert!(is_empty, "an epoch begins empty, but for what is due");
        let has_snapshot = epoch.input.snapshot_due.is_some() || epoch.accessed.has_snapshot;
        assert!(!has_snapshot, "an epoch begins without a snapshot");
        epoch.number = self.number;
        let last = self.gate.last_time();
        if !self.gate.apply(passed, epoch) {
            return false;
        }
        epoch.input.left_out = self.agenda.left_out(&self.on.machine, last, self.gate.last_time());
        match passed.due {
            Some(due) => self.agenda.boundaries.passes_due(due),
            // Access has looked at the rows, and changed them.
            None if passed.due_through.is_some() => self.agenda.boundaries.forget(),
            None => self.agenda.boundaries.passes(epoch.input.least_time),
        }
        self.number += 1;
        true
    }

    /// Notes which calls of an epoch that was applied have keys; has it mark the rows that it changes.
    pub fn mark(&mut self, epoch: &mut Epoch) {
        self.keys.cut(epoch, &self.gate);
        if let Some(durable) = &mut self.durable {
            durable.side.trigger.mark(epoch);
            durable.side.memory.iter_mut().for_each(|memory| memory.cut(epoch.input.events));
        }
    }
}
