//! The loop that reads text and hands its records to a format.

use super::{Format, Frame, Header};
use crate::bad::{Fault, excerpt};
use crate::columns::Rows;
use crate::compression::open_text;
use crate::files::{ByteCount, FileProgress, Place, read_failed};
use crate::place::{FileToken, Head, all_regular, check_new, whole_head};
use crate::{Compression, SourceOptions};
use memchr::memchr;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::take;
use std::time::Duration;
use tidemill_model::Schema;
use tidemill_runtime::{BadRecord, IoFailure, Next, Resumed, Source, SourceBatch, SourceProgress};

/// Longest record that is decoded.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// A batch is handed over when its records were this long together, however few they are.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Read at once.
const READ_BYTES: usize = 256 << 10;

// Columns address their bytes by `i32`. No value grows by being decoded.
const _: () = assert!(BATCH_BYTES_MAX + RECORD_BYTES_MAX < i32::MAX as usize);

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A source of text records.
pub(crate) struct TextSource<F> {
    format: F,
    places: Vec<Place>,
    compression: Option<Compression>,
    /// The place being read, or about to be.
    index: usize,
    current: Option<Reading>,
    batch: Batch,
    progress: FileProgress,
    /// How the place at `index` begins, once it was looked at.
    head: Option<(usize, Head)>,
    /// What ended the source. Events decoded before it are handed over first.
    failure: Option<IoFailure>,
}

/// The batch under construction.
struct Batch {
    rows: Rows,
    bad: Vec<BadRecord>,
    /// Of the records in it.
    bytes: usize,
    rows_max: usize,
}

impl Batch {
    fn records(&self) -> usize {
        self.rows.count() + self.bad.len()
    }

    fn is_full(&self) -> bool {
        self.records() >= self.rows_max || (self.bytes >= BATCH_BYTES_MAX && self.records() > 0)
    }
}

impl<F: Format> TextSource<F> {
    /// Checks that every file can be opened and, where the format has headers, that each regular
    /// file's header is right.
    pub fn open(
        mut format: F,
        places: Vec<Place>,
        compression: Option<Compression>,
        schema: &Schema,
        options: &SourceOptions,
    ) -> Result<Self, IoFailure> {
        for place in &places {
            if place.check()? && format.begin() == Header::Expected {
                let mut reading = Reading::open(place, compression, &mut format)?;
                while !reading.take_header(&mut format)? {
                    reading.read()?;
                }
            }
        }
        let rows_max = options.batch_rows.max(1);
        let batch = Batch { rows: Rows::new(schema), bad: Vec::new(), bytes: 0, rows_max };
        let progress = FileProgress::new(&places);
        Ok(TextSource {
            format,
            places,
            compression,
            index: 0,
            current: None,
            batch,
            progress,
            head: None,
            failure: None,
        })
    }

    /// Decodes until the batch is to be handed over or everything is read.
    fn fill(&mut self) -> Result<(), IoFailure> {
        while let Some(place) = self.places.get(self.index) {
            let reading = match &mut self.current {
                Some(reading) => reading,
                // Waiting for a pipe's first bytes while there are events to hand over.
                None if self.batch.records() > 0 && place.regular_length().is_none() => return Ok(()),
                none => {
                    if place.regular_length().is_some() {
                        self.head = Some((self.index, whole_head(place)?));
                    }
                    none.insert(Reading::open(place, self.compression, &mut self.format)?)
                }
            };
            if reading.take_header(&mut self.format)? {
                reading.decode(&mut self.format, &mut self.batch);
                if self.batch.is_full() || (reading.live && self.batch.records() > 0) {
                    return Ok(());
                }
                if reading.ended {
                    self.progress.finish(self.index, reading.count.get());
                    self.current = None;
                    self.index += 1;
                    continue;
                }
            }
            reading.read()?;
        }
        Ok(())
    }
}

