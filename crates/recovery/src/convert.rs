//! Columns of a state whose values become values of another type when the state is migrated: of a wider one by
//! themselves, of any other by a function.
//!
//! A function is a program ([`Conversion`]), and nothing here runs programs: the caller says how ([`Converts`]). Each value is
//! given to it once. None that the function does not take is not given to it, and stays None.

use crate::control::RunError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_cast::display::array_value_to_string;
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_select::take::take;
use std::sync::Arc;
use tidemill_durability::StateError;
use tidemill_model::arrow::conform;
use tidemill_model::{Field, FieldType, Schema, Type};
use tidemill_plan::{Conversion, Table};

/// The largest int up to which all ints convert exactly to a float.
const EXACT_FLOAT_MAX: i64 = 1 << 53;

/// Runs a conversion over values of the type that it takes.
pub type Converts = fn(&Conversion, ArrayRef) -> Result<Converted, RunError>;

/// The result of a conversion.
pub struct Converted {
    /// One for each value, of the type that it gives, if none failed.
    pub values: ArrayRef,
    /// The values that failed: the number of each, and why.
    pub failed: Vec<(usize, String)>,
}

/// Returns the values of a column of a table's rows after a conversion. If some cannot be converted, the refusal names
/// the first of their rows, in the order of the key.
pub(crate) fn converted(
    rows: &RecordBatch,
    table: &Table,
    column: usize,
    conversion: &Conversion,
    converts: Converts,
) -> Result<ArrayRef, RunError> {
    let before = rows.column(column);
    let is_given = |&row: &usize| conversion.from.nullable || before.is_valid(row);
    let given: Vec<usize> = (0..before.len()).filter(is_given).collect();
    let values = at(before, given.iter().map(|&row| Some(row)));
    let field = Field::scalar(&table.columns[column].name, conversion.from);
    let values = widen(&values, &field).map_err(|why| refused("table", &table.name, &why))?;
    let Converted { values, failed } = converts(conversion, values)?;
    if !failed.is_empty() {
        let failed: Vec<_> = failed.into_iter().map(|(value, why)| (given[value], why)).collect();
        return Err(refused("table", &table.name, &unconverted(rows, table, column, &failed)));
    }
    assert_eq!(values.len(), given.len(), "each value was converted or failed");
    if given.len() == before.len() {
        return Ok(values);
    }
    let mut next = 0..;
    let place = |row| if before.is_valid(row) { next.next() } else { None };
    Ok(at(&values, (0..before.len()).map(place)))
}

/// Returns the values at these places; None at none.
fn at(values: &ArrayRef, places: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let places: UInt64Array = places.map(|place| place.map(|place| place as u64)).collect();
    take(values, &places, None).expect("there are such values")
}

/// Returns a value, as people read it.
fn text(values: &ArrayRef, at: usize) -> String {
    if values.is_null(at) {
        return "None".to_owned();
    }
    match values.as_primitive_opt::<TimestampMicrosecondType>() {
        // A time that no calendar has stays a number.
        Some(times) => {
            let local: ArrayRef = Arc::new(times.clone().with_timezone_opt(None::<&str>));
            array_value_to_string(&local, at).map_or_else(|_| times.value(at).to_string(), |time| format!("{time}Z"))
        }
        None => array_value_to_string(values, at).expect("a value has a text"),
    }
}

/// Returns the first row that cannot be converted, with its value and the reason, and how many others there are.
fn unconverted(rows: &RecordBatch, table: &Table, column: usize, failed: &[(usize, String)]) -> String {
    let keys: Vec<ArrayRef> =
        table.key.iter().map(|&key| at(rows.column(key), failed.iter().map(|&(row, _)| Some(row)))).collect();
    let sorted: Vec<_> = keys.iter().map(|key| SortColumn { values: key.clone(), options: None }).collect();
    let first = lexsort_to_indices(&sorted, Some(1)).expect("keys can be compared").value(0) as usize;
    let (row, why) = &failed[first];
    let key = keys.iter().map(|key| text(key, first)).collect::<Vec<_>>().join(", ");
    let others = match failed.len() - 1 {
        0 => String::new(),
        1 => "; another row fails too".to_owned(),
        others => format!("; {others} other rows fail too"),
    };
    let (name, value) = (&table.columns[column].name, text(rows.column(column), *row));
    format!("{name} = {value} of the row {key}: {why}{others}")
}

/// Returns a column under another name, with a type that is wider than its own, or its own.
pub(crate) fn widen(column: &ArrayRef, field: &Field) -> Result<ArrayRef, String> {
    if is_float(&field.ty) {
        exact(column)
            .map_err(|value| format!("{value} in {} is beyond 2^53 and has no float of its own", field.name))?;
    }
    let one = arrow_schema::Field::new(&field.name, column.data_type().clone(), true);
    let one = RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(vec![one])), vec![column.clone()])
        .expect("it is that column");
    let conformed = conform(&one, &Schema { fields: vec![field.clone()] });
    Ok(conformed.map_err(|error| error.to_string())?.column(0).clone())
}

fn is_float(ty: &FieldType) -> bool {
    matches!(ty, FieldType::Scalar(ty) if ty.ty == Type::Float)
}

/// Checks that all ints of a column convert exactly to a float; otherwise returns one that does not.
fn exact(column: &ArrayRef) -> Result<(), i64> {
    let Some(ints) = column.as_primitive_opt::<Int64Type>() else { return Ok(()) };
    let inexact = |value: &i64| value.unsigned_abs() > EXACT_FLOAT_MAX.unsigned_abs();
    ints.iter().flatten().find(inexact).map_or(Ok(()), Err)
}

pub(crate) fn refused(kind: &str, name: &str, why: &str) -> RunError {
    RunError::State(StateError::Refused(format!("{kind} {name} cannot be migrated: {why}")))
}
