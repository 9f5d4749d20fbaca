//! The log entry of an epoch, and its encoding.
//!
//! ```text
//! entry   = version:1, joined: n, n × split, splits: n, n × source, sent: n, n × (source, events), due, wakes,
//!           digests: n, n × digest
//! due     = 0, or 1 + the number of what is due, boundary:8
//! wakes   = present:1, [time:8]
//! split   = source, split, present:1, [mark:8], name
//! source  = flags:1 (1 ended, 2 values, 4 token, 8 sent, 16 punctuations, 32 open, 64 keys, 128 too far ahead), passed,
//!           [token], events, bad, [values], [punctuations: n, n × (events and bad records before it, time:8)],
//!           [keys: n, n × (event, key, arguments:8, called:8)],
//!           [too far ahead: n, n × (events between it and the one before, count, until:8)],
//!           pieces: 0, or n, n × (events, bad), hash:32 (`taken_hash`)
//! values  = batches: n, n × batch (`packed`), then `bad` records
//! record  = flags:1 (1 origin, 2 line, 4 column, 8 record), the texts and numbers that are present, reason, events before it
//! digest  = epoch, sinks: n, n × (events, [hash:8 if there are any]), transactions: n, n × (committed, aborted),
//!           results: 0, or n, n × (present:1, [batch])
//! ```
//!
//! The first splits of the sources come first, by source; then those that joined, in the order in which they did, each
//! with the number of its source before it.
//!
//! Numbers are LEB128; a text or run of bytes is preceded by its length. Batches are Arrow IPC record batch messages
//! without a schema (the program has it), with dictionaries and compressed buffers.

use crate::ahead::TooFar;
use crate::digest::{EpochDigests, read_digests, write_digests};
use crate::encoding::{Malformed, Reader, bytes, number, read_key, write_key};
use crate::intake::Taken;
use crate::packed::{PackedCodec, read_packed};
use crate::taken_hash::TakenHash;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tidemill_durability::{CallKey, Hash256};
use tidemill_io::{BadRecord, SourceBatch};
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::Program;
use tidemill_stages::digest::committed_streams;
use tidemill_stages::due::DueCut;
use tidemill_stages::gate::Passed;
use tidemill_stages::gate::sent::SourceRun;

const VERSION: u8 = 13;
/// The oldest version that can be read: 12 is without hashes of what was taken, 11 also without events that are too far ahead of
/// the clock, 10 also without rows that wake within epochs, 9 also without keys of calls; otherwise they are the same.
const VERSION_READ_MIN: u8 = 9;

/// The first version with rows that wake within epochs.
const VERSION_OF_WAKES: u8 = 11;
/// The first version with events that are too far ahead of the clock.
const VERSION_OF_AHEAD: u8 = 12;
/// The first version with hashes of what was taken.
const VERSION_OF_HASHES: u8 = 13;

/// The value that says what an epoch is: what the gate was given since the epoch before, and what of it passes. What is due, and
/// which records are late, follows from it. Applied to the state before, it gives the same epoch again.
#[derive(Debug)]
pub struct EpochEntry {
    /// Its number.
    pub epoch: u64,
    /// The number of sources.
    pub source_count: usize,
    /// The splits that joined since the last cut, in order.
    pub joined: Vec<JoinedSplit>,
    /// The entry of each split, by split: the first of each source, then those that joined.
    pub sources: Vec<SourceEntry>,
    /// The events that pass, and what is due with them or within.
    pub passed: Passed,
    /// The digests of earlier epochs.
    pub digests: EpochDigests,
}

/// The schemas of the columns in the log of a program.
pub struct LogSchemas {
    /// The schema of each source, by source.
    pub sources: Vec<SchemaRef>,
    /// The number of streams of due rows.
    pub dues: usize,
    /// The schema of each transaction's output when it commits, by transaction.
    pub committed: Vec<SchemaRef>,
}

