//! Values that clients give: from parameters and literals, to what a field or a key takes.
//!
//! # Invariant
//!
//! A value is taken exactly, or it is refused: nothing is rounded but what becomes a float, and nothing is cut off.

use super::arrays::{self, Item};
use super::error::{PgError, PgResult, code};
use super::frontend::Form;
use super::types::{DAY, EPOCH_2000, PgType};
use crate::users::hex;
use tidemill_connect::{json_string, parse_time};
use tidemill_model::{ColumnType, FieldType, Type, Value};

/// A value as a client gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    Null,
    /// Text whose type follows from the place where it is used.
    Unknown(String),
    Bool(bool),
    Int(i64),
    Float(f64),
    /// The text of a number.
    Numeric(String),
    Text(String),
    /// Microseconds since 1970.
    Time(i64),
    Bytes(Vec<u8>),
    Json(String),
    Array(Item, Vec<Option<String>>),
}

impl Given {
    /// Returns the value of a parameter of this type.
    pub fn of_parameter(ty: PgType, form: Form, bytes: Option<&[u8]>) -> PgResult<Given> {
        let Some(bytes) = bytes else { return Ok(Given::Null) };
        match form {
            Form::Text => of_text(ty, utf8(bytes)?),
            Form::Binary => of_binary(ty, bytes),
        }
    }

    /// Converts the value to the type of a cast.
    pub fn cast(self, ty: PgType) -> PgResult<Given> {
        let refused =
            |given: &Given| PgError::not_supported(format!("a cast of {} to {}", given.type_name(), ty.name()));
        match (self, ty) {
            (Given::Null, _) => Ok(Given::Null),
            (Given::Unknown(text), ty) => of_text(ty, &text),
            (Given::Int(value), PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid) => {
                in_range(value, ty).map(Given::Int)
            }
            (Given::Int(value), PgType::Numeric(_)) => Ok(Given::Numeric(value.to_string())),
            (Given::Int(value), PgType::Float8) => Ok(Given::Float(value as f64)),
            (Given::Numeric(text), PgType::Float8) => float(&text).map(Given::Float),
            (Given::Text(text), PgType::Json) => Ok(Given::Json(text)),
            (Given::Text(text), PgType::Uuid) => uuid(&text).map(Given::Text),
            (given, ty) => {
                match (given.ty() == ty) || matches!((&given, ty), (Given::Numeric(_), PgType::Numeric(_))) {
                    true => Ok(given),
                    false => Err(refused(&given)),
                }
            }
        }
    }

    fn ty(&self) -> PgType {
        match self {
            Given::Null | Given::Unknown(_) => PgType::Unknown,
            Given::Bool(_) => PgType::Bool,
            Given::Int(_) => PgType::Int8,
            Given::Float(_) => PgType::Float8,
            Given::Numeric(_) => PgType::Numeric(None),
            Given::Text(_) => PgType::Text,
            Given::Time(_) => PgType::Time,
            Given::Bytes(_) => PgType::Bytes,
            Given::Json(_) => PgType::Json,
            Given::Array(item, _) => PgType::Array(*item),
        }
    }

