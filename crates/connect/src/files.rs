//! Input files: which ones a path means, opening them, counting what was read of them.
//!
//! With `output.rs` the only place that touches `std::fs` and the standard streams.

use crate::bad::quoted;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_io::IoFailure;

/// The place that input is read from: standard input or a file, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Standard,
    File(PathBuf),
}

impl Place {
    /// Returns the name in messages.
    pub fn name(&self) -> String {
        match self {
            Place::Standard => "standard input".to_owned(),
            Place::File(path) => path.display().to_string(),
        }
    }

    /// Returns whether the place is a regular file. What is none there, a directory, or may not be read is refused.
    pub fn check(&self) -> Result<bool, IoFailure> {
        let Place::File(path) = self else { return Ok(false) };
        // A pipe is not opened before its turn: that would wait for its writer.
        match std::fs::metadata(path) {
            Ok(data) if !data.is_file() && !data.is_dir() => Ok(false),
            _ => open_file(path).map(|_| true),
        }
    }

    /// Returns its length where it is a regular file: one that can be opened again and whose end is known.
    pub fn regular_length(&self) -> Option<u64> {
        match self {
            Place::Standard => None,
            Place::File(path) => std::fs::metadata(path).ok().filter(|data| data.is_file()).map(|data| data.len()),
        }
    }

    /// Returns the identity and length of the file that has its name now, if there is one.
    pub fn look(&self) -> Option<(Option<FileIdentity>, u64)> {
        let Place::File(path) = self else { return None };
        let data = std::fs::metadata(path).ok()?;
        Some((FileIdentity::of(&data), data.len()))
    }

    /// Opens it, counting what is read into `count`.
    pub fn open(&self, count: &ByteCount) -> Result<Raw, IoFailure> {
        match self {
            Place::Standard => Ok(Raw::new(RawReader::Standard(io::stdin()), count)),
            Place::File(path) => Ok(Raw::new(RawReader::File(open_file(path)?), count)),
        }
    }
}

/// Opens a file for reading. A directory is refused here rather than at the first read.
pub(crate) fn open_file(path: &Path) -> Result<File, IoFailure> {
    let name = path.display();
    let file = File::open(path).map_err(|error| IoFailure::new(format!("{name} cannot be opened: {error}")))?;
    match file.metadata() {
        Ok(data) if data.is_dir() => Err(IoFailure::new(format!("{name} is a directory, not a file"))),
        Ok(_) => Ok(file),
        Err(error) => Err(read_failed(&name.to_string(), &error)),
    }
}

/// Returns the failure to read on in an open input.
pub(crate) fn read_failed(name: &str, error: &dyn std::fmt::Display) -> IoFailure {
    IoFailure::new(format!("{name} cannot be read: {error}"))
}

/// Returns the places that paths stand for, in the order in which they are read.
pub(crate) fn places(paths: &[String]) -> Result<Vec<Place>, IoFailure> {
    let mut places = Vec::new();
    for path in paths {
        if path != "-" {
            matches_of(path, &mut places)?;
        } else if places.contains(&Place::Standard) {
            return Err(IoFailure::new("standard input ('-') can be read only once"));
        } else {
            places.push(Place::Standard);
        }
    }
    if places.is_empty() {
        return Err(IoFailure::new("no path was given to read from"));
    }
    Ok(places)
}

/// The characters that make a path a glob, unless there is a file of that name.
pub(crate) const GLOB_CHARACTERS: [char; 3] = ['*', '?', '['];

/// Returns the rules by which globs match. Hidden files must be asked for: unfinished output lies under hidden names.
pub(crate) fn glob_options() -> glob::MatchOptions {
    glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() }
}

/// Adds the file of that name, or where there is none the matches of the glob, sorted by name.
fn matches_of(path: &str, places: &mut Vec<Place>) -> Result<(), IoFailure> {
    if !path.contains(GLOB_CHARACTERS) || Path::new(path).exists() {
        places.push(Place::File(path.into()));
        return Ok(());
    }
    let refused = |error: &dyn std::fmt::Display| IoFailure::new(format!("the glob {} fails: {error}", quoted(path)));
    let mut found = Vec::new();
    for entry in glob::glob_with(path, glob_options()).map_err(|error| refused(&error))? {
        let entry = entry.map_err(|error| refused(&error))?;
        if !entry.is_dir() {
            found.push(entry);
        }
    }
    if found.is_empty() {
        return Err(IoFailure::new(format!("no file matches {}", quoted(path))));
    }
    found.sort();
    places.extend(found.into_iter().map(Place::File));
    Ok(())
}

/// Bytes read so far, shared by a reader (which adds) and its source (which looks).
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the count after a seek of the reader.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// An open input, as its bytes lie on the medium.
pub(crate) struct Raw {
    reader: RawReader,
    count: ByteCount,
    /// The first and last bytes that were read, if the file is followed.
    watched: Option<Watched>,
}

enum RawReader {
    Standard(io::Stdin),
    File(File),
}

