//! Numbers by which an operator sees how a run does. The actors note them at most a few times an epoch, as plain counters;
//! texts, rates and alarms are made by whoever watches. Nobody has to watch: what is noted takes no memory that grows.
//!
//! | numbers | written by |
//! |---|---|
//! | stages, latency, sinks | the committer |
//! | log | the logger |
//! | checkpoints | the checkpointer |
//! | keys | whoever takes calls or answers them |
//! | gate | the gate, when a watcher has asked |
//! | incidents | the watcher |

use parking_lot::Mutex;
use std::array;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemill_stages::actor::Bell;
use tidemill_stages::gate::{SourcePosition, SplitMark};

const MS: u64 = 1_000_000;
/// The greatest durations of the buckets of a [`Spread`] but the last, nanoseconds.
pub const BOUNDS: [u64; 18] = [
    MS / 20,
    MS / 10,
    MS / 4,
    MS / 2,
    MS,
    5 * MS / 2,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    1_000 * MS,
    2_500 * MS,
    5_000 * MS,
    10_000 * MS,
    60_000 * MS,
];
/// The most happenings that wait for a watcher; the oldest are forgotten.
const HAPPENINGS_MAX: usize = 1_000;

/// A distribution of durations: a histogram.
#[derive(Default)]
pub struct Spread {
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// Nanoseconds.
    sum: AtomicU64,
}

/// A [`Spread`] as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpreadAt {
    /// The count of each bucket, by bucket, of those in it alone.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Seconds.
    pub sum: f64,
}

impl Spread {
    /// Adds `times` durations of `nanoseconds` each.
    pub fn add(&self, nanoseconds: u64, times: u64) {
        let bucket = BOUNDS.partition_point(|&bound| bound < nanoseconds);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds.saturating_mul(times), Ordering::Relaxed);
    }

    /// Reads the counts and the sum. Beside one who adds, the sum may be of some durations more than the counts.
    pub fn read(&self) -> SpreadAt {
        let counts = array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed));
        SpreadAt { counts, sum: self.sum.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

impl SpreadAt {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A stage of an epoch's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The time from the arrival of its oldest event until the gate had room for it.
    Wait,
    /// The time in prepare, see `tidemill_stages::prepare`.
    Prepare,
    /// The time in access, see `tidemill_stages::access`.
    Access,
    /// The time in finish, see `tidemill_stages::finish`.
    Finish,
    /// The time from its finish until it was durable.
    Log,
    /// The time from then until its results were released.
    Release,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 6] = [Stage::Wait, Stage::Prepare, Stage::Access, Stage::Finish, Stage::Log, Stage::Release];

    /// Returns its word in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Wait => "wait",
            Stage::Prepare => "prepare",
            Stage::Access => "access",
            Stage::Finish => "finish",
            Stage::Log => "log",
            Stage::Release => "release",
        }
    }
}

/// Numbers of the keys of calls.
#[derive(Default)]
pub struct KeyVitals {
    /// Keys in memory.
    pub in_memory: AtomicU64,
    /// Keys in runs of checkpoints.
    pub on_disk: AtomicU64,
    /// Bytes of these runs.
    pub disk_bytes: AtomicU64,
    /// Bytes of their indexes and filters in memory.
    pub filter_bytes: AtomicU64,
    /// Keys that were looked up in runs.
    pub looked_up: AtomicU64,
    /// Those of them that no run has.
    pub found_nothing: AtomicU64,
    /// Calls that were refused because too many keys are kept, or are looked up.
    pub refused: AtomicU64,
}

/// Numbers of a sink. Times are of the run's clock.
#[derive(Default)]
pub struct SinkVitals {
    /// Events that were written.
    pub events: AtomicU64,
    /// Bytes that it says it has written.
    pub bytes: AtomicU64,
    /// Commits that have succeeded; of a run without a state, flushes.
    pub commits: AtomicU64,
    /// The time for which its calls took.
    pub calls: Spread,
    /// The time when the call under way began, and one more; 0 if none is under way.
    since: AtomicU64,
}

impl SinkVitals {
    /// Notes that a call begins.
    pub fn begin(&self, now: u64) {
        let before = self.since.swap(now + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "one call of a sink after the other");
    }

    /// Notes that the call has ended.
    pub fn end(&self, now: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        self.calls.add(now.saturating_sub(since.saturating_sub(1)), 1);
    }

