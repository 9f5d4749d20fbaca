//! JSON Lines: types, keys, lists, and what is bad.

use crate::support::*;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

const REQUIRED: fn(Type) -> ColumnType = ColumnType::required;
const OPTIONAL: fn(Type) -> ColumnType = ColumnType::optional;
const MONEY: Type = Type::Decimal { digits: 18, scale: 2 };

fn take_text(content: impl AsRef<[u8]>, schema: &Schema) -> Taken {
    let files = Files::new();
    take(&jsonl(files.write("in.jsonl", content)), schema)
}

fn orders() -> Schema {
    let line = vec![("sku".into(), REQUIRED(Type::Str)), ("qty".into(), OPTIONAL(Type::Int))];
    Schema {
        fields: vec![
            Field::scalar("id", REQUIRED(Type::Int)),
            Field { name: "lines".into(), ty: FieldType::List(ListItem::Struct(line)) },
            Field { name: "tags".into(), ty: FieldType::List(ListItem::Scalar(REQUIRED(Type::Str))) },
        ],
    }
}

#[test]
fn keys_in_any_order_given_twice_or_not_asked_for() {
    let schema = Schema::scalars([("a", REQUIRED(Type::Int)), ("b", OPTIONAL(Type::Int))]);
    let content = concat!(
        "\u{feff}{\"a\":1,\"b\":2}\r\n",
        "\n  \t\r\n",
        "{\"b\":4,\"x\":{\"a\":[1,{}]},\"a\":3}\n",
        "{\"a\":9,\"b\":9,\"a\":5,\"b\":null}\n",
        "{\"\\u0061\":6}",
    );
    let taken = take_text(content, &schema);
    assert!(taken.bad.is_empty(), "{:?}", taken.bad);
    let null = Value::Null;
    assert_eq!(taken.rows, [[int(1), int(2)], [int(3), int(4)], [int(5), null.clone()], [int(6), null]]);
}

#[test]
fn each_type_says_what_is_wrong() {
    let cases = [
        (REQUIRED(Type::Int), "1.0", "expected an integer, found '1.0'"),
        (REQUIRED(Type::Int), "1e3", "expected an integer, found '1e3'"),
        (REQUIRED(Type::Int), "\"1\"", "wrong type: '\"1\"', expected an integer"),
        (REQUIRED(Type::Int), "-9223372036854775809", "integer overflow: '-9223372036854775809' does not fit 64 bits"),
        (REQUIRED(Type::Int), "99999999999999999999", "integer overflow: '99999999999999999999' does not fit 64 bits"),
        (REQUIRED(Type::Int), "null", "a value is missing, and int has no None"),
        (REQUIRED(Type::Float), "\"1\"", "wrong type: '\"1\"', expected a number"),
        (REQUIRED(Type::Bool), "1", "wrong type: '1', expected true or false"),
        (REQUIRED(Type::Str), "1", "wrong type: integer `1`, expected a string"),
        (REQUIRED(Type::Str), "{}", "wrong type: map, expected a string"),
        (REQUIRED(Type::Str), "null", "a value is missing, and str has no None"),
        (REQUIRED(Type::Bytes), "\"?\"", "expected base64 text: Invalid symbol 63, offset 0."),
        (REQUIRED(MONEY), "1.005", "too many digits after the point: '1.005' does not fit Decimal(18, 2)"),
        (REQUIRED(MONEY), "[]", "wrong type: '[]', expected a number or a string of digits"),
        (REQUIRED(Type::Time), "1.5", "expected an integer, found '1.5'"),
        (REQUIRED(Type::Time), "\"soon\"", "expected a time like 2013-01-01T05:15:00Z, found 'soon'"),
    ];
    for (ty, value, reason) in cases {
        let schema = Schema::scalars([("n", REQUIRED(Type::Int)), ("v", ty)]);
        let taken = take_text(format!("{{\"n\":1,\"v\":{value}}}\n"), &schema);
        assert_eq!(taken.faults(), [(1, Some("v"), reason)], "{ty} {value}");
    }
}

#[test]
fn good_values() {
    let schema = Schema::scalars([
        ("f", REQUIRED(Type::Float)),
        ("m", REQUIRED(MONEY)),
        ("t", REQUIRED(Type::Time)),
        ("s", REQUIRED(Type::Str)),
        ("y", REQUIRED(Type::Bytes)),
    ]);
    let content = concat!(
        "{\"f\":3,\"m\":9007199254740993.01,\"t\":\"1970-01-01 00:00:01\",\"s\":\"\\ud83d\\ude00\\n\",\"y\":\"AP8=\"}\n",
        "{\"f\":\"-Infinity\",\"m\":\"1\\u002e50\",\"t\":-5,\"s\":\"\",\"y\":\"\"}\n",
        "{\"f\":0.1e-6,\"m\":-0,\"t\":\"5\",\"s\":\"é\",\"y\":\"AP8\"}\n",
    );
    let taken = take_text(content, &schema);
    assert!(taken.bad.is_empty(), "{:?}", taken.bad);
    assert_eq!(
        taken.rows,
        [
            [
                Value::Float(3.0),
                Value::Decimal(900_719_925_474_099_301),
                Value::Time(1_000_000),
                text("😀\n"),
                Value::Bytes(vec![0, 255]),
            ],
            [Value::Float(f64::NEG_INFINITY), Value::Decimal(150), Value::Time(-5), text(""), Value::Bytes(vec![])],
            [Value::Float(1e-7), Value::Decimal(0), Value::Time(5), text("é"), Value::Bytes(vec![0, 255])],
        ]
    );
}

