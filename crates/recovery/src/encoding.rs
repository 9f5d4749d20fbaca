//! The encoding of the log's and checkpoints' contents: numbers are LEB128, a text or run of bytes is preceded by its
//! length, batches are Arrow IPC record batch messages without a schema, with dictionaries and compressed buffers.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{CompressionType, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use std::collections::HashMap;
use tidemill_durability::CallKey;

/// Encodes batches.
pub struct BatchCodec {
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

impl Default for BatchCodec {
    fn default() -> Self {
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
        BatchCodec { options: options.expect("LZ4 is compiled in"), context: IpcWriteContext::default() }
    }
}

impl BatchCodec {
    /// Appends a batch in canonical form.
    pub fn write(&mut self, batch: &RecordBatch, into: &mut Vec<u8>) {
        let mut dictionaries = DictionaryTracker::new(true);
        let encoded = IpcDataGenerator::default().encode(batch, &mut dictionaries, &self.options, &mut self.context);
        let (_, EncodedData { ipc_message, arrow_data }) = encoded.expect("canonical columns have an IPC form");
        bytes(into, &ipc_message);
        bytes(into, &arrow_data);
    }
}

/// Reads a batch.
pub fn read_batch(reader: &mut Reader<'_>, schema: &SchemaRef) -> Result<RecordBatch, Malformed> {
    let (message, body) = (reader.bytes()?, Buffer::from(reader.bytes()?));
    let message = root_as_message(message).map_err(|error| Malformed(error.to_string()))?;
    let header = message.header_as_record_batch().ok_or_else(|| Malformed("a batch is none".into()))?;
    let read = read_record_batch(&body, header, schema.clone(), &HashMap::new(), None, &message.version());
    read.map_err(|error: ArrowError| Malformed(error.to_string()))
}

/// Bytes that have the right checksum but cannot be decoded: written by another version, or a bug.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// Appends a number.
pub fn number(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends a run of bytes, with its length before it.
pub fn bytes(into: &mut Vec<u8>, value: &[u8]) {
    number(into, value.len() as u64);
    into.extend_from_slice(value);
}

/// Appends the key of a call, with the number of its event or of its epoch before it.
pub fn write_key(of: u64, CallKey { key, arguments, called, .. }: &CallKey, into: &mut Vec<u8>) {
    number(into, of);
    bytes(into, key.as_bytes());
    into.extend_from_slice(&arguments.to_le_bytes());
    into.extend_from_slice(&called.to_le_bytes());
}

/// Reads the key of a call, with the number before it, which it has as that of its event.
pub fn read_key(reader: &mut Reader<'_>) -> Result<CallKey, Malformed> {
    let (event, key) = (reader.number()?, reader.text()?);
    Ok(CallKey { event, key, arguments: reader.word()?, called: reader.word()? as i64 })
}

/// The bytes that remain to be read.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns a byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or_else(|| Malformed("it ends too early".into()))?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads eight bytes.
    pub fn word(&mut self) -> Result<u64, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or_else(|| Malformed("it ends too early".into()))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// Returns a number.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number has no end".into()))
    }

    /// Returns a run of bytes with its length before it.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        self.run(length)
    }

    /// Returns a run of `length` bytes.
    pub fn run(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(|| Malformed("it ends too early".into()))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Returns a text with its length before it.
    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8".into()))
    }
}
