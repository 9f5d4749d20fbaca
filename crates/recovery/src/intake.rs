//! The records taken from each source: since the last cut, for the log, and in total, for checkpoints.

use crate::ahead::{FarEvent, TimedEvents, TooFar, set_aside};
use crate::checkpoint::{SourceAt, SplitName};
use crate::entry::{EpochEntry, Ingested, JoinedSplit, Punctuation, SourceEntry};
use crate::taken_hash::{TakenHash, batch_hash};
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use std::collections::VecDeque;
use tidemill_durability::{CallKey, Hash256};
use tidemill_io::{BadRecord, IoFailure, SourceBatch};
use tidemill_stages::gate::{Gate, Passed};

/// The number of records taken from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Events.
    pub events: u64,
    /// Undecodable records.
    pub bad: u64,
}

impl Taken {
    /// A number that is more than there ever is.
    const MAX: Taken = Taken { events: u64::MAX, bad: u64::MAX };

    /// Returns the number in a batch.
    pub fn of(batch: &SourceBatch) -> Taken {
        Taken { events: batch.events.num_rows() as u64, bad: batch.bad.len() as u64 }
    }

    /// Adds a number of records.
    pub fn add(&mut self, more: Taken) {
        self.events += more.events;
        self.bad += more.bad;
    }

    /// Returns the records that are missing to this number.
    fn after(self, taken: Taken) -> Taken {
        Taken { events: self.events.saturating_sub(taken.events), bad: self.bad.saturating_sub(taken.bad) }
    }

    /// Returns the records that were taken after this number.
    pub fn since(self, before: Taken) -> Taken {
        assert!(before.events <= self.events && before.bad <= self.bad, "what was taken before is a part of it");
        Taken { events: self.events - before.events, bad: self.bad - before.bad }
    }
}

/// The records taken from one split.
#[derive(Default)]
struct OfSource {
    /// The split, of a source that has several.
    split: Option<SplitName>,
    /// A flag: whether its records are not logged.
    replays: bool,
    /// A flag: whether a session sends its events.
    is_sent: bool,
    /// Events that have passed the gate.
    passed: u64,
    in_all: Taken,
    /// The records that no run is given again.
    before: Taken,
    token: Option<String>,
    since_cut: Taken,
    /// The sizes and hashes of the batches since the last cut, of a source whose records are hashed and not logged.
    hashes: Vec<(Taken, Hash256)>,
    values: Vec<SourceBatch>,
    punctuations: Vec<Punctuation>,
    too_far: Vec<TooFar>,
    /// The keys of calls that have not passed the gate, in order; the last ones were taken since the last cut.
    keys: VecDeque<CallKey>,
    keys_since_cut: usize,
    /// A flag: whether these are keys of pushes.
    are_pushed: bool,
}

impl OfSource {
    fn forget_passed_keys(&mut self) {
        while self.keys.pop_front_if(|key| key.has_passed(self.passed)).is_some() {}
    }

    /// Counts records that were taken.
    fn account(&mut self, taken: Taken, is_sent: bool) {
        self.in_all.add(taken);
        if is_sent {
            self.before.add(taken);
        }
    }
}

/// The inputs that were taken of a source, in order.
pub enum LoggedInput {
    /// Records.
    Records(SourceBatch),
    /// An event that is a bad record, since it was too far ahead of the clock when it was taken.
    TooFar(FarEvent),
    /// A punctuation: no event with a time below comes after it.
    Punctuation(i64),
}

