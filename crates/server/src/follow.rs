//! Readers of streams: events as they are released, as server-sent events, or as lines of JSON for listeners.
//!
//! One thread follows a stream for all of its readers, as long as there are any. Each reader has room for a number of
//! messages. What it has no room for it misses, and it is told how many; nobody waits for it. A listener ends there. A reader that goes on after a place has a thread of its own.

use crate::shares::{Client, Share, Shares};
use crate::users::RIGHTS_MAX;
use hyper::body::{Body, Bytes, Frame};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::{JsonRows, json_string};
use tidemill_plan::StreamId;
use tidemill_runtime::{Followed, Following, Place, Position, Released, Session, SessionError, Slow};
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
    places: Shares,
    /// The readers by thread; the thread that serves them removes the entry when it ends.
    readers: Arc<Readers>,
    /// The number of the next thread for a reader that goes on after a place.
    next: AtomicU64,
    stopping: Arc<AtomicBool>,
}

/// The form in which events are sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    ServerSent,
    /// JSON objects.
    Lines,
    /// JSON objects, each with the position in the stream after it.
    Placed,
}

/// A thread: the stream that it follows, how it tells its events, and 0 for the one that its readers share.
type Hub = (StreamId, Told, u64);

type Readers = Mutex<BTreeMap<Hub, Vec<Reader>>>;

struct Reader {
    to: mpsc::Sender<Bytes>,
    /// Events that it had no room for, since it was told last.
    missed: u64,
    /// The number of events for which a listener had no room; after the first of them it gets no more. None for other
    /// readers.
    lost: Option<Arc<AtomicU64>>,
}

/// The reason why a stream cannot be read.
pub enum NotRead {
    /// There are too many readers.
    Busy,
    /// The events after the place are not kept, or the run is over: why, in words.
    Refused(SessionError),
}

impl Hubs {
    /// Makes the hubs for the streams of a session.
    pub fn new(session: Arc<Session>, places: Shares) -> Hubs {
        let next = AtomicU64::new(1);
        Hubs { session, places, readers: Arc::default(), next, stopping: Arc::default() }
    }

    /// Returns the number of readers.
    pub fn readers(&self) -> usize {
        self.places.taken()
    }

    /// Ends all readers.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Reads a stream: from now on, or after a place if its events are kept; as long as it may be read.
    pub fn read(
        &self,
        client: &Client,
        stream: StreamId,
        after: Option<Position>,
        reads_on: Option<ReadsOn>,
    ) -> Result<Events, NotRead> {
        let place = self.places.take(client).ok_or(NotRead::Busy)?;
        let (to, messages) = mpsc::channel(MESSAGES_MAX);
        let hub = (stream, Told::ServerSent, after.map_or(0, |_| self.next.fetch_add(1, Ordering::Relaxed)));
        self.join(hub, after, Reader { to, missed: 0, lost: None })?;
        let mut comment = tokio::time::interval(COMMENT);
        comment.reset();
        let reads_on = reads_on.map(|reads_on| (reads_on, tokio::time::interval(RIGHTS_MAX)));
        Ok(Events { messages, comment, reads_on, is_refused: false, _place: place })
    }

