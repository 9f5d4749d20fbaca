//! Rows of tables that are due at times ([`tidemill_plan::Due`]), found by looking at all rows.

use crate::{NextEvent, Record, Reference};
use std::cmp::Ordering;
use tidemill_model::{Position, Type, Value};
use tidemill_plan::{Bound, Due, DueField, Origin, StreamId};

impl Reference<'_> {
    /// Returns the events of a stream of what is due at a boundary, in order.
    pub fn due(&self, stream: StreamId, boundary: i64) -> Vec<NextEvent> {
        let Some(due) = self.due_of(stream) else { return self.due_batch(stream, boundary) };
        let mut rows = self.table(due.table);
        if due.is_ticks() {
            let is_due = rows.first().and_then(|row| row[due.due].word()).is_none_or(|next| next <= boundary);
            let position = Position { time: boundary, source: u32::MAX, offset: 0 };
            let event = vec![value(due, &due.fields[0], &Vec::new(), boundary)];
            let tick = NextEvent { root: stream, position, split: 0, is_known: false, event };
            return Vec::from_iter(is_due.then_some(tick));
        }
        if let Bound::Rows { of, .. } = due.bound {
            let next = rows.first().and_then(|row| row[due.due].word());
            rows.clear();
            if next.is_none_or(|next| next <= boundary) {
                // No row has the key of the boundary itself, which comes first.
                rows.push(vec![Value::Null; self.program.tables[of].columns.len()]);
                rows.extend(self.table(of));
            }
        } else {
            rows.retain(|row| row[due.due].word() == Some(boundary));
            if due.is_by_key() {
                let key = &self.program.tables[due.table].key;
                rows.sort_by(|a, b| by_key(key, a, b));
            } else {
                rows.sort_by_key(|row| row[due.first].word());
            }
        }
        let time = if due.is_wakes() { boundary } else { boundary.saturating_sub(1) };
        let event = |(offset, row): (usize, Record)| NextEvent {
            root: stream,
            position: Position { time, source: u32::MAX, offset: offset as u64 },
            split: 0,
            is_known: false,
            event: due.fields.iter().map(|field| value(due, field, &row, boundary)).collect(),
        };
        rows.into_iter().enumerate().map(event).collect()
    }

    /// Returns the rows of one stream that are due next, if they are at a time or before.
    pub fn due_within(&self, through: i64) -> Vec<NextEvent> {
        let next = |stream: StreamId| {
            let due = self.due_of(stream)?;
            let time = self.table(due.table).iter().filter_map(|row| row[due.due].word()).min()?;
            Some((time, stream))
        };
        let next = self.program.dues().into_iter().filter_map(next).min_by_key(|&(time, _)| time);
        next.filter(|&(time, _)| time <= through).map_or_else(Vec::new, |(time, stream)| self.due(stream, time))
    }

    /// Runs everything that is due before an event of a time, each boundary before the next. Beyond the greatest time that
    /// was shown, where a late event can stand at the end of time, there are no timers.
    pub fn run_due(&mut self, time: i64) {
        let last = *self.last_time.get_or_insert(time);
        let timed = time.min(self.shown().unwrap_or(time));
        self.run_until(timed, Some(last));
        if time > timed {
            self.run_until(time, None);
        }
        self.last_time = Some(last.max(time));
    }

    /// Returns the greatest time that was shown.
    pub(crate) fn shown(&self) -> Option<i64> {
        self.sources.iter().map(|source| source.time_max.unwrap_or(i64::MIN).max(source.punctuated)).max()
    }

    /// Ends time: everything that is open closes. No tick comes beyond the greatest time that was shown.
    pub fn end(&mut self) {
        if let (Some(last), Some(shown)) = (self.last_time, self.shown()) {
            self.run_until(shown, Some(last));
        }
        let mut streams = self.program.dues();
        streams.retain(|&stream| self.is_timed(stream) || self.due_of(stream).is_none());
        self.run_streams_until(&streams, i64::MAX, None);
        self.run_streams_until(&self.program.dues(), i64::MAX, None);
    }

    /// Runs what is due at a time of its own. `last`: the time of the last event, after which ticks go on; none if
    /// there are none any more.
    fn run_until(&mut self, through: i64, last: Option<i64>) {
        let mut timed = self.program.dues();
        timed.retain(|&stream| self.is_timed(stream));
        self.run_streams_until(&timed, through, last);
    }

    fn run_streams_until(&mut self, streams: &[StreamId], through: i64, last: Option<i64>) {
        let next = |of: &Self, stream: StreamId| {
            let Some(due) = of.due_of(stream) else { return of.batch_is_due(stream) };
            let row = of.table(due.table).iter().filter_map(|row| row[due.due].word()).min();
            if due.is_wakes() {
                return last.and(row);
            }
            if due.is_rows() {
                let end = if last.is_none() { of.shown() } else { None };
                return due.next_rows(row, last.or(of.last_time)?, end);
            }
            if due.is_ticks() { last.and_then(|last| due.next_tick(row, last)) } else { row }
        };
        while let Some(boundary) = streams.iter().filter_map(|&s| next(self, s)).min().filter(|&b| b <= through) {
            for &stream in streams {
                if next(self, stream) == Some(boundary) {
                    for event in self.due(stream, boundary) {
                        self.process(event);
                    }
                }
            }
            let stays = |stream: &StreamId| next(self, *stream).is_some_and(|next| next <= boundary);
            assert!(
                !streams.iter().any(|s| !self.due_of(*s).is_some_and(Due::is_ticks) && stays(s)),
                "what was due is not due again"
            );
        }
    }

    /// Returns whether due rows of a stream have a time of their own.
    fn is_timed(&self, stream: StreamId) -> bool {
        self.program.streams[stream].origin.bound() != Some(Bound::Never)
    }

    /// Returns the rows that are due; none of batches.
    fn due_of(&self, stream: StreamId) -> Option<&Due> {
        match &self.program.streams[stream].origin {
            Origin::Due(due) => Some(due),
            _ => None,
        }
    }
}

/// Compares keys, which have values of one type, column by column.
fn by_key(key: &[usize], a: &Record, b: &Record) -> Ordering {
    let columns = key.iter().map(|&column| match (&a[column], &b[column]) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => a.word().cmp(&b.word()),
    });
    columns.fold(Ordering::Equal, Ordering::then)
}

fn value(due: &Due, field: &DueField, row: &Record, boundary: i64) -> Value {
    let time = |units: i64| time_of(due.time, units);
    match *field {
        DueField::Part { none: Some(none), .. } if row[none] == Value::Bool(true) => Value::Null,
        DueField::Part { column, .. } => row[column].clone(),
        DueField::Time { column, less } => time(row[column].word().expect("a column of ints").saturating_sub(less)),
        DueField::Start { length } => time(boundary.saturating_sub(length)),
        DueField::End => time(boundary),
    }
}

/// Returns a time of this type.
pub(crate) fn time_of(ty: Type, units: i64) -> Value {
    if ty == Type::Int { Value::Int(units) } else { Value::Time(units) }
}
