//! Readers, which read sources for the gate: one for each source. It reads all splits of the source, one batch after the
//! other, for each as far ahead of the gate as the split's mailbox lets it.

use crate::inputs::FromSource;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_io::{IoFailure, Next, Source, SourceProgress};
use tidemill_recovery::{Control, Taken, batch_hash, missing, open_split, split};
use tidemill_stages::actor::{Actor, Inbox, Outbox, Progress, Took};
use tidemill_stages::environment::Environment;

/// The interval at which a waiting reader checks whether the run is to stop, nanoseconds.
const STOP_POLL: u64 = 20_000_000;
/// The time that a reader waits before it asks a source again that had nothing to give, nanoseconds. The source itself
/// has waited before.
const IDLE_PAUSE: u64 = 1_000_000;
/// The time that a reader waits before it asks one of several splits again, which does not wait itself, nanoseconds.
const SPLIT_PAUSE: u64 = 20_000_000;
/// The time that a reader waits before it looks for new splits again, nanoseconds.
const WATCH_PAUSE: u64 = 200_000_000;
/// The maximum number of these checks after the end of a pipe.
const STOP_POLLS: usize = 100;

/// A task for a reader.
pub enum Begin {
    /// The task to read a source, or a split of one.
    Read(Reading),
    /// The task to look for splits of a source beside those of these names, and to say which it finds.
    Watch(Box<dyn Source>, Vec<String>, Outbox<Found>),
}

/// A split that a reader has found, by its name; or why it cannot look.
pub type Found = Result<(String, Box<dyn Source>), IoFailure>;

/// Reads a source for the gate.
///
/// Ctrl-C reaches all programs of a pipe, so the writer may exit before this run is asked to stop. At the end of a
/// pipe, a reader therefore waits for a pending stop before it passes on the last record, which may be truncated, or a
/// failure; and before it reports the end, if that is final.
pub struct Reader {
    number: usize,
    /// The channel from the gate.
    begins: Inbox<Begin>,
    does: Does,
    readings: Vec<Reading>,
    /// The reading to go on with.
    next: usize,
    watch: Option<Watch>,
    /// The progress of the readings that came to their end.
    done: SourceProgress,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
}

/// The work of a reader.
#[derive(Clone, Copy)]
pub struct Does {
    /// A flag: whether the source has several splits.
    pub has_splits: bool,
    /// A flag: whether the run is durable.
    pub durable: bool,
    /// A flag: whether each batch is hashed.
    pub hashes: bool,
}

/// A source that is watched for new splits.
struct Watch {
    source: Box<dyn Source>,
    known: Vec<String>,
    say: Outbox<Found>,
    /// The time of the next look (time of the clock).
    until: u64,
}

/// A source, or a split of one, that is being read.
pub struct Reading {
    source: Box<dyn Source>,
    drop: Taken,
    /// The channel to the gate.
    say: Outbox<FromSource>,
    /// The next message.
    held: Option<FromSource>,
    /// The time until which the source is not asked again, if it had nothing to give when it was last asked.
    idle: Option<u64>,
    end_of_pipe: EndOfPipe,
    /// A flag: whether the end is a pause.
    pauses: bool,
    /// A flag: whether the source was asked for the record that it keeps back.
    is_at_rest: bool,
    /// A flag: whether it has given a batch, or has said that there is nothing yet.
    has_answered: bool,
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
    /// Makes a reader of a source.
    pub fn new(
        number: usize,
        begins: Inbox<Begin>,
        does: Does,
        environment: Arc<dyn Environment>,
        control: Arc<Control>,
    ) -> Reader {
        Reader {
            number,
            begins,
            does,
            readings: Vec::new(),
            next: 0,
            watch: None,
            done: SourceProgress { done: 0, total: Some(0) },
            environment,
            control,
        }
    }

    /// Ends the reader: the gate is gone, or there are no more messages.
    fn leave(&mut self) -> Progress {
        self.readings.clear();
        self.watch = None;
        Progress::Over
    }

    /// Takes the messages to the reader that have come; returns whether no more can come.
    fn listen(&mut self) -> bool {
        loop {
            match self.begins.take() {
                Took::Message(Begin::Read(reading)) => self.readings.push(reading),
                Took::Message(Begin::Watch(source, known, say)) => {
                    self.watch = Some(Watch { source, known, say, until: 0 });
                }
                Took::Nothing => return false,
                Took::Closed => return true,
            }
        }
    }

    /// Looks for new splits, if it is time to; when to look again.
    fn look(&mut self) -> Option<u64> {
        if self.control.ends() {
            self.watch = None;
        }
        let (watch, now) = (self.watch.as_mut()?, self.environment.now());
        if now >= watch.until {
            watch.until = now + WATCH_PAUSE;
            if let Err(failure) = watch.look() {
                watch.say.send(Err(failure));
                self.watch = None;
                return None;
            }
        }
        Some(watch.until)
    }

    fn show_progress(&self) {
        let mut sum = self.done;
        for reading in &self.readings {
            sum = plus(sum, reading.source.progress());
        }
        self.control.progress.lock()[self.number] = sum;
    }
}

fn plus(a: SourceProgress, b: SourceProgress) -> SourceProgress {
    SourceProgress { done: a.done + b.done, total: a.total.zip(b.total).map(|(a, b)| a + b) }
}

impl Watch {
    fn look(&mut self) -> Result<(), IoFailure> {
        let splits = self.source.splits();
        for name in splits.map_or(Ok(Vec::new()), |splits| splits.new_splits(&self.known))? {
            let opened = open_split(self.source.as_mut(), &name)?;
            self.known.push(name.clone());
            self.say.send(Ok((name, opened)));
        }
        Ok(())
    }
}