    /// Listens to a stream: from now on, or after a place if its events are kept, with the places of the events.
    pub fn listen(&self, client: &Client, stream: StreamId, after: Option<Position>) -> Result<Listener, NotRead> {
        let place = self.places.take(client).ok_or(NotRead::Busy)?;
        let (to, messages) = mpsc::channel(MESSAGES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let hub = match after {
            None => (stream, Told::Lines, 0),
            Some(_) => (stream, Told::Placed, self.next.fetch_add(1, Ordering::Relaxed)),
        };
        self.join(hub, after, Reader { to, missed: 0, lost: Some(lost.clone()) })?;
        Ok(Listener { messages, lost, _place: place })
    }

    fn join(&self, hub: Hub, after: Option<Position>, reader: Reader) -> Result<(), NotRead> {
        let mut all = self.readers.lock();
        match all.get_mut(&hub) {
            Some(readers) => readers.push(reader),
            None => {
                let following =
                    self.session.follow_after(hub.0, after, Slow::Misses, EVENTS_MAX).map_err(NotRead::Refused)?;
                self.serve(hub, following).map_err(|_| NotRead::Busy)?;
                all.insert(hub, vec![reader]);
            }
        }
        Ok(())
    }

    /// Starts the thread that follows a stream.
    fn serve(&self, hub: Hub, following: Following) -> io::Result<()> {
        let schema = self.session.engine().program().streams[hub.0].schema.clone();
        let (readers, stopping) = (self.readers.clone(), self.stopping.clone());
        let run = move || {
            let rows = JsonRows::new(&schema);
            loop {
                let next = following.next(Some(soon()));
                let is_over = matches!(next, Followed::Over) || stopping.load(Ordering::Acquire);
                match next {
                    Followed::Events(released) => {
                        let messages = messages(&following, &rows, &released, hub.1);
                        give(&readers, hub, |reader| messages.iter().for_each(|(m, events)| reader.give(m, *events)));
                    }
                    Followed::Missed(events) => give(&readers, hub, |reader| reader.miss(events)),
                    Followed::Nothing | Followed::Over => {}
                }
                let mut all = readers.lock();
                let left = all.get_mut(&hub).expect("only this thread removes it");
                left.retain(|reader| !reader.to.is_closed() && !reader.is_over());
                if left.is_empty() || is_over {
                    all.remove(&hub);
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

fn give(all: &Readers, hub: Hub, to: impl FnMut(&mut Reader)) {
    all.lock().get_mut(&hub).into_iter().flatten().for_each(to);
}

impl Reader {
    fn miss(&mut self, events: u64) {
        match &self.lost {
            Some(lost) => _ = lost.fetch_add(events, Ordering::AcqRel),
            None => self.missed += events,
        }
    }

    fn is_over(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.load(Ordering::Acquire) > 0)
    }

    fn give(&mut self, message: &Bytes, events: u64) {
        if self.lost.is_some() {
            if self.is_over() || self.to.try_send(message.clone()).is_err() {
                self.miss(events);
            }
            return;
        }
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

/// Messages with events, and the numbers of their events. The id of an event is the position after it, so that a reader can go
/// on there.
fn messages(following: &Following, rows: &JsonRows, released: &Released, told: Told) -> Vec<(Bytes, u64)> {
    let events = rows.of(&released.batch);
    let count = released.batch.num_rows();
    let message = |first: usize| {
        let end = count.min(first + MESSAGE_EVENTS_MAX);
        let mut text = Vec::new();
        for row in first..end {
            let after = following.position(Place { epoch: released.epoch, events: released.first + row as u64 + 1 });
            let (before, behind) = match told {
                Told::ServerSent => (format!("id: {after}\ndata: "), "\n\n"),
                Told::Lines => (String::new(), "\n"),
                Told::Placed => (format!("{{\"position\":\"{after}\",\"event\":"), "}\n"),
            };
            text.extend_from_slice(before.as_bytes());
            events.write(&mut text, row);
            text.extend_from_slice(behind.as_bytes());
        }
        (text.into(), (end - first) as u64)
    };
    (0..count).step_by(MESSAGE_EVENTS_MAX).map(message).collect()
}

/// Tells why a reader may read no more, if that is so.
pub type ReadsOn = Box<dyn FnMut() -> Option<String> + Send>;

/// The body of a reader's response.
pub struct Events {
    messages: mpsc::Receiver<Bytes>,
    comment: Interval,
    /// The check whether the reader may still read the stream, and its interval; none if everybody may.
    reads_on: Option<(ReadsOn, Interval)>,
    is_refused: bool,
    _place: Share,
}

impl Events {
    /// Returns the reason why the stream ends now, if it does.
    fn refusal(&mut self, cx: &mut Context<'_>) -> Option<String> {
        let (reads_on, look) = self.reads_on.as_mut()?;
        while look.poll_tick(cx).is_ready() {
            if let Some(why) = reads_on() {
                return Some(why);
            }
        }
        None
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_refused {
            return Poll::Ready(None);
        }
        if let Some(why) = self.refusal(cx) {
            self.is_refused = true;
            let mut text = b"event: refused\ndata: {\"error\":".to_vec();
            json_string(&mut text, &why);
            text.extend_from_slice(b"}\n\n");
            return Poll::Ready(Some(Ok(Frame::data(text.into()))));
        }
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

/// The next message to a listener.
pub enum Heard {
    /// Events, a JSON object a line.
    Lines(Bytes),
    /// It did not keep up: it has missed events, and hears no more.
    Missed,
    /// The run is over, or the server about to end.
    Over,
}

/// One who listens to a stream.
pub struct Listener {
    messages: mpsc::Receiver<Bytes>,
    lost: Arc<AtomicU64>,
    _place: Share,
}

impl Listener {
    /// Returns the next message, once there is one.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        self.messages.poll_recv(cx).map(|message| match (message, self.lost.load(Ordering::Acquire)) {
            (Some(lines), _) => Heard::Lines(lines),
            (None, 0) => Heard::Over,
            (None, _) => Heard::Missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_is_told_what_it_missed() {
        let (to, mut messages) = mpsc::channel(2);
        let mut reader = Reader { to, missed: 0, lost: None };
        let message = Bytes::from_static(b"data: 1\n\n");
        (0..5).for_each(|_| reader.give(&message, 10));
        assert_eq!(reader.missed, 30);
        assert!(messages.try_recv().is_ok() && messages.try_recv().is_ok());
        reader.give(&message, 10);
        assert_eq!(messages.try_recv().expect("it is told"), "event: missed\ndata: {\"events\":30}\n\n");
        assert_eq!(messages.try_recv().expect("it goes on"), message);
        assert_eq!(reader.missed, 0);
    }

    #[test]
    fn a_slow_listener_ends() {
        let (to, mut messages) = mpsc::channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let mut reader = Reader { to, missed: 0, lost: Some(lost.clone()) };
        let message = Bytes::from_static(b"{}\n");
        (0..4).for_each(|_| reader.give(&message, 10));
        assert!(reader.is_over());
        assert!(messages.try_recv().is_ok() && messages.try_recv().is_ok());
        // There is room again, but events between would be missing.
        reader.give(&message, 10);
        assert!(messages.try_recv().is_err());
        assert_eq!(lost.load(Ordering::Acquire), 30);
    }
}
