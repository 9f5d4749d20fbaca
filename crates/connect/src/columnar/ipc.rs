//! Arrow IPC, in both of its formats.
//!
//! A stream is messages up to an end mark. A file is a magic word, a stream, an index and the magic
//! word again. Both are read as streams, in order and bit by bit: lengths in a damaged file are
//! believed only as far as there are bytes, and no memory is asked for on their word. That a file has
//! its end is checked first.

use super::{Batches, Columnar};
use crate::IpcCompression;
use crate::files::{ByteCount, Place, Raw, read_up_to};
use crate::output::{Output, write_failed};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, Schema as ArrowSchema, SchemaRef};
use arrow_select::concat::concat_batches;
use std::io::{self, BufWriter, Cursor, Read, Seek, SeekFrom};
use tidemill_io::{IoFailure, Sink};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// The alignment of messages, bytes.
const WORD: usize = 8;

/// The first word of a file, followed by words of zeros, as many as the writer likes.
const MAGIC: &[u8; WORD] = b"ARROW1\0\0";

/// The length of the magic word without its padding, as a file ends with it, bytes.
const MAGIC_LENGTH: usize = 6;

/// The size of what follows the index, bytes: its length in four bytes, and the magic word.
const TAIL_LENGTH: u64 = 4 + MAGIC_LENGTH as u64;

/// Read at once.
const READ_BYTES: usize = 1 << 20;

/// Arrow IPC for reading.
pub(crate) struct IpcFiles;

impl Columnar for IpcFiles {
    const LIVE: bool = true;

    fn open(&self, place: &Place, schema: &Schema, count: &ByteCount) -> Result<Batches, ArrowError> {
        let raw = place.open(count).map_err(|failure| ArrowError::ExternalError(failure.into()))?;
        let mut words = Words::new(raw);
        words.next()?;
        let is_file = words.word() == MAGIC;
        let input: Box<dyn Read + Send> = match (is_file, place.regular_length()) {
            (false, _) => Box::new(words.onwards(None)),
            (true, length) => {
                let end = length.map(|length| stream_end(&mut words.input, length)).transpose()?;
                words.next()?;
                while words.word() == [0; WORD] {
                    words.next()?;
                }
                Box::new(words.onwards(end))
            }
        };
        let mut stream =
            Stream { input, is_file, decoder: StreamDecoder::new(), chunk: Buffer::default(), first: None };
        let found = stream.schema()?;
        let wanted = |index: &usize| schema.index_of(found.field(*index).name()).is_some();
        let projection: Vec<usize> = (0..found.fields().len()).filter(wanted).collect();
        let schema = found.project(&projection)?.into();
        let reader = Box::new(stream.map(move |batch| batch?.project(&projection)));
        Ok(Batches { schema, reader, rows: None })
    }
}

fn damaged(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}

/// Returns the place where the stream in a file ends. Leaves the file positioned after the magic word.
fn stream_end(raw: &mut Raw, length: u64) -> Result<u64, ArrowError> {
    let start = WORD as u64;
    let cut_off = || damaged("the file is cut off before its end");
    let tail_at = length.checked_sub(TAIL_LENGTH).filter(|at| *at >= start).ok_or_else(cut_off)?;
    let mut tail = [0; TAIL_LENGTH as usize];
    raw.seek(SeekFrom::Start(tail_at))?;
    let read = read_up_to(raw, &mut tail)?;
    let (index_length, magic) = tail[..read].split_at_checked(4).ok_or_else(cut_off)?;
    if magic != &MAGIC[..MAGIC_LENGTH] {
        return Err(cut_off());
    }
    let index_length = u32::from_le_bytes(index_length.try_into().expect("split at four"));
    raw.seek(SeekFrom::Start(start))?;
    let end = tail_at.checked_sub(u64::from(index_length)).filter(|end| *end >= start);
    end.ok_or_else(|| damaged("the index is longer than the file"))
}

/// The first words of an input, up to where the stream in it begins.
struct Words {
    input: Raw,
    last: [u8; WORD],
    /// The length of the last word, bytes.
    length: usize,
    /// Bytes taken.
    position: u64,
}

impl Words {
    fn new(input: Raw) -> Words {
        Words { input, last: [0; WORD], length: 0, position: 0 }
    }

    fn next(&mut self) -> io::Result<()> {
        self.length = read_up_to(&mut self.input, &mut self.last)?;
        self.position += self.length as u64;
        Ok(())
    }

    /// Returns the next word, or what there is of it at the end of the input.
    fn word(&self) -> &[u8] {
        &self.last[..self.length]
    }

    /// Returns the last word and what follows it, up to position `end`.
    fn onwards(self, end: Option<u64>) -> impl Read + Send + 'static {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(self.position));
        Cursor::new(self.word().to_vec()).chain(self.input.take(left))
    }
}

/// The batches of a stream.
struct Stream {
    input: Box<dyn Read + Send>,
    is_file: bool,
    decoder: StreamDecoder,
    /// Read and not yet decoded.
    chunk: Buffer,
    /// Decoded while looking for the schema.
    first: Option<RecordBatch>,
}

