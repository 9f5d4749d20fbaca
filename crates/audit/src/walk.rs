//! A walk of the reference interpreter through a state's epochs.

use crate::error::AuditError;
use std::collections::VecDeque;
use std::iter::repeat_n;
use tidemill_connect::{source_options, standard_connectors};
use tidemill_durability::StateDirectory;
use tidemill_io::{BadRecord, IoFailure, Source, Spec};
use tidemill_model::arrow::rows;
use tidemill_model::{Schema, Value};
use tidemill_plan::{Origin, Program, Stream, Table, analyze};
use tidemill_reference::{NextEvent, Reference};
use tidemill_runtime::{DueCut, FarEvent, History, JoinedSplit, LoggedInput, OpenBatch, PastEpoch, StartingPoint};

/// Returns the program that a state has recorded.
pub fn recorded_program(directory: &StateDirectory) -> Result<Program, AuditError> {
    let path = directory.path().display();
    let recorded = directory.manifest().and_then(|manifest| manifest.recorded.as_ref());
    let recorded = recorded.ok_or_else(|| AuditError::Unknown(format!("{path} has not recorded its program")))?;
    analyze(&recorded.plan).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        AuditError::Unknown(format!("the program that {path} has recorded is not valid any more: {}", texts.join("; ")))
    })
}

/// Opens a source of a state to be read again; `None` where its kind cannot be.
pub type OpenSource<'a> = &'a dyn Fn(&StateDirectory, &Stream) -> Result<Option<Box<dyn Source>>, IoFailure>;

/// An event that nothing takes.
pub struct Untaken {
    /// Its source.
    pub source: usize,
    /// Its split there.
    pub split: usize,
    /// Its offset.
    pub offset: u64,
    /// Its values.
    pub event: Vec<Value>,
    /// The reason.
    pub why: WhyUntaken,
}

/// The reason why no transaction takes an event.
pub enum WhyUntaken {
    /// The event came too late.
    Late,
    /// The event is a bad record, for this reason.
    Bad(String),
}

/// The reference interpreter at some epoch of the log.
pub struct Walk<'p> {
    program: &'p Program,
    /// The interpreter.
    pub reference: Reference<'p>,
    history: History,
    /// The last epoch whose events were all taken.
    pub epoch: u64,
    /// The source of each split, and the name by which that knows it if it has several, by split.
    splits: Vec<(usize, Option<String>)>,
    /// The number of events of the current epoch that are still to pass the gate, by split.
    passing: Vec<u64>,
    /// The sources of the sent events of the current epoch that are still to pass, in order.
    sent: VecDeque<u32>,
    /// The due rows of the current epoch that have not run.
    due: VecDeque<NextEvent>,
    /// If rows wake within the current epoch: up to which time.
    due_through: Option<i64>,
}

