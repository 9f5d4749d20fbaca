//! CSV: the grammar, types, and what is bad.

use crate::support::*;
use tidemill_connect::{RECORD_BYTES_MAX, RECORD_TEXT_BYTES_MAX, ReadCsv};
use tidemill_io::SourceConnection;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

const REQUIRED: fn(Type) -> ColumnType = ColumnType::required;
const OPTIONAL: fn(Type) -> ColumnType = ColumnType::optional;
const MONEY: Type = Type::Decimal { digits: 6, scale: 2 };

fn take_text(content: impl AsRef<[u8]>, schema: &Schema) -> Taken {
    let files = Files::new();
    take(&csv(files.write("in.csv", content)), schema)
}

fn refused_text(content: &str, schema: &Schema) -> String {
    let files = Files::new();
    let failure = refusal(&csv(files.write("in.csv", content)), schema);
    assert!(failure.schema);
    assert!(failure.message.contains("in.csv: "), "{failure}");
    failure.message.split_once("in.csv: ").unwrap().1.to_owned()
}

#[test]
fn columns_are_picked_by_name() {
    let taken = take_text("x,b,a\n9,2,1\n9,4,3\n", &ints(&["a", "b"]));
    assert_eq!(taken.rows, [[int(1), int(2)], [int(3), int(4)]]);
    assert!(taken.bad.is_empty());
}

#[test]
fn byte_order_mark_line_ends_blank_lines_and_a_missing_last_line_end() {
    for content in ["\u{feff}a,b\r\n1,2\r\n\r\n3,4", "a,b\n\n1,2\n3,4\n\n", "\n\na,b\n1,2\n3,4\r"] {
        let taken = take_text(content, &ints(&["a", "b"]));
        assert_eq!(taken.rows, [[int(1), int(2)], [int(3), int(4)]], "{content:?}");
        assert!(taken.bad.is_empty(), "{content:?}");
    }
}

#[test]
fn quotes() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Str)), ("b", REQUIRED(Type::Int))]);
    let content = "a,b\n\"x,\"\"y\"\"\nz\",1\n\"\",\"2\"\n5\" pipe,3\n\"bad\"tail,4\n\"ok\",x\n";
    let taken = take_text(content, &schema);
    assert_eq!(taken.firsts(), [text("x,\"y\"\nz"), text(""), text("5\" pipe")]);
    assert_eq!(
        taken.faults(),
        [(6, Some("a"), "text follows the closing quote"), (7, Some("b"), "expected an integer, found 'x'"),]
    );
    assert_eq!(taken.bad[0].record.as_deref(), Some("\"bad\"tail,4"));
}

#[test]
fn a_quote_left_open_costs_one_line() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Str)), ("b", REQUIRED(Type::Int))]);
    let taken = take_text("a,b\nx,1\n\"y,2\nz,3\nw,4\n", &schema);
    assert_eq!(taken.firsts(), [text("x"), text("z"), text("w")]);
    assert_eq!(taken.faults(), [(3, None, "a quote is opened and never closed")]);
    assert_eq!(taken.bad[0].record.as_deref(), Some("\"y,2"));
}

#[test]
fn stray_quotes_cost_no_more_than_their_lines() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Str)), ("b", REQUIRED(Type::Int))]);
    // Searched anew from each of these lines to the end, the file would take hours.
    let lines = 400_000;
    for (line, good) in [("a\"b,\"c\n", 0), ("a\"b,\"c\nx,1\n", lines)] {
        let taken = take_text(format!("a,b\n{}z,7\n", line.repeat(lines)), &schema);
        assert_eq!(taken.rows.len(), good + 1);
        assert_eq!(taken.rows[good], [text("z"), int(7)]);
        assert_eq!(taken.bad.len(), lines);
        assert!(taken.bad.iter().all(|bad| bad.reason == "a quote is opened and never closed"));
    }
}

#[test]
fn a_blank_line_is_a_none_where_a_text_is_alone() {
    let taken = |ty| take_text("v\n\n\"\"\n\r\n1\n", &Schema::scalars([("v", ty)]));
    assert_eq!(taken(OPTIONAL(Type::Str)).firsts(), [Value::Null, text(""), Value::Null, text("1")]);
    assert_eq!(taken(REQUIRED(Type::Str)).firsts(), [text(""), text("1")]);
    assert_eq!(taken(OPTIONAL(Type::Int)).firsts(), [Value::Null, int(1)]);
    let two = Schema::scalars([("v", OPTIONAL(Type::Str))]);
    assert_eq!(take_text("v,w\n\n\"\",\n,\n", &two).firsts(), [text(""), Value::Null]);
}