    fn type_name(&self) -> &'static str {
        self.ty().name()
    }

    /// Returns the value as one of a column.
    pub fn value(&self, ty: ColumnType) -> PgResult<Value> {
        let mismatch = || PgError::new(code::WRONG_TYPE, format!("expected {}, found {}", ty.ty, self.type_name()));
        Ok(match (self, ty.ty) {
            (Given::Null, _) if ty.nullable => Value::Null,
            (Given::Null, _) => {
                return Err(PgError::new(code::NOT_NULL, format!("a value is missing, and {ty} has no None")));
            }
            (Given::Bool(value), Type::Bool) => Value::Bool(*value),
            (Given::Int(value), Type::Int) => Value::Int(*value),
            (Given::Numeric(text), Type::Int) => Value::Int(whole(text)?),
            (Given::Int(value), Type::Float) => Value::Float(*value as f64),
            (Given::Numeric(text), Type::Float) => Value::Float(float(text)?),
            (Given::Float(value), Type::Float) => Value::Float(*value),
            (Given::Int(value), Type::Decimal { digits, scale }) => decimal(&value.to_string(), digits, scale)?,
            (Given::Numeric(text), Type::Decimal { digits, scale }) => decimal(text, digits, scale)?,
            (Given::Text(text), Type::Str) => Value::Str(text.clone()),
            (Given::Time(micros), Type::Time) => Value::Time(*micros),
            (Given::Bytes(bytes), Type::Bytes) => Value::Bytes(bytes.clone()),
            (Given::Unknown(text), target) => of_unknown(text, target)?,
            _ => return Err(mismatch()),
        })
    }

    /// Appends the value as the JSON of a field.
    pub fn json(&self, out: &mut Vec<u8>, ty: &FieldType) -> PgResult<()> {
        match ty {
            FieldType::Scalar(ty) => value_json(out, &self.value(*ty)?, ty.ty),
            FieldType::List(_) => match self {
                Given::Unknown(text) | Given::Text(text) | Given::Json(text) => {
                    let wrong = |error| PgError::new(code::BAD_TEXT, format!("a list is given as JSON: {error}"));
                    // One whole value, so that nothing after it can pass for a field. Its own text keeps all digits.
                    serde_json::from_str::<serde_json::Value>(text).map_err(wrong)?;
                    out.extend_from_slice(text.as_bytes());
                }
                Given::Null => return Err(PgError::new(code::NOT_NULL, "a list is never None")),
                other => {
                    let message = format!("a list is given as JSON, found {}", other.type_name());
                    return Err(PgError::new(code::WRONG_TYPE, message));
                }
            },
        }
        Ok(())
    }
}

fn value_json(out: &mut Vec<u8>, value: &Value, ty: Type) {
    match (value, ty) {
        (Value::Bool(value), _) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        (Value::Int(value) | Value::Time(value), _) => out.extend_from_slice(value.to_string().as_bytes()),
        (Value::Float(value), _) => match value.is_finite() {
            true => out.extend_from_slice(format!("{value:e}").as_bytes()),
            false if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
            false => out.extend_from_slice(if *value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" }),
        },
        (Value::Decimal(unscaled), Type::Decimal { scale, .. }) => {
            out.extend_from_slice(tidemill_model::format_decimal(*unscaled, scale).as_bytes());
        }
        (Value::Str(text), _) => json_string(out, text),
        (Value::Bytes(bytes), _) => base64(out, bytes),
        (Value::Null, _) => out.extend_from_slice(b"null"),
        (other, ty) => panic!("{other} is no value of {ty}"),
    }
}

/// Appends a JSON string of base64.
fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b'"');
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        let digit = |at: usize| match at <= three.len() {
            true => DIGITS[(word >> (18 - 6 * at)) as usize & 63],
            false => b'=',
        };
        out.extend((0..4).map(digit));
    }
    out.push(b'"');
}

fn utf8(bytes: &[u8]) -> PgResult<&str> {
    let text = std::str::from_utf8(bytes).map_err(|_| PgError::new(code::BAD_ENCODING, "the text is not UTF-8"))?;
    match text.contains('\0') {
        true => Err(PgError::new(code::BAD_ENCODING, "text has no zero bytes")),
        false => Ok(text),
    }
}

/// Returns a value of a type from its text.
fn of_text(ty: PgType, text: &str) -> PgResult<Given> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    Ok(match ty {
        PgType::Unknown | PgType::Void => Given::Unknown(text.to_owned()),
        PgType::Bool => Given::Bool(boolean(trimmed)?),
        PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid => Given::Int(in_range(int(trimmed)?, ty)?),
        PgType::Float4 | PgType::Float8 => Given::Float(float(trimmed)?),
        PgType::Numeric(_) => Given::Numeric(number(trimmed)?.to_owned()),
        PgType::Text => Given::Text(text.to_owned()),
        PgType::Time | PgType::Timestamp | PgType::Date => Given::Time(time(trimmed)?),
        PgType::Bytes => Given::Bytes(bytes(text)?),
        PgType::Json => Given::Json(text.to_owned()),
        PgType::Uuid => Given::Text(uuid(trimmed)?),
        PgType::Array(item) => Given::Array(item, arrays::of_text(text)?),
    })
}

