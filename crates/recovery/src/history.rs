//! The history of a state, for readers that reprocess it without the engine: the rows at a checkpoint, and each epoch
//! logged after it, with the input from its sources and the digests of its results.

use crate::ahead::TimedEvents;
use crate::checkpoint::{SourceAt, SplitName, restore_sources};
use crate::control::RunError;
use crate::digest::{EpochDigests, read_digests};
use crate::encoding::{Malformed, Reader};
use crate::entry::{EpochEntry, Ingested, JoinedSplit, LogSchemas};
use crate::intake::{Exactly, LoggedInput, Taken, in_order};
use crate::load::checkpoint_rows;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use std::time::Duration;
use tidemill_durability::{LogReader, StateDirectory, StateError};
use tidemill_io::{IoFailure, Next, Resumed, Source, SourceBatch};
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Program, Stream, TableId};
use tidemill_stages::due::DueCut;
use tidemill_stages::gate::sent::SourceRun;
use tidemill_stages::gate::{Aside, OpenBatch, Standing};
use tidemill_state::Table;
use typed_index_collections::TiVec;

/// The beginning of a history.
pub struct StartingPoint {
    /// The epoch after which it begins.
    pub epoch: u64,
    /// All rows of each table, in no order, by table.
    pub tables: TiVec<TableId, RecordBatch>,
    /// The position of each split, by split: the first of each source, then those that joined.
    pub sources: Vec<StartingSource>,
    /// The number of places of events of sources before those that come.
    pub passed: u64,
}

/// The position of a source.
#[derive(Default)]
pub struct StartingSource {
    /// The number of the source.
    pub source: usize,
    /// The name by which its source knows it, if that has several splits.
    pub name: Option<String>,
    /// The mark with which it began, if it joined after a time was shown.
    pub begin: Option<i64>,
    /// The number of events that were taken from the source.
    pub events: u64,
    /// The greatest time that it had delivered; without event time, the next counter value less one.
    pub greatest: Option<i64>,
    /// The greatest punctuation.
    pub punctuated: Option<i64>,
    /// The number of its events that had passed.
    pub passed: u64,
    /// A flag: whether the source had ended.
    pub ended: bool,
    /// A flag: whether further splits of its source may join.
    pub is_open: bool,
    /// A flag: whether its events were sent, and have anchored positions.
    pub is_sent: bool,
    /// If what is sent to it gets a time: that of the greatest position that had passed.
    pub anchor: Option<i64>,
    /// The held events, in order.
    pub held: Vec<RecordBatch>,
    /// The late and bad records that wait for their order.
    pub aside: Aside,
    /// The batches of its events that are begun.
    pub batches: Vec<OpenBatch>,
}

/// A past epoch.
pub struct PastEpoch {
    /// Its number.
    pub number: u64,
    /// The splits that joined before the epoch.
    pub joined: Vec<JoinedSplit>,
    /// The records of each split, by split.
    pub sources: Vec<PastSource>,
    /// The order of the events that passed and have anchored positions.
    pub sent: Vec<SourceRun>,
    /// If it had what was due at a time: which.
    pub due: Option<DueCut>,
    /// If rows woke within it: up to which time.
    pub due_through: Option<i64>,
    /// Digests of earlier epochs, as found in the log.
    pub digests: EpochDigests,
}

/// A split's contribution to a past epoch.
pub struct PastSource {
    /// The number of its source.
    pub source: usize,
    /// The records that were taken since the previous epoch.
    pub inputs: Vec<LoggedInput>,
    /// The number of its events that passed.
    pub passed: u64,
    /// A flag: whether the split had ended.
    pub ended: bool,
    /// A flag: whether further splits of its source may join.
    pub is_open: bool,
    /// A flag: whether its events were sent.
    pub is_sent: bool,
}

/// Opens the source of a stream for reading again, if it supports that.
pub type Reopen<'a> = dyn FnMut(&Stream) -> Result<Option<Box<dyn Source>>, IoFailure> + 'a;

/// The epochs after a starting point.
pub struct History {
    path: String,
    schemas: LogSchemas,
    names: Vec<String>,
    /// The times of each source's events, by source, if they have times.
    timed: Vec<Option<TimedEvents>>,
    log: LogReader,
    /// The sources that have several splits whose records are not in the log, by source.
    opened: Vec<Option<Box<dyn Source>>>,
    /// The splits whose records are not in the log, by split.
    sources: Vec<Option<Rereading>>,
}