#[test]
fn each_type_says_what_is_wrong() {
    let cases = [
        (REQUIRED(Type::Int), "1.5", "expected an integer, found '1.5'"),
        (REQUIRED(Type::Int), "9223372036854775808", "integer overflow: '9223372036854775808' does not fit 64 bits"),
        (REQUIRED(Type::Float), "1,5", "expected 2 fields as in the header, found 3"),
        (REQUIRED(Type::Float), "one", "expected a number, found 'one'"),
        (REQUIRED(Type::Bool), "TRUE", "expected true or false, found 'TRUE'"),
        (REQUIRED(MONEY), "1.005", "too many digits after the point: '1.005' does not fit Decimal(6, 2)"),
        (REQUIRED(MONEY), "12345", "decimal overflow: '12345' does not fit Decimal(6, 2)"),
        (REQUIRED(Type::Time), "2013-02-30", "expected a time like 2013-01-01T05:15:00Z, found '2013-02-30'"),
        (REQUIRED(Type::Bytes), "?", "expected base64 text: Invalid symbol 63, offset 0."),
        (REQUIRED(Type::Int), "", "a value is missing, and int has no None"),
        (REQUIRED(Type::Time), "  ", "a value is missing, and Time has no None"),
        (OPTIONAL(Type::Int), "x", "expected an integer, found 'x'"),
    ];
    for (ty, field, reason) in cases {
        let schema = Schema::scalars([("v", ty), ("n", REQUIRED(Type::Int))]);
        let good = if ty.ty == Type::Bytes { "" } else { "1" };
        let taken = take_text(format!("v,n\n{good},1\n{field},2\n{good},3\n"), &schema);
        assert_eq!(taken.rows.len(), 2, "{ty} {field}");
        assert_eq!(taken.bad.len(), 1);
        assert_eq!(taken.bad[0].reason, reason);
        assert_eq!(taken.bad[0].line, Some(3));
        assert_eq!(taken.bad[0].column.as_deref(), (!reason.contains("fields as")).then_some("v"));
    }
}

#[test]
fn good_spellings() {
    let schema = Schema::scalars([
        ("t", REQUIRED(Type::Time)),
        ("m", REQUIRED(MONEY)),
        ("f", REQUIRED(Type::Float)),
        ("o", REQUIRED(Type::Bool)),
        ("y", REQUIRED(Type::Bytes)),
    ]);
    let taken = take_text("t,m,f,o,y\n1970-01-02, -1.5 ,NaN,True,AP8=\n7,1e2,-inf,0,\n", &schema);
    let second = 1_000_000;
    assert!(taken.bad.is_empty(), "{:?}", taken.bad);
    assert_eq!(taken.rows[0][0], Value::Time(86_400 * second));
    assert_eq!(taken.rows[0][1], Value::Decimal(-150));
    assert!(matches!(taken.rows[0][2], Value::Float(f) if f.is_nan()));
    assert_eq!(taken.rows[0][3..], [Value::Bool(true), Value::Bytes(vec![0, 255])]);
    let second_row = [Value::Time(7), Value::Decimal(10_000), Value::Float(f64::NEG_INFINITY), Value::Bool(false)];
    assert_eq!(taken.rows[1][..4], second_row);
    assert_eq!(taken.rows[1][4], Value::Bytes(vec![]));
}

#[test]
fn empty_fields_and_the_null_text() {
    let schema = Schema::scalars([
        ("i", OPTIONAL(Type::Int)),
        ("s", OPTIONAL(Type::Str)),
        ("r", REQUIRED(Type::Str)),
        ("n", REQUIRED(Type::Int)),
    ]);
    let files = Files::new();
    let path = files.write("in.csv", "i,s,r,n\n,,,1\n\"\",\"\",\"\",2\nNA,NA,x,3\nNA,\"NA\",\"NA\",4\n1,x,NA,5\n");
    let taken = take(&csv(&path), &schema);
    let none = [Value::Null, Value::Null, text("")];
    assert_eq!(taken.rows[0][..3], none);
    assert_eq!(taken.rows[1][..3], [Value::Null, text(""), text("")]);
    assert_eq!(taken.rows[2], [int(1), text("x"), text("NA"), int(5)]);
    assert_eq!(taken.bad.len(), 2);

    let spec = ReadCsv {
        paths: vec![path],
        delimiter: ',',
        null: "NA".into(),
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    }
    .spec();
    let taken = take(&spec, &schema);
    assert_eq!(taken.rows[0][..3], [Value::Null, text(""), text("")]);
    assert_eq!(taken.rows[1][..3], [Value::Null, text(""), text("")]);
    assert_eq!(taken.rows[2][..3], [Value::Null, Value::Null, text("x")]);
    assert_eq!(taken.rows[3][..3], [Value::Null, text("NA"), text("NA")]);
    assert_eq!(taken.faults(), [(6, Some("r"), "a value is missing, and str has no None")]);
}

