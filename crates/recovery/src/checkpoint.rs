//! States on the medium: rows as runs, and the gate's state as blocks.

use crate::answered::{KeyMerge, Pages};
use crate::begin_run::BeginRun;
use crate::encoding::{BatchCodec, Malformed, Reader, number, read_batch};
use crate::entry::{read_bad, write_bad};
use crate::intake::Taken;
use crate::kept::{KeptStreams, read_kept, write_kept};
use crate::lateness::keep_marks;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_durability::store::{Merging, OpenRun, RunWriter, Runs, due};
use tidemill_durability::{
    BatchState, Block, BlockReader, BlockWriter, Bug, CallKey, Checkpoint, KeptState, NodeRange, Planted, Proof,
    SourceState, SplitState, StateDirectory, StateError, TableState,
};
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{StreamDigest, VIRTUAL_NODE_COUNT};
use tidemill_plan::Program;
use tidemill_stages::access::snapshot::{SnapshotDue, begin_snapshots};
use tidemill_stages::gate::{Aside, OpenBatch, Standing};
use tidemill_stages::machine::Machine;
use tidemill_state::{Generation, Table, virtual_node_of};

/// A split of a source that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitName {
    /// The number of its source.
    pub source: usize,
    /// Its number there.
    pub split: u32,
    /// The name by which its source knows it.
    pub name: String,
}

/// The position of a split at the end of an epoch; of a source with one split, that of the source.
#[derive(Default)]
pub struct SourceAt {
    /// Its standing at the gate.
    pub standing: Standing,
    /// The split, of a source that has several.
    pub split: Option<SplitName>,
    /// The records that were taken from the split.
    pub taken: Taken,
    /// A token from which it can continue.
    pub token: Option<String>,
    /// The keys of calls that the gate holds back.
    pub keys: Vec<CallKey>,
    /// The records that no run is given again: runs took them that came to the end of their input, and none after them,
    /// or sessions sent them.
    pub before: Taken,
}

/// The runs that precede those of a checkpoint, by table.
pub enum Before {
    /// The runs of the previous checkpoint, or none.
    Newest(Vec<TableState>),
    /// The current runs of the tables, with a memory limit, of which the newest need not be durable.
    Live(Vec<Arc<Runs>>),
}

impl Before {
    /// Returns the runs before a checkpoint. `live`: with a memory limit. Without one, none if all rows are written.
    pub fn of(directory: &StateDirectory, whole: bool, live: Option<Vec<Arc<Runs>>>) -> Self {
        let newest = || directory.checkpoint().filter(|_| !whole).map(|newest| newest.tables.clone());
        live.map_or_else(|| Before::Newest(newest().unwrap_or_default()), Before::Live)
    }

    fn has_runs(&self, table: usize) -> bool {
        match self {
            Before::Newest(tables) => tables.get(table).is_some_and(|table| !table.runs.is_empty()),
            Before::Live(tables) => !tables[table].is_empty(),
        }
    }
}

/// Returns the tables of a checkpoint for which these runs were written; makes all runs durable that are not durable
/// yet.
pub fn tables(before: &Before, written: &[Option<OpenRun>], planted: Planted) -> Result<Vec<TableState>, StateError> {
    let mut states = match before {
        Before::Newest(tables) => tables.clone(),
        Before::Live(tables) => {
            let state = |runs: &Arc<Runs>| {
                if planted.is(Bug::CheckpointForgetsSpills) {
                    return Ok(TableState { runs: runs.named_durable() });
                }
                if !planted.is(Bug::SpillsUnsynced) {
                    runs.sync(planted)?;
                }
                Ok(TableState { runs: runs.named() })
            };
            assert_eq!(tables.len(), written.len(), "a checkpoint is of all tables");
            tables.iter().map(state).collect::<Result<_, StateError>>()?
        }
    };
    states.resize_with(written.len(), TableState::default);
    for (state, run) in states.iter_mut().zip(written) {
        state.runs.extend(run.iter().map(|run| run.run().clone()));
    }
    Ok(states)
}

