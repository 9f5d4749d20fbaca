//! States on the medium: rows and what the gate holds, as blocks of a checkpoint file.

use super::entry::{BatchCodec, Malformed, Reader, read_batch};
use super::intake::Taken;
use crate::gate::Standing;
use arrow_array::RecordBatch;
use std::collections::BTreeMap;
use std::ops::Range;
use tidemill_durability::{
    Block, BlockReader, BlockWriter, Checkpoint, SourceState, StateDirectory, StateError, TableState,
};
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{StreamDigest, TableDigest, VIRTUAL_NODE_COUNT};
use tidemill_plan::Program;
use tidemill_state::{Image, Table};

/// Rows that make a block worth its overhead.
const BLOCK_ROWS: usize = 1 << 15;

/// Where a source stands at the end of an epoch.
pub struct SourceAt {
    /// At the gate.
    pub standing: Standing,
    /// What was taken of it.
    pub taken: Taken,
    /// How it can go on.
    pub token: Option<String>,
}

/// Writes blocks of batches.
pub struct BatchWriter {
    file: BlockWriter,
    codec: BatchCodec,
    bytes: Vec<u8>,
}

impl BatchWriter {
    /// Into a file.
    pub fn new(file: BlockWriter) -> Self {
        BatchWriter { file, codec: BatchCodec::default(), bytes: Vec::new() }
    }

    /// Writes a batch as a block.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<Block, StateError> {
        self.bytes.clear();
        self.codec.write(batch, &mut self.bytes);
        self.file.write(&self.bytes, batch.num_rows() as u64)
    }

    /// Writes rows of a table.
    pub fn write_rows(&mut self, rows: &RecordBatch, state: &mut TableState) -> Result<(), StateError> {
        state.groups.push(self.write(rows)?);
        state.digest = state.digest.with(TableDigest::of(rows));
        Ok(())
    }

    /// Writes where sources stand.
    pub fn write_sources(&mut self, sources: Vec<SourceAt>) -> Result<Vec<SourceState>, StateError> {
        let mut states = Vec::new();
        for SourceAt { standing, taken, token } in sources {
            let held = standing.held.iter().map(|batch| self.write(batch)).collect::<Result<_, _>>()?;
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
        Ok(states)
    }

    /// Makes all of it durable; its bytes.
    pub fn finish(self) -> Result<u64, StateError> {
        let length = self.file.length();
        self.file.finish().map(|()| length)
    }
}

/// The virtual nodes that go into one block each, of a table with so many slots.
pub fn groups(slots: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = slots.div_ceil(BLOCK_ROWS).next_power_of_two().min(VIRTUAL_NODE_COUNT);
    let nodes = VIRTUAL_NODE_COUNT / blocks;
    (0..blocks).map(move |block| block * nodes..(block + 1) * nodes)
}

/// Writes the state as it is while nothing runs; durable, but not yet the newest checkpoint.
pub fn save(
    directory: &mut StateDirectory,
    tables: &[Table],
    epoch: u64,
    sources: Vec<SourceAt>,
    outputs: BTreeMap<String, StreamDigest>,
) -> Result<Checkpoint, StateError> {
    let mut writer = BatchWriter::new(directory.write_blocks()?);
    let mut states = Vec::new();
    for table in tables {
        let mut state = TableState::default();
        for nodes in groups(table.stats().slots) {
            let mut image = Image::default();
            #[allow(unsafe_code)]
            // SAFETY: nothing runs, so nobody writes rows.
            unsafe {
                table.copy_nodes(nodes, &mut image);
            }
            if !image.is_empty() {
                writer.write_rows(&table.image_batch(&image), &mut state)?;
            }
        }
        states.push(state);
    }
    let sources = writer.write_sources(sources)?;
    writer.finish()?;
    Ok(Checkpoint { epoch, sources, tables: states, outputs })
}

/// Puts the rows of the newest checkpoint into empty tables; where its sources stood.
pub fn restore(directory: &StateDirectory, tables: &[Table], program: &Program) -> Result<Vec<SourceAt>, StateError> {
    let Some(checkpoint) = directory.checkpoint() else { return Ok(Vec::new()) };
    let mut blocks = directory.blocks();
    for (table, state) in tables.iter().zip(&checkpoint.tables) {
        let name = &table.definition().name;
        let schema = arrow_schema(&table.schema());
        let mut digest = TableDigest::default();
        for block in &state.groups {
            let rows = batch(&mut blocks, block, &schema, &format!("rows of table {name}"))?;
            digest = digest.with(TableDigest::of(&rows));
            table.preload(&rows).map_err(|error| StateError::Refused(format!("the checkpoint is wrong: {error}")))?;
        }
        if digest != state.digest {
            return Err(StateError::Refused(format!(
                "the rows of table {name} in the checkpoint of epoch {} are not those that were written: {} rows with \
                 the digest {:016x}, and {} with {:016x} were",
                checkpoint.epoch, digest.rows, digest.hash, state.digest.rows, state.digest.hash
            )));
        }
    }
    let streams = program.streams.iter().filter(|s| matches!(s.origin, tidemill_plan::Origin::Source { .. }));
    let source = |(state, stream): (&SourceState, &tidemill_plan::Stream)| {
        let schema = arrow_schema(&stream.schema);
        let what = format!("events of source {}", stream.name);
        let held =
            state.held.iter().map(|block| batch(&mut blocks, block, &schema, &what)).collect::<Result<_, _>>()?;
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
    blocks: &mut BlockReader,
    block: &Block,
    schema: &arrow_schema::SchemaRef,
    what: &str,
) -> Result<RecordBatch, StateError> {
    let bytes = blocks.read(block, what)?;
    read_batch(&mut Reader(&bytes), schema)
        .map_err(|Malformed(reason)| StateError::Refused(format!("a checkpoint's {what} do not read: {reason}")))
}