/// Returns the records of a source with the punctuations between them. `too_far`: which of its events were too far
/// ahead of the clock; `timed`: when its events are, if they can be.
pub fn in_order(
    batches: Vec<SourceBatch>,
    punctuations: &[Punctuation],
    too_far: &[TooFar],
    timed: Option<&TimedEvents>,
) -> Vec<LoggedInput> {
    let (mut inputs, mut taken, mut left) = (Vec::new(), Taken::default(), punctuations.iter().peekable());
    for batch in batches {
        let mut rest = Some(batch);
        while let Some(batch) = rest.take() {
            while let Some(due) = left.next_if(|next| next.taken.events <= taken.events && next.taken.bad <= taken.bad)
            {
                inputs.push(LoggedInput::Punctuation(due.time));
            }
            let most = left.peek().map_or(Taken::MAX, |next| next.taken.after(taken));
            let first;
            (first, rest) = split(batch, most);
            if Taken::of(&first) == Taken::default() && rest.is_some() {
                // Not in the order in which they came: the punctuation is before what has no place before it.
                inputs.extend(left.next().map(|due| LoggedInput::Punctuation(due.time)));
                continue;
            }
            let before = taken.events;
            taken.add(Taken::of(&first));
            if TooFar::any_within(too_far, before..taken.events) {
                let timed = timed.expect("only events with a time are too far ahead");
                set_aside(first, before, too_far, timed, &mut inputs);
            } else {
                inputs.push(LoggedInput::Records(first));
            }
        }
    }
    inputs.extend(left.map(|due| LoggedInput::Punctuation(due.time)));
    inputs
}

/// The records taken from all sources.
pub struct Intake {
    /// The state of each split, by split: the first of each source, then those that joined.
    sources: Vec<OfSource>,
    /// The number of sources.
    source_count: usize,
    /// The splits that joined since the last cut.
    joined: Vec<JoinedSplit>,
    /// A flag: whether the records that are not logged are hashed.
    hashes: bool,
}

impl Intake {
    /// Makes the intake of `source_count` sources, from the positions of their splits on; the flag of each: it replays.
    pub fn new(source_count: usize, sources: impl IntoIterator<Item = (SourceAt, bool)>) -> Intake {
        let of = |(SourceAt { standing, split, taken, token, keys, before }, replays)| OfSource {
            split,
            passed: standing.passed,
            in_all: taken,
            before,
            token,
            keys: keys.into(),
            replays,
            ..OfSource::default()
        };
        Intake { sources: sources.into_iter().map(of).collect(), source_count, joined: Vec::new(), hashes: false }
    }

    /// Enters a split of a source that joins; or names the first one, which is there from the start.
    pub fn join(&mut self, joined: JoinedSplit, replays: bool) {
        self.know(&joined, replays);
        self.joined.push(joined);
    }

    fn know(&mut self, joined: &JoinedSplit, replays: bool) {
        let JoinedSplit { source, split, name, .. } = joined.clone();
        let known = Some(SplitName { source, split, name });
        match split {
            0 => self.sources[source].split = known,
            _ => self.sources.push(OfSource { split: known, replays, ..OfSource::default() }),
        }
    }

    /// Returns the splits of a source that have names: their numbers here, and their names.
    pub fn splits_of(&self, source: usize) -> Vec<(usize, String)> {
        let splits = self.sources.iter().enumerate();
        let named = splits.filter_map(|(number, of)| of.split.as_ref().map(|split| (number, split)));
        named.filter(|(_, split)| split.source == source).map(|(number, split)| (number, split.name.clone())).collect()
    }

    /// Returns a split's name, if its source has several.
    pub fn split(&self, split: usize) -> Option<&SplitName> {
        self.sources.get(split)?.split.as_ref()
    }

    /// Says whether a session sends the events of a source. What is sent is never given again.
    pub fn send(&mut self, source: usize, is_sent: bool) {
        self.sources[source].is_sent = is_sent;
    }

    /// Hashes the records that are not logged.
    pub fn hash_taken(&mut self) {
        self.hashes = true;
    }

    /// Takes an ingested batch, after which the source is at `token`. `hash`: that of the batch, if it was made already.
    pub fn take(&mut self, source: usize, batch: &SourceBatch, token: Option<String>, hash: Option<Hash256>) {
        let hashes = self.hashes;
        let of = &mut self.sources[source];
        if hashes && of.replays {
            of.hashes.push((Taken::of(batch), hash.unwrap_or_else(|| batch_hash(batch))));
        }
        of.since_cut.add(Taken::of(batch));
        of.account(Taken::of(batch), of.is_sent);
        of.token = token;
        if !of.replays {
            let events: RecordBatch = batch.events.clone();
            of.values.push(SourceBatch { events, bad: batch.bad.clone() });
        }
    }

