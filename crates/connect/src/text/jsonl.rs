//! JSON Lines records: serde_json's parser straight into typed columns, with no tree in between.
//!
//! Numbers, times and booleans are taken as the parser's raw text and read by the same functions as
//! CSV's fields, so that decimals and floats are exact and an integer too large is told apart from a
//! number that is none. Keys are looked for first where they were in the record before.

use super::{Format, Frame, Header};
use crate::bad::{Fault, listed, quoted};
use crate::columns::{Cells, Column, FieldColumn, ListColumn, Rows};
use crate::scalar::parse;
use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use tidemill_io::IoFailure;
use tidemill_model::{FieldType, ListItem, Schema, Type};

/// The JSON Lines format.
pub(crate) struct Jsonl {
    names: Names,
    /// The place up to which [`Jsonl::frame`] has looked.
    scanned: usize,
}

impl Jsonl {
    pub fn new(schema: &Schema) -> Jsonl {
        Jsonl::with(schema, Unknown::Ignored)
    }

    /// Makes a decoder; keys that the schema does not name are ignored or refused.
    pub fn with(schema: &Schema, unknown: Unknown) -> Jsonl {
        let names = schema.fields.iter().map(|field| {
            let items = match &field.ty {
                FieldType::List(item @ ListItem::Struct(_)) => Some(Names::new(
                    item.columns().iter().map(|(name, _)| ((*name).to_owned(), None)).collect(),
                    unknown,
                )),
                _ => None,
            };
            (field.name.clone(), items)
        });
        Jsonl { names: Names::new(names.collect(), unknown), scanned: 0 }
    }
}

impl Format for Jsonl {
    fn begin(&mut self) -> Header {
        Header::None
    }

    fn header(&mut self, _record: &str) -> Result<(), IoFailure> {
        unreachable!("JSON Lines has no header")
    }

    #[inline]
    fn frame(&mut self, bytes: &[u8], last: bool) -> Frame {
        match memchr(b'\n', &bytes[self.scanned..]) {
            Some(found) => {
                let length = self.scanned + found;
                self.scanned = 0;
                Frame::Whole { length, next: length + 1, lines: 1 }
            }
            None if last => {
                self.scanned = 0;
                Frame::Whole { length: bytes.len(), next: bytes.len(), lines: 0 }
            }
            None => {
                self.scanned = bytes.len();
                Frame::Partial
            }
        }
    }

    fn restart(&mut self) {
        self.scanned = 0;
    }

    fn skip(&mut self, _bytes: usize) {
        self.scanned = 0;
    }

    fn decode(&mut self, record: &str, rows: &mut Rows) -> Result<(), Fault> {
        if record.bytes().all(|byte| byte.is_ascii_whitespace()) {
            return Ok(());
        }
        let mut fault = None;
        let base = rows.count();
        let mut parser = serde_json::Deserializer::from_str(record);
        let object = Object { names: &self.names, columns: &mut rows.fields, base, fault: &mut fault };
        match object.deserialize(&mut parser).and_then(|()| parser.end()) {
            Ok(()) => {
                rows.commit();
                Ok(())
            }
            Err(error) => Err(fault.unwrap_or_else(|| syntax_fault(&error))),
        }
    }

    fn column_of_invalid(&self, _record: &str) -> Option<String> {
        None
    }

    fn unfinished(&self) -> &'static str {
        unreachable!("every line is a record")
    }
}

/// Returns the parser's own complaint. Its line is always 1, so only the column is kept.
fn syntax_fault(error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    if error.is_data() {
        return Fault::whole(what);
    }
    Fault::whole(format!("not valid JSON: {what} at character {}", error.column()))
}

/// The treatment of keys that the schema does not name, and of keys that an object has twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Unknown keys are not looked at; of a key that is there twice the last one counts.
    Ignored,
    /// The record is bad.
    Refused,
}

/// The keys of an object and the columns they stand for, with those of the objects within.
struct Names {
    in_order: Vec<(String, Option<Names>)>,
    /// Name and index in the order of names.
    sorted: Vec<(String, usize)>,
    unknown: Unknown,
}

