//! Types of columns and fields: which are allowed, and the least type that holds two.

use super::fault::{Checked, Fault, check_identifier, check_unique};
use tidemill_model::{ColumnType, DECIMAL_DIGITS_MAX, FieldType, ListItem, Schema, Type, Value};

/// Returns the type of decimals that come out of arithmetic.
pub(super) fn decimal(scale: u8) -> Type {
    Type::Decimal { digits: DECIMAL_DIGITS_MAX, scale }
}

/// Returns the scale of a number that can take part in decimal arithmetic.
pub(super) fn scale_of(ty: Type) -> Option<u8> {
    match ty {
        Type::Int => Some(0),
        Type::Decimal { scale, .. } => Some(scale),
        _ => None,
    }
}

/// Returns the least type that holds the values of both, if there is one.
pub(super) fn join(a: ColumnType, b: ColumnType) -> Option<ColumnType> {
    let ty = match (a.ty, b.ty) {
        (x, y) if x == y => x,
        (Type::Null, other) | (other, Type::Null) => other,
        (Type::Int, Type::Float) | (Type::Float, Type::Int) => Type::Float,
        (x, y) => decimal(scale_of(x)?.max(scale_of(y)?)),
    };
    Some(ColumnType { ty, nullable: a.nullable || b.nullable })
}

/// Returns the zero of a type that columns can have.
pub(super) fn zero(ty: Type) -> Value {
    match ty {
        Type::Bool => Value::Bool(false),
        Type::Int => Value::Int(0),
        Type::Float => Value::Float(0.0),
        Type::Time => Value::Time(0),
        Type::Duration => Value::Duration(0),
        Type::Decimal { .. } => Value::Decimal(0),
        Type::Str => Value::Str(String::new()),
        Type::Bytes => Value::Bytes(Vec::new()),
        Type::Null => Value::Null,
    }
}

/// Refuses types that no column or field can have.
pub(super) fn check_column_type(name: &str, ty: Type) -> Checked<()> {
    match ty {
        Type::Duration => Err(Fault::new(format!("'{name}' is a Duration, which cannot be stored"))
            .hint("store an int of microseconds, or a float of seconds")),
        Type::Null => Err(Fault::new(format!("'{name}' has no type but None"))),
        Type::Decimal { digits, scale } if digits == 0 || digits > DECIMAL_DIGITS_MAX || scale > digits => {
            Err(Fault::new(format!("'{name}' is {ty}"))
                .hint(format!("a decimal has 1 to {DECIMAL_DIGITS_MAX} digits, of which at most all after the point")))
        }
        _ => Ok(()),
    }
}

/// Checks the declared schema of a source, map, emission or returned record.
pub(super) fn check_schema(schema: &Schema) -> Checked<()> {
    if schema.fields.is_empty() {
        return Err(Fault::new("an event needs at least one field"));
    }
    check_unique("field", schema.fields.iter().map(|f| f.name.as_str()))?;
    for field in &schema.fields {
        check_identifier("field", &field.name)?;
        match &field.ty {
            FieldType::Scalar(ty) | FieldType::List(ListItem::Scalar(ty)) => check_column_type(&field.name, ty.ty)?,
            FieldType::List(ListItem::Struct(columns)) => check_struct(&field.name, columns)?,
        }
        if let FieldType::List(ListItem::Scalar(ColumnType { nullable: true, .. })) = field.ty {
            return Err(Fault::new(format!("the elements of '{}' may be None", field.name))
                .hint("use a list of a nested event class with an optional field"));
        }
    }
    Ok(())
}

fn check_struct(list: &str, columns: &[(String, ColumnType)]) -> Checked<()> {
    if columns.is_empty() {
        return Err(Fault::new(format!("the elements of '{list}' have no fields")));
    }
    check_unique("field", columns.iter().map(|(n, _)| n.as_str()))?;
    for (name, ty) in columns {
        check_identifier("field", name)?;
        check_column_type(name, ty.ty)?;
    }
    Ok(())
}

/// Returns the index of the event-time field, checked.
pub(super) fn event_time(schema: &Schema, name: &str) -> Checked<usize> {
    let names = schema.fields.iter().map(|f| f.name.as_str());
    let index = schema.index_of(name).ok_or_else(|| Fault::unknown("field", name, names))?;
    match schema.fields[index].scalar_type() {
        Some(ColumnType { ty: Type::Time | Type::Int, nullable: false }) => Ok(index),
        _ => Err(Fault::new(format!("event time '{name}' is {}", schema.fields[index].ty))
            .hint("an event time is a Time or an int, and never None")),
    }
}
