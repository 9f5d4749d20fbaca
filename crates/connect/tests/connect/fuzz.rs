//! Random bytes into the decoders: no panic, no record lost or counted twice, and the outcome does not
//! depend on how the bytes arrive or how batches are cut.

use crate::support::*;
use proptest::prelude::*;
use std::io::Write;
use tidemill_io::Spec;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type};

fn scalars() -> Schema {
    Schema::scalars([
        ("a", ColumnType::required(Type::Int)),
        ("b", ColumnType::optional(Type::Str)),
        ("c", ColumnType::optional(Type::Time)),
        ("d", ColumnType::optional(Type::Decimal { digits: 5, scale: 2 })),
        ("e", ColumnType::optional(Type::Bytes)),
        ("f", ColumnType::optional(Type::Float)),
    ])
}

fn nested() -> Schema {
    let mut schema = scalars();
    let item = ListItem::Struct(vec![
        ("a".into(), ColumnType::optional(Type::Int)),
        ("b".into(), ColumnType::optional(Type::Str)),
    ]);
    schema.fields.push(Field { name: "l".into(), ty: FieldType::List(item) });
    schema
}

fn bytes_of(pieces: Vec<&'static str>, noise: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec());
    let noise = prop::sample::select(noise).prop_map(|byte| vec![byte]);
    let piece = prop_oneof![6 => pieces, 2 => noise, 1 => any::<u8>().prop_map(|byte| vec![byte])];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn outcome(spec: &Spec, schema: &Schema, batch_rows: usize) -> String {
    let taken = drain(open_source(spec, schema, &options(batch_rows)).unwrap().as_mut(), schema);
    assert!(taken.failure.is_none(), "{taken:?}");
    let bad: Vec<_> = taken.bad.iter().map(|bad| (bad.line, &bad.column, &bad.reason, &bad.record)).collect();
    format!("{:?} {bad:?}", taken.rows)
}

/// Reads the same bytes through a pipe, `step` at a time.
fn piped(content: Vec<u8>, step: usize, spec: impl Fn(String) -> Spec, schema: &Schema) -> String {
    let files = Files::new();
    let path = pipe(&files, "pipe");
    let spec = spec(path.to_str().unwrap().to_owned());
    let writer = std::thread::spawn(move || {
        let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        for part in content.chunks(step) {
            file.write_all(part).unwrap();
            std::thread::yield_now();
        }
    });
    let outcome = outcome(&spec, schema, 1000);
    writer.join().unwrap();
    outcome
}

/// Records of CSV as the grammar has them, told without the decoder: how many that are not blank.
fn count_csv(content: &[u8]) -> usize {
    let mut count = 0;
    let mut start = 0;
    while start < content.len() {
        let (mut inside, mut end, mut at) = (false, None, start);
        while at < content.len() {
            match content[at] {
                b'"' if inside && content.get(at + 1) == Some(&b'"') => at += 1,
                b'"' if inside => inside = false,
                b'"' if at == start || content[at - 1] == b',' => inside = true,
                b'\n' if !inside => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        let open = inside && end.is_none();
        let line = content[start..].iter().position(|byte| *byte == b'\n').map(|length| start + length);
        let end = if open { line } else { end }.unwrap_or(content.len());
        let record = &content[start..end];
        count += usize::from(open || !matches!(record, b"" | b"\r"));
        start = end + 1;
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn csv_bytes(content in bytes_of(
        vec!["1,x,2013-01-01,1.5,AP8=,0.5", "1,,,,,", "\n", "\n", "\r\n", "\"", "\"\"", ",", "\"a\nb\"", "é", "99999999999999999999"],
        vec![b'"', b',', b'\n', b'\r', b'1', 0, 0xff],
    ), step in 1usize..20) {
        let schema = scalars();
        let files = Files::new();
        let content = [b"a,b,c,d,e,f\n".to_vec(), content].concat();
        let spec = csv(files.write("x.csv", &content));
        let taken = take(&spec, &schema);
        prop_assert_eq!(taken.rows.len() + taken.bad.len(), count_csv(&content) - 1);
        let whole = outcome(&spec, &schema, 1000);
        prop_assert_eq!(&whole, &outcome(&spec, &schema, 1));
        prop_assert_eq!(&whole, &piped(content, step, csv, &schema));
    }

    #[test]
    fn jsonl_bytes(content in bytes_of(
        vec![
            "{\"a\":1}", "{\"a\":1,\"b\":\"x\",\"l\":[]}", "{\"a\":", "\"l\":[{\"a\":2}],", "}", "]", "\"\\u00", "null",
            "\n", "\n", "\r\n", "1.5", "1e99", "é", "\"e\":\"AP8=\"", ",", "{\"l\":[{\"b\":\"x\"},{\"a\":3}],\"a\":0}",
        ],
        vec![b'{', b'}', b'[', b']', b'"', b'\\', b':', b' ', b'\n', 0xff],
    ), step in 1usize..20) {
        let schema = nested();
        let files = Files::new();
        let spec = jsonl(files.write("x.jsonl", &content));
        let taken = take(&spec, &schema);
        let blank = |line: &&[u8]| !line.iter().all(u8::is_ascii_whitespace);
        let lines = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&content);
        prop_assert_eq!(taken.rows.len() + taken.bad.len(), lines.split(|byte| *byte == b'\n').filter(blank).count());
        let whole = outcome(&spec, &schema, 1000);
        prop_assert_eq!(&whole, &outcome(&spec, &schema, 1));
        prop_assert_eq!(&whole, &piped(content, step, jsonl, &schema));
    }

    #[test]
    fn any_bytes(content in prop::collection::vec(any::<u8>(), 0..300)) {
        let files = Files::new();
        let path = files.write("x", &content);
        let header = files.write("y", [b"a,b,c,d,e,f\n".to_vec(), content].concat());
        for spec in [jsonl(&path), csv(&path), csv(&header)] {
            if let Ok(mut source) = open_source(&spec, &scalars(), &options(3)) {
                drain(source.as_mut(), &scalars());
            }
        }
    }
}
