//! The sinks there are, and how what they wrote is read, by other means than theirs.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{RecordBatch, StringArray};
use std::fmt::Write as _;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_connect::{Compression, IpcCompression, ParquetCompression, SinkDurability};
use tidemill_connect::{WriteCsv, WriteIpc, WriteJsonl, WriteNull, WriteParquet};
use tidemill_durability::Planted;
use tidemill_io::{IoFailure, Sink, SinkConnection};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_sim::SimStorage;

/// The least value that is large: its row has more text than a sink keeps in memory.
const LARGE: i64 = 1_000_000;

/// A kind of sink.
pub struct Subject {
    pub name: &'static str,
    connection: Box<dyn SinkConnection>,
    read: fn(&[u8]) -> Result<Vec<i64>, String>,
}

/// The path that the sinks write to.
pub const PATH: &str = "out/result";
/// The path of the record of what the sinks have released.
pub const RECORD: &str = "state/sinks";

impl Subject {
    pub fn open(&self, storage: &SimStorage, owner: &str, planted: Planted) -> Result<Box<dyn Sink>, IoFailure> {
        let durable = SinkDurability::at(Arc::new(storage.clone()), owner, planted, Path::new(RECORD));
        self.connection.open(&schema(), Some(&durable))
    }

    /// Returns the values in the file under the final name; none where there is no such file.
    pub fn contents(&self, storage: &SimStorage) -> Result<Option<Vec<i64>>, String> {
        storage.files().get(&PathBuf::from(PATH)).map(|bytes| (self.read)(bytes)).transpose()
    }

    /// Returns a hidden file of the output.
    pub fn beside(&self, what: &str) -> PathBuf {
        PathBuf::from(format!("out/.result.tidemill-{what}"))
    }

    /// Returns whether its file is written whole when it is finished.
    pub fn is_columnar(&self) -> bool {
        ["parquet", "ipc"].contains(&self.connection.spec().kind.as_str())
    }
}

/// Returns the schema of the events that the sinks are given.
pub fn schema() -> Schema {
    Schema::scalars([("a", ColumnType::required(Type::Int)), ("s", ColumnType::required(Type::Str))])
}

fn text(value: i64) -> String {
    if is_large(&value) { "x".repeat(300_000) } else { format!("t{value}") }
}

/// Returns the rows of these values.
pub fn batch(values: &[i64]) -> RecordBatch {
    let row = |value: &i64| vec![Value::Int(*value), Value::Str(text(*value))];
    batch_of(&schema(), &values.iter().map(row).collect::<Vec<_>>())
}

/// Returns a value whose row does not fit a sink's buffer.
pub fn large(value: i64) -> i64 {
    LARGE + value
}

/// Returns whether a value is one of the large ones.
pub fn is_large(value: &i64) -> bool {
    *value >= LARGE
}

/// Returns the sink that keeps nothing.
pub fn null() -> Box<dyn Sink> {
    WriteNull {}.open(&schema(), None).expect("it opens")
}

pub fn subjects() -> Vec<Subject> {
    let path = || PATH.to_owned();
    fn subject(
        name: &'static str,
        connection: impl SinkConnection + 'static,
        read: fn(&[u8]) -> Result<Vec<i64>, String>,
    ) -> Subject {
        Subject { name, connection: Box::new(connection), read }
    }
    let csv = |compression| WriteCsv { path: path(), delimiter: ',', null: String::new(), compression };
    let jsonl = |compression| WriteJsonl { path: path(), compression };
    vec![
        subject("JSON Lines", jsonl(None), read_jsonl),
        subject("CSV", csv(None), read_csv),
        subject("CSV in gzip", csv(Some(Compression::Gzip)), |bytes| read_csv(&gunzip(bytes)?)),
        subject("JSON Lines in gzip", jsonl(Some(Compression::Gzip)), |bytes| read_jsonl(&gunzip(bytes)?)),
        subject("CSV in Zstandard", csv(Some(Compression::Zstd)), |bytes| read_csv(&unzstd(bytes)?)),
        subject("JSON Lines in Zstandard", jsonl(Some(Compression::Zstd)), |bytes| read_jsonl(&unzstd(bytes)?)),
        subject("Parquet", WriteParquet { path: path(), compression: ParquetCompression::None }, read_parquet),
        subject("Arrow IPC", WriteIpc { path: path(), compression: IpcCompression::None }, read_ipc),
    ]
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn unzstd(bytes: &[u8]) -> Result<Vec<u8>, String> {
    zstd::decode_all(bytes).map_err(|error| error.to_string())
}

/// Returns the values that exactly these lines say.
fn read_lines(
    bytes: &[u8],
    line: impl Fn(i64) -> String,
    value: impl Fn(&str) -> Option<i64>,
) -> Result<Vec<i64>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let odd = |line: &str| format!("an odd line: {:?}", line.chars().take(60).collect::<String>());
    let values: Vec<i64> =
        text.lines().map(|line| value(line).ok_or_else(|| odd(line))).collect::<Result<_, String>>()?;
    let mut again = String::new();
    values.iter().for_each(|value| _ = writeln!(again, "{}", line(*value)));
    if again == text { Ok(values) } else { Err("the lines are not as they are written".into()) }
}

/// Reads JSON Lines.
pub fn read_jsonl(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let line = |value| format!("{{\"a\":{value},\"s\":\"{}\"}}", text(value));
    read_lines(bytes, line, |line| line.strip_prefix("{\"a\":")?.split(',').next()?.parse().ok())
}

fn read_csv(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let rows = bytes.strip_prefix(b"a,s\n").ok_or("there is no header")?;
    read_lines(rows, |value| format!("{value},{}", text(value)), |line| line.split(',').next()?.parse().ok())
}

fn values(batches: impl Iterator<Item = Result<RecordBatch, arrow_schema::ArrowError>>) -> Result<Vec<i64>, String> {
    let mut values = Vec::new();
    for batch in batches {
        let batch = batch.map_err(|error| error.to_string())?;
        let texts: &StringArray = batch.column(1).as_string();
        for (row, value) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
            if texts.value(row) != text(*value) {
                return Err(format!("another text than was written with {value}"));
            }
            values.push(*value);
        }
    }
    Ok(values)
}

fn read_parquet(file: &[u8]) -> Result<Vec<i64>, String> {
    let builder =
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::copy_from_slice(file));
    values(builder.and_then(|builder| builder.build()).map_err(|error| error.to_string())?)
}

fn read_ipc(file: &[u8]) -> Result<Vec<i64>, String> {
    let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(file), None);
    values(reader.map_err(|error| error.to_string())?)
}
