//! Events and rows of ints, as columns.

use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Value};
use tidemill_plan::{OriginDef, Plan};

/// Distinct keys for one transaction.
pub fn distinct(zipf: &Zipf, random: &mut Random, count: usize, keys: &mut Vec<i64>) {
    keys.clear();
    while keys.len() < count {
        let key = zipf.key(random) as i64;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
}

/// The schema of a plan's source.
pub fn event_schema(plan: &Plan) -> Schema {
    let source = plan.streams.iter().find_map(|stream| match &stream.origin {
        OriginDef::Source { schema, .. } => Some(schema.clone()),
        _ => None,
    });
    source.expect("a plan with a source")
}

/// Events of a plan from their columns.
pub fn event_batch(plan: &Plan, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(arrow_schema(&event_schema(plan)), columns).expect("columns of the schema")
}

/// A column of ints.
pub fn ints(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// A column of lists of structs of ints, as the schema's field of that number says.
pub fn lists(schema: &Schema, field: usize, ends: &[usize], columns: Vec<Vec<i64>>) -> ArrayRef {
    let schema = arrow_schema(schema);
    let DataType::List(item) = schema.field(field).data_type() else { panic!("a list") };
    let DataType::Struct(fields) = item.data_type() else { panic!("a list of structs") };
    let values = StructArray::new(fields.clone(), columns.into_iter().map(ints).collect(), None);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let offsets = OffsetBuffer::from_lengths(starts.zip(ends).map(|(start, end)| end - start));
    Arc::new(ListArray::new(item.clone(), offsets, Arc::new(values), None))
}

/// A table of a plan: a row per key 0 to `rows` − 1, the other columns all the same, windows left out.
pub fn table_rows(plan: &Plan, table: usize, rows: u64, values: &[i64]) -> RecordBatch {
    let columns = &plan.tables[table].columns;
    let plain = columns.iter().filter(|column| column.window.is_none());
    let schema = Schema::scalars(plain.map(|column| (column.name.as_str(), column.ty)));
    let mut arrays = vec![ints((0..rows as i64).collect())];
    arrays.extend(values.iter().map(|&value| ints(vec![value; rows as usize])));
    RecordBatch::try_new(arrow_schema(&schema), arrays).expect("columns of the table")
}

/// An int column of a batch.
pub fn column(batch: &RecordBatch, number: usize) -> &[i64] {
    batch.column(number).as_primitive::<Int64Type>().values()
}

/// A batch of ints as rows of values, windows left out.
pub fn int_rows(batch: &RecordBatch) -> Vec<Vec<i64>> {
    let is_int = |c: &usize| *batch.column(*c).data_type() == DataType::Int64;
    let columns: Vec<&[i64]> = (0..batch.num_columns()).filter(is_int).map(|c| column(batch, c)).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// An int default of a column.
pub fn zero() -> Value {
    Value::Int(0)
}
