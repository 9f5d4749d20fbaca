//! A round trip: the source of a format reads back what a sink of it wrote, over random schemas and values.

use crate::support::*;
use proptest::prelude::*;
use tidemill_connect::{
    Compression, IpcCompression, ParquetCompression, ReadCsv, ReadIpc, ReadParquet, WriteCsv, WriteIpc, WriteJsonl,
    WriteParquet,
};
use tidemill_io::{SinkConnection, SourceConnection, Spec};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        Just(Type::Bool),
        Just(Type::Int),
        Just(Type::Float),
        (1u8..=18).prop_flat_map(|digits| (0..=digits).prop_map(move |scale| Type::Decimal { digits, scale })),
        Just(Type::Time),
        Just(Type::Str),
        Just(Type::Bytes),
    ]
}

fn any_column() -> impl Strategy<Value = ColumnType> {
    (any_type(), any::<bool>()).prop_map(|(ty, nullable)| ColumnType { ty, nullable })
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,4}", "[ -~é\n]{1,6}"]
}

fn any_field(lists: bool) -> BoxedStrategy<FieldType> {
    let scalar = any_column().prop_map(FieldType::Scalar);
    if !lists {
        return scalar.boxed();
    }
    let named = prop::collection::vec((any_name(), any_column()), 1..4).prop_map(|columns| {
        let distinct = columns.into_iter().enumerate().map(|(i, (name, ty))| (format!("{name}{i}"), ty)).collect();
        FieldType::List(ListItem::Struct(distinct))
    });
    prop_oneof![3 => scalar, 1 => any_column().prop_map(|ty| FieldType::List(ListItem::Scalar(ty))), 1 => named].boxed()
}

fn any_schema(lists: bool) -> impl Strategy<Value = Schema> {
    prop::collection::vec((any_name(), any_field(lists)), 1..5).prop_map(|fields| Schema {
        fields: fields
            .into_iter()
            .enumerate()
            .map(|(i, (name, ty))| Field { name: format!("{name}{i}"), ty })
            .collect(),
    })
}

fn any_scalar(column: ColumnType) -> BoxedStrategy<Value> {
    let value = match column.ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int => any::<i64>().prop_map(Value::Int).boxed(),
        Type::Float => any::<u64>().prop_map(|bits| Value::Float(canonical(f64::from_bits(bits)))).boxed(),
        Type::Decimal { digits, .. } => {
            let bound = 10i64.pow(digits.into());
            (1 - bound..bound).prop_map(Value::Decimal).boxed()
        }
        Type::Time => prop_oneof![any::<i64>(), 0..4_000_000_000_000_000i64].prop_map(Value::Time).boxed(),
        Type::Str => prop_oneof![any::<String>(), "[a-c,;\"\r\n\\\\N ]{0,5}"].prop_map(Value::Str).boxed(),
        Type::Bytes => any::<Vec<u8>>().prop_map(Value::Bytes).boxed(),
        Type::Duration | Type::Null => unreachable!(),
    };
    if column.nullable { prop_oneof![1 => Just(Value::Null), 4 => value].boxed() } else { value }
}

/// The payload of a NaN is not kept.
fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn any_value(ty: &FieldType) -> BoxedStrategy<Value> {
    match ty {
        FieldType::Scalar(column) => any_scalar(*column),
        FieldType::List(item) => {
            let element: Vec<_> = item.columns().into_iter().map(|(_, ty)| any_scalar(ty)).collect();
            prop::collection::vec(element, 0..4).prop_map(Value::List).boxed()
        }
    }
}

fn any_rows(lists: bool) -> impl Strategy<Value = (Schema, Vec<Vec<Value>>)> {
    any_schema(lists).prop_flat_map(|schema| {
        let row: Vec<_> = schema.fields.iter().map(|field| any_value(&field.ty)).collect();
        (Just(schema), prop::collection::vec(row, 0..30))
    })
}

