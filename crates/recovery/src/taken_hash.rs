//! The hash of what was taken from a source that can be read again.
//!
//! The log has no records of such a source, only how many were taken. So the chain of proof would not cover them. Therefore the
//! entry of an epoch has a SHA-256 of them, which a replay and an audit compare with what the source gives then. A reader
//! hashes each batch in its own thread, beside the gate. Batches have any size, and a second reading has others: so the entry
//! also has the sizes of the batches, its *pieces*, by which the records are divided again.
//!
//! The hash of a batch is that of its numbers of events and bad records, of its columns in canonical form
//! ([`tidemill_model::arrow`]), one after the other, and of place and text of its bad records. A column is a byte that says
//! whether it has nulls, which these are if there are any, and its values; a null has the value zero, or no bytes. Texts and
//! lists are the ends of the values, four bytes each, then their content. Numbers are little-endian. Why a record is bad is left
//! out: a later version may say it in other words.

use crate::intake::{Exactly, Taken, join};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::ToByteSlice;
use arrow_schema::DataType;
use tidemill_durability::{Hash256, Hasher};
use tidemill_io::{IoFailure, SourceBatch};

/// The hash of the records that were taken from a source for an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenHash {
    /// The sizes of the batches in which they were taken.
    pub pieces: Vec<Taken>,
    /// The hash of the batches' hashes.
    pub hash: Hash256,
}

impl TakenHash {
    /// Returns the hash of batches, by their sizes and hashes; none if there are none.
    pub fn of(batches: &[(Taken, Hash256)]) -> Option<TakenHash> {
        let pieces = batches.iter().map(|(taken, _)| *taken).collect();
        let hash = hash_of_hashes(batches.iter().map(|(_, hash)| *hash));
        (!batches.is_empty()).then_some(TakenHash { pieces, hash })
    }

    /// Fails if these records, in any batches, are not those that were hashed.
    pub fn compare(&self, epoch: u64, batches: &[SourceBatch]) -> Result<(), IoFailure> {
        let found = hash_of_hashes(self.divide(batches)?.iter().map(batch_hash));
        match found == self.hash {
            true => Ok(()),
            false => Err(IoFailure::new(format!(
                "it gives other records than it gave for epoch {epoch}: they have the SHA-256 {found}, and the log has {}; \
                 it was changed since, and must be what it was",
                self.hash
            ))),
        }
    }

    /// Divides records into the pieces in which they were taken.
    fn divide(&self, batches: &[SourceBatch]) -> Result<Vec<SourceBatch>, IoFailure> {
        let mut rest = batches.iter().map(copied);
        let (mut left, mut pieces) = (None, Vec::new());
        for &piece in self.pieces.iter().filter(|piece| **piece != Taken::default()) {
            let mut exactly = Exactly::new(piece);
            while !exactly.is_done() {
                let next = left.take().or_else(|| rest.next());
                exactly.give(next.ok_or_else(|| exactly.missing())?)?;
            }
            let (parts, behind) = exactly.end();
            let mut parts = parts.into_iter();
            let first = parts.next().expect("a piece has a record");
            pieces.push(parts.try_fold(first, |whole, part| join(Some(whole), part))?);
            left = behind;
        }
        Ok(pieces)
    }
}

fn copied(batch: &SourceBatch) -> SourceBatch {
    SourceBatch { events: batch.events.clone(), bad: batch.bad.clone() }
}

fn hash_of_hashes(hashes: impl Iterator<Item = Hash256>) -> Hash256 {
    let mut hasher = Hasher::default();
    hashes.for_each(|hash| hasher.add(hash.bytes()));
    hasher.end()
}

/// Returns the hash of a batch.
pub fn batch_hash(batch: &SourceBatch) -> Hash256 {
    let mut hasher = Hasher::default();
    let Taken { events, bad } = Taken::of(batch);
    hasher.add(&events.to_le_bytes());
    hasher.add(&bad.to_le_bytes());
    batch.events.columns().iter().for_each(|column| add_column(&mut hasher, column));
    for bad in &batch.bad {
        let record = bad.record.as_deref().unwrap_or_default();
        hasher.add(&bad.after.to_le_bytes());
        hasher.add(&(record.len() as u64).to_le_bytes());
        hasher.add(record.as_bytes());
    }
    hasher.end()
}

