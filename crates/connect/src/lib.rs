//! Files, generators and their formats: the sources and sinks of the outside world.
//!
//! [`open_source`] and [`open_sink`] turn a spec (plain data) and a schema into the runtime's
//! [`Source`] and [`Sink`]. What a sink writes, the source of the same format reads back equal. Nothing
//! here knows of transactions, tables or epochs.
//!
//! # Formats
//!
//! | | CSV | JSON Lines | Parquet, Arrow IPC |
//! |---|---|---|---|
//! | columns | by header name | by key | by name |
//! | `None` | the null text, unquoted; any empty field | `null`, or no such key | null |
//! | bool | `true` `True` `1`, `false` `False` `0` | `true`, `false` | boolean |
//! | int | digits | a number without point or exponent | any integer |
//! | float | as Rust reads it | a number; `"NaN"`, `"Infinity"`, `"-Infinity"` | any float or integer |
//! | Decimal | exact, or bad | a number or string, exact, or bad | any decimal or integer, exact, or bad |
//! | Time | RFC 3339, a space for the `T`, a date alone, integer microseconds | the same, as string or number | timestamps (UTC where they name no zone), dates |
//! | str | text; empty unless nullable | string | any text |
//! | bytes | base64 | base64 | any binary |
//! | lists | refused | arrays of scalars or objects | lists of scalars or structs |
//!
//! Columns and keys that the schema does not name are ignored. Digits of a time beyond the microsecond
//! are dropped.
//!
//! # What is bad and what fails
//!
//! A record that cannot be decoded is a [`BadRecord`](tidemill_runtime::BadRecord), a value, and the
//! good ones around it survive. What says that the file as a whole is not what it should be (a missing
//! column, broken compression, a cut-off Parquet file) is an [`IoFailure`], after everything decoded
//! before it was handed over. The schemas of all regular files are checked when the source is opened;
//! those of pipes when their turn comes.
//!
//! # Speed
//!
//! Million rows per second on one core of a machine with two, with builds running beside, files in
//! memory (`cargo run --release -p tidemill-connect --example rates`). *Transfers* are two keys and an
//! int, *orders* an int, a time, a word, a decimal, a float and a bool:
//!
//! | | transfers | orders |
//! |---|---|---|
//! | read CSV | 16.3 | 6.4 |
//! | read JSON Lines | 8.7 | 3.6 |
//! | read Parquet | 39 | 23 |
//! | write CSV | 23 | 9.3 |
//! | write JSON Lines | 18.5 | 7.7 |
//! | the same by arrow-json, which has no such times | 16.6 | 7.0 |
//! | write Parquet | 9.4 | 8.9 |
//!
//! # Edges
//!
//! `disk`, `files`, `output`, `state` and `clock` alone touch the file system, the standard streams and the time.

mod bad;
mod clock;
mod columnar;
mod columns;
mod committed_file;
mod compression;
mod disk;
mod environment;
mod files;
mod generator;
mod map;
mod options;
mod output;
mod overlap;
mod patient;
mod place;
mod scalar;
mod spec;
mod state;
mod text;
mod views;

pub use bad::RECORD_TEXT_BYTES_MAX;
pub use clock::{Clock, SystemClock};
pub use columnar::canonical;
pub use disk::Disk;
pub use environment::System;
pub use generator::{ColumnSpec, Literal};
pub use options::SourceOptions;
pub use output::SinkDurability;
pub use overlap::{Named, check_overlap};
pub use patient::{Patience, Patient};
pub use spec::{Compression, InputEnd, IpcCompression, ParquetCompression, SinkSpec, SourceSpec};
pub use state::{open_state, open_state_as_it_is};
pub use text::RECORD_BYTES_MAX;

use arrow_array::RecordBatch;
use columnar::{ColumnarSource, IpcFiles, IpcSink, ParquetFiles, ParquetSink, Spool};
use compression::chosen;
use files::places;
use generator::{Generator, Speed};
use output::Output;
use std::sync::Arc;
use text::csv::{Csv, check_schema, delimiter_byte};
use text::jsonl::Jsonl;
use text::{CsvRows, Input, JsonlRows, TextSink, TextSource};
use tidemill_durability::{Planted, Storage};
use tidemill_model::Schema;
use tidemill_runtime::{IoFailure, Sink, Source};

/// An instant, given in microseconds since 1970, as text sinks write it.
pub fn time_text(micros: i64) -> String {
    let mut text = Vec::new();
    scalar::print::time(&mut text, micros);
    String::from_utf8(text).expect("digits and signs")
}

/// The instant of a text as sources read it, in microseconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    scalar::parse::time(text).ok()
}

