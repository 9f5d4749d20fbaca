//! Readers of streams: events as they are released, as server-sent events.
//!
//! One thread follows a stream for all of its readers, as long as there are any. Each reader has room for a number of
//! messages. What it has no room for it misses, and it is told how many; nobody waits for it.

use crate::slots::{Slot, Slots};
use hyper::body::{Body, Bytes, Frame};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::JsonRows;
use tidemill_model::Schema;
use tidemill_plan::StreamId;
use tidemill_runtime::{Followed, Following, Released, Session, Slow};
use tokio::sync::mpsc;
use tokio::time::Interval;

/// The messages that a reader may be behind.
const MESSAGES_MAX: usize = 64;
/// The events that all readers of a stream may be behind together.
const EVENTS_MAX: usize = 100_000;
/// The most events of a message.
const MESSAGE_EVENTS_MAX: usize = 1_000;
/// The interval at which a reader without events gets a comment, so that one who has gone is noticed.
const COMMENT: Duration = Duration::from_secs(15);
/// The interval at which a thread looks whether it still has readers.
const TICK: Duration = Duration::from_millis(200);

/// The streams that are followed.
pub struct Hubs {
    session: Arc<Session>,
    slots: Slots,
    /// By stream: its readers; the thread that serves them removes the entry when it ends.
    readers: Arc<Mutex<BTreeMap<StreamId, Vec<Reader>>>>,
    stopping: Arc<AtomicBool>,
}

struct Reader {
    to: mpsc::Sender<Bytes>,
    /// Events that it had no room for, since it was told last.
    missed: u64,
}

/// Why a stream cannot be read.
pub enum NotRead {
    /// There are too many readers.
    Busy,
    /// The run is over.
    Over,
}

impl Hubs {
    /// For the streams of a session.
    pub fn new(session: Arc<Session>, readers_max: usize) -> Hubs {
        Hubs { session, slots: Slots::new(readers_max), readers: Arc::default(), stopping: Arc::default() }
    }

    /// The number of readers.
    pub fn readers(&self) -> usize {
        self.slots.taken()
    }

    /// All readers are at their end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Reads a stream from now on.
    pub fn read(&self, stream: StreamId) -> Result<Events, NotRead> {
        let slot = self.slots.take().ok_or(NotRead::Busy)?;
        let (to, messages) = mpsc::channel(MESSAGES_MAX);
        let reader = Reader { to, missed: 0 };
        let mut all = self.readers.lock();
        match all.get_mut(&stream) {
            Some(readers) => readers.push(reader),
            None => {
                let following = self.session.follow(stream, Slow::Misses, EVENTS_MAX).map_err(|_| NotRead::Over)?;
                self.serve(stream, following).map_err(|_| NotRead::Busy)?;
                all.insert(stream, vec![reader]);
            }
        }
        drop(all);
        let mut comment = tokio::time::interval(COMMENT);
        comment.reset();
        Ok(Events { messages, comment, _slot: slot })
    }

    /// Starts the thread that follows a stream.
    fn serve(&self, stream: StreamId, following: Following) -> io::Result<()> {
        let schema = self.session.engine().program().streams[stream].schema.clone();
        let (readers, stopping) = (self.readers.clone(), self.stopping.clone());
        let run = move || {
            let mut text = EventText::new(&schema);
            loop {
                let next = following.next(Some(soon()));
                let is_over = matches!(next, Followed::Over) || stopping.load(Ordering::Acquire);
                match next {
                    Followed::Events(released) => {
                        let messages = text.messages(&released);
                        give(&readers, stream, |reader| {
                            messages.iter().for_each(|(m, events)| reader.give(m, *events))
                        });
                    }
                    Followed::Missed(events) => give(&readers, stream, |reader| reader.missed += events),
                    Followed::Nothing | Followed::Over => {}
                }
                let mut all = readers.lock();
                let left = all.get_mut(&stream).expect("only this thread removes it");
                left.retain(|reader| !reader.to.is_closed());
                if left.is_empty() || is_over {
                    all.remove(&stream);
                    return;
                }
            }
        };
        thread::Builder::new().name("readers".into()).spawn(run).map(drop)
    }
}

fn soon() -> Instant {
    Instant::now() + TICK
}

fn give(all: &Mutex<BTreeMap<StreamId, Vec<Reader>>>, stream: StreamId, to: impl FnMut(&mut Reader)) {
    all.lock().get_mut(&stream).into_iter().flatten().for_each(to);
}

impl Reader {
    fn give(&mut self, message: &Bytes, events: u64) {
        if self.missed > 0 {
            let missed = format!("event: missed\ndata: {{\"events\":{}}}\n\n", self.missed);
            if self.to.try_send(missed.into()).is_ok() {
                self.missed = 0;
            }
        }
        if self.missed > 0 || self.to.try_send(message.clone()).is_err() {
            self.missed += events;
        }
    }
}

/// Writes events as messages, with the number of their epoch and their place among the stream's events in it.
struct EventText {
    rows: JsonRows,
    /// The last epoch, and the number of its events so far.
    last: (u64, usize),
}

impl EventText {
    fn new(schema: &Schema) -> EventText {
        EventText { rows: JsonRows::new(schema), last: (0, 0) }
    }

    /// Messages and the numbers of their events.
    fn messages(&mut self, released: &Released) -> Vec<(Bytes, u64)> {
        if self.last.0 != released.epoch {
            self.last = (released.epoch, 0);
        }
        let rows = self.rows.of(&released.batch);
        let count = released.batch.num_rows();
        let mut messages = Vec::new();
        for first in (0..count).step_by(MESSAGE_EVENTS_MAX) {
            let end = count.min(first + MESSAGE_EVENTS_MAX);
            let mut text = Vec::new();
            for row in first..end {
                text.extend_from_slice(format!("id: {}.{}\ndata: ", released.epoch, self.last.1 + row).as_bytes());
                rows.write(&mut text, row);
                text.extend_from_slice(b"\n\n");
            }
            messages.push((text.into(), (end - first) as u64));
        }
        self.last.1 += count;
        messages
    }
}

/// The body of a reader's response.
pub struct Events {
    messages: mpsc::Receiver<Bytes>,
    comment: Interval,
    _slot: Slot,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            self.comment.reset();
            return Poll::Ready(message.map(|message| Ok(Frame::data(message))));
        }
        match self.comment.poll_tick(cx) {
            Poll::Ready(_) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b":\n\n"))))),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_is_told_what_it_missed() {
        let (to, mut messages) = mpsc::channel(2);
        let mut reader = Reader { to, missed: 0 };
        let message = Bytes::from_static(b"data: 1\n\n");
        (0..5).for_each(|_| reader.give(&message, 10));
        assert_eq!(reader.missed, 30);
        assert!(messages.try_recv().is_ok() && messages.try_recv().is_ok());
        reader.give(&message, 10);
        assert_eq!(messages.try_recv().expect("it is told"), "event: missed\ndata: {\"events\":30}\n\n");
        assert_eq!(messages.try_recv().expect("it goes on"), message);
        assert_eq!(reader.missed, 0);
    }
}
