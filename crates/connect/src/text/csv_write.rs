//! CSV output: a header, then one line per event, quotes only where they are needed.
//!
//! None is an empty field without quotes, unless it has a text of its own; the empty text is one in quotes then. A blank
//! line is skipped when it is read, and so written as `""`, but for the None of a lone column of text, which it is.

use super::csv::{check_schema, delimiter_byte};
use super::sink::RowWriter;
use crate::scalar::print;
use crate::views::{Values, View};
use tidemill_io::IoFailure;
use tidemill_model::{Field, Schema};

/// Rows as lines of CSV.
pub(crate) struct CsvRows {
    schema: Schema,
    style: Style,
}

/// The style in which fields are written.
struct Style {
    delimiter: u8,
    null: Vec<u8>,
    /// Bytes that a field must be quoted for.
    special: [bool; 256],
    /// A flag: whether numbers, times and the like can look like the delimiter or the null text.
    odd: bool,
    /// A flag: whether a blank line is a None.
    blank_is_none: bool,
}

impl CsvRows {
    pub fn new(delimiter: char, null: &str, schema: &Schema) -> Result<CsvRows, IoFailure> {
        check_schema(schema)?;
        Ok(CsvRows { schema: schema.clone(), style: Style::new(delimiter_byte(delimiter)?, null, schema)? })
    }
}

impl RowWriter for CsvRows {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn header(&self, out: &mut Vec<u8>) {
        for (index, field) in self.schema.fields.iter().enumerate() {
            if index > 0 {
                out.push(self.style.delimiter);
            }
            self.style.text(out, &field.name);
        }
        if self.schema.fields.is_empty() {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    #[inline]
    fn row(&self, out: &mut Vec<u8>, columns: &[View<'_>], row: usize) {
        let start = out.len();
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(self.style.delimiter);
            }
            self.style.value(out, column, row);
        }
        if out.len() == start && !self.style.blank_is_none {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }
}

impl Style {
    fn new(delimiter: u8, null: &str, schema: &Schema) -> Result<Style, IoFailure> {
        let mut special = [false; 256];
        for byte in [delimiter, b'"', b'\n', b'\r'] {
            special[usize::from(byte)] = true;
        }
        if null.bytes().any(|byte| special[usize::from(byte)]) {
            return Err(IoFailure::new(format!("the text {null:?} for None would have to be quoted")));
        }
        let odd = delimiter.is_ascii_alphanumeric() || b"+-./:=".contains(&delimiter) || !null.is_empty();
        let blank_is_none = null.is_empty() && matches!(&schema.fields[..], [field] if is_text_or_none(field));
        Ok(Style { delimiter, null: null.as_bytes().to_vec(), special, odd, blank_is_none })
    }

    #[inline]
    fn value(&self, out: &mut Vec<u8>, column: &View<'_>, row: usize) {
        if column.is_null(row) {
            return out.extend_from_slice(&self.null);
        }
        match &column.values {
            Values::Bool(values) => {
                self.plain(out, |out| out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }));
            }
            Values::Int(values) => self.plain(out, |out| print::int(out, values[row])),
            Values::Float(values) => self.plain(out, |out| print::float(out, values[row])),
            Values::Decimal { unscaled, scale } => self.plain(out, |out| print::decimal(out, unscaled[row], *scale)),
            Values::Time(values) => self.plain(out, |out| print::time(out, values[row])),
            Values::Str(values) => self.text(out, values.value(row)),
            Values::Bytes(values) if values.value(row).is_empty() => self.text(out, ""),
            Values::Bytes(values) => self.plain(out, |out| print::base64(out, values.value(row))),
            Values::List { .. } => unreachable!("lists are refused when a sink is opened"),
        }
    }

    /// Appends a text that needs quotes only where the delimiter or the null text are odd.
    #[inline]
    fn plain(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        if self.odd {
            let written = &out[start..];
            if written.contains(&self.delimiter) || written == self.null {
                out.insert(start, b'"');
                out.push(b'"');
            }
        }
    }

    fn text(&self, out: &mut Vec<u8>, text: &str) {
        let bytes = text.as_bytes();
        // With the text for None, which may be the empty one, quotes tell the two apart.
        if !bytes.iter().any(|byte| self.special[usize::from(*byte)]) && bytes != self.null {
            return out.extend_from_slice(bytes);
        }
        out.push(b'"');
        for byte in bytes {
            if *byte == b'"' {
                out.push(b'"');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
}

/// Returns whether a column is of text or bytes, and may be None.
pub(super) fn is_text_or_none(field: &Field) -> bool {
    field.scalar_type().is_some_and(|column| column.nullable && column.ty.is_bytes())
}
