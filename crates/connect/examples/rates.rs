//! Rates of reading and writing: rows per second of each format on one core, in memory-backed files, beside arrow-json
//! and the loop that only counts lines.
//!
//! `cargo run --release -p tidemill-connect --example rates [rows]`

use arrow_array::RecordBatch;
use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};
use tidemill_connect::{ColumnSpec, Generate, IpcCompression, Literal, ParquetCompression, source_options};
use tidemill_connect::{ReadCsv, ReadIpc, ReadJsonl, ReadParquet};
use tidemill_connect::{WriteCsv, WriteIpc, WriteJsonl, WriteParquet};
use tidemill_io::{Next, SinkConnection, SourceConnection};
use tidemill_model::{ColumnType, Schema, Type};

const ROWS: u64 = 2_000_000;

/// The number of runs of which the best one counts.
const RUNS: usize = 3;

fn transfers() -> (Schema, Vec<(String, ColumnSpec)>) {
    let key = || ColumnSpec::Zipf { count: 100_000, theta: 0.8, format: Some("acct-{}".into()) };
    let amount = ColumnSpec::Uniform { low: Literal::Int(1), high: Literal::Int(10_000), format: None };
    let columns = [("src", Type::Str, key()), ("dst", Type::Str, key()), ("amount", Type::Int, amount)];
    split(columns)
}

fn orders() -> (Schema, Vec<(String, ColumnSpec)>) {
    let uniform = |low: &str, high: &str| ColumnSpec::Uniform {
        low: Literal::Text(low.into()),
        high: Literal::Text(high.into()),
        format: None,
    };
    let id = ColumnSpec::Sequence { start: Literal::Int(1), step: Literal::Int(1), format: None };
    let at = ColumnSpec::Sequence {
        start: Literal::Text("2013-01-01T05:15:00Z".into()),
        step: Literal::Int(1_234_567),
        format: None,
    };
    let side =
        ColumnSpec::Choice { values: vec![Literal::Text("buy".into()), Literal::Text("sell".into())], weights: None };
    let flag = ColumnSpec::Choice { values: vec![Literal::Bool(true), Literal::Bool(false)], weights: None };
    split([
        ("id", Type::Int, id),
        ("at", Type::Time, at),
        ("side", Type::Str, side),
        ("price", Type::Decimal { digits: 18, scale: 2 }, uniform("0.01", "9999.99")),
        ("ratio", Type::Float, uniform("0", "1")),
        ("open", Type::Bool, flag),
    ])
}

fn split<const N: usize>(columns: [(&str, Type, ColumnSpec); N]) -> (Schema, Vec<(String, ColumnSpec)>) {
    let schema = Schema::scalars(columns.iter().map(|(name, ty, _)| (*name, ColumnType::required(*ty))));
    (schema, columns.into_iter().map(|(name, _, spec)| (name.to_owned(), spec)).collect())
}

