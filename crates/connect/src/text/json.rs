//! Single JSON objects as records, and records as JSON objects, for those who get and give them one by one.
//!
//! They are read and written as JSON Lines are, with one difference: an object with a key that the schema does not name,
//! or with a key twice, is refused, since its author meant something by it.

use super::Format;
use super::jsonl::{Jsonl, Unknown};
use super::jsonl_write::{self, JsonlRows};
use crate::bad::{Fault, excerpt};
use crate::columns::Rows;
use crate::views::{View, views};
use arrow_array::RecordBatch;
use tidemill_io::BadRecord;
use tidemill_model::Schema;

/// Records under construction.
pub struct JsonRecords {
    format: Jsonl,
    rows: Rows,
}

impl JsonRecords {
    /// Makes a decoder without records.
    pub fn new(schema: &Schema) -> JsonRecords {
        JsonRecords { format: Jsonl::with(schema, Unknown::Refused), rows: Rows::new(schema) }
    }

    /// Makes a decoder that reads objects as those of files are read: keys that the schema does not name are not looked at.
    pub fn lenient(schema: &Schema) -> JsonRecords {
        JsonRecords { format: Jsonl::new(schema), rows: Rows::new(schema) }
    }

    /// Appends the record of an object; one that is bad changes nothing.
    pub fn push(&mut self, object: &[u8]) -> Result<(), BadRecord> {
        let before = self.rows.count();
        let decoded = match std::str::from_utf8(object) {
            Ok(text) => self.format.decode(text, &mut self.rows),
            Err(_) => Err(Fault::whole("not valid UTF-8")),
        };
        let decoded = match decoded {
            Ok(()) if self.rows.count() == before => Err(Fault::whole("there is nothing; give a JSON object")),
            decoded => decoded,
        };
        decoded.map_err(|Fault { column, reason }| {
            self.rows.roll_back();
            BadRecord { origin: None, line: None, column, reason, record: Some(excerpt(object)), after: before as u64 }
        })
    }

    /// Returns the number of records.
    pub fn count(&self) -> usize {
        self.rows.count()
    }

    /// Returns the records as a batch in canonical form; none are left.
    pub fn finish(&mut self) -> RecordBatch {
        self.rows.finish()
    }
}

/// Writes records of a schema as JSON objects.
pub struct JsonRows(JsonlRows);

impl JsonRows {
    /// Makes the form of a schema's rows.
    pub fn new(schema: &Schema) -> JsonRows {
        JsonRows(JsonlRows::new(schema))
    }

    /// Returns the rows of a batch, to be written. Panics if it is not in the schema's canonical form.
    pub fn of<'a>(&'a self, batch: &'a RecordBatch) -> JsonBatch<'a> {
        JsonBatch { rows: &self.0, columns: views(batch, super::sink::RowWriter::schema(&self.0)) }
    }
}

/// The records of a batch.
pub struct JsonBatch<'a> {
    rows: &'a JsonlRows,
    columns: Vec<View<'a>>,
}

impl JsonBatch<'_> {
    /// Appends the object of a row.
    pub fn write(&self, out: &mut Vec<u8>, row: usize) {
        self.rows.object(out, &self.columns, row);
    }
}

/// Appends a text as a JSON string.
pub fn json_string(out: &mut Vec<u8>, text: &str) {
    jsonl_write::string(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::{ColumnType, Field, FieldType, ListItem, Type};

    fn schema() -> Schema {
        let note = ColumnType { nullable: true, ..Type::Str.into() };
        Schema::scalars([("account", Type::Str.into()), ("amount", Type::Int.into()), ("note", note)])
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let items = ListItem::Struct(vec![("n".into(), Type::Int.into())]);
        let lines = Field { name: "lines".into(), ty: FieldType::List(items) };
        let mut fields = schema().fields;
        fields.push(lines);
        let mut records = JsonRecords::new(&Schema { fields });
        for (twice, field) in [
            (r#"{"account":"a","amount":1,"amount":2,"lines":[]}"#, "amount"),
            (r#"{"account":"a","account":"a","amount":1,"lines":[]}"#, "account"),
            (r#"{"account":"a","note":null,"amount":1,"note":null,"lines":[]}"#, "note"),
            (r#"{"account":"a","amount":1,"lines":[],"lines":[{"n":1}]}"#, "lines"),
            (r#"{"account":"a","amount":1,"lines":[{"n":1},{"n":1,"n":2}]}"#, "lines[1].n"),
            (r#"{"account":"a","amount":1,"\u0061mount":2,"lines":[]}"#, "amount"),
        ] {
            let bad = records.push(twice.as_bytes()).expect_err(twice);
            assert_eq!((bad.column.as_deref(), &*bad.reason), (Some(field), "the field is given twice"));
        }
        assert_eq!(records.count(), 0);
    }

    #[test]
    fn what_is_read_is_written() {
        let mut records = JsonRecords::new(&schema());
        let objects = [r#"{"account":"ada","amount":5,"note":null}"#, r#"{"account":"b\"ob","amount":-1,"note":"hi"}"#];
        for object in objects {
            records.push(object.as_bytes()).expect("it is right");
        }
        assert_eq!(records.count(), 2);
        let batch = records.finish();
        let rows = JsonRows::new(&schema());
        for (row, object) in objects.iter().enumerate() {
            let mut out = Vec::new();
            rows.of(&batch).write(&mut out, row);
            assert_eq!(String::from_utf8(out).expect("text"), *object);
        }
        assert_eq!(records.count(), 0);
    }

    #[test]
    fn a_wrong_object_is_refused_by_field_and_changes_nothing() {
        let mut records = JsonRecords::new(&schema());
        records.push(br#"{"account":"ada","amount":5}"#).expect("None may be left out");
        let cases: [(&[u8], Option<&str>, &str); 8] = [
            (br#"{"account":"ada","amount":"five"}"#, Some("amount"), "wrong type: '\"five\"', expected an integer"),
            (br#"{"account":"ada"}"#, Some("amount"), "a value is missing, and int has no None"),
            (
                br#"{"account":"ada","amount":1,"extra":2}"#,
                Some("extra"),
                "there is no such field; fields: 'account', 'amount', 'note'",
            ),
            (b"{", None, "not valid JSON"),
            (b"[1]", None, "invalid type: sequence, expected an object"),
            (b"  ", None, "there is nothing"),
            (b"\xff", None, "not valid UTF-8"),
            (br#"{"account":"ada","amount":1} x"#, None, "not valid JSON"),
        ];
        for (object, column, reason) in cases {
            let bad = records.push(object).expect_err("it is wrong");
            assert_eq!(bad.column.as_deref(), column, "{bad:?}");
            assert!(bad.reason.starts_with(reason), "{bad:?}");
            assert_eq!(records.count(), 1);
        }
        assert_eq!(records.finish().num_rows(), 1);
    }
}