/// Returns a value of one of our types from text that has no type of its own.
fn of_unknown(text: &str, ty: Type) -> PgResult<Value> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    Ok(match ty {
        Type::Bool => Value::Bool(boolean(trimmed)?),
        Type::Int => Value::Int(int(trimmed)?),
        Type::Float => Value::Float(float(trimmed)?),
        Type::Decimal { digits, scale } => decimal(number(trimmed)?, digits, scale)?,
        Type::Time => Value::Time(time(trimmed)?),
        Type::Str => Value::Str(text.to_owned()),
        Type::Bytes => Value::Bytes(bytes(text)?),
        Type::Duration | Type::Null => panic!("{ty} is no column type"),
    })
}

/// Returns the usual text of a UUID, given any text of one: hexadecimal digits, perhaps with hyphens and in braces.
fn uuid(text: &str) -> PgResult<String> {
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let digits: String = bare.chars().filter(|c| *c != '-').collect();
    let is_one = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let wrong = || PgError::new(code::BAD_TEXT, format!("'{text}' is no uuid"));
    let bits = if is_one { u128::from_str_radix(&digits, 16).ok() } else { None };
    bits.map(|bits| uuid_text(bits.to_be_bytes())).ok_or_else(wrong)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn of_binary(ty: PgType, bytes: &[u8]) -> PgResult<Given> {
    let wrong = || {
        let message = format!("{} bytes are no value of type {} in binary", bytes.len(), ty.name());
        PgError::new(code::BAD_BINARY, message)
    };
    fn exactly<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let since_2000 = |micros: i64| {
        let micros = micros.checked_add(EPOCH_2000).filter(|_| micros != i64::MIN);
        micros
            .map(Given::Time)
            .ok_or_else(|| PgError::new(code::BAD_TIME, "a time is neither infinite nor that far away"))
    };
    Ok(match ty {
        PgType::Unknown | PgType::Void => Given::Unknown(utf8(bytes)?.to_owned()),
        PgType::Bool => Given::Bool(exactly::<1>(bytes).filter(|b| b[0] < 2).ok_or_else(wrong)?[0] == 1),
        PgType::Int2 => Given::Int(i16::from_be_bytes(exactly(bytes).ok_or_else(wrong)?).into()),
        PgType::Int4 => Given::Int(i32::from_be_bytes(exactly(bytes).ok_or_else(wrong)?).into()),
        PgType::Oid => Given::Int(u32::from_be_bytes(exactly(bytes).ok_or_else(wrong)?).into()),
        PgType::Int8 => Given::Int(i64::from_be_bytes(exactly(bytes).ok_or_else(wrong)?)),
        PgType::Float4 => Given::Float(f32::from_be_bytes(exactly(bytes).ok_or_else(wrong)?).into()),
        PgType::Float8 => Given::Float(f64::from_be_bytes(exactly(bytes).ok_or_else(wrong)?)),
        PgType::Numeric(_) => Given::Numeric(numeric(bytes).ok_or_else(wrong)?),
        PgType::Text => Given::Text(utf8(bytes)?.to_owned()),
        PgType::Json => Given::Json(utf8(bytes)?.to_owned()),
        PgType::Uuid => Given::Text(uuid_text(exactly(bytes).ok_or_else(wrong)?)),
        PgType::Array(item) => Given::Array(item, arrays::of_binary(bytes)?),
        PgType::Bytes => Given::Bytes(bytes.to_vec()),
        PgType::Time | PgType::Timestamp => since_2000(i64::from_be_bytes(exactly(bytes).ok_or_else(wrong)?))?,
        PgType::Date => {
            let days = i64::from(i32::from_be_bytes(exactly(bytes).ok_or_else(wrong)?));
            since_2000(days.checked_mul(DAY).unwrap_or(i64::MIN))?
        }
    })
}

/// Returns the text of a numeric as PostgreSQL sends it: digits to the base of 10,000.
fn numeric(bytes: &[u8]) -> Option<String> {
    let words: Vec<u16> = bytes.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
    let [count, weight, sign, scale, groups @ ..] = &words[..] else { return None };
    let (weight, scale) = (i32::from(*weight as i16), i32::from(*scale));
    let is_whole =
        bytes.len().is_multiple_of(2) && groups.len() == usize::from(*count) && groups.iter().all(|&g| g < 10_000);
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        0xC000 => return Some("NaN".into()),
        _ => return None,
    };
    // Values of ours have far fewer digits.
    if !is_whole || scale > 1000 || !(-250..=250).contains(&weight) {
        return None;
    }
    let group = |place: i32| usize::try_from(weight - place).ok().and_then(|at| groups.get(at)).copied().unwrap_or(0);
    let mut text = String::from(sign);
    (0..=weight.max(0)).rev().for_each(|place| text.push_str(&format!("{:04}", group(place))));
    text.push('.');
    let after = (weight - groups.len() as i32 + 1..0).rev();
    after.for_each(|place| text.push_str(&format!("{:04}", group(place))));
    Some(text)
}

