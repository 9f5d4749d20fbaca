//! The sources' receiving ends at the gate, and the readers that feed them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_recovery::{Control, Exactly, Taken, missing, split};
use tidemill_stages::actor::{Actor, Bell, Inbox, Outbox, Progress, Took, mailbox};
use tidemill_stages::environment::Environment;
use tidemill_stages::gate::Gate;
use tidemill_stages::io::{IoFailure, Next, Source, SourceBatch};

/// The number of batches that a source may be ahead of the gate.
const SOURCE_AHEAD: usize = 4;
/// The interval at which a waiting reader checks whether the run is to stop, nanoseconds.
const STOP_POLL: u64 = 20_000_000;
/// How long a reader waits before it asks a source again that had nothing to give, nanoseconds. The source itself has
/// waited before.
const IDLE_PAUSE: u64 = 1_000_000;
/// The maximum number of these checks after the end of a pipe.
const STOP_POLLS: usize = 100;

/// A message from a reader.
pub enum FromSource {
    /// A batch, the token of the source's position after it, and its arrival time, if the source knows it.
    Batch(SourceBatch, Option<String>, Option<u64>),
    /// What the source keeps back at its end, if the end is a pause: the record that it is if nothing follows.
    Rest(SourceBatch, Option<String>),
    /// The source has no more.
    End,
    /// The source has failed.
    Failed(IoFailure),
}

/// The reason why there is nothing to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// Not yet.
    Yet,
    /// The reader has exited without a final message.
    Ever,
}

/// What the end of a source's input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfInput {
    /// The end, in a run without a state.
    Ends,
    /// The end for good, also for later runs.
    Final,
    /// A pause: a later run continues.
    Pauses,
}

/// A source for its reader, and the number of its first records to drop.
type Begin = (Box<dyn Source>, Taken);

/// All sources of a run.
pub struct Inputs {
    sources: Vec<OfSource>,
}

struct OfSource {
    /// From the reader; none if nothing more is read from the source.
    said: Option<Inbox<FromSource>>,
    /// The source and the way to its reader, until the reader begins.
    waiting: Option<(Box<dyn Source>, Outbox<Begin>)>,
    /// The part of a message that a replay left over.
    rest: Option<FromSource>,
    /// The records that a replay waits for.
    wanted: Option<Wanted>,
    /// Whether nothing is read from it: a session sends its events.
    is_sent: bool,
    /// Whether its end is a pause.
    pauses: bool,
    /// Whether a later run can read again what this one leaves.
    replays: bool,
}

/// Records that a replay waits for.
struct Wanted {
    /// Their number.
    taken: Taken,
    /// Those that have arrived.
    exactly: Exactly,
    /// The token of the last batch.
    token: Option<String>,
}

