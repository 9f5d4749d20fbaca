//! The gate's actor: gathers input into epochs.

mod joining;

use crate::agenda::{Agenda, Times};
use crate::cutter::{Cutter, Gathering, Intake, source_failed};
use crate::idle::Idle;
use crate::inputs::{FromSource, Inputs, Nothing};
use crate::options::{EpochSize, Options};
use crate::pipeline::Pipeline;
use crate::replay::LogCutter;
use crate::session::at_gate::{AtGate, SessionState};
use crate::splits::{Known, join};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_recovery::{
    GateSide, Left, Recovery, Replayed, Room, RunError, Shared, SourceAt, SplitName, Start, Taken,
};
use tidemill_stages::actor::{Actor, Inbox, Progress, Took};
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::{Cut, Gate, SourcePosition};
use tidemill_stages::io::{IoFailure, Resumed};
use tidemill_state::Table;

/// The interval at which the gate checks whether the merges that it waits for are done, nanoseconds.
const MERGE_POLL: u64 = 1_000_000;
/// The interval at which the gate checks whether the run is to stop while a source that had ended is read, nanoseconds.
const ENDED_POLL: u64 = 20_000_000;
/// The interval at which the gate checks whether the epochs before what is due were accessed, nanoseconds.
const DUE_POLL: u64 = 20_000;

const SENT_AFTER_END: &str = "events were sent to it after it had ended";

const IS_ONE_STREAM: &str = "it was read as one stream, file after file, and is to be read in splits now: a state keeps \
     what it began with; take splits=True away, or begin a new state";

/// Gathers epochs and cuts them.
pub struct Gatherer {
    on: Shared,
    pipeline: Arc<Pipeline>,
    gate: Gate,
    slots: Slots,
    inputs: Inputs,
    /// By source, the events that were delivered and never taken; empty until the gate is left.
    untaken: Vec<u64>,
    /// By source, the events of what this run was given that earlier runs took.
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
    idle: Idle,
    agenda: Agenda,
    /// What may be due at the boundary at hand, and is looked at with the next epoch.
    next_due: Option<DueCut>,
    phase: Phase,
}

/// The empty epochs.
struct Slots {
    free: Inbox<Box<Epoch>>,
    /// Epochs that have returned and are not in use.
    #[allow(clippy::vec_box, reason = "boxed as they travel")]
    stash: Vec<Box<Epoch>>,
    count: usize,
}

/// The gate's state in a durable run.
struct DurableGate {
    side: GateSide,
    /// When the run began (time of the clock).
    begun: u64,
    recovery: Recovery,
    /// Set if rows have to be evicted when nothing is in flight; the value tells whether one epoch needs too much
    /// memory.
    short: Option<bool>,
    /// Whether the gate waits for merges.
    merges: bool,
}

/// The next action.
enum Phase {
    /// Restore the positions of the sources in an earlier run.
    Begin,
    /// Make room for an epoch.
    Room,
    /// Gather it.
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
    Over,
}

/// The final state of the gate.
pub struct GateResult {
    /// The position of each source.
    pub positions: Vec<SourcePosition>,
    /// By source, the events of what this run was given that earlier runs took.
    pub again: Vec<u64>,
    /// Whether the run was stopped.
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
    /// By source, how long it may be without input; empty: none is watched.
    pub idle: Vec<Option<Duration>>,
}

