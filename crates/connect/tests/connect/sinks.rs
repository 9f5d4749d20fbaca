//! Sinks: what is written, and when it stands under its name.

use crate::support::*;
use tidemill_connect::{
    Compression, IpcCompression, ParquetCompression, ReadCsv, WriteCsv, WriteIpc, WriteJsonl, WriteParquet,
    standard_connectors,
};
use tidemill_io::{DurableRun, SinkConnection, SourceConnection, Spec};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

fn csv_sink(path: &str) -> Spec {
    WriteCsv { path: path.into(), delimiter: ',', null: String::new(), compression: None }.spec()
}

fn jsonl_sink(path: &str) -> Spec {
    WriteJsonl { path: path.into(), compression: None }.spec()
}

fn all(path: &str) -> [Spec; 4] {
    [
        csv_sink(path),
        jsonl_sink(path),
        WriteParquet { path: path.into(), compression: ParquetCompression::default() }.spec(),
        WriteIpc { path: path.into(), compression: IpcCompression::default() }.spec(),
    ]
}

fn everything() -> Schema {
    Schema::scalars([
        ("b", ColumnType::required(Type::Bool)),
        ("i", ColumnType::optional(Type::Int)),
        ("f", ColumnType::required(Type::Float)),
        ("m", ColumnType::required(Type::Decimal { digits: 18, scale: 2 })),
        ("t", ColumnType::required(Type::Time)),
        ("s", ColumnType::required(Type::Str)),
        ("y", ColumnType::required(Type::Bytes)),
    ])
}

fn some_rows() -> Vec<Vec<Value>> {
    let first = vec![
        Value::Bool(true),
        Value::Null,
        Value::Float(f64::NAN),
        Value::Decimal(-5),
        Value::Time(1_357_017_300_000_000),
        text("a,\"b\"\n\u{1}"),
        Value::Bytes(vec![0, 255]),
    ];
    let second = vec![
        Value::Bool(false),
        Value::Int(-7),
        Value::Float(0.1),
        Value::Decimal(1200),
        Value::Time(i64::MAX),
        text("é"),
        Value::Bytes(vec![]),
    ];
    vec![first, second]
}