impl Names {
    fn new(in_order: Vec<(String, Option<Names>)>, unknown: Unknown) -> Names {
        let mut sorted: Vec<_> = in_order.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        sorted.sort();
        Names { in_order, sorted, unknown }
    }

    /// Returns the column of a key, which is most often `expected`.
    fn find(&self, key: &str, expected: usize) -> Option<usize> {
        if self.in_order.get(expected).is_some_and(|(name, _)| name == key) {
            return Some(expected);
        }
        let found = self.sorted.binary_search_by(|(name, _)| name.as_str().cmp(key)).ok()?;
        Some(self.sorted[found].1)
    }
}

/// Takes an object: one value for every column.
struct Object<'a> {
    names: &'a Names,
    columns: &'a mut [FieldColumn],
    /// Values that every column holds already.
    base: usize,
    /// The place for the reason if the error that unwinds the parser has no room for it.
    fault: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { names, columns, base, fault } = self;
        let mut expected = 0;
        while let Some(found) = map.next_key_seed(Key { names, expected, fault: &mut *fault })? {
            let Some(index) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            expected = index + 1;
            let column = &mut columns[index];
            let (name, items) = &names.in_order[index];
            if column.len() > base && names.unknown == Unknown::Refused {
                return Err(fail(fault, Some(name.clone()), "the field is given twice".into()));
            }
            // A key given twice in a file: the last one counts.
            column.truncate(base);
            let value = FieldSeed { column, items: items.as_ref(), fault: &mut *fault };
            if let Err(error) = map.next_value_seed(value) {
                blame(fault, &error, name);
                return Err(error);
            }
        }
        for (column, (name, _)) in columns.iter_mut().zip(&names.in_order) {
            if column.len() == base {
                absent(column).map_err(|reason| fail(fault, Some(name.clone()), reason))?;
            }
        }
        Ok(())
    }
}

/// Handles a key that is not there.
fn absent(column: &mut FieldColumn) -> Result<(), String> {
    match column {
        FieldColumn::Scalar(column) => push_null(column),
        FieldColumn::List(_) => Err("a list is missing, and a list is never None".into()),
    }
}

fn push_null(column: &mut Column) -> Result<(), String> {
    if !column.ty.nullable {
        return Err(format!("a value is missing, and {} has no None", column.ty));
    }
    column.push_null();
    Ok(())
}

/// Leaves a reason and gives the error that brings the parser back.
fn fail<E: Error>(fault: &mut Option<Fault>, column: Option<String>, reason: String) -> E {
    *fault = Some(Fault { column, reason });
    E::custom("")
}

/// Adds where it happened to the reason that was left; a type that the parser refused by itself is
/// given its reason here. Broken syntax belongs to no field.
fn blame<E: Error>(fault: &mut Option<Fault>, error: &E, place: &str) {
    match fault {
        Some(Fault { column, .. }) => {
            *column = Some(match column.take() {
                Some(within) => format!("{place}{within}"),
                None => place.to_owned(),
            });
        }
        None => {
            let text = error.to_string();
            if let Some(what) = text.strip_prefix("invalid type: ") {
                let what = what.rfind(" at line ").map_or(what, |end| &what[..end]);
                *fault = Some(Fault::at(place, format!("wrong type: {what}")));
            }
        }
    }
}

/// Takes a key and finds its column.
struct Key<'a> {
    names: &'a Names,
    expected: usize,
    fault: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        match self.names.find(key, self.expected) {
            None if self.names.unknown == Unknown::Refused => {
                let known = listed(self.names.in_order.iter().map(|(name, _)| name));
                Err(fail(self.fault, Some(key.to_owned()), format!("there is no such field; fields: {known}")))
            }
            found => Ok(found),
        }
    }
}

/// Takes the value of a field.
struct FieldSeed<'a> {
    column: &'a mut FieldColumn,
    items: Option<&'a Names>,
    fault: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let FieldSeed { column, items, fault } = self;
        match column {
            FieldColumn::List(list) => deserializer.deserialize_seq(List { list, items, fault }),
            FieldColumn::Scalar(column) if matches!(column.ty.ty, Type::Str | Type::Bytes) => {
                deserializer.deserialize_any(Text { column, fault })
            }
            FieldColumn::Scalar(column) => {
                let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
                push_raw(column, raw.get()).map_err(|reason| fail(fault, None, reason))
            }
        }
    }
}

