//! Traces: for some of the calls, the spans of their way, sent to a collector of OpenTelemetry.
//!
//! 1. A call that is made gets a [`Trace`], if traces are wanted and it is one of the sample ([`Traces::begin`]): a client that keeps
//!    its trace decides it, else the share.
//! 2. The trace goes with the request that waits (`calls`), which notes in it when the call was where ([`Trace::answered`]).
//! 3. When it is dropped, with the reply or without one, it is put into a bounded queue. If that is full, it is lost and counted.
//! 4. A thread makes spans of what is in the queue and sends them (`export`). What the collector does not take is lost and counted.
//!
//! # Invariant
//!
//! No call waits for the queue, the thread or the collector. Without traces a call costs one look at an option; one
//! that is not of the sample, an addition beside it.

mod export;
mod otlp;
mod parent;

use crate::shares::Protocol;
use export::{Address, Exporter};
pub use parent::Parent;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tidemill_runtime::{Outcome, Way};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

/// The most calls whose spans wait to be sent.
const QUEUE: usize = 4_096;
/// The distance between numbers that are spread evenly, however many there are (Weyl).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The collector of traces, and the calls that are traced.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// The URL of the collector: `http://HOST:PORT`, with a path if that is not `/v1/traces`.
    pub url: String,
    /// The share of the calls that are traced whose clients do not say it, 0 to 1.
    pub share: f64,
}

/// The reason why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The URL is none, or of no collector that can be reached.
    #[error("'{url}' is no URL for traces: {why}; give one such as http://127.0.0.1:4318")]
    Url {
        /// The URL.
        url: String,
        /// The reason.
        why: &'static str,
    },
    /// The share is none.
    #[error("{0} is no share of calls; give a number from 0 to 1")]
    Share(f64),
    /// The system gives no thread.
    #[error("traces cannot be sent: {0}")]
    Begin(#[source] io::Error),
}

/// Counts of spans.
#[derive(Default)]
pub struct Counts {
    /// Spans that a collector has taken.
    pub sent: AtomicU64,
    /// Spans of calls for which there was no room in the queue.
    pub without_room: AtomicU64,
    /// Spans that no collector has taken.
    pub not_taken: AtomicU64,
}

/// The traces of a server.
pub struct Traces {
    queue: mpsc::Sender<Called>,
    /// The sample: calls whose number is below. None: all.
    below: Option<u64>,
    number: AtomicU64,
    random: SystemRandom,
    counts: Arc<Counts>,
    stops: watch::Sender<bool>,
    /// The thread; taken at the end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Traces {
    /// Begins to send the traces of an application.
    pub fn start(options: &TraceOptions, application: &str) -> Result<Arc<Traces>, TraceError> {
        let TraceOptions { url, share } = options;
        if !(0.0..=1.0).contains(share) {
            return Err(TraceError::Share(*share));
        }
        let address = Address::of(url).map_err(|why| TraceError::Url { url: url.clone(), why })?;
        let (queue, called) = mpsc::channel(QUEUE);
        let (stops, told) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let exporter = Exporter::new(address, application, called, counts.clone());
        let thread = exporter.start(told).map_err(TraceError::Begin)?;
        let below = (*share < 1.0).then(|| (share * 2f64.powi(64)) as u64);
        let (number, random, thread) = (AtomicU64::new(0), SystemRandom::new(), Mutex::new(Some(thread)));
        Ok(Arc::new(Traces { queue, below, number, random, counts, stops, thread }))
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Begins the trace of a call, if it is one of the sample.
    pub fn begin(
        self: &Arc<Self>,
        procedure: &str,
        by: Protocol,
        parent: Option<Parent>,
        since: Instant,
    ) -> Option<Box<Trace>> {
        let is_sampled = match &parent {
            Some(parent) => parent.is_sampled,
            None => self.below.is_none_or(|below| self.number.fetch_add(GOLDEN, Ordering::Relaxed) < below),
        };
        let mut ids = [0; 24];
        // Without random numbers there are no identities.
        if !is_sampled || self.random.fill(&mut ids).is_err() {
            return None;
        }
        let (trace, span) = ids.split_at(16);
        let mut trace: [u8; 16] = trace.try_into().expect("sixteen");
        parent.iter().for_each(|parent| trace = parent.trace);
        let called = Called {
            trace,
            span: span.try_into().expect("eight"),
            parent,
            procedure: procedure.into(),
            by,
            since,
            ended: (since, SystemTime::UNIX_EPOCH),
            answer: None,
        };
        Some(Box::new(Trace { of: self.clone(), called: Some(called) }))
    }

    /// Sends what is there, as long as the collector takes it soon, and ends.
    pub fn stop(&self) {
        self.stops.send_replace(true);
        let thread = self.thread.lock().take();
        // A thread that panicked has said so.
        thread.into_iter().for_each(|thread| _ = thread.join());
    }
}

/// A call that is traced. Its spans are sent when it is dropped.
pub struct Trace {
    of: Arc<Traces>,
    called: Option<Called>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trace").field(&self.called.as_ref().map(|called| &called.procedure)).finish()
    }
}