impl<F: Format> Source for TextSource<F> {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        if self.failure.is_none() {
            self.failure = self.fill().err();
        }
        if self.batch.records() > 0 {
            self.batch.bytes = 0;
            return Ok(Next::Batch(SourceBatch { events: self.batch.rows.finish(), bad: take(&mut self.batch.bad) }));
        }
        match &self.failure {
            Some(IoFailure { message, schema }) => Err(IoFailure { message: message.clone(), schema: *schema }),
            None => Ok(Next::End),
        }
    }

    fn token(&self) -> Option<String> {
        let Some(place) = self.places.get(self.index) else {
            let (file, name) = (self.places.len(), String::new());
            let token = FileToken { file, name, head: Head::default(), offset: 0, line: 1, skipping: false };
            return serde_json::to_string(&token).ok();
        };
        place.regular_length()?;
        // Between two files nothing is known of the next but its name.
        let (offset, line, skipping) = match &self.current {
            Some(reading) if reading.plain => (reading.offset(), reading.line, reading.skipping),
            Some(_) => return None,
            None => (0, 1, false),
        };
        let head = self.head.filter(|(index, _)| *index == self.index).map_or(Head::default(), |(_, head)| head);
        let token = FileToken { file: self.index, name: place.name(), head, offset, line, skipping };
        serde_json::to_string(&token).ok()
    }

    fn replays(&self) -> bool {
        all_regular(&self.places)
    }

    fn is_at_end_of_pipe(&self) -> bool {
        let has_ended = self.current.as_ref().map_or(self.index == self.places.len(), |reading| reading.ended);
        (has_ended || self.failure.is_some()) && !all_regular(&self.places)
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        if !all_regular(&self.places) {
            return check_new(&self.places).map(|()| Resumed::New);
        }
        // Compressed text is read from its beginning.
        let Some(token) = token else { return Ok(Resumed::Anew) };
        let token = FileToken::read(token, &self.places)?;
        self.index = token.file;
        self.progress.skip_to(token.file);
        if token.offset > 0 {
            let place = &self.places[self.index];
            let mut reading = Reading::open(place, self.compression, &mut self.format)?;
            while !reading.take_header(&mut self.format)? {
                reading.read()?;
            }
            reading.go(place, &token)?;
            self.head = Some((self.index, whole_head(place)?));
            self.current = Some(reading);
        }
        Ok(Resumed::Behind)
    }

    fn progress(&self) -> SourceProgress {
        self.progress.at(self.index, self.current.as_ref().map_or(0, |reading| reading.count.get()))
    }
}

/// One input being read.
struct Reading {
    name: String,
    reader: Box<dyn Read + Send>,
    live: bool,
    /// Not compressed.
    plain: bool,
    count: ByteCount,
    /// The bytes read and not yet decoded are `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The reader has no more.
    ended: bool,
    /// The first bytes were looked at.
    begun: bool,
    header: Header,
    /// 1-based, of the record at `start`.
    line: u64,
    /// Within a line that was given up.
    skipping: bool,
}

impl Reading {
    fn open(place: &Place, compression: Option<Compression>, format: &mut impl Format) -> Result<Reading, IoFailure> {
        let count = ByteCount::default();
        let input = open_text(place, compression, &count)?;
        format.restart();
        Ok(Reading {
            name: place.name(),
            reader: input.reader,
            live: input.live,
            plain: input.plain,
            count,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            begun: false,
            header: format.begin(),
            line: 1,
            skipping: false,
        })
    }

    /// Bytes of plain text before the record at `start`.
    fn offset(&self) -> u64 {
        self.count.get() - (self.end - self.start) as u64
    }

    /// Seeks to a place in plain text, after the header.
    fn go(&mut self, place: &Place, token: &FileToken) -> Result<(), IoFailure> {
        let mut raw = place.open(&self.count)?;
        raw.seek(SeekFrom::Start(token.offset)).map_err(|error| read_failed(&self.name, &error))?;
        self.count.set(token.offset);
        self.reader = Box::new(raw);
        (self.start, self.end, self.ended) = (0, 0, false);
        (self.line, self.skipping) = (token.line, token.skipping);
        Ok(())
    }

