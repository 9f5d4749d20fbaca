//! Native columns as Arrow arrays: the values at given places, in order.

use arrow_array::builder::{BinaryBuilder, BooleanBufferBuilder, StringBuilder};
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use std::sync::Arc;
use tidemill_compile::NativeColumn;
use tidemill_model::arrow::data_type;
use tidemill_model::{ColumnType, Type};

/// Returns one array of the values at `places`: pairs of a column and an index in it. `ty` is the array's type; the
/// columns may be non-null even if it is nullable.
pub fn gather<'a, I>(ty: ColumnType, places: I) -> ArrayRef
where
    I: Iterator<Item = (&'a NativeColumn, usize)> + Clone,
{
    let nulls = if ty.nullable { nulls(places.clone()) } else { None };
    let words = |places: I| places.map(|(column, at)| column.words()[at]);
    match ty.ty {
        Type::Int => {
            let values: ScalarBuffer<i64> = words(places).map(|w| w as i64).collect();
            Arc::new(PrimitiveArray::<Int64Type>::new(values, nulls))
        }
        Type::Time => {
            let values: ScalarBuffer<i64> = words(places).map(|w| w as i64).collect();
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls).with_timezone("UTC"))
        }
        Type::Float => {
            let values: ScalarBuffer<f64> = words(places).map(f64::from_bits).collect();
            Arc::new(PrimitiveArray::<Float64Type>::new(values, nulls))
        }
        Type::Decimal { .. } => {
            let values: ScalarBuffer<i128> = words(places).map(|w| w as i64 as i128).collect();
            Arc::new(PrimitiveArray::<Decimal128Type>::new(values, nulls).with_data_type(data_type(ty.ty)))
        }
        Type::Bool => {
            let mut bits = BooleanBufferBuilder::new(places.size_hint().0);
            words(places).for_each(|w| bits.append(w != 0));
            Arc::new(BooleanArray::new(bits.finish(), nulls))
        }
        Type::Str => {
            let mut builder = StringBuilder::with_capacity(places.size_hint().0, 0);
            for (column, at) in places {
                // Compiled code passes on the bytes of values of type `str`, which are UTF-8.
                let text = std::str::from_utf8(text(column, at)).expect("a str is UTF-8");
                builder.append_option((!column.is_null(at)).then_some(text));
            }
            Arc::new(builder.finish())
        }
        Type::Bytes => {
            let mut builder = BinaryBuilder::with_capacity(places.size_hint().0, 0);
            for (column, at) in places {
                builder.append_option((!column.is_null(at)).then(|| text(column, at)));
            }
            Arc::new(builder.finish())
        }
        Type::Duration | Type::Null => unreachable!("{} is no column type", ty.ty),
    }
}

fn text(column: &NativeColumn, at: usize) -> &[u8] {
    if column.is_null(at) {
        return &[];
    }
    #[allow(unsafe_code)]
    // SAFETY: compiled code wrote the place in this epoch; the memory it points to (input buffers, arenas, blobs) is
    // held by the epoch, which is not yet finished.
    unsafe {
        column.text(at)
    }
}

fn nulls<'a>(places: impl Iterator<Item = (&'a NativeColumn, usize)> + Clone) -> Option<NullBuffer> {
    if !places.clone().any(|(column, at)| column.is_null(at)) {
        return None;
    }
    let mut bits = BooleanBufferBuilder::new(places.size_hint().0);
    places.for_each(|(column, at)| bits.append(!column.is_null(at)));
    Some(NullBuffer::new(bits.finish()))
}
