//! Digests by which the engine and the loop are compared.

use super::input::Output;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

/// Returns a digest of tables that does not depend on the order of their rows.
pub fn state_digest(tables: impl Iterator<Item = Vec<Vec<i64>>>) -> u64 {
    tables.fold(0, |digest: u64, rows| {
        let row = |row: &Vec<i64>| row.iter().fold(0, |hash, &value| mix(hash, value));
        let sum = rows.iter().map(row).fold(rows.len() as u64, u64::wrapping_add);
        mix(digest, sum as i64)
    })
}

/// A digest of outputs that depends on their order and not on how they were cut into batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputDigest(Vec<(&'static str, usize, u64)>);

impl OutputDigest {
    /// Returns the digest of the loop's output.
    pub fn of(output: &Output) -> Self {
        let column = |(name, values): &(&'static str, Vec<i64>)| {
            (*name, values.len(), values.iter().fold(0, |hash, &value| mix(hash, value)))
        };
        OutputDigest(output.iter().map(column).collect())
    }

    /// Returns the digest of rows that several workers gave out, in whatever order.
    pub fn of_rows(outputs: &[Output]) -> Self {
        let names = outputs[0].iter().map(|column| column.0);
        let rows = |output: &Output| output[0].1.len();
        let row = |output: &Output, row: usize| output.iter().fold(0, |hash, column| mix(hash, column.1[row]));
        let all = outputs.iter().flat_map(|output| (0..rows(output)).map(|number| row(output, number)));
        let sum = all.fold(0, u64::wrapping_add);
        let count = outputs.iter().map(rows).sum();
        OutputDigest(names.map(|name| (name, count, sum)).collect())
    }

    /// Returns the digest of the same columns of batches; floats by their bits.
    pub fn of_batches(&self, batches: &[RecordBatch]) -> Self {
        let digest = |(name, ..): &(&'static str, usize, u64)| {
            let columns = batches.iter().map(|batch| batch.column_by_name(name).expect("a column of the output"));
            let mut len = 0;
            let mut hash = 0;
            for column in columns {
                len += column.len();
                hash = match column.data_type() {
                    DataType::Float64 => {
                        let values = column.as_primitive::<Float64Type>().values();
                        values.iter().fold(hash, |hash, value| mix(hash, value.to_bits() as i64))
                    }
                    _ => {
                        let values = column.as_primitive::<Int64Type>().values();
                        values.iter().fold(hash, |hash, &value| mix(hash, value))
                    }
                };
            }
            (*name, len, hash)
        };
        OutputDigest(self.0.iter().map(digest).collect())
    }
}

fn mix(hash: u64, value: i64) -> u64 {
    (hash.rotate_left(5) ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
