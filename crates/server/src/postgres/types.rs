//! Types of PostgreSQL, for those of ours, and how values of ours are written.

use super::arrays::Item;
use super::frontend::Form;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::io::Write;
use tidemill_connect::JsonRows;
use tidemill_model::{Field, FieldType, Schema, Type, format_decimal};

/// A type that is spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgType {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    /// A numeric; without digits and scale, one of any size.
    Numeric(Option<(u8, u8)>),
    Text,
    /// An instant: `timestamptz`. Those without a zone are taken to be UTC.
    Time,
    Timestamp,
    Date,
    Bytes,
    Json,
    /// A text of a fixed form.
    Uuid,
    /// The number of an object.
    Oid,
    Array(Item),
    /// A literal or parameter whose type the place says where it stands.
    Unknown,
    /// The parameter that JDBC sends in the place of a procedure's result.
    Void,
}

impl PgType {
    /// Returns the type of a number; none if it is not spoken here.
    pub fn of_oid(oid: u32) -> Option<PgType> {
        Some(match oid {
            0 | 705 => PgType::Unknown,
            16 => PgType::Bool,
            17 => PgType::Bytes,
            20 => PgType::Int8,
            21 => PgType::Int2,
            23 => PgType::Int4,
            18 | 19 | 25 | 1042 | 1043 => PgType::Text,
            114 | 3802 => PgType::Json,
            700 => PgType::Float4,
            701 => PgType::Float8,
            1082 => PgType::Date,
            1114 => PgType::Timestamp,
            1184 => PgType::Time,
            1700 => PgType::Numeric(None),
            2278 => PgType::Void,
            2950 => PgType::Uuid,
            26 => PgType::Oid,
            oid => PgType::Array(Item::of_array(oid)?),
        })
    }

    /// Returns its number.
    pub fn oid(self) -> u32 {
        match self {
            PgType::Bool => 16,
            PgType::Bytes => 17,
            PgType::Int8 => 20,
            PgType::Int2 => 21,
            PgType::Int4 => 23,
            PgType::Text => 25,
            PgType::Oid => 26,
            PgType::Json => 114,
            PgType::Float4 => 700,
            PgType::Float8 => 701,
            PgType::Unknown => 705,
            PgType::Date => 1082,
            PgType::Timestamp => 1114,
            PgType::Time => 1184,
            PgType::Numeric(_) => 1700,
            PgType::Void => 2278,
            PgType::Uuid => 2950,
            PgType::Array(item) => item.array_oid(),
        }
    }

    /// Returns the bytes of a value, or -1 if they vary.
    pub fn size(self) -> i16 {
        match self {
            PgType::Bool => 1,
            PgType::Int2 => 2,
            PgType::Int4 | PgType::Float4 | PgType::Date | PgType::Void | PgType::Oid => 4,
            PgType::Int8 | PgType::Float8 | PgType::Time | PgType::Timestamp => 8,
            PgType::Uuid => 16,
            PgType::Unknown => -2,
            PgType::Text | PgType::Bytes | PgType::Json | PgType::Numeric(_) | PgType::Array(_) => -1,
        }
    }

    /// Returns the type without the precision of a numeric, which may differ from answer to answer.
    pub fn bare(self) -> PgType {
        if let PgType::Numeric(_) = self { PgType::Numeric(None) } else { self }
    }

    /// Returns the digits of a numeric, as PostgreSQL packs them.
    pub fn modifier(self) -> i32 {
        match self {
            PgType::Numeric(Some((digits, scale))) => (i32::from(digits) << 16 | i32::from(scale)) + 4,
            _ => -1,
        }
    }

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            PgType::Bool => "boolean",
            PgType::Int2 => "smallint",
            PgType::Int4 => "integer",
            PgType::Int8 => "bigint",
            PgType::Float4 => "real",
            PgType::Float8 => "double precision",
            PgType::Numeric(_) => "numeric",
            PgType::Text => "text",
            PgType::Oid => "oid",
            PgType::Time => "timestamp with time zone",
            PgType::Timestamp => "timestamp without time zone",
            PgType::Date => "date",
            PgType::Bytes => "bytea",
            PgType::Json => "json",
            PgType::Unknown => "unknown",
            PgType::Void => "void",
            PgType::Uuid => "uuid",
            PgType::Array(item) => item.array_name(),
        }
    }
}