impl History {
    /// Starts from a checkpoint: that of `directory`, or of one of its savepoints opened as a state of its own. `open`
    /// opens the source of a name for reading it again, if it supports that.
    pub fn open(
        directory: &StateDirectory,
        savepoint: Option<&StateDirectory>,
        program: &Program,
        open: &mut Reopen<'_>,
    ) -> Result<(StartingPoint, History), RunError> {
        let from = savepoint.unwrap_or(directory);
        let epoch = from.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let tables = state_rows(from, program)?;
        let mut standing = restore_sources(from, program)?;
        let streams: Vec<&Stream> = program.sources().collect();
        standing.resize_with(streams.len().max(standing.len()), Default::default);
        let (mut starts, mut sources) = (Vec::new(), Vec::new());
        let mut opened = Vec::new();
        for (number, at) in standing.into_iter().enumerate() {
            let SourceAt { standing, split, taken, token, .. } = at;
            let of = split.as_ref().map_or(number, |split| split.source);
            let stream = streams[of];
            let failed = |failure| RunError::Source { name: stream.name.clone(), failure };
            if opened.len() == number && number < streams.len() {
                let is_over = standing.ended && split.is_none();
                let source = if is_over { None } else { open(stream).map_err(failed)? };
                opened.push(source.filter(|source| source.replays()));
            }
            let reread = |source| Rereading::new(source, taken, token.as_deref());
            let source = match (&split, &mut opened[of]) {
                (_, None) => None,
                _ if standing.ended => None,
                (Some(split), Some(source)) => Some(open_split(source.as_mut(), &split.name).map_err(failed)?),
                // If it has several, their names are not known yet.
                (None, source) => source.take_if(|source| source.splits().is_none()),
            };
            sources.push(source.map(reread).transpose().map_err(failed)?);
            let Standing {
                begin,
                greatest,
                punctuated,
                passed,
                ended,
                is_open,
                is_sent,
                held,
                places: _,
                aside,
                batches,
                last_time,
            } = standing;
            starts.push(StartingSource {
                source: of,
                name: split.map(|split| split.name),
                begin,
                events: taken.events,
                greatest,
                punctuated,
                passed,
                ended,
                is_open,
                is_sent,
                anchor: last_time.filter(|_| stream.is_anchored()),
                held,
                aside,
                batches,
            });
        }
        let history = History {
            path: directory.path().display().to_string(),
            schemas: LogSchemas::of(program),
            names: streams.iter().map(|stream| stream.name.clone()).collect(),
            timed: streams.iter().map(|stream| TimedEvents::of(stream)).collect(),
            log: directory.log_behind(epoch)?,
            opened,
            sources,
        };
        let before = from.checkpoint().map_or(0, |checkpoint| checkpoint.passed_before);
        let passed = before + starts.iter().map(|start| start.passed).sum::<u64>();
        Ok((StartingPoint { epoch, tables, sources: starts, passed }, history))
    }

    /// Returns the next epoch; none at the end of the log.
    pub fn next_epoch(&mut self) -> Result<Option<PastEpoch>, RunError> {
        let Some(logged) = self.log.next_epoch()? else { return Ok(None) };
        let entry = EpochEntry::read(logged.epoch, &logged.payload, &self.schemas);
        let entry = entry.map_err(|error| self.malformed(logged.epoch, &error))?;
        let mut sources = Vec::new();
        entry.joined.iter().try_for_each(|joined| self.join(joined))?;
        for ((s, logged), passed) in entry.sources.into_iter().enumerate().zip(entry.passed.counts) {
            let batches = match logged.ingested {
                Ingested::Values(batches) => batches,
                Ingested::Again if logged.taken == Taken::default() => Vec::new(),
                Ingested::Again => {
                    let batches = self.read_again(logged.source, s, logged.taken)?;
                    let compared = logged.hashed.map_or(Ok(()), |hashed| hashed.compare(entry.epoch, &batches));
                    let name = &self.names[logged.source];
                    compared.map_err(|failure| RunError::Changed { name: name.clone(), reason: failure.message })?;
                    batches
                }
            };
            let inputs = in_order(batches, &logged.punctuations, &logged.too_far, self.timed[logged.source].as_ref());
            let (ended, is_open, is_sent) = (logged.ended, logged.is_open, logged.is_sent);
            let passed = passed as u64;
            sources.push(PastSource { source: logged.source, inputs, passed, ended, is_open, is_sent });
        }
        let mut digests = entry.digests;
        digests.extend(self.noted()?);
        Ok(Some(PastEpoch {
            number: entry.epoch,
            joined: entry.joined,
            sources,
            sent: entry.passed.sent,
            due: entry.passed.due,
            due_through: entry.passed.due_through,
            digests,
        }))
    }

    /// Digests that were noted after the last epoch, without an entry.
    pub fn noted(&mut self) -> Result<EpochDigests, RunError> {
        let mut digests = Vec::new();
        for note in self.log.take_notes() {
            let read = read_digests(&mut Reader(&note), &self.schemas.committed);
            digests.extend(read.map_err(|error| self.malformed(self.log.epoch(), &error))?);
        }
        Ok(digests)
    }

    fn malformed(&self, epoch: u64, Malformed(reason): &Malformed) -> RunError {
        let text = format!("epoch {epoch} of the log of {} does not read: {reason}", self.path);
        RunError::State(StateError::Refused(text))
    }