impl Reading {
    /// Reads a split; the first records are dropped.
    pub fn new(source: Box<dyn Source>, drop: Taken, say: Outbox<FromSource>, pauses: bool) -> Reading {
        let end_of_pipe = EndOfPipe::Unseen;
        Reading {
            source,
            drop,
            say,
            held: None,
            idle: None,
            end_of_pipe,
            pauses,
            is_at_rest: false,
            has_answered: false,
        }
    }

    /// Takes the next batch of the source. None if it gives no message, because all of its records are dropped or none
    /// have arrived.
    fn read(&mut self, of: &Of<'_>) -> Option<FromSource> {
        let source = &mut self.source;
        let wait_max = if of.does.has_splits { Duration::ZERO } else { Duration::from_nanos(STOP_POLL) };
        let next = source.next(wait_max);
        if let Some(text) = source.remark() {
            of.control.remark(text);
        }
        let ends = source.is_at_end_of_pipe() && (of.does.durable || !matches!(next, Ok(Next::End)));
        if ends && matches!(self.end_of_pipe, EndOfPipe::Unseen) {
            let polls = of.control.polls.load(Ordering::Acquire);
            self.end_of_pipe = EndOfPipe::Waits { polls, own: 0, until: 0 };
        }
        let asks = self.pauses && !self.is_at_rest && matches!(next, Ok(Next::End));
        self.is_at_rest |= asks;
        let next = if asks { source.rest().map(Next::from) } else { next };
        let is_first = !std::mem::replace(&mut self.has_answered, true);
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
                    false => {
                        let hash = of.does.hashes.then(|| batch_hash(&left));
                        FromSource::Batch(left, source.token(), source.arrived(), hash)
                    }
                })
            }
            Ok(Next::Nothing) if is_first && source.is_clock() => Some(FromSource::UpToDate),
            Ok(Next::Nothing) => {
                let pause = if of.does.has_splits { SPLIT_PAUSE } else { IDLE_PAUSE };
                self.idle = Some(of.environment.now() + pause);
                None
            }
            Ok(Next::End) if self.drop != Taken::default() => Some(FromSource::Failed(missing(self.drop))),
            Ok(Next::End) => Some(FromSource::End),
            Err(failure) => Some(FromSource::Failed(failure)),
        }
    }

    /// Waits until the run's watcher has polled for signals that are pending now; returns the time of the next check,
    /// or none if the watcher has polled.
    fn waits_for_signals(&mut self, of: &Of<'_>) -> Option<u64> {
        let now = of.environment.now();
        let EndOfPipe::Waits { polls, own, until } = &mut self.end_of_pipe else { return None };
        if now < *until {
            return Some(*until);
        }
        // The current poll may have begun before the end of the pipe; the next one is complete when the one after it
        // begins.
        let has_looked = of.control.polls.load(Ordering::Acquire) >= *polls + 2;
        if has_looked || of.control.stops() || *own == STOP_POLLS {
            self.end_of_pipe = EndOfPipe::Over;
            return None;
        }
        *own += 1;
        *until = now + STOP_POLL;
        Some(*until)
    }

    fn step(&mut self, of: &Of<'_>) -> Progress {
        if self.held.is_none() {
            if let Some(until) = self.idle {
                // A clock is left before its next tick.
                match of.control.ends() || !self.say.has_receiver() {
                    true => return Progress::Over,
                    false if of.environment.now() < until => return Progress::Waits(Some(until)),
                    false => self.idle = None,
                }
            }
            self.held = self.read(of);
        }
        let waited = matches!(self.end_of_pipe, EndOfPipe::Waits { .. });
        if let Some(until) = self.waits_for_signals(of) {
            return Progress::Waits(Some(until));
        }
        if waited && of.control.stops() {
            return Progress::Over;
        }
        if self.say.is_full() {
            // A run that is about to end takes no more input.
            let until = of.environment.now() + STOP_POLL;
            return if of.control.ends() { Progress::Over } else { Progress::Waits(Some(until)) };
        }
        let Some(message) = self.held.take() else {
            return match self.idle {
                Some(_) if of.control.ends() => Progress::Over,
                Some(until) => Progress::Waits(Some(until)),
                None => Progress::Worked,
            };
        };
        let last = matches!(message, FromSource::End | FromSource::Failed(_));
        // If the gate is gone, there is no receiver.
        let is_told = self.say.send(message);
        if !is_told || last || of.control.stops() { Progress::Over } else { Progress::Worked }
    }
}

/// The properties of its reader that a reading needs.
struct Of<'a> {
    does: Does,
    environment: &'a Arc<dyn Environment>,
    control: &'a Control,
}

impl Actor for Reader {
    fn step(&mut self) -> Progress {
        let is_closed = self.listen();
        let mut until = self.look();
        for _ in 0..self.readings.len() {
            let at = self.next % self.readings.len();
            self.next = at + 1;
            let of = Of { does: self.does, environment: &self.environment, control: &self.control };
            match self.readings[at].step(&of) {
                Progress::Worked => {
                    self.show_progress();
                    return Progress::Worked;
                }
                Progress::Waits(time) => until = until.into_iter().chain(time).min(),
                Progress::Over => {
                    self.done = plus(self.done, self.readings[at].source.progress());
                    self.readings.swap_remove(at);
                    self.show_progress();
                    return if self.does.has_splits { Progress::Worked } else { self.leave() };
                }
            }
        }
        if is_closed && (self.readings.is_empty() || self.does.has_splits) {
            return self.leave();
        }
        Progress::Waits(until)
    }
}