/// Returns the type of a field of ours. Lists are JSON.
pub fn of_field(ty: &FieldType) -> PgType {
    match ty {
        FieldType::Scalar(ty) => of_type(ty.ty),
        FieldType::List(_) => PgType::Json,
    }
}

/// Returns the type of a column of ours.
pub fn of_type(ty: Type) -> PgType {
    match ty {
        Type::Bool => PgType::Bool,
        Type::Int => PgType::Int8,
        Type::Float => PgType::Float8,
        Type::Decimal { digits, scale } => PgType::Numeric(Some((digits, scale))),
        Type::Time => PgType::Time,
        Type::Str => PgType::Text,
        Type::Bytes => PgType::Bytes,
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    }
}

/// 2000-01-01, from which PostgreSQL counts, in microseconds since 1970.
pub const EPOCH_2000: i64 = 946_684_800_000_000;
const SECOND: i64 = 1_000_000;
pub const DAY: i64 = 86_400 * SECOND;

/// Appends the value of a column in a row, and says whether there is one.
pub fn write(out: &mut Vec<u8>, batch: &RecordBatch, column: usize, field: &Field, row: usize, form: Form) -> bool {
    let array = batch.column(column);
    if array.is_null(row) {
        return false;
    }
    let FieldType::Scalar(ty) = &field.ty else {
        out.extend_from_slice(&list(batch, column, field, row));
        return true;
    };
    match (ty.ty, form) {
        (Type::Bool, _) => boolean(out, array.as_boolean().value(row), form),
        (Type::Int, _) => int(out, array.as_primitive::<Int64Type>().value(row), form),
        (Type::Float, Form::Text) => float_text(out, array.as_primitive::<Float64Type>().value(row)),
        (Type::Float, Form::Binary) => {
            out.extend_from_slice(&array.as_primitive::<Float64Type>().value(row).to_be_bytes());
        }
        (Type::Decimal { scale, .. }, form) => {
            let unscaled = array.as_primitive::<Decimal128Type>().value(row) as i64;
            match form {
                Form::Text => out.extend_from_slice(format_decimal(unscaled, scale).as_bytes()),
                Form::Binary => numeric(out, unscaled, scale),
            }
        }
        (Type::Time, form) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            match form {
                Form::Text => time_text(out, micros),
                // A time before the earliest of PostgreSQL's becomes its minus infinity.
                Form::Binary => out.extend_from_slice(&micros.saturating_sub(EPOCH_2000).to_be_bytes()),
            }
        }
        (Type::Str, _) => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        (Type::Bytes, Form::Binary) => out.extend_from_slice(array.as_binary::<i32>().value(row)),
        (Type::Bytes, Form::Text) => hex(out, array.as_binary::<i32>().value(row)),
        (Type::Duration | Type::Null, _) => panic!("{ty} is no column type"),
    }
    true
}

/// Appends the number of an object, and says whether there is one.
pub fn write_oid(out: &mut Vec<u8>, values: &ArrayRef, row: usize, form: Form) -> bool {
    if values.is_null(row) {
        return false;
    }
    let number = values.as_primitive::<UInt32Type>().value(row);
    match form {
        Form::Text => out.extend_from_slice(number.to_string().as_bytes()),
        Form::Binary => out.extend_from_slice(&number.to_be_bytes()),
    }
    true
}

/// Returns the JSON of a list.
fn list(batch: &RecordBatch, column: usize, field: &Field, row: usize) -> Vec<u8> {
    let rows = JsonRows::new(&Schema { fields: vec![Field { name: "x".into(), ty: field.ty.clone() }] });
    let names = arrow_schema_of(field, batch.column(column).clone());
    let mut object = Vec::new();
    rows.of(&names).write(&mut object, row);
    object["{\"x\":".len()..object.len() - 1].to_vec()
}

/// Returns a batch of one column, of which the name does not matter.
fn arrow_schema_of(field: &Field, column: arrow_array::ArrayRef) -> RecordBatch {
    let schema = Schema { fields: vec![Field { name: "x".into(), ty: field.ty.clone() }] };
    RecordBatch::try_new(tidemill_model::arrow::arrow_schema(&schema), vec![column]).expect("it has the type")
}

