//! Atomic batches: an epoch gets them as streams of their own ([`tidemill_plan::Batch`]). One of a number of events stands
//! directly behind the event that completes it; one of an interval of time is due at its end. What is begun and not complete
//! stays here from epoch to epoch.

use crate::due::DueRows;
use crate::epoch::EpochInput;
use crate::gate::Gate;
use crate::gate::queue::rows;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StructArray, TimestampMicrosecondArray, UInt32Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{BatchSize, Bound, Origin, Program, StreamId};

/// The batch of a stream that is begun and not complete.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenBatch {
    /// The name of the stream of batches.
    pub stream: String,
    /// The number of complete batches of the stream before this one.
    pub complete: u64,
    /// Its events so far; none if there are none.
    pub events: Option<RecordBatch>,
}

/// A stream of batches.
pub(super) struct BatchStream {
    name: String,
    /// Its number among the streams whose events an epoch is given.
    number: usize,
    /// The number of its source.
    source: usize,
    size: BatchSize,
    schema: SchemaRef,
    /// The field of the source's events with their time.
    time: Option<usize>,
    /// The number of batches that are complete.
    complete: u64,
    /// The events of the one that is not, in parts.
    open: Vec<RecordBatch>,
}

impl BatchStream {
    /// Returns all of a program, in the order of their declaration.
    pub(super) fn of(program: &Program, sources: &[StreamId]) -> Vec<BatchStream> {
        let stream = |(number, id): (usize, StreamId)| {
            let stream = &program.streams[id];
            let Origin::Batch(batch) = stream.origin else { return None };
            Some(BatchStream {
                name: stream.name.clone(),
                number,
                source: sources.iter().position(|&source| source == batch.source).expect("batches are of a source"),
                size: batch.size,
                schema: arrow_schema(&stream.schema),
                time: program.streams[batch.source].event_time,
                complete: 0,
                open: Vec::new(),
            })
        };
        // In the order of their declaration: those of one event come in it.
        let mut all: Vec<BatchStream> = (sources.len()..).zip(program.dues()).filter_map(stream).collect();
        all.sort_by_key(|of| program.streams.iter().position(|stream| stream.name == of.name));
        all
    }

    fn held(&self) -> usize {
        self.open.iter().map(RecordBatch::num_rows).sum()
    }

    /// Takes events of the source. Gives the batches that they complete, and by batch how many of these events it takes to
    /// complete it. One that was begun with a greater size is complete with the next event.
    fn add(&mut self, events: &RecordBatch) -> Option<(RecordBatch, Vec<usize>)> {
        let before = self.held();
        let all = before + events.num_rows();
        let size = match self.size {
            BatchSize::Count(size) => usize::try_from(size).unwrap_or(usize::MAX),
            BatchSize::Time { .. } => usize::MAX,
        };
        let first = size.max(before + 1);
        if all < first {
            self.keep(copied(events, 0));
            return None;
        }
        self.open.push(events.clone());
        let events = joined(&self.open);
        let ends: Vec<usize> = (first..=all).step_by(size).collect();
        self.open.clear();
        let complete = self.counted(&events, &ends);
        let rest = ends.last().copied().expect("the first is complete");
        if rest < all {
            self.keep(copied(&events, rest));
        }
        Some((complete, ends.into_iter().map(|end| end - before).collect()))
    }

    /// Adds to what is open. Each part is longer than the next, so that a batch of many epochs has few parts.
    fn keep(&mut self, mut part: RecordBatch) {
        while let Some(last) = self.open.pop_if(|last| last.num_rows() <= part.num_rows()) {
            part = joined(&[last, part]);
        }
        self.open.push(part);
    }

    /// Returns the batches of these events, given their ends.
    fn counted(&mut self, events: &RecordBatch, ends: &[usize]) -> RecordBatch {
        let last = UInt32Array::from_iter_values(ends.iter().map(|&end| end as u32 - 1));
        let time = self.time.map(|time| take(events.column(time), &last, None).expect("rows of the events"));
        self.complete(events, ends, time.into_iter().collect())
    }

    fn complete(&mut self, events: &RecordBatch, ends: &[usize], times: Vec<ArrayRef>) -> RecordBatch {
        let columns = self.columns(events, ends).into_iter().chain(times).collect();
        self.complete += ends.len() as u64;
        RecordBatch::try_new(self.schema.clone(), columns).expect("the columns are of the schema")
    }

    /// Returns the boundary at which what is open is due; `end`: that behind all times that were shown.
    fn due(&self, end: i64) -> Option<i64> {
        let first = self.open.first()?;
        match self.size {
            BatchSize::Count(_) => Some(end),
            BatchSize::Time { every, origin } => {
                let time = times(first.column(self.time.expect("its events have times")))[0];
                Bound::Grid { every, origin }.after(time)
            }
        }
    }

    /// Closes the open batch, as the one that is due at a boundary.
    fn close(&mut self, boundary: i64) -> RecordBatch {
        let events = joined(&std::mem::take(&mut self.open));
        let end = [events.num_rows()];
        match self.size {
            BatchSize::Count(_) => {
                let time = self.time.map(|_| self.time_of(boundary.saturating_sub(1)));
                self.complete(&events, &end, time.into_iter().collect())
            }
            BatchSize::Time { every, .. } => {
                let times = [boundary.saturating_sub(every), boundary].map(|time| self.time_of(time));
                self.complete(&events, &end, times.into())
            }
        }
    }

