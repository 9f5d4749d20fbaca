//! The output queue of a connection: bytes, and between them the places of replies whose calls are still under way.
//!
//! # Invariant
//!
//! Bytes leave in the order in which they were put in, and a reply takes the place of its call. After the error of a
//! call nothing is sent up to the next end of a unit ([`Queue::ready`]), as clients expect. But calls that stand there
//! have been made: the error waits for their outcomes and counts them.

use super::backend::{self, Status};
use super::error::{PgError, Severity};
use super::reply::{self, CallShape};
use super::wire::Wire;
use crate::calls::Made;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The reason why there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOutcome {
    /// The run is over.
    Over,
    /// The client does not want to wait any more.
    Canceled,
}

/// A call that was made.
pub struct Waiting {
    pub shape: CallShape,
    pub reply: oneshot::Receiver<Made>,
    /// The time until which the client waits for the answer.
    until: Option<Instant>,
    outcome: Option<Result<Made, NoOutcome>>,
}

impl Waiting {
    pub fn new(shape: CallShape, reply: oneshot::Receiver<Made>, until: Option<Instant>) -> Waiting {
        Waiting { shape, reply, until, outcome: None }
    }

    /// Returns whether the outcome has arrived, and takes it from the channel.
    fn look(&mut self) -> bool {
        if self.outcome.is_none() {
            match self.reply.try_recv() {
                Ok(made) => self.outcome = Some(Ok(made)),
                Err(oneshot::error::TryRecvError::Closed) => self.outcome = Some(Err(NoOutcome::Over)),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        self.outcome.is_some()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.outcome.is_none() {
            match Pin::new(&mut self.reply).poll(cx) {
                Poll::Ready(made) => self.outcome = Some(made.map_err(|_| NoOutcome::Over)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

enum Item {
    Bytes(Vec<u8>),
    Call(Waiting),
    /// The end of a unit: what is after it knows nothing of errors before.
    Ready,
}

/// An error that waits for the outcomes of the calls after it.
struct Failed {
    error: PgError,
    committed: usize,
    aborted: usize,
    unknown: usize,
}

impl Failed {
    fn count(&mut self, outcome: Result<Made, NoOutcome>) {
        match outcome {
            Ok(made) if reply::is_committed(&made) => self.committed += 1,
            Ok(_) => self.aborted += 1,
            Err(_) => self.unknown += 1,
        }
    }

    /// Returns the error, which says what became of the calls after it.
    fn told(self) -> PgError {
        let Failed { error, committed, aborted, unknown } = self;
        let count = committed + aborted + unknown;
        if count == 0 {
            return error;
        }
        let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
        let own = error.hint.as_ref().map(|own| format!("{own}; ")).unwrap_or_default();
        let hint = format!(
            "{own}calls of this pipeline made after it: {count} ({committed} committed, {aborted} aborted{unknown})"
        );
        error.hint(hint)
    }
}

/// The queue of a connection.
#[derive(Default)]
pub struct Queue {
    /// Bytes that can be sent now.
    pub output: Vec<u8>,
    items: VecDeque<Item>,
    failed: Option<Failed>,
    calls: usize,
    bytes: usize,
    /// A flag: whether the client waits for what is in `output`, so that it is sent at once.
    pub is_due: bool,
    /// A flag: whether everything is sent as soon as it can be, as after a flush message.
    is_flushed: bool,
    /// A flag: whether an error was sent before the end of its unit came.
    skips: bool,
    /// A flag: whether an error was sent after which the connection ends.
    pub is_over: bool,
}

impl Queue {
    /// Returns the buffer for bytes that follow everything in the queue.
    pub fn out(&mut self) -> &mut Vec<u8> {
        if self.items.is_empty() {
            return &mut self.output;
        }
        if !matches!(self.items.back(), Some(Item::Bytes(_))) {
            self.items.push_back(Item::Bytes(Vec::new()));
        }
        // A reply is small compared to its request, so that a fixed number of bytes is counted for each piece.
        self.bytes += 64;
        let Some(Item::Bytes(bytes)) = self.items.back_mut() else { unreachable!("it was put there") };
        bytes
    }

    /// Adds a call after everything that is in the queue.
    pub fn call(&mut self, waiting: Waiting) {
        self.calls += 1;
        self.items.push_back(Item::Call(waiting));
    }

    /// Adds the end of a unit. Nothing under way: `status` is that of the block; otherwise no block is open.
    pub fn ready(&mut self, status: Status) {
        if self.items.is_empty() {
            backend::ready(&mut self.output, status);
            self.is_due = true;
        } else {
            assert_eq!(status, Status::Idle, "calls in a block are made one after the other");
            self.items.push_back(Item::Ready);
        }
    }

    /// Makes the client wait for everything that is in the queue.
    pub fn flush(&mut self) {
        self.is_due = true;
        self.is_flushed = !self.items.is_empty();
    }

    /// Returns whether no call is under way.
    pub fn is_settled(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of calls under way.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Returns the approximate number of bytes of the responses that wait for calls.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether messages are to be skipped up to the end of their unit, and resets the flag.
    pub fn take_skips(&mut self) -> bool {
        std::mem::take(&mut self.skips)
    }

    /// Returns the time until which the client waits for the first call.
    pub fn until(&self) -> Option<Instant> {
        match self.items.front() {
            Some(Item::Call(waiting)) => waiting.until,
            _ => None,
        }
    }

    /// Cancels the wait of the client for the outcomes of the calls under way.
    pub fn cancel(&mut self) {
        self.give_up(|_| true);
    }

    /// Cancels the wait of the client for the outcomes of calls that have had their time.
    pub fn cancel_late(&mut self, now: Instant) {
        self.give_up(|waiting| waiting.until.is_some_and(|until| until <= now));
    }

    fn give_up(&mut self, is_canceled: impl Fn(&Waiting) -> bool) {
        for item in &mut self.items {
            if let Item::Call(waiting) = item
                && is_canceled(waiting)
                && !waiting.look()
            {
                waiting.outcome = Some(Err(NoOutcome::Canceled));
            }
        }
    }

    /// Polls the first call: ready when its outcome is there.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.items.front_mut() {
            Some(Item::Call(waiting)) => waiting.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// Takes all that can be sent into `output`, up to the first call without an outcome.
    pub fn settle(&mut self, wire: &Wire) {
        while let Some(item) = self.items.front_mut() {
            if let Item::Call(waiting) = item
                && !waiting.look()
            {
                return;
            }
            let item = self.items.pop_front().expect("it is there");
            self.take(wire, item);
        }
        self.bytes = 0;
        if let Some(failed) = self.failed.take() {
            // The end of the unit has not come.
            self.tell(failed);
            (self.skips, self.is_due) = (true, true);
        }
        self.is_due |= std::mem::take(&mut self.is_flushed);
    }

    fn tell(&mut self, failed: Failed) {
        let error = failed.told();
        self.is_over |= error.severity == Severity::Fatal;
        backend::error(&mut self.output, &error);
    }

    fn take(&mut self, wire: &Wire, item: Item) {
        match item {
            Item::Bytes(_) if self.failed.is_some() => {}
            Item::Bytes(bytes) => self.output.extend_from_slice(&bytes),
            Item::Ready => {
                if let Some(failed) = self.failed.take() {
                    self.tell(failed);
                }
                backend::ready(&mut self.output, Status::Idle);
                self.is_due = true;
            }
            Item::Call(waiting) => {
                self.calls -= 1;
                let outcome = waiting.outcome.expect("it was looked for");
                match &mut self.failed {
                    Some(failed) => failed.count(outcome),
                    None => {
                        if let Err(error) = reply::write(&mut self.output, wire, &waiting.shape, outcome) {
                            self.failed = Some(Failed { error, committed: 0, aborted: 0, unknown: 0 });
                        }
                        self.is_due |= self.is_flushed;
                    }
                }
            }
        }
    }
}