/// Writes the rows of the open snapshots, virtual node by virtual node: one run for each table that has any.
#[derive(Default)]
pub struct SnapshotWriter {
    /// The next table, and the next of its nodes.
    table: usize,
    node: usize,
    /// The run of the current table, once it has a row.
    writer: Option<RunWriter>,
    written: Vec<Option<OpenRun>>,
}

impl SnapshotWriter {
    /// Writes the next virtual node, into a run after the runs `before`. Returns the number of rows copied; none if
    /// there are no more nodes. After an error, the snapshots still have to be ended ([`SnapshotWriter::abandon`]).
    pub fn step(
        &mut self,
        machine: &Machine,
        before: &Before,
        begin: &mut BeginRun<'_>,
    ) -> Result<Option<usize>, StateError> {
        let Some(table) = machine.tables.raw.get(self.table) else { return Ok(None) };
        assert!(self.node < VIRTUAL_NODE_COUNT, "a table is left after its last node");
        assert!(table.is_in_snapshot(), "a snapshot has begun before its rows are copied");
        #[allow(unsafe_code)]
        // SAFETY: epochs save their rows before they change them.
        let rows = unsafe { table.capture(self.node) };
        debug_assert!(
            (0..rows.len()).all(|row| virtual_node_of(rows.hash(row)) == self.node),
            "the rows of a node have keys of that node"
        );
        if !rows.is_empty() {
            if self.writer.is_none() {
                let filter = before.has_runs(self.table).then(|| table.snapshot_rows());
                self.writer = Some(begin(table.shape(), filter)?);
            }
            self.writer.as_mut().expect("just begun").push(&rows)?;
        }
        self.node += 1;
        if self.node == VIRTUAL_NODE_COUNT {
            self.written.push(self.writer.take().map(RunWriter::finish).transpose()?);
            table.end_snapshot();
            (self.table, self.node) = (self.table + 1, 0);
        }
        Ok(Some(rows.len()))
    }

    /// Returns the written runs by table, after the last node.
    pub fn end(self, machine: &Machine) -> Vec<Option<OpenRun>> {
        assert_eq!(self.table, machine.tables.len(), "a snapshot is written to its end");
        assert!(self.writer.is_none(), "no run is left open");
        self.written
    }

    /// Ends the snapshots that are still open.
    pub fn abandon(self, machine: &Machine) {
        machine.tables.raw[self.table..].iter().for_each(Table::end_snapshot);
    }
}

/// Writes all rows of the open snapshots, and ends the snapshots in any case.
fn write_rows(
    machine: &Machine,
    before: &Before,
    begin: &mut BeginRun<'_>,
) -> Result<Vec<Option<OpenRun>>, StateError> {
    let mut writer = SnapshotWriter::default();
    loop {
        match writer.step(machine, before, begin) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(writer.end(machine)),
            Err(error) => {
                writer.abandon(machine);
                return Err(error);
            }
        }
    }
}

/// Merges the runs of the newest checkpoint, for tables that have too many, and those of keys; the manifest then names the
/// merged runs.
pub struct RunMerger {
    checkpoint: Checkpoint,
    /// The next table, and the running merge of the one before it.
    table: usize,
    merging: Option<Merging>,
    /// The running merge of keys, which comes after the tables.
    keys: Option<KeyMerge>,
    merged: bool,
}

impl RunMerger {
    /// A merger for the newest checkpoint, if there is one. With a memory limit those of tables are merged elsewhere.
    pub fn new(directory: &StateDirectory, with_tables: bool) -> Option<RunMerger> {
        let checkpoint = directory.checkpoint()?.clone();
        let table = if with_tables { 0 } else { checkpoint.tables.len() };
        Some(RunMerger { checkpoint, table, merging: None, keys: None, merged: false })
    }

