//! The gate: takes batches from sources, separates late events from punctual ones, and lets events pass in position
//! order, an epoch at a time.
//!
//! # Invariant
//!
//! An event passes only when no event with a smaller position can arrive any more. Each source's *low mark* (its
//! punctuation) is a lower bound on the times of the events that it may still deliver: the greatest time that it has
//! delivered, less its lateness. A source's own records alone decide which of its events are late, so neither the other
//! sources nor the boundaries of epochs can change it. The marks, and what follows from them, are those of
//! [`progress`](crate::progress), which sees times alone; here are the events.
//!
//! Events that are sent without an event time ([`Gate::send`]) hold nothing back and are held back by nothing: in each
//! epoch they follow the others ([`sent`]).
//!
//! Each split of a source has a *queue* of its own, with its own marks. The first split of each source has the source's
//! number; those that join have the numbers after them, in the order in which they joined ([`Gate::join`]). What an epoch
//! gets is by source: the events of its splits in the order of their positions.
//!
//! Batches are held as *segments*, each sorted by time and all in order. A batch that is in order, as most are, becomes
//! a segment without a copy; any other is merged with the segments that it overlaps.

mod aside;
mod batches;
mod choose;
mod late;
mod marks;
mod merge;
mod queue;
pub mod sent;
mod standing;

use crate::epoch::Epoch;
pub use crate::gate::aside::Aside;
use crate::gate::batches::BatchStream;
pub use crate::gate::batches::OpenBatch;
pub use crate::gate::choose::{Cut, Passed};
use crate::gate::late::{Divided, LateAmong, LateStream};
pub use crate::gate::marks::SplitMark;
use crate::gate::queue::{Queue, Segment};
use crate::gate::sent::SentOrder;
pub use crate::gate::standing::Standing;
use crate::progress::{Marks, SplitMarks, SplitPlace, Times};
use tidemill_io::SourceBatch;
use tidemill_plan::{Origin, Program, StreamId};

/// The position of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// Punctual events that have passed.
    pub events: u64,
    /// The event time of the last of them, if the source has event time.
    pub time: Option<i64>,
    /// Events that have arrived but not passed.
    pub held: u64,
    /// A flag: whether it had ended in an earlier run, so that this run reads nothing from it.
    pub ended_before: bool,
    /// A flag: whether its input has come to an end for this run, and a later run may continue it.
    pub paused: bool,
    /// The event time of the last held event, if there is one and the source has event time.
    pub held_until: Option<i64>,
    /// If there are held events: the source whose low mark holds them back, and that mark, if it has one.
    pub held_by: Option<(usize, Option<i64>)>,
}

/// Holds events until their epoch.
pub struct Gate {
    /// The queue of each split, by split: the first of each source, then those that joined.
    queues: Vec<Queue>,
    /// The marks of each split, and what follows from them.
    progress: Marks,
    /// A flag for each source: whether it is read in splits, so that late and bad records wait for their order.
    orders: Vec<bool>,
    /// The stream of each source's late events, by source, if they are inputs.
    lates: Vec<Option<LateStream>>,
    /// The streams of batches.
    batches: Vec<BatchStream>,
    /// The sent events among those that are held.
    sent: SentOrder,
    /// A flag: whether all of these wait, as time has to go on before them.
    sent_waits: bool,
    /// The time and split of the last event that has passed in this run.
    passed: Option<(Option<i64>, SplitPlace)>,
    /// The last boundary at which something was due.
    ran: Option<i64>,
    /// A flag: whether what is due divides epochs into stretches.
    stretches: bool,
    /// The time up to which what is due has run within epochs.
    ran_within: Option<i64>,
}

impl Gate {
    /// Makes a gate for the sources of a program, given their streams.
    pub fn new(program: &Program, sources: &[StreamId]) -> Self {
        let lates = LateStream::of(program, sources);
        let split = |(source, &stream): (usize, &StreamId)| {
            let stream = &program.streams[stream];
            let Origin::Source { lateness, .. } = stream.origin else { unreachable!("a source's stream") };
            let ty = |f: usize| stream.schema.fields[f].scalar_type().expect("event time is a scalar").ty;
            let place = SplitPlace { source, split: 0 };
            let mut queue = Queue::new(place, stream.own_time().map(|f| (f, ty(f))));
            queue.filled = stream.filled_time().map(|f| (f, ty(f)));
            queue.takes_late = lates[source].is_some();
            let marks = SplitMarks::new(place, queue.time_field.map(|_| lateness));
            (queue, marks)
        };
        let (queues, marks): (Vec<Queue>, Vec<SplitMarks>) = sources.iter().enumerate().map(split).unzip();
        let progress = Marks::new(marks, lates.iter().any(Option::is_some));
        let orders = vec![false; queues.len()];
        let batches = BatchStream::of(program, sources);
        Gate {
            queues,
            progress,
            orders,
            lates,
            batches,
            sent: SentOrder::default(),
            sent_waits: false,
            passed: None,
            ran: None,
            stretches: false,
            ran_within: None,
        }
    }

