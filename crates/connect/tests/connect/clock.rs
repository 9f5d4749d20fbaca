//! Ticks of a clock that the test sets.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tidemill_io::{Clock, Next, Source, SourceOptions, Spec};
use tidemill_model::arrow::rows;
use tidemill_model::{ColumnType, Schema, Type};

/// Goes on by what is slept, and no further.
#[derive(Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.time().unsigned_abs())
    }

    fn time(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_micros() as i64, Ordering::Relaxed);
    }
}

fn schema() -> Schema {
    Schema::scalars([("at", ColumnType::required(Type::Time))])
}

fn clock_each(every: i64) -> Spec {
    serde_json::from_str(&format!(r#"{{"kind":"clock","every":{every}}}"#)).unwrap()
}

fn open(every: i64, clock: &Arc<SetClock>) -> Box<dyn Source> {
    open_source(&clock_each(every), &schema(), &SourceOptions { batch_rows: 10, clock: clock.clone() }).unwrap()
}

/// Returns the next tick within a time, if there is one.
fn tick(source: &mut dyn Source, wait: u64) -> Option<i64> {
    match source.next(Duration::from_micros(wait)).unwrap() {
        Next::Batch(batch) => rows(&batch.events, &schema())[0][0].word(),
        Next::Nothing => None,
        Next::End => panic!("a clock has no end"),
    }
}

#[test]
fn ticks_come_at_their_times() {
    let clock = Arc::new(SetClock::default());
    clock.sleep(Duration::from_micros(12_300));
    let mut source = open(1_000, &clock);
    assert!(source.is_clock() && !source.replays());
    assert_eq!(tick(source.as_mut(), 0), Some(12_000), "the first is the last that was due");
    assert_eq!(tick(source.as_mut(), 600), None, "it waits no longer than it may");
    assert_eq!(tick(source.as_mut(), 600), Some(13_000));
    assert_eq!(clock.time(), 13_000, "nor longer than it must");
    clock.sleep(Duration::from_micros(4_900));
    assert_eq!(tick(source.as_mut(), 600), Some(17_000), "what was due meanwhile is left out");
    clock.0.store(3_500, Ordering::Relaxed);
    assert_eq!(tick(source.as_mut(), 600), None, "none comes twice where the clock is set back");
    clock.0.store(18_000, Ordering::Relaxed);
    assert_eq!(tick(source.as_mut(), 600), Some(18_000));
    assert_eq!(source.progress().done, 4);
}

#[test]
fn a_later_run_goes_on_after_the_last_tick() {
    let clock = Arc::new(SetClock::default());
    clock.0.store(-1, Ordering::Relaxed);
    let mut source = open(2_000, &clock);
    assert_eq!(tick(source.as_mut(), 0), Some(-2_000), "also before 1970");
    let token = source.token();
    let mut later = open(2_000, &clock);
    later.resume(token.as_deref()).unwrap();
    assert_eq!(tick(later.as_mut(), 0), None);
    clock.0.store(9_000, Ordering::Relaxed);
    assert_eq!(tick(later.as_mut(), 0), Some(8_000));
    // With another period the next tick is at least that much after the last.
    let mut other = open(3_000, &clock);
    other.resume(later.token().as_deref()).unwrap();
    assert_eq!(tick(other.as_mut(), 0), None, "9,000 is less than 3,000 after 8,000");
    clock.0.store(12_000, Ordering::Relaxed);
    assert_eq!(tick(other.as_mut(), 0), Some(12_000));
}

/// A clock that can be set, over one that cannot.
#[derive(Default)]
struct LeapingClock {
    passed: AtomicI64,
    leap: AtomicI64,
}

impl Clock for LeapingClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.passed.load(Ordering::Relaxed).unsigned_abs())
    }

    fn time(&self) -> i64 {
        self.passed.load(Ordering::Relaxed) + self.leap.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.passed.fetch_add(duration.as_micros() as i64, Ordering::Relaxed);
    }
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