    /// Merges about this number of rows; returns whether there is more to do.
    pub fn step(
        &mut self,
        machine: &Machine,
        directory: &Mutex<StateDirectory>,
        answers: &Pages,
        rows_max: usize,
    ) -> Result<bool, StateError> {
        if let Some(keys) = &mut self.keys {
            if !keys.step(rows_max)? {
                self.checkpoint.keys = answers.end_merge(self.keys.take().expect("just looked at"))?;
                self.merged = true;
            }
            return Ok(true);
        }
        if let Some(merging) = &mut self.merging {
            if !merging.step(rows_max)? {
                let merging = self.merging.take().expect("just looked at");
                let run = merging.end().finish()?.run().clone();
                self.checkpoint.tables[self.table - 1].runs.push(run);
                self.merged = true;
            }
            return Ok(true);
        }
        let (Some(table), Some(state)) =
            (machine.tables.raw.get(self.table), self.checkpoint.tables.get_mut(self.table))
        else {
            self.keys = answers.begin_merge(machine, &mut |shape, filter| directory.lock().write_run(shape, filter))?;
            if self.keys.is_some() {
                return Ok(true);
            }
            if std::mem::take(&mut self.merged) {
                let directory = &mut *directory.lock();
                let newest = directory.checkpoint().map(|newest| newest.epoch);
                assert_eq!(newest, Some(self.checkpoint.epoch), "runs are merged of the newest checkpoint");
                directory.switch(self.checkpoint.clone())?;
            }
            return Ok(false);
        };
        self.table += 1;
        if let Some(first) = due(&state.runs) {
            let old = state.runs.split_off(first);
            let mut directory = directory.lock();
            let runs = directory.runs(&old, table.shape(), &table.definition().name)?;
            let filter = (first > 0).then_some(runs.rows() as usize);
            let into = directory.write_run(table.shape(), filter)?;
            self.merging = Some(Merging::new(&runs, into, first == 0)?);
        }
        Ok(true)
    }
}

/// Merges everything at once ([`RunMerger`]).
pub fn merge(machine: &Machine, directory: &Mutex<StateDirectory>, answers: &Pages) -> Result<(), StateError> {
    let Some(mut merger) = RunMerger::new(&directory.lock(), true) else { return Ok(()) };
    while merger.step(machine, directory, answers, usize::MAX)? {}
    Ok(())
}

/// Makes a checkpoint forget parts of the gate, if such a bug is planted.
pub fn forget(sources: &mut [SourceAt], planted: Planted) {
    for SourceAt { standing, keys, .. } in sources {
        if planted.is(Bug::CheckpointForgetsKeys) {
            keys.clear();
        }
        if planted.is(Bug::CheckpointForgetsOrder) {
            standing.places.clear();
        }
        if planted.is(Bug::CheckpointForgetsBatches) {
            standing.batches.clear();
        }
    }
}