    /// Returns the time when the call under way began, if one is.
    pub fn under_way_since(&self) -> Option<u64> {
        self.since.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Numbers of the log.
#[derive(Default)]
pub struct LogVitals {
    /// Bytes appended in this run.
    pub bytes: AtomicU64,
    /// The time for which syncs took.
    pub syncs: Spread,
}

/// Numbers of checkpoints.
#[derive(Default)]
pub struct CheckpointVitals {
    /// The time for which they took, from the snapshot until they were the newest.
    pub taken: Spread,
    /// The checkpoints for which there was no room on the disk.
    pub without_room: AtomicU64,
    /// The epoch of the newest of this run; 0: none was taken.
    pub epoch: AtomicU64,
    /// The time when that became the newest (time of the clock); 0: none was taken.
    pub at: AtomicU64,
}

/// The state of the gate when it was asked.
#[derive(Clone, Debug, Default)]
pub struct GateVitals {
    /// The position of each source, by source.
    pub positions: Vec<SourcePosition>,
    /// The state of each split, by split.
    pub splits: Vec<SplitVitals>,
    /// The program's mark.
    pub mark: Option<i64>,
}

/// The numbers of a split that the gate shows.
#[derive(Clone, Debug, Default)]
pub struct SplitVitals {
    /// Its marks.
    pub mark: SplitMark,
    /// Its name, if its source has several.
    pub name: Option<String>,
}

/// Something that happened, to be told.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Happening {
    /// A checkpoint has begun.
    CheckpointBegun {
        /// Its epoch.
        epoch: u64,
    },
    /// A checkpoint is the newest.
    CheckpointDone {
        /// Its epoch.
        epoch: u64,
        /// The time since its beginning, seconds.
        seconds: f64,
    },
    /// There was no room for a checkpoint. The log keeps everything, and a later one is tried.
    CheckpointWithoutRoom,
}

/// Something that an operator must know while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Incident {
    /// A call of a sink takes long.
    SlowSink,
    /// A source holds others back.
    StuckStream,
    /// There is no room on the disk.
    FullDisk,
    /// There are no file descriptors.
    NoDescriptors,
    /// There was no room for a checkpoint.
    CheckpointWithoutRoom,
    /// Many events of a source are late.
    Late,
    /// Many records of a source are bad.
    Bad,
    /// A source that had kept up with the clock does not any more.
    Lag,
}

impl Incident {
    /// All kinds of incidents.
    pub const ALL: [Incident; 8] = [
        Incident::SlowSink,
        Incident::StuckStream,
        Incident::FullDisk,
        Incident::NoDescriptors,
        Incident::CheckpointWithoutRoom,
        Incident::Late,
        Incident::Bad,
        Incident::Lag,
    ];

    /// Returns its word in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Incident::SlowSink => "slow_sink",
            Incident::StuckStream => "stuck_stream",
            Incident::FullDisk => "full_disk",
            Incident::NoDescriptors => "no_descriptors",
            Incident::CheckpointWithoutRoom => "checkpoint_without_room",
            Incident::Late => "late",
            Incident::Bad => "bad",
            Incident::Lag => "lag",
        }
    }
}

/// The numbers of incidents that have begun, and of those that last.
#[derive(Default)]
pub struct Incidents {
    begun: [AtomicU64; Incident::ALL.len()],
    lasting: [AtomicU64; Incident::ALL.len()],
}