/// Writes the rows in two batches and reads them back.
fn back(sink: &Spec, source: &Spec, schema: &Schema, rows: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let mut sink = open_sink(sink, schema).unwrap();
    let (first, second) = rows.split_at(rows.len() / 3);
    for part in [first, second] {
        sink.write(&batch_of(schema, part)).unwrap();
        sink.flush().unwrap();
    }
    sink.finish().unwrap();
    let taken = drain(open_source(source, schema, &options(7)).unwrap().as_mut(), schema);
    assert!(taken.bad.is_empty() && taken.failure.is_none(), "{taken:?}");
    taken.rows
}

/// Equal to the bit, NaN included.
fn same(left: &[Vec<Value>], right: &[Vec<Value>]) -> Result<(), TestCaseError> {
    prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn csv_with_a_null_text((schema, rows) in any_rows(false), delimiter in prop::sample::select(vec![',', ';', '\t', '-', '1', 'N', 't', ' '])) {
        let files = Files::new();
        let path = files.path("x.csv");
        let null = if delimiter == 'N' { "?" } else { "\\N" };
        let sink = WriteCsv { path: path.clone(), delimiter, null: null.into(), compression: None }.spec();
        let source = ReadCsv { paths: vec![path], delimiter, null: null.into(), compression: None, end: tidemill_io::InputEnd::Pause }.spec();
        same(&back(&sink, &source, &schema, &rows), &rows)?;
    }

    #[test]
    fn csv_without((schema, rows) in any_rows(false)) {
        let files = Files::new();
        let path = files.path("x.csv.gz");
        let sink = WriteCsv { path: path.clone(), delimiter: ',', null: String::new(), compression: None }.spec();
        same(&back(&sink, &csv(path), &schema, &rows), &rows)?;
    }

    #[test]
    fn json_lines((schema, rows) in any_rows(true), pick in 0usize..3) {
        let files = Files::new();
        let path = files.path(["x.jsonl", "x.jsonl.gz", "x.jsonl.zst"][pick]);
        let sink = WriteJsonl { path: path.clone(), compression: None }.spec();
        same(&back(&sink, &jsonl(path), &schema, &rows), &rows)?;
    }

    #[test]
    fn parquet((schema, rows) in any_rows(true), pick in 0usize..5) {
        use ParquetCompression::*;
        let files = Files::new();
        let path = files.path("x.parquet");
        let sink = WriteParquet { path: path.clone(), compression: [None, Snappy, Lz4, Gzip, Zstd][pick] }.spec();
        same(&back(&sink, &ReadParquet { paths: vec![path], end: tidemill_io::InputEnd::Pause }.spec(), &schema, &rows), &rows)?;
    }

    #[test]
    fn ipc((schema, rows) in any_rows(true), pick in 0usize..3) {
        use IpcCompression::*;
        let files = Files::new();
        let path = files.path("x.arrow");
        let sink = WriteIpc { path: path.clone(), compression: [None, Lz4, Zstd][pick] }.spec();
        same(&back(&sink, &ReadIpc { paths: vec![path], end: tidemill_io::InputEnd::Pause }.spec(), &schema, &rows), &rows)?;
    }
}

#[test]
fn no_events_make_a_whole_file() {
    let schema = ints(&["a", "b"]);
    for kind in ["csv", "jsonl", "parquet", "ipc"] {
        let files = Files::new();
        let path = files.path("out.zst");
        let sink = format!(r#"{{"kind":"{kind}","path":{path:?}}}"#);
        let source = format!(r#"{{"kind":"{kind}","paths":[{path:?}]}}"#);
        let (sink, source) = (serde_json::from_str(&sink).unwrap(), serde_json::from_str(&source).unwrap());
        assert!(back(&sink, &source, &schema, &[]).is_empty());
    }
    let spec =
        WriteCsv { path: "x".into(), delimiter: ',', null: String::new(), compression: Some(Compression::Zstd) }.spec();
    assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
}
