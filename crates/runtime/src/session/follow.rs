//! Followers: readers of a stream's events as they are released.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tidemill_durability::Place;
use tidemill_plan::StreamId;
use tidemill_recovery::Released;
use tidemill_stages::actor::Bell;

/// The consequence of a follower that is slower than the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// The oldest events are left out, and the follower is told how many.
    #[default]
    Misses,
    /// The run waits for the follower.
    Waits,
}

/// The next thing that a follower gets.
#[derive(Clone, Debug)]
pub enum Followed {
    /// Events.
    Events(Released),
    /// The number of events that were left out here, because the follower was too slow.
    Missed(u64),
    /// Nothing in time.
    Nothing,
    /// The run is over, and everything was read.
    Over,
}

/// A reader of a stream. Its buffer has room for a number of events, and for one epoch's more.
pub struct Follower {
    stream: StreamId,
    slow: Slow,
    events_max: usize,
    /// It wants what comes after this place; none if it began with what was released next.
    after: Option<Place>,
    state: Mutex<Buffer>,
    changed: Condvar,
    /// Rings for the releaser, which may wait for room.
    releaser: Arc<Bell>,
}

#[derive(Default)]
struct Buffer {
    released: VecDeque<Released>,
    events: usize,
    /// Events that were left out before the first.
    missed: u64,
    /// The place after what was taken.
    taken: Option<Place>,
    /// The last epoch of which everything was given.
    through: Option<u64>,
    is_over: bool,
}

impl Follower {
    /// Makes a follower of a stream, with room for `events_max` events. `releaser` is rung when there is room again.
    /// `after`: it goes on after this place; none: with what is released next.
    pub fn new(stream: StreamId, slow: Slow, events_max: usize, after: Option<Place>, releaser: Arc<Bell>) -> Follower {
        let state = Mutex::new(Buffer { taken: after, ..Buffer::default() });
        Follower { stream, slow, events_max: events_max.max(1), after, state, changed: Condvar::new(), releaser }
    }

    /// Returns the place after everything that was taken of it: another follower can go on there. None before an epoch
    /// was released.
    pub fn place(&self) -> Option<Place> {
        let state = self.state.lock();
        let whole = state.through.filter(|_| state.released.is_empty()).map(Place::after);
        state.taken.max(whole)
    }

    /// Returns the stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the next events; waits for them until the deadline, if there is one.
    pub fn next(&self, deadline: Option<Instant>) -> Followed {
        let mut state = self.state.lock();
        loop {
            let missed = std::mem::take(&mut state.missed);
            if missed > 0 {
                return Followed::Missed(missed);
            }
            if let Some(released) = state.released.pop_front() {
                state.events -= released.batch.num_rows();
                state.taken = Some(released.place());
                drop(state);
                self.releaser.ring();
                return Followed::Events(released);
            }
            if state.is_over {
                return Followed::Over;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) if self.changed.wait_until(&mut state, deadline).timed_out() => {
                    return Followed::Nothing;
                }
                Some(_) => {}
            }
        }
    }

    /// Returns whether the run has to wait for the follower.
    pub(crate) fn holds_back(&self) -> bool {
        self.slow == Slow::Waits && self.state.lock().events >= self.events_max
    }

    /// Returns the place from which it goes on.
    pub(crate) fn after(&self) -> Option<Place> {
        self.after
    }

    /// Notes that an epoch was released, and that it was given everything of it.
    pub(crate) fn through(&self, epoch: u64) {
        self.state.lock().through = Some(epoch);
    }

    /// Gives it events; it leaves out those before its place.
    pub(crate) fn give(&self, released: Released) {
        let released = match self.after {
            None => released,
            Some(after) => match released.after(after) {
                None => return,
                Some(released) => released,
            },
        };
        let mut state = self.state.lock();
        state.events += released.batch.num_rows();
        state.released.push_back(released);
        while self.slow == Slow::Misses && state.events > self.events_max && state.released.len() > 1 {
            let oldest = state.released.pop_front().expect("more than one");
            state.events -= oldest.batch.num_rows();
            state.missed += oldest.batch.num_rows() as u64;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the stream of events: no more come.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};

    fn released(epoch: u64, events: usize) -> Released {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![0; events]));
        Released {
            epoch,
            complete: None,
            first: 0,
            batch: RecordBatch::try_from_iter([("n", column)]).expect("one column"),
        }
    }

    fn follower(slow: Slow) -> Follower {
        Follower::new(StreamId::from(0), slow, 10, None, Arc::default())
    }

    #[test]
    fn a_slow_follower_is_told_what_it_missed() {
        let follower = follower(Slow::Misses);
        (1..=5).for_each(|epoch| follower.give(released(epoch, 4)));
        assert!(!follower.holds_back());
        assert!(matches!(follower.next(None), Followed::Missed(12)));
        for epoch in [4, 5] {
            let Followed::Events(next) = follower.next(None) else { panic!("epoch {epoch} is there") };
            assert_eq!(next.epoch, epoch);
        }
        follower.end();
        assert!(matches!(follower.next(None), Followed::Over));
    }

    #[test]
    fn a_follower_goes_on_after_a_place() {
        let after = Place { epoch: 2, events: 3 };
        let follower = Follower::new(StreamId::from(0), Slow::Misses, 100, Some(after), Arc::default());
        assert_eq!(follower.place(), Some(after));
        (1..=3).for_each(|epoch| follower.give(released(epoch, 4)));
        follower.through(3);
        assert_eq!(follower.place(), Some(after), "nothing was taken");
        let Followed::Events(next) = follower.next(None) else { panic!("an event of epoch 2 is there") };
        assert_eq!((next.epoch, next.first, next.batch.num_rows()), (2, 3, 1));
        assert_eq!(follower.place(), Some(Place { epoch: 2, events: 4 }));
        let Followed::Events(next) = follower.next(None) else { panic!("epoch 3 is there") };
        assert_eq!((next.epoch, next.first, next.batch.num_rows()), (3, 0, 4));
        assert_eq!(follower.place(), Some(Place::after(3)), "everything was taken");
        follower.through(5);
        assert_eq!(follower.place(), Some(Place::after(5)));
    }

    #[test]
    fn a_follower_that_the_run_waits_for_misses_nothing() {
        let follower = follower(Slow::Waits);
        (1..=3).for_each(|epoch| follower.give(released(epoch, 4)));
        assert!(follower.holds_back());
        assert!(matches!(follower.next(None), Followed::Events(Released { epoch: 1, .. })));
        assert!(!follower.holds_back());
    }
}
