//! Parquet and Arrow IPC from other hands: schemas, conversions, damage.

use crate::support::*;
use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, Date32Array, Date64Array, Decimal128Array, DictionaryArray, Float32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use std::fs::File;
use std::sync::Arc;
use tidemill_connect::{ReadIpc, ReadParquet};
use tidemill_io::{SourceConnection, Spec};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Parquet,
    IpcFile,
    IpcStream,
}
use Kind::*;

fn write(kind: Kind, path: &str, batches: &[RecordBatch]) {
    let file = File::create(path).unwrap();
    let schema = batches[0].schema();
    match kind {
        Parquet => {
            let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.close().unwrap();
        }
        IpcFile => {
            let mut writer = FileWriter::try_new(file, &schema).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
        IpcStream => {
            let mut writer = StreamWriter::try_new(file, &schema).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
    }
}

fn source(kind: Kind, path: &str) -> Spec {
    match kind {
        Parquet => ReadParquet { paths: vec![path.into()], end: tidemill_io::InputEnd::Pause }.spec(),
        _ => ReadIpc { paths: vec![path.into()], end: tidemill_io::InputEnd::Pause }.spec(),
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

fn each(check: impl Fn(Kind, &Files, String)) {
    for kind in [Parquet, IpcFile, IpcStream] {
        let files = Files::new();
        let path = files.path("in.data");
        check(kind, &files, path);
    }
}

#[test]
fn foreign_types_are_converted() {
    let schema = Schema::scalars([
        ("u", ColumnType::required(Type::Int)),
        ("f", ColumnType::required(Type::Float)),
        ("d", ColumnType::required(Type::Time)),
        ("t", ColumnType::required(Type::Time)),
        ("m", ColumnType::required(Type::Decimal { digits: 6, scale: 2 })),
        ("k", ColumnType::optional(Type::Str)),
    ]);
    let keys: DictionaryArray<Int32Type> = [Some("x"), None].into_iter().collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("extra", Arc::new(Int64Array::from(vec![0, 0]))),
        ("k", Arc::new(keys)),
        ("u", Arc::new(UInt64Array::from(vec![1, 2]))),
        ("f", Arc::new(Float32Array::from(vec![0.5, 1.5]))),
        ("d", Arc::new(Date32Array::from(vec![1, -1]))),
        ("t", Arc::new(TimestampNanosecondArray::from(vec![1_000, 2_000_999]))),
        ("m", Arc::new(Decimal128Array::from(vec![1_000, -25_000]).with_precision_and_scale(20, 4).unwrap())),
    ];
    let batch = batch(columns);
    each(|kind, _, path| {
        write(kind, &path, std::slice::from_ref(&batch));
        let taken = take(&source(kind, &path), &schema);
        assert!(taken.bad.is_empty() && taken.failure.is_none(), "{kind:?} {taken:?}");
        let day = 86_400_000_000;
        let row = |u, f, d, t, m, k| [int(u), Value::Float(f), Value::Time(d), Value::Time(t), Value::Decimal(m), k];
        assert_eq!(taken.rows[0], row(1, 0.5, day, 1, 10, text("x")));
        assert_eq!(taken.rows[1], row(2, 1.5, -day, 2000, -250, Value::Null));
    });
}

#[test]
fn rows_that_do_not_fit_are_bad_and_the_others_survive() {
    let schema = Schema::scalars([
        ("n", ColumnType::required(Type::Int)),
        ("m", ColumnType::optional(Type::Decimal { digits: 4, scale: 2 })),
    ]);
    let numbers: Vec<Option<u64>> = (0..100).map(|i| if i == 10 { None } else { Some(i) }).collect();
    let mut decimals: Vec<Option<i128>> = (0..100).map(|i| if i % 7 == 0 { None } else { Some(i * 10) }).collect();
    decimals[20] = Some(1);
    decimals[99] = Some(123_456);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(UInt64Array::from(numbers))),
        ("m", Arc::new(Decimal128Array::from(decimals).with_precision_and_scale(20, 3).unwrap())),
    ];
    let batch = batch(columns);
    each(|kind, _, path| {
        write(kind, &path, &[batch.slice(0, 60), batch.slice(60, 40)]);
        let taken = take(&source(kind, &path), &schema);
        let faults = taken.faults();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(faults[0], (11, Some("n"), "a value is missing, and the column has no None"));
        assert_eq!((faults[1].0, faults[1].1), (21, Some("m")));
        assert!(faults[1].2.contains("too many digits after the point: '0.001'"), "{faults:?}");
        assert_eq!((faults[2].0, faults[2].1), (100, Some("m")));
        assert_eq!(taken.bad[1].record.as_deref(), Some("n: 20, m: 0.001"));
        let expected: Vec<Value> = (0..100).filter(|i| ![10, 20, 99].contains(i)).map(int).collect();
        assert_eq!(taken.firsts(), expected);
    });
}

/// Microseconds of each value of a column of times, none where it is bad.
fn instants(kind: Kind, path: &str, column: ArrayRef) -> Vec<Option<i64>> {
    let count = column.len();
    let batch = batch(vec![("n", Arc::new(Int64Array::from_iter_values(0..count as i64))), ("t", column)]);
    write(kind, path, std::slice::from_ref(&batch));
    let schema = Schema::scalars([("n", ColumnType::required(Type::Int)), ("t", ColumnType::required(Type::Time))]);
    let taken = take(&source(kind, path), &schema);
    assert_eq!(taken.rows.len() + taken.bad.len(), count);
    assert!(taken.bad.iter().all(|bad| bad.reason.contains("a time out of range")), "{:?}", taken.bad);
    let mut micros = vec![None; count];
    for row in &taken.rows {
        let [Value::Int(place), Value::Time(time)] = row[..] else { panic!("{row:?}") };
        micros[place as usize] = Some(time);
    }
    micros
}

#[test]
fn times_of_every_unit_are_exact_or_bad() {
    const SECOND: i64 = 1_000_000;
    let values = |edge: i64| {
        let near = [i64::MIN, i64::MAX, edge, -edge].into_iter();
        near.flat_map(|value| (-2..=2).map(move |more| value.saturating_add(more))).chain(-3..=3).collect::<Vec<_>>()
    };
    let days = [i32::MIN, i32::MAX, 106_751_991, 106_751_992, -106_751_991, -106_751_992, -1, 0, 1];
    let by = |values: Vec<i64>, unit: i128, parts: i128| -> Vec<Option<i64>> {
        values.into_iter().map(|value| (i128::from(value) * unit).div_euclid(parts).try_into().ok()).collect()
    };
    let (seconds, millis, nanos) = (values(i64::MAX / SECOND), values(i64::MAX / 1000), values(1_999));
    let micros = values(0);
    let day = 86_400 * i128::from(SECOND);
    let cases: [(ArrayRef, Vec<Option<i64>>); 9] = [
        (Arc::new(TimestampSecondArray::from(seconds.clone())), by(seconds.clone(), SECOND.into(), 1)),
        (Arc::new(TimestampSecondArray::from(seconds.clone()).with_timezone("-05:00")), by(seconds, SECOND.into(), 1)),
        (Arc::new(TimestampMillisecondArray::from(millis.clone())), by(millis, 1000, 1)),
        (Arc::new(TimestampMicrosecondArray::from(micros.clone())), by(micros.clone(), 1, 1)),
        (Arc::new(TimestampMicrosecondArray::from(micros.clone()).with_timezone("+01:00")), by(micros, 1, 1)),
        (Arc::new(TimestampNanosecondArray::from(nanos.clone())), by(nanos.clone(), 1, 1000)),
        (Arc::new(TimestampNanosecondArray::from(nanos.clone()).with_timezone("UTC")), by(nanos, 1, 1000)),
        (Arc::new(Date32Array::from(days.to_vec())), by(days.map(i64::from).to_vec(), day, 1)),
        (Arc::new(Date64Array::from(vec![-86_400_000, 0, 86_400_000])), by(vec![-1, 0, 1], day, 1)),
    ];
    each(|kind, _, path| {
        for (column, expected) in &cases {
            let found = instants(kind, &path, column.clone());
            assert_eq!(found, *expected, "{kind:?} {}", column.data_type());
        }
    });
}

#[test]
fn integers_beyond_64_bits_signed_are_bad() {
    let columns: Vec<(&str, ArrayRef)> = vec![("n", Arc::new(UInt64Array::from(vec![1, u64::MAX, 3])))];
    each(|kind, _, path| {
        write(kind, &path, &[batch(columns.clone())]);
        let taken = take(&source(kind, &path), &ints(&["n"]));
        assert_eq!(taken.firsts(), [int(1), int(3)]);
        assert_eq!(taken.faults()[0].0, 2);
    });
}

#[test]
fn lists_of_foreign_items() {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for list in [vec![Some(1), Some(2)], vec![], vec![None], vec![Some(3)]] {
        lists.append_value(list);
    }
    lists.append_null();
    let batch = batch(vec![("l", Arc::new(lists.finish()))]);
    let item = ListItem::Scalar(ColumnType::required(Type::Decimal { digits: 5, scale: 1 }));
    let schema = Schema { fields: vec![Field { name: "l".into(), ty: FieldType::List(item) }] };
    each(|kind, _, path| {
        write(kind, &path, std::slice::from_ref(&batch));
        let taken = take(&source(kind, &path), &schema);
        let list = |values: &[i64]| Value::List(values.iter().map(|v| vec![Value::Decimal(*v)]).collect());
        assert_eq!(taken.firsts(), [list(&[10, 20]), list(&[]), list(&[30])]);
        assert_eq!(taken.faults().iter().map(|fault| fault.0).collect::<Vec<_>>(), [3, 5]);
    });
}

#[test]
fn schemas_are_checked_when_the_source_is_opened() {
    let batch = batch(vec![("a", Arc::new(StringArray::from(vec!["x"]))), ("b", Arc::new(Int64Array::from(vec![1])))]);
    each(|kind, _, path| {
        write(kind, &path, std::slice::from_ref(&batch));
        let failure = refusal(&source(kind, &path), &ints(&["b", "a"]));
        assert!(failure.schema);
        assert!(failure.message.ends_with("in.data: column 'a': it is Utf8, which cannot be read as int"), "{failure}");
        let failure = refusal(&source(kind, &path), &ints(&["b", "c"]));
        assert!(failure.schema);
        assert!(failure.message.contains("in.data: column 'c' is missing"), "{failure}");
    });
}

#[test]
fn large_batches_are_cut_and_several_files_read_in_order() {
    let numbers = |range: std::ops::Range<i64>| batch(vec![("n", Arc::new(Int64Array::from_iter_values(range)))]);
    each(|kind, files, path| {
        write(kind, &path, &[numbers(0..2500)]);
        write(kind, &files.path("in.more"), &[numbers(2500..2501)]);
        let spec = source(kind, &files.path("in.*"));
        let mut source = open_source(&spec, &ints(&["n"]), &options(1000)).unwrap();
        let total = source.progress().total.unwrap();
        let taken = drain(source.as_mut(), &ints(&["n"]));
        assert_eq!(taken.firsts(), (0..2501).map(int).collect::<Vec<_>>());
        assert_eq!(taken.batches, 4);
        assert_eq!(source.progress().done, total);
    });
}

#[test]
fn damage_is_a_failure_that_names_the_file() {
    let numbers = batch(vec![
        ("n", Arc::new(Int64Array::from_iter_values(0..5000))),
        ("s", Arc::new(StringArray::from_iter_values((0..5000).map(|i| format!("text {i}"))))),
    ]);
    let schema = Schema::scalars([("n", ColumnType::required(Type::Int)), ("s", ColumnType::required(Type::Str))]);
    each(|kind, files, path| {
        write(kind, &path, &[numbers.slice(0, 2000), numbers.slice(2000, 3000)]);
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 3, 8, 100, whole.len() / 2, whole.len() - 20, whole.len() - 1] {
            let path = files.write("cut.data", &whole[..cut]);
            let failure = match open_source(&source(kind, &path), &schema, &options(1000)) {
                Ok(mut source) => drain(source.as_mut(), &schema).failure,
                Err(failure) => Some(failure.message),
            };
            // A stream's end mark may be missing.
            if kind == IpcStream && cut >= whole.len() - 20 {
                continue;
            }
            let failure = failure.unwrap_or_else(|| panic!("{kind:?} cut to {cut} of {} goes unnoticed", whole.len()));
            assert!(failure.contains("cut.data cannot be read: "), "{kind:?} {cut}: {failure}");
        }
    });
}