    /// Takes that some of the events that are taken next are too far ahead of the clock; `before` counts from the first of
    /// these.
    pub fn take_too_far(&mut self, source: usize, too_far: &[TooFar]) {
        let of = &mut self.sources[source];
        let before = of.since_cut.events;
        of.too_far.extend(too_far.iter().map(|run| TooFar { before: before + run.before, ..*run }));
    }

    /// Takes the key of a call, or of a push: which events pass with that is known when the next epoch is cut.
    pub fn take_key(&mut self, source: usize, key: CallKey, is_pushed: bool) {
        let of = &mut self.sources[source];
        of.are_pushed = is_pushed;
        of.keys.push_back(key);
        of.keys_since_cut += 1;
    }

    /// Returns the keys of a source's calls that have not passed the gate, immediately after a cut.
    pub fn keys(&self, source: usize) -> Vec<CallKey> {
        self.sources[source].keys.iter().cloned().collect()
    }

    /// Takes a punctuation.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        let of = &mut self.sources[source];
        let punctuation = Punctuation { taken: of.since_cut, time };
        match of.punctuations.last_mut() {
            // Nothing came between the two.
            Some(last) if last.taken == punctuation.taken => last.time = last.time.max(time),
            _ => of.punctuations.push(punctuation),
        }
    }

    /// Returns whether anything was taken since the last epoch was cut.
    pub fn has_uncut(&self) -> bool {
        let has_uncut = |of: &OfSource| of.since_cut != Taken::default() || !of.punctuations.is_empty();
        !self.joined.is_empty() || self.sources.iter().any(has_uncut)
    }

    /// Returns whether any records were taken since the last run that came to the end of its input.
    pub fn has_new(&self) -> bool {
        self.sources.iter().any(|of| of.in_all != of.before)
    }

    /// Returns the number of records of a source that no run is given again: a run that took them came to the end of
    /// its input, or a session sent them.
    pub fn before(&self, source: usize) -> Taken {
        self.sources[source].before
    }

    /// Returns the log entry of an epoch that was cut: these events have passed.
    pub fn cut(&mut self, epoch: u64, passed: Passed, gate: &Gate) -> EpochEntry {
        assert_eq!(passed.counts.len(), self.sources.len(), "an entry has a part of each split");
        let entry = |(s, of): (usize, &mut OfSource)| {
            of.passed += passed.counts[s] as u64;
            assert_eq!(of.passed, gate.has_passed(s), "the log counts the events that pass as the gate does");
            let taken = std::mem::take(&mut of.since_cut);
            let hashed = TakenHash::of(&std::mem::take(&mut of.hashes));
            let ingested = match std::mem::take(&mut of.values) {
                batches if !batches.is_empty() => Ingested::Values(batches),
                _ => Ingested::Again,
            };
            // Without new records, the token is the one in the previous entry.
            let token = of.token.clone().filter(|_| taken != Taken::default());
            let (ended, is_sent) = (gate.has_ended(s), of.is_sent);
            let punctuations = std::mem::take(&mut of.punctuations);
            let too_far = std::mem::take(&mut of.too_far);
            let source = gate.source_of(s);
            let first_new = of.keys.len() - std::mem::take(&mut of.keys_since_cut);
            if of.are_pushed {
                let through = gate.passes_through(s).unwrap_or(CallKey::AT_ONCE);
                of.keys.iter_mut().skip(first_new).for_each(|key| key.event = through);
            }
            let keys = of.keys.iter().skip(first_new).cloned().collect();
            of.forget_passed_keys();
            SourceEntry {
                source,
                is_open: gate.is_open(source),
                ended,
                is_sent,
                taken,
                token,
                hashed,
                ingested,
                punctuations,
                keys,
                too_far,
            }
        };
        let sources = self.sources.iter_mut().enumerate().map(entry).collect();
        EpochEntry {
            epoch,
            source_count: self.source_count,
            joined: std::mem::take(&mut self.joined),
            sources,
            passed,
            digests: Vec::new(),
        }
    }

    /// Accounts for a replayed epoch.
    pub fn replayed(&mut self, entry: &EpochEntry) {
        assert!(!self.has_uncut(), "nothing new is taken in a replay");
        entry.joined.iter().for_each(|joined| self.know(joined, self.sources[joined.source].replays));
        assert_eq!(entry.sources.len(), self.sources.len(), "an entry has a part of each split");
        for ((of, entry), &passed) in self.sources.iter_mut().zip(&entry.sources).zip(&entry.passed.counts) {
            of.account(entry.taken, entry.is_sent);
            of.passed += passed as u64;
            of.keys.extend(entry.keys.iter().cloned());
            of.forget_passed_keys();
            if entry.taken != Taken::default() {
                of.token.clone_from(&entry.token);
            }
        }
    }

    /// Returns the total number of records taken from a source, and its token.
    pub fn of(&self, source: usize) -> (Taken, Option<String>) {
        (self.sources[source].in_all, self.sources[source].token.clone())
    }
}

