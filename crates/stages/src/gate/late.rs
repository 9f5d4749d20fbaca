//! Late events that are inputs: they wait in the queue of their split, between the punctual events, at the position where
//! they stand, and pass like them. An epoch gets them as a stream of their own, with the time of their position as one more
//! field ([`tidemill_plan::Origin::LateRoot`]).

use crate::gate::queue::{Arrived, LateRows, Queue, Segment, rows};
use crate::gate::{Aside, Gate};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Origin, Program, StreamId};

/// The stream of a source's late events.
pub(super) struct LateStream {
    /// Its number among the streams whose events an epoch is given.
    number: usize,
    schema: SchemaRef,
}

impl LateStream {
    /// Returns the stream of each source's late events, by source, if these are inputs.
    pub(super) fn of(program: &Program, sources: &[StreamId]) -> Vec<Option<LateStream>> {
        let (lates, before) = (program.lates(), sources.len() + program.dues().len());
        let stream = |source: &StreamId| {
            let of = lates.iter().position(|&late| program.streams[late].origin == Origin::LateRoot(*source))?;
            Some(LateStream { number: before + of, schema: arrow_schema(&program.streams[lates[of]].schema) })
        };
        sources.iter().map(stream).collect()
    }

    /// Makes events of the late ones, with the times where they stand.
    fn events(&self, late: &RecordBatch, stand: Vec<i64>) -> RecordBatch {
        let ty = self.schema.fields().last().expect("the time of the position").data_type().clone();
        let times: ArrayRef = match ty {
            DataType::Int64 => Arc::new(Int64Array::from(stand)),
            _ => Arc::new(TimestampMicrosecondArray::from(stand).with_data_type(ty)),
        };
        let columns = late.columns().iter().cloned().chain([times]).collect();
        RecordBatch::try_new(self.schema.clone(), columns).expect("the columns are of the schema")
    }
}

/// The first events of a queue: which are late, and the times of all of them.
pub(super) struct LateAmong {
    is_late: Vec<bool>,
    times: Vec<i64>,
}

impl LateAmong {
    fn rows(&self, late: bool) -> Vec<u32> {
        (0..).zip(&self.is_late).filter(|(_, is_late)| **is_late == late).map(|(row, _)| row).collect()
    }
}

impl Queue {
    /// Returns which of the first `count` events are late; none if none is.
    pub(super) fn late_among(&self, count: usize) -> Option<LateAmong> {
        if count == 0 || self.segments.iter().all(|segment| segment.late.is_none()) {
            return None;
        }
        let (mut is_late, mut times) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for segment in &self.segments {
            let taken = segment.times.len().min(count - times.len());
            times.extend_from_slice(&segment.times[..taken]);
            match &segment.late {
                Some(late) => is_late.extend(late.iter().take(taken)),
                None => is_late.resize(times.len(), false),
            }
        }
        is_late.contains(&true).then_some(LateAmong { is_late, times })
    }

    /// Returns the part of a checkpoint that belongs to this queue: the held events, by segments; and the late and bad
    /// records, among them late events that are inputs, each with the number of held events before it.
    pub(super) fn held_apart(&self) -> (Vec<RecordBatch>, Aside) {
        let (mut held, mut aside, mut before) = (Vec::new(), self.aside.clone(), 0);
        for segment in &self.segments {
            let Some(is_late) = &segment.late else {
                held.push(segment.batch.clone());
                before += segment.times.len() as u64;
                continue;
            };
            let (mut own, mut others) = (Vec::new(), Vec::new());
            for (row, is_late) in (0..).zip(is_late) {
                if is_late {
                    own.push(row);
                    aside.after.push(before);
                } else {
                    others.push(row);
                    before += 1;
                }
            }
            if !others.is_empty() {
                held.push(rows(&segment.batch, &others));
            }
            if !own.is_empty() {
                let stand = own.iter().map(|&row| segment.times[row as usize]).collect();
                aside.late.push((rows(&segment.batch, &own), stand));
            }
        }
        (held, aside)
    }

