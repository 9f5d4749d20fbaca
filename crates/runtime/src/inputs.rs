//! The sources' receiving ends at the gate: one for each split, with a mailbox of its own, so that the gate takes from the
//! split that it wants. The first split of each source has the source's number, those that join have the numbers after them
//! (as in the gate).

use crate::reader::{Begin, Does, Found, Reader, Reading};
use std::sync::Arc;
use tidemill_durability::Hash256;
use tidemill_io::{IoFailure, Source, SourceBatch};
use tidemill_recovery::{Control, Exactly, Taken, open_split};
use tidemill_stages::actor::{Bell, Inbox, Outbox, Took, mailbox};
use tidemill_stages::environment::Environment;
use tidemill_stages::gate::Gate;

/// The number of batches that a source may be ahead of the gate.
const SOURCE_AHEAD: usize = 4;
/// The number of batches that one of several splits may be ahead of the gate. There may be many of them.
const SPLIT_AHEAD: usize = 1;

/// A message from a reader.
pub enum FromSource {
    /// A batch, the token of the source's position after it, its arrival time, if the source knows it, and its hash, if the
    /// reader has made it.
    Batch(SourceBatch, Option<String>, Option<u64>, Option<Hash256>),
    /// The record that the source keeps back at its end, if the end is a pause: it is a record only if nothing follows.
    Rest(SourceBatch, Option<String>),
    /// A clock has no tick that is due. Said once, if its first answer is that.
    UpToDate,
    /// The source has no more.
    End,
    /// The source has failed.
    Failed(IoFailure),
}

/// The reason why there is nothing to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// The reader has sent nothing yet.
    Yet,
    /// The reader has exited without a final message.
    Ever,
}

/// The meaning of the end of a source's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfInput {
    /// The end, in a run without a state.
    Ends,
    /// The end for good, also for later runs.
    Final,
    /// A pause: a later run continues.
    Pauses,
}

/// All sources of a run.
pub struct Inputs {
    /// The state of each split, by split.
    splits: Vec<OfSplit>,
    /// The state of each source, by source.
    sources: Vec<OfSource>,
    gate: Arc<Bell>,
    end: EndOfInput,
}

/// A source.
struct OfSource {
    /// The channel to its reader.
    begin: Option<Outbox<Begin>>,
    bell: Arc<Bell>,
    /// The source itself, if it has several splits; until its reader watches it for new ones.
    splits: Option<Box<dyn Source>>,
    /// The splits that its reader finds while it watches.
    found: Option<Inbox<Found>>,
    /// The numbers and names of its splits; none if it is read as a whole.
    known: Option<Vec<(usize, String)>>,
    /// A flag: whether its end is a pause.
    pauses: bool,
    /// A flag: whether a later run can read again what this one leaves.
    replays: bool,
    /// A flag: whether others write to what is read.
    is_followed: bool,
}

/// A split.
struct OfSplit {
    source: usize,
    /// The channel from the reader; none if nothing more is read of it.
    said: Option<Inbox<FromSource>>,
    /// The source to read, until the reader begins.
    waiting: Option<Box<dyn Source>>,
    /// The part of a message that a replay left over.
    rest: Option<FromSource>,
    /// The records that a replay waits for.
    wanted: Option<Wanted>,
    /// A flag: whether nothing is read from it, as a session sends its events.
    is_sent: bool,
    /// A flag: whether it is a clock, which has no end.
    is_clock: bool,
    /// A flag, for a clock: whether it has given what was due when the run began.
    is_up_to_date: bool,
    /// A flag: whether its end is a pause.
    pauses: bool,
}

/// Records that a replay waits for.
struct Wanted {
    /// The number of records.
    taken: Taken,
    /// The records that have arrived.
    exactly: Exactly,
    /// The token of the last batch.
    token: Option<String>,
}

