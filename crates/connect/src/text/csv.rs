//! CSV records: quoting, the header, and fields straight into typed columns.
//!
//! The grammar is RFC 4180, with `\n` as good as `\r\n`, quotes allowed in the middle of an unquoted
//! field, and blank lines skipped. A quote opens a quoted field only at the field's start, which is
//! also how the end of a record is found: [`Csv::frame`] and [`next_field`] must agree on that. No
//! field is copied on its way into its column, but for those with doubled quotes in them.

use super::{Format, Frame, Header};
use crate::bad::{Fault, listed, quoted};
use crate::columns::{Cells, Column, FieldColumn, Rows};
use crate::scalar::parse;
use memchr::{memchr, memchr_iter, memchr2};
use std::borrow::Cow;
use std::collections::BTreeSet;
use tidemill_model::{FieldType, Schema};
use tidemill_runtime::IoFailure;

/// The delimiter as a byte, or why it cannot be one.
pub(crate) fn delimiter_byte(delimiter: char) -> Result<u8, IoFailure> {
    match u8::try_from(delimiter) {
        Ok(byte) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(byte),
        _ => {
            Err(IoFailure::new(format!("a CSV delimiter is one ASCII character other than a quote, not {delimiter:?}")))
        }
    }
}

/// Refuses what CSV has no place for.
pub(crate) fn check_schema(schema: &Schema) -> Result<(), IoFailure> {
    match schema.fields.iter().find(|field| matches!(field.ty, FieldType::List(_))) {
        Some(field) => Err(IoFailure::schema(format!(
            "column '{}' is a {}, which CSV cannot hold; use JSON Lines or Parquet",
            field.name, field.ty
        ))),
        None => Ok(()),
    }
}

/// The CSV format.
pub(crate) struct Csv {
    delimiter: u8,
    null: String,
    /// The schema's columns.
    names: Vec<String>,
    /// For each field of a record the column that it goes to.
    slots: Vec<Option<usize>>,
    /// How far [`Csv::frame`] has looked.
    scanned: usize,
    /// Whether it stopped inside quotes.
    inside: bool,
}

impl Csv {
    pub fn new(schema: &Schema, delimiter: u8, null: &str) -> Csv {
        let names = schema.fields.iter().map(|field| field.name.clone()).collect();
        Csv { delimiter, null: null.to_owned(), names, slots: Vec::new(), scanned: 0, inside: false }
    }

    fn whole(&mut self, bytes: &[u8], length: usize, next: usize, quotes: bool) -> Frame {
        self.restart();
        let lines = if quotes { memchr_iter(b'\n', &bytes[..next]).count() as u64 } else { 1 };
        Frame::Whole { length, next, lines }
    }

    fn fields(&self, record: &str, rows: &mut Rows) -> Result<(), Wrong> {
        let mut rest = Some(record);
        for slot in &self.slots {
            let Some(text) = rest else { return Err(Wrong::Count) };
            let field =
                next_field(text, self.delimiter).map_err(|reason| Wrong::Quotes(self.fault_in(*slot, reason)))?;
            rest = field.rest;
            let Some(index) = *slot else { continue };
            let FieldColumn::Scalar(column) = &mut rows.fields[index] else {
                unreachable!("lists are refused when a source is opened")
            };
            push(column, &field.text, field.quoted, &self.null)
                .map_err(|reason| Wrong::Value(self.fault_in(*slot, reason)))?;
        }
        if rest.is_some() { Err(Wrong::Count) } else { Ok(()) }
    }

    fn fault_in(&self, slot: Option<usize>, reason: String) -> Fault {
        Fault { column: slot.map(|index| self.names[index].clone()), reason }
    }

    /// The fault of a record: a value in the wrong place is often only a sign of a field too many or
    /// too few, and then that is said.
    fn fault(&self, record: &str, wrong: Wrong) -> Fault {
        let mut count = 0;
        let mut rest = Some(record);
        while let Some(text) = rest {
            count += 1;
            rest = match next_field(text, self.delimiter) {
                Ok(field) => field.rest,
                Err(reason) => return Fault::whole(reason),
            };
        }
        match wrong {
            Wrong::Quotes(fault) => fault,
            Wrong::Value(fault) if count == self.slots.len() => fault,
            _ => Fault::whole(format!("expected {} fields as in the header, found {count}", self.slots.len())),
        }
    }
}

/// What is wrong with a record.
enum Wrong {
    Count,
    Quotes(Fault),
    Value(Fault),
}

impl Format for Csv {
    fn begin(&mut self) -> Header {
        Header::Expected
    }

    fn header(&mut self, record: &str) -> Result<(), IoFailure> {
        let mut header: Vec<String> = Vec::new();
        let mut rest = Some(record);
        while let Some(text) = rest {
            let field = next_field(text, self.delimiter)
                .map_err(|reason| IoFailure::schema(format!("the header: {reason}")))?;
            header.push(field.text.into_owned());
            rest = field.rest;
        }
        let mut seen = BTreeSet::new();
        // Spreadsheets write nameless columns; they match no field, so several do no harm.
        if let Some(name) = header.iter().find(|name| !name.is_empty() && !seen.insert(name.as_str())) {
            return Err(IoFailure::schema(format!("the header names column {} twice", quoted(name))));
        }
        let missing: Vec<&String> = self.names.iter().filter(|name| !header.contains(name)).collect();
        if !missing.is_empty() {
            let message = format!("the header has no column {}; it has {}", listed(missing), listed(&header));
            return Err(IoFailure::schema(message));
        }
        self.slots = header.iter().map(|name| self.names.iter().position(|wanted| wanted == name)).collect();
        Ok(())
    }