    /// Puts late events between the held ones. `after`: how many of these are before each; none where that is not known,
    /// because they were no inputs: then those that are not later.
    pub(super) fn put_late(&mut self, late: Vec<(RecordBatch, Vec<i64>)>, after: &[u64], now: u64) {
        let held: Vec<i64> = self.segments.iter().flat_map(|segment| segment.times.iter().copied()).collect();
        let stand: Vec<i64> = late.iter().flat_map(|(_, times)| times.iter().copied()).collect();
        let Some((first, _)) = late.first() else { return };
        let batches = self.segments.iter().map(|segment| &segment.batch).chain(late.iter().map(|(batch, _)| batch));
        let batch = concat_batches(&first.schema(), batches).expect("batches of one source have one schema");
        let place = |row: u32| match (row as usize).checked_sub(held.len()) {
            None => (u64::from(row), true),
            Some(of) => {
                let not_later = || held.partition_point(|&time| time <= stand[of]) as u64;
                (after.get(of).copied().unwrap_or_else(not_later), false)
            }
        };
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_by_key(|&row| place(row));
        let time = |row: u32| held.get(row as usize).copied().unwrap_or_else(|| stand[row as usize - held.len()]);
        let times = order.iter().map(|&row| time(row)).collect();
        let late = order.iter().map(|&row| row as usize >= held.len()).collect::<BooleanBuffer>();
        self.segments.clear();
        self.held = 0;
        let batch = rows(&batch, &order);
        self.push(Segment { batch, times, arrived: Arrived::Together(now), late: Some(late) });
    }
}

/// Returns the events of a batch, of which some are late.
pub(super) fn standing(batch: RecordBatch, times: &[i64], late: LateRows, now: u64) -> Segment {
    let LateRows { rows, stand } = late;
    let (mut times, mut is_late) = (times.to_vec(), vec![false; times.len()]);
    for (row, stands) in rows.into_iter().zip(stand) {
        (times[row as usize], is_late[row as usize]) = (stands, true);
    }
    Segment { batch, times: times.into(), arrived: Arrived::Together(now), late: Some(is_late.into()) }
}

/// Returns which events of several segments are late, in another order.
pub(super) fn in_order(parts: &[Segment], order: &[u32]) -> Option<BooleanBuffer> {
    if parts.iter().all(|part| part.late.is_none()) {
        return None;
    }
    let is_late = |part: &Segment| match &part.late {
        Some(late) => late.iter().collect(),
        None => vec![false; part.times.len()],
    };
    let all: Vec<bool> = parts.iter().flat_map(is_late).collect();
    Some(order.iter().map(|&row| all[row as usize]).collect())
}

/// The events of splits that an epoch takes, where the streams that get them are not the splits.
pub(super) struct Divided {
    /// The events of each split, by number; after them, in the same order, the late events of each split.
    pub(super) parts: Vec<Option<RecordBatch>>,
    /// The places of late events among the others, by split.
    among: Vec<Option<LateAmong>>,
}

impl Divided {
    pub(super) fn new(among: Vec<Option<LateAmong>>) -> Divided {
        Divided { parts: vec![None; 2 * among.len()], among }
    }

    /// Adds the events of a split.
    pub(super) fn add(&mut self, gate: &Gate, split: usize, events: RecordBatch) {
        let Some(among) = &self.among[split] else {
            self.parts[split] = Some(events);
            return;
        };
        let (punctual, late) = (among.rows(false), among.rows(true));
        assert_eq!(events.num_rows(), punctual.len() + late.len(), "each event is punctual or late");
        if !punctual.is_empty() {
            self.parts[split] = Some(rows(&events, &punctual));
        }
        let stand = late.iter().map(|&row| among.times[row as usize]).collect();
        let stream = gate.lates[gate.source_of(split)].as_ref().expect("its late events are inputs");
        self.parts[self.among.len() + split] = Some(stream.events(&rows(&events, &late), stand));
    }

    /// Runs of splits as runs of parts.
    pub(super) fn runs(&self, merge: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let mut at = vec![0; self.among.len()];
        let mut runs = Vec::with_capacity(merge.len());
        for &(split, count) in merge {
            let Some(among) = &self.among[split as usize] else {
                runs.push((split, count));
                continue;
            };
            let from = at[split as usize];
            at[split as usize] += count as usize;
            for run in among.is_late[from..from + count as usize].chunk_by(|a, b| a == b) {
                let late = if run[0] { self.among.len() as u32 } else { 0 };
                runs.push((split + late, run.len() as u32));
            }
        }
        runs
    }
}

impl Gate {
    /// Returns the number of the stream that gets the events of a part.
    pub(super) fn stream_of(&self, part: usize) -> usize {
        match part.checked_sub(self.queues.len()) {
            None => self.source_of(part),
            Some(split) => self.lates[self.source_of(split)].as_ref().expect("its late events are inputs").number,
        }
    }
}
