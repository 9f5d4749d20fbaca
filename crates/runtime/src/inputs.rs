//! The sources' ends at the gate, and the readers that feed them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_recovery::{Control, Exactly, Taken, missing, split};
use tidemill_stages::actor::{Actor, Bell, Inbox, Outbox, Progress, Took, mailbox};
use tidemill_stages::environment::Environment;
use tidemill_stages::io::{IoFailure, Source, SourceBatch};

/// Batches that a source may be ahead of the gate.
const SOURCE_AHEAD: usize = 4;
/// How often a reader looks whether the run is to stop, where it waits for nothing else, nanoseconds.
const STOP_POLL: u64 = 20_000_000;
/// How often that is done at the most where a pipe has ended.
const STOP_POLLS: usize = 100;

/// What a reader says.
pub enum FromSource {
    /// A batch, where the source stands after it, and when it arrived, if the source knows.
    Batch(SourceBatch, Option<String>, Option<u64>),
    /// There is no more.
    End,
    /// There is no more, for a reason.
    Failed(IoFailure),
}

/// Why there is nothing to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// Not yet.
    Yet,
    /// The reader has gone without a last word.
    Ever,
}

/// A source that its reader is to read, and how many of its first records are dropped.
type Begin = (Box<dyn Source>, Taken);

/// All sources of a run.
pub struct Inputs {
    sources: Vec<OfSource>,
}

struct OfSource {
    /// None where nothing is asked of it any more.
    said: Option<Inbox<FromSource>>,
    /// Before its reader begins.
    waiting: Option<(Box<dyn Source>, Outbox<Begin>)>,
    /// What a replay left of a message.
    rest: Option<FromSource>,
    /// What a replay waits for, as far as it is there, and the token of the batch that came last.
    wanted: Option<(Exactly, Option<String>)>,
}

impl Inputs {
    /// For sources that are not started yet, with a reader for each. `durable`: a source that has ended has ended for
    /// good.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        gate: &Arc<Bell>,
        (environment, control): (&Arc<dyn Environment>, &Arc<Control>),
        durable: bool,
    ) -> (Inputs, Vec<(Reader, Arc<Bell>)>) {
        *control.progress.lock() = vec![Default::default(); sources.len()];
        let of = |(number, source): (usize, Box<dyn Source>)| {
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
                end_of_pipe: EndOfPipe::Unseen,
                durable,
                environment: environment.clone(),
                control: control.clone(),
            };
            let of = OfSource { said: Some(said), waiting: Some((source, begin)), rest: None, wanted: None };
            (of, (reader, bell))
        };
        let (sources, readers) = sources.into_iter().enumerate().map(of).unzip();
        (Inputs { sources }, readers)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// A source that was not started yet.
    pub fn source(&mut self, source: usize) -> Option<&mut Box<dyn Source>> {
        self.sources[source].waiting.as_mut().map(|(source, _)| source)
    }

    /// Has the reader of a source begin, if it has not; it drops the first records.
    pub fn start(&mut self, source: usize, drop: Taken) {
        if let Some((source, begin)) = self.sources[source].waiting.take() {
            let _ = begin.send((source, drop));
        }
    }

    /// Nothing more will be asked of a source.
    pub fn forget(&mut self, source: usize) {
        self.sources[source] = OfSource { said: None, waiting: None, rest: None, wanted: None };
    }

    /// Whether a source has nothing to hand over right now.
    pub fn is_empty(&self, source: usize) -> bool {
        let of = &self.sources[source];
        of.rest.is_none() && of.said.as_ref().is_none_or(Inbox::is_empty)
    }

    /// What a source says next.
    pub fn take(&mut self, source: usize) -> Result<FromSource, Nothing> {
        let of = &mut self.sources[source];
        if let Some(rest) = of.rest.take() {
            return Ok(rest);
        }
        match of.said.as_ref().map(Inbox::take) {
            Some(Took::Message(message)) => Ok(message),
            Some(Took::Nothing) => Err(Nothing::Yet),
            Some(Took::Closed) | None => Err(Nothing::Ever),
        }
    }

    /// Exactly so many records of a source, in batches; none as long as they are not there. To be called again with
    /// the same number until they are. A failure if it has less.
    pub fn take_exactly(&mut self, source: usize, taken: Taken) -> Result<Option<Vec<SourceBatch>>, IoFailure> {
        if self.sources[source].waiting.is_some() {
            return Err(IoFailure::new(
                "what was taken of it before was not logged, as it could be read again, and now it cannot",
            ));
        }
        // The token is that of the batch that was received last: what is left of it stands before the same token.
        let (mut exactly, mut token) =
            self.sources[source].wanted.take().unwrap_or_else(|| (Exactly::new(taken), None));
        while !exactly.is_done() {
            match self.take(source) {
                Ok(FromSource::Batch(batch, after, _)) => {
                    token = after;
                    exactly.give(batch)?;
                }
                Ok(FromSource::Failed(failure)) => return Err(failure),
                Err(Nothing::Yet) => {
                    self.sources[source].wanted = Some((exactly, token));
                    return Ok(None);
                }
                Ok(FromSource::End) | Err(Nothing::Ever) => return Err(exactly.missing()),
            }
        }
        let (batches, left) = exactly.end();
        self.sources[source].rest = left.map(|left| FromSource::Batch(left, token, None));
        Ok(Some(batches))
    }

    /// Events that were handed over and never taken.
    pub fn untaken(&mut self, source: usize) -> u64 {
        let mut events = 0;
        while let Ok(message) = self.take(source) {
            if let FromSource::Batch(batch, ..) = message {
                events += batch.events.num_rows() as u64;
            }
        }
        events
    }
}