fn written(spec: &Spec, schema: &Schema, rows: &[Vec<Value>], path: &str) -> String {
    let mut sink = open_sink(spec, schema).unwrap();
    sink.write(&batch_of(schema, rows)).unwrap();
    sink.flush().unwrap();
    sink.finish().unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_text_of_json_lines() {
    let files = Files::new();
    let path = files.path("out.jsonl");
    let mut schema = everything();
    let item = ListItem::Struct(vec![("k".into(), ColumnType::optional(Type::Int))]);
    schema.fields.push(Field { name: "l\"".into(), ty: FieldType::List(item) });
    let mut rows = some_rows();
    rows[0].push(Value::List(vec![]));
    rows[1].push(Value::List(vec![vec![Value::Int(1)], vec![Value::Null]]));
    let lines = concat!(
        r#"{"b":true,"i":null,"f":"NaN","m":-0.05,"t":"2013-01-01T05:15:00.000000Z","s":"a,\"b\"\n\u0001","y":"AP8=","l\"":[]}"#,
        "\n",
        r#"{"b":false,"i":-7,"f":0.1,"m":12.00,"t":9223372036854775807,"s":"é","y":"","l\"":[{"k":1},{"k":null}]}"#,
        "\n",
    );
    assert_eq!(written(&jsonl_sink(&path), &schema, &rows, &path), lines);
}

#[test]
fn the_text_of_csv() {
    let files = Files::new();
    let path = files.path("out.csv");
    let lines = concat!(
        "b,i,f,m,t,s,y\n",
        "true,,NaN,-0.05,2013-01-01T05:15:00.000000Z,\"a,\"\"b\"\"\n\u{1}\",AP8=\n",
        "false,-7,0.1,12.00,9223372036854775807,é,\"\"\n",
    );
    assert_eq!(written(&csv_sink(&path), &everything(), &some_rows(), &path), lines);
    let lone = Schema::scalars([("s", ColumnType::optional(Type::Str))]);
    let rows = [vec![Value::Null], vec![text("")], vec![text("x")]];
    assert_eq!(written(&csv_sink(&path), &lone, &rows, &path), "s\n\n\"\"\nx\n");
    let lone = Schema::scalars([("i", ColumnType::optional(Type::Int))]);
    assert_eq!(written(&csv_sink(&path), &lone, &[vec![Value::Null]], &path), "i\n\"\"\n");
}

/// Text that looks like the text for `None` is quoted, and so is a number.
#[test]
fn texts_that_look_like_none_in_csv() {
    let files = Files::new();
    let path = files.path("out.csv");
    let schema = Schema::scalars([("s", ColumnType::optional(Type::Str)), ("i", ColumnType::optional(Type::Int))]);
    let spec = WriteCsv { path: path.clone(), delimiter: ',', null: "0".into(), compression: None }.spec();
    let rows = [vec![text("0"), Value::Null], vec![Value::Null, int(0)], vec![text(""), int(10)]];
    assert_eq!(written(&spec, &schema, &rows, &path), "s,i\n\"0\",0\n0,\"0\"\n,10\n");
    let source = ReadCsv {
        paths: vec![path],
        delimiter: ',',
        null: "0".into(),
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    }
    .spec();
    assert_eq!(take(&source, &schema).rows, rows);
}

#[test]
fn nothing_stands_under_the_name_before_finish() {
    let schema = ints(&["a"]);
    let batch = batch_of(&schema, &[vec![int(1)]]);
    for index in 0..4 {
        let files = Files::new();
        let path = files.write("out", "old");
        let spec = &all(&path)[index];
        let mut sink = open_sink(spec, &schema).unwrap();
        sink.write(&batch).unwrap();
        sink.flush().unwrap();
        let temporary = format!(".out.tidemill-tmp-{}", std::process::id());
        assert_eq!(files.names(), [".out.tidemill-lock", &*temporary, "out"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        drop(sink);
        assert_eq!(files.names(), ["out"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");

        let mut sink = open_sink(spec, &schema).unwrap();
        sink.write(&batch).unwrap();
        sink.finish().unwrap();
        assert_eq!(files.names(), ["out"]);
        assert_ne!(std::fs::read_to_string(&path).unwrap_or_default(), "old");
    }
}

#[test]
fn what_cannot_be_written_is_refused_when_opened() {
    let files = Files::new();
    let schema = ints(&["a"]);
    let refused = |spec: &Spec| open_sink(spec, &schema).map(|_| ()).unwrap_err().message;
    for spec in all(&files.path("no/such/out")) {
        let message = refused(&spec);
        assert!(message.contains("no/such/out cannot be written: there is no directory"), "{message}");
    }
    for spec in all(&files.path("")) {
        assert!(refused(&spec).contains("is a directory"));
    }
    let path = files.path("out");
    let first = open_sink(&jsonl_sink(&path), &schema).unwrap();
    assert!(refused(&csv_sink(&path)).contains("another sink is writing it"));
    first.finish().unwrap();
    let list = FieldType::List(ListItem::Scalar(ColumnType::required(Type::Int)));
    let lists = Schema { fields: vec![Field { name: "l".into(), ty: list }] };
    let failure = open_sink(&csv_sink(&path), &lists).map(|_| ()).unwrap_err();
    assert!(failure.schema && failure.message.contains("use JSON Lines or Parquet"));
    let odd = WriteCsv { path, delimiter: ',', null: "a,b".into(), compression: None }.spec();
    assert!(refused(&odd).contains("quoted"));
}

#[test]
fn a_leftover_of_a_crash_is_taken_over() {
    let files = Files::new();
    files
        .write(&format!(".out.jsonl.tidemill-tmp-{}", std::process::id()), "leftover that is longer than the new text");
    let path = files.path("out.jsonl");
    assert_eq!(written(&jsonl_sink(&path), &ints(&["a"]), &[vec![int(1)]], &path), "{\"a\":1}\n");
    assert_eq!(files.names(), ["out.jsonl"]);
}

#[test]
fn links_are_followed_and_devices_written_directly() {
    let files = Files::new();
    let target = files.write("target", "");
    let link = files.path("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    written(&jsonl_sink(&link), &ints(&["a"]), &[vec![int(1)]], &link);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{\"a\":1}\n");

    let pipe = pipe(&files, "pipe");
    let path = pipe.to_str().unwrap().to_owned();
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    let mut sink = open_sink(&jsonl_sink(&path), &ints(&["a"])).unwrap();
    sink.write(&batch_of(&ints(&["a"]), &[vec![int(1)]])).unwrap();
    sink.finish().unwrap();
    assert_eq!(reader.join().unwrap(), b"{\"a\":1}\n");
}

#[test]
fn an_interactive_sink_shows_each_epoch() {
    use std::io::Read;
    for compression in [None, Some(Compression::Zstd)] {
        let files = Files::new();
        let pipe = pipe(&files, "pipe");
        let path = pipe.to_str().unwrap().to_owned();
        let (shown, seen) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let file = std::fs::File::open(pipe).unwrap();
            let mut input: Box<dyn Read> = match compression {
                Some(_) => Box::new(zstd::Decoder::new(file).unwrap()),
                None => Box::new(file),
            };
            let mut line = [0; 8];
            for _ in 0..2 {
                input.read_exact(&mut line).unwrap();
                shown.send(line).unwrap();
            }
            input.read_to_end(&mut Vec::new()).unwrap();
        });
        let mut sink = open_sink(&WriteJsonl { path, compression }.spec(), &ints(&["a"])).unwrap();
        for value in [1, 2] {
            sink.write(&batch_of(&ints(&["a"]), &[vec![int(value)]])).unwrap();
            sink.flush().unwrap();
            assert_eq!(seen.recv().unwrap(), format!("{{\"a\":{value}}}\n").as_bytes());
        }
        sink.finish().unwrap();
        reader.join().unwrap();
    }
}

#[test]
fn the_null_sink_takes_everything() {
    let schema = ints(&["a"]);
    let mut sink = open_sink(&serde_json::from_str(r#"{"kind":"null"}"#).unwrap(), &schema).unwrap();
    sink.write(&batch_of(&schema, &[vec![int(1)]])).unwrap();
    sink.flush().unwrap();
    sink.finish().unwrap();
}

/// A durable run that keeps no files.
struct Elsewhere;

impl DurableRun for Elsewhere {
    fn owner(&self) -> &str {
        "elsewhere"
    }
}

#[test]
fn a_file_is_refused_in_a_durable_run_without_storage_for_files() {
    let files = Files::new();
    for (index, spec) in all(&files.path("out")).iter().enumerate() {
        let sink = standard_connectors().sink(spec).unwrap();
        let said = sink.open(&everything(), Some(&Elsewhere)).err().map(|failure| failure.message);
        assert_eq!(said.as_deref(), Some("this durable run has no storage for files"), "{index}");
        assert!(files.names().is_empty());
    }
}
