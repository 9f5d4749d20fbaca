//! Events that are too far ahead of the clock when they are taken (`plan`, `Ahead`).
//!
//! Those that a session sends are refused to the sender, and never come to the gate. Those that are read become bad records here,
//! before the gate sees them. In a replay it is as the log has it ([`tidemill_recovery::TooFar`]), and no clock is asked.
//!
//! While the machine's clock shows a time that is not believed yet ([`Known::Doubted`]), what is sent is compared with the time
//! that is believed: the sender may try again. What is read waits, since it cannot.

use crate::inputs::Inputs;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use tidemill_io::SourceBatch;
use tidemill_model::civil::{span_text, time_text};
use tidemill_plan::{Program, Stream};
use tidemill_recovery::{Control, LoggedInput, TimedEvents, TooFar, in_order};
use tidemill_stages::environment::Environment;
use tidemill_stages::time_of_day::{Known, Steady, TimeOfDay};

/// The time of day of a run: its gate and its session have the same.
pub struct RunTime {
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
    of_day: Mutex<TimeOfDay>,
    of_keys: Mutex<Steady>,
    /// The latest time of a call with a key, microseconds since 1970.
    last_key: Arc<AtomicI64>,
}

impl RunTime {
    /// Reads the clock of this machine. `last_key`: the latest time of a call with a key, microseconds since 1970.
    pub fn new(environment: Arc<dyn Environment>, control: Arc<Control>, last_key: Arc<AtomicI64>) -> RunTime {
        RunTime { environment, control, of_day: Mutex::default(), of_keys: Mutex::default(), last_key }
    }

    /// Returns the time; none where the machine has none.
    pub fn known(&self) -> Option<Known> {
        let mut of_day = self.of_day.lock();
        let known = of_day.show(self.environment.time()?, self.environment.now());
        if let Known::Shown { time, leap: Some(leap) } = known {
            self.control.remark(leaps(time, leap));
        }
        Some(known)
    }

    /// Returns the time of a call with a key, which is known for so long: it does not fall, also from run to run.
    pub fn of_key(&self) -> SystemTime {
        let time = self.environment.time().map_or(0, |time| {
            self.of_keys.lock().show(time, self.environment.now(), self.last_key.load(Ordering::Relaxed))
        });
        let since = Duration::from_micros(time.unsigned_abs());
        let at = if time < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(since)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(since)
        };
        at.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Returns the remark about a clock that leads by much, and is believed.
fn leaps(time: i64, leap: i64) -> String {
    let seconds = leap - leap % 1_000_000;
    format!("the machine's clock has leapt by {} to {}, and is believed", span_text(seconds), time_text(time))
}

/// Returns the first event of a batch that is too far ahead of the clock, if there is one: its time, and the last that
/// is not too far.
pub fn first_too_far(stream: &Stream, events: &RecordBatch, time: &RunTime) -> Option<(i64, i64)> {
    let ahead = stream.ahead(true)?;
    let until = time.known()?.time().saturating_add(ahead);
    let times = times(events, stream.own_time()?);
    times.iter().find(|&&time| time > until).map(|&time| (time, until))
}

fn times(events: &RecordBatch, field: usize) -> &[i64] {
    events.column(field).as_primitive::<TimestampMicrosecondType>().values()
}

/// Decides for the gate.
pub struct Ahead {
    /// The bound of each source, by source.
    bounds: Vec<Option<Bound>>,
    time: Arc<RunTime>,
}

/// The distance ahead of the clock at which events of a source may be.
struct Bound {
    /// Microseconds.
    ahead: i64,
    field: usize,
    timed: TimedEvents,
}

/// The events of a batch that are too far ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// None.
    None,
    /// Some events.
    These(Vec<TooFar>),
    /// The clock may show a wrong time.
    NotYet,
}