impl LogSchemas {
    /// Returns the schemas of a program's log.
    pub fn of(program: &Program) -> LogSchemas {
        LogSchemas {
            sources: program.sources().map(|stream| arrow_schema(&stream.schema)).collect(),
            dues: program.dues().len(),
            committed: committed_streams(program).map(|s| arrow_schema(&program.streams[s].schema)).collect(),
        }
    }
}

/// A split of a source that has several, as it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedSplit {
    /// The number of its source.
    pub source: usize,
    /// Its number there.
    pub split: u32,
    /// The mark with which it begins, unless it is there from the start.
    pub mark: Option<i64>,
    /// The name by which its source knows it.
    pub name: String,
}

/// A split's part of an epoch's log entry.
#[derive(Debug, Default)]
pub struct SourceEntry {
    /// Its source.
    pub source: usize,
    /// A flag: whether the source had ended when the epoch was cut.
    pub ended: bool,
    /// A flag: whether further splits of its source may join.
    pub is_open: bool,
    /// A flag: whether a session sends its events. Those without an event time have anchored positions.
    pub is_sent: bool,
    /// The records taken from it since the last cut.
    pub taken: Taken,
    /// The source's token at that point.
    pub token: Option<String>,
    /// The hash of the records, of a source that can be read again; none if none is kept.
    pub hashed: Option<TakenHash>,
    /// The records themselves, for a source that cannot be read again.
    pub ingested: Ingested,
    /// The punctuations since the last cut, in order.
    pub punctuations: Vec<Punctuation>,
    /// The keys of those of the records that are calls with a key, in order.
    pub keys: Vec<CallKey>,
    /// The events that were too far ahead of the clock when they were taken, in order: bad records.
    pub too_far: Vec<TooFar>,
}

/// A promise about a source's times that was given beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Punctuation {
    /// The records that were taken since the last cut and before the punctuation.
    pub taken: Taken,
    /// The punctuation: no event with a time below comes after it.
    pub time: i64,
}

/// The records of a source since the last cut, in an entry of the log.
#[derive(Debug, Default)]
pub enum Ingested {
    /// No records: they can be read again from the source.
    #[default]
    Again,
    /// The records by value.
    Values(Vec<SourceBatch>),
}

impl SourceEntry {
    /// Checks what a reader of the entry relies on.
    fn check(&self) {
        assert!(self.token.is_none() || self.taken != Taken::default(), "a token comes with the records before it");
        let offsets = self.punctuations.iter().map(|punctuation| punctuation.taken.events);
        assert!(offsets.clone().is_sorted(), "punctuations are in the order of the events");
        assert!(offsets.max() <= Some(self.taken.events), "a punctuation is among the events taken with it");
        assert!(TooFar::are_among(&self.too_far, self.taken.events), "what is refused is among the events taken");
        let Ingested::Values(batches) = &self.ingested else { return };
        let mut there = Taken::default();
        batches.iter().for_each(|batch| there.add(Taken::of(batch)));
        assert_eq!(there, self.taken, "an entry has the records that it counts");
    }
}

