//! Rows of tables as responses.

use crate::asks::TableAt;
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use tidemill_connect::{JsonRows, parse_time};
use tidemill_model::arrow::value_at;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::Table;

/// The schema of a table's rows.
fn schema(table: &Table) -> Schema {
    Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)))
}

/// All rows, a JSON object a line.
pub fn lines(table: &Table, at: &TableAt) -> Vec<u8> {
    let rows = JsonRows::new(&schema(table));
    let batch = rows.of(&at.rows);
    let mut out = Vec::new();
    for row in 0..at.rows.num_rows() {
        batch.write(&mut out, row);
        out.push(b'\n');
    }
    out
}

/// All rows as an Arrow stream.
pub fn arrow(at: &TableAt) -> Vec<u8> {
    let written = StreamWriter::try_new(Vec::new(), &at.rows.schema()).and_then(|mut writer| {
        writer.write(&at.rows)?;
        writer.into_inner()
    });
    written.expect("memory takes everything")
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
