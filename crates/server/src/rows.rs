//! Rows of tables as responses.

use crate::asks::TableAt;
use crate::pieces::Rows;
use crate::queries::Queried;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, TimeUnit};
use arrow_select::concat::concat_batches;
use hyper::header::HeaderValue;
use std::fmt::Write;
use tidemill_connect::{JsonRecords, JsonRows, canonical, json_string};
use tidemill_model::arrow::value_at;
use tidemill_model::{ColumnType, DECIMAL_DIGITS_MAX, Schema, Type, Value};
use tidemill_plan::Table;

/// Returns the schema of a table's rows.
fn schema(table: &Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)))
}

/// Returns the rows from a number on, and at most this many.
pub fn part(at: TableAt, (offset, limit): (Option<u64>, Option<u64>)) -> TableAt {
    let count = at.rows.num_rows();
    let within = |number: Option<u64>, of: usize| number.map_or(of, |number| of.min(number.try_into().unwrap_or(of)));
    let offset = within(Some(offset.unwrap_or(0)), count);
    TableAt { rows: at.rows.slice(offset, within(limit, count - offset)), ..at }
}

/// Returns all rows, a JSON object a line.
pub fn lines(table: &Table, at: TableAt) -> Rows {
    Rows::lines(&schema(table), [at.rows])
}

/// Returns all rows as an Arrow stream.
pub fn arrow(at: TableAt) -> Rows {
    Rows::arrow(&at.rows.schema(), [at.rows])
}

/// Returns the rows of a query as an Arrow stream.
pub fn arrow_of(queried: Queried) -> Rows {
    Rows::arrow(&queried.schema, queried.batches)
}

/// Returns the rows of a query, a JSON object a line; or why they cannot be written.
pub fn lines_of(queried: Queried) -> Result<Rows, String> {
    let schema = plain_schema(&queried)?;
    let batches = queried.batches.iter().map(|batch| canonical(batch, &schema).map_err(|failure| failure.message));
    Ok(Rows::lines(&schema, batches.collect::<Result<Vec<_>, String>>()?))
}

/// The most bytes of a header with types.
const TYPES_BYTES_MAX: usize = 1 << 14;

/// Returns the types of the columns of a query as a JSON object in ASCII; none if they are too many for a header.
pub fn types_of(queried: &Queried) -> Option<HeaderValue> {
    let schema = plain_schema(queried).ok()?;
    let mut types = serde_json::Map::new();
    for field in &schema.fields {
        types.insert(field.name.clone(), field.ty.to_string().trim_end_matches(" | None").into());
    }
    let mut ascii = String::new();
    for c in serde_json::Value::Object(types).to_string().chars() {
        match c {
            ' '..='~' => ascii.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(ascii, "\\u{unit:04x}")),
        }
    }
    HeaderValue::from_str(&ascii).ok().filter(|_| ascii.len() <= TYPES_BYTES_MAX)
}

/// Returns the columns of a query in its plain form.
pub fn plain_schema(queried: &Queried) -> Result<Schema, String> {
    let columns = queried.schema.fields().iter().map(|field| Ok((field.name().as_str(), column_type(field)?)));
    Ok(Schema::scalars(columns.collect::<Result<Vec<_>, String>>()?))
}

/// Returns the rows of a query in its plain form, as one batch of that schema.
pub fn plain_rows(queried: &Queried, schema: &Schema) -> Result<RecordBatch, String> {
    let whole = concat_batches(&queried.schema, &queried.batches).map_err(|error| error.to_string())?;
    canonical(&whole, schema).map_err(|failure| failure.message)
}

/// Returns Tidemill's type for a plain column of Arrow's.
fn column_type(field: &Field) -> Result<ColumnType, String> {
    let ty = match field.data_type() {
        DataType::Boolean => Type::Bool,
        DataType::Int64 => Type::Int,
        DataType::Float64 => Type::Float,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Type::Str,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Type::Bytes,
        DataType::Timestamp(TimeUnit::Microsecond, _) => Type::Time,
        &DataType::Decimal128(digits, scale) if digits <= DECIMAL_DIGITS_MAX && scale >= 0 => {
            Type::Decimal { digits, scale: scale.unsigned_abs() }
        }
        other => return Err(format!("column '{}' is {other}, which is not written as JSON; cast it", field.name())),
    };
    Ok(ColumnType::optional(ty))
}

/// Returns the row of a key as a JSON object, if there is one.
pub fn row(table: &Table, at: &TableAt, key: &[Value]) -> Option<Vec<u8>> {
    let row = find(table, &at.rows, key)?;
    let mut out = Vec::new();
    JsonRows::new(&schema(table)).of(&at.rows).write(&mut out, row);
    out.push(b'\n');
    Some(out)
}

fn find(table: &Table, rows: &RecordBatch, key: &[Value]) -> Option<usize> {
    let columns: Vec<_> = table.key.iter().map(|&c| (rows.column(c), table.columns[c].ty.ty)).collect();
    let is_it = |&row: &usize| columns.iter().zip(key).all(|((array, ty), want)| value_at(array, *ty, row) == *want);
    (0..rows.num_rows()).find(is_it)
}

/// Returns a key from the parts of a path; or what it should be.
pub fn key(table: &Table, parts: &[String]) -> Result<Vec<Value>, String> {
    let columns: Vec<_> = table.key.iter().map(|&column| &table.columns[column]).collect();
    if parts.len() != columns.len() {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err(format!(
            "the key of table '{}' is {}; ask for /tables/{}/{}",
            table.name,
            names.join(", "),
            table.name,
            names.join("/")
        ));
    }
    let value = |(part, column): (&String, &&tidemill_plan::Column)| {
        let ty = ColumnType::required(column.ty.ty);
        key_value(part, ty).map_err(|reason| {
            format!("'{part}' is not a value of key column '{}', which is of type {}: {reason}", column.name, column.ty)
        })
    };
    parts.iter().zip(&columns).map(value).collect()
}

/// Returns a value as JSON lines have it, without the quotes.
fn key_value(part: &str, ty: ColumnType) -> Result<Value, String> {
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let mut object = b"{\"key\":".to_vec();
    match ty.ty {
        Type::Str | Type::Bytes | Type::Time => json_string(&mut object, part),
        Type::Bool if matches!(part, "true" | "false") => object.extend_from_slice(part.as_bytes()),
        Type::Int | Type::Float | Type::Decimal { .. } if is_number => object.extend_from_slice(part.as_bytes()),
        _ => return Err("it is none".to_owned()),
    }
    object.push(b'}');
    let mut records = JsonRecords::new(&Schema::scalars([("key", ty)]));
    records.push(&object).map_err(|bad| bad.reason)?;
    Ok(value_at(records.finish().column(0), ty.ty, 0))
}
