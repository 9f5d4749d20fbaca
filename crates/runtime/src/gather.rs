//! The gate's thread: input in, epochs out.

use crate::durable::{DurableGate, Taken};
use crate::engine::{Control, Failure, RunError};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::gate::{Gate, SourcePosition};
use crate::inputs::{FromSource, Inputs, Nothing};
use crate::options::{EpochSize, Options};
use crate::pipeline::Pipeline;
use crate::worker::Machine;
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::Duration;
use tidemill_state::Table;

/// How long the gate waits for more input before it looks around again.
const GATE_POLL: Duration = Duration::from_micros(100);
const IDLE_POLL: Duration = Duration::from_millis(20);
/// How long input must pause before an epoch of fixed size is closed short of it, nanoseconds.
const PAUSE: u64 = 100_000_000;

/// The gate's thread.
pub struct Gatherer {
    pub machine: Arc<Machine>,
    pub environment: Arc<dyn Environment>,
    pub control: Arc<Control>,
    pub failure: Arc<Failure>,
    pub pipeline: Arc<Pipeline>,
    pub gate: Gate,
    pub slots: Receiver<Box<Epoch>>,
    /// Empty epochs that came back and were not used yet.
    #[allow(clippy::vec_box, reason = "boxed as they travel")]
    pub stash: Vec<Box<Epoch>>,
    pub slot_count: usize,
    pub inputs: Inputs,
    pub options: Options,
    /// Of the next epoch.
    pub number: u64,
    /// In a durable run.
    pub durable: Option<DurableGate>,
}

/// How the gate was left.
pub struct Gathered {
    /// Where each source stands.
    pub positions: Vec<SourcePosition>,
    /// Whether the run was stopped.
    pub stopped: bool,
    /// The gate itself, the number of the last epoch, and what a durable run knows besides.
    pub gate: Gate,
    pub epoch: u64,
    pub durable: Option<DurableGate>,
}

impl Gatherer {
    /// Gathers until the sources end or the run stops.
    pub fn run(mut self) -> Gathered {
        match self.recover() {
            Ok(true) => self.gather(),
            Ok(false) => {}
            Err(error) => self.failure.set(error),
        }
        if self.failure.is_set() {
            self.pipeline.stop();
        }
        self.pipeline.close();
        let mut positions = self.gate.positions();
        // What sources have handed over and the gate never took was read, too.
        for (source, position) in positions.iter_mut().enumerate() {
            position.held += self.inputs.untaken(source);
        }
        if let Some(durable) = &mut self.durable {
            durable.close();
        }
        let stopped = self.control.stops();
        Gathered { positions, stopped, gate: self.gate, epoch: self.number - 1, durable: self.durable }
    }

    /// Brings a durable run to where an earlier one was left; starts the sources. False if the run is
    /// stopped before it is there: then nothing new may be taken.
    fn recover(&mut self) -> Result<bool, RunError> {
        if let Some(mut durable) = self.durable.take() {
            let recovered = durable.recover(self);
            self.durable = Some(durable);
            return recovered;
        }
        (0..self.inputs.len()).for_each(|source| self.inputs.start(source, Taken::default()));
        Ok(true)
    }

    fn gather(&mut self) {
        let mut go_on = true;
        while go_on && !self.failure.is_set() {
            self.sweep();
            self.relieve();
            let Some(mut epoch) = self.slot() else { break };
            epoch.opened = self.environment.now();
            go_on = self.fill();
            let most = self.events_max();
            let empty = self.gate.ready(1) == 0 && !self.gate.has_rejects();
            if self.failure.is_set() || empty {
                self.stash.push(epoch);
                continue;
            }
            self.put(epoch, most);
        }
        // What was taken since and is held back is in the last checkpoint: the log is to have it, too, for who
        // goes through it from an earlier one.
        if !self.failure.is_set()
            && self.durable.as_ref().is_some_and(|durable| durable.intake.has_uncut())
            && let Some(epoch) = self.slot()
        {
            self.put(epoch, 0);
        }
    }

    /// Cuts the next epoch, of so many events at the most, and has it run.
    fn put(&mut self, mut epoch: Box<Epoch>, events_max: usize) {
        epoch.number = self.number;
        self.number += 1;
        self.gate.cut(events_max, &mut epoch);
        if let Some(durable) = &mut self.durable {
            durable.cut(&mut epoch, &self.gate);
        }
        self.pipeline.put(epoch);
    }

