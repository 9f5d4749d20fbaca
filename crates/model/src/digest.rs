//! Digests of rows, by which two executions are compared.
//!
//! A row's hash is a function of its values alone, whatever batch holds them: not of nulls' leftovers,
//! slices or encodings; all NaNs are one. From these there are two digests:
//!
//! - a [`StreamDigest`] says the order too: `Σ hash(i) × R^(n-1-i)` over `n` events. Those of
//!   neighbouring pieces join in constant time, so where a stream was cut does not matter and pieces may
//!   be digested side by side.
//! - a [`TableDigest`] does not: `Σ hash`. It follows a set of rows as they come and go, in any order.
//!
//! Sums are modulo 2^64. They find accidents, not attacks.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Odd, so that no event falls out of the sum.
const RADIX: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;
const START: u64 = 0x2545_f491_4f6c_dd1d;
const NULL: u64 = 0x6c62_272e_07bb_0142;
/// Rows that are hashed at a time.
const PIECE: usize = 512;
/// The first powers of [`RADIX`].
const POWERS: [u64; PIECE] = {
    let (mut powers, mut i) = ([1u64; PIECE], 1);
    while i < PIECE {
        powers[i] = powers[i - 1].wrapping_mul(RADIX);
        i += 1;
    }
    powers
};

/// A digest of events in an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDigest {
    /// The number of events.
    pub events: u64,
    /// The digest of the events.
    pub hash: u64,
}

impl StreamDigest {
    /// Returns the digest of a batch in canonical form.
    pub fn of(batch: &RecordBatch) -> StreamDigest {
        let mut digest = StreamDigest::default();
        each_piece(batch, |rows| {
            let terms = rows.iter().rev().zip(&POWERS).map(|(row, power)| row.wrapping_mul(*power));
            digest = digest.then(StreamDigest { events: rows.len() as u64, hash: terms.fold(0, u64::wrapping_add) });
        });
        digest
    }

    /// Returns the digest of these events followed by those of `next`.
    #[must_use]
    pub fn then(self, next: StreamDigest) -> StreamDigest {
        let hash = self.hash.wrapping_mul(power(next.events)).wrapping_add(next.hash);
        StreamDigest { events: self.events + next.events, hash }
    }
}

/// Returns the digest of a batch of one row in canonical form: of its values that are not null with the names of their
/// fields. So neither the order of fields nor one that is null changes it.
pub fn named_digest(row: &RecordBatch) -> u64 {
    assert_eq!(row.num_rows(), 1, "a batch of one row");
    let (schema, places) = (row.schema(), 0..row.num_columns());
    let term = |place: usize| {
        let value = row.project(&[place]).expect("it has the column");
        StreamDigest::of(&value).hash.wrapping_mul(xxh3_64(schema.field(place).name().as_bytes()) | 1)
    };
    places.filter(|&place| row.column(place).is_valid(0)).map(term).fold(0, u64::wrapping_add)
}

/// A digest of rows in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDigest {
    /// The number of rows.
    pub rows: u64,
    /// The digest of the rows.
    pub hash: u64,
}

impl TableDigest {
    /// Returns the digest of a batch in canonical form.
    pub fn of(batch: &RecordBatch) -> TableDigest {
        let mut hash = 0u64;
        each_piece(batch, |rows| hash = rows.iter().copied().fold(hash, u64::wrapping_add));
        TableDigest { rows: batch.num_rows() as u64, hash }
    }

    /// Returns the digest of these rows and those of `more` together.
    #[must_use]
    pub fn with(self, more: TableDigest) -> TableDigest {
        TableDigest { rows: self.rows + more.rows, hash: self.hash.wrapping_add(more.hash) }
    }
}

/// Returns `RADIX^exponent`.
fn power(mut exponent: u64) -> u64 {
    let (mut result, mut base) = (1u64, RADIX);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

/// Multiplies two words and mixes both halves of the product, so that each bit of either factor has an effect on the
/// result.
fn fold(hash: u64, cell: u64) -> u64 {
    let product = u128::from(hash ^ cell.rotate_left(23)).wrapping_mul(u128::from(FOLD));
    (product as u64 ^ (product >> 64) as u64).wrapping_add(cell)
}

/// Calls `each` with the hashes of the rows of a batch in canonical form, some at a time, which stay in the first cache.
fn each_piece(batch: &RecordBatch, mut each: impl FnMut(&[u64])) {
    let mut hashes = [0; PIECE];
    for from in (0..batch.num_rows()).step_by(PIECE) {
        let piece = batch.slice(from, PIECE.min(batch.num_rows() - from));
        let hashes = &mut hashes[..piece.num_rows()];
        hash(piece.columns(), hashes);
        each(hashes);
    }
}

/// Computes the hash of each row of columns.
fn hash(columns: &[ArrayRef], hashes: &mut [u64]) {
    hashes.fill(START);
    columns.iter().for_each(|column| add(hashes, column));
    // Once more: the last cell was added after the product.
    hashes.iter_mut().for_each(|hash| *hash = fold(*hash, 0));
}

/// Adds a column's cells.
fn add(hashes: &mut [u64], column: &ArrayRef) {
    match column.data_type() {
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>().values();
            add_cells(hashes, column, |row| values[row] as u64);
        }
        DataType::Timestamp(..) => {
            let values = column.as_primitive::<TimestampMicrosecondType>().values();
            add_cells(hashes, column, |row| values[row] as u64);
        }
        DataType::Decimal128(..) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            add_cells(hashes, column, |row| values[row] as u64);
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
            add_cells(hashes, column, |row| bits(values[row]));
        }
        DataType::Boolean => {
            let values = column.as_boolean();
            add_cells(hashes, column, |row| u64::from(values.value(row)));
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            add_cells(hashes, column, |row| xxh3_64(values.value(row).as_bytes()));
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            add_cells(hashes, column, |row| xxh3_64(values.value(row)));
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let offsets = lists.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
            let elements = element_hashes(&lists.values().slice(first, last - first));
            add_cells(hashes, column, |row| {
                let range = offsets[row] as usize - first..offsets[row + 1] as usize - first;
                let length = range.len() as u64;
                elements[range].iter().fold(length, |hash, element| fold(hash, *element))
            });
        }
        other => unreachable!("{other} is no canonical type"),
    }
}