/// Opens a source of events of `schema`.
pub fn open_source(spec: &SourceSpec, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
    Ok(match spec {
        SourceSpec::Csv { paths, delimiter, null, compression, end } => {
            check_schema(schema)?;
            let format = Csv::new(schema, delimiter_byte(*delimiter)?, null);
            let input = Input { paths, compression: *compression, end: *end };
            Box::new(TextSource::open(format, &input, schema, options)?)
        }
        SourceSpec::Jsonl { paths, compression, end } => {
            let input = Input { paths, compression: *compression, end: *end };
            Box::new(TextSource::open(Jsonl::new(schema), &input, schema, options)?)
        }
        SourceSpec::Parquet { paths, end } => {
            let format = ParquetFiles { batch_rows: options.batch_rows.max(1) };
            Box::new(ColumnarSource::open(format, places(paths)?, is_last(*end)?, schema, options)?)
        }
        SourceSpec::Ipc { paths, end } => {
            Box::new(ColumnarSource::open(IpcFiles, places(paths)?, is_last(*end)?, schema, options)?)
        }
        SourceSpec::Generator { events, rate, seed, columns, end } => {
            let pace = Speed { events: *events, rate: *rate, is_last: is_last(*end)? };
            Box::new(Generator::open(pace, *seed, columns, schema, options)?)
        }
    })
}

/// Whether the end of a source that cannot be followed is the end for good.
fn is_last(end: InputEnd) -> Result<bool, IoFailure> {
    match end {
        InputEnd::Pause => Ok(false),
        InputEnd::Last => Ok(true),
        InputEnd::Follow => Err(IoFailure::new("only CSV and JSON Lines can be followed")),
    }
}

/// Opens a sink for events of `schema`, for a run without a state.
pub fn open_sink(spec: &SinkSpec, schema: &Schema) -> Result<Box<dyn Sink>, IoFailure> {
    let storage: Arc<dyn Storage> = Arc::new(Disk);
    open(spec, schema, Planted::default(), |path| Output::open(&storage, path))
}

/// Opens a sink for events of `schema`, for a durable run. It keeps the whole contract of [`Sink`] if
/// it is a file; what goes to standard output, a pipe or a device is released as it is committed, and
/// may be released again after a crash.
pub fn open_durable_sink(
    spec: &SinkSpec,
    schema: &Schema,
    durable: &SinkDurability,
) -> Result<Box<dyn Sink>, IoFailure> {
    let output = |path: &str| Output::open_durable(durable, path, form(spec, schema));
    let (SinkSpec::Parquet { path, .. } | SinkSpec::Ipc { path, .. }) = spec else {
        return open(spec, schema, durable.planted, output);
    };
    let part = output(path)?;
    if part.is_interactive() {
        return open(spec, schema, durable.planted, |_| Ok(part));
    }
    let (spec, of, storage) = (spec.clone(), schema.clone(), durable.storage.clone());
    let whole = move || open(&spec, &of, Planted::default(), |path| Output::open(&storage, path));
    Ok(Box::new(Spool::new(part, schema, Box::new(whole))?))
}

fn open(
    spec: &SinkSpec,
    schema: &Schema,
    planted: Planted,
    output: impl FnOnce(&str) -> Result<Output, IoFailure>,
) -> Result<Box<dyn Sink>, IoFailure> {
    Ok(match spec {
        SinkSpec::Csv { path, delimiter, null, compression } => {
            let rows = CsvRows::new(*delimiter, null, schema)?;
            Box::new(TextSink::new(output(path)?, chosen(path, *compression), rows, planted)?)
        }
        SinkSpec::Jsonl { path, compression } => {
            Box::new(TextSink::new(output(path)?, chosen(path, *compression), JsonlRows::new(schema), planted)?)
        }
        SinkSpec::Parquet { path, compression } => Box::new(ParquetSink::new(output(path)?, *compression, schema)?),
        SinkSpec::Ipc { path, compression } => Box::new(IpcSink::new(output(path)?, *compression, schema)?),
        SinkSpec::Null => Box::new(NullSink),
    })
}

/// What a sink writes, for people and to be compared: an output that was begun in one form cannot go on
/// in another.
fn form(spec: &SinkSpec, schema: &Schema) -> String {
    match spec {
        SinkSpec::Csv { path, delimiter, null, compression } => {
            let compression = chosen(path, *compression);
            format!("CSV ({compression:?} compression, {delimiter:?} between, {null:?} for None) of {schema}")
        }
        SinkSpec::Jsonl { path, compression } => {
            format!("JSON Lines ({:?} compression) of {schema}", chosen(path, *compression))
        }
        // Their parts have one form, and are not compressed as the file will be.
        SinkSpec::Parquet { .. } | SinkSpec::Ipc { .. } => format!("columns of {schema}"),
        SinkSpec::Null => "nothing".into(),
    }
}

/// Takes everything and keeps nothing.
struct NullSink;

impl Sink for NullSink {
    fn write(&mut self, _batch: &RecordBatch) -> Result<(), IoFailure> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}