/// Collects exactly a given number of records from a source, whose batches have arbitrary sizes.
pub struct Exactly {
    left: Taken,
    batches: Vec<SourceBatch>,
    /// The records after the last wanted one.
    rest: Option<SourceBatch>,
}

impl Exactly {
    /// Starts with no records, of the wanted number.
    pub fn new(wanted: Taken) -> Exactly {
        Exactly { left: wanted, batches: Vec::new(), rest: None }
    }

    /// Returns whether the wanted number of records has been collected.
    pub fn is_done(&self) -> bool {
        self.left == Taken::default()
    }

    /// Takes the next batch of the source.
    pub fn give(&mut self, next: SourceBatch) -> Result<(), IoFailure> {
        assert!(!self.is_done(), "a batch after the last record that is wanted");
        // The remainder may consist entirely of records of the kind that is not wanted.
        let (first, behind) = split(join(self.rest.take(), next)?, self.left);
        self.left.events -= first.events.num_rows() as u64;
        self.left.bad -= first.bad.len() as u64;
        self.batches.push(first);
        self.rest = behind;
        Ok(())
    }

    /// Returns the failure of a source that ends too early.
    pub fn missing(&self) -> IoFailure {
        missing(self.left)
    }

    /// Returns the batches, and the remainder of the last one.
    pub fn end(self) -> (Vec<SourceBatch>, Option<SourceBatch>) {
        assert!(self.is_done(), "records are missing");
        (self.batches, self.rest)
    }
}

/// Returns the failure of a source that no longer has this number of records.
pub fn missing(Taken { events, bad }: Taken) -> IoFailure {
    IoFailure::new(format!(
        "{events} events and {bad} bad records that were taken of it before are not there any more (after a run that \
         crashed or was stopped, a run is given the same data again)"
    ))
}

/// Joins two batches.
pub(crate) fn join(first: Option<SourceBatch>, next: SourceBatch) -> Result<SourceBatch, IoFailure> {
    let Some(mut first) = first else { return Ok(next) };
    let (schema, before) = (next.events.schema(), first.events.num_rows() as u64);
    let events = concat_batches(&schema, [&first.events, &next.events]);
    first.bad.extend(next.bad.into_iter().map(|bad| BadRecord { after: bad.after + before, ..bad }));
    Ok(SourceBatch { events: events.map_err(|error| IoFailure::new(error.to_string()))?, bad: first.bad })
}

/// Splits off the first records of a batch, at most the given number of each kind; returns them and the remainder, if
/// there is any.
pub fn split(mut batch: SourceBatch, most: Taken) -> (SourceBatch, Option<SourceBatch>) {
    let events = (batch.events.num_rows() as u64).min(most.events) as usize;
    let bad = batch.bad.len().min(most.bad as usize);
    if events == batch.events.num_rows() && bad == batch.bad.len() {
        return (batch, None);
    }
    let mut later = batch.bad.split_off(bad);
    later.iter_mut().for_each(|bad| bad.after = bad.after.saturating_sub(events as u64));
    let rest = SourceBatch { events: batch.events.slice(events, batch.events.num_rows() - events), bad: later };
    (SourceBatch { events: batch.events.slice(0, events), bad: batch.bad }, Some(rest))
}
