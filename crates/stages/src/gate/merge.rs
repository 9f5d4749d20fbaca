//! The order in which the events of splits pass: a merge of the queues by position, and what it gives each source.

use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::gate::queue::Cursor;
use crate::progress::SplitPlace;
use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Gate {
    /// Returns whether a source has several splits.
    pub(super) fn has_splits(&self) -> bool {
        self.queues.len() > self.sources()
    }

    /// Gives each source the events of its splits, in the order in which they pass; late events that are inputs are those
    /// of a stream of their own. `runs` is this order, in runs of parts.
    pub(super) fn join_parts(&self, mut parts: Vec<Option<RecordBatch>>, runs: &[(u32, u32)], epoch: &mut Epoch) {
        if !self.has_splits() {
            for (part, events) in parts.into_iter().enumerate().filter(|(_, events)| events.is_some()) {
                epoch.input.sources[self.stream_of(part)].events = events;
            }
            return;
        }
        let streams = epoch.input.sources.len();
        let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); streams];
        let mut batches: Vec<Vec<usize>> = vec![Vec::new(); streams];
        let mut begun: Vec<Option<(usize, usize)>> = vec![None; parts.len()];
        for &(part, count) in runs {
            let stream = self.stream_of(part as usize);
            let batches = &mut batches[stream];
            let (number, from) = begun[part as usize].get_or_insert_with(|| {
                batches.push(part as usize);
                (batches.len() - 1, 0)
            });
            rows[stream].extend((*from..*from + count as usize).map(|row| (*number, row)));
            *from += count as usize;
        }
        // An epoch of what is due has no parts, and its events already.
        for (stream, of) in batches.into_iter().enumerate().filter(|(_, of)| !of.is_empty()) {
            let of: Vec<RecordBatch> = of.iter().filter_map(|&part| parts[part].take()).collect();
            epoch.input.sources[stream].events = match &of[..] {
                [sole] => Some(sole.clone()),
                of => {
                    let of: Vec<&RecordBatch> = of.iter().collect();
                    Some(interleave_record_batch(&of, &rows[stream]).expect("batches of one source have one schema"))
                }
            };
        }
        assert!(parts.iter().all(Option::is_none), "each event that passes has its place in the order");
    }

    /// Turns runs of parts into runs of streams.
    pub(super) fn merge_by_stream(&self, merge: &mut Vec<(u32, u32)>) {
        merge.iter_mut().for_each(|(part, _)| *part = self.stream_of(*part as usize) as u32);
        merge.dedup_by(|next, run| {
            let same = next.0 == run.0;
            run.1 += if same { next.1 } else { 0 };
            same
        });
    }

    /// Merges the heads of several splits in position order. `passes` says whether an event may pass, given its
    /// split, its time, and the number of the split's events before it. Appends the runs of splits to `order`.
    pub(super) fn merge(
        &self,
        passes: impl Fn(usize, i64, usize) -> bool,
        most: usize,
        taken: &mut [usize],
        order: &mut Vec<(u32, u32)>,
    ) {
        let mut cursors: Vec<Cursor<'_>> = self.queues.iter().map(Cursor::new).collect();
        let mut left = most;
        let head = |cursor: &Cursor<'_>, s: usize, before: usize| {
            cursor.time().filter(|&time| passes(s, time, before)).map(|time| (time, self.queues[s].place, s))
        };
        let first = cursors.iter().enumerate().filter_map(|(s, cursor)| head(cursor, s, taken[s]));
        let mut heads: BinaryHeap<Reverse<(i64, SplitPlace, usize)>> = first.map(Reverse).collect();
        while left > 0 {
            let Some(Reverse((_, _, first))) = heads.pop() else { break };
            let rival = heads.peek().map(|Reverse(rival)| *rival);
            let start = taken[first];
            let next = loop {
                let own = head(&cursors[first], first, taken[first]);
                if left == 0 || own.is_none_or(|own| rival.is_some_and(|rival| rival < own)) {
                    break own;
                }
                cursors[first].advance();
                taken[first] += 1;
                left -= 1;
            };
            heads.extend(next.map(Reverse));
            assert!(taken[first] > start, "the least head passes");
            order.push((first as u32, (taken[first] - start) as u32));
        }
    }
}