/// Writes the held events of sources, if there are any.
pub fn write_sources(
    sources: Vec<SourceAt>,
    begin: &mut dyn FnMut() -> Result<BlockWriter, StateError>,
) -> Result<Vec<SourceState>, StateError> {
    let (mut file, mut codec, mut bytes) = (None, BatchCodec::default(), Vec::new());
    let mut states = Vec::new();
    for SourceAt { standing, split, taken, token, keys, before } in sources {
        let in_gate = standing.held.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        assert!(standing.passed + in_gate <= taken.events, "what has passed or is held was taken from the source");
        let mut write = |fill: &mut dyn FnMut(&mut Vec<u8>), rows: u64| {
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(begin()?),
            };
            bytes.clear();
            fill(&mut bytes);
            file.write(&bytes, rows)
        };
        let mut batches = |batches: &mut dyn Iterator<Item = &RecordBatch>| -> Result<Vec<Block>, StateError> {
            batches.map(|batch| write(&mut |bytes| codec.write(batch, bytes), batch.num_rows() as u64)).collect()
        };
        let held = batches(&mut standing.held.iter())?;
        let late = batches(&mut standing.aside.late.iter().map(|(batch, _)| batch))?;
        let open = standing.batches.iter().map(|of| {
            let events = batches(&mut of.events.iter())?;
            Ok(BatchState { stream: of.stream.clone(), complete: of.complete, events })
        });
        let open: Vec<BatchState> = open.collect::<Result<_, StateError>>()?;
        let aside = (!standing.aside.is_empty()).then(|| write(&mut |bytes| write_aside(&standing.aside, bytes), 0));
        let after = &standing.aside.after;
        let late_after = (!after.is_empty()).then(|| write(&mut |bytes| write_after(after, bytes), 0));
        states.push(SourceState {
            split: split.map(|SplitName { source, split, name }| SplitState { source, split, name }),
            begin: standing.begin,
            token,
            events: taken.events,
            bad: taken.bad,
            events_before: before.events,
            bad_before: before.bad,
            ended: standing.ended,
            open: standing.is_open,
            sent: standing.is_sent,
            places: standing.places,
            greatest: standing.greatest,
            punctuated: standing.punctuated,
            passed: standing.passed,
            last_time: standing.last_time,
            held,
            keys,
            late,
            aside: aside.transpose()?,
            late_after: late_after.transpose()?,
            batches: open,
        });
    }
    file.map_or(Ok(()), BlockWriter::finish)?;
    Ok(states)
}

/// Appends where late events stand, and the bad records with where they do.
fn write_aside(Aside { late, bad, .. }: &Aside, into: &mut Vec<u8>) {
    number(into, late.len() as u64);
    for (_, times) in late {
        number(into, times.len() as u64);
        times.iter().for_each(|time| into.extend_from_slice(&time.to_le_bytes()));
    }
    number(into, bad.len() as u64);
    for (time, bad) in bad {
        into.extend_from_slice(&time.to_le_bytes());
        write_bad(bad, 0, into);
    }
}

fn write_after(after: &[u64], into: &mut Vec<u8>) {
    number(into, after.len() as u64);
    after.iter().for_each(|&before| number(into, before));
}

fn read_after(reader: &mut Reader<'_>, aside: &Aside) -> Result<Vec<u64>, Malformed> {
    if reader.number()? != aside.late.iter().map(|(_, times)| times.len() as u64).sum::<u64>() {
        return Err(Malformed("it is of another number of late events".into()));
    }
    let late = aside.late.iter().flat_map(|(_, times)| times);
    late.map(|_| reader.number()).collect()
}

fn read_aside(reader: &mut Reader<'_>, batches: Vec<RecordBatch>) -> Result<Aside, Malformed> {
    if reader.number()? != batches.len() as u64 {
        return Err(Malformed("it is of other batches".into()));
    }
    let mut aside = Aside::default();
    for batch in batches {
        if reader.number()? != batch.num_rows() as u64 {
            return Err(Malformed("it is of another number of late events".into()));
        }
        let times = (0..batch.num_rows()).map(|_| Ok(reader.word()? as i64)).collect::<Result<_, Malformed>>()?;
        aside.late.push((batch, times));
    }
    for _ in 0..reader.number()? {
        aside.bad.push((reader.word()? as i64, read_bad(reader)?));
    }
    Ok(aside)
}

/// A state at rest, to be written.
pub struct AtRest {
    /// The last epoch that the state contains.
    pub epoch: u64,
    /// The positions of the sources.
    pub sources: Vec<SourceAt>,
    /// The digest of each sink's output, by sink.
    pub outputs: BTreeMap<String, StreamDigest>,
    /// The mark of the rows that have changed since the last checkpoint.
    pub generation: Generation,
    /// A flag: whether all rows are to be written.
    pub whole: bool,
    /// The current runs of the tables, with a memory limit.
    pub live: Option<Vec<Arc<Runs>>>,
    /// The chain of proof at that epoch; none if none is kept.
    pub proof: Option<Proof>,
}