impl EpochEntry {
    /// Appends the entry's bytes, without the epoch's number.
    pub fn write(&self, codec: &mut PackedCodec, into: &mut Vec<u8>) {
        into.push(VERSION);
        number(into, self.joined.len() as u64);
        self.joined.iter().for_each(|joined| write_joined(joined, into));
        number(into, self.sources.len() as u64);
        for (split, source) in self.sources.iter().enumerate() {
            source.check();
            if split >= self.source_count {
                number(into, source.source as u64);
            }
            let values = matches!(source.ingested, Ingested::Values(_));
            let punctuates = !source.punctuations.is_empty();
            let (SourceEntry { ended, is_sent, is_open, .. }, has_keys) = (source, !source.keys.is_empty());
            let has_too_far = !source.too_far.is_empty();
            let flags = [*ended, values, source.token.is_some(), *is_sent, punctuates, *is_open, has_keys, has_too_far];
            into.push(flags.into_iter().enumerate().map(|(bit, is_set)| u8::from(is_set) << bit).sum());
            number(into, self.passed.counts[split] as u64);
            if let Some(token) = &source.token {
                bytes(into, token.as_bytes());
            }
            number(into, source.taken.events);
            number(into, source.taken.bad);
            if let Ingested::Values(batches) = &source.ingested {
                let filled = || batches.iter().filter(|batch| batch.events.num_rows() > 0);
                number(into, filled().count() as u64);
                filled().for_each(|batch| codec.write(&batch.events, into));
                let mut before = 0;
                for batch in batches {
                    let rows = batch.events.num_rows() as u64;
                    batch.bad.iter().for_each(|bad| write_bad(bad, before + bad.after.min(rows), into));
                    before += rows;
                }
            }
            if punctuates {
                number(into, source.punctuations.len() as u64);
                for Punctuation { taken, time } in &source.punctuations {
                    number(into, taken.events);
                    number(into, taken.bad);
                    into.extend_from_slice(&time.to_le_bytes());
                }
            }
            if has_keys {
                number(into, source.keys.len() as u64);
                source.keys.iter().for_each(|key| write_key(key.event, key, into));
            }
            if has_too_far {
                write_too_far(&source.too_far, into);
            }
            write_hashed(source.hashed.as_ref(), into);
        }
        number(into, self.passed.sent.len() as u64);
        for &(source, count) in &self.passed.sent {
            assert!(self.sources[source as usize].is_sent, "anchored positions are of sent events");
            number(into, source.into());
            number(into, count.into());
        }
        match self.passed.due {
            None => number(into, 0),
            Some(DueCut { due, boundary }) => {
                number(into, due as u64 + 1);
                into.extend_from_slice(&boundary.to_le_bytes());
            }
        }
        into.push(u8::from(self.passed.due_through.is_some()));
        self.passed.due_through.iter().for_each(|time| into.extend_from_slice(&time.to_le_bytes()));
        write_digests(&self.digests, codec, into);
    }

    /// Reads an entry.
    pub fn read(epoch: u64, payload: &[u8], schemas: &LogSchemas) -> Result<EpochEntry, Malformed> {
        let mut reader = Reader(payload);
        let version = reader.byte()?;
        if !(VERSION_READ_MIN..=VERSION).contains(&version) {
            return Err(Malformed("it is of another version".into()));
        }
        let joined = (0..reader.number()?).map(|_| read_joined(&mut reader, schemas)).collect::<Result<_, _>>()?;
        let (source_count, splits) = (schemas.sources.len(), reader.number()?);
        if splits < source_count as u64 {
            return Err(Malformed("it is of another number of sources".into()));
        }
        let (mut sources, mut counts) = (Vec::new(), Vec::new());
        for split in 0..splits as usize {
            let source = if split < source_count { split } else { read_source_number(&mut reader, schemas)? };
            let (passed, mut read) = read_source(&mut reader, &schemas.sources[source])?;
            counts.push(usize::try_from(passed).map_err(|_| Malformed("more events pass than there are".into()))?);
            if version >= VERSION_OF_HASHES {
                read.hashed = read_hashed(&mut reader, read.taken)?;
            }
            if version < VERSION_OF_AHEAD && !read.too_far.is_empty() {
                return Err(Malformed("its version has no events that are too far ahead of the clock".into()));
            }
            sources.push(SourceEntry { source, ..read });
        }
        let sent = read_sent(&mut reader, &sources)?;
        let due = match reader.number()? {
            0 => None,
            number if number <= schemas.dues as u64 => {
                Some(DueCut { due: number as usize - 1, boundary: reader.word()? as i64 })
            }
            _ => return Err(Malformed("it has what is due of another program".into())),
        };
        let wakes = match version {
            ..VERSION_OF_WAKES => None,
            _ => match reader.byte()? {
                0 => None,
                1 => Some(reader.word()? as i64),
                other => return Err(Malformed(format!("{other} says whether rows wake"))),
            },
        };
        let digests = read_digests(&mut reader, &schemas.committed)?;
        if !reader.0.is_empty() {
            return Err(Malformed("something follows its end".into()));
        }
        let passed = Passed::new(counts, sent, due, wakes);
        Ok(EpochEntry { epoch, joined, source_count, sources, passed, digests })
    }
}

