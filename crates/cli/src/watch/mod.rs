//! Watches a run, and tells an operator once what has to be known: as events of `tracing`, and counted as incidents.
//!
//! The actors of a run write no log: they note numbers ([`tidemill_runtime::Vitals`]), at most a few an epoch. The watcher
//! looks at them some twenty times a second on a thread that waits anyway, and at the rest once a second. So nothing that
//! is said costs an event anything, and what the core crates do stays a function of their inputs.

mod alarms;

use crate::log::TARGET;
use crate::say;
pub use alarms::Thresholds;
use alarms::{Alarm, Change, Lag, Rate, SECOND, Stuck};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemill_connect::time_text;
use tidemill_model::Type;
use tidemill_plan::{Program, Stream};
use tidemill_runtime::{
    Control, GateVitals, Happening, Incident, Incidents, SourcePosition, SourceSummary, Vitals, Watched,
};
use tracing::{Dispatch, debug, info, warn};

/// The time for which a call of a sink takes that is slow.
const SLOW_CALL: u64 = SECOND;
/// The time for which a sink was not slow that is so no more.
const SLOW_CALM: u64 = 10 * SECOND;
/// The time for which there was room when a shortage is over.
const SHORTAGE_CALM: u64 = SECOND;

/// Watches a run.
pub struct Watcher {
    control: Arc<Control>,
    watched: Watched,
    thresholds: Thresholds,
    /// The log of the thread that began the run.
    dispatch: Dispatch,
    has_begun: bool,
    /// The time of the next look at the rates.
    next: u64,
    slow: Vec<Alarm>,
    disk: Alarm,
    descriptors: Alarm,
    checkpoint: Alarm,
    lacks_room: bool,
    sources: Vec<OfSource>,
}

/// The alarms of a source.
#[derive(Default)]
struct OfSource {
    stuck: Stuck,
    late: Rate,
    bad: Rate,
    lag: Lag,
}

/// Tells once that a run has begun, and that it is ready: to those who have begun it by a command.
#[derive(Default)]
pub struct Beginning {
    has_begun: bool,
    is_ready: bool,
}

impl Beginning {
    /// Looks at the run.
    pub fn look(&mut self, watched: &Watched, control: &Control) {
        if !self.has_begun
            && let Some(program) = watched.program()
        {
            self.has_begun = true;
            let (sources, sinks) = (program.sources().count(), program.sinks.len());
            let state = watched.state().map(|path| path.display().to_string()).unwrap_or_default();
            info!(target: TARGET, application = program.name, sources, sinks, state, "the run has begun");
        }
        if !self.is_ready && control.ready.load(Ordering::Acquire) {
            self.is_ready = true;
            let replayed_events = control.recovery.events.load(Ordering::Relaxed);
            info!(target: TARGET, replayed_events, "the run is ready");
        }
    }
}

impl Watcher {
    /// Makes a watcher of a run that will begin. What it says goes to the log of this thread.
    pub fn new(control: Arc<Control>, watched: Watched, thresholds: Thresholds) -> Watcher {
        Watcher {
            control,
            watched,
            thresholds,
            dispatch: tracing::dispatcher::get_default(Clone::clone),
            has_begun: false,
            next: 0,
            slow: Vec::new(),
            disk: Alarm::default(),
            descriptors: Alarm::default(),
            checkpoint: Alarm::default(),
            lacks_room: false,
            sources: Vec::new(),
        }
    }

    /// Says what the run has to say.
    pub fn remarks(&self, texts: &[String]) {
        tracing::dispatcher::with_default(&self.dispatch, || texts.iter().for_each(|text| say::note(text)));
    }

    /// Looks at the run. Called some twenty times a second.
    pub fn look(&mut self) {
        let Some(now) = self.watched.now() else { return };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        let dispatch = self.dispatch.clone();
        tracing::dispatcher::with_default(&dispatch, || self.look_at(now, time));
    }

