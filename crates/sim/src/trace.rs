//! The trace of a simulation, step by step, so that two runs of one seed can be compared.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use tidemill_random::mix;
use tidemill_runtime::Progress;

/// Steps at the end of a simulation whose text is kept.
const KEPT: usize = 40;

/// A step of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Simulated nanoseconds since the beginning.
    pub time: u64,
    /// The number of the actor that was stepped.
    pub actor: usize,
    /// The result of the step.
    pub progress: Progress,
    /// Calls of the simulated storage up to the end of the step.
    pub calls: usize,
}

/// The steps of a simulation: a hash of all, and the last ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The actors' names, by number.
    names: Vec<String>,
    hash: u64,
    steps: u64,
    last: VecDeque<Event>,
}

impl Trace {
    /// Makes a trace without steps, of actors with these names.
    pub fn new(names: Vec<String>) -> Trace {
        Trace { names, hash: 0, steps: 0, last: VecDeque::with_capacity(KEPT) }
    }

    /// Adds a step.
    pub fn push(&mut self, event: Event) {
        let progress = match event.progress {
            Progress::Worked => 1,
            Progress::Waits(None) => 2,
            Progress::Waits(Some(until)) => mix(until ^ 3),
            Progress::Over => 4,
        };
        for part in [event.time, event.actor as u64, progress, event.calls as u64] {
            self.hash = mix(self.hash ^ part).wrapping_add(1);
        }
        self.steps += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(event);
    }

    /// Returns a hash that is equal for two simulations only if all their steps were equal.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} steps, hash {:016x}; the last:", self.steps, self.hash)?;
        for Event { time, actor, progress, calls } in &self.last {
            writeln!(f, "{time:>14} ns  {:<12} {progress:?}; {calls} calls", self.names[*actor])?;
        }
        Ok(())
    }
}