    fn join(&mut self, joined: &JoinedSplit) -> Result<(), RunError> {
        let failed = |failure| RunError::Source { name: self.names[joined.source].clone(), failure };
        let source = match &mut self.opened[joined.source] {
            Some(source) => Some(open_split(source.as_mut(), &joined.name).map_err(failed)?),
            None => None,
        };
        let reading = source.map(|source| Rereading { source, rest: None });
        match joined.split {
            0 => self.sources[joined.source] = reading,
            _ => self.sources.push(reading),
        }
        Ok(())
    }

    fn read_again(&mut self, source: usize, split: usize, taken: Taken) -> Result<Vec<SourceBatch>, RunError> {
        let name = &self.names[source];
        let failed = |failure| RunError::Source { name: name.clone(), failure };
        match &mut self.sources[split] {
            Some(reading) => reading.take(taken).map_err(failed),
            None => Err(failed(IoFailure::new("its records are not logged, and it is not known how to read it again"))),
        }
    }
}

/// Returns the rows of each table at a state's newest checkpoint, in no order.
pub fn state_rows(directory: &StateDirectory, program: &Program) -> Result<TiVec<TableId, RecordBatch>, StateError> {
    let states = directory.checkpoint().map(|checkpoint| checkpoint.tables.as_slice()).unwrap_or_default();
    let rows = |(definition, state)| {
        let table = Table::new(definition);
        let batches = checkpoint_rows(directory, &table, state)?.collect::<Result<Vec<_>, _>>()?;
        Ok(concat_batches(&arrow_schema(&table.schema()), &batches).expect("batches of one schema"))
    };
    program.tables.iter().zip(states).map(rows).collect()
}

/// Returns the positions of a program's sources after all that a state has, and whether its log has epochs after the
/// checkpoint. The events that are held back then are known only to the run that replays them: there are none in the
/// positions.
pub fn source_positions(directory: &StateDirectory, program: &Program) -> Result<(Vec<SourceAt>, bool), RunError> {
    let (mut sources, schemas) = (restore_sources(directory, program)?, LogSchemas::of(program));
    sources.resize_with(schemas.sources.len().max(sources.len()), Default::default);
    let mut log = directory.log_behind(directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch))?;
    let mut has_logged = false;
    while let Some(logged) = log.next_epoch()? {
        let entry = EpochEntry::read(logged.epoch, &logged.payload, &schemas).map_err(|Malformed(reason)| {
            StateError::Refused(format!("epoch {} of the log does not read: {reason}", logged.epoch))
        })?;
        for JoinedSplit { source, split, mark, name } in entry.joined {
            let split = Some(SplitName { source, split, name });
            let standing = Standing { begin: mark, ..Standing::default() };
            match split.as_ref().filter(|of| of.split == 0).map(|of| of.source) {
                Some(first) => sources[first].split = split,
                None => sources.push(SourceAt { standing, split, ..SourceAt::default() }),
            }
        }
        for ((at, entry), passed) in sources.iter_mut().zip(entry.sources).zip(entry.passed.counts) {
            at.taken.add(entry.taken);
            if entry.taken != Taken::default() {
                at.token = entry.token;
            }
            at.standing.ended |= entry.ended;
            at.standing.passed += passed as u64;
        }
        has_logged = true;
    }
    if has_logged {
        for SourceAt { standing, .. } in &mut sources {
            standing.held.clear();
            standing.places.clear();
            standing.aside = Aside::default();
        }
    }
    Ok((sources, has_logged))
}

/// Opens a split of a source.
pub fn open_split(source: &mut dyn Source, name: &str) -> Result<Box<dyn Source>, IoFailure> {
    let Some(splits) = source.splits() else {
        return Err(IoFailure::new(format!(
            "it was read as several splits, of which {name} is one, and is one stream now: a state keeps what it began with"
        )));
    };
    splits.open(name)
}

/// A source that is being read again.
struct Rereading {
    source: Box<dyn Source>,
    rest: Option<SourceBatch>,
}

impl Rereading {
    fn new(mut source: Box<dyn Source>, taken: Taken, token: Option<&str>) -> Result<Rereading, IoFailure> {
        let resumed = if taken == Taken::default() { Resumed::New } else { source.resume(token)? };
        let mut reading = Rereading { source, rest: None };
        if resumed == Resumed::Anew {
            reading.take(taken)?;
        }
        Ok(reading)
    }

    /// Takes exactly the wanted number of records.
    fn take(&mut self, wanted: Taken) -> Result<Vec<SourceBatch>, IoFailure> {
        let mut exactly = Exactly::new(wanted);
        while !exactly.is_done() {
            let rest = self.rest.take().map(Next::Batch);
            match rest.map_or_else(|| self.source.next(Duration::MAX), Ok)? {
                Next::Batch(batch) => exactly.give(batch)?,
                Next::Nothing => {}
                Next::End => return Err(exactly.missing()),
            }
        }
        let batches;
        (batches, self.rest) = exactly.end();
        Ok(batches)
    }
}
