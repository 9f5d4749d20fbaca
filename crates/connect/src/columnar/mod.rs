//! Columnar formats: Parquet and Arrow IPC.
//!
//! A [`ColumnarSource`] takes batches from a reader and brings them into canonical form. A batch with
//! a value that does not fit is halved until the rows at fault stand alone; they become bad records,
//! the others stay in order. The cost is one conversion per halving, paid only where something is bad.
//!
//! The readers trust lengths and offsets in the file further than they should; damage that makes one
//! panic is reported like any other.

mod conform;
mod int96;
mod ipc;
mod parquet;
mod pushed;
mod spool;
mod times;

pub(crate) use ipc::{IpcFiles, IpcSink};
pub(crate) use parquet::{ParquetFiles, ParquetSink};
pub use pushed::{arrow_events, arrow_stream};
pub(crate) use spool::Spool;

use crate::bad::Fault;
use crate::files::{ByteCount, FileProgress, Place, read_failed};
use crate::place::{Before, RowToken, all_regular, check_new, mark};
use crate::text::reads;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use conform::{conform, row_text};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tidemill_io::{BadRecord, IoFailure, Next, Resumed, Source, SourceBatch, SourceOptions, SourceProgress};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// A columnar format: how its files are opened and read.
pub(crate) trait Columnar: Send {
    /// A flag: whether it can be read from a pipe.
    const LIVE: bool;

    /// Opens a place. Only the columns named in `schema` need be read.
    fn open(&self, place: &Place, schema: &Schema, count: &ByteCount) -> Result<Batches, ArrowError>;
}

/// An open columnar file.
pub(crate) struct Batches {
    /// The schema of the batches.
    pub schema: SchemaRef,
    /// Batches of any size, or why there are no more.
    pub reader: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    /// Rows in all, where the file says so: then progress is measured in them.
    pub rows: Option<u64>,
}

/// A source of columnar batches.
pub(crate) struct ColumnarSource<F> {
    format: F,
    schema: Schema,
    places: Vec<Place>,
    index: usize,
    current: Option<Reading>,
    /// A flag: whether its end is the end for good.
    is_last: bool,
    /// The places that were read before the current one.
    before: Before,
    /// Rows of the current place that an earlier run took.
    skip: u64,
    rows_max: usize,
    progress: FileProgress,
    failure: Option<IoFailure>,
    /// The place from which it goes on, as text for users, if it was resumed.
    resumed: Option<String>,
}

struct Reading {
    name: String,
    batches: Batches,
    count: ByteCount,
    /// Read and not yet handed over.
    rest: Option<RecordBatch>,
    /// Rows handed over, or skipped.
    done: u64,
    /// Bytes on the medium.
    length: u64,
    /// The hash of its first and last bytes, by which the file is recognized.
    mark: u64,
}

impl<F: Columnar> ColumnarSource<F> {
    /// Checks that every regular file can be opened and is of the schema.
    pub fn open(
        format: F,
        places: Vec<Place>,
        is_last: bool,
        schema: &Schema,
        options: &SourceOptions,
    ) -> Result<Self, IoFailure> {
        for place in &places {
            if place.check()? {
                open_checked(&format, place, schema)?;
            } else if !F::LIVE {
                let name = place.name();
                return Err(IoFailure::new(format!(
                    "{name} cannot be read: the format is read from its end; use a file"
                )));
            }
        }
        let progress = FileProgress::new(&places);
        let (schema, rows_max) = (schema.clone(), options.batch_rows.max(1));
        Ok(ColumnarSource {
            format,
            schema,
            places,
            index: 0,
            current: None,
            is_last,
            before: Before::default(),
            skip: 0,
            rows_max,
            progress,
            failure: None,
            resumed: None,
        })
    }

    fn read(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        while let Some(place) = self.places.get(self.index) {
            let reading = match &mut self.current {
                Some(reading) => reading,
                none => none.insert(open_checked(&self.format, place, &self.schema)?),
            };
            match reading.take(self.rows_max)? {
                Some(batch) => {
                    let first = reading.done + 1;
                    reading.done += batch.num_rows() as u64;
                    let rows = batch.num_rows();
                    let skipped = self.skip.saturating_sub(first - 1).min(rows as u64);
                    if skipped == rows as u64 {
                        continue;
                    }
                    let batch = batch.slice(skipped as usize, rows - skipped as usize);
                    return self.schema_batch(&batch, first + skipped).map(Some);
                }
                None => {
                    self.progress.finish(self.index, reading.count.get());
                    self.before.push(place, reading.length);
                    (self.current, self.skip) = (None, 0);
                    self.index += 1;
                }
            }
        }
        Ok(None)
    }

    /// Returns the rows of `batch` that fit the schema and those that do not; the first is number `first`.
    fn schema_batch(&self, batch: &RecordBatch, first: u64) -> Result<SourceBatch, IoFailure> {
        let origin = self.places[self.index].name();
        let mut salvage = Salvage { origin: &origin, schema: &self.schema, good: Vec::new(), bad: Vec::new() };
        guarded(&origin, || {
            salvage.rows(batch, first);
            Ok(())
        })?;
        let Salvage { mut good, bad, .. } = salvage;
        let events = match good.len() {
            1 => good.remove(0),
            _ => concat_batches(&arrow_schema(&self.schema), &good).map_err(|error| read_failed(&origin, &error))?,
        };
        Ok(SourceBatch { events, bad })
    }
}