fn write_joined(joined: &JoinedSplit, into: &mut Vec<u8>) {
    number(into, joined.source as u64);
    number(into, joined.split.into());
    into.push(u8::from(joined.mark.is_some()));
    joined.mark.iter().for_each(|mark| into.extend_from_slice(&mark.to_le_bytes()));
    bytes(into, joined.name.as_bytes());
}

fn read_joined(reader: &mut Reader<'_>, schemas: &LogSchemas) -> Result<JoinedSplit, Malformed> {
    let source = read_source_number(reader, schemas)?;
    let split = u32::try_from(reader.number()?).map_err(|_| Malformed("a split has too great a number".into()))?;
    let mark = if reader.byte()? == 0 { None } else { Some(reader.word()? as i64) };
    Ok(JoinedSplit { source, split, mark, name: reader.text()? })
}

fn read_source_number(reader: &mut Reader<'_>, schemas: &LogSchemas) -> Result<usize, Malformed> {
    let source = usize::try_from(reader.number()?).ok().filter(|source| *source < schemas.sources.len());
    source.ok_or_else(|| Malformed("it has a split of no source".into()))
}

fn read_sent(reader: &mut Reader<'_>, sources: &[SourceEntry]) -> Result<Vec<SourceRun>, Malformed> {
    let mut sent: Vec<SourceRun> = Vec::new();
    for _ in 0..reader.number()? {
        let (source, count) = (reader.number()?, reader.number()?);
        let is_sent = usize::try_from(source).ok().and_then(|source| sources.get(source)).is_some_and(|of| of.is_sent);
        let count = u32::try_from(count).ok().filter(|_| is_sent);
        sent.push((source as u32, count.ok_or_else(|| Malformed("it has sent events of no source".into()))?));
    }
    Ok(sent)
}

/// Reads a split's part, and the number of its events that pass.
fn read_source(reader: &mut Reader<'_>, schema: &SchemaRef) -> Result<(u64, SourceEntry), Malformed> {
    let flags = reader.byte()?;
    let passed = reader.number()?;
    let token = if flags & 4 != 0 { Some(reader.text()?) } else { None };
    let taken = Taken { events: reader.number()?, bad: reader.number()? };
    let ingested = if flags & 2 == 0 {
        Ingested::Again
    } else {
        let mut batches = Vec::new();
        for _ in 0..reader.number()? {
            batches.push(SourceBatch { events: read_packed(reader, schema, taken.events)?, bad: Vec::new() });
        }
        let events: u64 = batches.iter().map(|batch| batch.events.num_rows() as u64).sum();
        if events != taken.events {
            return Err(Malformed(format!("it says {} events and has {events}", taken.events)));
        }
        if taken.bad > 0 {
            let bad = (0..taken.bad).map(|_| read_bad(reader)).collect::<Result<_, _>>()?;
            put_between(bad, &mut batches, schema)?;
        }
        Ingested::Values(batches)
    };
    let mut punctuations = Vec::new();
    for _ in 0..if flags & 16 != 0 { reader.number()? } else { 0 } {
        let taken = Taken { events: reader.number()?, bad: reader.number()? };
        punctuations.push(Punctuation { taken, time: reader.word()? as i64 });
    }
    let mut keys = Vec::new();
    for _ in 0..if flags & 64 != 0 { reader.number()? } else { 0 } {
        keys.push(read_key(reader)?);
    }
    let too_far = if flags & 128 != 0 { read_too_far(reader, taken.events)? } else { Vec::new() };
    let (ended, is_sent, is_open) = (flags & 1 != 0, flags & 8 != 0, flags & 32 != 0);
    let (source, hashed) = (0, None);
    let read =
        SourceEntry { source, ended, is_open, is_sent, taken, token, hashed, ingested, punctuations, keys, too_far };
    Ok((passed, read))
}

fn write_hashed(hashed: Option<&TakenHash>, into: &mut Vec<u8>) {
    number(into, hashed.map_or(0, |hashed| hashed.pieces.len() as u64));
    let Some(TakenHash { pieces, hash }) = hashed else { return };
    for piece in pieces {
        number(into, piece.events);
        number(into, piece.bad);
    }
    into.extend_from_slice(hash.bytes());
}

