//! States on the medium: rows as runs, and what the gate holds as blocks.

use super::capture::begin_snapshots;
use super::entry::{BatchCodec, Malformed, Reader, read_batch};
use super::intake::Taken;
use crate::gate::Standing;
use crate::worker::Machine;
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_durability::store::{RunWriter, due};
use tidemill_durability::{
    Block, BlockReader, BlockWriter, Bug, Checkpoint, SourceState, StateDirectory, StateError, TableState,
};
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{StreamDigest, VIRTUAL_NODE_COUNT};
use tidemill_plan::Program;
use tidemill_state::{Generation, RowShape, Table};

/// Where a source stands at the end of an epoch.
#[derive(Default)]
pub struct SourceAt {
    /// At the gate.
    pub standing: Standing,
    /// What was taken of it.
    pub taken: Taken,
    /// How it can go on.
    pub token: Option<String>,
}

/// Begins a run of rows of some shape.
pub type BeginRun<'a> = dyn FnMut(&Arc<RowShape>) -> Result<RunWriter, StateError> + 'a;

/// Writes the rows of the snapshots that are open and ends them, whatever happens: the runs of each table then,
/// those `before` first unless all rows are written, the cold ones too. `worked` is told of so many rows now and then.
pub fn write_rows(
    machine: &Machine,
    mut before: Vec<TableState>,
    whole: bool,
    begin: &mut BeginRun<'_>,
    worked: &mut dyn FnMut(usize),
) -> Result<Vec<TableState>, StateError> {
    before.resize_with(machine.tables.len(), TableState::default);
    let mut written = Ok(Vec::new());
    for (table, before) in machine.tables.iter().zip(before) {
        if let Ok(tables) = &mut written {
            match write_table(table, begin, worked) {
                Ok(run) => {
                    let old = if whole && !table.has_cold_rows() { Vec::new() } else { before.runs };
                    tables.push(TableState { runs: old.into_iter().chain(run).collect() });
                }
                Err(error) => written = Err(error),
            }
        }
        table.end_snapshot();
    }
    written
}

/// Writes the rows of a table's snapshot, if there are any.
fn write_table(
    table: &Table,
    begin: &mut BeginRun<'_>,
    worked: &mut dyn FnMut(usize),
) -> Result<Option<tidemill_durability::store::Run>, StateError> {
    let mut writer = None;
    for node in 0..VIRTUAL_NODE_COUNT {
        #[allow(unsafe_code)]
        // SAFETY: epochs save their rows before they change them.
        let rows = unsafe { table.capture(node) };
        worked(rows.len());
        if !rows.is_empty() {
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(begin(table.shape())?),
            };
            writer.push(&rows)?;
            worked(rows.len());
        }
    }
    writer.map(RunWriter::finish).transpose()
}

/// Merges the runs of tables that have too many, if any, and has the manifest name what they became.
pub fn merge(
    machine: &Machine,
    directory: &Mutex<StateDirectory>,
    worked: &mut dyn FnMut(usize),
) -> Result<(), StateError> {
    let (checkpoint, planted) = {
        let directory = directory.lock();
        (directory.checkpoint().cloned(), directory.planted())
    };
    let Some(mut checkpoint) = checkpoint else { return Ok(()) };
    let mut merged = false;
    for (table, state) in machine.tables.iter().zip(&mut checkpoint.tables) {
        let Some(first) = due(&state.runs) else { continue };
        let mut old = state.runs.split_off(first);
        if planted.is(Bug::MergeTurnsOrder) {
            old.reverse();
        }
        let (runs, into) = {
            let mut directory = directory.lock();
            let runs = directory.runs(&old, table.shape(), &table.definition().name)?;
            (runs, directory.write_run(table.shape())?)
        };
        state.runs.push(runs.merge(into, first == 0, planted, worked)?);
        merged = true;
    }
    if merged { directory.lock().switch(checkpoint) } else { Ok(()) }
}

/// Writes what the gate holds of sources, if it holds anything.
pub fn write_sources(
    sources: Vec<SourceAt>,
    begin: &mut dyn FnMut() -> Result<BlockWriter, StateError>,
) -> Result<Vec<SourceState>, StateError> {
    let (mut file, mut codec, mut bytes) = (None, BatchCodec::default(), Vec::new());
    let mut states = Vec::new();
    for SourceAt { standing, taken, token } in sources {
        let mut held = Vec::new();
        for batch in &standing.held {
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(begin()?),
            };
            bytes.clear();
            codec.write(batch, &mut bytes);
            held.push(file.write(&bytes, batch.num_rows() as u64)?);
        }
        states.push(SourceState {
            token,
            events: taken.events,
            bad: taken.bad,
            ended: standing.ended,
            greatest: standing.greatest,
            passed: standing.passed,
            last_time: standing.last_time,
            held,
        });
    }
    file.map_or(Ok(()), BlockWriter::finish)?;
    Ok(states)
}

/// What is to be written of a state at rest.
pub struct AtRest {
    /// Of the end of which epoch.
    pub epoch: u64,
    /// Where the sources stand.
    pub sources: Vec<SourceAt>,
    /// By sink: what went to it.
    pub outputs: BTreeMap<String, StreamDigest>,
    /// What epochs have marked as since the last checkpoint.
    pub generation: Generation,
    /// Whether all rows are to be written.
    pub whole: bool,
}

/// Writes the state as it is while nothing runs; durable, but not yet the newest checkpoint.
pub fn save(directory: &mut StateDirectory, machine: &Machine, state: AtRest) -> Result<Checkpoint, StateError> {
    let AtRest { epoch, sources, outputs, generation, whole } = state;
    let before = directory.checkpoint().map_or(Vec::new(), |newest| newest.tables.clone());
    begin_snapshots(machine, generation, whole);
    let tables = write_rows(machine, before, whole, &mut |shape| directory.write_run(shape), &mut |_| {})?;
    let sources = write_sources(sources, &mut || directory.write_blocks())?;
    Ok(Checkpoint { epoch, sources, tables, outputs })
}

/// Where the sources stood in the newest checkpoint.
pub fn restore_sources(directory: &StateDirectory, program: &Program) -> Result<Vec<SourceAt>, StateError> {
    let Some(checkpoint) = directory.checkpoint() else { return Ok(Vec::new()) };
    let blocks = directory.blocks();
    let streams = program.streams.iter().filter(|s| matches!(s.origin, tidemill_plan::Origin::Source { .. }));
    let source = |(state, stream): (&SourceState, &tidemill_plan::Stream)| {
        let schema = arrow_schema(&stream.schema);
        let what = format!("events of source {}", stream.name);
        let held = state.held.iter().map(|block| batch(&blocks, block, &schema, &what)).collect::<Result<_, _>>()?;
        let standing = Standing {
            greatest: state.greatest,
            passed: state.passed,
            last_time: state.last_time,
            ended: state.ended,
            held,
        };
        Ok(SourceAt { standing, taken: Taken { events: state.events, bad: state.bad }, token: state.token.clone() })
    };
    checkpoint.sources.iter().zip(streams).map(source).collect()
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