impl<F: Columnar> Source for ColumnarSource<F> {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if self.failure.is_none() {
            match self.read() {
                Ok(batch) => return Ok(batch.into()),
                Err(failure) => self.failure = Some(failure),
            }
        }
        let IoFailure { message, schema } = self.failure.as_ref().expect("set above");
        Err(IoFailure { message: message.clone(), schema: *schema })
    }

    fn replays(&self) -> bool {
        all_regular(&self.places)
    }

    fn is_at_end_of_pipe(&self) -> bool {
        (self.index == self.places.len() || self.failure.is_some()) && !all_regular(&self.places)
    }

    fn token(&self) -> Option<String> {
        let (place, reading) = (self.places.get(self.index)?, self.current.as_ref()?);
        place.regular_length()?;
        let token = RowToken {
            file: self.index,
            name: place.name(),
            length: reading.length,
            mark: Some(reading.mark),
            rows: reading.done,
            is_whole: reading.batches.rows == Some(reading.done),
            before: self.before.clone(),
        };
        serde_json::to_string(&token).ok()
    }

    fn is_last(&self) -> bool {
        self.is_last
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        if !all_regular(&self.places) {
            return check_new(&self.places).map(|()| Resumed::New);
        }
        let Some(token) = token else { return Ok(Resumed::Anew) };
        let token = RowToken::read(token, &self.places)?;
        (self.index, self.skip) = (token.file, token.rows);
        self.before = Before::of(&self.places[..token.file]);
        if token.is_whole {
            self.before.push(&self.places[token.file], token.length);
            (self.index, self.skip) = (token.file + 1, 0);
        }
        self.progress.skip_to(self.index);
        self.resumed = Some(match &self.places[self.index..] {
            [] => format!("has nothing new: {} was read to its end", token.name),
            new if token.is_whole => reads(new),
            [_] => format!("continues {} after row {}", token.name, token.rows),
            [_, new @ ..] => format!("continues {} after row {}; then {}", token.name, token.rows, reads(new)),
        });
        Ok(Resumed::Behind)
    }

    fn outlook(&self) -> Option<String> {
        Some(self.resumed.clone().unwrap_or_else(|| reads(&self.places)))
    }

    fn progress(&self) -> SourceProgress {
        let current =
            self.current.as_ref().map_or(0, |reading| match (reading.batches.rows, &self.places[self.index]) {
                (Some(rows), place) => {
                    let length = u128::from(place.regular_length().unwrap_or(0));
                    (length * u128::from(reading.done) / u128::from(rows.max(1))) as u64
                }
                (None, _) => reading.count.get(),
            });
        self.progress.at(self.index, current)
    }
}

fn open_checked(format: &impl Columnar, place: &Place, schema: &Schema) -> Result<Reading, IoFailure> {
    let name = place.name();
    let count = ByteCount::default();
    let batches = guarded(&name, || format.open(place, schema, &count))?;
    conform(&RecordBatch::new_empty(batches.schema.clone()), schema)
        .map_err(|fault| IoFailure::schema(format!("{name}: {}", fault.whole_text())))?;
    let length = place.regular_length().unwrap_or(0);
    Ok(Reading { name, batches, count, rest: None, done: 0, length, mark: mark(place, length) })
}

impl Reading {
    /// Returns the next rows, at most `rows_max`.
    fn take(&mut self, rows_max: usize) -> Result<Option<RecordBatch>, IoFailure> {
        loop {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match guarded(&self.name, || self.batches.reader.next().transpose())? {
                    Some(batch) => batch,
                    None => return Ok(None),
                },
            };
            let rows = batch.num_rows().min(rows_max);
            if rows < batch.num_rows() {
                self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
            }
            if rows > 0 {
                return Ok(Some(batch.slice(0, rows)));
            }
        }
    }
}

/// Calls into a reader; what it says and how it breaks becomes a failure that names the file.
fn guarded<T>(name: &str, call: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, IoFailure> {
    // The reader is not used again after a failure, so nothing half-changed is seen.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| read_failed(name, &error)),
        Err(_) => Err(read_failed(name, &"it is damaged")),
    }
}

/// Brings a foreign batch into the canonical form of `schema`, without a copy where it is in it
/// already. What does not fit is an error that names the column: of schema where the batch's types are
/// at fault, else of the values.
pub fn canonical(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, IoFailure> {
    conform(batch, schema).map_err(|fault| {
        let types_fit = conform(&RecordBatch::new_empty(batch.schema()), schema).is_ok();
        let failure = if types_fit { IoFailure::new } else { IoFailure::schema };
        failure(fault.whole_text())
    })
}

/// Tells the rows that fit from those that do not.
struct Salvage<'a> {
    origin: &'a str,
    schema: &'a Schema,
    good: Vec<RecordBatch>,
    bad: Vec<BadRecord>,
}

impl Salvage<'_> {
    fn rows(&mut self, batch: &RecordBatch, first: u64) {
        let fault: Fault = match conform(batch, self.schema) {
            Ok(batch) => return self.good.push(batch),
            Err(fault) => fault,
        };
        let rows = batch.num_rows();
        if rows <= 1 {
            let after = self.good.iter().map(RecordBatch::num_rows).sum();
            return self.bad.push(fault.into_bad(self.origin, first, row_text(batch), after));
        }
        let half = rows / 2;
        self.rows(&batch.slice(0, half), first);
        self.rows(&batch.slice(half, rows - half), first + half as u64);
    }
}
