//! The gate: takes batches from sources, separates late events from punctual ones, and lets events pass in position
//! order, an epoch at a time.
//!
//! # Invariant
//!
//! An event passes only when no event with a smaller position can arrive any more. Each source's *low mark* (its
//! punctuation) is a lower bound on the times of the events that it may still deliver: the greatest time that it has
//! delivered, less its lateness. A source's own records alone decide which of its events are late, so neither the other
//! sources nor the boundaries of epochs can change it.
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
mod late;
mod marks;
mod merge;
mod queue;
pub mod sent;
mod standing;

use crate::due::DueCut;
use crate::epoch::Epoch;
pub use crate::gate::aside::Aside;
use crate::gate::batches::BatchStream;
pub use crate::gate::batches::OpenBatch;
use crate::gate::late::{Divided, LateAmong, LateStream};
pub use crate::gate::marks::SplitMark;
use crate::gate::queue::{Queue, Segment, SplitPlace};
use crate::gate::sent::{SentOrder, SourceRun};
pub use crate::gate::standing::Standing;
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

/// The held events that an epoch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At most this number of events that may pass, in position order.
    Most(usize),
    /// Exactly the events of an earlier cut.
    Exactly(Passed),
    /// No events of sources, but what is due at a time.
    Due(DueCut),
}

/// The events that an earlier cut let pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The number of events that have passed, by split.
    pub counts: Vec<usize>,
    /// The order of those that have anchored positions.
    pub sent: Vec<SourceRun>,
    /// If rows wake within the epoch: up to which time.
    pub wakes: Option<i64>,
}

/// Holds events until their epoch.
pub struct Gate {
    /// The queue of each split, by split: the first of each source, then those that joined.
    queues: Vec<Queue>,
    /// A flag for each source: whether further splits may join.
    expects: Vec<bool>,
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
    /// No event of this time or a later one may pass before what is due then.
    boundary: Option<i64>,
    /// The last boundary at which something was due.
    ran: Option<i64>,
    /// A flag: whether rows wake within epochs.
    wakes_within: bool,
    /// The time up to which rows have woken within epochs.
    woken: Option<i64>,
}

impl Gate {
    /// Makes a gate for the sources of a program, given their streams.
    pub fn new(program: &Program, sources: &[StreamId]) -> Self {
        let lates = LateStream::of(program, sources);
        let queue = |(source, &stream): (usize, &StreamId)| {
            let stream = &program.streams[stream];
            let Origin::Source { lateness, .. } = stream.origin else { unreachable!("a source's stream") };
            let ty = |f: usize| stream.schema.fields[f].scalar_type().expect("event time is a scalar").ty;
            let place = SplitPlace { source, split: 0 };
            let mut queue = Queue::new(place, stream.own_time().map(|f| (f, ty(f))), lateness);
            queue.filled = stream.filled_time().map(|f| (f, ty(f)));
            queue.takes_late = lates[source].is_some();
            queue
        };
        let queues: Vec<Queue> = sources.iter().enumerate().map(queue).collect();
        let (expects, orders) = (vec![false; queues.len()], vec![false; queues.len()]);
        let batches = BatchStream::of(program, sources);
        Gate {
            queues,
            expects,
            orders,
            lates,
            batches,
            sent: SentOrder::default(),
            sent_waits: false,
            passed: None,
            boundary: None,
            ran: None,
            wakes_within: false,
            woken: None,
        }
    }

    /// Has rows wake within epochs, up to the punctuation of each.
    pub fn wake_within(&mut self) {
        self.wakes_within = true;
    }

    /// Returns whether rows wake within epochs.
    pub fn wakes_within(&self) -> bool {
        self.wakes_within
    }

    /// Returns whether rows can be due that wake within the next epoch, even if no event passes with it.
    pub fn has_wakes(&self) -> bool {
        self.wakes_within && self.complete() > self.woken
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
        self.expects[source] = more;
    }

    /// Returns whether further splits of a source may join.
    pub fn is_open(&self, source: usize) -> bool {
        self.expects[source]
    }

    /// Returns whether a source has ended for good: all of its splits, and no further one may join.
    pub fn is_over(&self, source: usize) -> bool {
        !self.expects[source] && self.queues.iter().all(|queue| queue.place.source != source || queue.ended)
    }