#[test]
fn lists() {
    let good = "{\"id\":1,\"lines\":[{\"qty\":2,\"sku\":\"a\"},{\"sku\":\"b\",\"x\":0}],\"tags\":[]}\n";
    let bad = [
        (
            "{\"id\":1,\"lines\":[{\"sku\":\"a\"},{\"sku\":3}],\"tags\":[]}",
            "lines[1].sku",
            "wrong type: integer `3`, expected a string",
        ),
        ("{\"id\":1,\"lines\":[{\"qty\":3}],\"tags\":[]}", "lines[0].sku", "a value is missing, and str has no None"),
        ("{\"id\":1,\"lines\":[null],\"tags\":[]}", "lines[0]", "wrong type: null, expected an object"),
        ("{\"id\":1,\"lines\":{},\"tags\":[]}", "lines", "wrong type: map, expected a list"),
        ("{\"id\":1,\"lines\":null,\"tags\":[]}", "lines", "wrong type: null, expected a list"),
        ("{\"id\":1,\"lines\":[],\"tags\":[\"a\",null]}", "tags[1]", "a value is missing, and str has no None"),
        ("{\"id\":1,\"lines\":[]}", "tags", "a list is missing, and a list is never None"),
        (
            "{\"lines\":[{\"sku\":\"a\"}],\"tags\":[\"b\"],\"id\":\"x\"}",
            "id",
            "wrong type: '\"x\"', expected an integer",
        ),
    ];
    let element = |sku: &str, qty: Value| vec![text(sku), qty];
    let lines = Value::List(vec![element("a", int(2)), element("b", Value::Null)]);
    let row = vec![int(1), lines, Value::List(vec![])];
    for (record, column, reason) in bad {
        let taken = take_text(format!("{good}{record}\n{good}"), &orders());
        assert_eq!(taken.faults(), [(2, Some(column), reason)]);
        assert_eq!(taken.rows, [row.clone(), row.clone()]);
    }
    // A list given twice.
    let taken = take_text("{\"id\":1,\"tags\":[\"x\",\"y\"],\"lines\":[],\"tags\":[\"z\"]}", &orders());
    assert_eq!(taken.rows[0][2], Value::List(vec![vec![text("z")]]));
}

#[test]
fn broken_records() {
    let schema = ints(&["a"]);
    let cases = [
        ("{\"a\":1} x", "not valid JSON: trailing characters at character 9"),
        ("{\"a\":1}{\"a\":2}", "not valid JSON: trailing characters at character 8"),
        ("{\"a\":1", "not valid JSON: EOF while parsing an object at character 6"),
        ("{\"a\":01}", "not valid JSON: invalid number at character 7"),
        ("{\"a\":1,}", "not valid JSON: trailing comma at character 8"),
        ("[1]", "invalid type: sequence, expected an object"),
        ("7", "invalid type: integer `7`, expected an object"),
    ];
    for (record, reason) in cases {
        let taken = take_text(format!("{{\"a\":1}}\n{record}\n{{\"a\":2}}\n"), &schema);
        assert_eq!(taken.faults(), [(2, None, reason)], "{record}");
        assert_eq!(taken.firsts(), [int(1), int(2)]);
        assert_eq!(taken.bad[0].record.as_deref(), Some(record));
    }
    let deep = "[".repeat(100_000);
    let taken = take_text(format!("{{\"x\":{deep}}}\n{{\"a\":{deep}}}\n{{\"a\":3}}\n"), &schema);
    assert_eq!((taken.bad.len(), taken.firsts()), (2, vec![int(3)]));
    let taken = take_text(b"{\"a\":1,\"s\":\"\xff\"}\n{\"a\":2}\n", &schema);
    assert_eq!(taken.faults(), [(1, None, "invalid UTF-8 at byte 13 of the record")]);
}

#[test]
fn an_empty_file_has_no_events() {
    let taken = take_text("", &ints(&["a"]));
    assert_eq!((taken.rows.len(), taken.bad.len(), taken.batches), (0, 0, 0));
}

/// Blank lines are no records, however many there are: they end neither a batch nor the source.
#[test]
fn megabytes_of_blank_lines() {
    let blank = format!("{}\n", " ".repeat(999)).repeat(20_000);
    let taken = take_text(format!("{blank}{{\"a\":1}}\n{blank}{{\"a\":2}}\n"), &ints(&["a"]));
    assert_eq!(taken.firsts(), [int(1), int(2)]);
}

/// Few but long records make small batches.
#[test]
fn batches_are_bounded_in_bytes() {
    let line = format!("{{\"a\":1,\"x\":\"{}\"}}\n", "y".repeat(6 << 20));
    let taken = take_text(line.repeat(7), &ints(&["a"]));
    assert_eq!((taken.rows.len(), taken.batches), (7, 3));
}
