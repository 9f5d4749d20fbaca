//! The events that the gate holds for one source, as segments in order.

use crate::gate::aside::Aside;
use crate::gate::late;
use crate::progress::{SplitMarks, SplitPlace};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_io::BadRecord;
use tidemill_model::{Type, least_time};

/// Segments smaller than this are joined into one batch if an epoch takes several.
const SEGMENT_ALONE_MIN: usize = 2048;

/// Events of one source in position order.
pub(super) struct Segment {
    pub(super) batch: RecordBatch,
    pub(super) times: ScalarBuffer<i64>,
    pub(super) arrived: Arrived,
    /// A flag for each event: whether it is late, and stands at another time than it holds; none if none is late.
    pub(super) late: Option<BooleanBuffer>,
}

/// The arrival times of a segment's events.
#[derive(Clone)]
pub(super) enum Arrived {
    /// All at the same time.
    Together(u64),
    /// Each at its own time: the segment was merged from several batches.
    Apart(ScalarBuffer<u64>),
}

impl Arrived {
    pub(super) fn at(&self, event: usize) -> u64 {
        match self {
            Arrived::Together(time) => *time,
            Arrived::Apart(times) => times[event],
        }
    }

    pub(super) fn slice(&self, from: usize, len: usize) -> Arrived {
        match self {
            Arrived::Together(time) => Arrived::Together(*time),
            Arrived::Apart(times) => Arrived::Apart(times.slice(from, len)),
        }
    }

    /// Appends the arrival times of the first `len` events, each with its number of events.
    pub(super) fn count(&self, len: usize, arrivals: &mut Vec<(u64, u64)>) {
        match self {
            Arrived::Together(time) => arrivals.push((*time, len as u64)),
            Arrived::Apart(times) => {
                for run in times[..len].chunk_by(|a, b| a == b) {
                    arrivals.push((run[0], run.len() as u64));
                }
            }
        }
    }
}

/// The events that are held for one split of a source.
pub(super) struct Queue {
    pub(super) place: SplitPlace,
    pub(super) time_field: Option<(usize, Type)>,
    /// A flag: whether its late events are inputs, and pass at their place.
    pub(super) takes_late: bool,
    /// The field that gets the time of the position when events pass.
    pub(super) filled: Option<(usize, Type)>,
    pub(super) segments: VecDeque<Segment>,
    /// The number of events in the segments.
    pub(super) held: usize,
    pub(super) aside: Aside,
    /// The source had already ended when its standing was restored.
    pub(super) ended_before: bool,
    pub(super) taken: u64,
    pub(super) last_time: Option<i64>,
}

/// The late rows of a batch.
pub(super) struct LateRows {
    pub(super) rows: Vec<u32>,
    /// The times at which they stand.
    pub(super) stand: Vec<i64>,
}

/// A position in a queue.
pub(super) struct Cursor<'a> {
    pub(super) queue: &'a Queue,
    pub(super) segment: usize,
    pub(super) row: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(queue: &'a Queue) -> Self {
        Cursor { queue, segment: 0, row: 0 }
    }

    pub(super) fn time(&self) -> Option<i64> {
        self.queue.segments.get(self.segment).map(|s| s.times[self.row])
    }

    pub(super) fn advance(&mut self) {
        self.row += 1;
        if self.row == self.queue.segments[self.segment].times.len() {
            self.segment += 1;
            self.row = 0;
        }
    }
}

impl Segment {
    /// Returns the number of its events whose time is at most `limit`.
    pub(super) fn passing(&self, limit: i64) -> usize {
        match self.times.last() {
            Some(&last) if last <= limit => self.times.len(),
            _ => self.times.partition_point(|&t| t <= limit),
        }
    }

    pub(super) fn slice(&self, from: usize, len: usize) -> Segment {
        Segment {
            batch: self.batch.slice(from, len),
            times: self.times.slice(from, len),
            arrived: self.arrived.slice(from, len),
            late: self.late.as_ref().map(|late| late.slice(from, len)),
        }
    }
}

impl Queue {
    /// Makes a split before its first input.
    pub(super) fn new(place: SplitPlace, time_field: Option<(usize, Type)>) -> Queue {
        Queue {
            place,
            time_field,
            takes_late: false,
            filled: None,
            segments: VecDeque::new(),
            held: 0,
            aside: Aside::default(),
            ended_before: false,
            taken: 0,
            last_time: None,
        }
    }

    /// Returns the times of the next events of a source without event time. Sent events have none, and stand here at 0.
    pub(super) fn next_times(marks: &mut SplitMarks, count: usize) -> ScalarBuffer<i64> {
        if marks.is_sent {
            return std::iter::repeat_n(0, count).collect();
        }
        let first = marks.count(count);
        (first..first + count as i64).collect()
    }