    #[inline]
    fn frame(&mut self, bytes: &[u8], last: bool) -> Frame {
        let mut at = self.scanned;
        let mut quotes = self.inside || at > 0;
        loop {
            if self.inside {
                let Some(quote) = memchr(b'"', &bytes[at..]) else { break };
                at += quote;
                match bytes.get(at + 1) {
                    Some(b'"') => at += 2,
                    // Whether this quote closes or is one of two only the next byte can tell.
                    None if !last => {
                        self.scanned = at;
                        return Frame::Partial;
                    }
                    _ => {
                        self.inside = false;
                        at += 1;
                    }
                }
            } else {
                let Some(found) = memchr2(b'\n', b'"', &bytes[at..]) else { break };
                at += found;
                if bytes[at] == b'\n' {
                    return self.whole(bytes, at, at + 1, quotes);
                }
                quotes = true;
                self.inside = at == 0 || bytes[at - 1] == self.delimiter;
                at += 1;
            }
        }
        if last && !self.inside {
            return self.whole(bytes, bytes.len(), bytes.len(), true);
        }
        self.scanned = bytes.len();
        Frame::Partial
    }

    fn restart(&mut self) {
        self.scanned = 0;
        self.inside = false;
    }

    #[inline]
    fn decode(&mut self, record: &str, rows: &mut Rows) -> Result<(), Fault> {
        match self.fields(record, rows) {
            Ok(()) => {
                rows.commit();
                Ok(())
            }
            Err(Wrong::Quotes(fault)) => Err(fault),
            Err(wrong) => Err(self.fault(record, wrong)),
        }
    }

    fn column_of_invalid(&self, record: &str) -> Option<String> {
        let mut rest = Some(record);
        for slot in &self.slots {
            let field = next_field(rest?, self.delimiter).ok()?;
            if field.text.contains(char::REPLACEMENT_CHARACTER) {
                return slot.map(|index| self.names[index].clone());
            }
            rest = field.rest;
        }
        None
    }

    fn unfinished(&self) -> &'static str {
        "a quote is opened and never closed"
    }
}

/// A field of a record.
struct Field<'r> {
    text: Cow<'r, str>,
    quoted: bool,
    /// The fields after it; none after the last.
    rest: Option<&'r str>,
}

/// The first field of `record`.
#[inline]
fn next_field(record: &str, delimiter: u8) -> Result<Field<'_>, String> {
    if record.starts_with('"') {
        return quoted_field(record, delimiter);
    }
    let (text, rest) = match memchr(delimiter, record.as_bytes()) {
        Some(end) => (&record[..end], Some(&record[end + 1..])),
        None => (record, None),
    };
    Ok(Field { text: Cow::Borrowed(text), quoted: false, rest })
}

fn quoted_field(record: &str, delimiter: u8) -> Result<Field<'_>, String> {
    let bytes = record.as_bytes();
    let mut text = Cow::Borrowed("");
    let mut start = 1;
    loop {
        let Some(length) = memchr(b'"', &bytes[start..]) else {
            return Err("a quote is opened and never closed".into());
        };
        let end = start + length;
        let doubled = bytes.get(end + 1) == Some(&b'"');
        // Of two quotes the first is kept.
        text += &record[start..end + usize::from(doubled)];
        if doubled {
            start = end + 2;
            continue;
        }
        let rest = match bytes.get(end + 1) {
            None => None,
            Some(byte) if *byte == delimiter => Some(&record[end + 2..]),
            Some(_) => return Err("text follows the closing quote".into()),
        };
        return Ok(Field { text, quoted: true, rest });
    }
}

/// Appends a field to its column.
#[inline]
fn push(column: &mut Column, field: &str, in_quotes: bool, null: &str) -> Result<(), String> {
    let is_text = column.ty.ty.is_bytes();
    let text = if is_text { field } else { field.trim_matches([' ', '\t']) };
    let absent =
        if text.is_empty() { null.is_empty() || !is_text } else { !in_quotes && (text == null || field == null) };
    if absent {
        if column.ty.nullable {
            column.push_null();
            return Ok(());
        }
        // Without a text of its own for null, the empty text is a text like any other.
        if !is_text || !null.is_empty() {
            return Err(format!("a value is missing, and {} has no None", column.ty));
        }
    }
    match &mut column.cells {
        Cells::Bool(values) => values.push(parse::bool(text)?),
        Cells::Int(values) => values.push(parse::int(text)?),
        Cells::Float(values) => values.push(parse::float(text)?),
        Cells::Decimal { values, digits, scale } => values.push(parse::decimal(text, *digits, *scale)?.into()),
        Cells::Time(values) => values.push(parse::time(text)?),
        Cells::Str(runs) => runs.push(text.as_bytes()),
        Cells::Bytes(runs) => {
            parse::base64(text, &mut runs.bytes)?;
            runs.commit();
        }
    }
    column.commit_value();
    Ok(())
}
