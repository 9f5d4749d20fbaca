//! gzip and Zstandard around text files, in both directions.
//!
//! Reading: an explicit choice wins, then the file's name, then its first bytes. Writing: an explicit
//! choice wins, then the name.

use crate::Compression;
use crate::files::{ByteCount, FileIdentity, Place, Raw, read_failed};
use crate::output::Output;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::{self, Chain, Cursor, Read, Write};
use tidemill_io::IoFailure;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Zstandard's own default: the knee of size against time.
const ZSTD_LEVEL: i32 = 3;

/// An open text input, decompressed.
pub(crate) struct TextInput {
    pub reader: Box<dyn Read + Send>,
    /// A flag: whether a read may wait for bytes that are not written yet.
    pub live: bool,
    /// A flag: whether it is not compressed, so that bytes on the medium are bytes of text.
    pub plain: bool,
    /// The identity of the file.
    pub identity: Option<FileIdentity>,
}

/// Returns the compression that the ending of a name stands for.
fn by_name(name: &str) -> Option<Compression> {
    let ending = name.rsplit_once('.')?.1.to_ascii_lowercase();
    match ending.as_str() {
        "gz" => Some(Compression::Gzip),
        "zst" | "zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

/// Opens a text input. Reads the first bytes where neither `chosen` nor the name says how it is
/// compressed. `watches`: it is followed, and fails where it is written anew.
pub(crate) fn open_text(
    place: &Place,
    chosen: Option<Compression>,
    watches: bool,
    count: &ByteCount,
) -> Result<TextInput, IoFailure> {
    let name = place.name();
    let mut raw = place.open(count)?;
    let (live, identity) = (raw.is_live(), raw.identity());
    let failed = |error: io::Error| read_failed(&name, &error);
    if watches {
        raw.watch().map_err(failed)?;
    }
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
    Ok(TextInput { reader, live, plain: compression == Compression::None, identity })
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

/// Returns the compression of a text output: the chosen one, or else that of the path's ending.
pub(crate) fn chosen(path: &str, choice: Option<Compression>) -> Compression {
    choice.or_else(|| by_name(path)).unwrap_or(Compression::None)
}

/// An output with a compressor in front. The bytes are written as frames (gzip calls them members), one after
/// the other, each of which can be read without the others.
pub(crate) struct Compressor {
    compression: Compression,
    /// None only inside of a call that failed.
    frame: Option<Frame>,
}

enum Frame {
    /// Between two frames, or not compressed.
    None(Output),
    Gzip(GzEncoder<Output>),
    Zstd(zstd::Encoder<'static, Output>),
}

impl Compressor {
    pub fn new(output: Output, compression: Compression) -> Compressor {
        Compressor { compression, frame: Some(Frame::None(output)) }
    }

    /// Begins a frame, if none has begun.
    pub fn begin(&mut self) -> io::Result<()> {
        self.frame = Some(match (self.take()?, self.compression) {
            (Frame::None(output), Compression::Gzip) => {
                Frame::Gzip(GzEncoder::new(output, flate2::Compression::default()))
            }
            (Frame::None(output), Compression::Zstd) => Frame::Zstd(zstd::Encoder::new(output, ZSTD_LEVEL)?),
            (frame, _) => frame,
        });
        Ok(())
    }

    /// Ends the frame, if one has begun.
    pub fn end(&mut self) -> io::Result<()> {
        self.frame = Some(Frame::None(match self.take()? {
            Frame::None(output) => output,
            Frame::Gzip(encoder) => encoder.finish()?,
            Frame::Zstd(encoder) => encoder.finish()?,
        }));
        Ok(())
    }

    fn take(&mut self) -> io::Result<Frame> {
        self.frame.take().ok_or_else(failed_before)
    }

    /// Returns the output; none if compressing failed.
    pub fn output(&mut self) -> Option<&mut Output> {
        Some(match self.frame.as_mut()? {
            Frame::None(output) => output,
            Frame::Gzip(encoder) => encoder.get_mut(),
            Frame::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the frame and gives the output back.
    pub fn into_output(mut self) -> io::Result<Output> {
        self.end()?;
        match self.take()? {
            Frame::None(output) => Ok(output),
            _ => Err(failed_before()),
        }
    }
}

fn failed_before() -> io::Error {
    io::Error::other("it failed before")
}

/// Into the frame that has begun.
impl Write for Compressor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.frame.as_mut().ok_or_else(failed_before)? {
            Frame::None(output) => output.write(bytes),
            Frame::Gzip(encoder) => encoder.write(bytes),
            Frame::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.frame.as_mut().ok_or_else(failed_before)? {
            Frame::None(output) => output.flush(),
            Frame::Gzip(encoder) => encoder.flush(),
            Frame::Zstd(encoder) => encoder.flush(),
        }
    }
}