/// The results of epochs that are needed after them: answers to repeated calls, and kept events of streams.
#[derive(Debug, Default)]
pub struct Remembered {
    /// The answers of calls with a key.
    pub answers: Pages,
    /// The last events of streams.
    pub kept: KeptStreams,
}

impl Remembered {
    /// Returns what the newest checkpoint has of answers and kept events, for a run with so many keys in memory.
    pub fn read(directory: &StateDirectory, machine: &Machine, keys_max: usize) -> Result<Remembered, StateError> {
        let answers = Pages::read(directory, machine, keys_max)?;
        Ok(Remembered { answers, kept: read_kept(directory, &machine.program)? })
    }

    /// The events of streams in a checkpoint of an epoch, which follows `before`.
    pub fn write_kept(
        &self,
        program: &Program,
        before: Option<&Checkpoint>,
        epoch: u64,
        begin: &mut dyn FnMut() -> Result<BlockWriter, StateError>,
    ) -> Result<Vec<KeptState>, StateError> {
        write_kept(program, before, &self.kept, epoch, begin)
    }
}

/// Writes the current state while nothing runs. The result is durable, but not yet the newest checkpoint.
/// `remembered`: what the epochs have given since the checkpoint before; none if no epoch has run.
pub fn save(
    directory: &mut StateDirectory,
    machine: &Machine,
    state: AtRest,
    remembered: Option<&Remembered>,
) -> Result<Checkpoint, StateError> {
    let AtRest { epoch, sources, outputs, generation, whole, live, proof } = state;
    let before = Before::of(directory, whole, live);
    begin_snapshots(machine, SnapshotDue { generation, whole });
    let begin = &mut |shape: &_, filter| directory.write_run(shape, filter);
    let written = write_rows(machine, &before, begin)?;
    assert!(!machine.tables.iter().any(Table::is_in_snapshot), "a snapshot ends with its last row");
    let tables = tables(&before, &written, directory.planted())?;
    let sources = write_sources(sources, &mut || directory.write_blocks())?;
    let newest = directory.checkpoint().cloned();
    let (answers, keys, kept) = match remembered {
        Some(remembered) => {
            let (planted, begin) = (directory.planted(), &mut |shape: &_, filter| directory.write_run(shape, filter));
            let (answers, keys) = remembered.answers.write(machine, epoch, planted, begin)?;
            let begin = &mut || directory.write_blocks();
            (answers, keys, remembered.write_kept(&machine.program, newest.as_ref(), epoch, begin)?)
        }
        None => newest.map(|newest| (newest.answers, newest.keys, newest.kept)).unwrap_or_default(),
    };
    let (nodes, passed_before) = (NodeRange::default(), machine.passed_before());
    Ok(Checkpoint { epoch, sources, tables, outputs, answers, keys, kept, proof, nodes, passed_before })
}

