//! Schemas and values as Arrow, and back.
//!
//! One canonical Arrow type stands for each of ours: `Boolean`, `Int64`, `Float64`,
//! `Decimal128(digits, scale)`, `Timestamp(µs, UTC)`, `Utf8`, `Binary`, and `List` of one of these or
//! of a `Struct` of them. [`conform`] brings foreign columns into that form, without a copy where
//! they are in it already.

use crate::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Fields, Schema as ArrowSchema, TimeUnit};
use std::sync::Arc;

/// Returns the canonical Arrow type of a scalar. Panics on `Duration` and `Null`, which no column has.
pub fn data_type(ty: Type) -> DataType {
    match ty {
        Type::Bool => DataType::Boolean,
        Type::Int => DataType::Int64,
        Type::Float => DataType::Float64,
        Type::Decimal { digits, scale } => DataType::Decimal128(digits, scale as i8),
        Type::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Str => DataType::Utf8,
        Type::Bytes => DataType::Binary,
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    }
}

fn scalar_field(name: &str, ty: ColumnType) -> ArrowField {
    ArrowField::new(name, data_type(ty.ty), ty.nullable)
}

/// Returns the canonical Arrow field of a field.
pub fn arrow_field(field: &Field) -> ArrowField {
    match &field.ty {
        FieldType::Scalar(ty) => scalar_field(&field.name, *ty),
        FieldType::List(item) => ArrowField::new(&field.name, DataType::List(Arc::new(item_field(item))), false),
    }
}

fn item_field(item: &ListItem) -> ArrowField {
    match item {
        ListItem::Scalar(ty) => scalar_field("item", *ty),
        ListItem::Struct(columns) => {
            let fields: Fields = columns.iter().map(|(n, t)| scalar_field(n, *t)).collect();
            ArrowField::new("item", DataType::Struct(fields), false)
        }
    }
}

/// Returns the canonical Arrow schema of a schema.
pub fn arrow_schema(schema: &Schema) -> Arc<ArrowSchema> {
    Arc::new(ArrowSchema::new(schema.fields.iter().map(arrow_field).collect::<Vec<_>>()))
}

/// The reason why a foreign batch does not fit a schema.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformError {
    /// A column of the schema is not in the batch.
    #[error("column '{column}' is missing; the data has {found}")]
    Missing {
        /// The column that was looked for.
        column: String,
        /// The columns that are there.
        found: String,
    },
    /// The type of a column, which cannot stand for the declared one.
    #[error("column '{column}' is {found}, which cannot be read as {expected}")]
    Type {
        /// The column.
        column: String,
        /// Its Arrow type.
        found: String,
        /// The declared type.
        expected: String,
    },
    /// A value cannot be converted.
    #[error("column '{column}': {source}")]
    Value {
        /// The column.
        column: String,
        /// The error that Arrow reports.
        source: ArrowError,
    },
    /// A column that may not hold nulls holds some.
    #[error("column '{column}' holds {count} nulls but is declared without None")]
    Nulls {
        /// The column.
        column: String,
        /// The number of such values.
        count: usize,
    },
}

