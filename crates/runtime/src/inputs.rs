//! The sources' ends at the gate: what their threads hand over.

use crate::durable::{Taken, wait};
use crate::engine::Control;
use crate::environment::{Environment, Joined};
use crate::io::{IoFailure, Source, SourceBatch};
use arrow_select::concat::concat_batches;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Batches that a source may be ahead of the gate.
const SOURCE_AHEAD: usize = 4;
/// How often it is looked whether the run is to stop, where a source is waited for.
const STOP_POLL: Duration = Duration::from_millis(20);
/// How often that is done at the most where a pipe has ended.
const STOP_POLLS: usize = 100;

/// What a source's thread says.
pub enum FromSource {
    /// A batch, where the source stands behind it, and when it arrived, if the source knows.
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
    /// The source's thread has gone without a last word.
    Ever,
}

/// All sources of a run.
pub struct Inputs {
    sources: Vec<OfSource>,
    environment: Arc<dyn Environment>,
    control: Arc<Control>,
    /// The sources' threads.
    threads: Arc<Mutex<Vec<Box<dyn Joined>>>>,
    /// Whether a source that has ended has ended for good.
    durable: bool,
}

struct OfSource {
    receiver: Receiver<FromSource>,
    /// Before its thread is started.
    waiting: Option<(Box<dyn Source>, Sender<FromSource>)>,
    /// What a replay left of a message.
    rest: Option<FromSource>,
}

impl Inputs {
    /// For sources that are not started yet.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        environment: Arc<dyn Environment>,
        control: Arc<Control>,
        threads: Arc<Mutex<Vec<Box<dyn Joined>>>>,
        durable: bool,
    ) -> Inputs {
        let of = |source| {
            let (sender, receiver) = bounded(SOURCE_AHEAD);
            OfSource { receiver, waiting: Some((source, sender)), rest: None }
        };
        *control.progress.lock() = vec![Default::default(); sources.len()];
        Inputs { sources: sources.into_iter().map(of).collect(), environment, control, threads, durable }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// A source that was not started yet.
    pub fn source(&mut self, source: usize) -> Option<&mut Box<dyn Source>> {
        self.sources[source].waiting.as_mut().map(|(source, _)| source)
    }

    /// Starts a source's thread, if it was not started; it drops the first records.
    pub fn start(&mut self, source: usize, drop: Taken) {
        if let Some((reader, sender)) = self.sources[source].waiting.take() {
            let (control, durable) = (self.control.clone(), self.durable);
            let body = move || read(source, reader, drop, durable, &sender, &control);
            self.threads.lock().push(self.environment.spawn("source", Box::new(body)));
        }
    }

    /// Nothing more will be asked of a source.
    pub fn forget(&mut self, source: usize) {
        self.sources[source].waiting = None;
        self.sources[source].rest = None;
        self.sources[source].receiver = bounded(1).1;
    }

    /// Whether a source has nothing to hand over right now.
    pub fn is_empty(&self, source: usize) -> bool {
        self.sources[source].rest.is_none() && self.sources[source].receiver.is_empty()
    }

    /// What a source says next, waited for so long.
    pub fn take(&mut self, source: usize, wait: Duration) -> Result<FromSource, Nothing> {
        let of = &mut self.sources[source];
        if let Some(rest) = of.rest.take() {
            return Ok(rest);
        }
        match of.receiver.try_recv() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Disconnected) => Err(Nothing::Ever),
            Err(TryRecvError::Empty) => of.receiver.recv_timeout(wait).map_err(|error| match error {
                RecvTimeoutError::Timeout => Nothing::Yet,
                RecvTimeoutError::Disconnected => Nothing::Ever,
            }),
        }
    }

    /// Exactly so many records of a source, in batches. A failure if it has less.
    pub fn take_exactly(&mut self, source: usize, wanted: Taken) -> Result<Vec<SourceBatch>, IoFailure> {
        let OfSource { receiver, rest, waiting } = &mut self.sources[source];
        if waiting.is_some() {
            return Err(IoFailure::new(
                "what was taken of it before was not logged, as it could be read again, and now it cannot",
            ));
        }
        let control = &self.control;
        let receive = || {
            loop {
                match receiver.recv_timeout(STOP_POLL) {
                    Ok(message) => return Some(message),
                    Err(RecvTimeoutError::Timeout) if !control.ends() => {}
                    Err(_) => return None,
                }
            }
        };
        // Of the batch that was received last: what is left of it stands before the same token.
        let mut token = None;
        let (batches, left) = take_exactly(wanted, || match rest.take().or_else(receive) {
            Some(FromSource::Batch(next, behind, _)) => {
                token = behind;
                Ok(Some(next))
            }
            Some(FromSource::Failed(failure)) => Err(failure),
            Some(FromSource::End) | None => Ok(None),
        })?;
        *rest = left.map(|left| FromSource::Batch(left, token, None));
        Ok(batches)
    }

    /// Events that were handed over and never taken.
    pub fn untaken(&self, source: usize) -> u64 {
        let of = &self.sources[source];
        let mut events = 0;
        if let Some(FromSource::Batch(batch, ..)) = &of.rest {
            events += batch.events.num_rows() as u64;
        }
        while let Ok(FromSource::Batch(batch, ..)) = of.receiver.try_recv() {
            events += batch.events.num_rows() as u64;
        }
        events
    }
}