    /// Reads once.
    fn read(&mut self) -> Result<(), IoFailure> {
        if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= take(&mut self.start);
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

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Skips a byte order mark. False while it cannot be told whether there is one.
    fn begin(&mut self) -> bool {
        if !self.begun {
            let pending = self.pending();
            if pending.starts_with(BYTE_ORDER_MARK) {
                self.start += BYTE_ORDER_MARK.len();
            } else if BYTE_ORDER_MARK.starts_with(pending) && !self.ended {
                return false;
            }
            self.begun = true;
        }
        true
    }

    /// Takes the header if one is due. False while more has to be read before records come.
    fn take_header(&mut self, format: &mut impl Format) -> Result<bool, IoFailure> {
        if !self.begin() {
            return Ok(false);
        }
        while self.header == Header::Expected {
            let pending = self.pending();
            let refused = |reason: &str| IoFailure::schema(format!("{}: {reason}", self.name));
            if pending.is_empty() && self.ended {
                return Err(refused("it is empty, not even a header line is there"));
            }
            match format.frame(pending, self.ended) {
                Frame::Whole { length, next, lines } => {
                    let record = without_return(&pending[..length]);
                    if !record.is_empty() {
                        let text = str::from_utf8(record).map_err(|_| refused("the header line is not UTF-8"))?;
                        format.header(text).map_err(|failure| refused(&failure.message))?;
                        self.header = Header::None;
                    }
                    self.start += next;
                    self.line += lines;
                }
                Frame::Partial if pending.len() > RECORD_BYTES_MAX || self.ended => {
                    return Err(refused("the header line has no end"));
                }
                Frame::Partial => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Decodes the whole records that are there, until the batch is full.
    fn decode(&mut self, format: &mut impl Format, batch: &mut Batch) {
        while self.start < self.end && !batch.is_full() {
            if self.skipping {
                self.skip();
                continue;
            }
            let pending = &self.buffer[self.start..self.end];
            match format.frame(pending, self.ended) {
                Frame::Whole { length, next, lines } if length <= RECORD_BYTES_MAX => {
                    let record = without_return(&pending[..length]);
                    if !record.is_empty()
                        && let Err(fault) = decode_record(format, record, &mut batch.rows)
                    {
                        batch.rows.roll_back();
                        batch.bad.push(fault.into_bad(&self.name, self.line, excerpt(record)));
                    }
                    batch.bytes += length;
                    self.start += next;
                    self.line += lines;
                }
                Frame::Partial if pending.len() <= RECORD_BYTES_MAX && !self.ended => return,
                Frame::Partial if pending.len() <= RECORD_BYTES_MAX => {
                    self.give_up(format.unfinished().to_owned(), &mut batch.bad);
                    format.restart();
                }
                _ => {
                    let limit = RECORD_BYTES_MAX >> 20;
                    self.give_up(format!("the record is longer than {limit} MiB"), &mut batch.bad);
                    format.restart();
                }
            }
        }
    }

    /// The record that begins here has no end: its first line is bad.
    fn give_up(&mut self, reason: String, bad: &mut Vec<BadRecord>) {
        let pending = self.pending();
        let line = memchr(b'\n', pending).map_or(pending, |end| &pending[..end]);
        bad.push(Fault::whole(reason).into_bad(&self.name, self.line, excerpt(without_return(line))));
        self.skipping = true;
        self.skip();
    }

    /// Goes on to the next line, as far as it is there.
    fn skip(&mut self) {
        match memchr(b'\n', self.pending()) {
            Some(end) => {
                self.start += end + 1;
                self.line += 1;
                self.skipping = false;
            }
            None => self.start = self.end,
        }
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

/// The record without the carriage return of a `\r\n`.
fn without_return(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}
