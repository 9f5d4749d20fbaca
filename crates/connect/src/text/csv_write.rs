//! CSV output: a header, then one line per event, quotes only where they are needed.
//!
//! A line is never blank, for blank lines are skipped when read: a lone empty field is written `""`.

use super::csv::{check_schema, delimiter_byte};
use super::sink::RowWriter;
use crate::scalar::print;
use crate::views::{Values, View};
use tidemill_model::Schema;
use tidemill_runtime::IoFailure;

/// Rows as lines of CSV.
pub(crate) struct CsvRows {
    schema: Schema,
    style: Style,
}

/// How fields are written.
struct Style {
    delimiter: u8,
    null: Vec<u8>,
    /// Bytes that a field must be quoted for.
    special: [bool; 256],
    /// Whether numbers, times and the like can look like the delimiter or the null text.
    odd: bool,
}

impl CsvRows {
    pub fn new(delimiter: char, null: &str, schema: &Schema) -> Result<CsvRows, IoFailure> {
        check_schema(schema)?;
        Ok(CsvRows { schema: schema.clone(), style: Style::new(delimiter_byte(delimiter)?, null)? })
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
        if out.len() == start {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }
}

impl Style {
    fn new(delimiter: u8, null: &str) -> Result<Style, IoFailure> {
        let mut special = [false; 256];
        for byte in [delimiter, b'"', b'\n', b'\r'] {
            special[usize::from(byte)] = true;
        }
        if null.bytes().any(|byte| special[usize::from(byte)]) {
            return Err(IoFailure::new(format!("the text {null:?} for None would have to be quoted")));
        }
        let odd = delimiter.is_ascii_alphanumeric() || b"+-./:=".contains(&delimiter) || !null.is_empty();
        Ok(Style { delimiter, null: null.as_bytes().to_vec(), special, odd })
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
            Values::Bytes(values) => self.plain(out, |out| print::base64(out, values.value(row))),
            Values::List { .. } => unreachable!("lists are refused when a sink is opened"),
        }
    }

    /// Text that needs quotes only where delimiter or null text are odd.
    #[inline]
    fn plain(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        if self.odd {
            let written = &out[start..];
            if written.contains(&self.delimiter) || self.is_null_text(written) {
                out.insert(start, b'"');
                out.push(b'"');
            }
        }
    }

    fn is_null_text(&self, text: &[u8]) -> bool {
        !self.null.is_empty() && text == self.null
    }

    fn text(&self, out: &mut Vec<u8>, text: &str) {
        let bytes = text.as_bytes();
        if !bytes.iter().any(|byte| self.special[usize::from(*byte)]) && !self.is_null_text(bytes) {
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
