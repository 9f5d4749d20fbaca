//! Events and rows of ints, as columns.

use super::input::Knobs;
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
use tidemill_state::hash_word;

/// The number of partitions into which PAT and the workloads divide keys: by their hash.
pub const PARTITIONS: u64 = 16;

/// Returns the partition of a key.
pub fn partition_of(key: i64) -> u64 {
    hash_word(key as u64) % PARTITIONS
}

/// Draws the keys of transactions.
#[derive(Clone, Copy)]
pub struct Draw<'a> {
    zipf: &'a Zipf,
    /// The share of transactions on several partitions, and how many; none where partitions are not looked at.
    spread: Option<(f64, usize)>,
}

impl<'a> Draw<'a> {
    /// Draws keys with this skew, by the knobs for partitions.
    pub fn new(zipf: &'a Zipf, knobs: &Knobs) -> Draw<'a> {
        Draw { zipf, spread: (knobs.partitions > 0).then_some((knobs.across, knobs.partitions)) }
    }

    /// Draws from all keys, wherever they are.
    pub fn anywhere(zipf: &'a Zipf) -> Draw<'a> {
        Draw { zipf, spread: None }
    }

    /// Keys for one transaction, which may be the same unless partitions are looked at.
    pub fn repeated(&self, random: &mut Random, count: usize, keys: &mut Vec<i64>) {
        if self.spread.is_some() {
            return self.keys(random, count, keys);
        }
        keys.clear();
        keys.extend((0..count).map(|_| self.zipf.key(random) as i64));
    }

    /// Distinct keys for one transaction. A transaction on several partitions has its first keys on different ones; with
    /// fewer keys it is on as many as it has keys.
    pub fn keys(&self, random: &mut Random, count: usize, keys: &mut Vec<i64>) {
        keys.clear();
        let spread = self.spread.map(|(share, partitions)| if random.unit() < share { partitions } else { 1 });
        let mut on: Vec<u64> = Vec::new();
        while keys.len() < count {
            let key = self.zipf.key(random) as i64;
            let fits = match spread {
                None => true,
                Some(spread) => on.contains(&partition_of(key)) != (on.len() < spread),
            };
            if fits && !keys.contains(&key) {
                keys.push(key);
                if spread.is_some_and(|spread| on.len() < spread) {
                    on.push(partition_of(key));
                }
            }
        }
    }
}

/// Returns the schema of a plan's source.
pub fn event_schema(plan: &Plan) -> Schema {
    let source = plan.streams.iter().find_map(|stream| match &stream.origin {
        OriginDef::Source { schema, .. } => Some(schema.clone()),
        _ => None,
    });
    source.expect("a plan with a source")
}

/// Returns events of a plan from their columns.
pub fn event_batch(plan: &Plan, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(arrow_schema(&event_schema(plan)), columns).expect("columns of the schema")
}

/// Returns a column of ints.
pub fn ints(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// Returns a column of lists of structs of ints, as the schema's field of that number says.
pub fn lists(schema: &Schema, field: usize, ends: &[usize], columns: Vec<Vec<i64>>) -> ArrayRef {
    let schema = arrow_schema(schema);
    let DataType::List(item) = schema.field(field).data_type() else { panic!("a list") };
    let DataType::Struct(fields) = item.data_type() else { panic!("a list of structs") };
    let values = StructArray::new(fields.clone(), columns.into_iter().map(ints).collect(), None);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let offsets = OffsetBuffer::from_lengths(starts.zip(ends).map(|(start, end)| end - start));
    Arc::new(ListArray::new(item.clone(), offsets, Arc::new(values), None))
}

/// Returns a table of a plan: a row per key 0 to `rows` − 1, the other columns all the same, windows left out.
pub fn table_rows(plan: &Plan, table: usize, rows: u64, values: &[i64]) -> RecordBatch {
    let columns = &plan.tables[table].columns;
    let plain = columns.iter().filter(|column| column.window.is_none());
    let schema = Schema::scalars(plain.map(|column| (column.name.as_str(), column.ty)));
    let mut arrays = vec![ints((0..rows as i64).collect())];
    arrays.extend(values.iter().map(|&value| ints(vec![value; rows as usize])));
    RecordBatch::try_new(arrow_schema(&schema), arrays).expect("columns of the table")
}

/// Returns an int column of a batch.
pub fn column(batch: &RecordBatch, number: usize) -> &[i64] {
    batch.column(number).as_primitive::<Int64Type>().values()
}

/// Returns a batch of ints as rows of values, windows left out.
pub fn int_rows(batch: &RecordBatch) -> Vec<Vec<i64>> {
    let is_int = |c: &usize| *batch.column(*c).data_type() == DataType::Int64;
    let columns: Vec<&[i64]> = (0..batch.num_columns()).filter(is_int).map(|c| column(batch, c)).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// Returns an int default of a column.
pub fn zero() -> Value {
    Value::Int(0)
}