fn read_hashed(reader: &mut Reader<'_>, taken: Taken) -> Result<Option<TakenHash>, Malformed> {
    let (mut pieces, mut in_all) = (Vec::new(), (0u64, 0u64));
    for _ in 0..reader.number()? {
        let piece = Taken { events: reader.number()?, bad: reader.number()? };
        in_all = (in_all.0.saturating_add(piece.events), in_all.1.saturating_add(piece.bad));
        pieces.push(piece);
    }
    if pieces.is_empty() {
        return Ok(None);
    }
    if in_all != (taken.events, taken.bad) {
        return Err(Malformed("it has the hash of another number of records than were taken".into()));
    }
    let words = [reader.word()?, reader.word()?, reader.word()?, reader.word()?];
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(into, word)| into.copy_from_slice(&word.to_le_bytes()));
    Ok(Some(TakenHash { pieces, hash: Hash256::from_bytes(bytes) }))
}

fn write_too_far(too_far: &[TooFar], into: &mut Vec<u8>) {
    number(into, too_far.len() as u64);
    let mut end = 0;
    for &TooFar { before, count, until } in too_far {
        number(into, before - end);
        number(into, count);
        into.extend_from_slice(&until.to_le_bytes());
        end = before + count;
    }
}

fn read_too_far(reader: &mut Reader<'_>, events: u64) -> Result<Vec<TooFar>, Malformed> {
    let mut too_far: Vec<TooFar> = Vec::new();
    for _ in 0..reader.number()? {
        let end = too_far.last().map_or(0, |last| last.before + last.count);
        let (between, count) = (reader.number()?, reader.number()?);
        let before =
            end.checked_add(between).filter(|before| before.checked_add(count).is_some_and(|end| end <= events));
        let before = before.ok_or_else(|| Malformed("more events are too far ahead than there are".into()))?;
        too_far.push(TooFar { before, count, until: reader.word()? as i64 });
    }
    Ok(too_far)
}

/// Puts each bad record into the batch it belongs to; its `after` counts the events of all batches before it.
fn put_between(bad: Vec<BadRecord>, batches: &mut Vec<SourceBatch>, schema: &SchemaRef) -> Result<(), Malformed> {
    if batches.is_empty() {
        batches.push(SourceBatch { events: RecordBatch::new_empty(schema.clone()), bad: Vec::new() });
    }
    let (mut number, mut before) = (0, 0);
    for bad in bad {
        while bad.after > before + batches[number].events.num_rows() as u64 {
            before += batches[number].events.num_rows() as u64;
            number += 1;
            if number == batches.len() {
                return Err(Malformed("a bad record has no place among the events".into()));
            }
        }
        let after = bad.after.checked_sub(before).ok_or_else(|| Malformed("bad records are out of order".into()))?;
        batches[number].bad.push(BadRecord { after, ..bad });
    }
    Ok(())
}

/// Appends a bad record that comes after `after` events.
pub fn write_bad(bad: &BadRecord, after: u64, into: &mut Vec<u8>) {
    let texts = [&bad.origin, &bad.column, &bad.record];
    let flag = |text: &Option<String>, bit: u8| if text.is_some() { bit } else { 0 };
    into.push(flag(texts[0], 1) | flag(texts[1], 4) | flag(texts[2], 8) | if bad.line.is_some() { 2 } else { 0 });
    if let Some(line) = bad.line {
        number(into, line);
    }
    texts.into_iter().flatten().chain([&bad.reason]).for_each(|text| bytes(into, text.as_bytes()));
    number(into, after);
}