fn best(what: &str, rows: u64, mut run: impl FnMut() -> u64) {
    let seconds = (0..RUNS).map(|_| {
        let start = Instant::now();
        assert_eq!(black_box(run()), rows, "{what}");
        start.elapsed().as_secs_f64()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    println!("{what:<28} {:>7.2} M rows/s", rows as f64 / seconds / 1e6);
}

fn drain(from: &dyn SourceConnection, schema: &Schema) -> Vec<RecordBatch> {
    let mut source = from.open(schema, &source_options()).expect("the source opens");
    let mut batches = Vec::new();
    while let Next::Batch(batch) = source.next(Duration::MAX).expect("the source reads") {
        assert!(batch.bad.is_empty(), "{:?}", batch.bad);
        batches.push(batch.events);
    }
    batches
}

fn count(from: &dyn SourceConnection, schema: &Schema) -> u64 {
    let mut source = from.open(schema, &source_options()).expect("the source opens");
    let mut rows = 0;
    while let Next::Batch(batch) = source.next(Duration::MAX).expect("the source reads") {
        rows += black_box(batch).events.num_rows() as u64;
    }
    rows
}

fn write(to: &dyn SinkConnection, schema: &Schema, batches: &[RecordBatch]) {
    let mut sink = to.open(schema, None).expect("the sink opens");
    for batch in batches {
        sink.write(batch).expect("the sink writes");
    }
    sink.finish().expect("the sink finishes");
}

fn is_time(schema: &Schema, index: usize) -> bool {
    schema.fields[index].scalar_type().is_some_and(|column| column.ty == Type::Time)
}

fn measure(name: &str, rows: u64, directory: &Path, (schema, columns): (Schema, Vec<(String, ColumnSpec)>)) {
    println!("{name}: {schema}");
    let generator = Generate { events: Some(rows), rate: None, seed: 1, columns, end: tidemill_io::InputEnd::Pause };
    best("generator", rows, || count(&generator, &schema));
    let batches = drain(&generator, &schema);
    let path = |ending: &str| directory.join(format!("{name}.{ending}")).to_str().expect("a plain path").to_owned();
    let (csv, jsonl, parquet, ipc) = (path("csv"), path("jsonl"), path("parquet"), path("arrow"));
    let sinks: [Box<dyn SinkConnection>; 4] = [
        Box::new(WriteCsv { path: csv.clone(), delimiter: ',', null: String::new(), compression: None }),
        Box::new(WriteJsonl { path: jsonl.clone(), compression: None }),
        Box::new(WriteParquet { path: parquet.clone(), compression: ParquetCompression::Zstd }),
        Box::new(WriteIpc { path: ipc.clone(), compression: IpcCompression::None }),
    ];
    let sources: [Box<dyn SourceConnection>; 4] = [
        Box::new(ReadCsv {
            paths: vec![csv.clone()],
            delimiter: ',',
            null: String::new(),
            compression: None,
            end: tidemill_io::InputEnd::Pause,
        }),
        Box::new(ReadJsonl { paths: vec![jsonl], compression: None, end: tidemill_io::InputEnd::Pause }),
        Box::new(ReadParquet { paths: vec![parquet], end: tidemill_io::InputEnd::Pause }),
        Box::new(ReadIpc { paths: vec![ipc], end: tidemill_io::InputEnd::Pause }),
    ];
    let formats = ["CSV", "JSON Lines", "Parquet", "Arrow IPC"];
    for (sink, format) in sinks.iter().zip(formats) {
        best(&format!("write {format}"), rows, || {
            write(sink.as_ref(), &schema, &batches);
            rows
        });
    }
    // Without the times, whose zone arrow-json does not know by name.
    let timeless: Vec<usize> = (0..schema.fields.len()).filter(|i| !is_time(&schema, *i)).collect();
    let projected: Vec<RecordBatch> =
        batches.iter().map(|b| b.project(&timeless).expect("columns that are there")).collect();
    best("write JSON by arrow-json", rows, || {
        let file = File::create(path("arrow-json")).expect("the directory is there");
        let mut writer = arrow_json::LineDelimitedWriter::new(BufWriter::with_capacity(256 << 10, file));
        for batch in &projected {
            writer.write(batch).expect("arrow-json writes");
        }
        writer.finish().expect("arrow-json finishes");
        rows
    });
    for (source, format) in sources.iter().zip(formats) {
        best(&format!("read {format}"), rows, || count(source.as_ref(), &schema));
    }
    best("count lines of the CSV", rows, || {
        let content = std::fs::read(&csv).expect("the file is there");
        memchr::memchr_iter(b'\n', &content).count() as u64 - 1
    });
}

fn main() {
    let rows = std::env::args().nth(1).map_or(ROWS, |rows| rows.parse().expect("a number of rows"));
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let directory = directory.expect("a temporary directory");
    measure("transfers", rows, directory.path(), transfers());
    measure("orders", rows, directory.path(), orders());
}
