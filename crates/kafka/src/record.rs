//! Records of a topic as events: their fields from value, key, timestamp, headers, partition and offset.

use crate::options::{Format, ReadTopic};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use rdkafka::Message;
use rdkafka::message::Headers;
use tidemill_connect::{JsonRecords, excerpt};
use tidemill_io::{BadRecord, IoFailure, SourceBatch};
use tidemill_model::arrow::{array_of, arrow_schema};
use tidemill_model::{ColumnType, Field, FieldType, Schema, Type, Value};

/// The part of a record that a field is read from.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// The value: a column of it.
    Value(usize),
    Key,
    Timestamp,
    Partition,
    Offset,
    /// The last header of this name.
    Header(String),
}

/// A field that is read from another part than the value.
struct Beside {
    name: String,
    part: Part,
    ty: ColumnType,
    values: Vec<Value>,
}

/// The values of records.
enum Values {
    Json(JsonRecords),
    Raw { ty: ColumnType, name: String, values: Vec<Value> },
}

/// Makes batches of the records of a partition.
pub struct Decoder {
    schema: Schema,
    /// The part of each field: a column of the value, or one of `beside`.
    columns: Vec<Column>,
    values: Values,
    beside: Vec<Beside>,
    bad: Vec<BadRecord>,
    count: usize,
}

#[derive(Clone, Copy)]
enum Column {
    Value(usize),
    Beside(usize),
}

impl Decoder {
    /// Makes a decoder. Fails where the options name fields that are not there, or types that a part of a record cannot have.
    pub fn new(of: &ReadTopic, schema: &Schema) -> Result<Decoder, IoFailure> {
        let (mut columns, mut beside, mut in_value) = (Vec::new(), Vec::new(), Vec::new());
        check_names(of, schema)?;
        for field in &schema.fields {
            match part_of(of, &field.name) {
                Part::Value(_) => {
                    columns.push(Column::Value(in_value.len()));
                    in_value.push(field.clone());
                }
                part => {
                    columns.push(Column::Beside(beside.len()));
                    let ty = type_of(field, &part)?;
                    beside.push(Beside { name: field.name.clone(), part, ty, values: Vec::new() });
                }
            }
        }
        let values = match of.format {
            Format::Json => Values::Json(JsonRecords::lenient(&Schema { fields: in_value })),
            Format::Raw => {
                let Field { name, ty } = only(&in_value)?;
                Values::Raw { ty: text_type(&name, &ty)?, name, values: Vec::new() }
            }
        };
        Ok(Decoder { schema: schema.clone(), columns, values, beside, bad: Vec::new(), count: 0 })
    }

    /// Returns the number of records, bad ones among them.
    pub fn records(&self) -> usize {
        self.count + self.bad.len()
    }

    /// Takes the next record.
    pub fn push(&mut self, record: &impl Message) {
        match self.decode(record) {
            Ok(beside) => {
                self.count += 1;
                self.beside.iter_mut().zip(beside).for_each(|(field, value)| field.values.push(value));
            }
            Err(bad) => self.bad.push(BadRecord {
                origin: Some(format!("{}/{}", record.topic(), record.partition())),
                line: u64::try_from(record.offset()).ok(),
                record: record.payload().map(excerpt),
                after: self.count as u64,
                ..bad
            }),
        }
    }

    /// Decodes a record; returns the fields that are not of its value, which has been taken then.
    fn decode(&mut self, record: &impl Message) -> Result<Vec<Value>, BadRecord> {
        let at = |name: &str| {
            let name = name.to_owned();
            move |reason: String| BadRecord { column: Some(name), reason, ..BadRecord::default() }
        };
        let value_of = |field: &Beside| field.of(record).map_err(at(&field.name));
        let beside = self.beside.iter().map(value_of).collect::<Result<Vec<Value>, BadRecord>>()?;
        match &mut self.values {
            Values::Json(records) => {
                let none = || BadRecord {
                    reason: "the record has no value: it says that its key is gone".into(),
                    ..BadRecord::default()
                };
                records.push(record.payload().ok_or_else(none)?)?;
            }
            Values::Raw { ty, name, values } => {
                let value = scalar(*ty, record.payload()).map_err(at(name))?;
                values.push(value);
            }
        }
        Ok(beside)
    }

    /// Returns the records as a batch; none are left.
    pub fn finish(&mut self) -> SourceBatch {
        let in_value: Vec<ArrayRef> = match &mut self.values {
            Values::Json(records) => records.finish().columns().to_vec(),
            Values::Raw { ty, values, .. } => vec![array_of(ty.ty, &std::mem::take(values))],
        };
        let beside: Vec<ArrayRef> =
            self.beside.iter_mut().map(|field| array_of(field.ty.ty, &std::mem::take(&mut field.values))).collect();
        let column = |column: &Column| match *column {
            Column::Value(at) => in_value[at].clone(),
            Column::Beside(at) => beside[at].clone(),
        };
        let columns = self.columns.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.count)));
        let events = RecordBatch::try_new_with_options(arrow_schema(&self.schema), columns, &options);
        SourceBatch { events: events.expect("columns are of the schema"), bad: std::mem::take(&mut self.bad) }
    }
}

