//! Late and bad records: where they stand, and when they go to the streams of their source.
//!
//! Such a record stands at the greatest time of its split's earlier events, or at the split's mark where that is greater
//! (`docs/formalism.md`, "Marks and lateness"). In a split these times never fall, so the records of a source with one split
//! are in order as they come, and an epoch takes all of them. Those of several splits wait, like events, until no record
//! with a smaller position can come, and are merged. Late events that are inputs wait among the others ([`super::late`]).

use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::gate::queue::Queue;
use crate::progress::Frontier;
use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use tidemill_io::BadRecord;

/// The late and bad records of a split that no epoch has taken, in order.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// Late events, each with the time that it stands at.
    pub late: Vec<(RecordBatch, Vec<i64>)>,
    /// Bad records, each with the time that it stands at.
    pub bad: Vec<(i64, BadRecord)>,
    /// The number of other held events before each late event, in a checkpoint of a source whose late events are
    /// inputs.
    pub after: Vec<u64>,
}

impl Aside {
    /// Returns whether there are no late or bad records.
    pub fn is_empty(&self) -> bool {
        self.late.is_empty() && self.bad.is_empty()
    }

    /// Returns the least time of a late or bad record.
    fn first(&self) -> Option<i64> {
        let late = self.late.first().map(|(_, times)| times[0]);
        late.into_iter().chain(self.bad.first().map(|(time, _)| *time)).min()
    }

    /// Takes the late and bad records with times up to a limit.
    fn take_until(&mut self, limit: Option<i64>) -> Aside {
        debug_assert!(self.late.iter().flat_map(|(_, times)| times).is_sorted(), "late events are in order");
        debug_assert!(self.bad.is_sorted_by_key(|(time, _)| *time), "bad records are in order");
        let mut taken = Aside::default();
        for (batch, mut times) in std::mem::take(&mut self.late) {
            let count = times.partition_point(|&time| Some(time) <= limit);
            let left = times.split_off(count);
            if count > 0 {
                taken.late.push((batch.slice(0, count), times));
            }
            if !left.is_empty() {
                self.late.push((batch.slice(count, left.len()), left));
            }
        }
        let left = self.bad.split_off(self.bad.partition_point(|(time, _)| Some(*time) <= limit));
        taken.bad = std::mem::replace(&mut self.bad, left);
        taken
    }
}

impl Gate {
    /// Says that a source is read in splits: its late and bad records wait for those that stand before them.
    pub fn order_aside(&mut self, source: usize) {
        self.orders[source] = true;
    }

    /// Returns whether there are late or bad records that the next epoch takes.
    pub fn has_rejects(&self) -> bool {
        let mut waiting = self.queues.iter().filter(|queue| !queue.aside.is_empty()).peekable();
        if waiting.peek().is_none() {
            return false;
        }
        let frontier = self.progress.frontier_aside();
        waiting.any(|queue| queue.aside.first() <= self.limit_aside(frontier, queue))
    }

    /// Returns the greatest time at which records of a split may pass, if any may.
    fn limit_aside(&self, frontier: Frontier, queue: &Queue) -> Option<i64> {
        if self.orders[queue.place.source] { frontier.limit(queue.place) } else { Some(i64::MAX) }
    }

    /// Gives an epoch the late and bad records that may pass.
    pub(super) fn take_aside(&mut self, epoch: &mut Epoch) {
        if self.queues.iter().all(|queue| queue.aside.is_empty()) {
            return;
        }
        let frontier = self.progress.frontier_aside();
        let limits: Vec<Option<i64>> = self.queues.iter().map(|queue| self.limit_aside(frontier, queue)).collect();
        for source in 0..self.sources() {
            let of_source = self.queues.iter_mut().zip(&limits).filter(|(queue, _)| queue.place.source == source);
            let waiting = of_source.filter(|(queue, _)| !queue.aside.is_empty());
            let parts: Vec<Aside> = waiting.map(|(queue, limit)| queue.aside.take_until(*limit)).collect();
            let slice = &mut epoch.input.sources[source];
            merge(parts, &mut slice.late, &mut slice.bad);
        }
    }
}

/// Merges the records of splits, which are in the order of their numbers.
fn merge(mut parts: Vec<Aside>, late: &mut Vec<RecordBatch>, bad: &mut Vec<BadRecord>) {
    if let [sole] = &mut parts[..] {
        late.extend(sole.late.drain(..).map(|(batch, _)| batch));
        bad.extend(sole.bad.drain(..).map(|(_, bad)| bad));
        return;
    }
    let mut wrong: Vec<(i64, BadRecord)> = parts.iter_mut().flat_map(|part| part.bad.drain(..)).collect();
    wrong.sort_by_key(|(time, _)| *time);
    bad.extend(wrong.into_iter().map(|(_, bad)| bad));
    let batches: Vec<&(RecordBatch, Vec<i64>)> = parts.iter().flat_map(|part| &part.late).collect();
    let rows = |(number, (_, times)): (usize, &&(RecordBatch, Vec<i64>))| -> Vec<(i64, usize, usize)> {
        times.iter().enumerate().map(|(row, &time)| (time, number, row)).collect()
    };
    let mut order: Vec<(i64, usize, usize)> = batches.iter().enumerate().flat_map(rows).collect();
    order.sort_by_key(|&(time, ..)| time);
    if !order.is_empty() {
        let order: Vec<(usize, usize)> = order.into_iter().map(|(_, number, row)| (number, row)).collect();
        let batches: Vec<&RecordBatch> = batches.into_iter().map(|(batch, _)| batch).collect();
        late.push(interleave_record_batch(&batches, &order).expect("batches of one source have one schema"));
    }
}