/// Reads a source for the gate.
///
/// Ctrl-C goes to all programs of a pipe, so that the writer's end may come before the stop of this run. Therefore a
/// reader waits for that before it hands over the last record, which may be torn, or a failure; and before it says that
/// there is no more, where that is for good.
pub struct Reader {
    number: usize,
    /// From the gate.
    begins: Inbox<Begin>,
    source: Option<Box<dyn Source>>,
    drop: Taken,
    /// To the gate; until there is nothing more to say.
    say: Option<Outbox<FromSource>>,
    /// What is to be said next.
    held: Option<FromSource>,
    end_of_pipe: EndOfPipe,
    durable: bool,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
}

/// What a reader has done about the end of a pipe.
enum EndOfPipe {
    /// It has not come.
    Unseen,
    /// It waits for signals that there are now: the polls of the run's watcher at its beginning, its own, and when the
    /// next is due.
    Waits { polls: u64, own: usize, until: u64 },
    /// It has waited.
    Over,
}

impl Reader {
    /// Takes the next batch of the source. None where there is nothing to say of it.
    fn read(&mut self) -> Option<FromSource> {
        let source = self.source.as_mut().expect("it has begun");
        let next = source.next();
        let ends = source.is_at_end_of_pipe() && (self.durable || !matches!(next, Ok(None)));
        if ends && matches!(self.end_of_pipe, EndOfPipe::Unseen) {
            let polls = self.control.polls.load(Ordering::Acquire);
            self.end_of_pipe = EndOfPipe::Waits { polls, own: 0, until: 0 };
        }
        match next {
            Ok(Some(batch)) if self.drop == Taken::default() => {
                Some(FromSource::Batch(batch, source.token(), source.arrived()))
            }
            Ok(Some(batch)) => {
                let (dropped, rest) = split(batch, self.drop);
                self.drop.events -= dropped.events.num_rows() as u64;
                self.drop.bad -= dropped.bad.len() as u64;
                rest.map(|rest| FromSource::Batch(rest, source.token(), source.arrived()))
            }
            Ok(None) if self.drop != Taken::default() => Some(FromSource::Failed(missing(self.drop))),
            Ok(None) => Some(FromSource::End),
            Err(failure) => Some(FromSource::Failed(failure)),
        }
    }

    /// Waits until the watcher of the run has looked for signals that there are now; until when, or none where it has.
    fn waits_for_signals(&mut self) -> Option<u64> {
        let now = self.environment.now();
        let EndOfPipe::Waits { polls, own, until } = &mut self.end_of_pipe else { return None };
        if now < *until {
            return Some(*until);
        }
        // One look may have begun before; the next is over when another begins.
        let has_looked = self.control.polls.load(Ordering::Acquire) >= *polls + 2;
        if has_looked || self.control.stops() || *own == STOP_POLLS {
            self.end_of_pipe = EndOfPipe::Over;
            return None;
        }
        *own += 1;
        *until = now + STOP_POLL;
        Some(*until)
    }

    /// The gate has gone, or there is nothing more to say.
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
            // A run that ends takes no more.
            let until = self.environment.now() + STOP_POLL;
            return if self.control.ends() { self.leave() } else { Progress::Waits(Some(until)) };
        }
        let Some(message) = self.held.take() else { return Progress::Worked };
        let last = !matches!(message, FromSource::Batch(..));
        // Where the gate has gone, nobody is left to tell.
        let is_told = say.send(message);
        let progress = self.source.as_ref().expect("it has begun").progress();
        self.control.progress.lock()[self.number] = progress;
        if !is_told || last || self.control.stops() { self.leave() } else { Progress::Worked }
    }
}