fn in_range(value: i64, ty: PgType) -> PgResult<i64> {
    let fits = match ty {
        PgType::Int2 => i16::try_from(value).is_ok(),
        PgType::Int4 => i32::try_from(value).is_ok(),
        PgType::Oid => u32::try_from(value).is_ok(),
        _ => true,
    };
    match fits {
        true => Ok(value),
        false => Err(PgError::new(code::OUT_OF_RANGE, format!("{value} is out of range for type {}", ty.name()))),
    }
}

fn bad_text(expected: &str, text: &str) -> PgError {
    let shown: String = text.chars().take(60).collect();
    PgError::new(code::BAD_TEXT, format!("expected {expected}, found '{shown}'"))
}

fn boolean(text: &str) -> PgResult<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Ok(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Ok(false),
        _ => Err(bad_text("true or false", text)),
    }
}

fn int(text: &str) -> PgResult<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_text("an integer", text));
    }
    text.parse().map_err(|_| out_of_range(text, "int"))
}

fn out_of_range(text: &str, ty: &str) -> PgError {
    let shown: String = text.chars().take(60).collect();
    PgError::new(code::OUT_OF_RANGE, format!("{shown} is out of range for {ty}"))
}

fn float(text: &str) -> PgResult<f64> {
    let value: f64 = text.parse().map_err(|_| bad_text("a number", text))?;
    match value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
        true => Err(out_of_range(text, "float")),
        false => Ok(value),
    }
}

/// Returns the text of a number, checked: `[+-]digits[.digits][e[+-]digits]`.
fn number(text: &str) -> PgResult<&str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty());
    match is_number && digits(exponent) && !exponent.is_empty() {
        true => Ok(text),
        false => Err(bad_text("a number", text)),
    }
}

/// Digits without sign, and where their point is after the first: `12.5e1` is 125 and 3.
fn digits_of(text: &str) -> Option<(bool, String, i64)> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().ok().filter(|e: &i64| e.abs() < 10_000)?;
    Some((text.starts_with('-'), format!("{whole}{part}"), whole.len() as i64 + exponent))
}

/// Returns the unscaled value of a number with this many digits after its point; none if it has more, or too many
/// before.
fn unscaled(text: &str, scale: u8) -> Option<Result<i64, ()>> {
    let (negative, digits, point) = digits_of(text)?;
    let kept = point + i64::from(scale);
    let all = digits.trim_end_matches('0').len() as i64;
    if all > kept.max(0) {
        return None;
    }
    let mut value: i64 = 0;
    for at in 0..kept {
        let digit = digits.as_bytes().get(at as usize).map_or(0, |byte| i64::from(byte - b'0'));
        let next = value.checked_mul(10).and_then(|value| value.checked_sub(digit));
        match next {
            Some(next) => value = next,
            None => return Some(Err(())),
        }
    }
    // It was summed up below zero, where there is one number more.
    Some(if negative { Ok(value) } else { value.checked_neg().ok_or(()) })
}

fn whole(text: &str) -> PgResult<i64> {
    number(text)?;
    match unscaled(text, 0) {
        Some(Ok(value)) => Ok(value),
        Some(Err(())) => Err(out_of_range(text, "int")),
        None => Err(PgError::new(code::WRONG_TYPE, format!("expected int, found the numeric {text}"))),
    }
}