    /// Returns a time, as its last field has it.
    fn time_of(&self, time: i64) -> ArrayRef {
        let ty = self.schema.field(self.schema.fields().len() - 1).data_type();
        match ty {
            DataType::Int64 => Arc::new(Int64Array::from(vec![time])),
            ty => Arc::new(TimestampMicrosecondArray::from(vec![time]).with_data_type(ty.clone())),
        }
    }

    /// Returns the numbers and the lists of the batches of these events, given their ends.
    fn columns(&self, events: &RecordBatch, ends: &[usize]) -> [ArrayRef; 2] {
        let first = self.complete as i64 + 1;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + ends.len() as i64));
        let DataType::List(element) = self.schema.field(1).data_type() else { unreachable!("the events are a list") };
        let DataType::Struct(fields) = element.data_type() else { unreachable!("an event has fields") };
        let within = events.slice(0, ends[ends.len() - 1]);
        let structs = StructArray::new(fields.clone(), within.columns().to_vec(), None);
        let offsets = OffsetBuffer::from_lengths(ends.iter().scan(0, |from, &end| {
            let length = end - *from;
            *from = end;
            Some(length)
        }));
        [numbers, Arc::new(ListArray::new(element.clone(), offsets, Arc::new(structs), None))]
    }
}

/// Returns the times of a column of event times.
fn times(column: &ArrayRef) -> &[i64] {
    match column.as_primitive_opt::<Int64Type>() {
        Some(ints) => ints.values(),
        None => column.as_primitive::<TimestampMicrosecondType>().values(),
    }
}

/// Returns events of one source in one batch, at least one part.
fn joined(parts: &[RecordBatch]) -> RecordBatch {
    concat_batches(&parts[0].schema(), parts).expect("events of one source have one schema")
}

/// Returns events from a row on, apart from the memory of the others.
fn copied(events: &RecordBatch, from: usize) -> RecordBatch {
    rows(events, &Vec::from_iter(from as u32..events.num_rows() as u32))
}

impl Gate {
    /// Gives an epoch the batches that its events complete, each directly behind the last of its events.
    pub(super) fn complete_batches(&mut self, input: &mut EpochInput) {
        // The batches that end within this epoch, by source: after which of its events, and the number of the batch's
        // stream.
        let mut behind: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.sources()];
        for stream in &mut self.batches {
            let Some(events) = &input.sources[stream.source].events else { continue };
            let Some((batches, ends)) = stream.add(events) else { continue };
            behind[stream.source].extend(ends.into_iter().map(|end| (end, stream.number as u32)));
            input.sources[stream.number].events = Some(batches);
        }
        if behind.iter().all(Vec::is_empty) {
            return;
        }
        // Those of one event are in the order of their declaration.
        behind.iter_mut().for_each(|of| of.sort_by_key(|(end, _)| *end));
        let mut next: Vec<_> = behind.into_iter().map(|of| of.into_iter().peekable()).collect();
        let mut passed = vec![0; next.len()];
        let mut merge = Vec::with_capacity(input.merge.len());
        for &(stream, count) in &input.merge {
            let Some(next) = next.get_mut(stream as usize) else {
                merge.push((stream, count));
                continue;
            };
            let passed = &mut passed[stream as usize];
            let end = *passed + count as usize;
            while let Some((at, batches)) = next.next_if(|(at, _)| *at <= end) {
                if at > *passed {
                    merge.push((stream, (at - *passed) as u32));
                    *passed = at;
                }
                merge.push((batches, 1));
            }
            if end > *passed {
                merge.push((stream, (end - *passed) as u32));
                *passed = end;
            }
        }
        input.merge = merge;
    }

    /// Returns the batch of a stream that is due at a boundary, given the stream's number among those whose events an
    /// epoch is given; without a boundary, only when one is due is found. One of a number of events is due at the end
    /// of time only, when it is asked for.
    pub fn due_batch(&mut self, number: usize, boundary: Option<i64>) -> DueRows {
        let end = self.shown().map_or(i64::MAX, |shown| shown.saturating_add(1));
        let stream = self.batches.iter_mut().find(|stream| stream.number == number).expect("a stream of batches");
        let due = stream.due(end);
        match boundary.filter(|_| due.is_some() && due == boundary) {
            Some(boundary) => DueRows { events: Some(stream.close(boundary)), next: None },
            None => DueRows { events: None, next: due },
        }
    }

    /// Returns the batches of a source that are begun.
    pub(super) fn open_batches(&self, source: usize) -> Vec<OpenBatch> {
        let of_source = self.batches.iter().filter(|stream| stream.source == source);
        let open = |stream: &BatchStream| (!stream.open.is_empty()).then(|| joined(&stream.open));
        let begun = of_source.filter(|stream| stream.complete > 0 || !stream.open.is_empty());
        begun
            .map(|stream| OpenBatch { stream: stream.name.clone(), complete: stream.complete, events: open(stream) })
            .collect()
    }

    /// Goes on with the batches that were begun.
    pub(super) fn go_on_with(&mut self, open: Vec<OpenBatch>) {
        for OpenBatch { stream, complete, events } in open {
            let Some(of) = self.batches.iter_mut().find(|of| of.name == stream) else { continue };
            of.complete = complete;
            of.open.extend(events.filter(|events| events.num_rows() > 0));
        }
    }
}