fn add_column(hasher: &mut Hasher, column: &ArrayRef) {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    hasher.add(&[u8::from(nulls.is_some())]);
    if let Some(nulls) = nulls {
        add_bits(hasher, nulls.len(), |row| nulls.is_null(row));
    }
    match column.data_type() {
        DataType::Int64 => add_numbers(hasher, column.as_primitive::<Int64Type>()),
        DataType::Timestamp(..) => add_numbers(hasher, column.as_primitive::<TimestampMicrosecondType>()),
        DataType::Decimal128(..) => add_numbers(hasher, column.as_primitive::<Decimal128Type>()),
        DataType::Float64 => add_numbers(hasher, column.as_primitive::<Float64Type>()),
        DataType::Boolean => {
            let values = column.as_boolean();
            add_bits(hasher, values.len(), |row| !values.is_null(row) && values.value(row));
        }
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            add_bytes(hasher, column, texts.value_offsets(), texts.value_data());
        }
        DataType::Binary => {
            let texts = column.as_binary::<i32>();
            add_bytes(hasher, column, texts.value_offsets(), texts.value_data());
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let offsets = lists.value_offsets();
            assert_eq!(lists.null_count(), 0, "no list is null");
            add_ends(hasher, offsets);
            let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
            add_column(hasher, &lists.values().slice(first, last - first));
        }
        DataType::Struct(_) => column.as_struct().columns().iter().for_each(|column| add_column(hasher, column)),
        other => unreachable!("{other} is no canonical type"),
    }
}

fn add_numbers<T: ArrowPrimitiveType>(hasher: &mut Hasher, column: &PrimitiveArray<T>) {
    if column.null_count() == 0 {
        return hasher.add(column.values().to_byte_slice());
    }
    let values: Vec<T::Native> = column.iter().map(Option::unwrap_or_default).collect();
    hasher.add(values.to_byte_slice());
}

fn add_bits(hasher: &mut Hasher, count: usize, is_set: impl Fn(usize) -> bool) {
    let byte =
        |first: usize| (first..count.min(first + 8)).map(|row| u8::from(is_set(row)) << (row - first)).sum::<u8>();
    hasher.add(&(0..count).step_by(8).map(byte).collect::<Vec<u8>>());
}

/// Adds where values end, counted from the first one.
fn add_ends(hasher: &mut Hasher, offsets: &[i32]) {
    match offsets[0] {
        0 => hasher.add(offsets[1..].to_byte_slice()),
        first => hasher.add(offsets[1..].iter().map(|end| end - first).collect::<Vec<i32>>().to_byte_slice()),
    }
}

