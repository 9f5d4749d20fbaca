//! Ticks of the machine's clock.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{
    Clock as Timepiece, Connector, InputEnd, IoFailure, Next, Resumed, Source, SourceBatch, SourceConnection,
    SourceOptions, SourceProgress, Spec, SpecError,
};
use tidemill_model::arrow::batch_of;
use tidemill_model::civil::{span_text, time_text};
use tidemill_model::{Field, Schema, Type, Value};
use tidemill_runtime::{Known, LEAP_MAX, TimeOfDay};

const KIND: &str = "clock";
/// The least period, microseconds: below it a tick costs more than what it could be good for.
const PERIOD_MIN: i64 = 1_000;

pub(crate) struct Clock;

impl Connector for Clock {
    fn kind(&self) -> &str {
        KIND
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Ok(Box::new(spec.read::<ReadClock>()?))
    }
}

/// A tick at each whole number of periods of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadClock {
    /// The period in microseconds.
    pub every: i64,
}

impl SourceConnection for ReadClock {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        if self.every < PERIOD_MIN {
            return Err(IoFailure::new(format!(
                "the period of a clock is {} us; give a millisecond or more",
                self.every
            )));
        }
        if !matches!(&schema.fields[..], [field] if *field == Field::scalar(&field.name, Type::Time.into())) {
            return Err(IoFailure::schema(format!("a tick is one Time, and the schema is {schema}")));
        }
        let (clock, schema) = (options.clock.clone(), schema.clone());
        let of_day = TimeOfDay::default();
        Ok(Box::new(Ticks { every: self.every, clock, of_day, schema, last: None, remark: None, done: 0 }))
    }

    fn end(&self) -> InputEnd {
        InputEnd::Follow
    }

    fn shown(&self) -> String {
        format!("a clock, a tick each {:?}", Duration::from_micros(self.every.unsigned_abs()))
    }
}

/// A source of ticks.
///
/// # Invariant
///
/// Each tick is at least a period after the one before, over runs too, also where the clock is set back. Times that the
/// clock shows while nobody asks for them are left out, and the next tick is the last that was due: a program that stood
/// still for a week does not begin with the ticks of a week.
///
/// A clock that leads by more than a day gives no tick until it has shown that for a minute ([`TimeOfDay`]), so a wrong time that
/// it shows for a moment does not stop the ticks until that time has come. What it shows first in a run is taken. Where a tick is
/// more than a day after the one before, that is said.
struct Ticks {
    every: i64,
    clock: Arc<dyn Timepiece>,
    of_day: TimeOfDay,
    schema: Schema,
    /// The time of the last tick.
    last: Option<i64>,
    remark: Option<String>,
    done: u64,
}

impl Ticks {
    /// Returns the last tick that is due, if it was not given; waits for the next no longer than the given time.
    fn due(&mut self, wait_max: Duration) -> Option<i64> {
        let mut may_wait = true;
        loop {
            let at = u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX);
            let wait = match self.of_day.show(self.clock.time(), at) {
                Known::Doubted { .. } => wait_max,
                Known::Shown { time: now, .. } => {
                    let tick = now.checked_sub(now.rem_euclid(self.every))?;
                    let next = self.last.map_or(Some(tick), |last| last.checked_add(self.every))?;
                    // A state may have ticks of another period.
                    if tick >= next {
                        return Some(tick);
                    }
                    Duration::from_micros((next.saturating_sub(now)).max(1).unsigned_abs())
                }
            };
            if !std::mem::take(&mut may_wait) {
                return None;
            }
            self.clock.sleep(wait.min(wait_max));
        }
    }

    /// Returns the remark about the next tick, if it is far from the last one.
    fn leaps(&self, tick: i64) -> Option<String> {
        let last = self.last?;
        let leap = tick.saturating_sub(last);
        let seconds = leap - leap % 1_000_000;
        let every = Duration::from_micros(self.every.unsigned_abs());
        let (tick, last) = (time_text(tick), time_text(last));
        let text =
            format!("the clock with a tick each {every:?} goes on at {tick}, {} after {last}", span_text(seconds));
        (leap > LEAP_MAX.max(self.every.saturating_mul(2))).then_some(text)
    }
}

impl Source for Ticks {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let Some(tick) = self.due(wait_max) else { return Ok(Next::Nothing) };
        self.remark = self.leaps(tick);
        self.last = Some(tick);
        self.done += 1;
        let events = batch_of(&self.schema, &[vec![Value::Time(tick)]]);
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress { done: self.done, total: None }
    }

    fn token(&self) -> Option<String> {
        self.last.map(|last| last.to_string())
    }

    fn is_clock(&self) -> bool {
        true
    }

    fn remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    fn outlook(&self) -> Option<String> {
        Some("goes on with the time of the machine's clock".into())
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.last = token.and_then(|token| token.parse().ok());
        Ok(Resumed::Behind)
    }
}