    /// Returns the time of the first held event.
    pub(super) fn first_time(&self) -> Option<i64> {
        self.segments.front().map(|segment| segment.times[0])
    }

    /// Returns the time of the last held event.
    pub(super) fn held_until(&self) -> Option<i64> {
        self.segments.back().and_then(|segment| segment.times.last().copied())
    }

    /// Adds a segment after the held ones.
    pub(super) fn push(&mut self, segment: Segment) {
        let Segment { batch, times, .. } = &segment;
        assert!(!times.is_empty(), "a held segment has an event");
        assert_eq!(batch.num_rows(), times.len(), "each event of a segment has a time");
        debug_assert!(times.is_sorted(), "a segment is sorted by time");
        let last = self.segments.back().and_then(|before| before.times.last());
        assert!(last.is_none_or(|&last| last <= times[0]), "segments are in order among each other");
        self.held += segment.times.len();
        self.segments.push_back(segment);
    }

    /// Returns the number of held events.
    pub(super) fn held(&self) -> usize {
        debug_assert_eq!(self.held, self.segments.iter().map(|segment| segment.times.len()).sum::<usize>());
        self.held
    }

    /// Returns the time of the event that this number of the held ones stand before.
    pub(super) fn time_of(&self, mut before: usize) -> Option<i64> {
        for segment in &self.segments {
            if let Some(&time) = segment.times.get(before) {
                return Some(time);
            }
            before -= segment.times.len();
        }
        None
    }

    /// Returns the event times of a batch, if the source has event time.
    pub(super) fn times(&self, batch: &RecordBatch) -> Option<ScalarBuffer<i64>> {
        let (field, ty) = self.time_field?;
        let column = batch.column(field);
        Some(match ty {
            Type::Int => column.as_primitive::<Int64Type>().values().clone(),
            _ => column.as_primitive::<TimestampMicrosecondType>().values().clone(),
        })
    }

    pub(super) fn ingest(&mut self, marks: &mut SplitMarks, batch: RecordBatch, now: u64) {
        let Some(times) = self.times(&batch) else {
            let times = Queue::next_times(marks, batch.num_rows());
            self.push(Segment { batch, times, arrived: Arrived::Together(now), late: None });
            return;
        };
        if marks.see_in_order(&times) {
            self.append_sorted(Segment { batch, times, arrived: Arrived::Together(now), late: None });
            return;
        }
        let (punctual, late) = divide(marks, &times);
        let segment = match late {
            None => Segment { batch, times, arrived: Arrived::Together(now), late: None },
            Some(late) if self.takes_late => late::standing(batch, &times, late, now),
            Some(LateRows { rows: late, stand }) => {
                self.aside.late.push((rows(&batch, &late), stand));
                assert_eq!(punctual.len() + late.len(), times.len(), "each event is punctual or late");
                let kept = punctual.iter().map(|&row| times[row as usize]).collect();
                Segment { batch: rows(&batch, &punctual), times: kept, arrived: Arrived::Together(now), late: None }
            }
        };
        if !segment.times.is_empty() {
            self.append(segment);
        }
    }

    /// Puts aside the bad records of a batch, before its events are ingested.
    pub(super) fn reject(&mut self, marks: &SplitMarks, events: &RecordBatch, bad: Vec<BadRecord>) {
        if bad.is_empty() {
            return;
        }
        let (times, mut seen, mut stands) = (self.times(events), 0, marks.stands());
        for bad in bad {
            let before = usize::try_from(bad.after).unwrap_or(usize::MAX).clamp(seen, events.num_rows());
            let shown = times.iter().flat_map(|times| &times[seen..before]).copied();
            stands = shown.fold(stands, |stands, time| marks.stands_after(stands, time));
            seen = before;
            self.aside.bad.push((stands, bad));
        }
    }

    /// Adds events to the held ones, in order of time; events of equal time keep their order.
    pub(super) fn append(&mut self, segment: Segment) {
        if segment.times.is_sorted() { self.append_sorted(segment) } else { self.merge(segment) }
    }

    /// Appends a segment whose events are in order.
    fn append_sorted(&mut self, segment: Segment) {
        let behind = self.segments.back().and_then(|s| s.times.last()).is_none_or(|&last| last <= segment.times[0]);
        if behind { self.push(segment) } else { self.merge(segment) }
    }