/// Returns the positions of a program's sources in the newest checkpoint.
pub fn restore_sources(directory: &StateDirectory, program: &Program) -> Result<Vec<SourceAt>, StateError> {
    let Some(manifest) = directory.manifest() else { return Ok(Vec::new()) };
    let mut checkpoint = manifest.checkpoint.clone();
    keep_marks(&mut checkpoint, &manifest.program, program);
    let blocks = directory.blocks();
    let streams: Vec<&tidemill_plan::Stream> = program.sources().collect();
    let source = |(number, state): (usize, &SourceState)| {
        let number = state.split.as_ref().map_or(number, |split| split.source);
        let Some(stream) = streams.get(number) else {
            return Err(StateError::Refused(format!(
                "a checkpoint has a position of source number {number}, and there is none"
            )));
        };
        let schema = arrow_schema(&stream.schema);
        let what = format!("events of source {}", stream.name);
        let held: Vec<RecordBatch> =
            state.held.iter().map(|block| batch(&blocks, block, &schema, &what)).collect::<Result<_, _>>()?;
        if !agrees(state, stream, &held) {
            let text = format!("a checkpoint's position of source {} does not agree with its {what}", stream.name);
            return Err(StateError::Refused(text));
        }
        let late: Vec<RecordBatch> =
            state.late.iter().map(|block| batch(&blocks, block, &schema, &what)).collect::<Result<_, _>>()?;
        let mut aside = match &state.aside {
            None => Aside::default(),
            Some(block) => {
                let what = format!("late and bad records of source {}", stream.name);
                let bytes = blocks.read(block, &what)?;
                read_aside(&mut Reader(&bytes), late).map_err(|Malformed(reason)| {
                    StateError::Refused(format!("a checkpoint's {what} do not read: {reason}"))
                })?
            }
        };
        if let Some(block) = &state.late_after {
            let what = format!("places of late events of source {}", stream.name);
            let bytes = blocks.read(block, &what)?;
            aside.after = read_after(&mut Reader(&bytes), &aside).map_err(|Malformed(reason)| {
                StateError::Refused(format!("a checkpoint's {what} do not read: {reason}"))
            })?;
        }
        let begun = |of: &BatchState| -> Result<OpenBatch, StateError> {
            let parts: Vec<RecordBatch> =
                of.events.iter().map(|block| batch(&blocks, block, &schema, &what)).collect::<Result<_, _>>()?;
            Ok(OpenBatch { stream: of.stream.clone(), complete: of.complete, events: parts.into_iter().next() })
        };
        let batches = state.batches.iter().map(begun).collect::<Result<_, _>>()?;
        let standing = Standing {
            begin: state.begin,
            greatest: state.greatest,
            punctuated: state.punctuated,
            passed: state.passed,
            last_time: state.last_time,
            ended: state.ended,
            is_open: state.open,
            is_sent: state.sent,
            held,
            places: state.places.clone(),
            aside,
            batches,
        };
        Ok(SourceAt {
            standing,
            split: state.split.clone().map(|SplitState { source, split, name }| SplitName { source, split, name }),
            taken: Taken { events: state.events, bad: state.bad },
            token: state.token.clone(),
            keys: state.keys.clone(),
            before: Taken { events: state.events_before, bad: state.bad_before },
        })
    };
    checkpoint.sources.iter().enumerate().map(source).collect()
}

/// Returns whether a source's position can be true: it has delivered what has passed and what is held, which is in the
/// order of time.
fn agrees(state: &SourceState, stream: &tidemill_plan::Stream, held: &[RecordBatch]) -> bool {
    let count: u64 = held.iter().map(|batch| batch.num_rows() as u64).sum();
    let times = |batch: &RecordBatch| -> Vec<i64> {
        let Some(column) = stream.event_time.map(|field| batch.column(field)) else { return Vec::new() };
        let ints = column.as_primitive_opt::<Int64Type>().map(|ints| ints.values().to_vec());
        ints.unwrap_or_else(|| column.as_primitive::<TimestampMicrosecondType>().values().to_vec())
    };
    let is_sorted = held.iter().flat_map(times).is_sorted();
    let placed = state.places.iter().try_fold(0, |sum: u64, (_, count)| sum.checked_add(*count));
    let has_places = state.places.is_empty() || state.sent && placed == Some(count);
    is_sorted && has_places && state.passed.checked_add(count).is_some_and(|taken| taken <= state.events)
}

fn batch(
    blocks: &BlockReader,
    block: &Block,
    schema: &arrow_schema::SchemaRef,
    what: &str,
) -> Result<RecordBatch, StateError> {
    let bytes = blocks.read(block, what)?;
    read_batch(&mut Reader(&bytes), schema)
        .map_err(|Malformed(reason)| StateError::Refused(format!("a checkpoint's {what} do not read: {reason}")))
}