    /// Looks at the run, at a time of the run's clock, and of the day in microseconds.
    fn look_at(&mut self, now: u64, time: i64) {
        let (control, watched) = (self.control.clone(), self.watched.clone());
        let (Some(program), vitals) = (watched.program(), &control.vitals) else { return };
        if !self.has_begun {
            self.has_begun = true;
            let (sources, sinks) = (program.sources().count(), program.sinks.len());
            self.next = now + SECOND;
            self.slow = vec![Alarm::default(); sinks];
            self.sources.resize_with(sources, OfSource::default);
        }
        vitals.take_happened().into_iter().for_each(|happening| self.happened(happening));
        self.look_at_room(now);
        self.look_at_sinks(program, vitals, now, time);
        if now >= self.next {
            self.next = now + SECOND;
            let sources = watched.sources().expect("it has begun");
            self.look_at_sources(program, &sources, &vitals.gate(), now, time);
            vitals.ask_gate();
        }
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::CheckpointBegun { epoch } => debug!(target: TARGET, epoch, "a checkpoint has begun"),
            Happening::CheckpointDone { epoch, seconds } => {
                self.lacks_room = false;
                info!(target: TARGET, epoch, seconds, "a checkpoint is done");
            }
            Happening::CheckpointWithoutRoom => self.lacks_room = true,
            _ => {}
        }
    }

    /// Tells of the disk and of descriptors.
    fn look_at_room(&mut self, now: u64) {
        let is = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Relaxed);
        let (log, sink) = (is(&self.control.log_waits), is(&self.control.sink_waits));
        let incidents = &self.control.vitals.incidents;
        let change = self.disk.see(log || sink, now, SHORTAGE_CALM);
        let waits = if log { "log" } else { "sink" };
        if let Some(seconds) = counted(incidents, Incident::FullDisk, change) {
            match seconds {
                None => {
                    let incident = Incident::FullDisk.word();
                    warn!(target: TARGET, incident, waits, "the disk is full: the run waits for room, and goes on when there is some");
                }
                Some(seconds) => info!(target: TARGET, seconds, "the disk has room again: the run goes on"),
            }
        }
        let change = self.descriptors.see(is(&self.control.descriptors_wait), now, SHORTAGE_CALM);
        if let Some(seconds) = counted(incidents, Incident::NoDescriptors, change) {
            match seconds {
                None => {
                    let incident = Incident::NoDescriptors.word();
                    warn!(target: TARGET, incident, "the process has as many open files as it may have: the run waits for a descriptor");
                }
                Some(seconds) => info!(target: TARGET, seconds, "there are descriptors again: the run goes on"),
            }
        }
        let change = self.checkpoint.see(self.lacks_room, now, 0);
        if let Some(None) = counted(incidents, Incident::CheckpointWithoutRoom, change) {
            let incident = Incident::CheckpointWithoutRoom.word();
            warn!(target: TARGET, incident, "there was no room for a checkpoint: the log keeps everything, and a later one is tried");
        }
    }

    /// Tells of sinks that are slow.
    fn look_at_sinks(&mut self, program: &Program, vitals: &Vitals, now: u64, time: i64) {
        for ((sink, numbers), alarm) in program.sinks.iter().zip(&*vitals.sinks()).zip(&mut self.slow) {
            let since = numbers.under_way_since().filter(|since| now.saturating_sub(*since) >= SLOW_CALL);
            let change = alarm.see(since.is_some(), now, SLOW_CALM);
            let name = sink.name.as_str();
            match counted(&vitals.incidents, Incident::SlowSink, change) {
                None => {}
                Some(None) => {
                    let since = day_time(since.unwrap_or(now), now, time);
                    let incident = Incident::SlowSink.word();
                    warn!(target: TARGET, incident, sink = name, since, "a sink is slow: it has been at one call for more than a second, and later epochs wait for it");
                }
                Some(Some(seconds)) => info!(target: TARGET, sink = name, seconds, "the sink is not slow any more"),
            }
        }
    }

    /// Tells of sources that hold others back, lag, or have many late or bad records.
    fn look_at_sources(&mut self, program: &Program, counts: &[SourceSummary], gate: &GateVitals, now: u64, time: i64) {
        let Watcher { control, thresholds, sources, .. } = self;
        let streams: Vec<&Stream> = program.sources().collect();
        let looked =
            Looked { incidents: &control.vitals.incidents, thresholds: *thresholds, streams: &streams, now, time };
        for (number, (of, counts)) in sources.iter_mut().zip(counts).enumerate() {
            let position = gate.positions.get(number).copied().unwrap_or_default();
            looked.at_holder(&mut of.stuck, number, position);
            looked.at_rates(of, number, counts);
            let behind = shown_through(streams[number], number, gate).map(|shown| time.saturating_sub(shown));
            looked.at_lag(&mut of.lag, number, behind);
        }
    }
}

