//! The position of a file source, as text from which a later run can continue.
//!
//! Files may grow at their ends, and new ones may come after those that were read. Anything else is refused, with the
//! name of the file and what differs: a source's events have one order, and what was read stands in it already.

use crate::files::{Place, open_file, read_failed, read_up_to};
use serde::{Deserialize, Serialize};
use std::io::{Seek, SeekFrom};
use tidemill_io::IoFailure;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes by which a file is recognized.
const HEAD_BYTES: usize = 4096;
/// Bytes before a place by which it is recognized.
pub(crate) const TAIL_BYTES: usize = 512;
/// Files before the current one that a token names; of those before them it has a hash.
const NAMED_FILES_MAX: usize = 32;

/// A place between two records of one of a source's files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileToken {
    /// The index of the file among the source's files.
    pub file: usize,
    /// The file's name. (Older states have an empty name after the last file.)
    pub name: String,
    /// The beginning of the file, which stays the same while the file grows.
    pub head: Head,
    /// The number of bytes of the file before the place.
    pub offset: u64,
    /// The line that begins there.
    pub line: u64,
    /// A flag: whether the line is one whose beginning was given up.
    pub skipping: bool,
    /// The last bytes before the place.
    #[serde(default)]
    pub tail: Head,
    /// A flag: whether the record before the place had no line end when it was read.
    #[serde(default)]
    pub is_unended: bool,
    /// The extent to which it was read, for a compressed file, which is read again from its beginning.
    #[serde(default)]
    pub compressed: Option<Compressed>,
    /// The files that were read before this one.
    #[serde(default)]
    pub before: Option<Before>,
}

/// The extent to which a compressed file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Compressed {
    /// The file was read up to some record.
    Begun,
    /// The file was read to its end, with this number of bytes on the medium.
    Whole(u64),
}

/// Some bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The number of bytes that were looked at.
    pub length: usize,
    /// The hash of these bytes.
    pub hash: u64,
}

impl Head {
    /// Returns the length and hash of these bytes.
    pub fn of(bytes: &[u8]) -> Head {
        if bytes.is_empty() { Head::default() } else { Head { length: bytes.len(), hash: xxh3_64(bytes) } }
    }
}

/// The files that were read before the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// A hash of names and lengths of all but the last.
    older: u64,
    /// The last of them: names, and lengths on the medium.
    files: Vec<(String, u64)>,
    /// The mark by which each of these is recognized. (Older states do not have it.)
    #[serde(default)]
    marks: Vec<u64>,
}

impl Before {
    /// Adds the next file, of which `length` bytes were read.
    pub fn push(&mut self, place: &Place, length: u64) {
        self.name(place, length);
        self.marks.push(mark(place, length));
        self.marks.drain(..self.marks.len().saturating_sub(NAMED_FILES_MAX));
    }

    /// Adds the name and the length of the next file.
    fn name(&mut self, place: &Place, length: u64) {
        self.files.push((place.name(), length));
        if self.files.len() > NAMED_FILES_MAX {
            let (name, length) = self.files.remove(0);
            self.older = xxh3_64_with_seed(format!("{length} {name}").as_bytes(), self.older);
        }
    }

    /// Records these places as they are now.
    pub fn of(places: &[Place]) -> Before {
        let mut before = Before::default();
        let length = |place: &Place| place.regular_length().unwrap_or(0);
        let (older, named) = places.split_at(places.len().saturating_sub(NAMED_FILES_MAX));
        older.iter().for_each(|place| before.name(place, length(place)));
        named.iter().for_each(|place| before.push(place, length(place)));
        before
    }

    /// Checks that these files, and then the one of this name, are still the first of the places.
    fn check(&self, name: &str, file: usize, places: &[Place]) -> Result<(), IoFailure> {
        let named = self.files.len();
        assert!(named <= file, "a token names files before its own");
        let now = Before::of(&places[..file.min(places.len())]);
        let refused = |text: String| Err(IoFailure::new(text));
        let was = self.files.iter().map(|(name, _)| name.as_str()).chain([name]);
        let is = places.iter().skip(file - named).map(Place::name);
        for (was, is) in was.clone().zip(is) {
            if was == is {
                continue;
            }
            let is_there = places.iter().any(|place| place.name() == was);
            return refused(match is_there {
                true => format!(
                    "{is} is new and comes before {name}, which was read already: what it has cannot come before what \
                     was taken; give it a name that sorts after {name}, or a source of its own"
                ),
                false => format!("{was} was read before and is not there any more"),
            });
        }
        if places.len() <= file {
            return refused(format!(
                "it was left in file {} of its files, {name}, which is not there any more",
                file + 1
            ));
        }
        for ((name, was), (_, is)) in self.files.iter().zip(&now.files) {
            if was != is {
                return refused(format!(
                    "{name} had {was} bytes when it was read, and has {is} now: files after it were read already, so \
                     nothing can follow in it"
                ));
            }
        }
        // Marks that an older state lacks are those of the first files.
        let marks = self.marks.iter().rev().zip(now.marks.iter().rev());
        for ((name, _), (was, is)) in self.files.iter().rev().zip(marks) {
            if was != is {
                return refused(format!(
                    "{name} was read and is not as it was, though it has as many bytes: put changes into new events"
                ));
            }
        }
        if self.older != now.older {
            return refused(format!("one of the first {} files is not as it was when it was read", file - named));
        }
        Ok(())
    }
}