impl Ahead {
    /// Finds the bounds of a program's sources.
    pub fn new(program: &Program, inputs: &Inputs, time: Arc<RunTime>) -> Ahead {
        let bound = |(source, stream): (usize, &Stream)| {
            let ahead = stream.ahead(inputs.is_followed(source)).filter(|_| !inputs.is_sent(source))?;
            Some(Bound { ahead, field: stream.own_time()?, timed: TimedEvents::of(stream)? })
        };
        Ahead { bounds: program.sources().enumerate().map(bound).collect(), time }
    }

    /// Decides which events of a batch of a source are too far ahead; those before are counted from its first.
    pub fn decide(&self, source: usize, events: &RecordBatch) -> Decided {
        let Some(bound) = &self.bounds[source] else { return Decided::None };
        let Some(known) = self.time.known() else { return Decided::None };
        let until = known.time().saturating_add(bound.ahead);
        let mut runs: Vec<TooFar> = Vec::new();
        for (before, _) in (0..).zip(times(events, bound.field)).filter(|(_, time)| **time > until) {
            match runs.last_mut() {
                Some(run) if run.before + run.count == before => run.count += 1,
                _ => runs.push(TooFar { before, count: 1, until }),
            }
        }
        match (runs.is_empty(), known) {
            (true, _) => Decided::None,
            (false, Known::Doubted { .. }) => Decided::NotYet,
            (false, Known::Shown { .. }) => Decided::These(runs),
        }
    }

    /// Returns, as a planted bug does in a replay, which events of an epoch's batches are too far ahead of the clock
    /// that the run has.
    pub fn decide_anew(&self, source: usize, batches: &[SourceBatch]) -> Vec<TooFar> {
        let mut too_far = Vec::new();
        let mut taken = 0;
        for batch in batches {
            if let Decided::These(runs) = self.decide(source, &batch.events) {
                too_far.extend(runs.iter().map(|run| TooFar { before: taken + run.before, ..*run }));
            }
            taken += batch.events.num_rows() as u64;
        }
        too_far
    }