#[test]
fn wrong_field_counts_are_told_apart_from_wrong_values() {
    let taken = take_text("a,b,c\n1,2\n1,2,3\n1,x,3,4\n1,2,3,\n", &ints(&["a", "b", "c"]));
    assert_eq!(taken.rows.len(), 1);
    assert_eq!(
        taken.faults(),
        [
            (2, None, "expected 3 fields as in the header, found 2"),
            (4, None, "expected 3 fields as in the header, found 4"),
            (5, None, "expected 3 fields as in the header, found 4"),
        ]
    );
}

#[test]
fn text_that_is_no_utf8() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Int)), ("s", REQUIRED(Type::Str))]);
    let taken = take_text(b"a,s\n1,ok\n2,\xff\xfe\n3,ok\n", &schema);
    assert_eq!(taken.firsts(), [int(1), int(3)]);
    assert_eq!(taken.faults(), [(3, Some("s"), "invalid UTF-8 at byte 3 of the record")]);
    assert_eq!(taken.bad[0].record.as_deref(), Some("2,\u{fffd}\u{fffd}"));
}

#[test]
fn headers_are_checked_when_the_source_is_opened() {
    let schema = ints(&["a", "b"]);
    assert_eq!(refused_text("a,c\n1,2\n", &schema), "the header has no column 'b'; it has 'a', 'c'");
    assert_eq!(refused_text("a,b,a\n", &schema), "the header names column 'a' twice");
    assert_eq!(refused_text("", &schema), "it is empty, not even a header line is there");
    assert_eq!(refused_text("\n\n", &schema), "it is empty, not even a header line is there");
    assert_eq!(refused_text("a,\"b\n1,2\n", &schema), "the header line has no end");
    assert!(take_text("a,b", &schema).rows.is_empty());
    assert!(take_text("a,b,,\n", &schema).rows.is_empty());
}

#[test]
fn lists_and_odd_delimiters_are_refused() {
    let files = Files::new();
    let path = files.write("in.csv", "a\n");
    let list = Field { name: "a".into(), ty: FieldType::List(ListItem::Scalar(REQUIRED(Type::Int))) };
    let failure = refusal(&csv(&path), &Schema { fields: vec![list] });
    assert_eq!(failure.message, "column 'a' is a list[int], which CSV cannot hold; use JSON Lines or Parquet");
    assert!(failure.schema);
    for delimiter in ['é', '"', '\n', '\r'] {
        let spec = ReadCsv {
            paths: vec![path.clone()],
            delimiter,
            null: String::new(),
            compression: None,
            end: tidemill_io::InputEnd::Pause,
        }
        .spec();
        assert!(refusal(&spec, &ints(&["a"])).message.contains("delimiter"));
    }
    let spec = ReadCsv {
        paths: vec![files.write("tabs", "a\tb\n1\t2\n")],
        delimiter: '\t',
        null: String::new(),
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    }
    .spec();
    assert_eq!(take(&spec, &ints(&["b", "a"])).rows, [[int(2), int(1)]]);
}

#[test]
fn records_beyond_the_limit_are_skipped() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Str)), ("b", REQUIRED(Type::Int))]);
    let mut content = b"a,b\nx,1\n".to_vec();
    content.resize(content.len() + RECORD_BYTES_MAX + 1, b'y');
    content.extend_from_slice(b",2\nz,3\n\"open,4\nw,5\n");
    content.resize(content.len() + RECORD_BYTES_MAX, b'v');
    content.extend_from_slice(b"\nu,6\n");
    let taken = take_text(&content, &schema);
    assert_eq!(taken.firsts(), [text("x"), text("z"), text("w"), text("u")]);
    let long = "the record is longer than 64 MiB";
    // The last long line is within the limit, but has no second field.
    let short = "expected 2 fields as in the header, found 1";
    assert_eq!(taken.faults(), [(3, None, long), (5, None, long), (7, None, short)]);
    assert_eq!(taken.bad[0].record.as_ref().unwrap().len(), RECORD_TEXT_BYTES_MAX);
    assert_eq!(taken.bad[1].record.as_deref(), Some("\"open,4"));
}

#[test]
fn batches_keep_their_size() {
    let schema = ints(&["a"]);
    let files = Files::new();
    let lines: String = (0..2500).map(|i| format!("{i}\n")).collect();
    let spec = csv(files.write("in.csv", format!("a\n{lines}")));
    let taken = take(&spec, &schema);
    assert_eq!(taken.batches, 3);
    assert_eq!(taken.firsts(), (0..2500).map(int).collect::<Vec<_>>());
}
