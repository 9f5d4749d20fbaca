//! The times of Parquet that have 96 bits: a day and nanoseconds of it, as Spark and Hive write them.
//!
//! The reader gives them in a unit of one's choice, wrapped where 64 bits do not hold them. Whole seconds never wrap, and
//! nanoseconds that wrap are still right in their last 64 bits. So the columns are read twice, in seconds and in
//! nanoseconds, and the two together say which microsecond it is, or that there is none. What it costs is the second
//! decoding of these columns.

use super::Batches;
use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{
    Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch, StructArray, TimestampMicrosecondArray,
    TimestampSecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::basic::Type as Physical;
use parquet::schema::types::SchemaDescriptor;
use std::collections::VecDeque;
use std::sync::Arc;

/// Makes the schema with the given unit for such times.
pub(super) fn with_unit(schema: &Schema, columns: &SchemaDescriptor, unit: TimeUnit) -> SchemaRef {
    let mut physical = columns.columns().iter().map(|column| column.physical_type());
    let fields = retyped(schema.fields(), &mut physical, unit);
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Returns the fields whose leaves have these physical types.
fn retyped(fields: &Fields, physical: &mut impl Iterator<Item = Physical>, unit: TimeUnit) -> Fields {
    fields.iter().map(|field| retyped_field(field, physical, unit)).collect()
}

fn retyped_field(field: &FieldRef, physical: &mut impl Iterator<Item = Physical>, unit: TimeUnit) -> FieldRef {
    let mut inner = |field: &FieldRef| retyped_field(field, physical, unit);
    let ty = match field.data_type() {
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::ListView(item) => DataType::ListView(inner(item)),
        DataType::LargeListView(item) => DataType::LargeListView(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(retyped(fields, physical, unit)),
        leaf => match physical.next() {
            Some(Physical::INT96) => DataType::Timestamp(unit, None),
            _ => leaf.clone(),
        },
    };
    Arc::new(field.as_ref().clone().with_data_type(ty))
}

/// Makes one sequence of batches of the two readings. `schema`: with microseconds.
pub(super) fn joined(nanos: Batches, seconds: Batches, schema: SchemaRef) -> Batches {
    let rows = nanos.rows;
    Batches { schema, rows, reader: Box::new(Joined { nanos, seconds, ready: VecDeque::new() }) }
}

struct Joined {
    nanos: Batches,
    /// The columns with such times, in seconds.
    seconds: Batches,
    /// Batches to be handed over. One with a time that does not fit has one row, and these columns in seconds.
    ready: VecDeque<RecordBatch>,
}

impl Iterator for Joined {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            match (self.nanos.reader.next(), self.seconds.reader.next()) {
                (None, None) => return None,
                (Some(Err(error)), _) | (_, Some(Err(error))) => return Some(Err(error)),
                (Some(Ok(nanos)), Some(Ok(seconds))) if nanos.num_rows() == seconds.num_rows() => {
                    if let Err(error) = self.settle(&nanos, &seconds) {
                        return Some(Err(error));
                    }
                }
                _ => return Some(Err(ArrowError::ParquetError("its columns differ in length".to_owned()))),
            }
        }
    }
}

impl Joined {
    /// Makes batches of the rows of both. Where a time does not fit, its row stands alone.
    fn settle(&mut self, nanos: &RecordBatch, seconds: &RecordBatch) -> Result<(), ArrowError> {
        let rows = nanos.num_rows();
        match both(nanos, seconds, &micros)? {
            Some(batch) => self.ready.push_back(batch),
            None if rows <= 1 => self.ready.extend(both(nanos, seconds, &beyond)?),
            None => {
                let half = rows / 2;
                self.settle(&nanos.slice(0, half), &seconds.slice(0, half))?;
                self.settle(&nanos.slice(half, rows - half), &seconds.slice(half, rows - half))?;
            }
        }
        Ok(())
    }
}

/// A conversion of such times, from their nanoseconds and their seconds. None if one does not fit.
type Leaf = dyn Fn(&ArrayRef, &ArrayRef) -> Option<ArrayRef>;

/// Returns a batch with the times of both readings.
fn both(nanos: &RecordBatch, seconds: &RecordBatch, leaf: &Leaf) -> Result<Option<RecordBatch>, ArrowError> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in nanos.schema().fields().iter().zip(nanos.columns()) {
        let column = match seconds.column_by_name(field.name()) {
            Some(other) => match array(column, other, leaf)? {
                Some(column) => column,
                None => return Ok(None),
            },
            None => column.clone(),
        };
        fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map(Some)
}

fn array(nanos: &ArrayRef, seconds: &ArrayRef, leaf: &Leaf) -> Result<Option<ArrayRef>, ArrowError> {
    Ok(match (nanos.data_type(), seconds.data_type()) {
        (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(TimeUnit::Second, _)) => {
            leaf(nanos, seconds)
        }
        (one, other) if one == other => Some(nanos.clone()),
        (DataType::List(_), DataType::List(_)) => list::<i32>(nanos, seconds, leaf)?,
        (DataType::LargeList(_), DataType::LargeList(_)) => list::<i64>(nanos, seconds, leaf)?,
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let (nanos, seconds) = (nanos.as_struct(), seconds.as_struct());
            let mut columns = Vec::with_capacity(fields.len());
            for (one, other) in nanos.columns().iter().zip(seconds.columns()) {
                let Some(column) = array(one, other, leaf)? else { return Ok(None) };
                columns.push(column);
            }
            let typed = |(field, column): (&FieldRef, &ArrayRef)| typed(field, column);
            let fields = fields.iter().zip(&columns).map(typed).collect();
            let nulls = nanos.nulls().cloned();
            Some(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, nanos.len())?))
        }
        (other, _) => return Err(ArrowError::NotYetImplemented(format!("times of 96 bits within {other}"))),
    })
}