impl Incidents {
    /// Notes that one has begun.
    pub fn begin(&self, incident: Incident) {
        self.begun[incident as usize].fetch_add(1, Ordering::Relaxed);
        self.lasting[incident as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one is over.
    pub fn end(&self, incident: Incident) {
        let before = self.lasting[incident as usize].fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "an incident begins before it ends");
    }

    /// Returns the number of incidents of a kind that have begun, and of those that last.
    pub fn of(&self, incident: Incident) -> (u64, u64) {
        let at = incident as usize;
        (self.begun[at].load(Ordering::Relaxed), self.lasting[at].load(Ordering::Relaxed))
    }
}

/// Numbers by which an operator sees how a run does.
#[derive(Default)]
pub struct Vitals {
    stages: [Spread; Stage::ALL.len()],
    /// The latency from the arrival of an event to the release of its results.
    pub latency: Spread,
    /// Numbers of the log.
    pub log: LogVitals,
    /// Numbers of checkpoints.
    pub checkpoints: CheckpointVitals,
    /// Numbers of the keys of calls.
    pub keys: KeyVitals,
    /// Incidents.
    pub incidents: Incidents,
    sinks: Mutex<Arc<[SinkVitals]>>,
    gate: Mutex<GateVitals>,
    gate_bell: Mutex<Option<Arc<Bell>>>,
    is_asked: AtomicBool,
    happened: Mutex<VecDeque<Happening>>,
}

impl Vitals {
    /// Begins a run with this number of sinks and the bell of its gate. Returns the numbers of the sinks.
    pub fn begin(&self, sinks: usize, gate: Arc<Bell>) -> Arc<[SinkVitals]> {
        let sinks: Arc<[SinkVitals]> = (0..sinks).map(|_| SinkVitals::default()).collect();
        *self.sinks.lock() = sinks.clone();
        *self.gate_bell.lock() = Some(gate);
        sinks
    }

    /// Returns the numbers of each sink, by sink; none before the run has begun.
    pub fn sinks(&self) -> Arc<[SinkVitals]> {
        self.sinks.lock().clone()
    }

    /// Returns the time for which epochs were in a stage.
    pub fn stage(&self, stage: Stage) -> &Spread {
        &self.stages[stage as usize]
    }

    /// Asks the gate to show how it stands. It does so soon, and wakes for it.
    pub fn ask_gate(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.gate_bell.lock().iter().for_each(|gate| gate.ring());
    }

    /// Returns whether the gate is asked, once.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::AcqRel)
    }

    /// Shows how the gate stands.
    pub fn show_gate(&self, gate: GateVitals) {
        *self.gate.lock() = gate;
    }

    /// Returns the state of the gate when it was asked last.
    pub fn gate(&self) -> GateVitals {
        self.gate.lock().clone()
    }

    /// Notes what has happened.
    pub fn happened(&self, happening: Happening) {
        let mut happened = self.happened.lock();
        if happened.len() == HAPPENINGS_MAX {
            happened.pop_front();
        }
        happened.push_back(happening);
    }

    /// Returns the happenings since the last call, oldest first.
    pub fn take_happened(&self) -> Vec<Happening> {
        std::mem::take(&mut *self.happened.lock()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spread_by_their_bounds() {
        let spread = Spread::default();
        spread.add(MS / 20, 2);
        spread.add(MS / 20 + 1, 3);
        spread.add(3_600_000 * MS, 1);
        let read = spread.read();
        assert_eq!((read.counts[0], read.counts[1], read.counts[BOUNDS.len()], read.count()), (2, 3, 1, 6));
        assert!((read.sum - 3_600.000_25).abs() < 1e-6, "{}", read.sum);
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn a_call_of_a_sink_is_under_way_until_it_ends() {
        let sink = SinkVitals::default();
        assert_eq!(sink.under_way_since(), None);
        sink.begin(0);
        assert_eq!(sink.under_way_since(), Some(0));
        sink.end(7 * MS);
        assert_eq!((sink.under_way_since(), sink.calls.read().count()), (None, 1));
        assert!((sink.calls.read().sum - 0.007).abs() < 1e-9);
    }

    #[test]
    fn what_nobody_takes_is_forgotten() {
        let vitals = Vitals::default();
        (0..2_000).for_each(|epoch| vitals.happened(Happening::CheckpointBegun { epoch }));
        let taken = vitals.take_happened();
        assert_eq!((taken.len(), taken[0].clone()), (HAPPENINGS_MAX, Happening::CheckpointBegun { epoch: 1_000 }));
        assert!(vitals.take_happened().is_empty());
    }

    #[test]
    fn the_gate_is_asked_once() {
        let vitals = Vitals::default();
        assert!(!vitals.is_asked());
        vitals.ask_gate();
        assert!(vitals.is_asked() && !vitals.is_asked());
    }

    #[test]
    fn incidents_last_until_they_end() {
        let incidents = Incidents::default();
        incidents.begin(Incident::Lag);
        incidents.begin(Incident::Lag);
        incidents.end(Incident::Lag);
        assert_eq!((incidents.of(Incident::Lag), incidents.of(Incident::Bad)), ((2, 1), (0, 0)));
        assert!(Incident::ALL.iter().enumerate().all(|(at, incident)| *incident as usize == at));
    }
}
