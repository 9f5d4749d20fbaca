//! Columnar formats in a durable run.
//!
//! Their files cannot grow by commits: the index at the end says what is in them, and small row groups
//! make bad files. So events are kept in a part of another form, which can: Arrow IPC streams (LZ4), one
//! per prepare, one after the other, cut into blocks with a checksum each. Finishing reads the part and writes the file whole, as a run
//! without a state would, and renames it. A crash meanwhile leaves the part, and it is done again.
//!
//! The part remains after that, so that a later run can continue the output; the file is then written anew. That is the
//! price: the part's room on the disk, and a second pass over what was written.

use super::ipc::BATCH_ROWS;
use crate::committed_file::CommittedFile;
use crate::output::{Output, write_failed};
use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use std::io::{self, Cursor, Read};
use tidemill_io::{IoFailure, Recovered, Sink};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use xxhash_rust::xxh3::xxh3_64;

/// The size of what precedes a block, bytes: its length and its checksum, in eight bytes each.
const HEAD_BYTES: usize = 16;

/// Opens the sink that writes the file whole.
type OpenWhole = Box<dyn Fn() -> Result<Box<dyn Sink>, IoFailure> + Send>;

/// A sink that keeps events for a file which is written when the stream has ended.
pub(crate) struct Spool {
    name: String,
    part: Output,
    schema: SchemaRef,
    whole: OpenWhole,
    writer: Option<StreamWriter<Vec<u8>>>,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    /// Bytes that were written to the part.
    written: u64,
}

impl Spool {
    pub fn new(part: Output, schema: &Schema, whole: OpenWhole) -> Result<Spool, IoFailure> {
        let name = part.name().to_owned();
        let schema = arrow_schema(schema);
        Ok(Spool { name, part, schema, whole, writer: None, waiting: Vec::new(), waiting_rows: 0, written: 0 })
    }

    fn committed_file(&mut self) -> &mut CommittedFile {
        self.part.committed_file().expect("a spool is for files of durable runs")
    }

    /// Writes the waiting batches as one batch.
    fn settle(&mut self) -> Result<(), IoFailure> {
        if self.waiting_rows == 0 {
            return Ok(());
        }
        let batch = concat_batches(&self.schema, &self.waiting);
        self.waiting.clear();
        self.waiting_rows = 0;
        let writer = match self.writer.take() {
            Some(writer) => Ok(writer),
            None => stream(&self.schema),
        };
        let written = writer.and_then(|mut writer| {
            writer.write(&batch?)?;
            Ok(writer)
        });
        let mut writer = written.map_err(|error| write_failed(&self.name, &error))?;
        let bytes = std::mem::take(writer.get_mut());
        self.writer = Some(writer);
        self.append_block(&bytes)
    }

    fn append_block(&mut self, bytes: &[u8]) -> Result<(), IoFailure> {
        let mut block = Vec::with_capacity(HEAD_BYTES + bytes.len());
        block.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        block.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
        block.extend_from_slice(bytes);
        self.written += block.len() as u64;
        self.committed_file().append(&block)
    }

    /// Ends the stream, if one has begun.
    fn end(&mut self) -> Result<(), IoFailure> {
        self.settle()?;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let bytes = writer.into_inner().map_err(|error| write_failed(&self.name, &error))?;
        self.append_block(&bytes)
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_rows = 0;
        self.writer = None;
    }
}

fn stream(schema: &SchemaRef) -> Result<StreamWriter<Vec<u8>>, ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    StreamWriter::try_new_with_options(Vec::new(), schema, options)
}

impl Sink for Spool {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        if batch.num_rows() > 0 {
            self.waiting_rows += batch.num_rows();
            self.waiting.push(batch.clone());
        }
        if self.waiting_rows >= BATCH_ROWS { self.settle() } else { Ok(()) }
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        self.committed_file().recover().map(Recovered::Through)
    }

    fn bytes(&mut self) -> Option<u64> {
        Some(self.written)
    }

    fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.end()?;
        self.committed_file().prepare(epoch)
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.committed_file().commit(epoch)
    }

    fn keep(&mut self) -> Result<(), IoFailure> {
        self.committed_file().keep()
    }

    fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        if !self.committed_file().is_old(epoch) {
            self.forget();
        }
        self.committed_file().abort(epoch)
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.forget();
        self.committed_file().close()?;
        self.committed_file().keep()?;
        let mut whole = (self.whole)()?;
        let name = self.name.clone();
        let failed = |error: ArrowError| write_failed(&name, &format!("its part cannot be read: {error}"));
        let end = self.committed_file().committed_length();
        let mut blocks = Blocks { committed: self.committed_file(), at: 0, end, block: Cursor::default() };
        while !blocks.is_at_end() {
            for batch in StreamReader::try_new(&mut blocks, None).map_err(failed)? {
                whole.write(&batch.map_err(failed)?)?;
            }
        }
        self.committed_file().check_held()?;
        whole.finish()
    }
}

/// The blocks of a part that are committed, as one run of bytes.
struct Blocks<'a> {
    committed: &'a CommittedFile,
    /// The place where the next block begins.
    at: u64,
    end: u64,
    block: Cursor<Vec<u8>>,
}

impl Blocks<'_> {
    fn is_at_end(&self) -> bool {
        self.at == self.end && self.block.position() == self.block.get_ref().len() as u64
    }

    fn next(&mut self) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged at byte {}", self.at));
        let mut head = [0; HEAD_BYTES];
        let left = self.end - self.at;
        if left < HEAD_BYTES as u64 || self.committed.read_at(self.at, &mut head)? < HEAD_BYTES {
            return Err(damaged());
        }
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (length, sum) = (word(0), word(8));
        if length > left - HEAD_BYTES as u64 {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        let read = self.committed.read_at(self.at + HEAD_BYTES as u64, &mut bytes)?;
        if read < bytes.len() || xxh3_64(&bytes) != sum {
            return Err(damaged());
        }
        self.at += HEAD_BYTES as u64 + length;
        self.block = Cursor::new(bytes);
        Ok(())
    }
}

impl Read for Blocks<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.block.position() == self.block.get_ref().len() as u64 && self.at < self.end {
            self.next()?;
        }
        self.block.read(into)
    }
}
