//! CSV output: a header, then one line per event, quotes only where they are needed.
//!
//! A line is never blank, for blank lines are skipped when read: a lone empty field is written `""`.

use super::csv::{check_schema, delimiter_byte};
use crate::Compression;
use crate::compression::TextOutput;
use crate::scalar::print;
use crate::views::{Values, View, views};
use arrow_array::RecordBatch;
use tidemill_model::Schema;
use tidemill_runtime::{IoFailure, Sink};

/// Written at once.
const WRITE_BYTES: usize = 256 << 10;

/// A sink of CSV.
pub(crate) struct CsvSink {
    output: TextOutput,
    schema: Schema,
    style: Style,
    buffer: Vec<u8>,
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

impl CsvSink {
    pub fn open(
        path: &str,
        delimiter: char,
        null: &str,
        compression: Option<Compression>,
        schema: &Schema,
    ) -> Result<CsvSink, IoFailure> {
        check_schema(schema)?;
        let style = Style::new(delimiter_byte(delimiter)?, null)?;
        let output = TextOutput::open(path, compression)?;
        let mut sink = CsvSink { output, schema: schema.clone(), style, buffer: Vec::with_capacity(WRITE_BYTES) };
        sink.header();
        Ok(sink)
    }

    fn header(&mut self) {
        for (index, field) in self.schema.fields.iter().enumerate() {
            if index > 0 {
                self.buffer.push(self.style.delimiter);
            }
            self.style.text(&mut self.buffer, &field.name);
        }
        if self.buffer.is_empty() {
            self.buffer.extend_from_slice(b"\"\"");
        }
        self.buffer.push(b'\n');
    }
}

impl Sink for CsvSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        let columns = views(batch, &self.schema);
        for row in 0..batch.num_rows() {
            let start = self.buffer.len();
            for (index, column) in columns.iter().enumerate() {
                if index > 0 {
                    self.buffer.push(self.style.delimiter);
                }
                self.style.value(&mut self.buffer, column, row);
            }
            if self.buffer.len() == start {
                self.buffer.extend_from_slice(b"\"\"");
            }
            self.buffer.push(b'\n');
            if self.buffer.len() >= WRITE_BYTES {
                self.output.write(&mut self.buffer)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        if self.output.is_interactive() {
            self.output.write(&mut self.buffer)?;
            self.output.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.output.write(&mut self.buffer)?;
        self.output.finish()
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
