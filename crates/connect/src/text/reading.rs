//! One text input being read: its bytes, and the records found and decoded in them.

use super::source::Batch;
use super::{Format, Frame, Header};
use crate::Compression;
use crate::bad::{Fault, excerpt};
use crate::columns::Rows;
use crate::compression::open_text;
use crate::files::{ByteCount, FileIdentity, Place, read_failed};
use crate::place::{FileToken, Head, TAIL_BYTES};
use memchr::memchr;
use std::io::{self, Read, Seek, SeekFrom};
use tidemill_io::IoFailure;

/// Longest record that is decoded.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Read at once.
const READ_BYTES: usize = 256 << 10;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A file, or standard input, that is being read.
pub(super) struct Reading {
    name: String,
    /// Fails where the file is written anew.
    watches: bool,
    reader: Box<dyn Read + Send>,
    pub live: bool,
    /// A flag: whether the input is not compressed.
    pub plain: bool,
    /// The identity of the file.
    pub identity: Option<FileIdentity>,
    pub count: ByteCount,
    /// The bytes read and not yet decoded are `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The reader has no more, for now.
    pub ended: bool,
    /// A flag: whether more may follow what ends it: a record without a line end is not whole then.
    pub may_grow: bool,
    /// The first bytes were looked at.
    begun: bool,
    header: Header,
    /// 1-based, of the record at `start`.
    pub line: u64,
    /// Within a line that was given up.
    pub skipping: bool,
}

impl Reading {
    /// `watches`: it is followed.
    pub fn open(
        place: &Place,
        compression: Option<Compression>,
        watches: bool,
        format: &mut impl Format,
    ) -> Result<Reading, IoFailure> {
        let count = ByteCount::default();
        let input = open_text(place, compression, watches, &count)?;
        format.restart();
        Ok(Reading {
            name: place.name(),
            watches,
            reader: input.reader,
            live: input.live,
            plain: input.plain,
            identity: input.identity,
            count,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            may_grow: false,
            begun: false,
            header: format.begin(),
            line: 1,
            skipping: false,
        })
    }

    /// Returns the bytes of plain text before the record at `start`.
    pub fn offset(&self) -> u64 {
        self.count.get() - (self.end - self.start) as u64
    }

    /// Returns the last bytes before that record, as far as they are at hand.
    pub fn tail(&self) -> Head {
        Head::of(&self.buffer[self.start.saturating_sub(TAIL_BYTES)..self.start])
    }

    /// Returns whether the record before that one had no line end.
    pub fn is_unended(&self) -> bool {
        self.start > 0 && !self.skipping && self.buffer[self.start - 1] != b'\n'
    }

    /// Returns whether it was read to its end, and what is left is all there will be.
    fn is_whole(&self) -> bool {
        self.ended && !self.may_grow
    }

    /// Seeks to a place in plain text, after the header.
    pub fn go(&mut self, place: &Place, token: &FileToken) -> Result<(), IoFailure> {
        let mut raw = place.open(&self.count)?;
        raw.seek(SeekFrom::Start(token.offset)).map_err(|error| read_failed(&self.name, &error))?;
        self.count.set(token.offset);
        if self.watches {
            raw.watch().map_err(|error| read_failed(&self.name, &error))?;
        }
        self.identity = raw.identity();
        self.reader = Box::new(raw);
        (self.start, self.end, self.ended) = (0, 0, false);
        (self.line, self.skipping) = (token.line, token.skipping);
        Ok(())
    }