impl Trace {
    /// Notes the outcome of the call and the way of its epoch. `now`: this moment, also by the clock of the run.
    pub fn answered(&mut self, epoch: u64, outcome: Outcome, way: Option<Way>, now: (Instant, u64)) {
        let outcome = match outcome {
            Outcome::Committed(_) | Outcome::Silent => Said::Committed,
            Outcome::Aborted(_) | Outcome::Untaken(_) => Said::Aborted,
            Outcome::Refused(_) => Said::Refused,
        };
        let (at, of_run) = now;
        let moment = |time: u64| at.checked_sub(Duration::from_nanos(of_run.saturating_sub(time))).unwrap_or(at);
        let way = way.map(|way| Moments {
            began: moment(way.began),
            ended: moment(way.ended),
            durable: way.durable.map(moment),
        });
        if let Some(called) = &mut self.called {
            called.answer = Some(Answer { epoch, outcome, way, at });
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(mut called) = self.called.take() {
            called.ended = (Instant::now(), SystemTime::now());
            if let Err(TrySendError::Full(lost) | TrySendError::Closed(lost)) = self.of.queue.try_send(called) {
                self.of.counts.without_room.fetch_add(lost.spans(), Ordering::Relaxed);
            }
        }
    }
}

/// The account of a call that was traced.
pub struct Called {
    trace: [u8; 16],
    span: [u8; 8],
    parent: Option<Parent>,
    procedure: String,
    by: Protocol,
    /// The moment when it was made.
    since: Instant,
    /// The moment of its end, also by the machine's clock.
    ended: (Instant, SystemTime),
    /// None if it got no outcome.
    answer: Option<Answer>,
}

impl Called {
    /// Returns the number of its spans.
    fn spans(&self) -> u64 {
        1 + self.parts().len() as u64
    }

    /// Returns a moment by the machine's clock, as it is at the end, nanoseconds since 1970.
    fn time(&self, moment: Instant) -> u64 {
        let (end, of_day) = self.ended;
        let of_day = of_day.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        of_day.saturating_sub(end.saturating_duration_since(moment)).as_nanos() as u64
    }

    /// Returns the parts of its way, one after the other from its beginning to its end.
    fn parts(&self) -> Vec<(&'static str, Instant, Instant)> {
        let Some(answer) = &self.answer else { return Vec::new() };
        let end = self.ended.0.max(self.since);
        let ends: Vec<(&'static str, Instant)> = match &answer.way {
            None => vec![("gate", answer.at), ("reply", end)],
            Some(Moments { began, ended, durable }) => {
                let log = durable.map(|durable| ("log", durable));
                [("gate", *began), ("access", *ended)].into_iter().chain(log).chain([("reply", end)]).collect()
            }
        };
        let mut at = self.since;
        let part = |(name, until): (&'static str, Instant)| {
            let until = until.clamp(at, end);
            (name, std::mem::replace(&mut at, until), until)
        };
        ends.into_iter().map(part).collect()
    }
}

/// The outcome of a call, without its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Committed,
    Aborted,
    Refused,
}

impl Said {
    /// Returns its word in spans.
    fn word(self) -> &'static str {
        match self {
            Said::Committed => "committed",
            Said::Aborted => "aborted",
            Said::Refused => "refused",
        }
    }
}

/// The answer to a call that was traced.
struct Answer {
    epoch: u64,
    outcome: Said,
    way: Option<Moments>,
    /// The moment when it was told.
    at: Instant,
}

/// A [`Way`], in this process's time.
struct Moments {
    began: Instant,
    ended: Instant,
    durable: Option<Instant>,
}

#[cfg(test)]
mod tests;
