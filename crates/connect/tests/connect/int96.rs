//! Times of 96 bits in Parquet, in files that say nothing of Arrow, as Spark writes them.

use crate::support::*;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::sync::Arc;
use tidemill_connect::ReadParquet;
use tidemill_io::{InputEnd, SourceConnection, Spec};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

/// The Julian day of 1970-01-01.
const EPOCH: i64 = 2_440_588;
const DAY_NANOS: i128 = 86_400_000_000_000;

fn int96(days: i64, nanos: i64) -> Int96 {
    let mut value = Int96::new();
    value.set_data(nanos as u32, (nanos >> 32) as u32, i32::try_from(EPOCH + days).unwrap() as u32);
    value
}

fn of_nanos(nanos: i128) -> Int96 {
    int96(nanos.div_euclid(DAY_NANOS) as i64, nanos.rem_euclid(DAY_NANOS) as i64)
}

/// Writes a file of one column; `repetition`: those of nested values.
fn write(path: &str, message: &str, values: &[Int96], definition: &[i16], repetition: Option<&[i16]>) {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_dictionary_enabled(values.len() > 3).build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(values, Some(definition), repetition).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

fn parquet(path: &str) -> Spec {
    ReadParquet { paths: vec![path.into()], end: InputEnd::Pause }.spec()
}

#[test]
fn they_are_exact_or_bad() {
    let files = Files::new();
    let path = files.path("spark.parquet");
    let year = |year: i128| (year - 1970) * 365 * DAY_NANOS;
    let edges = [i128::from(i64::MAX), i128::from(i64::MIN)];
    let micros = edges.into_iter().flat_map(|edge| (-2001..=2001).step_by(667).map(move |more| edge * 1000 + more));
    let nanos = edges.into_iter().flat_map(|edge| (-2..=2).map(move |more| edge + more));
    let plain = [1, 1000, 1677, 1678, 1969, 1970, 2262, 2263, 9999, 200_000].map(year);
    let around = (-2500..2500).step_by(499);
    let mut times: Vec<i128> = micros.chain(nanos).chain(plain).chain(around).collect();
    let mut values: Vec<Int96> = times.iter().map(|&nanos| of_nanos(nanos)).collect();
    // Nanoseconds that are of no day, and days beyond all times.
    for (days, nanos) in
        [(0, -1), (0, i64::MIN), (3, i64::MAX), (i64::from(i32::MAX) - EPOCH, 0), (i64::from(i32::MIN) - EPOCH, -1)]
    {
        values.push(int96(days, nanos));
        times.push(i128::from(days) * DAY_NANOS + i128::from(nanos));
    }
    write(&path, "message spark { optional int96 at; }", &values, &vec![1; values.len()], None);
    let taken = take(&parquet(&path), &Schema::scalars([("at", ColumnType::optional(Type::Time))]));
    let expected = times.iter().map(|nanos| i64::try_from(nanos.div_euclid(1000)).ok());
    assert_eq!(taken.firsts(), expected.clone().flatten().map(Value::Time).collect::<Vec<_>>());
    let bad = (1..).zip(expected).filter(|(_, micros)| micros.is_none()).map(|(row, _)| row);
    assert_eq!(taken.faults().iter().map(|fault| fault.0).collect::<Vec<_>>(), bad.collect::<Vec<u64>>());
    assert!(taken.bad.len() > 4 && taken.faults().iter().all(|(_, _, said)| said.contains("a time out of range")));
}

#[test]
fn they_may_be_none_and_in_lists() {
    let files = Files::new();
    let path = files.path("spark.parquet");
    let one = of_nanos(-62_135_596_800_000_000_001);
    let beyond = int96(i64::from(i32::MAX) - EPOCH, 0);
    write(&path, "message spark { optional int96 at; }", &[one], &[1, 0], None);
    let taken = take(&parquet(&path), &Schema::scalars([("at", ColumnType::optional(Type::Time))]));
    let time = Value::Time(-62_135_596_800_000_001);
    assert_eq!(taken.firsts(), [time.clone(), Value::Null]);

    let message = "message spark { required group at (LIST) { repeated group list { required int96 element; } } }";
    write(&path, message, &[one, of_nanos(0), beyond, one], &[1, 1, 0, 1, 1], Some(&[0, 1, 0, 0, 0]));
    let item = ListItem::Scalar(ColumnType::required(Type::Time));
    let schema = Schema { fields: vec![Field { name: "at".into(), ty: FieldType::List(item) }] };
    let taken = take(&parquet(&path), &schema);
    let list = |values: &[&Value]| Value::List(values.iter().map(|&value| vec![value.clone()]).collect());
    assert_eq!(taken.firsts(), [list(&[&time, &Value::Time(0)]), list(&[]), list(&[&time])]);
    assert_eq!(taken.faults().iter().map(|fault| fault.0).collect::<Vec<_>>(), [3]);
}

#[test]
fn they_stand_for_nothing_else() {
    let files = Files::new();
    let path = files.path("spark.parquet");
    write(&path, "message spark { optional int96 at; }", &[of_nanos(0)], &[1], None);
    let failure = refusal(&parquet(&path), &ints(&["at"]));
    assert!(failure.message.contains("which cannot be read as int"), "{failure}");
}