fn add_cells(hashes: &mut [u64], column: &ArrayRef, cell: impl Fn(usize) -> u64) {
    let hashes = hashes.iter_mut().enumerate();
    match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => hashes.for_each(|(i, hash)| *hash = fold(*hash, if nulls.is_null(i) { NULL } else { cell(i) })),
        None => hashes.for_each(|(i, hash)| *hash = fold(*hash, cell(i))),
    }
}

/// Returns the hash of each element of a list.
fn element_hashes(elements: &ArrayRef) -> Vec<u64> {
    let mut hashes = vec![0; elements.len()];
    match elements.as_struct_opt() {
        Some(columns) => hash(columns.columns(), &mut hashes),
        None => hash(std::slice::from_ref(elements), &mut hashes),
    }
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::batch_of;
    use crate::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

    fn schema() -> Schema {
        let list = ListItem::Struct(vec![("n".into(), ColumnType::optional(Type::Int))]);
        Schema {
            fields: vec![
                Field::scalar("id", ColumnType::required(Type::Int)),
                Field::scalar("name", ColumnType::optional(Type::Str)),
                Field::scalar("rate", ColumnType::required(Type::Float)),
                Field { name: "items".into(), ty: FieldType::List(list) },
            ],
        }
    }

    fn row(id: i64) -> Vec<Value> {
        let name = if id % 3 == 0 { Value::Null } else { Value::Str(format!("n{}", id % 5)) };
        let items = (0..id % 4).map(|n| vec![if n == 1 { Value::Null } else { Value::Int(n) }]).collect();
        vec![Value::Int(id), name, Value::Float(id as f64 / 7.0), Value::List(items)]
    }

    #[test]
    fn where_a_stream_is_cut_does_not_matter_and_the_order_does() {
        let rows: Vec<_> = (0..50).map(row).collect();
        let whole = batch_of(&schema(), &rows);
        let digest = StreamDigest::of(&whole);
        for cut in [0, 1, 17, 50] {
            let (left, right) = (whole.slice(0, cut), whole.slice(cut, 50 - cut));
            assert_eq!(StreamDigest::of(&left).then(StreamDigest::of(&right)), digest, "cut at {cut}");
        }
        let mut swapped = rows.clone();
        swapped.swap(3, 40);
        let swapped = batch_of(&schema(), &swapped);
        assert_ne!(StreamDigest::of(&swapped), digest);
        assert_eq!(TableDigest::of(&swapped), TableDigest::of(&whole));
    }

    #[test]
    fn any_change_of_a_value_changes_the_digest() {
        let rows: Vec<_> = (0..20).map(row).collect();
        let digest = |rows: &[Vec<Value>]| TableDigest::of(&batch_of(&schema(), rows));
        let before = digest(&rows);
        let changes = [
            (0, Value::Int(100)),
            (1, Value::Str(String::new())),
            (1, Value::Str("other".into())),
            (2, Value::Float(f64::NAN)),
            (3, Value::List(vec![vec![Value::Null]])),
            (3, Value::List(vec![vec![Value::Int(0)]; 2])),
        ];
        for (column, value) in changes {
            let mut changed = rows.clone();
            changed[9][column] = value.clone();
            assert_ne!(digest(&changed), before, "{column} = {value}");
        }
        // One row gains what another loses.
        let moved = |by: i64| {
            let of = |id, balance| vec![Value::Int(id), Value::Null, Value::Float(balance), Value::List(Vec::new())];
            digest(&[of(1, 50.0 - by as f64), of(2, 50.0 + by as f64)])
        };
        assert_ne!(moved(0), moved(1));
        assert_ne!(moved(1), moved(-1));
    }

    #[test]
    fn all_nans_are_one_and_zeros_two() {
        let of = |value: f64| {
            let schema = Schema::scalars([("x", ColumnType::required(Type::Float))]);
            TableDigest::of(&batch_of(&schema, &[vec![Value::Float(value)]]))
        };
        assert_eq!(of(f64::NAN), of(-f64::NAN));
        assert_ne!(of(0.0), of(-0.0));
    }
}
