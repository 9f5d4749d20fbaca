//! Streams whose last events are kept, so that they can be followed from an earlier place.
//!
//! A session has the events that were released; a checkpoint has those of the epochs that it replaces, as blocks: those
//! since the checkpoint before, and the blocks before that, until enough later events are kept.
//!
//! # Invariant
//!
//! Every event of the stream at a place after [`Kept::lost`] that was given is kept, in order. A run begins with those of
//! its checkpoint, and the replay gives again what follows them; so a follower goes on across a crash, and across an end.
//! When a checkpoint of an epoch is written, [`KeptStreams`] has the events of all epochs up to it: the committer adds
//! them in the order of epochs, before it reports that the epoch's snapshot has begun.

use crate::encoding::{BatchCodec, Malformed, Reader, number, read_batch};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tidemill_durability::{BlockWriter, Bug, Checkpoint, KeptBlock, KeptState, Place, StateDirectory, StateError};
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Program, Stream, StreamId};

/// The number of blocks, beside those that are full, from which on a checkpoint writes all events of a stream anew.
const BLOCKS_MAX: usize = 16;
/// The number of events from which on further ones are written as another block.
const BLOCK_ROWS: usize = 1 << 16;

/// Events of a followed stream, of one epoch.
#[derive(Clone, Debug)]
pub struct Released {
    /// The epoch.
    pub epoch: u64,
    /// Its punctuation: every event with a time below was released with it or before it.
    pub complete: Option<i64>,
    /// The number of the stream's events that the epoch gave before these.
    pub first: u64,
    /// Its events, in the canonical Arrow form of the stream's schema; at least one.
    pub batch: RecordBatch,
}

impl Released {
    /// Returns the events that an epoch gave on a stream, a piece for each batch.
    pub fn of(epoch: u64, complete: Option<i64>, batches: Vec<RecordBatch>) -> impl Iterator<Item = Released> {
        let mut first = 0;
        batches.into_iter().filter(|batch| batch.num_rows() > 0).map(move |batch| {
            let released = Released { epoch, complete, first, batch };
            first += released.batch.num_rows() as u64;
            released
        })
    }

    /// Returns the place after the last of these events.
    pub fn place(&self) -> Place {
        Place { epoch: self.epoch, events: self.first + self.batch.num_rows() as u64 }
    }

    /// Returns the events after a place; none if all are before it.
    pub fn after(mut self, place: Place) -> Option<Released> {
        if self.place() <= place {
            return None;
        }
        if place.epoch == self.epoch && place.events > self.first {
            let left_out = (place.events - self.first) as usize;
            self.batch = self.batch.slice(left_out, self.batch.num_rows() - left_out);
            self.first = place.events;
        }
        Some(self)
    }
}

/// The last events of a stream.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The stream.
    pub stream: StreamId,
    events_max: usize,
    released: VecDeque<Released>,
    events: usize,
    /// Nothing at this place or before is kept any more.
    lost: Place,
}

impl Kept {
    /// Keeps at least the last `events_max` events, and whole batches, of those after a place.
    fn new(stream: StreamId, events_max: usize, lost: Place) -> Kept {
        Kept { stream, events_max, released: VecDeque::new(), events: 0, lost }
    }

    /// Adds events.
    pub fn give(&mut self, released: Released) {
        assert!(released.place() > self.lost, "events are given in order");
        self.events += released.batch.num_rows();
        self.released.push_back(released);
        self.trim();
    }

    fn trim(&mut self) {
        while let Some(oldest) = self.released.front() {
            let rows = oldest.batch.num_rows();
            if self.events - rows < self.events_max {
                break;
            }
            self.events -= rows;
            self.lost = oldest.place();
            self.released.pop_front();
        }
    }

    /// Returns the place after which everything is kept.
    pub fn lost(&self) -> Place {
        self.lost
    }

    /// Returns the kept events, in order.
    pub fn released(&self) -> impl Iterator<Item = &Released> {
        self.released.iter()
    }
}

/// The streams of a run that are kept, with what its epochs have given so far.
#[derive(Debug, Default)]
pub struct KeptStreams(Mutex<Vec<Kept>>);

impl KeptStreams {
    /// Keeps these streams from now on, with the number of events, and no others. `first`: the first epoch of the run.
    pub fn keep(&self, streams: &[(StreamId, usize)], first: u64) -> Vec<Kept> {
        assert!(first > 0, "epochs are counted from 1");
        let mut all = self.0.lock();
        let mut before = std::mem::take(&mut *all);
        *all = streams
            .iter()
            .map(|&(stream, events_max)| {
                let mut kept = match before.iter().position(|kept| kept.stream == stream) {
                    Some(at) => before.swap_remove(at),
                    None => Kept::new(stream, events_max, Place::after(first - 1)),
                };
                kept.events_max = events_max;
                kept.trim();
                kept
            })
            .collect();
        all.clone()
    }

    /// Adds what an epoch gave. Called in the order of epochs.
    pub fn finish(&self, epoch: u64, complete: Option<i64>, followed: &[(StreamId, Vec<RecordBatch>)]) {
        for kept in &mut *self.0.lock() {
            let batches = followed.iter().find(|(stream, _)| *stream == kept.stream).map(|(_, batches)| batches);
            Released::of(epoch, complete, batches.cloned().unwrap_or_default())
                .for_each(|released| kept.give(released));
        }
    }
}