impl Stream {
    fn schema(&mut self) -> Result<SchemaRef, ArrowError> {
        loop {
            if let Some(schema) = self.decoder.schema() {
                return Ok(schema);
            }
            match self.advance()? {
                Advance::Batch(batch) => self.first = Some(batch),
                Advance::Read => {}
                Advance::End => return Err(damaged("it is empty, not even a schema is there")),
            }
        }
    }

    /// Decodes what is there, or reads once.
    fn advance(&mut self) -> Result<Advance, ArrowError> {
        if !self.chunk.is_empty() {
            return match self.decoder.decode(&mut self.chunk) {
                Ok(Some(batch)) => Ok(Advance::Batch(batch)),
                Ok(None) => Ok(Advance::Read),
                // Behind the end mark of a file's stream is its index.
                Err(_) if self.decoder.finish().is_ok() && self.is_file => Ok(Advance::End),
                Err(_) if self.decoder.finish().is_ok() => Err(damaged("data follows the end of the stream")),
                Err(error) => Err(error),
            };
        }
        let mut chunk = vec![0; READ_BYTES];
        let read = loop {
            match self.input.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if read == 0 {
            self.decoder.finish().map_err(|_| damaged("it is cut off in the middle of a message"))?;
            return Ok(Advance::End);
        }
        chunk.truncate(read);
        self.chunk = Buffer::from_vec(chunk);
        Ok(Advance::Read)
    }
}

/// The result of a step through a stream.
enum Advance {
    Batch(RecordBatch),
    Read,
    End,
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.first.take() {
            return Some(Ok(batch));
        }
        loop {
            match self.advance() {
                Ok(Advance::Batch(batch)) => return Some(Ok(batch)),
                Ok(Advance::Read) => {}
                Ok(Advance::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Small batches are put together up to this many rows.
pub(super) const BATCH_ROWS: usize = 16 << 10;

/// A sink of Arrow IPC.
pub(crate) struct IpcSink {
    name: String,
    schema: SchemaRef,
    writer: Writer,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
}

enum Writer {
    File(FileWriter<BufWriter<Output>>),
    Stream(StreamWriter<BufWriter<Output>>),
}

impl IpcSink {
    pub fn new(output: Output, compression: IpcCompression, schema: &Schema) -> Result<IpcSink, IoFailure> {
        let name = output.name().to_owned();
        let schema = arrow_schema(schema);
        let writer = Writer::open(output, compression, &schema).map_err(|error| write_failed(&name, &error))?;
        Ok(IpcSink { name, schema, writer, waiting: Vec::new(), waiting_rows: 0 })
    }

    fn settle(&mut self) -> Result<(), IoFailure> {
        if self.waiting_rows == 0 {
            return Ok(());
        }
        let write = |batch: RecordBatch| match &mut self.writer {
            Writer::File(writer) => writer.write(&batch),
            Writer::Stream(writer) => writer.write(&batch),
        };
        let written = concat_batches(&self.schema, &self.waiting).and_then(write);
        self.waiting.clear();
        self.waiting_rows = 0;
        written.map_err(|error| write_failed(&self.name, &error))
    }
}

impl Writer {
    fn open(output: Output, compression: IpcCompression, schema: &ArrowSchema) -> Result<Writer, ArrowError> {
        let codec = match compression {
            IpcCompression::None => None,
            IpcCompression::Lz4 => Some(CompressionType::LZ4_FRAME),
            IpcCompression::Zstd => Some(CompressionType::ZSTD),
        };
        let options = IpcWriteOptions::default().try_with_compression(codec)?;
        let interactive = output.is_interactive();
        let output = BufWriter::new(output);
        Ok(if interactive {
            Writer::Stream(StreamWriter::try_new_with_options(output, schema, options)?)
        } else {
            Writer::File(FileWriter::try_new_with_options(output, schema, options)?)
        })
    }

    fn finish(self) -> Result<BufWriter<Output>, ArrowError> {
        match self {
            Writer::File(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
            Writer::Stream(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
        }
    }
}

impl Sink for IpcSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        if batch.num_rows() > 0 {
            self.waiting_rows += batch.num_rows();
            self.waiting.push(batch.clone());
        }
        if self.waiting_rows >= BATCH_ROWS { self.settle() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        if matches!(self.writer, Writer::Stream(_)) {
            self.settle()?;
            if let Writer::Stream(writer) = &mut self.writer {
                writer.flush().map_err(|error| write_failed(&self.name, &error))?;
            }
        }
        Ok(())
    }

    fn bytes(&mut self) -> Option<u64> {
        Some(match &self.writer {
            Writer::File(writer) => writer.get_ref().get_ref().written(),
            Writer::Stream(writer) => writer.get_ref().get_ref().written(),
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.settle()?;
        let IpcSink { name, writer, .. } = *self;
        let output = writer.finish().map_err(|error| write_failed(&name, &error))?;
        output.into_inner().map_err(|error| write_failed(&name, error.error()))?.finish()
    }
}