impl Inputs {
    /// For sources that are not started yet; returns a reader for each.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        gate: &Arc<Bell>,
        environment: &Arc<dyn Environment>,
        control: &Arc<Control>,
        end: EndOfInput,
    ) -> (Inputs, Vec<(Reader, Arc<Bell>)>) {
        *control.progress.lock() = vec![Default::default(); sources.len()];
        let of = |(number, mut source): (usize, Box<dyn Source>)| {
            let pauses = end == EndOfInput::Pauses && !source.is_last();
            if pauses {
                source.pauses();
            }
            let replays = source.replays();
            let bell = Arc::new(Bell::default());
            let (say, said) = mailbox(Some(SOURCE_AHEAD), gate, Some(&bell));
            let (begin, begins) = mailbox(Some(1), &bell, None);
            let reader = Reader {
                number,
                begins,
                source: None,
                drop: Taken::default(),
                say: Some(say),
                held: None,
                is_idle: false,
                end_of_pipe: EndOfPipe::Unseen,
                durable: end != EndOfInput::Ends,
                pauses,
                is_at_rest: false,
                environment: environment.clone(),
                control: control.clone(),
            };
            let is_sent = source.is_sent();
            let waiting = Some((source, begin)).filter(|_| !is_sent);
            let said = Some(said).filter(|_| !is_sent);
            let of = OfSource { said, waiting, rest: None, wanted: None, is_sent, pauses, replays };
            (of, (reader, bell))
        };
        let (sources, readers): (Vec<OfSource>, Vec<_>) = sources.into_iter().enumerate().map(of).unzip();
        let is_read = |(reader, _): &(Reader, Arc<Bell>)| !sources[reader.number].is_sent;
        let readers = readers.into_iter().filter(is_read).collect();
        (Inputs { sources }, readers)
    }

    /// The number of sources.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether a session sends the events of a source.
    pub fn is_sent(&self, source: usize) -> bool {
        self.sources[source].is_sent
    }

    /// A source, if it is not started yet.
    pub fn source(&mut self, source: usize) -> Option<&mut Box<dyn Source>> {
        self.sources[source].waiting.as_mut().map(|(source, _)| source)
    }

    /// Starts the reader of a source, unless it was started before; the reader drops the first records.
    pub fn start(&mut self, source: usize, drop: Taken) {
        if let Some((source, begin)) = self.sources[source].waiting.take() {
            let _ = begin.send((source, drop));
        }
    }

    /// Starts no more sources and takes nothing more of any: all readers end. By source, the events that were
    /// delivered and never taken.
    pub fn close(&mut self) -> Vec<u64> {
        let untaken = (0..self.sources.len()).map(|source| self.untaken(source)).collect();
        (0..self.sources.len()).for_each(|source| self.forget(source));
        untaken
    }

    /// Stops reading from a source.
    pub fn forget(&mut self, source: usize) {
        let of = &mut self.sources[source];
        (of.said, of.waiting, of.rest, of.wanted) = (None, None, None, None);
    }

    /// Whether a source has nothing to deliver now.
    pub fn is_empty(&self, source: usize) -> bool {
        let of = &self.sources[source];
        of.rest.is_none() && of.said.as_ref().is_none_or(Inbox::is_empty)
    }

    /// Tells the gate that a source's input has come to its end: for good, or for this run.
    pub fn end(&self, source: usize, gate: &mut Gate) {
        if self.pauses(source) { gate.pause(source) } else { gate.end(source) }
    }

    /// Whether the end of a source's input is a pause.
    pub fn pauses(&self, source: usize) -> bool {
        self.sources[source].pauses
    }

    /// Whether a later run can read again what this one leaves of a source.
    pub fn replays(&self, source: usize) -> bool {
        self.sources[source].replays
    }

    /// Takes the next message of a source, except for what it keeps back.
    pub fn take(&mut self, source: usize) -> Result<FromSource, Nothing> {
        loop {
            match self.receive(source) {
                Ok(FromSource::Rest(..)) => {}
                other => return other,
            }
        }
    }

    /// Takes the next message of a source.
    pub fn receive(&mut self, source: usize) -> Result<FromSource, Nothing> {
        let of = &mut self.sources[source];
        if let Some(rest) = of.rest.take() {
            return Ok(rest);
        }
        match of.said.as_ref().map(Inbox::take) {
            None if of.is_sent => Err(Nothing::Yet),
            Some(Took::Message(message)) => Ok(message),
            Some(Took::Nothing) => Err(Nothing::Yet),
            Some(Took::Closed) | None => Err(Nothing::Ever),
        }
    }

    /// Takes exactly this number of records from a source, in batches; none until all of them have arrived. Call it
    /// again with the same number until they have. Fails if the source has fewer records.
    pub fn take_exactly(&mut self, source: usize, taken: Taken) -> Result<Option<Vec<SourceBatch>>, IoFailure> {
        if self.sources[source].waiting.is_some() {
            return Err(IoFailure::new(
                "what was taken of it before was not logged, as it could be read again, and now it cannot",
            ));
        }
        // The token is that of the last batch received; the remainder of that batch is before the same token.
        let wanted = self.sources[source].wanted.take();
        let mut wanted = wanted.unwrap_or_else(|| Wanted { taken, exactly: Exactly::new(taken), token: None });
        assert_eq!(wanted.taken, taken, "a replay asks for the same records until they have arrived");
        while !wanted.exactly.is_done() {
            match self.receive(source) {
                // An earlier run, whose end was for good, has taken what the source keeps back.
                Ok(FromSource::Batch(batch, after, _) | FromSource::Rest(batch, after)) => {
                    wanted.token = after;
                    wanted.exactly.give(batch)?;
                }
                Ok(FromSource::Failed(failure)) => return Err(failure),
                Err(Nothing::Yet) => {
                    self.sources[source].wanted = Some(wanted);
                    return Ok(None);
                }
                Ok(FromSource::End) | Err(Nothing::Ever) => return Err(wanted.exactly.missing()),
            }
        }
        let Wanted { exactly, token, .. } = wanted;
        let (batches, left) = exactly.end();
        assert!(self.sources[source].rest.is_none(), "what was left over is taken before there is more");
        self.sources[source].rest = left.map(|left| FromSource::Batch(left, token, None));
        Ok(Some(batches))
    }

    /// Takes nothing more of a source; the number of events that were delivered but never taken.
    fn untaken(&mut self, source: usize) -> u64 {
        let of = &mut self.sources[source];
        let delivered = of.said.take().map(Inbox::close).unwrap_or_default();
        let count = |message| match message {
            FromSource::Batch(batch, ..) => batch.events.num_rows() as u64,
            _ => 0,
        };
        of.rest.take().into_iter().chain(delivered).map(count).sum()
    }
}

/// Reads a source for the gate.
///
/// Ctrl-C reaches all programs of a pipe, so the writer may exit before this run is asked to stop. At the end of a
/// pipe, a reader therefore waits for a pending stop before it passes on the last record, which may be truncated, or a
/// failure; and before it reports the end, if that is final.
pub struct Reader {
    number: usize,
    /// From the gate.
    begins: Inbox<Begin>,
    source: Option<Box<dyn Source>>,
    drop: Taken,
    /// To the gate; dropped after the last message.
    say: Option<Outbox<FromSource>>,
    /// The next message.
    held: Option<FromSource>,
    /// Whether the source had nothing to give when it was last asked.
    is_idle: bool,
    end_of_pipe: EndOfPipe,
    durable: bool,
    /// Whether the end is a pause.
    pauses: bool,
    /// Whether the source was asked what it keeps back.
    is_at_rest: bool,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
}

