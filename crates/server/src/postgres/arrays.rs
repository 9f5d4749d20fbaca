//! Arrays, as results of queries and as their parameters: of truth values, numbers and text, in one dimension.

use super::error::{PgError, PgResult, code};
use super::frontend::Form;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Bool,
    Int,
    /// Numbers of objects.
    Oid,
    Float,
    Text,
}

impl Item {
    /// Returns the elements of arrays of a type, by its number; those that clients send, too.
    pub fn of_array(oid: u32) -> Option<Item> {
        Some(match oid {
            1000 => Item::Bool,
            1005 | 1007 | 1016 => Item::Int,
            1028 => Item::Oid,
            1021 | 1022 => Item::Float,
            1002 | 1003 | 1009 | 1014 | 1015 => Item::Text,
            _ => return None,
        })
    }

    /// Returns the elements of a list of the engine's, if it is one that becomes an array.
    pub fn of_list(ty: &DataType) -> Option<Item> {
        let DataType::List(item) = ty else { return None };
        Some(match item.data_type() {
            DataType::Boolean => Item::Bool,
            DataType::Int64 => Item::Int,
            DataType::UInt32 => Item::Oid,
            DataType::Float64 => Item::Float,
            DataType::Utf8 => Item::Text,
            _ => return None,
        })
    }

    /// Returns the number of the type of arrays of it.
    pub fn array_oid(self) -> u32 {
        match self {
            Item::Bool => 1000,
            Item::Int => 1016,
            Item::Oid => 1028,
            Item::Float => 1022,
            Item::Text => 1009,
        }
    }

    fn oid(self) -> u32 {
        match self {
            Item::Bool => 16,
            Item::Int => 20,
            Item::Oid => 26,
            Item::Float => 701,
            Item::Text => 25,
        }
    }

    /// Returns the name of the type of arrays of it.
    pub fn array_name(self) -> &'static str {
        match self {
            Item::Bool => "boolean[]",
            Item::Int => "bigint[]",
            Item::Oid => "oid[]",
            Item::Float => "double precision[]",
            Item::Text => "text[]",
        }
    }
}

/// Appends the list in a row, and says whether there is one.
pub fn write(out: &mut Vec<u8>, lists: &ArrayRef, item: Item, row: usize, form: Form) -> bool {
    if lists.is_null(row) {
        return false;
    }
    let values = lists.as_list::<i32>().value(row);
    match form {
        Form::Text => text(out, &values, item),
        Form::Binary => binary(out, &values, item),
    }
    true
}

fn shown(values: &ArrayRef, item: Item, place: usize) -> String {
    match item {
        Item::Bool => if values.as_boolean().value(place) { "t" } else { "f" }.to_owned(),
        Item::Int => values.as_primitive::<Int64Type>().value(place).to_string(),
        Item::Oid => values.as_primitive::<UInt32Type>().value(place).to_string(),
        Item::Float => values.as_primitive::<Float64Type>().value(place).to_string(),
        Item::Text => values.as_string::<i32>().value(place).to_owned(),
    }
}

/// Appends the text of an array: `{1,NULL,"a b"}`.
fn text(out: &mut Vec<u8>, values: &ArrayRef, item: Item) {
    out.push(b'{');
    for place in 0..values.len() {
        if place > 0 {
            out.push(b',');
        }
        if values.is_null(place) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let shown = shown(values, item, place);
        if item == Item::Text {
            out.push(b'"');
            for byte in shown.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
        } else {
            out.extend_from_slice(shown.as_bytes());
        }
    }
    out.push(b'}');
}

