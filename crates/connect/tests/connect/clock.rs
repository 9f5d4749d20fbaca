//! Ticks of a clock that the test sets.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tidemill_connect::{Clock, SourceOptions, Spec};
use tidemill_model::arrow::rows;
use tidemill_model::{ColumnType, Schema, Type};
use tidemill_runtime::{Next, Source};

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

/// The next tick within a time, if there is one.
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
    // Of another period: at least that much after the last.
    let mut other = open(3_000, &clock);
    other.resume(later.token().as_deref()).unwrap();
    assert_eq!(tick(other.as_mut(), 0), None, "9,000 is less than 3,000 after 8,000");
    clock.0.store(12_000, Ordering::Relaxed);
    assert_eq!(tick(other.as_mut(), 0), Some(12_000));
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
    let shown = tidemill_connect::Registry::standard().source(&clock_each(1_500_000)).unwrap().shown();
    assert_eq!(shown, "a clock, a tick each 1.5s");
}