/// The facts and limits for one look at the sources of a run.
struct Looked<'a> {
    incidents: &'a Incidents,
    thresholds: Thresholds,
    streams: &'a [&'a Stream],
    /// The run's clock.
    now: u64,
    /// The time of the day, microseconds since 1970.
    time: i64,
}

impl Looked<'_> {
    fn name(&self, source: usize) -> &str {
        &self.streams[source].name
    }

    /// Raises or ends the alarm about a source that waits for another one.
    fn at_holder(&self, stuck: &mut Stuck, number: usize, position: SourcePosition) {
        let by = position.held_by.filter(|(by, _)| *by != number && position.held > 0);
        let (change, since) = stuck.see(by, self.now, self.thresholds.stuck_min);
        let source = self.name(number);
        match (counted(self.incidents, Incident::StuckStream, change), by) {
            (Some(None), Some((by, mark))) => {
                let (incident, held_by, held) = (Incident::StuckStream.word(), self.name(by), position.held);
                let mark = mark.map_or_else(|| "none".into(), |mark| shown_time(self.streams[by], mark));
                let since = day_time(since, self.now, self.time);
                let text = "events of a source wait for another one, which stands still";
                warn!(target: TARGET, incident, source, held, held_by, mark, since, "{text}");
            }
            (Some(Some(seconds)), _) => {
                info!(target: TARGET, source, seconds, "the source is not held back any more");
            }
            _ => {}
        }
    }

    /// Tells of late and bad records that are many.
    fn at_rates(&self, of: &mut OfSource, number: usize, counts: &SourceSummary) {
        let source = self.name(number);
        let kinds = [
            (Incident::Late, &mut of.late, counts.late, "many events of a source are late"),
            (Incident::Bad, &mut of.bad, counts.bad, "many records of a source are bad"),
        ];
        for (kind, rate, number, what) in kinds {
            let (change, number, of) = rate.see(counts.events + number, number, self.now);
            let incident = kind.word();
            match counted(self.incidents, kind, change) {
                Some(None) => warn!(target: TARGET, incident, source, number, of, "{what}"),
                Some(Some(seconds)) => info!(target: TARGET, source, seconds, "not any more: {what}"),
                None => {}
            }
        }
    }

    /// Tells of a source that is behind the clock.
    fn at_lag(&self, lag: &mut Lag, number: usize, behind: Option<i64>) {
        let change = lag.see(behind, self.now, self.thresholds.lag_max);
        let (source, lag_seconds) = (self.name(number), behind.unwrap_or(0) as f64 / 1e6);
        match counted(self.incidents, Incident::Lag, change) {
            Some(None) => {
                let incident = Incident::Lag.word();
                let text = "a source lags: its newest event time is far behind the clock";
                warn!(target: TARGET, incident, source, lag_seconds, "{text}");
            }
            Some(Some(seconds)) => info!(target: TARGET, source, lag_seconds, seconds, "the source has caught up"),
            None => {}
        }
    }
}

/// Counts a change of an incident. Returns what is to be told: that it begins (none), or is over after some seconds.
fn counted(incidents: &Incidents, incident: Incident, change: Change) -> Option<Option<f64>> {
    match change {
        Change::None => None,
        Change::Begins => {
            incidents.begin(incident);
            Some(None)
        }
        Change::Ends(after) => {
            incidents.end(incident);
            Some(Some(after as f64 / 1e9))
        }
    }
}

/// Returns the time that a source has shown, in microseconds since 1970: that of the slowest of its splits that go on.
/// None where its event time is no time of the day.
pub fn shown_through(stream: &Stream, source: usize, gate: &GateVitals) -> Option<i64> {
    let field = stream.own_time()?;
    if stream.schema.fields[field].scalar_type()?.ty != Type::Time {
        return None;
    }
    gate.splits
        .iter()
        .filter(|split| split.mark.source == source && !split.mark.ended)
        .filter_map(|split| split.mark.shown)
        .min()
}

/// Returns an event time of a stream, as one would write it.
fn shown_time(stream: &Stream, time: i64) -> String {
    let field = stream.own_time().and_then(|field| stream.schema.fields[field].scalar_type());
    crate::text::time(time, field.map_or(Type::Int, |scalar| scalar.ty))
}

/// Returns the time of the day at an instant of the run's clock.
fn day_time(at: u64, now: u64, time: i64) -> String {
    time_text(time - (now.saturating_sub(at) / 1_000) as i64)
}
