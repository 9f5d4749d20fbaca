//! Atomic batches. One of a number of events is processed behind the event that completes it, one of an interval of time
//! when the interval is due.

use crate::{Record, Reference};
use tidemill_model::Value;
use tidemill_plan::{Origin, Program, Stream, StreamId};

/// A stream of batches.
pub(crate) struct Batching {
    stream: StreamId,
    source: StreamId,
    /// The events of a batch; none where an interval of time is one.
    size: Option<u64>,
    /// The batches that are complete.
    complete: i64,
    /// The events of the next one.
    events: Vec<Record>,
}

pub(crate) fn all(program: &Program) -> Vec<Batching> {
    let batching = |(stream, of): (StreamId, &Stream)| {
        let size = match of.origin {
            Origin::Batch(batch) => Some(batch.size),
            _ => None,
        };
        Some(Batching { stream, source: of.origin.batched()?, size, complete: 0, events: Vec::new() })
    };
    program.streams.iter_enumerated().filter_map(batching).collect()
}

impl Batching {
    /// The fields that every batch has, of the one that is complete now.
    fn fields(&self) -> [Value; 2] {
        [Value::Int(self.complete + 1), Value::List(self.events.clone())]
    }

    fn begin_next(&mut self) {
        self.complete += 1;
        self.events.clear();
    }
}

impl Reference<'_> {
    /// Processes an event of a root stream with its whole cascade, and then the batches that it completes.
    pub(crate) fn process_with_batches(&mut self, root: StreamId, event: Record) {
        if let Some(timed) = self.batches.iter_mut().find(|of| of.stream == root && of.size.is_none()) {
            timed.begin_next();
        }
        self.process_root(root, event.clone());
        for number in 0..self.batches.len() {
            let batching = &mut self.batches[number];
            if batching.source != root {
                continue;
            }
            batching.events.push(event.clone());
            if batching.size.is_none_or(|size| (batching.events.len() as u64) < size) {
                continue;
            }
            let time = self.program.streams[root].event_time.map(|field| event[field].clone());
            let batch = batching.fields().into_iter().chain(time).collect();
            let stream = batching.stream;
            batching.begin_next();
            self.process_root(stream, batch);
        }
    }

    /// The first fields of what is due of a stream: of batches, those that every batch has.
    pub(crate) fn gathered(&self, stream: StreamId) -> Vec<Value> {
        let batching = self.batches.iter().find(|of| of.stream == stream);
        batching.map_or(Vec::new(), |batching| batching.fields().to_vec())
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
