//! Made-up events: columns of sequences, distributions and choices, paced by a clock where asked.
//!
//! Every value is a function of (seed, column, event's ordinal), see `random.rs`. So the events do not
//! depend on batch sizes, on pacing, or on where a run began; and a column's values do not depend on
//! the columns beside it.

mod column;
mod random;
mod spec;

pub use spec::{ColumnSpec, Literal};

use crate::columns::Rows;
use column::Generated;
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{Clock, IoFailure, Next, Resumed, Source, SourceBatch, SourceOptions, SourceProgress};
use tidemill_model::Schema;
use xxhash_rust::xxh3::xxh3_64;

/// The number and rate of events, beside their columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub events: Option<u64>,
    pub rate: Option<f64>,
    /// A flag: whether no later run makes more.
    pub is_last: bool,
}

/// A source of made-up events.
pub(crate) struct Generator {
    columns: Vec<Generated>,
    rows: Rows,
    rows_max: usize,
    pace: Speed,
    done: u64,
    /// The number of events after which a sequence leaves the range of its type.
    room: u64,
    clock: Arc<dyn Clock>,
    /// The time when the first event was due.
    start: Option<Duration>,
    /// Events that an earlier run had.
    before: u64,
    /// Changes with anything that decides the events.
    identity: u64,
}

impl Generator {
    pub fn open(
        pace: Speed,
        seed: u64,
        specs: &[(String, ColumnSpec)],
        schema: &Schema,
        options: &SourceOptions,
    ) -> Result<Generator, IoFailure> {
        if let Some(rate) = pace.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(IoFailure::new(format!(
                "a generator's rate is a positive number of events per second, not {rate}"
            )));
        }
        let refused = |name: &str, reason: String| IoFailure::schema(format!("generator column '{name}': {reason}"));
        if let Some((name, _)) = specs.iter().find(|(name, _)| schema.index_of(name).is_none()) {
            return Err(refused(name, format!("the schema has no such column; it has {schema}")));
        }
        let mut columns = Vec::with_capacity(schema.fields.len());
        for field in &schema.fields {
            let mut found = specs.iter().filter(|(name, _)| *name == field.name);
            let generated = match (found.next(), found.next()) {
                (Some((_, spec)), None) => Generated::new(spec, field, seed),
                (None, _) => Err("it is in the schema, but nothing says how to make it".to_owned()),
                (Some(_), Some(_)) => Err("it is given twice".to_owned()),
            };
            columns.push(generated.map_err(|reason| refused(&field.name, reason))?);
        }
        let room = columns.iter().map(Generated::room).min().unwrap_or(u64::MAX);
        if pace.events.is_some_and(|events| events > room) {
            return Err(left_range(room));
        }
        Ok(Generator {
            columns,
            rows: Rows::new(schema),
            rows_max: options.batch_rows.max(1),
            pace,
            done: 0,
            room,
            clock: options.clock.clone(),
            start: None,
            before: 0,
            identity: xxh3_64(format!("{seed} {specs:?} {schema}").as_bytes()),
        })
    }

    /// Returns the number of events that may be handed over now; waits until one is due, at most for the given time.
    fn due(&mut self, wait_max: Duration) -> u64 {
        let Some(rate) = self.pace.rate else { return u64::MAX };
        let start = *self.start.get_or_insert_with(|| self.clock.now());
        loop {
            let elapsed = self.clock.now().saturating_sub(start).as_secs_f64();
            // Event 0 is due at once.
            let due = self.before + (elapsed * rate) as u64 + 1;
            if due > self.done {
                return due - self.done;
            }
            let wait = (self.done - self.before) as f64 / rate - elapsed;
            // No shorter than a clock can tell, so that rounding does not spin; no longer than a day.
            let wait = Duration::from_secs_f64(wait.clamp(1e-6, 86_400.0));
            self.clock.sleep(wait.min(wait_max));
            if wait > wait_max {
                return 0;
            }
        }
    }
}

fn left_range(room: u64) -> IoFailure {
    IoFailure::new(format!("the generator's sequences leave the range of their types after {room} events"))
}

impl Source for Generator {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let left = self.pace.events.map_or(u64::MAX, |events| events.saturating_sub(self.done));
        if left == 0 {
            return Ok(Next::End);
        }
        let room = self.room - self.done;
        if room == 0 {
            return Err(left_range(self.room));
        }
        let count = self.due(wait_max).min(left).min(room).min(self.rows_max as u64);
        if count == 0 {
            return Ok(Next::Nothing);
        }
        for (column, rows) in self.columns.iter().zip(&mut self.rows.fields) {
            column.append(rows, self.done..self.done + count);
        }
        self.rows.commit_many(count as usize);
        self.done += count;
        Ok(Next::Batch(SourceBatch { events: self.rows.finish(), bad: Vec::new() }))
    }

    fn token(&self) -> Option<String> {
        Some(format!("{:016x} {}", self.identity, self.done))
    }

    fn replays(&self) -> bool {
        true
    }

    fn is_last(&self) -> bool {
        self.pace.is_last
    }

    fn outlook(&self) -> Option<String> {
        Some(match self.pace.events {
            None => format!("makes events from number {} on, without an end", self.done),
            Some(events) if events <= self.done => format!("has nothing new: all {} events were made", self.done),
            Some(events) => format!("makes {} more events, from number {} on", events - self.done, self.done),
        })
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        let identity = format!("{:016x}", self.identity);
        let place = token.and_then(|token| token.split_once(' ')).filter(|(of, _)| *of == identity);
        let Some(done) = place.and_then(|(_, done)| done.parse().ok()) else {
            return Err(IoFailure::new("the generator makes other events than those that were taken of it before"));
        };
        (self.done, self.before) = (done, done);
        Ok(Resumed::Behind)
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress { done: self.done, total: self.pace.events }
    }
}