fn decimal(text: &str, digits: u8, scale: u8) -> PgResult<Value> {
    number(text)?;
    let ty = format!("Decimal({digits}, {scale})");
    match unscaled(text, scale) {
        Some(Ok(value)) if value.unsigned_abs() < 10u64.pow(digits.into()) => Ok(Value::Decimal(value)),
        Some(_) => Err(out_of_range(text, &ty)),
        None => Err(PgError::new(code::OUT_OF_RANGE, format!("{text} has more digits after the point than {ty}"))),
    }
}

fn time(text: &str) -> PgResult<i64> {
    let is_civil = text.as_bytes().get(4) == Some(&b'-');
    let micros = is_civil.then(|| parse_time(text)).flatten();
    micros.ok_or_else(|| PgError {
        code: if is_civil { code::BAD_TIME } else { code::BAD_TEXT },
        ..bad_text("a time like 2013-01-01 05:15:00+00", text)
    })
}

/// Returns the bytes from `\x` and hexadecimal digits.
fn bytes(text: &str) -> PgResult<Vec<u8>> {
    let wrong = || bad_text("\\x and hexadecimal digits", text);
    let digits = text.strip_prefix("\\x").filter(|digits| digits.len().is_multiple_of(2)).ok_or_else(wrong)?;
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pair = |two: &[u8]| Some(digit(two[0])? << 4 | digit(two[1])?);
    digits.as_bytes().chunks(2).map(pair).collect::<Option<_>>().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_json(given: &Given, ty: Type) -> Result<String, &'static str> {
        let mut out = Vec::new();
        let made = given.json(&mut out, &FieldType::Scalar(ty.into()));
        made.map(|()| String::from_utf8(out).expect("text")).map_err(|error| error.code)
    }

    fn unknown(text: &str, ty: Type) -> Result<String, &'static str> {
        as_json(&Given::Unknown(text.into()), ty)
    }

    #[test]
    fn a_uuid_is_a_text_of_one_form() {
        let text = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let forms =
            [text, "{0f8fad5b-d9cb-469f-a165-70867728950e}", "0F8FAD5BD9CB469FA16570867728950E", &format!(" {text} ")];
        for form in forms {
            assert_eq!(of_text(PgType::Uuid, form), Ok(Given::Text(text.into())), "{form}");
        }
        let bytes: Vec<u8> = u128::from_str_radix(&text.replace('-', ""), 16).expect("digits").to_be_bytes().into();
        assert_eq!(of_binary(PgType::Uuid, &bytes), Ok(Given::Text(text.into())));
        assert_eq!(of_binary(PgType::Uuid, &bytes[1..]).map_err(|error| error.code), Err(code::BAD_BINARY));
        for wrong in ["", "0f8fad5b", "0f8fad5b-d9cb-469f-a165-70867728950g", "+f8fad5bd9cb469fa16570867728950e"] {
            assert_eq!(of_text(PgType::Uuid, wrong).map_err(|error| error.code), Err(code::BAD_TEXT), "{wrong}");
        }
        assert_eq!(Given::Text(text.into()).cast(PgType::Uuid), Ok(Given::Text(text.into())));
    }

    const MONEY: Type = Type::Decimal { digits: 6, scale: 2 };

    #[test]
    fn text_becomes_what_its_place_takes() {
        let cases = [
            ("10", Type::Int, Ok("10")),
            (" -7 ", Type::Int, Ok("-7")),
            ("ten", Type::Int, Err(code::BAD_TEXT)),
            ("1.0", Type::Int, Err(code::BAD_TEXT)),
            ("9223372036854775808", Type::Int, Err(code::OUT_OF_RANGE)),
            ("12.5", MONEY, Ok("12.50")),
            ("1e3", MONEY, Ok("1000.00")),
            ("-0.01", MONEY, Ok("-0.01")),
            ("12.345", MONEY, Err(code::OUT_OF_RANGE)),
            ("10000", MONEY, Err(code::OUT_OF_RANGE)),
            ("NaN", MONEY, Err(code::BAD_TEXT)),
            ("yes", Type::Bool, Ok("true")),
            ("2", Type::Bool, Err(code::BAD_TEXT)),
            ("NaN", Type::Float, Ok("\"NaN\"")),
            ("1e999", Type::Float, Err(code::OUT_OF_RANGE)),
            ("2013-01-01 05:15:00+00", Type::Time, Ok("1357017300000000")),
            ("2013-13-01", Type::Time, Err(code::BAD_TIME)),
            ("5", Type::Time, Err(code::BAD_TEXT)),
            ("\\x00ff", Type::Bytes, Ok("\"AP8=\"")),
            ("\\x0", Type::Bytes, Err(code::BAD_TEXT)),
            ("a\"b", Type::Str, Ok("\"a\\\"b\"")),
        ];
        for (text, ty, expected) in cases {
            assert_eq!(unknown(text, ty), expected.map(str::to_owned), "{text} as {ty}");
        }
    }

    #[test]
    fn binary_is_read_by_its_type() {
        let binary = |ty, bytes: &[u8]| Given::of_parameter(ty, Form::Binary, Some(bytes)).map_err(|error| error.code);
        assert_eq!(binary(PgType::Int2, &[255, 254]), Ok(Given::Int(-2)));
        assert_eq!(binary(PgType::Int4, &[0, 0, 1]), Err(code::BAD_BINARY));
        assert_eq!(binary(PgType::Bool, &[2]), Err(code::BAD_BINARY));
        assert_eq!(binary(PgType::Time, &0i64.to_be_bytes()), Ok(Given::Time(EPOCH_2000)));
        assert_eq!(binary(PgType::Time, &i64::MAX.to_be_bytes()), Err(code::BAD_TIME));
        assert_eq!(binary(PgType::Time, &i64::MIN.to_be_bytes()), Err(code::BAD_TIME));
        assert_eq!(binary(PgType::Text, &[0xff]), Err(code::BAD_ENCODING));
        let words = |words: &[i16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        for (sent, text) in [
            (&[3i16, 1, 0x4000, 2, 1, 2345, 6700][..], "-12345.67"),
            (&[1, -1, 0, 2, 100], "0.01"),
            (&[1, 1, 0, 0, 12], "120000"),
            (&[0, 0, 0, 2], "0"),
        ] {
            let given = binary(PgType::Numeric(None), &words(sent)).expect("it is right");
            let big = Type::Decimal { digits: 10, scale: 2 };
            assert_eq!(as_json(&given, big), unknown(text, big), "{given:?}");
        }
        assert_eq!(binary(PgType::Numeric(None), &words(&[2, 0, 0, 0, 1])), Err(code::BAD_BINARY));
        assert_eq!(binary(PgType::Numeric(None), &words(&[1, 0, 0, 0, 10_000])), Err(code::BAD_BINARY));
    }

    #[test]
    fn types_that_do_not_fit_are_refused() {
        assert_eq!(as_json(&Given::Float(1.0), Type::Int), Err(code::WRONG_TYPE));
        assert_eq!(as_json(&Given::Text("1".into()), Type::Int), Err(code::WRONG_TYPE));
        assert_eq!(as_json(&Given::Numeric("10.0".into()), Type::Int), Ok("10".into()));
        assert_eq!(as_json(&Given::Numeric("10.5".into()), Type::Int), Err(code::WRONG_TYPE));
        assert_eq!(as_json(&Given::Numeric("-9223372036854775808".into()), Type::Int), Ok(i64::MIN.to_string()));
        assert_eq!(as_json(&Given::Numeric("1e19".into()), Type::Int), Err(code::OUT_OF_RANGE));
        assert_eq!(as_json(&Given::Null, Type::Int), Err(code::NOT_NULL));
    }

    #[test]
    fn a_list_is_one_json_value() {
        let list = FieldType::List(tidemill_model::ListItem::Scalar(Type::Int.into()));
        let mut out = Vec::new();
        Given::Unknown("[1, 2]".into()).json(&mut out, &list).expect("it is right");
        assert_eq!(out, b"[1, 2]");
        let within = Given::Unknown("[1], \"amount\": 2, \"x\": [1]".into());
        assert_eq!(within.json(&mut out, &list).map_err(|error| error.code), Err(code::BAD_TEXT));
    }
}