    /// Sorts events into the held ones.
    fn merge(&mut self, segment: Segment) {
        let least = *segment.times.iter().min().expect("a segment is not empty");
        let mut parts = vec![segment];
        while let Some(last) = self.segments.back() {
            let before = last.times.partition_point(|&t| t <= least);
            if before == last.times.len() {
                break;
            }
            let last = self.segments.pop_back().expect("just looked at");
            self.held -= last.times.len();
            parts.push(last.slice(before, last.times.len() - before));
            if before > 0 {
                self.push(last.slice(0, before));
                break;
            }
        }
        parts.reverse();
        let batches: Vec<&RecordBatch> = parts.iter().map(|p| &p.batch).collect();
        let batch = concat_batches(&parts[0].batch.schema(), batches).expect("batches of one source have one schema");
        let times: Vec<i64> = parts.iter().flat_map(|p| p.times.iter().copied()).collect();
        let arrivals: Vec<u64> =
            parts.iter().flat_map(|p| (0..p.times.len()).map(|event| p.arrived.at(event))).collect();
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by_key(|&row| times[row as usize]);
        let times = order.iter().map(|&row| times[row as usize]).collect();
        let arrived = Arrived::Apart(order.iter().map(|&row| arrivals[row as usize]).collect());
        let late = late::in_order(&parts, &order);
        self.push(Segment { batch: rows(&batch, &order), times, arrived, late });
    }

    /// Returns the number of events up to `limit` to take as one batch: at most `most`, and only from the first segment
    /// if it is large enough for a batch of its own.
    pub(super) fn passing_together(&self, limit: i64, most: usize) -> usize {
        let mut count = 0;
        for segment in &self.segments {
            let passing = segment.passing(limit);
            if count > 0 && count + passing > most.min(2 * SEGMENT_ALONE_MIN) && count >= SEGMENT_ALONE_MIN {
                break;
            }
            count += passing;
            if passing < segment.times.len() || count >= most {
                break;
            }
        }
        count.min(most)
    }

    /// Takes the first `count` events, with their time, if they get one.
    pub(super) fn take(&mut self, count: usize, anchor: Option<i64>, arrivals: &mut Vec<(u64, u64)>) -> RecordBatch {
        let events = self.take_held(count, arrivals);
        let Some((field, ty)) = self.filled else { return events };
        let time = anchor.unwrap_or_else(|| least_time(ty));
        self.last_time = Some(time);
        filled(&events, (field, ty), time)
    }

    fn take_held(&mut self, count: usize, arrivals: &mut Vec<(u64, u64)>) -> RecordBatch {
        let mut parts = Vec::new();
        let mut left = count;
        while left > 0 {
            let segment = self.segments.pop_front().expect("counted before");
            let len = segment.times.len().min(left);
            segment.arrived.count(len, arrivals);
            self.last_time = Some(segment.times[len - 1]);
            if len < segment.times.len() {
                self.segments.push_front(segment.slice(len, segment.times.len() - len));
                parts.push(segment.batch.slice(0, len));
            } else {
                parts.push(segment.batch);
            }
            left -= len;
        }
        let taken: usize = parts.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(taken, count, "an epoch gets the events that were counted for it");
        self.taken += count as u64;
        self.held -= count;
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => concat_batches(&parts[0].schema(), &parts).expect("batches of one source have one schema"),
        }
    }
}

/// Returns the punctual rows and the late ones; both are omitted if no row is late. Moves the marks of the split.
fn divide(marks: &mut SplitMarks, times: &[i64]) -> (Vec<u32>, Option<LateRows>) {
    let mut admission = marks.admission();
    let first_late = times.iter().enumerate().find_map(|(row, &time)| Some((row, admission.admit(time)?)));
    let divided = first_late.map(|(first, stands)| {
        let mut punctual: Vec<u32> = (0..first as u32).collect();
        let mut late = LateRows { rows: vec![first as u32], stand: vec![stands] };
        for (row, &time) in times.iter().enumerate().skip(first + 1) {
            match admission.admit(time) {
                None => punctual.push(row as u32),
                Some(stands) => {
                    late.rows.push(row as u32);
                    late.stand.push(stands);
                }
            }
        }
        (punctual, late)
    });
    if divided.as_ref().is_none_or(|(punctual, _)| !punctual.is_empty()) {
        marks.admitted(admission);
    }
    match divided {
        None => (Vec::new(), None),
        Some((punctual, late)) => (punctual, Some(late)),
    }
}

/// Returns events whose field, of this type, holds a time.
fn filled(events: &RecordBatch, (field, ty): (usize, Type), time: i64) -> RecordBatch {
    let mut columns = events.columns().to_vec();
    let times = vec![time; events.num_rows()];
    let data_type = columns[field].data_type().clone();
    columns[field] = match ty {
        Type::Int => Arc::new(Int64Array::from(times)),
        _ => Arc::new(TimestampMicrosecondArray::from(times).with_data_type(data_type)),
    };
    RecordBatch::try_new(events.schema(), columns).expect("the columns are of the schema")
}

pub(super) fn rows(batch: &RecordBatch, rows: &[u32]) -> RecordBatch {
    take_record_batch(batch, &UInt32Array::from(rows.to_vec())).expect("rows of the batch")
}