impl Raw {
    fn new(reader: RawReader, count: &ByteCount) -> Raw {
        Raw { reader, count: count.clone(), watched: None }
    }

    /// Watches the file: from now on reading fails if what was read before is not there any more. What is before the
    /// current place counts as read.
    pub fn watch(&mut self) -> io::Result<()> {
        if let RawReader::File(file) = &self.reader {
            self.watched = Some(Watched::of(file, self.count.get())?);
        }
        Ok(())
    }

    /// Returns whether a read may wait for bytes that are not written yet: a pipe, a terminal, a device.
    pub fn is_live(&self) -> bool {
        match &self.reader {
            RawReader::Standard(_) => true,
            RawReader::File(file) => !file.metadata().is_ok_and(|data| data.is_file()),
        }
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> Option<FileIdentity> {
        match &self.reader {
            RawReader::Standard(_) => None,
            RawReader::File(file) => FileIdentity::of(&file.metadata().ok()?),
        }
    }
}

/// The identity of an open file: another one of the same name has another identity. None where the system has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    number: u64,
}

impl FileIdentity {
    #[cfg(unix)]
    fn of(data: &Metadata) -> Option<FileIdentity> {
        use std::os::unix::fs::MetadataExt;
        Some(FileIdentity { device: data.dev(), number: data.ino() })
    }

    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Option<FileIdentity> {
        None
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.reader {
            RawReader::Standard(stdin) => stdin.read(into),
            RawReader::File(file) => file.read(into),
        }?;
        if let (Some(watched), RawReader::File(file)) = (&mut self.watched, &self.reader) {
            watched.check(file)?;
            watched.push(&into[..read]);
        }
        self.count.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Seek for Raw {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.reader {
            RawReader::Standard(_) => Err(io::ErrorKind::NotSeekable.into()),
            RawReader::File(file) => file.seek(to),
        }
    }
}

/// Bytes at each end of what was read by which it is recognized.
const WATCHED_BYTES: usize = 4096;

/// The first and the last bytes that were read of a file.
///
/// They are compared after each read. A file that is written anew in place before a read, and is longer than before at it,
/// has other bytes there then; one that is shorter is told by its length.
struct Watched {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// All bytes that were read.
    count: u64,
}

impl Watched {
    /// Keeps the ends of the first `count` bytes of a file.
    fn of(file: &File, count: u64) -> io::Result<Watched> {
        let length = count.min(WATCHED_BYTES as u64) as usize;
        let head = bytes_at(file, 0, length)?;
        let tail = bytes_at(file, count - length as u64, length)?;
        Ok(Watched { head, tail, count })
    }

    /// Adds bytes that follow.
    fn push(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        self.head.extend(bytes.iter().take(WATCHED_BYTES - self.head.len()));
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(WATCHED_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(WATCHED_BYTES));
    }

    /// Fails if the file is at least as long and has other bytes.
    fn check(&self, file: &File) -> io::Result<()> {
        let is = |offset: u64, bytes: &[u8]| bytes_at(file, offset, bytes.len()).map(|now| now == bytes);
        if is(self.count - self.tail.len() as u64, &self.tail)? && is(0, &self.head)? {
            return Ok(());
        }
        if file.metadata()?.len() < self.count {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "it was written anew while it was followed, after {} bytes of it were read: rename a file, and begin another \
             one, instead",
            self.count
        )))
    }
}

/// Returns the bytes of a file, fewer at its end; where it is read next stays the same.
fn bytes_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Fills `into` from the start as far as the input goes; how far that was.
pub(crate) fn read_up_to(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The progress of a source over several places, in bytes on the medium.
#[derive(Debug, Default)]
pub(crate) struct FileProgress {
    lengths: Vec<Option<u64>>,
    /// The length of the places before the current one, in bytes on the medium.
    done: u64,
}

impl FileProgress {
    pub fn new(places: &[Place]) -> Self {
        FileProgress { lengths: places.iter().map(Place::regular_length).collect(), done: 0 }
    }

    /// Forgets the lengths, for files that grow while they are read.
    pub fn without_end(&mut self) {
        self.lengths.fill(None);
    }

    /// Counts the places before `index` as read, by an earlier run.
    pub fn skip_to(&mut self, index: usize) {
        self.done = self.lengths[..index].iter().flatten().sum();
    }

    /// Counts the place `index` as read to its end; `read`: the bytes that were read of it, used where its length is
    /// not known.
    pub fn finish(&mut self, index: usize, read: u64) {
        self.done += self.lengths[index].unwrap_or(read);
    }

    /// Returns the progress with `current` bytes of place `index` read.
    pub fn at(&self, index: usize, current: u64) -> tidemill_io::SourceProgress {
        let current = self.lengths.get(index).copied().flatten().map_or(current, |length| current.min(length));
        let total = self.lengths.iter().copied().sum::<Option<u64>>();
        tidemill_io::SourceProgress { done: self.done + current, total }
    }
}
