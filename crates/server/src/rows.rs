//! Rows of tables as responses.

use crate::asks::TableAt;
use crate::pieces::Rows;
use crate::queries::Queried;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, TimeUnit};
use arrow_select::concat::concat_batches;
use tidemill_connect::{JsonRows, canonical, parse_time};
use tidemill_model::arrow::value_at;
use tidemill_model::{ColumnType, DECIMAL_DIGITS_MAX, Schema, Type, Value};
use tidemill_plan::Table;

/// The schema of a table's rows.
fn schema(table: &Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)))
}

/// The rows from a number on, and at most so many.
pub fn part(at: TableAt, (offset, limit): (Option<u64>, Option<u64>)) -> TableAt {
    let count = at.rows.num_rows();
    let within = |number: Option<u64>, of: usize| number.map_or(of, |number| of.min(number.try_into().unwrap_or(of)));
    let offset = within(Some(offset.unwrap_or(0)), count);
    TableAt { rows: at.rows.slice(offset, within(limit, count - offset)), ..at }
}

/// All rows, a JSON object a line.
pub fn lines(table: &Table, at: TableAt) -> Rows {
    Rows::lines(&schema(table), [at.rows])
}

/// All rows as an Arrow stream.
pub fn arrow(at: TableAt) -> Rows {
    Rows::arrow(&at.rows.schema(), [at.rows])
}

/// The rows of a query as an Arrow stream.
pub fn arrow_of(queried: Queried) -> Rows {
    Rows::arrow(&queried.schema, queried.batches)
}

/// The rows of a query, a JSON object a line; or why they cannot be written.
pub fn lines_of(queried: Queried) -> Result<Rows, String> {
    let schema = plain_schema(&queried)?;
    let batches = queried.batches.iter().map(|batch| canonical(batch, &schema).map_err(|failure| failure.message));
    Ok(Rows::lines(&schema, batches.collect::<Result<Vec<_>, String>>()?))
}

/// The columns of a query in its plain form.
pub fn plain_schema(queried: &Queried) -> Result<Schema, String> {
    let columns = queried.schema.fields().iter().map(|field| Ok((field.name().as_str(), column_type(field)?)));
    Ok(Schema::scalars(columns.collect::<Result<Vec<_>, String>>()?))
}

/// The rows of a query in its plain form, as one batch of that schema.
pub fn plain_rows(queried: &Queried, schema: &Schema) -> Result<RecordBatch, String> {
    let whole = concat_batches(&queried.schema, &queried.batches).map_err(|error| error.to_string())?;
    canonical(&whole, schema).map_err(|failure| failure.message)
}

/// Tidemill's type for a plain column of Arrow's.
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

/// The row of a key as a JSON object, if there is one.
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

/// A key from the parts of a path; or what it should be.
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
        let wrong =
            || format!("'{part}' is not a value of key column '{}', which is of type {}", column.name, column.ty);
        key_value(part, column.ty.ty).ok_or_else(wrong)
    };
    parts.iter().zip(&columns).map(value).collect()
}

fn key_value(part: &str, ty: Type) -> Option<Value> {
    match ty {
        Type::Str => Some(Value::Str(part.to_owned())),
        Type::Int => part.parse().ok().map(Value::Int),
        Type::Bool => part.parse().ok().map(Value::Bool),
        Type::Time => parse_time(part).map(Value::Time),
        _ => None,
    }
}