/// A reader's handling of the end of a pipe.
enum EndOfPipe {
    /// The end has not been reached.
    Unseen,
    /// The reader waits for pending signals to be seen: the number of the watcher's polls at the beginning, the number
    /// of the reader's own checks, and the time of the next one.
    Waits { polls: u64, own: usize, until: u64 },
    /// The reader has waited.
    Over,
}

impl Reader {
    /// Takes the next batch of the source. None if it gives no message, because all of its records are dropped or none
    /// have arrived.
    fn read(&mut self) -> Option<FromSource> {
        self.is_idle = false;
        let source = self.source.as_mut().expect("it has begun");
        let next = source.next(Duration::from_nanos(STOP_POLL));
        let ends = source.is_at_end_of_pipe() && (self.durable || !matches!(next, Ok(Next::End)));
        if ends && matches!(self.end_of_pipe, EndOfPipe::Unseen) {
            let polls = self.control.polls.load(Ordering::Acquire);
            self.end_of_pipe = EndOfPipe::Waits { polls, own: 0, until: 0 };
        }
        let asks = self.pauses && !self.is_at_rest && matches!(next, Ok(Next::End));
        self.is_at_rest |= asks;
        let next = if asks { source.rest().map(Next::from) } else { next };
        match next {
            Ok(Next::Batch(batch)) => {
                let (dropped, left) = match self.drop == Taken::default() {
                    true => (Taken::default(), Some(batch)),
                    false => {
                        let (dropped, left) = split(batch, self.drop);
                        (Taken::of(&dropped), left)
                    }
                };
                self.drop = self.drop.since(dropped);
                left.map(|left| match asks {
                    true => FromSource::Rest(left, source.token()),
                    false => FromSource::Batch(left, source.token(), source.arrived()),
                })
            }
            Ok(Next::Nothing) => {
                self.is_idle = true;
                None
            }
            Ok(Next::End) if self.drop != Taken::default() => Some(FromSource::Failed(missing(self.drop))),
            Ok(Next::End) => Some(FromSource::End),
            Err(failure) => Some(FromSource::Failed(failure)),
        }
    }

    /// Waits until the run's watcher has polled for signals that are pending now; returns the time of the next check,
    /// or none if the watcher has polled.
    fn waits_for_signals(&mut self) -> Option<u64> {
        let now = self.environment.now();
        let EndOfPipe::Waits { polls, own, until } = &mut self.end_of_pipe else { return None };
        if now < *until {
            return Some(*until);
        }
        // The current poll may have begun before the end of the pipe; the next one is complete when the one after it
        // begins.
        let has_looked = self.control.polls.load(Ordering::Acquire) >= *polls + 2;
        if has_looked || self.control.stops() || *own == STOP_POLLS {
            self.end_of_pipe = EndOfPipe::Over;
            return None;
        }
        *own += 1;
        *until = now + STOP_POLL;
        Some(*until)
    }

    /// Exits: the gate is gone, or there are no more messages.
    fn leave(&mut self) -> Progress {
        (self.source, self.say, self.held) = (None, None, None);
        Progress::Over
    }
}

impl Actor for Reader {
    fn step(&mut self) -> Progress {
        if self.source.is_none() {
            match self.begins.take() {
                Took::Message(begun) => {
                    let source;
                    (source, self.drop) = begun;
                    self.source = Some(source);
                }
                Took::Nothing => return Progress::Waits(None),
                Took::Closed => return self.leave(),
            }
        }
        if self.held.is_none() {
            self.held = self.read();
        }
        let waited = matches!(self.end_of_pipe, EndOfPipe::Waits { .. });
        if let Some(until) = self.waits_for_signals() {
            return Progress::Waits(Some(until));
        }
        if waited && self.control.stops() {
            return self.leave();
        }
        let Some(say) = &self.say else { return Progress::Over };
        if say.is_full() {
            // A run that is about to end takes no more input.
            let until = self.environment.now() + STOP_POLL;
            return if self.control.ends() { self.leave() } else { Progress::Waits(Some(until)) };
        }
        let Some(message) = self.held.take() else {
            return match self.is_idle {
                true if self.control.ends() => self.leave(),
                true => Progress::Waits(Some(self.environment.now() + IDLE_PAUSE)),
                false => Progress::Worked,
            };
        };
        let last = matches!(message, FromSource::End | FromSource::Failed(_));
        // If the gate is gone, there is no receiver.
        let is_told = say.send(message);
        let progress = self.source.as_ref().expect("it has begun").progress();
        self.control.progress.lock()[self.number] = progress;
        if !is_told || last || self.control.stops() { self.leave() } else { Progress::Worked }
    }
}