    /// Events of the next epoch at the most.
    pub fn events_max(&self) -> usize {
        let most = match self.options.epoch {
            EpochSize::Events(events) => events.max(1),
            EpochSize::Auto => self.pipeline.events_max(self.number),
            EpochSize::Age(_) => self.options.epoch_events_max,
        };
        self.durable.as_ref().map_or(most, |durable| durable.events_max.min(most))
    }

    /// Makes room for the rows of the next epoch, where memory is limited.
    fn relieve(&mut self) {
        if let Some(mut durable) = self.durable.take() {
            durable.relieve(self);
            self.durable = Some(durable);
        }
    }

    /// Takes input until the gate should close. False after the last epoch.
    fn fill(&mut self) -> bool {
        let most = self.events_max();
        let mut last_input = self.environment.now();
        loop {
            if self.failure.is_set() || self.control.stops() {
                return false;
            }
            let ready = self.gate.ready(most);
            if ready >= most {
                return true;
            }
            if self.gate.ended() {
                return ready > 0;
            }
            if (ready > 0 || self.gate.has_rejects()) && self.closes(last_input) {
                return true;
            }
            let wait = if ready > 0 { GATE_POLL } else { IDLE_POLL };
            if self.take_input(wait) {
                last_input = self.environment.now();
            }
        }
    }

    /// Whether an epoch that could still grow should be closed now.
    fn closes(&self, last_input: u64) -> bool {
        let slowest = self.gate.slowest().expect("not all sources have ended");
        let now = self.environment.now();
        let age = now.saturating_sub(self.gate.oldest_arrival().unwrap_or(now));
        let pauses = self.inputs.is_empty(slowest);
        match self.options.epoch {
            EpochSize::Auto => {
                // What comes behind takes time, too.
                let age_max = self.options.epoch_age_max.min(self.options.latency / 2);
                (pauses && self.pipeline.would_idle()) || age >= age_max
            }
            EpochSize::Age(limit) => age >= limit,
            EpochSize::Events(_) => pauses && now - last_input >= PAUSE,
        }
    }

    /// Takes one message of the source that holds the others back; false if none came in time.
    fn take_input(&mut self, wait: Duration) -> bool {
        let slowest = self.gate.slowest().expect("not all sources have ended");
        let message = match self.inputs.take(slowest, wait) {
            Ok(message) => message,
            Err(Nothing::Yet) => return false,
            Err(Nothing::Ever) => {
                self.gone();
                return false;
            }
        };
        match message {
            FromSource::Batch(batch, token, arrived) => {
                if let Some(durable) = &mut self.durable {
                    durable.take(slowest, &batch, token);
                }
                self.gate.ingest(slowest, batch, arrived.unwrap_or_else(|| self.environment.now()));
            }
            FromSource::End => self.gate.end(slowest),
            FromSource::Failed(failure) => {
                self.failure.set(self.source_failed(slowest, failure));
                self.pipeline.stop();
            }
        }
        true
    }

    /// A source's failure by its name.
    pub fn source_failed(&self, source: usize, failure: crate::io::IoFailure) -> RunError {
        let stream = self.machine.wiring.sources[source];
        RunError::Source { name: self.machine.program.streams[stream].name.clone(), failure }
    }

    /// A source's thread has gone without a last word: by request, or it panicked. The source has not ended: it is
    /// to go on in a later run.
    fn gone(&self) {
        if !self.control.stops() {
            self.failure.set(RunError::Panic("a source's thread ended early".into()));
            self.pipeline.stop();
        }
    }

    /// Frees slots of rows that do not exist, when so many were made that it may pay: waits until no
    /// epoch holds a row.
    fn sweep(&mut self) {
        if !self.machine.tables.iter().any(Table::wants_sweep) {
            return;
        }
        let epochs: Vec<_> = (0..self.slot_count).map_while(|_| self.slot()).collect();
        if epochs.len() == self.slot_count {
            for table in self.machine.tables.iter().filter(|t| t.wants_sweep()) {
                #[allow(unsafe_code)]
                // SAFETY: all epochs are here, cleared: nothing holds a row's address or text.
                unsafe {
                    table.sweep();
                }
            }
        }
        self.stash = epochs;
    }

    /// An empty epoch, as soon as there is one; none where nobody will give one back any more.
    pub fn slot(&mut self) -> Option<Box<Epoch>> {
        self.stash.pop().or_else(|| self.slots.recv().ok())
    }
}