impl<'p> Walk<'p> {
    /// Begins at the newest checkpoint, or at a savepoint, opened as a state of its own.
    pub fn begin(
        directory: &StateDirectory,
        savepoint: Option<&StateDirectory>,
        program: &'p Program,
        open: OpenSource<'_>,
    ) -> Result<Walk<'p>, AuditError> {
        let from = savepoint.unwrap_or(directory);
        let (start, history) = History::open(directory, savepoint, program, &mut |stream| open(from, stream))?;
        let StartingPoint { epoch, tables, sources, passed } = start;
        let mut reference = Reference::new(program);
        reference.stand_after(passed);
        for (t, batch) in tables.iter_enumerated() {
            reference.preload(t, rows(batch, &table_schema(&program.tables[t])));
        }
        let streams: Vec<&Stream> = source_streams(program).collect();
        for (s, source) in sources.iter().enumerate() {
            let stream = streams[source.source];
            if s >= streams.len() {
                reference.join(source.source, source.begin);
            } else if source.name.is_some() {
                reference.split(s);
            }
            let held: Vec<Vec<Value>> = source.held.iter().flat_map(|batch| rows(batch, &stream.schema)).collect();
            let times = held.iter().filter_map(|event| event[stream.own_time()?].word()).collect::<Vec<_>>();
            reference.send(s, source.is_sent);
            reference.stand(s, source.events, source.greatest, held);
            reference.anchor(source.anchor);
            source.punctuated.into_iter().for_each(|time| reference.punctuate(s, time));
            reference.set_end(s, source.ended, source.is_open);
            let late = source.aside.late.iter();
            let late = late.flat_map(|(batch, times)| times.iter().copied().zip(rows(batch, &stream.schema)));
            let late: Vec<(i64, Vec<Value>)> = late.collect();
            let bad = source.aside.bad.iter().map(|(time, bad)| (*time, bad_row(bad.clone())));
            match takes_late(program, source.source) {
                true => reference.stand_late(s, places(late, &source.aside.after, &times)),
                false => reference.stand_aside(s, late, Vec::new()),
            }
            reference.stand_aside(s, Vec::new(), bad.collect());
            for OpenBatch { stream: name, complete, events } in &source.batches {
                let events = events.iter().flat_map(|events| rows(events, &stream.schema)).collect();
                reference.stand_batch(name, *complete, events);
            }
        }
        let passing = vec![0; sources.len()];
        let splits = sources.into_iter().map(|of| (of.source, of.name)).collect();
        let (sent, due) = (VecDeque::new(), VecDeque::new());
        Ok(Walk { program, reference, history, epoch, splits, passing, sent, due, due_through: None })
    }

    /// Takes what the sources gave to the next epoch; `None` where the log ends. `untaken` is called for the events that
    /// nothing takes.
    pub fn next_epoch(&mut self, untaken: &mut dyn FnMut(Untaken)) -> Result<Option<PastEpoch>, AuditError> {
        let Some(mut epoch) = self.history.next_epoch()? else { return Ok(None) };
        let streams: Vec<&Stream> = source_streams(self.program).collect();
        epoch.joined.iter().for_each(|joined| self.join(joined));
        for (s, source) in epoch.sources.iter_mut().enumerate() {
            let stream = streams[source.source];
            self.reference.send(s, source.is_sent);
            for input in std::mem::take(&mut source.inputs) {
                let batch = match input {
                    LoggedInput::Records(batch) => batch,
                    LoggedInput::TooFar(FarEvent { event, bad }) => {
                        let event = rows(&event, &stream.schema).pop().expect("an event");
                        let (split, offset) = (self.number_of(s), self.reference.taken(s));
                        let why = WhyUntaken::Bad(bad.reason.clone());
                        untaken(Untaken { source: source.source, split, offset, event, why });
                        self.reference.reject(s, bad_row(bad));
                        self.reference.pass_over(s);
                        continue;
                    }
                    LoggedInput::Punctuation(time) => {
                        self.reference.punctuate(s, time);
                        continue;
                    }
                };
                let mut bad = batch.bad.into_iter().peekable();
                for (after, record) in rows(&batch.events, &stream.schema).into_iter().enumerate() {
                    while let Some(bad) = bad.next_if(|bad| bad.after <= after as u64) {
                        self.reference.reject(s, bad_row(bad));
                    }
                    let offset = self.reference.taken(s);
                    if !self.reference.take(s, record.clone()) {
                        let (split, why) = (self.number_of(s), WhyUntaken::Late);
                        untaken(Untaken { source: source.source, split, offset, event: record, why });
                    }
                }
                bad.for_each(|bad| self.reference.reject(s, bad_row(bad)));
            }
            self.reference.set_end(s, source.ended, source.is_open);
            let held = self.reference.held(s);
            if source.passed > held {
                return Err(AuditError::Differs(format!(
                    "epoch {} differs: the engine let {} events of source {} through, and the reference interpreter \
                     has {held}: the others came too late",
                    epoch.number, source.passed, stream.name
                )));
            }
        }
        self.reference.release_aside();
        self.passing = epoch.sources.iter().map(|source| source.passed).collect();
        self.sent = epoch.sent.iter().flat_map(|&(source, count)| repeat_n(source, count as usize)).collect();
        if let Some(DueCut { due, boundary }) = epoch.due {
            self.due = self.reference.due(self.program.dues()[due], boundary).into();
        }
        self.due_through = epoch.due_through;
        self.epoch = epoch.number;
        Ok(Some(epoch))
    }

    fn join(&mut self, joined: &JoinedSplit) {
        let JoinedSplit { source, split, mark, name } = joined;
        if *split == 0 {
            self.reference.split(*source);
            self.splits[*source].1 = Some(name.clone());
        } else {
            self.reference.join(*source, *mark);
            self.splits.push((*source, Some(name.clone())));
        }
    }

    /// Returns the number of a split in its source.
    fn number_of(&self, split: usize) -> usize {
        let (source, _) = self.splits[split];
        self.splits[..split].iter().filter(|(of, _)| *of == source).count()
    }

    /// Returns the names of the splits of a source that has several, by number.
    pub fn names(&self, source: usize) -> Vec<&str> {
        let of_source = self.splits.iter().filter(|(of, _)| *of == source);
        of_source.filter_map(|(_, name)| name.as_deref()).collect()
    }

    /// Returns an event's source as people write it, with the split if there are several.
    pub fn origin(&self, source: usize, split: usize) -> String {
        let stream = source_streams(self.program).nth(source).expect("a source of the program");
        match &self.names(source)[..] {
            [] | [_] => stream.name.clone(),
            names => format!("{}/{}", stream.name, short_name(names, split)),
        }
    }

    /// Returns the next event of the current epoch.
    pub fn next_event(&mut self) -> Option<NextEvent> {
        if let Some(through) = self.due_through.filter(|_| self.due.is_empty()) {
            let next = self.reference.next_time(&self.passing);
            self.due = self.reference.due_within(next.map_or(through, |next| next.min(through))).into();
        }
        if let Some(due) = self.due.pop_front() {
            return Some(due);
        }
        let timed = self.reference.next_event(&mut self.passing);
        let sent = |walk: &mut Self| walk.sent.pop_front().map(|source| walk.reference.next_of(source as usize));
        timed.or_else(|| sent(self))
    }

    /// Returns the program that is walked through.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// Returns the digests that were logged after the last epoch.
    pub fn noted(&mut self) -> Result<Vec<(u64, tidemill_runtime::EpochDigest)>, AuditError> {
        Ok(self.history.noted()?)
    }
}

