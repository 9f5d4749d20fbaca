//! CSV records: quoting, the header, and fields straight into typed columns.
//!
//! The grammar is RFC 4180, with `\n` as good as `\r\n`, quotes allowed in the middle of an unquoted
//! field, and blank lines skipped. A quote opens a quoted field only at the field's start, which is
//! also how the end of a record is found: [`Csv::frame`] and [`next_field`] must agree on that. No
//! field is copied on its way into its column, but for those with doubled quotes in them.

use super::csv_write::is_text_or_none;
use super::{Format, Frame, Header, RECORD_BYTES_MAX};
use crate::bad::{Fault, listed, quoted};
use crate::columns::{Cells, Column, FieldColumn, Rows};
use crate::scalar::parse;
use memchr::{memchr, memchr_iter, memchr2};
use std::borrow::Cow;
use std::collections::BTreeSet;
use tidemill_io::IoFailure;
use tidemill_model::{FieldType, Schema};

/// Returns the delimiter as a byte, or why it cannot be one.
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
    /// The column that each field of a record goes to.
    slots: Vec<Option<usize>>,
    /// The place up to which [`Csv::frame`] has looked.
    scanned: usize,
    /// A flag: whether that place is inside quotes.
    inside: bool,
    /// The last place at which the record was seen inside quotes.
    inside_at: usize,
    passed: Passed,
    /// A longer record is given up.
    record_bytes_max: usize,
    /// A flag for each of the schema's columns: whether a blank line is a None of it if it is the only one.
    none_if_blank: Vec<bool>,
}

/// The knowledge about later records that a record which was given up leaves, in bytes after the current record's
/// start.
#[derive(Clone, Copy, Default)]
struct Passed {
    /// A record that is inside quotes at the end of a line before this place goes on at `stop`.
    until: usize,
    stop: usize,
    /// A flag: whether `stop` is inside quotes.
    inside: bool,
}

impl Csv {
    pub fn new(schema: &Schema, delimiter: u8, null: &str) -> Csv {
        let names = schema.fields.iter().map(|field| field.name.clone()).collect();
        let none_if_blank = schema.fields.iter().map(|field| null.is_empty() && is_text_or_none(field));
        Csv {
            delimiter,
            null: null.to_owned(),
            names,
            slots: Vec::new(),
            scanned: 0,
            inside: false,
            inside_at: 0,
            passed: Passed::default(),
            record_bytes_max: RECORD_BYTES_MAX,
            none_if_blank: none_if_blank.collect(),
        }
    }

    fn whole(&mut self, bytes: &[u8], length: usize, next: usize, quotes: bool) -> Frame {
        if length > self.record_bytes_max {
            // It is given up, and what is known of it serves the next one.
            (self.scanned, self.inside) = (length, false);
            return Frame::Whole { length, next, lines: 0 };
        }
        let lines = if quotes { memchr_iter(b'\n', &bytes[..next]).count() as u64 } else { 1 };
        self.begin_record(next);
        Frame::Whole { length, next, lines }
    }

    /// Notes that the next record begins this number of bytes after the start of the last one.
    fn begin_record(&mut self, skipped: usize) {
        (self.scanned, self.inside, self.inside_at) = (0, false, 0);
        let Passed { until, stop, inside } = self.passed;
        self.passed = Passed { until: until.saturating_sub(skipped), stop: stop.saturating_sub(skipped), inside };
    }

