//! Files, generators and their formats: the sources and sinks of the outside world.
//!
//! The [standard connectors](standard_connectors), each a [`Connector`](tidemill_io::Connector), make connections of
//! specs, which open as a [`Source`](tidemill_io::Source) or [`Sink`](tidemill_io::Sink). What a sink writes, the source
//! of the same format reads back equal. Nothing here knows of transactions, tables or epochs.
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
//! A record that cannot be decoded is a [`BadRecord`](tidemill_io::BadRecord), a value, and the
//! good ones around it survive. What says that the file as a whole is not what it should be (a missing
//! column, broken compression, a cut-off Parquet file) is an [`IoFailure`](tidemill_io::IoFailure), after everything decoded
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
mod choices;
mod clock;
mod columnar;
mod columns;
mod committed_file;
mod compression;
mod connectors;
mod disk;
mod environment;
mod files;
mod generator;
mod map;
mod output;
mod output_lock;
mod output_note;
mod overlap;
mod patient;
mod place;
mod scalar;
mod sink_path;
mod sink_record;
mod splits;
mod state;
mod system;
mod text;
mod views;

pub use bad::{RECORD_TEXT_BYTES_MAX, excerpt};
pub use choices::{Compression, IpcCompression, ParquetCompression};
pub use clock::{SystemClock, source_options};
pub use columnar::{arrow_events, arrow_stream, canonical};
pub use connectors::{Generate, ReadClock, ReadCsv, ReadIpc, ReadJsonl, ReadParquet, standard_connectors};
pub use connectors::{WriteCsv, WriteIpc, WriteJsonl, WriteNull, WriteParquet};
pub use disk::Disk;
pub use environment::{SetTime, System};
pub use generator::{ColumnSpec, Literal};
pub use output::SinkDurability;
pub use overlap::{Named, check_overlap};
pub use patient::{Patience, Patient};
pub use sink_path::check_paths;
pub use splits::FileSplits;
pub use state::{open_patient_state, open_state, open_state_as_it_is, view_state};
pub use system::raise_open_files;
pub use text::RECORD_BYTES_MAX;
pub use text::json::{JsonBatch, JsonRecords, JsonRows, json_string};

/// Returns an instant, given in microseconds since 1970, as text sinks write it.
pub fn time_text(micros: i64) -> String {
    tidemill_model::civil::time_text(micros)
}

/// Returns the instant of a text as sources read it, in microseconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    scalar::parse::time(text).ok()
}
