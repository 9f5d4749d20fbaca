//! Foreign columns into canonical form, refusing what the plain conversion would change silently or
//! cannot do.

use super::times::instants;
use crate::bad::{Fault, excerpt};
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema};
use std::sync::Arc;
use tidemill_model::Schema;
use tidemill_model::arrow::{ConformError, arrow_schema};

impl Fault {
    /// Returns the column and the reason in one sentence.
    pub fn whole_text(&self) -> String {
        match &self.column {
            Some(column) => format!("column '{column}': {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// Returns the schema's columns of `batch` in canonical form, or what the first fault in it is.
pub(super) fn conform(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, Fault> {
    let wanted = arrow_schema(schema);
    let mut fields = Vec::with_capacity(wanted.fields().len());
    let mut columns = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        // A missing column is reported below.
        let Some(array) = batch.column_by_name(field.name()) else { continue };
        let array = eased(array, field.data_type()).map_err(|error| Fault::at(field.name(), error.to_string()))?;
        fields.push(Field::new(field.name(), array.data_type().clone(), true));
        columns.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let eased = if columns.len() == wanted.fields().len() {
        RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)
            .map_err(|error| Fault::whole(error.to_string()))?
    } else {
        batch.clone()
    };
    tidemill_model::arrow::conform(&eased, schema).map_err(|error| match error {
        ConformError::Missing { .. } => Fault::whole(error.to_string()),
        ConformError::Type { column, found, expected } => {
            Fault::at(column, format!("it is {found}, which cannot be read as {expected}"))
        }
        ConformError::Value { column, source } => Fault::at(column, source.to_string()),
        ConformError::Nulls { column, .. } => Fault::at(column, "a value is missing, and the column has no None"),
        other => Fault::whole(other.to_string()),
    })
}

/// Converts a column as the plain conversion would not, wherever in it this is due: times without a time zone are taken
/// as UTC, lose what is below a microsecond downwards, and stay what they are; decimals lose digits only where these
/// are zero, and are as long as they say.
fn eased(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType::*;
    match (array.data_type(), wanted) {
        (Dictionary(_, values), Timestamp(..) | Decimal128(..)) => {
            eased(&cast_with_options(array, values, &STRICT)?, wanted)
        }
        (Timestamp(..) | Date32 | Date64, Timestamp(..)) => instants(array),
        (Decimal32(_, from) | Decimal64(_, from) | Decimal128(_, from) | Decimal256(_, from), Decimal128(_, to))
            if from > to =>
        {
            let wide = cast_with_options(array, &Decimal128(38, *from), &STRICT)?;
            exact(&wide, i16::from(*from) - i16::from(*to))?;
            Ok(wide)
        }
        (Decimal128(digits, from), Decimal128(_, to)) if from == to => {
            array.as_primitive::<Decimal128Type>().validate_decimal_precision(*digits)?;
            Ok(array.clone())
        }
        (List(_), List(item)) => eased_list::<i32>(array, item.data_type()),
        (LargeList(_), List(item)) => eased_list::<i64>(array, item.data_type()),
        (Struct(fields), Struct(wanted)) if fields.len() == wanted.len() => {
            let array = array.as_struct();
            let columns = array.columns().iter().zip(wanted).map(|(column, field)| eased(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let retyped = |(field, column): (&Arc<Field>, &ArrayRef)| {
                field.as_ref().clone().with_data_type(column.data_type().clone())
            };
            let fields = fields.iter().zip(&columns).map(retyped).collect();
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, array.nulls().cloned(), array.len())?))
        }
        _ => Ok(array.clone()),
    }
}

const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow_cast::display::FormatOptions::new() };

fn eased_list<O: OffsetSizeTrait>(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let list: &GenericListArray<O> = array.as_list();
    let (field, offsets, _, nulls) = list.clone().into_parts();
    // Elements before and after those of a slice are none of its business.
    let (start, end) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    let values = eased(&list.values().slice(start, end - start), wanted)?;
    let field = field.as_ref().clone().with_data_type(values.data_type().clone());
    let offsets = arrow_buffer::OffsetBuffer::from_lengths(offsets.lengths());
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::new(field), offsets, values, nulls)?))
}

/// Checks that the last `digits` digits of all decimals are zero.
fn exact(array: &ArrayRef, digits: i16) -> Result<(), ArrowError> {
    let decimals = array.as_primitive::<Decimal128Type>();
    let unit = u32::try_from(digits).ok().and_then(|digits| 10i128.checked_pow(digits)).unwrap_or(i128::MAX);
    match (0..decimals.len()).find(|row| decimals.is_valid(*row) && decimals.value(*row) % unit != 0) {
        Some(row) => {
            let text = decimals.value_as_string(row);
            Err(ArrowError::CastError(format!("too many digits after the point: '{text}'")))
        }
        None => Ok(()),
    }
}

/// Returns the first row of a batch as text.
pub(super) fn row_text(batch: &RecordBatch) -> String {
    let schema = batch.schema();
    let value = |array: &ArrayRef| array_value_to_string(array, 0).unwrap_or_else(|error| format!("<{error}>"));
    let columns = schema.fields().iter().zip(batch.columns());
    let texts: Vec<String> = columns
        .map(|(field, array)| {
            let text = if array.is_null(0) { "null".to_owned() } else { value(array) };
            format!("{}: {text}", field.name())
        })
        .collect();
    excerpt(texts.join(", ").as_bytes())
}
