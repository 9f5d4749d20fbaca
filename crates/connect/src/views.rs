//! Typed views of a batch's columns, for the row writers: the type is looked at once per batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use std::ops::Range;
use tidemill_model::{FieldType, ListItem, Schema, Type};

/// A column.
pub(crate) struct View<'a> {
    nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

/// Its values; what stands in the place of a null means nothing.
pub(crate) enum Values<'a> {
    Bool(&'a BooleanArray),
    Int(&'a [i64]),
    Float(&'a [f64]),
    Decimal { unscaled: &'a [i128], scale: u8 },
    Time(&'a [i64]),
    Str(&'a StringArray),
    Bytes(&'a BinaryArray),
    List { ends: &'a [i32], items: Vec<View<'a>> },
}

impl View<'_> {
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

/// Returns the elements of list `row`.
#[inline]
pub(crate) fn elements(ends: &[i32], row: usize) -> Range<usize> {
    ends[row] as usize..ends[row + 1] as usize
}

/// Views of all columns. Panics where the batch is not in the schema's canonical form.
pub(crate) fn views<'a>(batch: &'a RecordBatch, schema: &Schema) -> Vec<View<'a>> {
    assert_eq!(batch.num_columns(), schema.fields.len(), "a batch of another schema: {}", batch.schema());
    schema
        .fields
        .iter()
        .zip(batch.columns())
        .map(|(field, array)| match &field.ty {
            FieldType::Scalar(ty) => scalar(array, ty.ty),
            FieldType::List(item) => list(array, item),
        })
        .collect()
}

fn scalar(array: &ArrayRef, ty: Type) -> View<'_> {
    let values = match ty {
        Type::Bool => Values::Bool(array.as_boolean()),
        Type::Int => Values::Int(array.as_primitive::<Int64Type>().values()),
        Type::Float => Values::Float(array.as_primitive::<Float64Type>().values()),
        Type::Decimal { scale, .. } => {
            Values::Decimal { unscaled: array.as_primitive::<Decimal128Type>().values(), scale }
        }
        Type::Time => Values::Time(array.as_primitive::<TimestampMicrosecondType>().values()),
        Type::Str => Values::Str(array.as_string()),
        Type::Bytes => Values::Bytes(array.as_binary()),
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    };
    View { nulls: array.nulls(), values }
}

fn list<'a>(array: &'a ArrayRef, item: &ListItem) -> View<'a> {
    let lists = array.as_list::<i32>();
    let elements = lists.values();
    let items = match item {
        ListItem::Scalar(ty) => vec![scalar(elements, ty.ty)],
        ListItem::Struct(columns) => {
            columns.iter().zip(elements.as_struct().columns()).map(|((_, ty), array)| scalar(array, ty.ty)).collect()
        }
    };
    View { nulls: None, values: Values::List { ends: lists.value_offsets(), items } }
}