/// Returns the mark by which a file of which this much was read is recognized: a hash of its first and of its last
/// bytes; 0 if it cannot be read.
pub(crate) fn mark(place: &Place, length: u64) -> u64 {
    let tail = length.min(TAIL_BYTES as u64);
    let ends = [(0, length.min(HEAD_BYTES as u64)), (length - tail, tail)];
    let hashes = ends.map(|(offset, length)| bytes_at(place, offset, length as usize).map(|bytes| bytes.hash));
    let [Ok(head), Ok(tail)] = hashes else { return 0 };
    xxh3_64_with_seed(&head.to_le_bytes(), tail)
}

/// Returns the beginning of a file, of at most this many bytes.
fn head(place: &Place, length: usize) -> Result<Head, IoFailure> {
    bytes_at(place, 0, length.min(HEAD_BYTES))
}

/// Returns the bytes of a file.
fn bytes_at(place: &Place, offset: u64, length: usize) -> Result<Head, IoFailure> {
    let Place::File(path) = place else { return Ok(Head::default()) };
    if length == 0 {
        return Ok(Head::default());
    }
    let failed = |error| read_failed(&place.name(), &error);
    let mut file = open_file(path)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = vec![0; length];
    let read = read_up_to(&mut file, &mut bytes).map_err(failed)?;
    Ok(Head::of(&bytes[..read]))
}

/// Returns the first bytes of a file.
pub(crate) fn whole_head(place: &Place) -> Result<Head, IoFailure> {
    head(place, HEAD_BYTES)
}

impl FileToken {
    /// Reads a token, and checks that what was read before it is still there as it was.
    pub fn read(token: &str, places: &[Place]) -> Result<FileToken, IoFailure> {
        let mut token: FileToken = parsed(token)?;
        if token.file <= places.len() && token.name.is_empty() {
            return Ok(token);
        }
        let before = token.before.clone().unwrap_or_else(|| Before::of(&places[..token.file.min(places.len())]));
        before.check(&token.name, token.file, places)?;
        let place = &places[token.file];
        let (name, offset) = (&token.name, token.offset);
        let length = place.regular_length().unwrap_or(0);
        let refused = |text: String| Err(IoFailure::new(format!("{name} is not the file that it was: {text}")));
        if token.compressed.is_none() && length < offset {
            return refused(format!("{offset} bytes of it were read, and it has only {length} now"));
        }
        if head(place, token.head.length)? != token.head {
            return refused(format!("{offset} bytes of it were read, and it begins otherwise now"));
        }
        if bytes_at(place, offset - token.tail.length as u64, token.tail.length)? != token.tail {
            return refused(format!(
                "the {} bytes before byte {offset} were read and were changed since",
                token.tail.length
            ));
        }
        if token.is_unended && length > offset {
            let more = [b"\n".as_slice(), b"\r\n"]
                .into_iter()
                .find(|end| bytes_at(place, offset, end.len()).is_ok_and(|bytes| bytes == Head::of(end)));
            let Some(end) = more else {
                return refused(format!(
                    "its last line was taken without a line end, up to byte {offset}, by a final run, and \
                     has grown since"
                ));
            };
            token.offset += end.len() as u64;
            (token.tail, token.is_unended) = (Head::default(), false);
        }
        Ok(token)
    }
}

/// A place between two rows of one of a source's columnar files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowToken {
    /// The index of the file among the source's files.
    pub file: usize,
    /// Its name.
    pub name: String,
    /// Its length on the medium.
    pub length: u64,
    /// The number of rows of the file before the place.
    pub rows: u64,
    /// A flag: whether the file has no other rows.
    pub is_whole: bool,
    /// The mark by which the file is recognized.
    #[serde(default)]
    pub mark: Option<u64>,
    /// The files that were read before this one.
    pub before: Before,
}

impl RowToken {
    /// Reads a token, and checks that what was read before it is still there as it was.
    pub fn read(token: &str, places: &[Place]) -> Result<RowToken, IoFailure> {
        let token: RowToken = parsed(token)?;
        token.before.check(&token.name, token.file, places)?;
        let (name, was, is) = (&token.name, token.length, places[token.file].regular_length().unwrap_or(0));
        if was != is {
            return Err(IoFailure::new(format!(
                "{name} had {was} bytes when it was read, and has {is} now: a file of this format cannot be read on; put \
                 new events into a new file"
            )));
        }
        if token.mark.is_some_and(|was| was != mark(&places[token.file], is)) {
            return Err(IoFailure::new(format!(
                "{name} was read and is not as it was, though it has as many bytes: put changes into new events"
            )));
        }
        Ok(token)
    }
}

fn parsed<'a, T: Deserialize<'a>>(token: &'a str) -> Result<T, IoFailure> {
    serde_json::from_str(token)
        .map_err(|error| IoFailure::new(format!("where it was left is written as '{token}': {error}")))
}

/// Returns whether all places can be read again: then the source can be.
pub(crate) fn all_regular(places: &[Place]) -> bool {
    places.iter().all(|place| place.regular_length().is_some())
}

/// Checks that a durable run can go on with a source over places that cannot all be read again: only if there is one
/// place.
pub(crate) fn check_new(places: &[Place]) -> Result<(), IoFailure> {
    match places {
        [_] => Ok(()),
        _ => Err(IoFailure::new(
            "it has several inputs, of which one is no file and cannot be read again: a durable run cannot go on with it",
        )),
    }
}