    /// Returns a batch of a source as the gate takes it.
    pub fn divide(&self, source: usize, batch: SourceBatch, too_far: &[TooFar]) -> Vec<LoggedInput> {
        let timed = self.bounds[source].as_ref().map(|bound| &bound.timed);
        in_order(vec![batch], &[], too_far, timed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    use tidemill_model::arrow::batch_of;
    use tidemill_model::{Type, Value};
    use tidemill_plan::build::PlanBuilder;
    use tidemill_plan::{AHEAD_OF_OTHERS, Ahead as Bounded, analyze};
    use tidemill_stages::environment::Joined;

    const SECOND: i64 = 1_000_000;
    const CENTURY: i64 = 36_525 * 86_400 * SECOND;

    /// A machine whose clocks are set; threads it has none.
    #[derive(Default)]
    struct Set {
        now: AtomicU64,
        time: AtomicI64,
    }

    impl Set {
        /// Passes a number of seconds, and lets the clock leap.
        fn pass(&self, seconds: i64, leap: i64) {
            self.now.fetch_add(seconds.unsigned_abs() * 1_000_000_000, Ordering::Relaxed);
            self.time.fetch_add(seconds * SECOND + leap, Ordering::Relaxed);
        }
    }

    impl Environment for Set {
        fn now(&self) -> u64 {
            self.now.load(Ordering::Relaxed)
        }

        fn time(&self) -> Option<i64> {
            Some(self.time.load(Ordering::Relaxed))
        }

        fn spawn(&self, name: &str, _body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
            unreachable!("nothing runs here, and '{name}' neither")
        }

        fn parallelism(&self) -> usize {
            1
        }
    }

    fn run_time() -> (Arc<Set>, Arc<Control>, RunTime) {
        let (set, control) = (Arc::<Set>::default(), Arc::<Control>::default());
        (set.clone(), control.clone(), RunTime::new(set, control, Arc::new(AtomicI64::new(i64::MIN))))
    }

    fn since(time: &RunTime) -> Duration {
        time.of_key().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
    }

    #[test]
    fn keys_are_made_at_a_time_that_no_leap_of_a_moment_leads() {
        let (set, control, time) = run_time();
        assert_eq!(since(&time), Duration::ZERO);
        set.pass(10, CENTURY);
        assert_eq!(since(&time), Duration::from_secs(10));
        set.pass(1, -2 * CENTURY);
        assert_eq!(since(&time), Duration::from_secs(11));
        set.pass(1, CENTURY);
        time.last_key.store(100 * SECOND, Ordering::Relaxed);
        assert_eq!(since(&time), Duration::from_secs(100));
        assert!(control.take_remarks().is_empty());
    }

    #[test]
    fn a_leap_that_is_believed_is_said_once() {
        let (set, control, time) = run_time();
        time.known();
        set.pass(1, CENTURY);
        time.known();
        set.pass(60, 0);
        assert_eq!(time.known().map(Known::time), Some(61 * SECOND + CENTURY));
        let said = "the machine's clock has leapt by 36525d to 2070-01-01T00:01:01.000000Z, and is believed";
        assert_eq!(control.take_remarks(), [said]);
        time.known();
        assert!(control.take_remarks().is_empty());
    }

    /// Returns the program of a source with a bound.
    fn program(ahead: Bounded) -> Program {
        let plan = PlanBuilder::new("ahead")
            .source("s", |s| s.field("n", Type::Int).event_time("at", Type::Time).ahead(ahead));
        analyze(&plan.build()).expect("a right plan")
    }

    fn events(program: &Program, times: &[i64]) -> RecordBatch {
        let rows: Vec<Vec<Value>> = times.iter().map(|&time| vec![Value::Int(0), Value::Time(time)]).collect();
        batch_of(&program.sources().next().expect("a source").schema, &rows)
    }

    #[test]
    fn what_is_sent_is_compared_with_the_time_that_is_believed() {
        let (set, _, time) = run_time();
        let first = |ahead, times: &[i64]| {
            let program = program(ahead);
            first_too_far(program.sources().next().expect("a source"), &events(&program, times), &time)
        };
        let day = AHEAD_OF_OTHERS;
        assert_eq!(first(Bounded::ByInput, &[0, day, i64::MIN]), None);
        assert_eq!(first(Bounded::ByInput, &[0, day + 1, day + 2]), Some((day + 1, day)));
        assert_eq!(first(Bounded::Unbounded, &[i64::MAX]), None);
        assert_eq!(first(Bounded::Most(0), &[0, 1]), Some((1, 0)));
        assert_eq!(first(Bounded::Most(i64::MAX), &[i64::MAX]), None);
        set.pass(1, CENTURY);
        assert_eq!(first(Bounded::ByInput, &[CENTURY]), Some((CENTURY, day + SECOND)));
    }

    #[test]
    fn what_is_read_waits_where_the_clock_is_not_believed() {
        let (set, _, time) = run_time();
        let program = program(Bounded::Most(SECOND));
        let stream = program.sources().next().expect("a source");
        let bound = Bound { ahead: SECOND, field: 1, timed: TimedEvents::of(stream).expect("it has times") };
        let ahead = Ahead { bounds: vec![Some(bound), None], time: Arc::new(time) };
        let far = events(&program, &[0, CENTURY, CENTURY, 5, CENTURY, SECOND]);
        let run = |before, count, until| TooFar { before, count, until };
        let runs = Decided::These(vec![run(1, 2, SECOND), run(4, 1, SECOND)]);
        assert_eq!(ahead.decide(0, &far), runs);
        assert_eq!(ahead.decide(1, &far), Decided::None, "it has no bound");
        let batch = || SourceBatch { events: far.clone(), bad: Vec::new() };
        let anew = ahead.decide_anew(0, &[batch(), batch()]);
        assert_eq!(anew[2..], [run(7, 2, SECOND), run(10, 1, SECOND)]);
        set.pass(1, CENTURY);
        assert_eq!(ahead.decide(0, &far), Decided::NotYet);
        assert_eq!(ahead.decide(0, &events(&program, &[0, SECOND])), Decided::None);
        set.pass(60, 0);
        assert_eq!(ahead.decide(0, &far), Decided::None);
    }
}