#[test]
fn no_damage_panics() {
    let numbers = batch(vec![
        ("n", Arc::new(Int64Array::from_iter_values(0..50))),
        ("s", Arc::new(StringArray::from_iter_values((0..50).map(|i| format!("text {i}"))))),
    ]);
    let schema = Schema::scalars([("n", ColumnType::required(Type::Int)), ("s", ColumnType::required(Type::Str))]);
    each(|kind, files, path| {
        write(kind, &path, std::slice::from_ref(&numbers));
        let whole = std::fs::read(&path).unwrap();
        let mut state = 1u64;
        for _ in 0..300 {
            let mut damaged = whole.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % damaged.len();
                damaged[at] ^= (state >> 20) as u8 | 1;
            }
            let path = files.write("damaged.data", damaged);
            if let Ok(mut source) = open_source(&source(kind, &path), &schema, &options(1000)) {
                drain(source.as_mut(), &schema);
            }
        }
    });
}

#[test]
fn parquet_is_not_read_from_pipes_but_ipc_is() {
    let schema = ints(&["n"]);
    let message = refusal(&source(Parquet, "-"), &schema).message;
    assert!(message.starts_with("standard input cannot be read"), "{message}");
    let numbers = batch(vec![("n", Arc::new(Int64Array::from(vec![1, 2])))]);
    for kind in [IpcFile, IpcStream] {
        let files = Files::new();
        let path = files.path("in.data");
        write(kind, &path, std::slice::from_ref(&numbers));
        let content = std::fs::read(&path).unwrap();
        let pipe = pipe(&files, "live");
        let spec = source(kind, pipe.to_str().unwrap());
        let writer = std::thread::spawn(move || std::fs::write(pipe, content).unwrap());
        assert_eq!(take(&spec, &schema).firsts(), [int(1), int(2)]);
        writer.join().unwrap();
    }
}