/// Picks the schema's columns by name out of `batch` and casts each to its canonical type. Columns
/// already in it are shared, not copied; extra columns are left out.
pub fn conform(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, ConformError> {
    let mut columns = Vec::with_capacity(schema.fields.len());
    let target = arrow_schema(schema);
    for (field, want) in schema.fields.iter().zip(target.fields()) {
        let column = batch.column_by_name(&field.name).ok_or_else(|| ConformError::Missing {
            column: field.name.clone(),
            found: batch.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let array = conform_array(column, want.data_type(), &field.name, &field.ty.to_string())?;
        if !want.is_nullable() && array.null_count() > 0 {
            return Err(ConformError::Nulls { column: field.name.clone(), count: array.null_count() });
        }
        columns.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(target, columns, &options)
        .map_err(|source| ConformError::Value { column: "*".into(), source })
}

/// Casts one array to a canonical type, strictly: what does not fit is an error.
fn conform_array(array: &ArrayRef, want: &DataType, column: &str, expected: &str) -> Result<ArrayRef, ConformError> {
    if array.data_type() == want {
        return Ok(array.clone());
    }
    if !castable(array.data_type(), want) {
        let found = array.data_type().to_string();
        return Err(ConformError::Type { column: column.into(), found, expected: expected.into() });
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, want, &strict).map_err(|source| ConformError::Value { column: column.into(), source })
}

/// Returns whether an Arrow type may stand for a canonical one: those that hold the same kind of thing may.
fn castable(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (Null, _) => true,
        (Dictionary(_, values), _) => castable(values, to),
        (_, Boolean) => matches!(from, Boolean),
        (_, Int64) => from.is_integer(),
        (_, Float64) => from.is_floating() || from.is_integer(),
        (_, Decimal128(_, _)) => from.is_decimal() || from.is_integer(),
        (_, Timestamp(_, _)) => matches!(from, Timestamp(_, _) | Date32 | Date64),
        (_, Utf8) => matches!(from, Utf8 | LargeUtf8 | Utf8View),
        (_, Binary) => matches!(from, Binary | LargeBinary | BinaryView | FixedSizeBinary(_)),
        (List(f) | LargeList(f) | FixedSizeList(f, _) | ListView(f), List(t)) => castable(f.data_type(), t.data_type()),
        (Struct(f), Struct(t)) => {
            f.len() == t.len()
                && f.iter().zip(t).all(|(a, b)| a.name() == b.name() && castable(a.data_type(), b.data_type()))
        }
        _ => false,
    }
}

/// Returns one value of a canonical column, of declared type `ty`.
pub fn value_at(array: &dyn Array, ty: Type, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match ty {
        Type::Bool => Value::Bool(array.as_boolean().value(row)),
        Type::Int => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        Type::Float => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        Type::Decimal { .. } => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row) as i64),
        Type::Time => Value::Time(array.as_primitive::<TimestampMicrosecondType>().value(row)),
        Type::Str => Value::Str(array.as_string::<i32>().value(row).to_owned()),
        Type::Bytes => Value::Bytes(array.as_binary::<i32>().value(row).to_owned()),
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    }
}

/// Returns the rows of a conformed batch as values, one `Vec` per row in schema order.
pub fn rows(batch: &RecordBatch, schema: &Schema) -> Vec<Vec<Value>> {
    (0..batch.num_rows())
        .map(|row| {
            schema.fields.iter().zip(batch.columns()).map(|(field, array)| field_value(array, &field.ty, row)).collect()
        })
        .collect()
}

fn field_value(array: &ArrayRef, ty: &FieldType, row: usize) -> Value {
    match ty {
        FieldType::Scalar(ty) => value_at(array, ty.ty, row),
        FieldType::List(item) => {
            let elements = array.as_list::<i32>().value(row);
            let children: Vec<ArrayRef> = match item {
                ListItem::Scalar(_) => vec![elements.clone()],
                ListItem::Struct(_) => elements.as_struct().columns().to_vec(),
            };
            let columns = item.columns();
            let element = |i| columns.iter().zip(&children).map(|((_, t), c)| value_at(c, t.ty, i)).collect();
            Value::List((0..elements.len()).map(element).collect())
        }
    }
}

/// Returns a canonical array of values of one type. Panics where a value is of another type.
pub fn array_of<'a>(ty: Type, values: impl IntoIterator<Item = &'a Value>) -> ArrayRef {
    macro_rules! build {
        ($builder:expr, $variant:pat => $get:expr) => {{
            let mut builder = $builder;
            for value in values {
                match value {
                    $variant => builder.append_value($get),
                    Value::Null => builder.append_null(),
                    other => panic!("{other} where a {ty} belongs"),
                }
            }
            Box::new(builder) as Box<dyn ArrayBuilder>
        }};
    }
    let mut builder = match ty {
        Type::Bool => build!(BooleanBuilder::new(), Value::Bool(v) => *v),
        Type::Int => build!(Int64Builder::new(), Value::Int(v) => *v),
        Type::Float => build!(Float64Builder::new(), Value::Float(v) => *v),
        Type::Decimal { .. } => {
            build!(Decimal128Builder::new().with_data_type(data_type(ty)), Value::Decimal(v) => *v as i128)
        }
        Type::Time => {
            build!(TimestampMicrosecondBuilder::new().with_timezone("UTC"), Value::Time(v) => *v)
        }
        Type::Str => build!(StringBuilder::new(), Value::Str(v) => v),
        Type::Bytes => build!(BinaryBuilder::new(), Value::Bytes(v) => v),
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    };
    builder.finish()
}

/// Returns a batch of rows of values. Panics where a row does not fit the schema.
pub fn batch_of(schema: &Schema, rows: &[Vec<Value>]) -> RecordBatch {
    let columns: Vec<ArrayRef> = schema
        .fields
        .iter()
        .enumerate()
        .map(|(i, field)| match &field.ty {
            FieldType::Scalar(ty) => array_of(ty.ty, rows.iter().map(|r| &r[i])),
            FieldType::List(item) => list_of(item, rows.iter().map(|r| &r[i])),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(arrow_schema(schema), columns, &options).expect("columns built to the schema")
}

fn list_of<'a>(item: &ListItem, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    let mut offsets = vec![0i32];
    let mut elements: Vec<&Vec<Value>> = Vec::new();
    for value in values {
        let Value::List(list) = value else { panic!("{value} where a list belongs") };
        elements.extend(list);
        offsets.push(elements.len() as i32);
    }
    let column = |i: usize, ty: ColumnType| array_of(ty.ty, elements.iter().map(move |e| &e[i]));
    let field = item_field(item);
    let values: ArrayRef = match (item, field.data_type()) {
        (ListItem::Struct(columns), DataType::Struct(fields)) => {
            let arrays = columns.iter().enumerate().map(|(i, (_, t))| column(i, *t)).collect();
            Arc::new(StructArray::new(fields.clone(), arrays, None))
        }
        (ListItem::Scalar(ty), _) => column(0, *ty),
        _ => unreachable!("a struct item has a struct type"),
    };
    Arc::new(ListArray::new(Arc::new(field), OffsetBuffer::new(ScalarBuffer::from(offsets)), values, None))
}