impl Gatherer {
    /// A gatherer before the first epoch.
    pub fn new(parts: GatherParts) -> Gatherer {
        let GatherParts { on, pipeline, inputs, options, cutter, slots: (free, count), first, .. } = parts;
        let GatherParts { durable, session, idle, .. } = parts;
        assert!(first > 0, "epochs are counted from 1");
        let gate = Gate::new(&on.machine.program, &on.machine.wiring.sources);
        let begun = on.environment.now();
        let idle = Idle::new(idle, inputs.len(), begun);
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
            idle,
            agenda,
            next_due: None,
            phase,
        }
    }

    /// The final state, after it is over. `log`: the logger's final log.
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

    /// The positions of the splits at the end of the run, which was stopped or came to the end of its input.
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
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin => self.begin(),
            Phase::Room => self.make_room(),
            Phase::Gather(epoch) => self.gather(epoch),
            Phase::Due(epoch, at) => self.run_due(epoch, at),
            Phase::PassOver(lost) => self.pass_over(lost),
            Phase::Ended(source) => self.check_ended(source),
            Phase::Last => self.last(),
            Phase::Over => Ok(Progress::Over),
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

    /// Restores the positions of the sources, and starts the sources that are needed to replay the log; without a
    /// state, starts all sources.
    fn begin(&mut self) -> Result<Progress, RunError> {
        let Some(durable) = &mut self.durable else {
            for source in 0..self.inputs.sources() {
                self.gate.send(source, self.inputs.is_sent(source));
                self.inputs.start(source, Taken::default());
            }
            self.begin_splits()?;
            self.end_unsent();
            return self.go_on(Phase::Room);
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
        }
        sources.resize_with(self.inputs.len(), Default::default);
        let replays: Vec<bool> = (0..sources.len()).map(|source| self.inputs.replays(source)).collect();
        let taken_before = sources.into_iter().zip(replays.iter().copied());
        durable.side.feed.intake = tidemill_recovery::Intake::new(self.inputs.sources(), taken_before);
        let start = durable.side.take_start();
        for source in (0..replays.len()).filter(|&source| replays[source]) {
            self.resume(source)?;
        }
        match start {
            Start::New(log) => self.begin_log(Replayed { log, lost: 0 }, Recovery::default()),
            Start::Replay(replay) => {
                let planted = self.durable.as_ref().expect("looked at above").side.planted;
                self.replay = Some(LogCutter::new(*replay, planted));
                self.go_on(Phase::Room)
            }
        }
    }

    /// Called after the whole log has been replayed: the log continues, and so do the sources.
    fn begin_log(&mut self, replayed: Replayed, recovery: Recovery) -> Result<Progress, RunError> {
        assert!(self.replay.is_none(), "a log goes on after its replay");
        self.check_taken();
        let durable = self.durable.as_mut().expect("only a durable run has a log");
        let nanoseconds = self.on.environment.now() - durable.begun;
        durable.recovery = Recovery { nanoseconds, ..recovery };
        durable.side.feed.begin(replayed.log);
        self.idle.begin(self.on.environment.now());
        self.on.control.recovery.done.store(true, Ordering::Relaxed);
        if durable.side.replay_only {
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

    fn pass_over(&mut self, lost: u64) -> Result<Progress, RunError> {
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
    fn check_ended(&mut self, source: usize) -> Result<Progress, RunError> {
        if source == self.inputs.len() {
            return self.go_on(Phase::Room);
        }
        if !self.gate.has_ended(source) || self.inputs.is_sent(source) {
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
            Ok(FromSource::End | FromSource::Failed(_)) | Err(_) => {
                self.inputs.forget(source);
                self.go_on(Phase::Ended(source + 1))
            }
        }
    }

    /// Without a session nobody sends: the input of sources that are sent to comes to its end at once.
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

    /// Makes room for the next epoch: frees slots of rows that do not exist and, with a memory limit, memory.
    fn make_room(&mut self) -> Result<Progress, RunError> {
        if self.on.machine.tables.iter().any(Table::wants_sweep) {
            match self.slots.all() {
                Took::Message(()) => self.sweep(),
                Took::Nothing => return self.wait(Phase::Room, None),
                Took::Closed => return self.go_on(Phase::Last),
            }
        }
        if let Some(progress) = self.relieve()? {
            return Ok(progress);
        }
        if !self.log_has_room() {
            return self.wait(Phase::Room, None);
        }
        match self.slots.take() {
            Took::Message(mut epoch) => {
                epoch.input.opened = self.on.environment.now();
                self.go_on(Phase::Gather(epoch))
            }
            Took::Nothing => self.wait(Phase::Room, None),
            Took::Closed => self.go_on(Phase::Last),
        }
    }

    fn log_has_room(&self) -> bool {
        self.durable.as_ref().is_none_or(|durable| durable.side.feed.has_room())
    }

    /// Frees slots of rows that do not exist, once there are enough of them to be worth a sweep.
    fn sweep(&mut self) {
        assert_eq!(self.slots.stash.len(), self.slots.count, "nothing is in flight");
        for table in self.on.machine.tables.iter().filter(|table| table.wants_sweep()) {
            #[allow(unsafe_code)]
            // SAFETY: all epochs are here, cleared: no thread holds a row's address or text.
            unsafe {
                table.sweep();
            }
        }
    }

    /// With a memory limit, makes room for the rows of the next epoch; none if there is room.
    fn relieve(&mut self) -> Result<Option<Progress>, RunError> {
        let events_max = self.events_max_of_run();
        let Some(durable) = &mut self.durable else { return Ok(None) };
        let Some(memory) = &mut durable.side.memory else { return Ok(None) };
        if durable.merges {
            durable.merges = memory.waits_for_merges();
            if durable.merges && !self.on.control.stops() {
                let until = self.on.environment.now() + MERGE_POLL;
                return self.wait(Phase::Room, Some(until)).map(Some);
            }
            durable.merges = false;
        } else if durable.short.is_none()
            && let Room::Short { too_much } = memory.room(events_max, self.slots.count)
        {
            durable.short = Some(too_much);
        }
        let Some(too_much) = durable.short else { return Ok(None) };
        match self.slots.all() {
            Took::Message(()) => {}
            Took::Nothing => return self.wait(Phase::Room, None).map(Some),
            Took::Closed => return self.go_on(Phase::Last).map(Some),
        }
        assert_eq!(self.slots.stash.len(), self.slots.count, "nothing is in flight while rows are evicted");
        memory.evict(too_much, events_max)?;
        (durable.short, durable.merges) = (None, true);
        self.go_on(Phase::Room).map(Some)
    }

    /// The maximum number of events of the next epoch, before the limit by memory.
    fn events_max_of_run(&self) -> usize {
        match self.options.epoch {
            EpochSize::Events(events) => events.max(1),
            EpochSize::Auto => self.pipeline.events_max(self.number),
            EpochSize::Age(_) => self.options.epoch_events_max,
        }
    }

    /// Continues gathering an epoch.
    fn gather(&mut self, epoch: Box<Epoch>) -> Result<Progress, RunError> {
        if let Some(at) = self.next_due.take() {
            return self.go_on(Phase::Due(epoch, at));
        }
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
            let taken = at_gate.take(&mut self.gate, &self.inputs, idle, feed, events_max);
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
            self.idle.raise(&mut self.gate, feed.as_deref_mut(), now, has_input);
        }
        if self.replay.is_none() && !self.agenda.is_empty() {
            let boundary = self.agenda.boundary(times_of(&self.gate));
            self.gate.hold_from(boundary);
            if let Some(boundary) = boundary.filter(|&boundary| self.gate.complete() >= Some(boundary)) {
                return self.go_on(Phase::Due(epoch, DueCut { due: 0, boundary }));
            }
        }
        let mut intake = Intake {
            idle: &mut self.idle,
            gate: &mut self.gate,
            inputs: &mut self.inputs,
            feed,
            session,
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
            Gathering::Waits(until) => self.wait(Phase::Gather(epoch), Some(until)),
            Gathering::Cut(Cut::Due(at)) => self.go_on(Phase::Due(epoch, at)),
            Gathering::Cut(cut) => {
                self.put(epoch, &cut)?;
                self.go_on(Phase::Room)
            }
            Gathering::Over => {
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

    /// At the end of time, the first boundary at which something may be due.
    fn due_at_the_end(&mut self) -> Option<i64> {
        let is_end = self.replay.is_none() && self.gate.ended() && !self.on.control.stops();
        if is_end { self.agenda.last_boundary() } else { None }
    }

    /// Runs what is due at a boundary, once all epochs before were accessed: the rows of one stream in one epoch. Rows that
    /// it makes due at the same boundary are in streams that come later.
    fn run_due(&mut self, mut epoch: Box<Epoch>, at: DueCut) -> Result<Progress, RunError> {
        if !self.pipeline.tasks().has_accessed(self.number) {
            let until = self.on.environment.now() + DUE_POLL;
            return self.wait(Phase::Due(epoch, at), Some(until));
        }
        let DueCut { mut due, boundary } = at;
        let is_replay = self.replay.is_some();
        // At the end of time no timer comes any more.
        let is_end = self.gate.complete() < Some(boundary);
        let times = if is_end { Times::END } else { times_of(&self.gate) };
        let mut has_events = false;
        while due < self.agenda.len() && !has_events {
            if is_replay || self.agenda.may_be_due(due, boundary, times) {
                let events = self.agenda.take(&self.on.machine, due, boundary)?;
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
        self.next_due = Some(DueCut { due, boundary }).filter(|at| at.due < self.agenda.len() && !is_replay);
        self.go_on(Phase::Room)
    }

    /// Cuts the next epoch and passes it to the workers.
    fn put(&mut self, epoch: Box<Epoch>, cut: &Cut) -> Result<(), RunError> {
        self.put_with(epoch, cut, true)
    }

    /// The same; `may_be_due`: a checkpoint may be due with it.
    fn put_with(&mut self, mut epoch: Box<Epoch>, cut: &Cut, may_be_due: bool) -> Result<(), RunError> {
        epoch.number = self.number;
        let is_due = matches!(cut, Cut::Due(_));
        assert!(is_due || self.next_due.is_none(), "nothing passes within what is due at one boundary");
        assert!(epoch.input.events == 0 && epoch.input.merge.is_empty() != is_due, "an epoch begins empty");
        assert!(
            epoch.input.snapshot_due.is_none() && !epoch.accessed.has_snapshot,
            "an epoch begins without a snapshot"
        );
        if !self.gate.cut(cut, &mut epoch) {
            let replay = self.replay.as_ref();
            let error = replay.map(|replay| replay.too_few_events(self.number));
            return Err(error.unwrap_or_else(|| RunError::Panic("a cut takes more events than there are".into())));
        }
        if let Cut::Due(at) = cut {
            epoch.input.due = Some(*at);
        }
        self.agenda.passes(cut, epoch.input.least_time);
        self.number += 1;
        let mut savepoints = Vec::new();
        if let Some(session) = self.session.as_ref().filter(|_| self.replay.is_some()) {
            session.replays(&mut epoch);
        } else if let Some(session) = &mut self.session {
            let boundary = self.agenda.boundary(times_of(&self.gate));
            let more_is_due = boundary.is_some_and(|boundary| self.gate.complete() >= Some(boundary));
            let is_free = self.durable.as_ref().is_some_and(|durable| durable.side.trigger.is_free());
            savepoints = session.cut(&mut epoch, &self.gate, more_is_due, may_be_due && is_free);
        }
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
                        side.trigger.cut(&mut epoch, &side.feed, &self.gate, savepoints);
                    }
                }
            }
        }
        self.pipeline.tasks().put(epoch);
        Ok(())
    }

    /// Whether one more epoch is cut: for records that were taken since the last one, or so that there is a checkpoint
    /// which says that the input came to its end.
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
        Ok(self.leave())
    }
}

/// What is known about the times of events.
fn times_of(gate: &Gate) -> Times {
    Times { first: gate.first_time(), last: gate.last_time(), is_end: false }
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

impl Slots {
    /// Takes an empty epoch.
    fn take(&mut self) -> Took<Box<Epoch>> {
        self.stash.pop().map_or_else(|| self.free.take(), Took::Message)
    }

    /// Puts an epoch into the stash.
    fn keep(&mut self, epoch: Box<Epoch>) {
        assert!(self.stash.len() < self.count, "an epoch returns once");
        assert_eq!(epoch.input.events, 0, "an epoch returns empty");
        self.stash.push(epoch);
    }

    /// Collects all epochs in the stash; once they are there, nothing is in flight.
    fn all(&mut self) -> Took<()> {
        while self.stash.len() < self.count {
            match self.free.take() {
                Took::Message(epoch) => self.keep(epoch),
                Took::Nothing => return Took::Nothing,
                Took::Closed => return Took::Closed,
            }
        }
        Took::Message(())
    }
}