fn binary(out: &mut Vec<u8>, values: &ArrayRef, item: Item) {
    let mut word = |word: i32| out.extend_from_slice(&word.to_be_bytes());
    word(i32::from(!values.is_empty()));
    word(i32::from(values.null_count() > 0));
    word(item.oid() as i32);
    if values.is_empty() {
        return;
    }
    word(values.len() as i32);
    // Places are counted from one.
    word(1);
    for place in 0..values.len() {
        if values.is_null(place) {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let bytes = match item {
            Item::Bool => vec![u8::from(values.as_boolean().value(place))],
            Item::Int => values.as_primitive::<Int64Type>().value(place).to_be_bytes().to_vec(),
            Item::Oid => values.as_primitive::<UInt32Type>().value(place).to_be_bytes().to_vec(),
            Item::Float => values.as_primitive::<Float64Type>().value(place).to_be_bytes().to_vec(),
            Item::Text => values.as_string::<i32>().value(place).as_bytes().to_vec(),
        };
        out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

/// Returns the elements of an array in its binary form, as texts.
pub fn of_binary(bytes: &[u8]) -> PgResult<Vec<Option<String>>> {
    let wrong = || PgError::new(code::BAD_BINARY, "these bytes are no array of one dimension in binary");
    let mut rest = bytes;
    let mut take = |count: usize| -> PgResult<&[u8]> {
        let (taken, after) = rest.split_at_checked(count).ok_or_else(wrong)?;
        rest = after;
        Ok(taken)
    };
    let mut head = [0i32; 3];
    for word in &mut head {
        *word = word_of(take(4)?);
    }
    let [dimensions, _, oid] = head;
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = word_of(take(4)?);
            take(4)?;
            usize::try_from(count).ok().filter(|&count| count <= bytes.len() / 4).ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(match word_of(take(4)?) {
            -1 => None,
            length => {
                let element = take(usize::try_from(length).map_err(|_| wrong())?)?;
                Some(element_text(oid as u32, element).ok_or_else(wrong)?)
            }
        });
    }
    match rest.is_empty() {
        true => Ok(elements),
        false => Err(wrong()),
    }
}

fn word_of(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().expect("four bytes were taken"))
}

fn element_text(oid: u32, bytes: &[u8]) -> Option<String> {
    Some(match oid {
        16 => (*<&[u8; 1]>::try_from(bytes).ok()?.first()? == 1).to_string(),
        21 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        23 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        26 => u32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        20 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        700 => f32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        701 => f64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        _ => std::str::from_utf8(bytes).ok()?.to_owned(),
    })
}

/// Returns the elements of `{1,NULL,"a b"}`.
pub fn of_text(text: &str) -> PgResult<Vec<Option<String>>> {
    let shown: String = text.chars().take(60).collect();
    let wrong = || PgError::new(code::BAD_TEXT, format!("expected an array such as {{1,2}}, found '{shown}'"));
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
    let mut elements = Vec::new();
    let mut rest = inner.chars().peekable();
    while rest.peek().is_some() {
        let (mut element, mut is_quoted) = (String::new(), false);
        loop {
            match rest.next() {
                None | Some(',') => break,
                Some('"') if element.is_empty() && !is_quoted => {
                    is_quoted = true;
                    loop {
                        match rest.next().ok_or_else(wrong)? {
                            '"' => break,
                            '\\' => element.push(rest.next().ok_or_else(wrong)?),
                            other => element.push(other),
                        }
                    }
                }
                Some('{' | '}' | '"') => return Err(wrong()),
                Some('\\') => element.push(rest.next().ok_or_else(wrong)?),
                Some(other) => element.push(other),
            }
        }
        let is_null = !is_quoted && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(element));
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_whole() {
        let texts =
            |text: &str| of_text(text).map(|found| found.into_iter().map(|e| e.unwrap_or("-".into())).collect());
        assert_eq!(texts("{}"), Ok(Vec::new()));
        assert_eq!(texts("{1,NULL,\"null\"}"), Ok(vec!["1".into(), "-".into(), "null".into()]));
        assert_eq!(texts("{\"a,\\\"b\",c}"), Ok(vec!["a,\"b".into(), "c".into()]));
        for wrong in ["", "{", "{\"a}", "{{1}}", "{a\"b\"}", "1"] {
            assert!(of_text(wrong).is_err(), "{wrong}");
        }
        let whole = b"\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\x05\xff\xff\xff\xff";
        assert_eq!(of_binary(whole), Ok(vec![Some("5".into()), None]));
        assert_eq!(of_binary(b"\0\0\0\0\0\0\0\0\0\0\0\x17"), Ok(Vec::new()));
        for end in 0..whole.len() {
            assert!(of_binary(&whole[..end]).is_err(), "{end}");
        }
        assert!(of_binary(&[&whole[..], b"x"].concat()).is_err());
        assert!(of_binary(b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01").is_err());
    }
}
