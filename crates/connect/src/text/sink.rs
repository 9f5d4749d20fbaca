//! The sink of the text formats: rows to text, text to an output, perhaps through a compressor.
//!
//! In a durable run a compressed frame ends with each prepare, so that what is committed can be read
//! without what follows, and cut off from it.

use crate::Compression;
use crate::committed_file::CommittedFile;
use crate::compression::Compressor;
use crate::output::{Output, write_failed};
use crate::views::{View, views};
use arrow_array::RecordBatch;
use std::io::{self, Write};
use tidemill_durability::{Bug, Planted};
use tidemill_io::{IoFailure, Recovered, Sink};
use tidemill_model::Schema;

/// Written at once.
const WRITE_BYTES: usize = 256 << 10;

/// A text format that writes rows.
pub(crate) trait RowWriter: Send {
    /// Returns the schema of the rows.
    fn schema(&self) -> &Schema;

    /// Appends what stands before the first row.
    fn header(&self, _out: &mut Vec<u8>) {}

    /// Appends a row, with the text that ends a row.
    fn row(&self, out: &mut Vec<u8>, columns: &[View<'_>], row: usize);
}

/// A sink of text.
pub(crate) struct TextSink<R> {
    name: String,
    rows: R,
    buffer: Vec<u8>,
    output: Compressor,
    planted: Planted,
}

impl<R: RowWriter> TextSink<R> {
    pub fn new(output: Output, compression: Compression, rows: R, planted: Planted) -> Result<Self, IoFailure> {
        let name = output.name().to_owned();
        let output = Compressor::new(output, compression);
        let mut sink = TextSink { name, rows, buffer: Vec::with_capacity(WRITE_BYTES), output, planted };
        if sink.committed_file().is_none() {
            sink.start()?;
        }
        Ok(sink)
    }

    /// Begins an empty output.
    fn start(&mut self) -> Result<(), IoFailure> {
        self.buffer.clear();
        self.rows.header(&mut self.buffer);
        self.io(Compressor::begin)
    }

    /// Writes what is in the buffer.
    fn empty(&mut self) -> Result<(), IoFailure> {
        pour(&mut self.buffer, &mut self.output).map_err(|error| write_failed(&self.name, &error))
    }

    fn io<T>(&mut self, call: impl FnOnce(&mut Compressor) -> io::Result<T>) -> Result<T, IoFailure> {
        call(&mut self.output).map_err(|error| write_failed(&self.name, &error))
    }

    /// Returns the file that keeps the contract of sinks, in a durable run.
    fn committed_file(&mut self) -> Option<&mut CommittedFile> {
        self.output.output()?.committed_file()
    }

    /// Fails if the output was lost to an error.
    fn intact(&mut self) -> Result<(), IoFailure> {
        self.output.output().map(drop).ok_or_else(|| write_failed(&self.name, &"it failed before"))
    }

    fn is_interactive(&mut self) -> bool {
        self.output.output().is_some_and(|output| output.is_interactive())
    }

    /// Forgets what is on its way to the output.
    fn forget(&mut self) -> Result<(), IoFailure> {
        self.buffer.clear();
        self.io(Compressor::end)
    }
}

impl<R: RowWriter> Sink for TextSink<R> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        let schema = self.rows.schema();
        let columns = views(batch, schema);
        for row in 0..batch.num_rows() {
            self.rows.row(&mut self.buffer, &columns, row);
            if self.buffer.len() >= WRITE_BYTES {
                pour(&mut self.buffer, &mut self.output).map_err(|error| write_failed(&self.name, &error))?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        if self.is_interactive() {
            self.empty()?;
            self.io(Write::flush)?;
        }
        Ok(())
    }

    fn bytes(&mut self) -> Option<u64> {
        self.output.output().map(|output| output.written())
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        let Some(committed) = self.committed_file() else { return Ok(Recovered::Forgets) };
        let epoch = committed.recover()?;
        if committed.is_empty() || self.planted.is(Bug::SinkRepeatsHeader) {
            self.start()?;
        }
        Ok(Recovered::Through(epoch))
    }

    fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        let Some(committed) = self.committed_file() else { return self.intact() };
        if committed.is_old(epoch) {
            self.buffer.clear();
        }
        if !self.planted.is(Bug::SinkBuffersBeyondCommit) {
            self.empty()?;
        }
        if !self.planted.is(Bug::SinkFramesAcrossCommits) {
            self.io(Compressor::end)?;
        }
        self.committed_file().map_or(Ok(()), |committed| committed.prepare(epoch))
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        match self.committed_file() {
            Some(committed) => committed.commit(epoch),
            None => self.flush(),
        }
    }

    fn keep(&mut self) -> Result<(), IoFailure> {
        self.committed_file().map_or(Ok(()), CommittedFile::keep)
    }

    fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        let Some(committed) = self.committed_file() else { return self.intact() };
        if committed.is_old(epoch) {
            return Ok(());
        }
        self.forget()?;
        let Some(committed) = self.committed_file() else { return self.intact() };
        committed.abort(epoch)?;
        if committed.is_empty() { self.start() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        if self.committed_file().is_some() {
            self.forget()?;
            if let Some(committed) = self.committed_file() {
                committed.close()?;
                if committed.is_empty() {
                    self.start()?;
                }
            }
        }
        self.empty()?;
        let output = self.output.into_output().map_err(|error| write_failed(&self.name, &error))?;
        output.finish()
    }
}

/// Writes what is in a buffer and empties it.
fn pour(buffer: &mut Vec<u8>, output: &mut Compressor) -> io::Result<()> {
    if buffer.is_empty() {
        return Ok(());
    }
    let written = output.begin().and_then(|()| output.write_all(buffer));
    buffer.clear();
    written
}
