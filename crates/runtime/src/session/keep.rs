//! Streams whose last events are kept, so that they can be followed from an earlier place.
//!
//! # Invariant
//!
//! Every event of the stream at a place after [`Kept::lost`] that was released is kept, in order. In a durable run the
//! replay gives again what was released since the last checkpoint, so a follower goes on across a crash as long as it is
//! no further behind than that and the number of events that is kept.

use crate::session::follow::Released;
use crate::session::place::Place;
use std::collections::VecDeque;
use tidemill_plan::StreamId;

/// The last events of a stream.
#[derive(Debug)]
pub struct Kept {
    pub stream: StreamId,
    events_max: usize,
    released: VecDeque<Released>,
    events: usize,
    /// Nothing at this place or before is kept any more.
    lost: Place,
}

impl Kept {
    /// Keeps at least the last `events_max` events, and whole batches, of the epochs from `first` on.
    pub fn new(stream: StreamId, events_max: usize, first: u64) -> Kept {
        assert!(first > 0, "epochs are counted from 1");
        Kept { stream, events_max, released: VecDeque::new(), events: 0, lost: Place::after(first - 1) }
    }

    /// Adds events that were released.
    pub fn give(&mut self, released: Released) {
        assert!(released.place() > self.lost, "events are released in order");
        self.events += released.batch.num_rows();
        self.released.push_back(released);
        while let Some(oldest) = self.released.front() {
            let rows = oldest.batch.num_rows();
            if self.events - rows < self.events_max {
                break;
            }
            self.events -= rows;
            self.lost = oldest.place();
            self.released.pop_front();
        }
    }

    /// The place after which everything is kept.
    pub fn lost(&self) -> Place {
        self.lost
    }

    /// What is kept, in order.
    pub fn released(&self) -> impl Iterator<Item = &Released> {
        self.released.iter()
    }
}