/// Reads a bad record.
pub fn read_bad(reader: &mut Reader<'_>) -> Result<BadRecord, Malformed> {
    let flags = reader.byte()?;
    let line = if flags & 2 != 0 { Some(reader.number()?) } else { None };
    let mut text = |bit: u8| if flags & bit != 0 { reader.text().map(Some) } else { Ok(None) };
    let (origin, column, record) = (text(1)?, text(4)?, text(8)?);
    Ok(BadRecord { origin, line, column, record, reason: reader.text()?, after: reader.number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(due: Option<DueCut>, wakes: Option<i64>) -> Vec<u8> {
        let (joined, sources, digests) = (Vec::new(), Vec::new(), Vec::new());
        let passed = Passed::new(Vec::new(), Vec::new(), due, wakes);
        let entry = EpochEntry { epoch: 7, joined, source_count: 0, sources, passed, digests };
        let mut bytes = Vec::new();
        entry.write(&mut PackedCodec::default(), &mut bytes);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(Option<DueCut>, Option<i64>), Malformed> {
        let schemas = LogSchemas { sources: Vec::new(), dues: 2, committed: Vec::new() };
        EpochEntry::read(7, bytes, &schemas).map(|entry| (entry.passed.due, entry.passed.due_through))
    }

    #[test]
    fn up_to_which_time_rows_wake_is_in_the_entry() {
        let due = Some(DueCut { due: 1, boundary: -3 });
        for (due, wakes) in [(None, None), (due, None), (None, Some(i64::MIN)), (None, Some(12))] {
            assert_eq!(read(&written(due, wakes)).expect("as written"), (due, wakes));
        }
        let mut other = written(None, None);
        let at = other.len() - 2;
        assert_eq!(other[at], 0, "no wakes, then no digests");
        other[at] = 2;
        assert!(read(&other).is_err());
    }

    #[test]
    fn entries_from_before_wakes_within_epochs_are_read() {
        let due = Some(DueCut { due: 0, boundary: 5 });
        let mut old = written(due, None);
        old.remove(old.len() - 2);
        for version in [VERSION_READ_MIN, 10] {
            old[0] = version;
            assert_eq!(read(&old).expect("an older version"), (due, None));
        }
        old[0] = VERSION;
        assert!(read(&old).is_err());
    }

    /// Makes the bytes of an entry of 1,301 events, of which these were too far ahead.
    fn with_too_far(too_far: Vec<TooFar>) -> Vec<u8> {
        let source = SourceEntry { taken: Taken { events: 1_301, bad: 0 }, too_far, ..SourceEntry::default() };
        let entry = EpochEntry {
            epoch: 7,
            joined: Vec::new(),
            source_count: 1,
            sources: vec![source],
            passed: Passed::new(vec![0], Vec::new(), None, None),
            digests: Vec::new(),
        };
        let mut bytes = Vec::new();
        entry.write(&mut PackedCodec::default(), &mut bytes);
        bytes
    }

    #[test]
    fn events_too_far_ahead_are_in_the_entry() {
        let schemas = LogSchemas { sources: vec![arrow_schema(&Default::default())], dues: 0, committed: Vec::new() };
        let read = |bytes: &[u8]| EpochEntry::read(7, bytes, &schemas).map(|entry| entry.sources[0].too_far.clone());
        let runs = [(0, 1, i64::MAX), (1, 1, -5), (1_000, 300, 12)];
        let too_far: Vec<TooFar> = runs.map(|(before, count, until)| TooFar { before, count, until }).into();
        for count in 0..=too_far.len() {
            assert_eq!(read(&with_too_far(too_far[..count].to_vec())).expect("as written"), too_far[..count]);
        }
        let mut bytes = with_too_far(too_far);
        bytes[0] = 11;
        assert!(read(&bytes).is_err(), "the version before has none");
        let mut none = with_too_far(Vec::new());
        none[0] = 11;
        // Without hashes of what was taken: nothing is sent, due, wakes or is digested after them.
        none.remove(none.len() - 5);
        assert_eq!(read(&none).expect("an older version"), []);
        let mut beyond = with_too_far(vec![TooFar { before: 0, count: 100, until: 0 }]);
        let at = beyond.iter().rposition(|&byte| byte == 100).expect("the count");
        beyond.splice(at..=at, [0xff, 0x7f]);
        assert!(read(&beyond).is_err(), "more than there are");
    }
}
