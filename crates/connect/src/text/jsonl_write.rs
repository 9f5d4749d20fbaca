//! JSON Lines output: one object per event, keys in the schema's order.
//!
//! Decimals are numbers with all their digits, times RFC 3339 strings, bytes base64 strings. The floats
//! that JSON has no numbers for are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

use super::sink::RowWriter;
use crate::scalar::print;
use crate::views::{Values, View, elements};
use tidemill_model::{FieldType, ListItem, Schema};

/// Rows as JSON objects.
pub(crate) struct JsonlRows {
    schema: Schema,
    fields: Vec<Key>,
}

/// The text before a value: `{"a":` or `,"b":`; and the texts before the elements of a list.
struct Key {
    text: Vec<u8>,
    /// Empty for lists of scalars.
    items: Vec<Key>,
}

impl JsonlRows {
    pub fn new(schema: &Schema) -> JsonlRows {
        let fields = keys(schema.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty))).collect());
        JsonlRows { schema: schema.clone(), fields }
    }
}

impl JsonlRows {
    /// Appends a row without a line's end.
    pub fn object(&self, out: &mut Vec<u8>, columns: &[View<'_>], row: usize) {
        object(out, &self.fields, columns, row);
    }
}

impl RowWriter for JsonlRows {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    #[inline]
    fn row(&self, out: &mut Vec<u8>, columns: &[View<'_>], row: usize) {
        object(out, &self.fields, columns, row);
        out.push(b'\n');
    }
}

fn keys(names: Vec<(&str, Option<&FieldType>)>) -> Vec<Key> {
    names
        .into_iter()
        .enumerate()
        .map(|(index, (name, ty))| {
            let mut text = vec![if index == 0 { b'{' } else { b',' }];
            string(&mut text, name);
            text.push(b':');
            let items = match ty {
                Some(FieldType::List(ListItem::Struct(columns))) => {
                    keys(columns.iter().map(|(name, _)| (name.as_str(), None)).collect())
                }
                _ => Vec::new(),
            };
            Key { text, items }
        })
        .collect()
}

fn object(out: &mut Vec<u8>, keys: &[Key], columns: &[View<'_>], row: usize) {
    if keys.is_empty() {
        out.push(b'{');
    }
    for (key, column) in keys.iter().zip(columns) {
        out.extend_from_slice(&key.text);
        value(out, key, column, row);
    }
    out.push(b'}');
}

#[inline]
fn value(out: &mut Vec<u8>, key: &Key, column: &View<'_>, row: usize) {
    if column.is_null(row) {
        return out.extend_from_slice(b"null");
    }
    match &column.values {
        Values::Bool(values) => out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }),
        Values::Int(values) => print::int(out, values[row]),
        Values::Float(values) => within_quotes(out, !values[row].is_finite(), |out| print::float(out, values[row])),
        Values::Decimal { unscaled, scale } => print::decimal(out, unscaled[row], *scale),
        Values::Time(values) => within_quotes(out, print::is_civil(values[row]), |out| print::time(out, values[row])),
        Values::Str(values) => string(out, values.value(row)),
        Values::Bytes(values) => within_quotes(out, true, |out| print::base64(out, values.value(row))),
        Values::List { ends, items } => list(out, key, items, elements(ends, row)),
    }
}

fn list(out: &mut Vec<u8>, key: &Key, items: &[View<'_>], range: std::ops::Range<usize>) {
    out.push(b'[');
    let first = range.start;
    for element in range {
        if element > first {
            out.push(b',');
        }
        match items {
            [item] if key.items.is_empty() => value(out, key, item, element),
            items => object(out, &key.items, items, element),
        }
    }
    out.push(b']');
}

#[inline]
fn within_quotes(out: &mut Vec<u8>, quotes: bool, write: impl FnOnce(&mut Vec<u8>)) {
    if quotes {
        out.push(b'"');
    }
    write(out);
    if quotes {
        out.push(b'"');
    }
}

/// The escapes of JSON: for each byte what follows a backslash in its stead; 0 for bytes written as they are, `u` for
/// those written by number.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        escapes[control] = b'u';
        control += 1;
    }
    escapes[b'\n' as usize] = b'n';
    escapes[b'\r' as usize] = b'r';
    escapes[b'\t' as usize] = b't';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes
};

pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape = ESCAPES[*byte as usize];
        if escape != 0 {
            out.extend_from_slice(&bytes[start..at]);
            out.extend_from_slice(&[b'\\', escape]);
            if escape == b'u' {
                out.extend_from_slice(b"00");
                out.extend([byte >> 4, byte & 15].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
            }
            start = at + 1;
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}