    /// Reads once.
    pub fn read(&mut self) -> Result<(), IoFailure> {
        if self.buffer.len() - self.end < READ_BYTES {
            // The last bytes before the place stay, as the place is recognized by them.
            let kept = self.start.saturating_sub(TAIL_BYTES);
            self.buffer.copy_within(kept..self.end, 0);
            (self.start, self.end) = (self.start - kept, self.end - kept);
            if self.buffer.len() - self.end < READ_BYTES {
                let length = (2 * self.end).max(READ_BYTES * 2);
                self.buffer.resize(length, 0);
            }
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    self.ended = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(read_failed(&self.name, &"the compressed data is cut off before its end"));
                }
                Err(error) => return Err(read_failed(&self.name, &error)),
            }
        }
    }

    /// Returns whether there are bytes that are not decoded.
    pub fn has_pending(&self) -> bool {
        self.start < self.end
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Skips a byte order mark. False while it cannot be told whether there is one.
    fn begin(&mut self) -> bool {
        if !self.begun {
            let pending = self.pending();
            if pending.starts_with(BYTE_ORDER_MARK) {
                self.start += BYTE_ORDER_MARK.len();
            } else if BYTE_ORDER_MARK.starts_with(pending) && !self.is_whole() {
                return false;
            }
            self.begun = true;
        }
        true
    }

    /// Takes the header if one is due. False while more has to be read before records come.
    pub fn take_header(&mut self, format: &mut impl Format) -> Result<bool, IoFailure> {
        if !self.begin() {
            return Ok(false);
        }
        while self.header == Header::Expected {
            let pending = self.pending();
            let refused = |reason: &str| IoFailure::schema(format!("{}: {reason}", self.name));
            if pending.is_empty() && self.is_whole() {
                return Err(refused("it is empty, not even a header line is there"));
            }
            match format.frame(pending, self.is_whole()) {
                Frame::Whole { length, next, lines } if length <= RECORD_BYTES_MAX => {
                    let record = without_return(&pending[..length]);
                    if !record.is_empty() {
                        let text = str::from_utf8(record).map_err(|_| refused("the header line is not UTF-8"))?;
                        format.header(text).map_err(|failure| refused(&failure.message))?;
                        self.header = Header::None;
                    }
                    self.start += next;
                    self.line += lines;
                }
                Frame::Partial if pending.len() <= RECORD_BYTES_MAX && !self.is_whole() => return Ok(false),
                _ => return Err(refused("the header line has no end")),
            }
        }
        Ok(true)
    }

    /// Decodes the whole records that are there, until the batch is full.
    pub fn decode(&mut self, format: &mut impl Format, batch: &mut Batch) {
        while self.start < self.end && !batch.is_full() {
            if self.skipping {
                self.skip(format);
                continue;
            }
            let pending = &self.buffer[self.start..self.end];
            match format.frame(pending, self.is_whole()) {
                Frame::Whole { length, next, lines } if length <= RECORD_BYTES_MAX => {
                    let record = without_return(&pending[..length]);
                    if (!record.is_empty() || format.takes_blank())
                        && let Err(fault) = decode_record(format, record, &mut batch.rows)
                    {
                        batch.rows.roll_back();
                        let after = batch.rows.count();
                        batch.bad.push(fault.into_bad(&self.name, self.line, excerpt(record), after));
                    }
                    batch.bytes += length;
                    self.start += next;
                    self.line += lines;
                }
                Frame::Partial if pending.len() <= RECORD_BYTES_MAX && !self.is_whole() => return,
                Frame::Partial if pending.len() <= RECORD_BYTES_MAX => {
                    self.give_up(format.unfinished().to_owned(), format, batch);
                }
                _ => {
                    let limit = RECORD_BYTES_MAX >> 20;
                    self.give_up(format!("the record is longer than {limit} MiB"), format, batch);
                }
            }
        }
    }

    /// Gives up the record that begins here and has no end: its first line is bad.
    fn give_up(&mut self, reason: String, format: &mut impl Format, batch: &mut Batch) {
        let pending = self.pending();
        let line = memchr(b'\n', pending).map_or(pending, |end| &pending[..end]);
        let (record, after) = (excerpt(without_return(line)), batch.rows.count());
        batch.bad.push(Fault::whole(reason).into_bad(&self.name, self.line, record, after));
        self.skipping = true;
        self.skip(format);
    }

    /// Goes on to the next line, as far as it is there.
    fn skip(&mut self, format: &mut impl Format) {
        let skipped = match memchr(b'\n', self.pending()) {
            Some(end) => {
                self.line += 1;
                self.skipping = false;
                end + 1
            }
            None => self.end - self.start,
        };
        self.start += skipped;
        format.skip(skipped);
    }
}

fn decode_record(format: &mut impl Format, record: &[u8], rows: &mut Rows) -> Result<(), Fault> {
    match str::from_utf8(record) {
        Ok(text) => format.decode(text, rows),
        Err(error) => {
            let column = format.column_of_invalid(&String::from_utf8_lossy(record));
            Err(Fault { column, reason: format!("invalid UTF-8 at byte {} of the record", error.valid_up_to() + 1) })
        }
    }
}

/// Returns the record without the carriage return of a `\r\n`.
fn without_return(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}