fn boolean(out: &mut Vec<u8>, value: bool, form: Form) {
    out.push(match form {
        Form::Text => [b'f', b't'][usize::from(value)],
        Form::Binary => u8::from(value),
    });
}

fn int(out: &mut Vec<u8>, value: i64, form: Form) {
    match form {
        Form::Text => _ = write!(out, "{value}"),
        Form::Binary => out.extend_from_slice(&value.to_be_bytes()),
    }
}

/// Appends the shortest text that reads back as the same float.
fn float_text(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    let written = if value.is_nan() {
        out.write_all(b"NaN")
    } else if value.is_infinite() {
        out.write_all(if value > 0.0 { b"Infinity" } else { b"-Infinity" })
    } else if magnitude == 0.0 || (1e-4..1e15).contains(&magnitude) {
        write!(out, "{value}")
    } else {
        write!(out, "{value:e}")
    };
    written.expect("memory takes everything");
}

/// Appends a numeric in the binary format of PostgreSQL: digits to the base of 10,000.
fn numeric(out: &mut Vec<u8>, unscaled: i64, scale: u8) {
    // The digits after the point fill up whole groups of four.
    let groups_after = usize::from(scale).div_ceil(4);
    let mut rest = u128::from(unscaled.unsigned_abs()) * 10u128.pow((groups_after * 4 - usize::from(scale)) as u32);
    let mut groups = Vec::new();
    while rest > 0 {
        groups.push((rest % 10_000) as i16);
        rest /= 10_000;
    }
    let weight = groups.len() as i16 - groups_after as i16 - 1;
    let zeros = groups.iter().take_while(|&&group| group == 0).count();
    let groups = &groups[zeros..];
    let sign: u16 = if unscaled < 0 { 0x4000 } else { 0 };
    let weight = if groups.is_empty() { 0 } else { weight };
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&u16::from(scale).to_be_bytes());
    groups.iter().rev().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Appends a time in UTC as PostgreSQL writes it in ISO 8601.
fn time_text(out: &mut Vec<u8>, micros: i64) {
    let (year, month, day) = civil(micros.div_euclid(DAY));
    let in_day = micros.rem_euclid(DAY);
    let (seconds, fraction) = (in_day / SECOND, in_day % SECOND);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = write!(out, "{shown:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if fraction > 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    let _ = write!(out, "+00{era}");
}

/// Returns the year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn texts() {
        let micros = 1_357_017_300 * SECOND;
        assert_eq!(text(|out| time_text(out, micros)), "2013-01-01 05:15:00+00");
        assert_eq!(text(|out| time_text(out, micros + 120_000)), "2013-01-01 05:15:00.12+00");
        assert_eq!(text(|out| time_text(out, -1)), "1969-12-31 23:59:59.999999+00");
        assert_eq!(text(|out| time_text(out, -62_167_219_200 * SECOND)), "0001-01-01 00:00:00+00 BC");
        assert_eq!(text(|out| time_text(out, 253_402_300_800 * SECOND)), "10000-01-01 00:00:00+00");
        let floats = [(0.1, "0.1"), (1.0, "1"), (-0.0, "-0"), (1e300, "1e300"), (2.5e-7, "2.5e-7"), (f64::NAN, "NaN")];
        for (value, written) in floats {
            assert_eq!(text(|out| float_text(out, value)), written);
        }
        assert_eq!(text(|out| hex(out, &[0, 255, 16])), "\\x00ff10");
    }

    #[test]
    fn numerics_are_groups_of_four_digits() {
        let sent = |unscaled, scale| {
            let mut out = Vec::new();
            numeric(&mut out, unscaled, scale);
            out.chunks(2).map(|two| i16::from_be_bytes([two[0], two[1]])).collect::<Vec<_>>()
        };
        assert_eq!(sent(0, 2), [0, 0, 0, 2]);
        assert_eq!(sent(1, 2), [1, -1, 0, 2, 100]);
        assert_eq!(sent(-1234567, 2), [3, 1, 0x4000, 2, 1, 2345, 6700]);
        assert_eq!(sent(120_000, 0), [1, 1, 0, 0, 12]);
        assert_eq!(sent(1_000_000, 6), [1, 0, 0, 6, 1]);
        assert_eq!(sent(i64::MAX, 18), [6, 0, 0, 18, 9, 2233, 7203, 6854, 7758, 700]);
    }
}
