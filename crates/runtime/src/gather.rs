//! The gate's actor: has epochs decided ([`decide`](crate::decide)), applies them, and passes them to the workers.

mod begin;
mod logged;
mod room;

use self::room::Slots;
use crate::agenda::Agenda;
use crate::ahead::{Ahead, RunTime};
use crate::cutter::Cutter;
use crate::decide::live::{LiveDecider, next};
use crate::decide::log::LogDecider;
use crate::decide::{Decide, Decided, Decision, Divides};
use crate::entrance::{DurableGate, Entrance};
use crate::inputs::Inputs;
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::session::at_gate::AtGate;
use crate::session::retries::{KeysAtGate, Retries};
use std::sync::Arc;
use std::time::Duration;
use tidemill_recovery::{GateSide, GateVitals, Left, Recovery, RunError, Shared, SourceAt, SplitVitals};
use tidemill_stages::actor::{Actor, Inbox, Progress, Took};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::{Gate, SourcePosition};
use tidemill_stages::machine::Machine;
use tidemill_stages::progress::Silence;
use tidemill_state::Table;

/// Applies epochs to the gate, as they are decided.
pub struct Gatherer {
    at: Entrance,
    /// The decider of all epochs that no log has.
    live: LiveDecider,
    /// The decider while logged epochs are replayed.
    log: Option<LogDecider>,
    slots: Slots,
    /// The events of each source that were delivered and never taken, by source; empty until the gate is left.
    untaken: Vec<u64>,
    /// The events of what this run was given that earlier runs took, by source.
    again: Vec<u64>,
    /// The number of the first epoch.
    first: u64,
    /// The last epoch that was applied, until it is in the log's file, where there may be no room for it.
    held: Option<Box<Epoch>>,
    /// The last epoch that was passed to the workers, and its punctuation.
    passed: (u64, Option<i64>),
    phase: Phase,
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
        let gate = Gate::new(&on.machine.program, &on.machine.wiring.sources);
        let divides = divides(&on.machine, &options);
        let begun = on.environment.now();
        let idle = Silence::new(idle, inputs.len(), begun);
        let ahead = Ahead::new(&on.machine.program, &inputs, time);
        let durable =
            durable.map(|side| DurableGate { side, begun, recovery: Recovery::default(), short: None, merges: false });
        let agenda = Agenda::new(&on.machine);
        let slots = Slots { free, stash: Vec::new(), count };
        let again = vec![0; inputs.sources()];
        let keys = KeysAtGate::new(retries);
        let at = Entrance {
            on,
            pipeline,
            gate,
            inputs,
            options,
            number: first,
            durable,
            session,
            idle,
            ahead,
            keys,
            agenda,
        };
        Gatherer {
            at,
            live: LiveDecider::new(cutter, divides),
            log: None,
            slots,
            untaken: Vec::new(),
            again,
            first,
            held: None,
            passed: (first - 1, None),
            phase: Phase::Begin,
        }
    }

    /// Returns the final state, after it is over. `log`: the logger's final log.
    pub fn end(&mut self, log: Option<tidemill_durability::Log>) -> GateResult {
        assert!(matches!(self.phase, Phase::Over), "the gate is left when it is over");
        let mut positions = self.at.gate.positions();
        let stopped = self.at.on.control.stops();
        // Batches that the sources delivered and the gate never took were read, too.
        for (source, position) in positions.iter_mut().enumerate().filter(|_| stopped) {
            position.held += self.untaken[source];
        }
        let left = self.at.durable.as_ref().map(|durable| Left {
            epoch: self.at.number - 1,
            sources: if log.is_some() { self.sources(durable, stopped) } else { Vec::new() },
            generation: durable.side.trigger.generation(),
            log,
            recovery: durable.recovery,
        });
        GateResult { positions, again: std::mem::take(&mut self.again), stopped, left }
    }

    /// Returns the positions of the splits at the end of the run, which was stopped or came to the end of its input.
    fn sources(&self, durable: &DurableGate, stopped: bool) -> Vec<SourceAt> {
        let mut sources = durable.side.feed.sources(&self.at.gate);
        if !stopped && !durable.side.replay_only {
            sources.iter_mut().for_each(|at| at.before = at.taken);
        }
        sources
    }

    fn advance(&mut self) -> Result<Progress, RunError> {
        if self.at.on.failure.is_set() {
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
        let vitals = &self.at.on.control.vitals;
        if vitals.is_asked() {
            let named = |(split, mark)| SplitVitals { mark, name: self.at.inputs.name(split).map(str::to_owned) };
            let splits = self.at.gate.marks().into_iter().enumerate().map(named).collect();
            vitals.show_gate(GateVitals { positions: self.at.gate.positions(), splits, mark: self.at.gate.mark() });
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
            self.untaken = self.at.inputs.close();
            let unsent = self.at.session.iter_mut().flat_map(AtGate::close);
            unsent.for_each(|(source, events)| self.untaken[source] += events);
        }
        self.at.pipeline.tasks().close();
        if let Some(durable) = &mut self.at.durable {
            durable.side.feed.close();
        }
        Progress::Over
    }

    /// Returns the decider, and what it looks at.
    fn decider(&mut self) -> (&mut dyn Decide, &mut Entrance) {
        let decider: &mut dyn Decide = match &mut self.log {
            Some(log) => log,
            None => &mut self.live,
        };
        (decider, &mut self.at)
    }

    /// Goes on until it is decided what the next epoch is.
    fn gather(&mut self, epoch: Box<Epoch>) -> Result<Progress, RunError> {
        let (decider, at) = self.decider();
        match decider.decide(at)? {
            Decision::Took => self.go_on(Phase::Gather(epoch)),
            Decision::Waits(until) => self.wait(Phase::Gather(epoch), Some(until)),
            Decision::Due(due) => self.go_on(Phase::Due(epoch, due)),
            Decision::Epoch(decided) => {
                self.put(epoch, decided, true)?;
                self.go_on(Phase::Room)
            }
            Decision::Over => {
                self.slots.keep(epoch);
                self.follow()
            }
        }
    }

    /// Goes on after the last decision: after those of a log with those by what comes.
    fn follow(&mut self) -> Result<Progress, RunError> {
        let Some(log) = self.log.take() else {
            let ends = !self.at.ends().is_empty();
            return self.go_on(if ends { Phase::Leave } else { Phase::Last });
        };
        match log.end()? {
            Some((replayed, recovery)) => self.begin_log(replayed, recovery),
            None => Ok(self.leave()),
        }
    }

    /// Runs what is due at a boundary, once all epochs before were accessed: the rows of one stream in one epoch.
    fn run_due(&mut self, mut epoch: Box<Epoch>, due: DueCut) -> Result<Progress, RunError> {
        if !self.at.pipeline.tasks().awaits(self.at.number) {
            return self.wait(Phase::Due(epoch, due), None);
        }
        let (decider, at) = self.decider();
        match decider.take_due(at, due, &mut epoch)? {
            Some(decided) => self.put(epoch, decided, true)?,
            None => self.slots.keep(epoch),
        }
        self.go_on(Phase::Room)
    }

    /// Makes an epoch what was decided, and passes it to the workers. `may_keep`: whether a checkpoint may be due with it.
    fn put(&mut self, mut epoch: Box<Epoch>, decided: Decided, may_keep: bool) -> Result<(), RunError> {
        let (decider, at) = self.decider();
        if !at.apply(&decided, &mut epoch) {
            return Err(decider.too_few_events(decided.epoch));
        }
        decider.account(at, decided, &mut epoch, may_keep);
        self.put_logged(epoch);
        Ok(())
    }

    /// Puts in an epoch without events of sources.
    fn put_empty(&mut self, epoch: Box<Epoch>, may_keep: bool) -> Result<(), RunError> {
        let decided = next(&self.at, self.at.gate.choose(0));
        self.put(epoch, decided, may_keep)
    }

    /// Returns whether one more epoch is cut: for records that were taken since the last one, or so that there is a
    /// checkpoint which says that the input came to its end.
    fn needs_last(&self) -> bool {
        let Some(DurableGate { side, .. }) = &self.at.durable else { return false };
        let has_checkpoint = self.at.number == self.first || side.trigger.is_after_due();
        side.feed.intake.has_uncut() || (has_checkpoint && side.feed.intake.has_new() && !self.at.on.control.stops())
    }

    /// Logs the records that were taken since the last cut and are held.
    fn last(&mut self) -> Result<Progress, RunError> {
        if self.needs_last() {
            if !self.log_has_room() {
                return self.wait(Phase::Last, None);
            }
            match self.slots.take() {
                // The checkpoint after it is taken at the end: it alone says that the input came to its end.
                Took::Message(epoch) => self.put_empty(epoch, false)?,
                Took::Nothing => return self.wait(Phase::Last, None),
                Took::Closed => {}
            }
        }
        self.go_on(Phase::Leave)
    }
}

/// Returns the rule by which what is due divides epochs.
fn divides(machine: &Machine, options: &Options) -> Divides {
    // An evicted row is found between epochs only.
    let has_evicted = options.memory.is_some() || machine.tables.iter().any(Table::has_evicted_rows);
    match (machine.wiring.has_stretches && !has_evicted, machine.program.only_wakes()) {
        (false, _) => Divides::Never,
        (true, true) => Divides::Always,
        (true, false) => Divides::ByDensity,
    }
}

impl Actor for Gatherer {
    fn step(&mut self) -> Progress {
        match self.advance() {
            Ok(progress) => progress,
            Err(error) => {
                self.at.on.failure.set(error);
                self.leave()
            }
        }
    }
}