    /// Returns the mark with which a split of a source joins now: the program's mark, or where something has passed
    /// that stands after the beginning of the split at that time, the next time. None before anything was shown.
    pub fn mark_to_join(&self, source: usize) -> Option<i64> {
        let place = self.next_place(source);
        let passed = self.timed().filter_map(|queue| Some((queue.last_time?, queue.place))).max();
        let after = |(time, last): (i64, SplitPlace)| if last < place { time } else { time.saturating_add(1) };
        self.mark().max(passed.map(after))
    }

    /// Lets a split of a source join, with a mark; none if nothing was shown before. Returns its number.
    pub fn join(&mut self, source: usize, begin: Option<i64>) -> usize {
        let (place, first) = (self.next_place(source), &self.queues[source]);
        assert!(first.time_field.is_some(), "only sources with event time have several splits");
        let mut queue = Queue::new(place, first.time_field, first.lateness);
        queue.begin = begin;
        queue.takes_late = first.takes_late;
        self.queues.push(queue);
        self.queues.len() - 1
    }

    fn next_place(&self, source: usize) -> SplitPlace {
        let split = self.queues.iter().filter(|queue| queue.place.source == source).count() as u32;
        SplitPlace { source, split }
    }

    fn sources(&self) -> usize {
        self.expects.len()
    }

    /// Says whether the events of a source that has no event time are sent from now on, and have anchored positions; or
    /// are read, and have a counter. Events that are held and not sent yet are so from now on, too.
    pub fn send(&mut self, source: usize, is_sent: bool) {
        if self.queues[source].time_field.is_some() || self.queues[source].is_sent == is_sent {
            return;
        }
        // A source that is read from now on joins after what has passed.
        let next = |q: &Queue| q.greatest.map_or(0, |greatest| greatest + 1) - q.held() as i64;
        let joins = self.queues.iter().filter(|q| q.time_field.is_none() && !q.is_sent).map(next).max();
        let queue = &mut self.queues[source];
        queue.is_sent = is_sent;
        let held = std::mem::take(&mut queue.segments);
        let count = std::mem::take(&mut queue.held);
        if !is_sent {
            queue.greatest = queue.greatest.max(joins.map(|joins| joins - 1).filter(|&last| last >= 0));
            self.sent.remove(source, count);
        }
        for Segment { batch, arrived, .. } in held {
            let times = queue.next_times(batch.num_rows());
            if is_sent {
                self.sent.push(source, batch.num_rows());
            }
            queue.push(Segment { batch, times, arrived, late: None });
        }
    }

    /// Takes a batch of a source that arrived at time `now` of the clock.
    pub fn ingest(&mut self, source: usize, batch: SourceBatch, now: u64) {
        let queue = &mut self.queues[source];
        queue.reject(&batch.events, batch.bad);
        if batch.events.num_rows() > 0 {
            if queue.is_sent {
                self.sent.push(source, batch.events.num_rows());
            }
            queue.ingest(batch.events, now);
        }
    }

    /// Returns whether the events of a source have anchored positions.
    pub fn is_sent(&self, source: usize) -> bool {
        self.queues[source].is_sent
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
        self.sent.held() > 0
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
                && self.timed().any(|queue| !queue.ended || queue.held() > 0);
        if waits { 0 } else { self.sent.held() }
    }

