//! Functions that the tests share.

use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tidemill_connect::{Compression, ReadCsv, ReadJsonl, SinkDurability, source_options, standard_connectors};
use tidemill_io::{BadRecord, IoFailure, Next, Sink, Source, SourceConnection, SourceOptions, Spec};
use tidemill_model::arrow::rows;
use tidemill_model::{ColumnType, Schema, Type, Value};

/// A directory of files that is removed when it is dropped.
pub struct Files(pub TempDir);

impl Files {
    pub fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Everything a source said.
#[derive(Debug, Default)]
pub struct Taken {
    pub rows: Vec<Vec<Value>>,
    pub bad: Vec<BadRecord>,
    pub batches: usize,
    pub failure: Option<String>,
}

impl Taken {
    /// Line, column and reason of the bad records.
    pub fn faults(&self) -> Vec<(u64, Option<&str>, &str)> {
        self.bad.iter().map(|bad| (bad.line.unwrap(), bad.column.as_deref(), bad.reason.as_str())).collect()
    }

    /// Returns the first column of the rows.
    pub fn firsts(&self) -> Vec<Value> {
        self.rows.iter().map(|row| row[0].clone()).collect()
    }
}

/// Drains a source.
pub fn drain(source: &mut dyn Source, schema: &Schema) -> Taken {
    let mut taken = Taken::default();
    loop {
        match source.next(Duration::MAX) {
            Ok(Next::Nothing) => {}
            Ok(Next::Batch(batch)) => {
                assert!(batch.events.num_rows() + batch.bad.len() > 0, "a batch of nothing");
                assert_eq!(batch.events.schema(), tidemill_model::arrow::arrow_schema(schema));
                taken.rows.extend(rows(&batch.events, schema));
                taken.bad.extend(batch.bad);
                taken.batches += 1;
            }
            Ok(Next::End) => {
                assert!(source.next(Duration::MAX).unwrap().batch().is_none(), "the end is for ever");
                return taken;
            }
            Err(failure) => {
                taken.failure = Some(failure.message);
                assert!(source.next(Duration::MAX).is_err(), "a failure is for ever");
                return taken;
            }
        }
    }
}

pub fn options(batch_rows: usize) -> SourceOptions {
    SourceOptions { batch_rows, ..source_options() }
}

pub fn open_source(spec: &Spec, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
    standard_connectors().source(spec)?.open(schema, options)
}

pub fn open_sink(spec: &Spec, schema: &Schema) -> Result<Box<dyn Sink>, IoFailure> {
    standard_connectors().sink(spec)?.open(schema, None)
}

pub fn open_durable_sink(spec: &Spec, schema: &Schema, durable: &SinkDurability) -> Result<Box<dyn Sink>, IoFailure> {
    standard_connectors().sink(spec)?.open(schema, Some(durable))
}

/// Opens and drains.
pub fn take(spec: &Spec, schema: &Schema) -> Taken {
    drain(open_source(spec, schema, &options(1000)).unwrap().as_mut(), schema)
}

/// Returns the error with which a source cannot be opened.
pub fn refusal(spec: &Spec, schema: &Schema) -> IoFailure {
    open_source(spec, schema, &options(1000)).map(|_| ()).unwrap_err()
}

pub fn csv(path: impl Into<String>) -> Spec {
    ReadCsv {
        paths: vec![path.into()],
        delimiter: ',',
        null: String::new(),
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    }
    .spec()
}

pub fn jsonl(path: impl Into<String>) -> Spec {
    ReadJsonl { paths: vec![path.into()], compression: None, end: tidemill_io::InputEnd::Pause }.spec()
}

pub fn csv_as(path: impl Into<String>, compression: Compression) -> Spec {
    ReadCsv {
        paths: vec![path.into()],
        delimiter: ',',
        null: String::new(),
        compression: Some(compression),
        end: tidemill_io::InputEnd::Pause,
    }
    .spec()
}

pub fn ints(names: &[&str]) -> Schema {
    Schema::scalars(names.iter().map(|name| (*name, ColumnType::required(Type::Int))))
}

pub fn int(value: i64) -> Value {
    Value::Int(value)
}

pub fn text(value: &str) -> Value {
    Value::Str(value.to_owned())
}

/// Makes a named pipe.
pub fn pipe(files: &Files, name: &str) -> PathBuf {
    let path = files.0.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}