/// Exactly so many records of those that `next` gives, in batches, and what is left of the last batch. A failure
/// where it ends before.
pub fn take_exactly(
    wanted: Taken,
    mut next: impl FnMut() -> Result<Option<SourceBatch>, IoFailure>,
) -> Result<(Vec<SourceBatch>, Option<SourceBatch>), IoFailure> {
    let (mut batches, mut left, mut rest) = (Vec::new(), wanted, None);
    while left != Taken::default() {
        let Some(next) = next()? else {
            return Err(missing(left));
        };
        // What is left over may be all of the kind that is not wanted.
        let (first, behind) = split(join(rest.take(), next)?, left);
        left.events -= first.events.num_rows() as u64;
        left.bad -= first.bad.len() as u64;
        batches.push(first);
        rest = behind;
    }
    Ok((batches, rest))
}

fn missing(Taken { events, bad }: Taken) -> IoFailure {
    IoFailure::new(format!("{events} events and {bad} bad records that were taken of it before are not there any more"))
}

/// Two batches as one.
fn join(first: Option<SourceBatch>, next: SourceBatch) -> Result<SourceBatch, IoFailure> {
    let Some(mut first) = first else { return Ok(next) };
    let schema = next.events.schema();
    let events = concat_batches(&schema, [&first.events, &next.events]);
    first.bad.extend(next.bad);
    Ok(SourceBatch { events: events.map_err(|error| IoFailure::new(error.to_string()))?, bad: first.bad })
}

/// The first records of a batch, at most so many of each kind, and the rest if there is any.
fn split(mut batch: SourceBatch, most: Taken) -> (SourceBatch, Option<SourceBatch>) {
    let events = (batch.events.num_rows() as u64).min(most.events) as usize;
    let bad = batch.bad.len().min(most.bad as usize);
    if events == batch.events.num_rows() && bad == batch.bad.len() {
        return (batch, None);
    }
    let rest = SourceBatch {
        events: batch.events.slice(events, batch.events.num_rows() - events),
        bad: batch.bad.split_off(bad),
    };
    (SourceBatch { events: batch.events.slice(0, events), bad: batch.bad }, Some(rest))
}

/// Whether a run is to stop, once whoever watches it has looked for signals that there are now.
fn stops_soon(control: &Control) -> bool {
    let looks = control.looks.load(Ordering::Acquire);
    // One look may have begun before; the next is over when another begins.
    let has_looked = || control.looks.load(Ordering::Acquire) >= looks + 2;
    for _ in 0..STOP_POLLS {
        if control.stops() || has_looked() {
            break;
        }
        wait(STOP_POLL);
    }
    control.stops()
}

/// The life of a source's thread. It drops the first records.
///
/// Ctrl-C goes to all programs of a pipe, so that the writer's end may come before the stop of this run. Therefore it
/// waits for that before it hands over the last record, which may be torn, or a failure; and before it says that there is no
/// more, where that is for good.
fn read(
    number: usize,
    mut source: Box<dyn Source>,
    mut drop: Taken,
    durable: bool,
    sender: &Sender<FromSource>,
    control: &Control,
) {
    let mut waits = true;
    loop {
        let next = source.next();
        if waits && source.is_at_end_of_pipe() && (durable || !matches!(next, Ok(None))) {
            if stops_soon(control) {
                return;
            }
            waits = false;
        }
        let message = match next {
            Ok(Some(batch)) if drop == Taken::default() => FromSource::Batch(batch, source.token(), source.arrived()),
            Ok(Some(batch)) => {
                let (dropped, rest) = split(batch, drop);
                drop.events -= dropped.events.num_rows() as u64;
                drop.bad -= dropped.bad.len() as u64;
                match rest {
                    Some(rest) => FromSource::Batch(rest, source.token(), source.arrived()),
                    None => continue,
                }
            }
            Ok(None) if drop != Taken::default() => FromSource::Failed(missing(drop)),
            Ok(None) => FromSource::End,
            Err(failure) => FromSource::Failed(failure),
        };
        let last = !matches!(message, FromSource::Batch(..));
        // The gate has gone where sending fails; there is nobody left to tell.
        let is_told = sender.send(message).is_ok();
        control.progress.lock()[number] = source.progress();
        if !is_told || last || control.stops() {
            return;
        }
    }
}
