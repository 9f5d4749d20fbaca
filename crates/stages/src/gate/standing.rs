//! The state of a split in the gate between two epochs, for checkpoints.

use crate::gate::queue::{Arrived, Queue, Segment};
use crate::gate::sent::SentPlace;
use crate::gate::{Aside, Gate, OpenBatch};
use crate::progress::SplitMarks;
use arrow_array::RecordBatch;

/// The gate's whole state for a split between two epochs: together with the split's later records, it determines
/// everything that follows.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The mark with which it began, if it joined after something had passed.
    pub begin: Option<i64>,
    /// The greatest event time that the split has delivered.
    pub greatest: Option<i64>,
    /// The greatest punctuation.
    pub punctuated: Option<i64>,
    /// Events that have passed.
    pub passed: u64,
    /// The time of the last of them; where events get the time of their position, that of what has passed.
    pub last_time: Option<i64>,
    /// A flag: whether the split has ended.
    pub ended: bool,
    /// A flag: whether further splits of its source may join.
    pub is_open: bool,
    /// A flag: whether its events are sent, and have anchored positions.
    pub is_sent: bool,
    /// The events that are held back, in order.
    pub held: Vec<RecordBatch>,
    /// Their places among all sent events that are held back; empty if all of these are of one source, and if they have event times.
    pub places: Vec<SentPlace>,
    /// The late and bad records that wait for their order; late events that are inputs are among those that are held back.
    pub aside: Aside,
    /// The batches that are begun; only in the state of the first split of a source.
    pub batches: Vec<OpenBatch>,
}

impl Gate {
    /// Returns the standing of each split, immediately after an epoch was cut.
    pub fn standings(&self) -> Vec<Standing> {
        debug_assert!(!self.has_rejects(), "an epoch takes all late and bad records that may pass");
        let anchor = self.anchor();
        let of = |(split, (q, marks)): (usize, (&Queue, &SplitMarks))| {
            let (held, aside) = q.held_apart();
            Standing {
                begin: marks.begin,
                greatest: marks.greatest,
                punctuated: marks.punctuated,
                passed: q.taken,
                last_time: q.filled.map_or(q.last_time, |_| anchor),
                ended: marks.ended,
                is_open: self.progress.is_open(q.place.source),
                is_sent: marks.is_sent,
                held,
                places: if marks.is_sent { self.sent.places(split) } else { Vec::new() },
                aside,
                batches: if q.place.split == 0 { self.open_batches(q.place.source) } else { Vec::new() },
            }
        };
        self.queues.iter().zip(self.progress.iter()).enumerate().map(of).collect()
    }

    /// Restores the standing of a source. Call it before the source delivers anything.
    pub fn stand(&mut self, source: usize, standing: Standing, now: u64) {
        let queue = &mut self.queues[source];
        self.progress.expect(queue.place.source, standing.is_open);
        let marks = self.progress.of_mut(source);
        assert!(marks.greatest.is_none() && queue.segments.is_empty(), "a source stands before it delivers");
        let held: usize = standing.held.iter().map(RecordBatch::num_rows).sum();
        if standing.is_sent && held > 0 {
            self.sent.stand(source, &standing.places, held);
        }
        marks.begin = standing.begin;
        marks.greatest = standing.greatest;
        marks.punctuated = standing.punctuated;
        marks.ended = standing.ended;
        marks.is_sent = standing.is_sent;
        queue.taken = standing.passed;
        queue.last_time = standing.last_time;
        queue.ended_before = standing.ended;
        queue.aside = standing.aside;
        let after = std::mem::take(&mut queue.aside.after);
        let late = if queue.takes_late { std::mem::take(&mut queue.aside.late) } else { Vec::new() };
        // Without event time, the held events are the last that arrived.
        let mut counter = match (queue.time_field, standing.greatest) {
            (None, Some(greatest)) => greatest + 1 - held as i64,
            _ => 0,
        };
        for batch in standing.held.into_iter().filter(|batch| batch.num_rows() > 0) {
            let len = batch.num_rows() as i64;
            let times = match queue.times(&batch) {
                Some(times) => times,
                None if marks.is_sent => Queue::next_times(marks, batch.num_rows()),
                None => (counter..counter + len).collect(),
            };
            counter += len;
            queue.push(Segment { batch, times, arrived: Arrived::Together(now), late: None });
        }
        queue.put_late(late, &after, now);
        self.go_on_with(standing.batches);
    }
}