/// Returns whether the late events of a source are inputs.
fn takes_late(program: &Program, source: usize) -> bool {
    let mut sources = program.streams.iter_enumerated().filter(|(_, s)| matches!(s.origin, Origin::Source { .. }));
    let id = sources.nth(source).map(|(id, _)| id);
    id.is_some_and(|id| program.streams.iter().any(|stream| stream.origin == Origin::LateRoot(id)))
}

/// Late events, each with where it stands, and how many of the held ones are before it: those that are not later where a
/// checkpoint does not say that, since it is of a program where late events were no inputs.
fn places(late: Vec<(i64, Vec<Value>)>, after: &[u64], held: &[i64]) -> Vec<(i64, u64, Vec<Value>)> {
    let place = |(n, (time, event)): (usize, (i64, Vec<Value>))| {
        let not_later = held.partition_point(|&other| other <= time) as u64;
        (time, after.get(n).copied().unwrap_or(not_later), event)
    };
    late.into_iter().enumerate().map(place).collect()
}

/// Returns the end of a split's name, after a slash, that no other one has.
fn short_name<'a>(names: &[&'a str], split: usize) -> &'a str {
    let name = names[split];
    let ends = name.rmatch_indices('/').map(|(at, _)| &name[at + 1..]);
    let is_own = |end: &&str| !end.is_empty() && names.iter().filter(|name| is_named(name, end)).count() == 1;
    ends.into_iter().find(is_own).unwrap_or(name)
}

/// Returns whether a split is the one that a user wrote: its name, or the end of it after a slash.
pub fn is_named(name: &str, written: &str) -> bool {
    name == written || name.strip_suffix(written).is_some_and(|before| before.ends_with('/'))
}

/// Opens a source as the state has recorded it.
pub fn recorded_source(directory: &StateDirectory, stream: &Stream) -> Result<Option<Box<dyn Source>>, IoFailure> {
    let recorded = directory.manifest().and_then(|manifest| manifest.recorded.as_ref());
    let Some(spec) = recorded.and_then(|recorded| recorded.sources.get(&stream.name)) else { return Ok(None) };
    let spec: Spec = serde_json::from_value(spec.clone())
        .map_err(|error| IoFailure::new(format!("its record in the state cannot be read: {error}")))?;
    standard_connectors().source(&spec)?.open(&stream.schema, &source_options()).map(Some)
}

/// Returns a record as it is on the `bad` stream.
fn bad_row(bad: BadRecord) -> Vec<Value> {
    let text = |text: Option<String>| text.map_or(Value::Null, Value::Str);
    let line = bad.line.map_or(Value::Null, |line| Value::Int(line as i64));
    vec![text(bad.origin), line, text(bad.column), Value::Str(bad.reason), text(bad.record)]
}

/// Returns the streams of a program's sources, by source number.
pub fn source_streams(program: &Program) -> impl Iterator<Item = &Stream> {
    program.streams.iter().filter(|s| matches!(s.origin, Origin::Source { .. }))
}

/// Returns the schema of a table's rows.
pub fn table_schema(table: &Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)))
}