/// Returns the kept events of a checkpoint of an epoch, which follows `before`.
pub fn write_kept(
    program: &Program,
    before: Option<&Checkpoint>,
    streams: &KeptStreams,
    epoch: u64,
    begin: &mut dyn FnMut() -> Result<BlockWriter, StateError>,
) -> Result<Vec<KeptState>, StateError> {
    let all = streams.0.lock().clone();
    let mut written = Vec::new();
    let mut file = None;
    for kept in all {
        let stream = &program.streams[kept.stream];
        let lost = kept.lost.min(Place::after(epoch));
        let of_before = before.and_then(|before| before.kept.iter().find(|kept| is_of(kept, stream)));
        let mut blocks = of_before.map_or_else(Vec::new, |of_before| of_before.blocks.clone());
        blocks.retain(|block| block.last > lost);
        let full = blocks.iter().map(|block| block.block.rows as usize).sum::<usize>() / BLOCK_ROWS;
        if blocks.len() >= full + BLOCKS_MAX {
            blocks.clear();
        }
        let since = blocks.last().map_or(lost, |block| block.last);
        let pieces = kept.released().filter(|released| released.place() > since && released.epoch <= epoch);
        let pieces: Vec<&Released> = pieces.collect();
        for pieces in blocks_of(&pieces) {
            let rows = pieces.iter().map(|released| released.batch.num_rows() as u64).sum();
            let last = pieces.last().expect("a chunk has a piece").place();
            if file.is_none() {
                file = Some(begin()?);
            }
            let file = file.as_mut().expect("just begun");
            blocks.push(KeptBlock { last, block: file.write(&encoded(pieces, stream), rows)? });
        }
        written.push(KeptState { stream: stream.name.clone(), schema: stream.schema.clone(), lost, blocks });
    }
    file.map_or(Ok(()), BlockWriter::finish)?;
    Ok(written)
}

/// Returns the kept events of the newest checkpoint, of the streams that the program has in the same form.
pub fn read_kept(directory: &StateDirectory, program: &Program) -> Result<KeptStreams, StateError> {
    let mut all = Vec::new();
    let blocks = directory.blocks();
    let states = directory.checkpoint().into_iter().flat_map(|checkpoint| &checkpoint.kept);
    for state in states.filter(|_| !directory.planted().is(Bug::CheckpointForgetsKept)) {
        let stream = program.streams.iter_enumerated().find(|(_, stream)| is_of(state, stream));
        let Some((id, stream)) = stream else { continue };
        let lost = state.lost;
        let mut kept = Kept::new(id, usize::MAX, lost);
        let schema = arrow_schema(&stream.schema);
        for KeptBlock { block, .. } in &state.blocks {
            let text = blocks.read(block, "kept events")?;
            let decoded = decoded(&mut Reader(&text), &schema).map_err(|Malformed(reason)| {
                StateError::Refused(format!("a checkpoint's events of {} do not read: {reason}", stream.name))
            })?;
            decoded.into_iter().filter_map(|released| released.after(lost)).for_each(|released| kept.give(released));
        }
        all.push(kept);
    }
    Ok(KeptStreams(Mutex::new(all)))
}

/// Returns whether kept events are of a stream as it is now.
fn is_of(kept: &KeptState, stream: &Stream) -> bool {
    kept.stream == stream.name && kept.schema == stream.schema
}

/// Returns the pieces by block.
fn blocks_of<'a>(pieces: &'a [&'a Released]) -> impl Iterator<Item = &'a [&'a Released]> {
    let mut rows = 0;
    pieces.chunk_by(move |one, _| {
        rows += one.batch.num_rows();
        let is_more = rows < BLOCK_ROWS;
        if !is_more {
            rows = 0;
        }
        is_more
    })
}

/// ```text
/// events = n, n × (epoch, 0 or 1 with the punctuation:8, first, number of events), batch
/// ```
fn encoded(pieces: &[&Released], stream: &Stream) -> Vec<u8> {
    let mut text = Vec::new();
    number(&mut text, pieces.len() as u64);
    for Released { epoch, complete, first, batch } in pieces {
        number(&mut text, *epoch);
        text.push(u8::from(complete.is_some()));
        text.extend(complete.iter().flat_map(|complete| complete.to_le_bytes()));
        number(&mut text, *first);
        number(&mut text, batch.num_rows() as u64);
    }
    let joined = concat_batches(&arrow_schema(&stream.schema), pieces.iter().map(|released| &released.batch));
    BatchCodec::default().write(&joined.expect("they have the schema, and not too many bytes"), &mut text);
    text
}

fn decoded(reader: &mut Reader<'_>, schema: &SchemaRef) -> Result<Vec<Released>, Malformed> {
    let mut pieces = Vec::new();
    for _ in 0..reader.number()? {
        let epoch = reader.number()?;
        let complete = match reader.byte()? {
            0 => None,
            _ => Some(reader.word()? as i64),
        };
        pieces.push((epoch, complete, reader.number()?, reader.number()? as usize));
    }
    let mut rest = read_batch(reader, schema)?;
    let mut released = Vec::new();
    for (epoch, complete, first, rows) in pieces {
        if rows == 0 || rows > rest.num_rows() {
            return Err(Malformed("events are missing".into()));
        }
        released.push(Released { epoch, complete, first, batch: rest.slice(0, rows) });
        rest = rest.slice(rows, rest.num_rows() - rows);
    }
    Ok(released)
}
