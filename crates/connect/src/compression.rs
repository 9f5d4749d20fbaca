//! gzip and Zstandard around text files, in both directions.
//!
//! Reading: an explicit choice wins, then the file's name, then its first bytes. Writing: an explicit
//! choice wins, then the name.

use crate::Compression;
use crate::files::{ByteCount, Place, Raw, read_failed};
use crate::output::{Output, write_failed};
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::{self, Chain, Cursor, Read, Write};
use tidemill_runtime::IoFailure;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Zstandard's own default: the knee of size against time.
const ZSTD_LEVEL: i32 = 3;

/// An open text input, decompressed.
pub(crate) struct TextInput {
    pub reader: Box<dyn Read + Send>,
    /// Whether a read may wait for bytes that are not written yet.
    pub live: bool,
}

/// What the ending of a name says.
fn by_name(name: &str) -> Option<Compression> {
    let ending = name.rsplit_once('.')?.1.to_ascii_lowercase();
    match ending.as_str() {
        "gz" => Some(Compression::Gzip),
        "zst" | "zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

/// Opens a text input. Reads the first bytes where neither `chosen` nor the name says how it is
/// compressed.
pub(crate) fn open_text(place: &Place, chosen: Option<Compression>, count: &ByteCount) -> Result<TextInput, IoFailure> {
    let name = place.name();
    let mut raw = place.open(count)?;
    let live = raw.is_live();
    let failed = |error: io::Error| read_failed(&name, &error);
    let (start, compression) = match chosen.or_else(|| by_name(&name)) {
        Some(compression) => (Vec::new(), compression),
        None => sniff(&mut raw).map_err(failed)?,
    };
    let whole: Chain<Cursor<Vec<u8>>, Raw> = Cursor::new(start).chain(raw);
    let reader: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(MultiGzDecoder::new(whole)),
        Compression::Zstd => Box::new(zstd::Decoder::new(whole).map_err(failed)?),
    };
    Ok(TextInput { reader, live })
}

/// Reads no further than it takes to tell, so that a live input's first line is not waited past.
fn sniff(raw: &mut Raw) -> io::Result<(Vec<u8>, Compression)> {
    let mut start = Vec::new();
    for (magic, compression) in [(GZIP_MAGIC, Compression::Gzip), (ZSTD_MAGIC, Compression::Zstd)] {
        while start.len() < magic.len() && magic.starts_with(&start) {
            let mut byte = [0];
            match raw.read(&mut byte) {
                Ok(0) => return Ok((start, Compression::None)),
                Ok(_) => start.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if start.starts_with(magic) {
            return Ok((start, compression));
        }
    }
    Ok((start, Compression::None))
}

/// An open text output.
pub(crate) enum TextOutput {
    Plain(Output),
    Gzip(GzEncoder<Output>),
    Zstd(zstd::Encoder<'static, Output>),
}

impl TextOutput {
    pub fn open(path: &str, chosen: Option<Compression>) -> Result<TextOutput, IoFailure> {
        let output = Output::open(path)?;
        let name = output.name().to_owned();
        Ok(match chosen.or_else(|| by_name(path)).unwrap_or(Compression::None) {
            Compression::None => TextOutput::Plain(output),
            Compression::Gzip => TextOutput::Gzip(GzEncoder::new(output, flate2::Compression::default())),
            Compression::Zstd => {
                TextOutput::Zstd(zstd::Encoder::new(output, ZSTD_LEVEL).map_err(|error| write_failed(&name, &error))?)
            }
        })
    }

    fn output(&self) -> &Output {
        match self {
            TextOutput::Plain(output) => output,
            TextOutput::Gzip(encoder) => encoder.get_ref(),
            TextOutput::Zstd(encoder) => encoder.get_ref(),
        }
    }

    /// Takes everything in `buffer` and empties it.
    pub fn write(&mut self, buffer: &mut Vec<u8>) -> Result<(), IoFailure> {
        let written = match self {
            TextOutput::Plain(output) => output.write_all(buffer),
            TextOutput::Gzip(encoder) => encoder.write_all(buffer),
            TextOutput::Zstd(encoder) => encoder.write_all(buffer),
        };
        buffer.clear();
        written.map_err(|error| write_failed(self.output().name(), &error))
    }

    /// Whether someone may be waiting at the other end.
    pub fn is_interactive(&self) -> bool {
        self.output().is_interactive()
    }

    /// Hands everything written so far to the operating system.
    pub fn flush(&mut self) -> Result<(), IoFailure> {
        let flushed = match self {
            TextOutput::Plain(output) => output.flush(),
            TextOutput::Gzip(encoder) => encoder.flush(),
            TextOutput::Zstd(encoder) => encoder.flush(),
        };
        flushed.map_err(|error| write_failed(self.output().name(), &error))
    }

    /// Ends the compressed stream and makes the output whole.
    pub fn finish(self) -> Result<(), IoFailure> {
        let name = self.output().name().to_owned();
        let failed = |error: io::Error| write_failed(&name, &error);
        match self {
            TextOutput::Plain(output) => Ok(output),
            TextOutput::Gzip(encoder) => encoder.finish().map_err(failed),
            TextOutput::Zstd(encoder) => encoder.finish().map_err(failed),
        }?
        .finish()
    }
}