    /// Says whether what is due divides epochs into stretches, from the next one on: up to the punctuation of each.
    pub fn divide(&mut self, into_stretches: bool) {
        self.stretches = into_stretches;
        if into_stretches {
            self.hold_from(None);
        }
    }

    /// Returns whether what is due divides epochs into stretches.
    pub fn has_stretches(&self) -> bool {
        self.stretches
    }

    /// Returns whether something can be due within the next epoch, even if no event passes with it.
    pub fn is_due_within(&self) -> bool {
        self.stretches && self.complete() > self.ran_within
    }

    /// Returns the marks of the splits.
    pub fn progress(&self) -> &Marks {
        &self.progress
    }

    /// Returns the number of splits of all sources.
    pub fn splits(&self) -> usize {
        self.queues.len()
    }

    /// Returns the source of a split.
    pub fn source_of(&self, split: usize) -> usize {
        self.queues[split].place.source
    }

    /// Says whether further splits of a source may join: its end is not that of its splits.
    pub fn expect(&mut self, source: usize, more: bool) {
        self.progress.expect(source, more);
    }

    /// Returns whether further splits of a source may join.
    pub fn is_open(&self, source: usize) -> bool {
        self.progress.is_open(source)
    }

    /// Returns whether a source has ended for good: all of its splits, and no further one may join.
    pub fn is_over(&self, source: usize) -> bool {
        self.progress.is_over(source)
    }

    /// Returns the mark with which a split of a source joins now ([`Marks::mark_to_join`]).
    pub fn mark_to_join(&self, source: usize) -> Option<i64> {
        let passed = self.timed().filter_map(|queue| Some((queue.last_time?, queue.place))).max();
        self.progress.mark_to_join(source, passed)
    }

    /// Lets a split of a source join, with a mark; none if nothing was shown before. Returns its number.
    pub fn join(&mut self, source: usize, begin: Option<i64>) -> usize {
        let split = self.progress.join(source, begin);
        assert_eq!(split, self.queues.len(), "each split has a queue");
        let first = &self.queues[source];
        let (time_field, takes_late) = (first.time_field, first.takes_late);
        let queue = Queue::new(self.progress.of(split).place, time_field);
        self.queues.push(Queue { takes_late, ..queue });
        split
    }

    fn sources(&self) -> usize {
        self.progress.sources()
    }

    /// Says whether the events of a source that has no event time are sent from now on, and have anchored positions; or
    /// are read, and have a counter. Events that are held and not sent yet are so from now on, too.
    pub fn send(&mut self, source: usize, is_sent: bool) {
        let marks = self.progress.of(source);
        if marks.has_time() || marks.is_sent == is_sent {
            return;
        }
        // A source that is read from now on joins after what has passed.
        let next = |(q, of): (&Queue, &SplitMarks)| of.next_count() - q.held() as i64;
        let counted = self.queues.iter().zip(self.progress.iter()).filter(|(_, of)| !of.has_time() && !of.is_sent);
        let joins = counted.map(next).max();
        let (queue, marks) = (&mut self.queues[source], self.progress.of_mut(source));
        marks.is_sent = is_sent;
        let held = std::mem::take(&mut queue.segments);
        let count = std::mem::take(&mut queue.held);
        if !is_sent {
            marks.greatest = marks.greatest.max(joins.map(|joins| joins - 1).filter(|&last| last >= 0));
            self.sent.remove(source, count);
        }
        for Segment { batch, arrived, .. } in held {
            let times = Queue::next_times(marks, batch.num_rows());
            if is_sent {
                self.sent.push(source, batch.num_rows());
            }
            queue.push(Segment { batch, times, arrived, late: None });
        }
    }

