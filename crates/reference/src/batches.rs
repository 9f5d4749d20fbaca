//! Atomic batches. One of a number of events is processed behind the event that completes it; one of an interval of time,
//! and what is left at the end of time, when it is due.

use crate::due::time_of;
use crate::{NextEvent, Record, Reference};
use tidemill_model::{Position, Type, Value};
use tidemill_plan::{Batch, BatchSize, Origin, Program, Stream, StreamId};

/// A stream of batches.
pub(crate) struct Batching {
    stream: StreamId,
    of: Batch,
    /// The field of the source's events with their time.
    time: Option<usize>,
    /// The type of times.
    ty: Type,
    /// The batches that are complete.
    complete: i64,
    /// The events of the batch that is begun.
    events: Vec<Record>,
}

pub(crate) fn all(program: &Program) -> Vec<Batching> {
    let batching = |(stream, of): (StreamId, &Stream)| {
        let Origin::Batch(batch) = of.origin else { return None };
        let time = program.streams[batch.source].event_time;
        let ty = of.schema.fields.last().and_then(|field| field.scalar_type()).map_or(Type::Int, |field| field.ty);
        Some(Batching { stream, of: batch, time, ty, complete: 0, events: Vec::new() })
    };
    program.streams.iter_enumerated().filter_map(batching).collect()
}

impl Batching {
    fn is_full(&self) -> bool {
        matches!(self.of.size, BatchSize::Count(size) if self.events.len() as u64 >= size)
    }

    /// Returns the boundary at which the open batch is due; `end`: behind all times that were shown.
    fn due(&self, end: i64) -> Option<i64> {
        let first = self.events.first()?;
        match self.of.size {
            BatchSize::Count(_) => Some(end),
            BatchSize::Time { every, origin } => {
                let time = first[self.time.expect("its events have times")].word().expect("a time is never null");
                let before = (i128::from(time) - i128::from(origin)).div_euclid(every.into());
                i64::try_from((before + 1) * i128::from(every) + i128::from(origin)).ok()
            }
        }
    }

    /// Returns the open batch as an event; `boundary`: where it is due, if no event has completed it.
    fn event(&self, boundary: Option<i64>) -> Record {
        let mut event = vec![Value::Int(self.complete + 1), Value::List(self.events.clone())];
        let time = |time: i64| time_of(self.ty, time);
        match (self.of.size, boundary) {
            (BatchSize::Time { every, .. }, Some(end)) => event.extend([end.saturating_sub(every), end].map(time)),
            (_, Some(end)) => event.extend(self.time.map(|_| time(end.saturating_sub(1)))),
            (_, None) => event.extend(self.time.map(|field| self.events[self.events.len() - 1][field].clone())),
        }
        event
    }

    fn begin_next(&mut self) {
        self.complete += 1;
        self.events.clear();
    }
}

impl Reference<'_> {
    /// Processes an event of a root stream with its whole cascade, and then the batches that it completes.
    pub(crate) fn process_with_batches(&mut self, root: StreamId, event: Record) {
        if let Some(due) = self.batching(root) {
            self.batches[due].begin_next();
        }
        self.process_root(root, event.clone());
        for number in 0..self.batches.len() {
            let batching = &mut self.batches[number];
            if batching.of.source != root {
                continue;
            }
            batching.events.push(event.clone());
            if batching.is_full() {
                let (stream, batch) = (batching.stream, batching.event(None));
                batching.begin_next();
                self.process_root(stream, batch);
            }
        }
    }

    /// Returns the boundary behind the greatest time that was shown; behind all where none was.
    fn behind_shown(&self) -> i64 {
        self.shown().filter(|&shown| shown > i64::MIN).map_or(i64::MAX, |shown| shown.saturating_add(1))
    }

    fn batching(&self, stream: StreamId) -> Option<usize> {
        self.batches.iter().position(|of| of.stream == stream)
    }

    /// Returns the boundary at which a batch of this stream is due; none if no batch is open, or it is no stream of
    /// batches.
    pub(crate) fn batch_is_due(&self, stream: StreamId) -> Option<i64> {
        self.batches[self.batching(stream)?].due(self.behind_shown())
    }

    /// Returns the batch of a stream that is due at a boundary.
    pub(crate) fn due_batch(&self, stream: StreamId, boundary: i64) -> Vec<NextEvent> {
        let batching = &self.batches[self.batching(stream).expect("a stream of batches")];
        let position = Position { time: boundary.saturating_sub(1), source: u32::MAX, offset: 0 };
        let is_due = batching.due(boundary) == Some(boundary);
        let event =
            || NextEvent { root: stream, position, split: 0, is_known: false, event: batching.event(Some(boundary)) };
        Vec::from_iter(is_due.then(event))
    }

    /// Has a batch be begun as another execution left it: the stream of batches by its name, how many are complete, and the
    /// events of the next one.
    pub fn stand_batch(&mut self, stream: &str, complete: u64, events: Vec<Vec<Value>>) {
        let program = self.program;
        let batching = self.batches.iter_mut().find(|batching| program.streams[batching.stream].name == stream);
        if let Some(batching) = batching {
            (batching.complete, batching.events) = (complete as i64, events);
        }
    }
}
