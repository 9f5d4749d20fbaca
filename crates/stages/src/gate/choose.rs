//! The choice of the events that an epoch takes: by number, or as an earlier run has chosen.

use crate::due::DueCut;
use crate::gate::Gate;
use crate::gate::queue::Queue;
use crate::gate::sent::SourceRun;

/// The place of a cut among the held events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At most this number of events that may pass, in position order.
    Most(usize),
    /// Exactly these.
    Exactly(Passed),
}

/// The part of what the gate holds that an epoch takes. With what the gate was given before, it says what the epoch is:
/// late and bad records follow from the marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The number of events that pass, by split.
    pub counts: Vec<usize>,
    /// The order of those that have anchored positions.
    pub sent: Vec<SourceRun>,
    /// If it has what is due at a time, and no events of sources: which.
    pub due: Option<DueCut>,
    /// If what is due runs within the epoch: up to which time.
    pub due_through: Option<i64>,
    /// The order of the other events, in runs of splits, if it is known. It follows from the counts.
    order: Option<Vec<SourceRun>>,
}

impl Passed {
    /// Returns what an earlier run has chosen.
    pub fn new(counts: Vec<usize>, sent: Vec<SourceRun>, due: Option<DueCut>, due_through: Option<i64>) -> Passed {
        Passed { counts, sent, due, due_through, order: None }
    }
}

impl Gate {
    /// Chooses at most `most` events that may pass, in position order. If there are more, sent events get at least half of
    /// the room.
    pub fn choose(&self, most: usize) -> Passed {
        let ready = self.sent_ready();
        let timed = most - ready.min(most.div_ceil(2));
        let (mut counts, mut order) = (vec![0usize; self.queues.len()], Vec::new());
        match (&self.queues[..], self.progress.limit(self.progress.frontier(), 0)) {
            ([sole], Some(limit)) if !self.is_sent(0) => {
                counts[0] = sole.passing_together(limit, timed);
                order.extend((counts[0] > 0).then_some((0, counts[0] as u32)));
            }
            _ => self.merge(self.passes(), timed, &mut counts, &mut order),
        }
        let due_through = if self.stretches { self.complete_after(&counts) } else { None };
        let room = (most - counts.iter().sum::<usize>()).min(ready);
        let sent = self.sent.first(room);
        sent.iter().for_each(|&(source, count)| counts[source as usize] += count as usize);
        Passed { counts, sent, due: None, due_through, order: Some(order) }
    }

    /// Chooses no events of sources, but what is due.
    pub fn choose_due(&self, due: DueCut) -> Passed {
        let counts = vec![0; self.queues.len()];
        Passed { counts, sent: Vec::new(), due: Some(due), due_through: None, order: Some(Vec::new()) }
    }

    /// Returns the events of a cut.
    pub fn chosen(&self, cut: Cut) -> Passed {
        match cut {
            Cut::Most(most) => self.choose(most),
            Cut::Exactly(passed) => passed,
        }
    }

    /// Returns the punctuation after these numbers of events have passed, by split.
    fn complete_after(&self, counts: &[usize]) -> Option<i64> {
        let timed = self.queues.iter().zip(counts).filter(|(queue, _)| queue.time_field.is_some());
        self.progress.complete(timed.filter_map(|(queue, &count)| queue.time_of(count)).min())
    }

    /// Returns a test whether an event of a source may pass, given its time.
    fn passes(&self) -> impl Fn(usize, i64, usize) -> bool + use<> {
        let frontier = self.progress.frontier();
        let limit = |s: usize| if self.is_sent(s) { None } else { self.progress.limit(frontier, s) };
        let limits: Vec<Option<i64>> = (0..self.queues.len()).map(limit).collect();
        move |s, time, _| limits[s].is_some_and(|limit| time <= limit)
    }

    /// Returns whether these events are held.
    pub(super) fn has(&self, passed: &Passed) -> bool {
        let Passed { counts, sent, .. } = passed;
        let mut of_sent = vec![0; self.queues.len()];
        sent.iter().for_each(|&(source, count)| of_sent[source as usize] += count as usize);
        let has = |(s, queue): (usize, &Queue)| {
            let anchored = if self.is_sent(s) { counts[s] } else { 0 };
            counts[s] <= queue.held() && of_sent[s] == anchored
        };
        counts.len() == self.queues.len() && self.queues.iter().enumerate().all(has)
    }

    /// Appends the order in which events pass that have no anchored position.
    pub(super) fn order(&self, passed: &Passed, into: &mut Vec<SourceRun>) {
        if let Some(order) = &passed.order {
            into.extend_from_slice(order);
            return;
        }
        let timed = |s: usize| if self.is_sent(s) { 0 } else { passed.counts[s] };
        let all = (0..passed.counts.len()).map(timed).sum();
        let mut counts = vec![0usize; self.queues.len()];
        self.merge(|s, _, taken| taken < timed(s), all, &mut counts, into);
        assert!((0..counts.len()).all(|s| counts[s] == timed(s)), "all of them are held");
    }
}