    /// Takes a batch of a source that arrived at time `now` of the clock.
    pub fn ingest(&mut self, source: usize, batch: SourceBatch, now: u64) {
        let (queue, marks) = (&mut self.queues[source], self.progress.of_mut(source));
        queue.reject(marks, &batch.events, batch.bad);
        if batch.events.num_rows() > 0 {
            if marks.is_sent {
                self.sent.push(source, batch.events.num_rows());
            }
            queue.ingest(marks, batch.events, now);
        }
    }

    /// Returns whether the events of a source have anchored positions.
    pub fn is_sent(&self, source: usize) -> bool {
        self.progress.of(source).is_sent
    }

    /// Returns the number of held events of a source.
    pub fn held_of(&self, source: usize) -> usize {
        self.queues[source].held()
    }

    /// Returns the time of the greatest position that has passed: that of what is sent. None before the first.
    pub(super) fn anchor(&self) -> Option<i64> {
        let has_time = |queue: &&Queue| queue.time_field.is_some() || queue.filled.is_some();
        self.queues.iter().filter(has_time).filter_map(|queue| queue.last_time).max().max(self.ran)
    }

    /// Returns whether sent events are held.
    pub fn holds_sent(&self) -> bool {
        self.sent_held() > 0
    }

    /// Returns the number of sent events that are held.
    pub fn sent_held(&self) -> usize {
        self.sent.held()
    }

    /// Says whether sent events wait, those that are held and those that come: none passes, but as an earlier cut had it.
    pub fn wait_sent(&mut self, waits: bool) {
        self.sent_waits = waits;
    }

    /// Returns the number of sent events that may pass. Where some hold the time of their position, all wait until
    /// there is one, or none can come.
    pub fn sent_ready(&self) -> usize {
        let waits = self.sent_waits
            || self.queues.iter().any(|queue| queue.filled.is_some())
                && self.anchor().is_none()
                && self
                    .queues
                    .iter()
                    .zip(self.progress.iter())
                    .any(|(queue, of)| of.has_time() && !(of.ended && queue.held() == 0));
        if waits { 0 } else { self.sent.held() }
    }