    /// Takes a punctuation of a source with event time: no event with a time below comes any more.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        let queue = &mut self.queues[source];
        assert!(queue.time_field.is_some(), "a punctuation is of a source with event time");
        queue.punctuated = queue.punctuated.max(Some(time));
    }

    /// Returns whether a source has event time.
    pub fn has_time(&self, source: usize) -> bool {
        self.queues[source].time_field.is_some()
    }

    /// Returns a source's low mark; none before its first event or punctuation.
    pub fn low(&self, source: usize) -> Option<i64> {
        self.queues[source].low()
    }

    /// Notes that a source has ended.
    pub fn end(&mut self, source: usize) {
        self.queues[source].ended = true;
    }

    /// Notes that a source has no more input for this run. Its low mark stays, so it holds others back as before.
    pub fn pause(&mut self, source: usize) {
        self.queues[source].paused = true;
    }

    /// Returns whether a source has ended.
    pub fn has_ended(&self, source: usize) -> bool {
        self.queues[source].ended
    }

    /// Returns whether all sources have ended: all of their splits, and no further one may join.
    pub fn ended(&self) -> bool {
        self.queues.iter().all(|q| q.ended) && !self.expects.contains(&true)
    }

    /// Returns the source to read next: among the sources that go on, the one with the smallest low mark.
    pub fn slowest(&self) -> Option<usize> {
        self.slowest_of(|source| !self.queues[source].paused)
    }

    /// Returns the source with the smallest low mark, among those that have not ended and are `wanted`.
    pub fn slowest_of(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let open = (0..self.queues.len()).filter(|&s| self.queues[s].holds_back() && wanted(s));
        open.min_by_key(|&s| (self.queues[s].low(), self.queues[s].place))
    }

    /// Returns whether a source has paused.
    pub fn has_paused(&self, source: usize) -> bool {
        self.queues[source].paused
    }

    /// Returns whether the source of a split has several splits.
    pub fn is_one_of_several(&self, split: usize) -> bool {
        let source = self.source_of(split);
        self.queues.iter().filter(|queue| queue.place.source == source).nth(1).is_some()
    }

    /// Returns the earliest arrival time among the first held events of the sources.
    pub fn oldest_arrival(&self) -> Option<u64> {
        self.queues.iter().filter_map(|q| q.segments.front()).map(|s| s.arrived.at(0)).min()
    }

    /// Returns the position of each source: that of all its splits together.
    pub fn positions(&self) -> Vec<SourcePosition> {
        let slowest = self.slowest_of(|_| true).map(|s| (s, self.queues[s].shown().and(self.queues[s].low())));
        let held_by = slowest.map(|(split, low)| (self.source_of(split), low));
        let mut positions = vec![SourcePosition { ended_before: true, ..SourcePosition::default() }; self.sources()];
        for queue in &self.queues {
            let has_time = queue.time_field.is_some();
            let at = &mut positions[queue.place.source];
            at.events += queue.taken;
            at.time = at.time.max(queue.last_time.filter(|_| has_time));
            at.held += queue.held() as u64;
            at.ended_before &= queue.ended_before;
            at.paused |= queue.paused;
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

    /// Returns the least low mark of the splits that hold others back, with the first of these splits: nothing of that
    /// time passes that stands after this split. After everything where none holds others back; none while one has
    /// shown nothing.
    fn lowest(&self) -> Option<(i64, SplitPlace)> {
        let mut lowest = (i64::MAX, SplitPlace::LAST);
        for queue in self.queues.iter().filter(|queue| queue.holds_back()) {
            lowest = lowest.min((queue.low()?, queue.place));
        }
        // A late event may stand beyond the times that were shown.
        if self.takes_late() && !self.ended() {
            lowest = lowest.min((self.shown()?, SplitPlace::LAST));
        }
        Some(lowest)
    }

    /// Returns the greatest time up to which events of a split may pass, given the lowest mark.
    fn limit(&self, lowest: Option<(i64, SplitPlace)>, split: usize) -> Option<i64> {
        let limit = self.limit_of_marks(lowest, split)?;
        match self.boundary {
            Some(boundary) => Some(limit.min(boundary.checked_sub(1)?)),
            None => Some(limit),
        }
    }

    /// Returns the greatest time up to which events of a split may pass by the lowest mark alone, without regard to the
    /// boundary.
    fn limit_of_marks(&self, lowest: Option<(i64, SplitPlace)>, split: usize) -> Option<i64> {
        let (low, first) = lowest?;
        // At equal times the smaller split comes first.
        if self.queues[split].place <= first { Some(low) } else { low.checked_sub(1) }
    }

    /// Returns the number of events that may pass now; counting stops once it reaches `enough`.
    pub fn ready(&self, enough: usize) -> usize {
        let (mut ready, lowest) = (self.sent_ready(), self.lowest());
        for (s, queue) in self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_sent) {
            // A split that has shown nothing holds back all others.
            let Some(limit) = self.limit(lowest, s) else { return ready };
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
        let passes = |first| match queue.is_sent {
            true => self.sent_ready() > 0,
            false => self.limit_of_marks(self.lowest(), source).is_some_and(|limit| first <= limit),
        };
        queue.first_time().is_some_and(passes)
    }

    /// Returns the number of the last event of a split that has passed, or that may pass now or once what is due before it has run;
    /// none if there is none. Given the same input before a cut, it is the same after it.
    pub fn passes_through(&self, split: usize) -> Option<u64> {
        let queue = &self.queues[split];
        let within = |limit| queue.segments.iter().map(|segment| segment.passing(limit)).sum();
        let ready: usize = match queue.is_sent {
            true if self.sent_ready() > 0 => queue.held(),
            true => 0,
            false => self.limit_of_marks(self.lowest(), split).map_or(0, within),
        };
        (queue.taken + ready as u64).checked_sub(1)
    }

    /// Lets events pass into an epoch, with the late and bad records that may pass. Returns false, and lets nothing pass, if
    /// it would take more events of a source than are held.
    pub fn cut(&mut self, cut: &Cut, epoch: &mut Epoch) -> bool {
        let held_before = self.held();
        let heads: Vec<Option<i64>> = self.queues.iter().map(Queue::first_time).collect();
        self.count_passed(&mut epoch.input.passed);
        let due = std::mem::take(&mut epoch.input.merge);
        let (taken, sent) = match cut {
            Cut::Most(most) => self.cut_most(*most, epoch),
            Cut::Due(_) => self.cut_most(0, epoch),
            Cut::Exactly(passed) if self.has(passed) => self.cut_exactly(passed, epoch),
            Cut::Exactly(_) => return false,
        };
        let timed = epoch.input.merge.len();
        epoch.input.merge.extend_from_slice(&sent);
        epoch.input.sent = sent;
        epoch.input.least_time = epoch.input.merge[..timed].first().and_then(|&(first, _)| heads[first as usize]);
        let fills = taken.iter().zip(&self.queues).any(|(&count, queue)| count > 0 && queue.filled.is_some());
        let by_stream = self.take(taken, epoch);
        if let Cut::Due(at) = cut {
            self.ran = self.ran.max(Some(at.boundary));
        }
        epoch.input.wakes = match cut {
            Cut::Most(_) if self.wakes_within => self.complete(),
            Cut::Exactly(passed) => passed.wakes,
            Cut::Most(_) | Cut::Due(_) => None,
        };
        self.woken = self.woken.max(epoch.input.wakes);
        if fills {
            epoch.input.least_time = epoch.input.least_time.or(self.anchor());
        }
        epoch.input.complete = self.complete();
        assert_eq!(held_before, self.held() + epoch.input.events, "each event is held or has passed");
        assert!(!self.has_rejects(), "an epoch takes all late and bad records that may pass");
        self.check_order(&heads, &epoch.input.merge[..timed]);
        assert!(due.is_empty() || epoch.input.events == 0, "what is due has an epoch of its own");
        if let Some(mut runs) = by_stream {
            self.merge_by_stream(&mut runs);
            epoch.input.merge = runs;
        }
        self.complete_batches(&mut epoch.input);
        epoch.input.merge.extend(due);
        true
    }

    /// Counts the events of each source that have passed.
    fn count_passed(&self, passed: &mut Vec<u64>) {
        passed.clear();
        passed.resize(self.sources(), 0);
        self.queues.iter().for_each(|queue| passed[queue.place.source] += queue.taken);
    }

    /// Returns the time below which every event has passed, and none comes any more: the punctuation of what was cut
    /// last.
    pub fn complete(&self) -> Option<i64> {
        let mark = self.mark()?;
        Some(self.first_time().map_or(mark, |first| first.min(mark)))
    }

    /// Returns the program's mark: the time below which no event comes any more, and not more than the greatest that
    /// was shown.
    pub fn mark(&self) -> Option<i64> {
        let mut mark = self.shown()?;
        for queue in self.timed().filter(|queue| !queue.ended) {
            mark = mark.min(queue.low()?);
        }
        Some(mark)
    }

    /// Returns the greatest time that was shown: that of an event, or of a punctuation.
    pub fn shown(&self) -> Option<i64> {
        self.timed().filter_map(Queue::shown).max()
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
        self.boundary.is_some_and(|boundary| self.mark() >= Some(boundary))
    }

    /// Lets no event of this time or a later one pass, until it is called again.
    pub fn hold_from(&mut self, boundary: Option<i64>) {
        self.boundary = boundary;
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

    /// Returns whether these events are held.
    fn has(&self, passed: &Passed) -> bool {
        let Passed { counts, sent, .. } = passed;
        let mut of_sent = vec![0; self.queues.len()];
        sent.iter().for_each(|&(source, count)| of_sent[source as usize] += count as usize);
        let has = |(s, queue): (usize, &Queue)| {
            let anchored = if queue.is_sent { counts[s] } else { 0 };
            counts[s] <= queue.held() && of_sent[s] == anchored
        };
        counts.len() == self.queues.len() && self.queues.iter().enumerate().all(has)
    }

    /// Returns the first `events` that may pass: [`Cut::Exactly`] of them is an epoch of that size.
    pub fn first(&self, events: usize) -> Passed {
        assert_eq!(self.sent.held(), 0, "only events with a time or a counter may pass");
        let mut counts = vec![0usize; self.queues.len()];
        self.merge(self.passes(), events, &mut counts, &mut Vec::new());
        let next = self.queues.iter().zip(&counts).filter_map(|(queue, &count)| queue.time_of(count)).min();
        let complete = self.mark().map(|mark| next.map_or(mark, |next| next.min(mark)));
        Passed { counts, sent: Vec::new(), wakes: complete.filter(|_| self.wakes_within) }
    }

    /// Returns a test whether an event of a source may pass, given its time.
    fn passes(&self) -> impl Fn(usize, i64, usize) -> bool + use<> {
        let lowest = self.lowest();
        let limit = |s: usize| if self.queues[s].is_sent { None } else { self.limit(lowest, s) };
        let limits: Vec<Option<i64>> = (0..self.queues.len()).map(limit).collect();
        move |s, time, _| limits[s].is_some_and(|limit| time <= limit)
    }

    /// Chooses at most `most` events that may pass. If there are more, sent events get at least half of the room.
    fn cut_most(&mut self, most: usize, epoch: &mut Epoch) -> (Vec<usize>, Vec<SourceRun>) {
        let sent = self.sent_ready();
        let timed = most - sent.min(most.div_ceil(2));
        let mut taken = vec![0usize; self.queues.len()];
        match (&self.queues[..], self.limit(self.lowest(), 0)) {
            ([sole], Some(limit)) if !sole.is_sent => {
                taken[0] = sole.passing_together(limit, timed);
                if taken[0] > 0 {
                    epoch.input.merge.push((0, taken[0] as u32));
                }
            }
            _ => self.merge(self.passes(), timed, &mut taken, &mut epoch.input.merge),
        }
        let room = (most - taken.iter().sum::<usize>()).min(sent);
        let runs = self.sent.take(room);
        runs.iter().for_each(|&(source, count)| taken[source as usize] += count as usize);
        (taken, runs)
    }

    fn cut_exactly(&mut self, passed: &Passed, epoch: &mut Epoch) -> (Vec<usize>, Vec<SourceRun>) {
        let Passed { counts, sent, .. } = passed;
        let timed = |s: usize| if self.queues[s].is_sent { 0 } else { counts[s] };
        let all = (0..counts.len()).map(timed).sum();
        let mut taken = vec![0usize; self.queues.len()];
        self.merge(|s, _, taken| taken < timed(s), all, &mut taken, &mut epoch.input.merge);
        for &(source, count) in sent {
            taken[source as usize] += count as usize;
            self.sent.remove(source as usize, count as usize);
        }
        assert_eq!(&taken, counts, "all of them are held");
        (taken, sent.clone())
    }

    /// Moves the first events of each queue to an epoch, with the late and bad records that may pass. Gives their order in
    /// runs of parts, if these are not the sources.
    fn take(&mut self, taken: Vec<usize>, epoch: &mut Epoch) -> Option<Vec<(u32, u32)>> {
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