fn list<O: OffsetSizeTrait>(nanos: &ArrayRef, seconds: &ArrayRef, leaf: &Leaf) -> Result<Option<ArrayRef>, ArrowError> {
    let (field, offsets, nanos, nulls) = nanos.as_list::<O>().clone().into_parts();
    let (_, others, seconds, _) = seconds.as_list::<O>().clone().into_parts();
    // Elements before and after those of a slice are none of its business.
    let within = |offsets: &OffsetBuffer<O>, values: &ArrayRef| {
        let (start, end) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
        values.slice(start, end - start)
    };
    let (nanos, seconds) = (within(&offsets, &nanos), within(&others, &seconds));
    let Some(values) = array(&nanos, &seconds, leaf)? else { return Ok(None) };
    let offsets = OffsetBuffer::from_lengths(offsets.lengths());
    let list = GenericListArray::<O>::try_new(typed(&field, &values), offsets, values, nulls)?;
    Ok(Some(Arc::new(list)))
}

fn typed(field: &Field, array: &ArrayRef) -> FieldRef {
    Arc::new(field.clone().with_data_type(array.data_type().clone()))
}

/// Returns the times in microseconds, if all of them fit.
fn micros(nanos: &ArrayRef, seconds: &ArrayRef) -> Option<ArrayRef> {
    let values = times(nanos, seconds).map(|time| match time {
        Some((nanos, seconds)) => micros_of(nanos, seconds).map(Some),
        None => Some(None),
    });
    let values: Option<Vec<Option<i64>>> = values.collect();
    Some(Arc::new(TimestampMicrosecondArray::from(values?)))
}

/// Seconds of which one does not fit as microseconds.
fn beyond(nanos: &ArrayRef, seconds: &ArrayRef) -> Option<ArrayRef> {
    let past = |seconds: i64| if seconds < 0 { i64::MIN } else { i64::MAX };
    let told = |(nanos, seconds): (i64, i64)| match micros_of(nanos, seconds) {
        // The least and the greatest second fit in part.
        None if seconds.checked_mul(1_000_000).is_some() => past(seconds),
        _ => seconds,
    };
    let values: Vec<Option<i64>> = times(nanos, seconds).map(|time| time.map(told)).collect();
    Some(Arc::new(TimestampSecondArray::from(values)))
}

/// Returns the nanoseconds and seconds of each time.
fn times(nanos: &ArrayRef, seconds: &ArrayRef) -> impl Iterator<Item = Option<(i64, i64)>> {
    let nanos = nanos.as_primitive::<TimestampNanosecondType>();
    let seconds = seconds.as_primitive::<TimestampSecondType>();
    nanos.iter().zip(seconds.iter()).map(|(nanos, seconds)| nanos.zip(seconds))
}

/// Returns the microsecond of a time, given by its nanoseconds, of which the last 64 bits are known, and its seconds
/// towards 1970 or from it.
fn micros_of(nanos: i64, seconds: i64) -> Option<i64> {
    let rest = nanos.wrapping_sub(seconds.wrapping_mul(1_000_000_000));
    i64::try_from(i128::from(seconds) * 1_000_000 + i128::from(rest.div_euclid(1_000))).ok()
}