/// Takes the elements of a list.
struct List<'a> {
    list: &'a mut ListColumn,
    items: Option<&'a Names>,
    fault: &'a mut Option<Fault>,
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let List { list, items, fault } = self;
        let first = list.length();
        loop {
            let base = list.length();
            let taken = match items {
                Some(names) => {
                    seq.next_element_seed(Object { names, columns: &mut list.items, base, fault: &mut *fault })
                }
                None => {
                    seq.next_element_seed(FieldSeed { column: &mut list.items[0], items: None, fault: &mut *fault })
                }
            };
            match taken {
                Ok(Some(())) => list.commit_element(),
                Ok(None) => break,
                Err(error) => {
                    let within = fault.as_mut().and_then(|fault| fault.column.take());
                    let dotted = within.map(|name| format!(".{name}"));
                    if let Some(fault) = fault {
                        fault.column = dotted;
                    }
                    blame(fault, &error, &format!("[{}]", base - first));
                    return Err(error);
                }
            }
        }
        list.commit();
        Ok(())
    }
}

/// Takes a string for a column of text or bytes.
struct Text<'a> {
    column: &'a mut Column,
    fault: &'a mut Option<Fault>,
}

impl Visitor<'_> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.column.ty.ty == Type::Str { "a string" } else { "a string of base64" })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match &mut self.column.cells {
            Cells::Str(runs) => runs.push(text.as_bytes()),
            Cells::Bytes(runs) => {
                parse::base64(text, &mut runs.bytes).map_err(|reason| fail(self.fault, None, reason))?;
                runs.commit();
            }
            _ => unreachable!("only columns of text or bytes take strings"),
        }
        self.column.commit_value();
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        push_null(self.column).map_err(|reason| fail(self.fault, None, reason))
    }
}

/// Appends a value given by its JSON text.
#[inline]
fn push_raw(column: &mut Column, raw: &str) -> Result<(), String> {
    let first = raw.as_bytes()[0];
    if first == b'n' {
        return push_null(column);
    }
    let is_number = first == b'-' || first.is_ascii_digit();
    match &mut column.cells {
        Cells::Bool(values) if matches!(first, b't' | b'f') => values.push(first == b't'),
        Cells::Int(values) if is_number => values.push(parse::int(raw)?),
        Cells::Float(values) if is_number => values.push(parse::float(raw)?),
        Cells::Float(values) if first == b'"' => values.push(float_name(raw)?),
        Cells::Decimal { values, digits, scale } if is_number => {
            values.push(parse::decimal(raw, *digits, *scale)?.into());
        }
        Cells::Decimal { values, digits, scale } if first == b'"' => {
            values.push(parse::decimal(&string(raw)?, *digits, *scale)?.into());
        }
        Cells::Time(values) if is_number => values.push(parse::int(raw)?),
        Cells::Time(values) if first == b'"' => values.push(parse::time(&string(raw)?)?),
        _ => return Err(wrong_type(column.ty.ty, raw)),
    }
    column.commit_value();
    Ok(())
}

/// Returns the floats that JSON has no numbers for.
fn float_name(raw: &str) -> Result<f64, String> {
    match raw {
        "\"NaN\"" => Ok(f64::NAN),
        "\"Infinity\"" => Ok(f64::INFINITY),
        "\"-Infinity\"" => Ok(f64::NEG_INFINITY),
        _ => Err(wrong_type(Type::Float, raw)),
    }
}

/// Returns the text of a JSON string.
fn string(raw: &str) -> Result<Cow<'_, str>, String> {
    let inner = &raw[1..raw.len() - 1];
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw).map(Cow::Owned).map_err(|error| format!("not valid JSON: {error}"))
}

fn wrong_type(ty: Type, raw: &str) -> String {
    let expected = match ty {
        Type::Bool => "true or false",
        Type::Int => "an integer",
        Type::Float => "a number",
        Type::Decimal { .. } => "a number or a string of digits",
        _ => "a string or an integer",
    };
    format!("wrong type: {}, expected {expected}", quoted(raw))
}
