//! Events as records of a topic.

use crate::options::{Format, WriteTopic};
use crate::record::{check_fields, only, text_type};
use arrow_array::RecordBatch;
use rdkafka::message::{Header, OwnedHeaders};
use std::io::Write;
use tidemill_connect::JsonRows;
use tidemill_io::IoFailure;
use tidemill_model::arrow::value_at;
use tidemill_model::{Field, FieldType, Schema, Type, Value};

/// A column, with its type.
#[derive(Clone, Copy)]
struct Column {
    index: usize,
    ty: Type,
}

/// The form of values.
enum Values {
    Json(JsonRows),
    Raw(Column),
}

/// Makes records of the events of a schema.
pub struct Encoder {
    values: Values,
    key: Option<Column>,
    timestamp: Option<Column>,
    headers: Vec<(String, Column)>,
}

/// A record to be written. Its parts are those of the row that it was made of last.
#[derive(Default)]
pub struct Encoded {
    pub value: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    pub headers: Option<OwnedHeaders>,
}

impl Encoder {
    /// Makes an encoder. Fails where the options name fields that are not there, or types that a part of a record cannot have.
    pub fn new(of: &WriteTopic, schema: &Schema) -> Result<Encoder, IoFailure> {
        let named = [("key", &of.key), ("timestamp", &of.timestamp)];
        let named = named.iter().filter_map(|(option, field)| Some((*option, field.as_ref()?)));
        let named: Vec<(&str, &String)> = named.chain(of.headers.keys().map(|field| ("headers", field))).collect();
        check_fields(&named, schema)?;
        let bytes = |name: &String| text_column(schema, name);
        let values = match of.format {
            Format::Json => Values::Json(JsonRows::new(schema)),
            Format::Raw => {
                let is_beside = |field: &&Field| !named.iter().any(|(_, name)| **name == field.name);
                let fields: Vec<Field> = schema.fields.iter().filter(is_beside).cloned().collect();
                Values::Raw(text_column(schema, &only(&fields)?.name)?)
            }
        };
        let headers = of.headers.iter().map(|(field, header)| Ok((header.clone(), bytes(field)?)));
        Ok(Encoder {
            values,
            key: of.key.as_ref().map(bytes).transpose()?,
            timestamp: of.timestamp.as_ref().map(|name| time_column(schema, name)).transpose()?,
            headers: headers.collect::<Result<_, IoFailure>>()?,
        })
    }

    /// Calls `each` with the record of each row.
    pub fn each(
        &self,
        batch: &RecordBatch,
        mut each: impl FnMut(&mut Encoded) -> Result<(), IoFailure>,
    ) -> Result<(), IoFailure> {
        let json = match &self.values {
            Values::Json(rows) => Some(rows.of(batch)),
            Values::Raw(_) => None,
        };
        let mut record = Encoded::default();
        for row in 0..batch.num_rows() {
            match (&json, &self.values) {
                (Some(json), _) => {
                    let value = record.value.get_or_insert_default();
                    value.clear();
                    json.write(value, row);
                }
                (None, Values::Raw(column)) => record.value = bytes_at(batch, *column, row),
                (None, Values::Json(_)) => unreachable!("it has its rows"),
            }
            record.key = self.key.and_then(|column| bytes_at(batch, column, row));
            record.timestamp = self.timestamp.map(|column| millis_at(batch, column, row)).transpose()?.flatten();
            record.headers = self.headers_at(batch, row);
            each(&mut record)?;
        }
        Ok(())
    }

    fn headers_at(&self, batch: &RecordBatch, row: usize) -> Option<OwnedHeaders> {
        let mut headers = None;
        for (key, column) in &self.headers {
            let Some(value) = bytes_at(batch, *column, row) else { continue };
            let before = headers.take().unwrap_or_else(|| OwnedHeaders::new_with_capacity(self.headers.len()));
            headers = Some(before.insert(Header { key, value: Some(&value) }));
        }
        headers
    }
}

/// Returns the bytes of a field of text, bytes or integers.
fn bytes_at(batch: &RecordBatch, column: Column, row: usize) -> Option<Vec<u8>> {
    match value_at(batch.column(column.index), column.ty, row) {
        Value::Str(text) => Some(text.into_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        Value::Int(number) => {
            let mut text = Vec::with_capacity(20);
            write!(text, "{number}").expect("a vector takes all");
            Some(text)
        }
        _ => None,
    }
}

/// Returns a time as a timestamp of Kafka, in milliseconds.
fn millis_at(batch: &RecordBatch, column: Column, row: usize) -> Result<Option<i64>, IoFailure> {
    match value_at(batch.column(column.index), column.ty, row) {
        Value::Time(micros) if micros < 0 => {
            Err(IoFailure::new(format!("a record of Kafka has no timestamp before 1970, and an event has {micros} us")))
        }
        Value::Time(micros) => Ok(Some(micros / 1_000)),
        _ => Ok(None),
    }
}

fn text_column(schema: &Schema, name: &str) -> Result<Column, IoFailure> {
    let index = schema.fields.iter().position(|field| field.name == name).expect("it was looked for");
    let ty = text_type(name, &schema.fields[index].ty)?;
    Ok(Column { index, ty: ty.ty })
}

fn time_column(schema: &Schema, name: &str) -> Result<Column, IoFailure> {
    let index = schema.fields.iter().position(|field| field.name == name).expect("it was looked for");
    match &schema.fields[index].ty {
        FieldType::Scalar(ty) if ty.ty == Type::Time => Ok(Column { index, ty: Type::Time }),
        other => Err(IoFailure::schema(format!("field '{name}' is {other}, and a timestamp is a Time"))),
    }
}
