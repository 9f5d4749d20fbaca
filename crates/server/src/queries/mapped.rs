//! Rows as they lie in a file that is mapped, or in the bytes of an answer: nothing of them is copied.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{ArrowError, SchemaRef};
use hyper::body::Bytes;
use memmap2::{Mmap, MmapOptions};
use std::fs::File;

/// Returns the batches of a stream of Arrow that lies in a file.
pub fn batches_of(file: &File, offset: u64, length: usize) -> Result<Vec<RecordBatch>, ArrowError> {
    let map = map(file, offset, length)?;
    Ok(stream(Buffer::from(Bytes::from_owner(map)))?.1)
}

#[allow(unsafe_code)]
fn map(file: &File, offset: u64, length: usize) -> std::io::Result<Mmap> {
    // SAFETY: what a region covers is not written again while a query reads it (`tables.rs`, invariant).
    unsafe { MmapOptions::new().offset(offset).len(length).map(file) }
}

/// Returns the schema and the batches of a stream of Arrow. They lie where the bytes are.
pub fn stream(mut bytes: Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        batches.extend(decoder.decode(&mut bytes)?);
    }
    decoder.finish()?;
    let schema = decoder.schema().ok_or_else(|| ArrowError::IpcError("the stream has no schema".into()))?;
    Ok((schema, batches))
}