impl Beside {
    fn of(&self, record: &impl Message) -> Result<Value, String> {
        match &self.part {
            Part::Key => scalar(self.ty, record.key()),
            Part::Partition => Ok(Value::Int(i64::from(record.partition()))),
            Part::Offset => Ok(Value::Int(record.offset())),
            Part::Timestamp => match record.timestamp().to_millis().and_then(|millis| millis.checked_mul(1_000)) {
                Some(micros) => Ok(Value::Time(micros)),
                None if self.ty.nullable => Ok(Value::Null),
                None => Err("the record has no timestamp".into()),
            },
            Part::Header(name) => {
                let headers = record.headers();
                let found = headers.and_then(|headers| headers.iter().filter(|header| header.key == name).last());
                scalar(self.ty, found.and_then(|header| header.value))
            }
            Part::Value(_) => unreachable!("it is beside the value"),
        }
    }
}

/// Returns the value of some bytes, in a column of text, bytes or integers.
fn scalar(ty: ColumnType, bytes: Option<&[u8]>) -> Result<Value, String> {
    let Some(bytes) = bytes else {
        return if ty.nullable { Ok(Value::Null) } else { Err(format!("a value is missing, and {ty} has no None")) };
    };
    let text = || std::str::from_utf8(bytes).map_err(|_| "not valid UTF-8".to_owned());
    match ty.ty {
        Type::Bytes => Ok(Value::Bytes(bytes.to_vec())),
        Type::Str => Ok(Value::Str(text()?.to_owned())),
        _ => {
            let text = text()?;
            let number = text.parse().map_err(|_| format!("'{text:.40}' is no integer"))?;
            Ok(Value::Int(number))
        }
    }
}

/// Returns the part of a record that a field is read from.
fn part_of(of: &ReadTopic, name: &str) -> Part {
    let is = |option: &Option<String>| option.as_deref() == Some(name);
    match of.headers.get(name) {
        Some(header) => Part::Header(header.clone()),
        None if is(&of.key) => Part::Key,
        None if is(&of.timestamp) => Part::Timestamp,
        None if is(&of.partition) => Part::Partition,
        None if is(&of.offset) => Part::Offset,
        None => Part::Value(0),
    }
}

/// Returns the type of a field that is read from a part beside the value.
fn type_of(field: &Field, part: &Part) -> Result<ColumnType, IoFailure> {
    let wrong = |may: &str| {
        IoFailure::schema(format!("field '{}' is {}, and what it is read from can be {may}", field.name, field.ty))
    };
    let FieldType::Scalar(ty) = &field.ty else { return Err(wrong("no list")) };
    let (is_right, may) = match part {
        Part::Timestamp => (ty.ty == Type::Time, "a Time"),
        Part::Partition | Part::Offset => (ty.ty == Type::Int, "an int"),
        _ => (matches!(ty.ty, Type::Str | Type::Bytes | Type::Int), "a str, bytes or an int"),
    };
    if is_right { Ok(*ty) } else { Err(wrong(may)) }
}

/// Fails where an option names a field that the schema lacks, or two name the same.
fn check_names(of: &ReadTopic, schema: &Schema) -> Result<(), IoFailure> {
    let named = [("key", &of.key), ("timestamp", &of.timestamp), ("partition", &of.partition), ("offset", &of.offset)];
    let named = named.iter().filter_map(|(option, field)| Some((*option, field.as_ref()?)));
    let all: Vec<(&str, &String)> = named.chain(of.headers.keys().map(|field| ("headers", field))).collect();
    check_fields(&all, schema)?;
    for (at, (option, field)) in all.iter().enumerate() {
        if let Some((other, _)) = all[..at].iter().find(|(_, before)| before == field) {
            return Err(IoFailure::schema(format!("field '{field}' is named by {other} and by {option}")));
        }
    }
    Ok(())
}

/// Fails where an option names a field that the schema lacks.
pub fn check_fields(named: &[(&str, &String)], schema: &Schema) -> Result<(), IoFailure> {
    let has = |name: &str| schema.fields.iter().any(|field| field.name == name);
    match named.iter().find(|(_, field)| !has(field)) {
        Some((option, field)) => {
            Err(IoFailure::schema(format!("{option} names '{field}', and the events have no such field: {schema}")))
        }
        None => Ok(()),
    }
}

/// Returns the one field of raw values.
pub fn only(fields: &[Field]) -> Result<Field, IoFailure> {
    match fields {
        [field] => Ok(field.clone()),
        _ => Err(IoFailure::schema(format!(
            "a raw value is one field, and {} fields are of the value: name the others as key, timestamp, headers",
            fields.len()
        ))),
    }
}

/// Returns the type of a field that is the text or bytes of a value or key.
pub fn text_type(name: &str, ty: &FieldType) -> Result<ColumnType, IoFailure> {
    match ty {
        FieldType::Scalar(ty) if matches!(ty.ty, Type::Str | Type::Bytes | Type::Int) => Ok(*ty),
        _ => {
            Err(IoFailure::schema(format!("field '{name}' is {ty}, and bytes of a record are a str, bytes or an int")))
        }
    }
}