impl Inputs {
    /// Takes sources that are not started yet; returns a reader for each. With `hashes` readers hash what can be read again.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        gate: &Arc<Bell>,
        environment: &Arc<dyn Environment>,
        control: &Arc<Control>,
        end: EndOfInput,
        hashes: bool,
    ) -> (Inputs, Vec<(Reader, Arc<Bell>)>) {
        *control.progress.lock() = vec![Default::default(); sources.len()];
        let mut inputs = Inputs { splits: Vec::new(), sources: Vec::new(), gate: gate.clone(), end };
        let mut readers = Vec::new();
        for (number, mut source) in sources.into_iter().enumerate() {
            let pauses = end == EndOfInput::Pauses && !source.is_last();
            let (is_sent, replays, is_followed) = (source.is_sent(), source.replays(), source.is_followed());
            let has_splits = source.splits().is_some();
            let bell = Arc::new(Bell::default());
            let (begin, begins) = mailbox(None, &bell, None);
            let durable = end != EndOfInput::Ends;
            let hashes = hashes && replays;
            let does = Does { has_splits, durable, hashes };
            let reader = Reader::new(number, begins, does, environment.clone(), control.clone());
            if !is_sent {
                readers.push((reader, bell.clone()));
            }
            let is_clock = source.is_clock();
            inputs.splits.push(OfSplit { is_clock, ..OfSplit::new(number, is_sent, pauses) });
            let (found, known) = (None, has_splits.then(Vec::new));
            let begin = Some(begin).filter(|_| !is_sent);
            inputs.sources.push(OfSource { begin, bell, splits: None, found, known, pauses, replays, is_followed });
            match has_splits {
                true => inputs.sources[number].splits = Some(source),
                false => inputs.give(number, source),
            }
        }
        (inputs, readers)
    }

    /// Returns the number of splits.
    pub fn len(&self) -> usize {
        self.splits.len()
    }

    /// Returns the number of sources.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns whether a session sends the events of a source.
    pub fn is_sent(&self, source: usize) -> bool {
        self.splits[source].is_sent
    }

    /// Returns whether a source reads files to which others write while it does.
    pub fn is_followed(&self, source: usize) -> bool {
        self.sources[source].is_followed
    }

    /// Returns whether a split is a clock.
    pub fn is_clock(&self, split: usize) -> bool {
        self.splits[split].is_clock
    }

    /// Returns whether a clock has given what was due when the run began.
    pub fn is_up_to_date(&self, split: usize) -> bool {
        self.splits[split].is_up_to_date
    }

    /// Notes that the clock of a split has given what was due when the run began.
    pub fn is_now_up_to_date(&mut self, split: usize) {
        self.splits[split].is_up_to_date = true;
    }

    /// Returns whether a source has several splits.
    pub fn has_splits(&self, source: usize) -> bool {
        self.sources[source].known.is_some()
    }

    /// Returns the names of the splits of a source that are known, in the order of their numbers.
    pub fn names(&self, source: usize) -> Vec<String> {
        self.sources[source].known.iter().flatten().map(|(_, name)| name.clone()).collect()
    }

    /// Returns the name of a split, if its source has several.
    pub fn name(&self, split: usize) -> Option<&str> {
        let known = self.sources[self.splits[split].source].known.as_ref()?;
        known.iter().find(|(number, _)| *number == split).map(|(_, name)| name.as_str())
    }

    /// Returns the source of a split.
    pub fn source_of(&self, split: usize) -> usize {
        self.splits[split].source
    }

    /// Knows the next split of a source by a name; the first one is there already. Returns its number.
    pub fn join(&mut self, source: usize, name: String) -> Result<usize, IoFailure> {
        let pauses = self.sources[source].pauses;
        let Some(known) = &mut self.sources[source].known else {
            return Err(IoFailure::new(format!(
                "it was read in several splits, of which {name} is one: a state keeps what it began with; put back \
                 splits=True, or begin a new state"
            )));
        };
        let split = if known.is_empty() { source } else { self.splits.len() };
        known.push((split, name));
        if split == self.splits.len() {
            self.splits.push(OfSplit::new(source, false, pauses));
        }
        Ok(split)
    }

    /// Opens a split by its name, so that it can be started.
    pub fn open(&mut self, split: usize) -> Result<(), IoFailure> {
        let source = self.splits[split].source;
        let name = self.name(split).unwrap_or_default().to_owned();
        let Some(splits) = &mut self.sources[source].splits else { return Ok(()) };
        let opened = open_split(splits.as_mut(), &name)?;
        self.give(split, opened);
        Ok(())
    }

    /// Returns the splits of a source that are there and not known: their names. None once its reader watches it.
    pub fn new_splits(&mut self, source: usize) -> Result<Vec<String>, IoFailure> {
        let names = self.names(source);
        let splits = self.sources[source].splits.as_mut().and_then(|splits| splits.splits());
        splits.map_or(Ok(Vec::new()), |splits| splits.new_splits(&names))
    }

    /// Has the reader of a source look for new splits from now on, if they may join within a run.
    pub fn watch(&mut self, source: usize) {
        let names = self.names(source);
        let of = &mut self.sources[source];
        if let (Some(mut splits), Some(begin)) = (of.splits.take(), &of.begin)
            && splits.splits().is_some_and(|splits| splits.follows())
        {
            let (say, found) = mailbox(None, &self.gate, None);
            of.found = Some(found);
            begin.send(Begin::Watch(splits, names, say));
        }
    }

    /// Returns whether splits may join within this run.
    pub fn watches(&self) -> bool {
        self.sources.iter().any(|of| of.found.is_some())
    }

    /// Returns a split that the reader of a source has found, with the number of the source.
    pub fn found(&mut self) -> Option<(usize, Found)> {
        let mut found = self.sources.iter().enumerate().filter_map(|(source, of)| Some((source, of.found.as_ref()?)));
        found.find_map(|(source, found)| match found.take() {
            Took::Message(message) => Some((source, message)),
            Took::Nothing | Took::Closed => None,
        })
    }

    /// Gives the reader a source to read a split from.
    pub fn give(&mut self, split: usize, mut source: Box<dyn Source>) {
        let of = &mut self.splits[split];
        if of.is_sent {
            return;
        }
        of.pauses = self.end == EndOfInput::Pauses && !source.is_last();
        if of.pauses {
            source.pauses();
        }
        of.waiting = Some(source);
    }

    /// Returns a split, if it is not started yet.
    pub fn source(&mut self, split: usize) -> Option<&mut Box<dyn Source>> {
        self.splits[split].waiting.as_mut()
    }

    /// Returns whether a split is being read.
    pub fn is_started(&self, split: usize) -> bool {
        self.splits[split].said.is_some()
    }

    /// Starts to read a split, unless it was started before; the reader drops the first records.
    pub fn start(&mut self, split: usize, drop: Taken) {
        let of = &mut self.splits[split];
        let to = &self.sources[of.source];
        if let (Some(source), Some(begin)) = (of.waiting.take(), &to.begin) {
            let ahead = if to.known.is_some() { SPLIT_AHEAD } else { SOURCE_AHEAD };
            let (say, said) = mailbox(Some(ahead), &self.gate, Some(&to.bell));
            of.said = Some(said);
            begin.send(Begin::Read(Reading::new(source, drop, say, of.pauses)));
        }
    }

    /// Starts no more sources and takes nothing more of any: all readers end. By source, the events that were
    /// delivered and never taken.
    pub fn close(&mut self) -> Vec<u64> {
        let mut untaken = vec![0; self.sources.len()];
        for split in 0..self.splits.len() {
            untaken[self.splits[split].source] += self.untaken(split);
            self.forget(split);
        }
        for of in &mut self.sources {
            (of.begin, of.splits, of.found) = (None, None, None);
        }
        untaken
    }

    /// Stops reading a split.
    pub fn forget(&mut self, split: usize) {
        let of = &mut self.splits[split];
        (of.said, of.waiting, of.rest, of.wanted) = (None, None, None, None);
        let source = of.source;
        if self.sources[source].known.is_none() {
            self.sources[source].begin = None;
        }
    }

    /// Returns whether a split has nothing to deliver now.
    pub fn is_empty(&self, split: usize) -> bool {
        let of = &self.splits[split];
        of.rest.is_none() && of.said.as_ref().is_none_or(Inbox::is_empty)
    }

    /// Tells the gate that a split's input has come to its end: for good, or for this run.
    pub fn end(&self, split: usize, gate: &mut Gate) {
        if self.pauses(split) { gate.pause(split) } else { gate.end(split) }
    }

    /// Returns whether the end of a split's input is a pause.
    pub fn pauses(&self, split: usize) -> bool {
        self.splits[split].pauses
    }

    /// Returns whether splits of a source may join: in this run, or in a later one.
    pub fn is_open(&self, source: usize) -> bool {
        let of = &self.sources[source];
        of.known.is_some() && (of.pauses || of.found.is_some())
    }

    /// Returns whether a later run can read again what this one leaves of a split.
    pub fn replays(&self, split: usize) -> bool {
        self.sources[self.splits[split].source].replays
    }

    /// Takes the next message of a split, except for what it keeps back.
    pub fn take(&mut self, split: usize) -> Result<FromSource, Nothing> {
        loop {
            match self.receive(split) {
                Ok(FromSource::Rest(..)) => {}
                other => return other,
            }
        }
    }

    /// Gives a message of a split back: it is the next one again.
    pub fn give_back(&mut self, split: usize, message: FromSource) {
        let before = self.splits[split].rest.replace(message);
        assert!(before.is_none(), "the message that was taken last is given back");
    }

    /// Takes the next message of a split.
    pub fn receive(&mut self, split: usize) -> Result<FromSource, Nothing> {
        let of = &mut self.splits[split];
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

    /// Takes exactly this number of records from a split, in batches; none until all of them have arrived. Call it
    /// again with the same number until they have. Fails if the split has fewer records.
    pub fn take_exactly(&mut self, split: usize, taken: Taken) -> Result<Option<Vec<SourceBatch>>, IoFailure> {
        if self.splits[split].waiting.is_some() {
            return Err(IoFailure::new(
                "what was taken of it before was not logged, as it could be read again, and now it cannot",
            ));
        }
        // The token is that of the last batch received; the remainder of that batch is before the same token.
        let wanted = self.splits[split].wanted.take();
        let mut wanted = wanted.unwrap_or_else(|| Wanted { taken, exactly: Exactly::new(taken), token: None });
        assert_eq!(wanted.taken, taken, "a replay asks for the same records until they have arrived");
        while !wanted.exactly.is_done() {
            match self.receive(split) {
                // An earlier run, whose end was for good, has taken what the source keeps back.
                Ok(FromSource::Batch(batch, after, ..) | FromSource::Rest(batch, after)) => {
                    wanted.token = after;
                    wanted.exactly.give(batch)?;
                }
                Ok(FromSource::UpToDate) => {}
                Ok(FromSource::Failed(failure)) => return Err(failure),
                Err(Nothing::Yet) => {
                    self.splits[split].wanted = Some(wanted);
                    return Ok(None);
                }
                Ok(FromSource::End) | Err(Nothing::Ever) => return Err(wanted.exactly.missing()),
            }
        }
        let Wanted { exactly, token, .. } = wanted;
        let (batches, left) = exactly.end();
        assert!(self.splits[split].rest.is_none(), "what was left over is taken before there is more");
        self.splits[split].rest = left.map(|left| FromSource::Batch(left, token, None, None));
        Ok(Some(batches))
    }

    /// Takes nothing more of a split; the number of events that were delivered but never taken.
    fn untaken(&mut self, split: usize) -> u64 {
        let of = &mut self.splits[split];
        let delivered = of.said.take().map(Inbox::close).unwrap_or_default();
        let count = |message| match message {
            FromSource::Batch(batch, ..) => batch.events.num_rows() as u64,
            _ => 0,
        };
        of.rest.take().into_iter().chain(delivered).map(count).sum()
    }
}

impl OfSplit {
    fn new(source: usize, is_sent: bool, pauses: bool) -> OfSplit {
        OfSplit {
            source,
            said: None,
            waiting: None,
            rest: None,
            wanted: None,
            is_sent,
            is_clock: false,
            is_up_to_date: false,
            pauses,
        }
    }
}
