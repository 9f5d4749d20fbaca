//! Arrow columns in the form that compiled code reads.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ptr::null;
use tidemill_compile::NativeColumn;
use tidemill_compile::abi::ColumnView;
use tidemill_model::{FieldType, ListItem, Schema, Type};

/// An empty view, for columns that are never read.
pub const NO_VIEW: ColumnView =
    ColumnView { values: null(), aux: null(), validity: null(), values_offset: 0, validity_offset: 0 };

/// Lists the views of a canonical batch: fields in order, each list followed by its children. They hold addresses into
/// the batch: keep it as long as they are used.
pub fn batch_views(batch: &RecordBatch, schema: &Schema, views: &mut Vec<ColumnView>) {
    views.clear();
    for (field, array) in schema.fields.iter().zip(batch.columns()) {
        match &field.ty {
            FieldType::Scalar(ty) => views.push(array_view(array, ty.ty)),
            FieldType::List(item) => list_views(array, item, views),
        }
    }
}

fn list_views(array: &ArrayRef, item: &ListItem, views: &mut Vec<ColumnView>) {
    let list = array.as_list::<i32>();
    views.push(ColumnView { values: list.value_offsets().as_ptr().cast(), ..NO_VIEW });
    match item {
        ListItem::Scalar(ty) => views.push(array_view(list.values(), ty.ty)),
        ListItem::Struct(columns) => {
            let children = list.values().as_struct().columns();
            views.extend(columns.iter().zip(children).map(|((_, ty), child)| array_view(child, ty.ty)));
        }
    }
}

fn array_view(array: &ArrayRef, ty: Type) -> ColumnView {
    let mut view = NO_VIEW;
    if let Some(nulls) = array.nulls() {
        view.validity = nulls.validity().as_ptr();
        view.validity_offset = nulls.offset() as u64;
    }
    match ty {
        Type::Bool => {
            let bits = array.as_boolean().values();
            view.values = bits.values().as_ptr();
            view.values_offset = bits.offset() as u64;
        }
        Type::Int => view.values = array.as_primitive::<Int64Type>().values().as_ptr().cast(),
        Type::Float => view.values = array.as_primitive::<Float64Type>().values().as_ptr().cast(),
        Type::Decimal { .. } => view.values = array.as_primitive::<Decimal128Type>().values().as_ptr().cast(),
        Type::Time => view.values = array.as_primitive::<TimestampMicrosecondType>().values().as_ptr().cast(),
        Type::Str => {
            let text = array.as_string::<i32>();
            view.values = text.value_offsets().as_ptr().cast();
            view.aux = text.value_data().as_ptr();
        }
        Type::Bytes => {
            let bytes = array.as_binary::<i32>();
            view.values = bytes.value_offsets().as_ptr().cast();
            view.aux = bytes.value_data().as_ptr();
        }
        Type::Duration | Type::Null => unreachable!("{ty} is no column type"),
    }
    view
}

/// Returns a native column as an input column.
pub fn native_view(column: &mut NativeColumn) -> ColumnView {
    let view = column.view();
    ColumnView {
        values: view.words.cast_const().cast(),
        aux: view.lens.cast_const().cast(),
        validity: view.nulls.cast_const(),
        values_offset: 0,
        validity_offset: 0,
    }
}