fn add_bytes(hasher: &mut Hasher, column: &ArrayRef, offsets: &[i32], data: &[u8]) {
    if column.null_count() == 0 {
        add_ends(hasher, offsets);
        return hasher.add(&data[offsets[0] as usize..offsets[offsets.len() - 1] as usize]);
    }
    let (mut ends, mut bytes) = (vec![0], Vec::new());
    for row in 0..column.len() {
        if column.is_valid(row) {
            bytes.extend_from_slice(&data[offsets[row] as usize..offsets[row + 1] as usize]);
        }
        ends.push(bytes.len() as i32);
    }
    add_ends(hasher, &ends);
    hasher.add(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_io::BadRecord;
    use tidemill_model::arrow::batch_of;
    use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

    fn schema() -> Schema {
        let items = ListItem::Struct(vec![("n".into(), ColumnType::optional(Type::Int))]);
        let mut schema = Schema::scalars([
            ("id", ColumnType::required(Type::Int)),
            ("name", ColumnType::optional(Type::Str)),
            ("rate", ColumnType::required(Type::Float)),
            ("flag", ColumnType::optional(Type::Bool)),
            ("raw", ColumnType::required(Type::Bytes)),
            ("paid", ColumnType::optional(Type::Decimal { digits: 9, scale: 2 })),
            ("at", ColumnType::required(Type::Time)),
        ]);
        schema.fields.push(Field { name: "items".into(), ty: FieldType::List(items) });
        schema
    }

    fn row(id: i64) -> Vec<Value> {
        let or_null = |is: bool, value: Value| if is { value } else { Value::Null };
        let items = (0..id % 4).map(|n| vec![or_null(n != 1, Value::Int(n))]).collect();
        vec![
            Value::Int(id),
            or_null(id % 3 != 0, Value::Str(format!("n{}", id % 5))),
            Value::Float(id as f64 / 7.0),
            or_null(id % 5 != 0, Value::Bool(id % 2 == 0)),
            Value::Bytes(vec![id as u8; (id % 3) as usize]),
            or_null(id % 4 != 0, Value::Decimal(id)),
            Value::Time(id * 1_000),
            Value::List(items),
        ]
    }

    fn bad(text: &str, after: u64) -> BadRecord {
        BadRecord { record: Some(text.into()), after, ..BadRecord::default() }
    }

    fn whole() -> SourceBatch {
        let rows: Vec<Vec<Value>> = (0..60).map(row).collect();
        let bad = vec![bad("a", 0), bad("b", 17), bad("c", 17), bad("d", 60)];
        SourceBatch { events: batch_of(&schema(), &rows), bad }
    }

    fn in_batches(size: u64) -> Vec<SourceBatch> {
        let (mut batches, mut rest) = (Vec::new(), Some(whole()));
        while let Some(batch) = rest.take() {
            let bad = batch.bad.iter().filter(|bad| bad.after < size).count() as u64;
            let (first, later) = crate::intake::split(batch, Taken { events: size, bad });
            batches.push(first);
            rest = later;
        }
        batches
    }

    fn hashed(batches: &[SourceBatch]) -> TakenHash {
        let each: Vec<(Taken, Hash256)> = batches.iter().map(|batch| (Taken::of(batch), batch_hash(batch))).collect();
        TakenHash::of(&each).expect("there are batches")
    }

    #[test]
    fn records_have_the_same_hash_in_whichever_batches_they_come_again() {
        for size in [1, 2, 7, 17, 18, 59, 60, 100] {
            let hash = hashed(&in_batches(size));
            for again in [1, 3, 8, 17, 31, 60] {
                hash.compare(9, &in_batches(again)).unwrap_or_else(|why| panic!("{size}, then {again}: {why}"));
            }
        }
        assert_eq!(TakenHash::of(&[]), None);
    }

    #[test]
    fn any_change_is_found() {
        let hash = hashed(&in_batches(8));
        let changed = |column: usize, value: Value| {
            let mut rows: Vec<Vec<Value>> = (0..60).map(row).collect();
            rows[33][column] = value;
            SourceBatch { events: batch_of(&schema(), &rows), bad: whole().bad }
        };
        let changes = [
            (0, Value::Int(34)),
            (1, Value::Str("other".into())),
            (2, Value::Float(f64::NAN)),
            (3, Value::Null),
            (4, Value::Bytes(vec![33])),
            (5, Value::Decimal(34)),
            (6, Value::Time(0)),
            (7, Value::List(vec![vec![Value::Int(0)]; 2])),
        ];
        for (column, value) in changes {
            let failure = hash.compare(9, &[changed(column, value)]).expect_err("it is another");
            assert!(failure.to_string().contains("it gives other records than it gave for epoch 9"), "{failure}");
        }
        let mut other = whole();
        other.bad[1].record = Some("B".into());
        assert!(hash.compare(9, &[other]).is_err(), "a bad record is another");
        hash.compare(9, &[whole()]).expect("nothing has changed");
        let mut fewer = whole();
        fewer.events = fewer.events.slice(0, 59);
        assert!(hash.compare(9, &[fewer]).is_err(), "one is missing");
    }

    #[test]
    fn the_bytes_under_a_null_do_not_count() {
        use arrow_array::Int64Array;
        use arrow_buffer::NullBuffer;
        use std::sync::Arc;
        let column = |under: i64| -> ArrayRef {
            Arc::new(Int64Array::new(vec![1, under, 3].into(), Some(NullBuffer::from(vec![true, false, true]))))
        };
        let of = |column: &ArrayRef| {
            let mut hasher = Hasher::default();
            add_column(&mut hasher, column);
            hasher.end()
        };
        assert_eq!(of(&column(0)), of(&column(7)));
        assert_eq!(of(&column(5).slice(1, 2)), of(&column(6).slice(1, 2)));
        assert_ne!(of(&column(0)), of(&(Arc::new(Int64Array::from(vec![1, 0, 3])) as ArrayRef)));
    }
}