    /// Goes on inside quotes, from `at` to the next quote or to where a record before stopped; none if neither is there.
    #[inline]
    fn within_quotes(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        if at < self.passed.until {
            let found = at + memchr2(b'\n', b'"', &bytes[at..])?;
            if bytes[found] == b'"' || found >= self.passed.until {
                return memchr(b'"', &bytes[found..]).map(|quote| found + quote);
            }
            self.inside_at = self.passed.until;
            self.inside = self.passed.inside;
            return Some(self.passed.stop);
        }
        memchr(b'"', &bytes[at..]).map(|found| at + found)
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

    /// Returns the fault of a record: a value in the wrong place is often only a sign of a field too many or too few,
    /// and then that is said.
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

/// The fault of a record.
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
                let Some(next) = self.within_quotes(bytes, at) else { break };
                at = next;
                if !self.inside || bytes.get(at) != Some(&b'"') {
                    continue;
                }
                self.inside_at = at;
                match bytes.get(at + 1) {
                    Some(b'"') => at += 2,
                    // Only the next byte tells whether this quote closes or is one of two.
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
        if self.inside {
            self.inside_at = bytes.len();
        }
        Frame::Partial
    }

    fn restart(&mut self) {
        self.passed = Passed::default();
        self.begin_record(0);
    }

    fn skip(&mut self, bytes: usize) {
        if self.inside_at > 0 {
            self.passed = Passed { until: self.inside_at, stop: self.scanned, inside: self.inside };
        }
        self.begin_record(bytes);
    }

    fn takes_blank(&self) -> bool {
        matches!(self.slots[..], [Some(column)] if self.none_if_blank[column])
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

/// Returns the first field of `record`.
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
        // The first of two quotes is kept.
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
    let absent = match text.is_empty() {
        true => !is_text || (null.is_empty() && !in_quotes),
        false => !in_quotes && (text == null || field == null),
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_random::Random;

    /// Returns the end of a record that begins at `start`, found by looking at each byte.
    fn end(text: &[u8], start: usize) -> Option<usize> {
        let (mut at, mut inside) = (start, false);
        while at < text.len() {
            match text[at] {
                b'\n' if !inside => return Some(at),
                b'"' if inside && text.get(at + 1) == Some(&b'"') => at += 1,
                b'"' if inside => inside = false,
                b'"' => inside = at == start || text[at - 1] == b',',
                _ => {}
            }
            at += 1;
        }
        (!inside).then_some(at)
    }

    fn line_after(text: &[u8], at: usize) -> usize {
        memchr(b'\n', &text[at..]).map_or(text.len(), |found| at + found + 1)
    }

    /// Returns the records of a text: where each begins, and where it ends unless it is given up.
    fn expected(text: &[u8], max: usize) -> Vec<(usize, Option<usize>)> {
        let (mut found, mut start) = (Vec::new(), 0);
        while start < text.len() {
            let end = end(text, start).filter(|end| end - start <= max);
            found.push((start, end));
            start = end.map_or_else(|| line_after(text, start), |end| (end + 1).min(text.len()));
        }
        found
    }

    /// Returns the records that [`Csv::frame`] finds, with the text read in pieces.
    fn framed(text: &[u8], max: usize, random: &mut Random) -> Vec<(usize, Option<usize>)> {
        let mut csv = Csv::new(&Schema::scalars([]), b',', "");
        csv.record_bytes_max = max;
        let (mut found, mut start, mut read, mut skipping) = (Vec::new(), 0, 0, false);
        while start < text.len() {
            if !skipping {
                let pending = &text[start..read];
                match csv.frame(pending, read == text.len()) {
                    Frame::Whole { length, next, lines } if length <= max => {
                        assert_eq!(lines, memchr_iter(b'\n', &pending[..next]).count() as u64);
                        found.push((start, Some(start + length)));
                        start += next;
                        continue;
                    }
                    Frame::Partial if pending.len() <= max && read < text.len() => {
                        read = (read + 1 + random.below(9) as usize).min(text.len());
                        continue;
                    }
                    _ => found.push((start, None)),
                }
            }
            let next = line_after(&text[..read], start);
            skipping = text[next - 1] != b'\n' || next == start;
            csv.skip(next - start);
            start = next;
            if skipping {
                read = (read + 1).min(text.len());
            }
        }
        found
    }

    #[test]
    fn records_end_where_a_look_at_each_byte_says() {
        let mut random = Random::new(33);
        let (mut given_up, mut whole) = (0, 0);
        for round in 0..30_000 {
            let pieces = [b"\"".as_slice(), b",\"", b"\",", b"\"\"", b"\n", b"\n\"", b"a", b","];
            let length = 1 + random.below(40);
            let text: Vec<u8> = (0..length).flat_map(|_| pieces[random.below(8) as usize]).copied().collect();
            let max = [6, 20, RECORD_BYTES_MAX][round % 3];
            let records = expected(&text, max);
            given_up += records.iter().filter(|(_, end)| end.is_none()).count();
            whole += records.iter().filter(|(_, end)| end.is_some()).count();
            assert_eq!(framed(&text, max, &mut random), records, "{max} {:?}", String::from_utf8_lossy(&text));
        }
        assert!(given_up > 10_000 && whole > 10_000, "{given_up} {whole}");
    }
}