    /// Takes a punctuation of a source with event time: no event with a time below comes any more.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        self.progress.of_mut(source).punctuate(time);
    }

    /// Returns whether a source has event time.
    pub fn has_time(&self, source: usize) -> bool {
        self.progress.of(source).has_time()
    }

    /// Notes that a source has ended.
    pub fn end(&mut self, source: usize) {
        self.progress.of_mut(source).ended = true;
    }

    /// Notes that a source has no more input for this run. Its low mark stays, so it holds others back as before.
    pub fn pause(&mut self, source: usize) {
        self.progress.of_mut(source).paused = true;
    }

    /// Returns whether a source has ended.
    pub fn has_ended(&self, source: usize) -> bool {
        self.progress.of(source).ended
    }

    /// Returns whether all sources have ended: all of their splits, and no further one may join.
    pub fn ended(&self) -> bool {
        self.progress.ended()
    }

    /// Returns the source to read next: among the sources that go on, the one with the smallest low mark.
    pub fn slowest(&self) -> Option<usize> {
        self.slowest_of(|source| !self.has_paused(source))
    }

    /// Returns the source with the smallest low mark, among those that have not ended and are `wanted`.
    pub fn slowest_of(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        self.progress.slowest_of(wanted)
    }

    /// Returns whether a source has paused.
    pub fn has_paused(&self, source: usize) -> bool {
        self.progress.of(source).paused
    }

    /// Returns the earliest arrival time among the first held events of the sources.
    pub fn oldest_arrival(&self) -> Option<u64> {
        self.queues.iter().filter_map(|q| q.segments.front()).map(|s| s.arrived.at(0)).min()
    }

    /// Returns the position of each source: that of all its splits together.
    pub fn positions(&self) -> Vec<SourcePosition> {
        let low = |split: usize| self.progress.of(split).shown().and(self.progress.of(split).low());
        let held_by = self.slowest_of(|_| true).map(|split| (self.source_of(split), low(split)));
        let mut positions = vec![SourcePosition { ended_before: true, ..SourcePosition::default() }; self.sources()];
        for (queue, of) in self.queues.iter().zip(self.progress.iter()) {
            let has_time = of.has_time();
            let at = &mut positions[queue.place.source];
            at.events += queue.taken;
            at.time = at.time.max(queue.last_time.filter(|_| has_time));
            at.held += queue.held() as u64;
            at.ended_before &= queue.ended_before;
            at.paused |= of.paused;
            at.held_until = at.held_until.max(queue.held_until().filter(|_| has_time));
            at.held_by = held_by.filter(|_| at.held > 0);
        }
        positions
    }

    /// Returns the number of events of a split that have passed.
    pub fn has_passed(&self, split: usize) -> u64 {
        self.queues[split].taken
    }

    /// Returns the number of events of a split that have passed or are held.
    pub fn has_of(&self, split: usize) -> u64 {
        self.queues[split].taken + self.queues[split].held() as u64
    }

    /// Returns the number of events that may pass now; counting stops once it reaches `enough`.
    pub fn ready(&self, enough: usize) -> usize {
        let (mut ready, frontier) = (self.sent_ready(), self.progress.frontier());
        for (s, queue) in self.queues.iter().enumerate().filter(|&(s, _)| !self.is_sent(s)) {
            // A split that has shown nothing holds back all others.
            let Some(limit) = self.progress.limit(frontier, s) else { return ready };
            for segment in &queue.segments {
                let passing = segment.passing(limit);
                ready += passing;
                if passing < segment.times.len() || ready >= enough {
                    break;
                }
            }
            if ready >= enough {
                return ready;
            }
        }
        ready
    }

    /// Returns whether events of a source may pass, now or once what is due before them has run.
    pub fn may_pass(&self, source: usize) -> bool {
        let queue = &self.queues[source];
        let passes = |first| match self.is_sent(source) {
            true => self.sent_ready() > 0,
            false => self.limit_of_marks(source).is_some_and(|limit| first <= limit),
        };
        queue.first_time().is_some_and(passes)
    }

    /// Returns the number of the last event of a split that has passed, or that may pass now or once what is due before it has run;
    /// none if there is none. Given the same input before a cut, it is the same after it.
    pub fn passes_through(&self, split: usize) -> Option<u64> {
        let queue = &self.queues[split];
        let within = |limit| queue.segments.iter().map(|segment| segment.passing(limit)).sum();
        let ready: usize = match self.is_sent(split) {
            true if self.sent_ready() > 0 => queue.held(),
            true => 0,
            false => self.limit_of_marks(split).map_or(0, within),
        };
        (queue.taken + ready as u64).checked_sub(1)
    }

    /// Returns the greatest time up to which events of a split may pass, now or once what is due before has run.
    fn limit_of_marks(&self, split: usize) -> Option<i64> {
        self.progress.limit_of_marks(self.progress.frontier(), split)
    }

    /// Lets events pass into an epoch, with the late and bad records that may pass. Returns false, and lets nothing pass, if
    /// it would take more events of a source than are held.
    pub fn apply(&mut self, passed: &Passed, epoch: &mut Epoch) -> bool {
        if !self.has(passed) {
            return false;
        }
        let held_before = self.held();
        let heads: Vec<Option<i64>> = self.queues.iter().map(Queue::first_time).collect();
        epoch.input.passed = self.queues.iter().map(|queue| queue.taken).sum();
        let due = std::mem::take(&mut epoch.input.merge);
        self.order(passed, &mut epoch.input.merge);
        let timed = epoch.input.merge.len();
        epoch.input.merge.extend_from_slice(&passed.sent);
        self.sent.pass(&passed.sent);
        epoch.input.least_time = epoch.input.merge[..timed].first().and_then(|&(first, _)| heads[first as usize]);
        let fills = passed.counts.iter().zip(&self.queues).any(|(&count, queue)| count > 0 && queue.filled.is_some());
        let by_stream = self.take(&passed.counts, epoch);
        self.ran = self.ran.max(passed.due.map(|due| due.boundary));
        self.ran_within = self.ran_within.max(passed.due_through);
        (epoch.input.due, epoch.input.due_through) = (passed.due, passed.due_through);
        if fills {
            epoch.input.least_time = epoch.input.least_time.or(self.anchor());
        }
        epoch.input.complete = self.complete();
        assert_eq!(held_before, self.held() + epoch.input.events, "each event is held or has passed");
        assert!(!self.has_rejects(), "an epoch takes all late and bad records that may pass");
        self.check_order(&heads, &epoch.input.merge[..timed]);
        assert!(due.is_empty() || epoch.input.events == 0, "what is due has an epoch of its own");
        assert_eq!(due.is_empty(), passed.due.is_none(), "an epoch has what is due if that is what it is");
        if let Some(mut runs) = by_stream {
            self.merge_by_stream(&mut runs);
            epoch.input.merge = runs;
        }
        self.complete_batches(&mut epoch.input);
        epoch.input.merge.extend(due);
        true
    }

    /// Returns the time below which every event has passed, and none comes any more: the punctuation of what was cut
    /// last.
    pub fn complete(&self) -> Option<i64> {
        self.progress.complete(self.first_time())
    }

    /// Returns the program's mark ([`Marks::mark`]).
    pub fn mark(&self) -> Option<i64> {
        self.progress.mark()
    }

    /// Returns the greatest time that was shown: that of an event, or of a punctuation.
    pub fn shown(&self) -> Option<i64> {
        self.progress.shown()
    }

    /// Returns whether all that is left is beyond the times that were shown ([`Marks::is_beyond`]).
    pub fn is_beyond(&self) -> bool {
        self.progress.is_beyond(self.first_time())
    }

    /// Returns the times that it has seen.
    pub fn times(&self) -> Times {
        Times { first: self.first_time(), last: self.last_time(), shown: self.shown(), is_end: false }
    }

    /// Returns the least time of the events that are held.
    pub fn first_time(&self) -> Option<i64> {
        self.timed().filter_map(Queue::first_time).min()
    }

    /// Returns the greatest time of the events that have passed.
    pub fn last_time(&self) -> Option<i64> {
        self.timed().filter_map(|queue| queue.last_time).max()
    }

    fn timed(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(|queue| queue.time_field.is_some())
    }

    /// Returns whether nothing more passes before what is due at the boundary has run.
    pub fn is_held_by_boundary(&self) -> bool {
        self.progress.is_held_by_boundary()
    }

    /// Lets no event of this time or a later one pass, until it is called again.
    pub fn hold_from(&mut self, boundary: Option<i64>) {
        self.progress.hold_from(boundary);
    }

    /// Checks the positions of the first and the last event of an epoch, given the heads of the queues before it.
    fn check_order(&mut self, heads: &[Option<i64>], merge: &[(u32, u32)]) {
        let (Some(&(first, _)), Some(&(last, _))) = (merge.first(), merge.last()) else { return };
        let (first, last) = (first as usize, last as usize);
        let place = |split: usize| self.queues[split].place;
        let (from, through) = ((heads[first], place(first)), (self.queues[last].last_time, place(last)));
        assert!(from <= through, "the events of an epoch pass in position order");
        assert!(self.passed.is_none_or(|passed| passed <= from), "an epoch begins after what has passed");
        self.passed = Some(through);
    }

    /// Returns the number of held events.
    fn held(&self) -> usize {
        self.queues.iter().map(Queue::held).sum()
    }

    /// Moves the first events of each queue to an epoch, with the late and bad records that may pass. Gives their order in
    /// runs of parts, if these are not the sources.
    fn take(&mut self, taken: &[usize], epoch: &mut Epoch) -> Option<Vec<(u32, u32)>> {
        debug_assert_eq!(merged(&epoch.input.merge), taken.iter().sum::<usize>(), "the order covers the events taken");
        self.take_aside(epoch);
        let among = taken.iter().zip(&self.queues).map(|(&count, queue)| queue.late_among(count));
        let among: Vec<Option<LateAmong>> = among.collect();
        let is_divided = self.has_splits() || among.iter().any(Option::is_some);
        let mut divided = is_divided.then(|| Divided::new(among));
        // The time of the sent events is that of the others.
        let (sent, timed): (Vec<_>, Vec<_>) = (0..taken.len()).partition(|&s| self.queues[s].filled.is_some());
        for s in timed.into_iter().chain(sent).filter(|&s| taken[s] > 0) {
            let (count, anchor) = (taken[s], self.anchor());
            let events = self.queues[s].take(count, anchor, &mut epoch.input.arrivals);
            epoch.input.events += count;
            match &mut divided {
                Some(divided) => divided.add(self, s, events),
                None => epoch.input.sources[s].events = Some(events),
            }
        }
        let runs = divided.map(|divided| {
            let runs = divided.runs(&epoch.input.merge);
            self.join_parts(divided.parts, &runs, epoch);
            runs
        });
        debug_assert_eq!(
            arrived(&epoch.input.arrivals),
            epoch.input.events,
            "each event of an epoch has an arrival time"
        );
        runs
    }
}

/// Returns the number of events in runs of sources.
fn merged(merge: &[(u32, u32)]) -> usize {
    merge.iter().map(|(_, count)| *count as usize).sum()
}

/// Returns the number of events that arrived, by their arrival times.
fn arrived(arrivals: &[(u64, u64)]) -> usize {
    arrivals.iter().map(|(_, count)| *count as usize).sum()
}

#[cfg(test)]
mod tests;
