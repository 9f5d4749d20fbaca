//! The last events that were refused, with reasons: of each stream of late, bad, failed and aborted events.
//!
//! They are followed only while somebody looks. One thread takes what was released of all of these streams several times
//! a second, and keeps the last events of each. So a stream of a million aborts a second costs no more than one of ten:
//! what is not kept is never written as text.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::JsonRows;
use tidemill_plan::StreamId;
use tidemill_runtime::{Followed, Following, Released, Session, Slow};

/// The events that are kept of a stream.
const EVENTS_MAX: usize = 50;
/// The events that a follower may be behind.
const BEHIND_MAX: usize = 1_000;
/// The interval at which refused events are taken.
const TICK: Duration = Duration::from_millis(200);
/// The time after a request for which the streams are followed.
const LOOKED: Duration = Duration::from_secs(10);

/// An event that was refused.
#[derive(Clone)]
pub struct Event {
    /// Counted from 1, in the order in which they were taken.
    pub number: u64,
    /// The epoch that released the event.
    pub epoch: u64,
    /// The name of the stream.
    pub stream: Arc<str>,
    /// Its fields, as a JSON object.
    pub fields: Vec<u8>,
}

/// The last events of all streams of refused events.
pub struct Tails {
    session: Arc<Session>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// The number of the last event.
    last: u64,
    /// The last events, by stream.
    tails: Vec<VecDeque<Event>>,
    /// The time of the last request for them; none before the first one.
    looked: Option<Instant>,
    /// A flag: whether a thread follows the streams.
    is_followed: bool,
}

/// A stream that is followed.
struct Tail {
    name: Arc<str>,
    rows: JsonRows,
    following: Following,
}

impl Tails {
    /// Makes the lists of refused events; streams are followed once somebody looks.
    pub fn new(session: Arc<Session>) -> Tails {
        Tails { session, kept: Arc::default() }
    }

    /// Returns the events after a number that are kept, in order. From now on they are followed, for a while.
    pub fn after(&self, number: u64, streams: impl FnOnce() -> Vec<StreamId>) -> Vec<Event> {
        let mut kept = self.kept.lock();
        kept.looked = Some(Instant::now());
        if !kept.is_followed {
            kept.is_followed = self.follow(streams());
        }
        // A page of an earlier server may know greater numbers.
        let number = if number > kept.last { 0 } else { number };
        let mut events: Vec<Event> =
            kept.tails.iter().flatten().filter(|event| event.number > number).cloned().collect();
        events.sort_unstable_by_key(|event| event.number);
        events
    }

    /// Stops following the streams.
    pub fn stop(&self) {
        self.kept.lock().looked = None;
    }

    /// Starts the thread; false if that is not possible.
    fn follow(&self, streams: Vec<StreamId>) -> bool {
        let program = self.session.engine().program();
        let tail = |id: StreamId| {
            let stream = &program.streams[id];
            let following = self.session.follow(id, Slow::Misses, BEHIND_MAX).ok()?;
            Some(Tail { name: stream.name.as_str().into(), rows: JsonRows::new(&stream.schema), following })
        };
        let Some(tails) = streams.into_iter().map(tail).collect::<Option<Vec<Tail>>>() else { return false };
        let (kept, session) = (self.kept.clone(), self.session.clone());
        let run = move || {
            while !session.is_over() {
                thread::sleep(TICK);
                if !kept.lock().take(&tails) {
                    return;
                }
            }
            kept.lock().is_followed = false;
        };
        thread::Builder::new().name("refused".into()).spawn(run).is_ok()
    }
}

impl Kept {
    /// Takes what was released since; false if nobody looks any more.
    fn take(&mut self, tails: &[Tail]) -> bool {
        self.tails.resize_with(tails.len(), VecDeque::new);
        let mut taken: Vec<(u64, usize, Vec<u8>)> = Vec::new();
        for (place, tail) in tails.iter().enumerate() {
            tail.take(|epoch, fields| taken.push((epoch, place, fields)));
        }
        taken.sort_by_key(|(epoch, ..)| *epoch);
        for (epoch, place, fields) in taken {
            self.last += 1;
            let tail = &mut self.tails[place];
            if tail.len() == EVENTS_MAX {
                tail.pop_front();
            }
            tail.push_back(Event { number: self.last, epoch, stream: tails[place].name.clone(), fields });
        }
        self.is_followed = self.looked.is_some_and(|looked| looked.elapsed() < LOOKED);
        self.is_followed
    }
}

impl Tail {
    /// Takes what was released, and gives the last events of it.
    fn take(&self, mut give: impl FnMut(u64, Vec<u8>)) {
        let mut last: VecDeque<Released> = VecDeque::new();
        let mut count = 0;
        loop {
            match self.following.next(Some(Instant::now())) {
                Followed::Events(released) => {
                    count += released.batch.num_rows();
                    last.push_back(released);
                    while last.front().is_some_and(|first| count - first.batch.num_rows() >= EVENTS_MAX) {
                        count -= last.pop_front().expect("there is a first").batch.num_rows();
                    }
                }
                Followed::Missed(_) => {}
                Followed::Nothing | Followed::Over => break,
            }
        }
        let mut skipped = count.saturating_sub(EVENTS_MAX);
        for released in last {
            let rows = self.rows.of(&released.batch);
            for row in skipped..released.batch.num_rows() {
                let mut fields = Vec::new();
                rows.write(&mut fields, row);
                give(released.epoch, fields);
            }
            skipped = 0;
        }
    }
}