fn leaping(clock: &Arc<LeapingClock>) -> Box<dyn Source> {
    let options = SourceOptions { batch_rows: 10, clock: clock.clone() };
    open_source(&clock_each(SECOND), &schema(), &options).unwrap()
}

/// Returns the ticks of this number of seconds.
fn ticks(source: &mut dyn Source, seconds: i64) -> Vec<i64> {
    (0..seconds).filter_map(|_| tick(source, SECOND as u64)).collect()
}

#[test]
fn a_clock_that_leaps_for_a_moment_gives_no_tick_of_that_time() {
    let clock = Arc::new(LeapingClock::default());
    let mut source = leaping(&clock);
    assert_eq!(ticks(source.as_mut(), 3), [0, SECOND, 2 * SECOND]);
    clock.leap.store(36_500 * DAY, Ordering::Relaxed);
    assert_eq!(ticks(source.as_mut(), 59), [0_i64; 0]);
    clock.leap.store(0, Ordering::Relaxed);
    assert_eq!(tick(source.as_mut(), 0), Some(61 * SECOND));
    // A second time within the minute, to another time.
    clock.leap.store(3_650 * DAY, Ordering::Relaxed);
    assert_eq!(ticks(source.as_mut(), 50), [0_i64; 0]);
    clock.leap.store(0, Ordering::Relaxed);
    assert_eq!(tick(source.as_mut(), 0), Some(111 * SECOND));
    assert_eq!(source.remark(), None);
    // Less than a day is how clocks are put right.
    clock.leap.store(DAY - SECOND, Ordering::Relaxed);
    assert_eq!(tick(source.as_mut(), SECOND as u64), Some(111 * SECOND + DAY - SECOND));
}

#[test]
fn a_leap_that_lasts_a_minute_is_taken_and_said() {
    let clock = Arc::new(LeapingClock::default());
    let mut source = leaping(&clock);
    assert_eq!(ticks(source.as_mut(), 1), [0]);
    clock.leap.store(2 * DAY, Ordering::Relaxed);
    assert_eq!(ticks(source.as_mut(), 59), [0_i64; 0]);
    assert_eq!(tick(source.as_mut(), SECOND as u64), Some(2 * DAY + 60 * SECOND));
    let said =
        "the clock with a tick each 1s goes on at 1970-01-03T00:01:00.000000Z, 2881m after 1970-01-01T00:00:00.000000Z";
    assert_eq!(source.remark().as_deref(), Some(said));
    assert_eq!(source.remark(), None, "once");
    assert_eq!(ticks(source.as_mut(), 2), [1, 2].map(|n| 2 * DAY + (60 + n) * SECOND));
    assert_eq!(source.remark(), None);
}

#[test]
fn what_a_clock_shows_at_a_start_is_taken_and_said() {
    let clock = Arc::new(LeapingClock::default());
    let mut source = leaping(&clock);
    assert_eq!(ticks(source.as_mut(), 1), [0]);
    for (leap, is_said) in [(DAY, false), (36_500 * DAY, true)] {
        clock.leap.store(leap, Ordering::Relaxed);
        let mut later = leaping(&clock);
        later.resume(source.token().as_deref()).unwrap();
        assert_eq!(tick(later.as_mut(), 0), Some(leap));
        assert_eq!(later.remark().is_some(), is_said);
        source = later;
    }
}

#[test]
fn wrong_clocks_are_refused() {
    assert_eq!(
        refusal(&clock_each(999), &schema()).message,
        "the period of a clock is 999 us; give a millisecond or more"
    );
    for wrong in [vec![("n", Type::Int)], vec![("at", Type::Time), ("n", Type::Int)], vec![]] {
        let schema = Schema::scalars(wrong.into_iter().map(|(name, ty)| (name, ColumnType::required(ty))));
        let refused = refusal(&clock_each(1_000), &schema);
        assert!(refused.schema && refused.message.starts_with("a tick is one Time"), "{}", refused.message);
    }
    let shown = tidemill_connect::standard_connectors().source(&clock_each(1_500_000)).unwrap().shown();
    assert_eq!(shown, "a clock, a tick each 1.5s");
}
