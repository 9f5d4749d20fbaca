//! The position of a file source, as text from which a later run can continue.

use crate::files::{Place, open_file, read_failed, read_up_to};
use serde::{Deserialize, Serialize};
use tidemill_runtime::IoFailure;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes by which a file is recognized.
const HEAD_BYTES: usize = 4096;

/// A place between two records of one of a source's files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileToken {
    /// Which of the source's files.
    pub file: usize,
    /// Its name; empty after the last file.
    pub name: String,
    /// The beginning of the file, which stays the same while the file grows.
    pub head: Head,
    /// Bytes of it before the place.
    pub offset: u64,
    /// The line that begins there.
    pub line: u64,
    /// Whether the line is one whose beginning was given up.
    pub skipping: bool,
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// How many were looked at.
    pub length: usize,
    /// Their hash.
    pub hash: u64,
}

/// The beginning of a file, of at most this many bytes.
pub(crate) fn head(place: &Place, length: usize) -> Result<Head, IoFailure> {
    let Place::File(path) = place else { return Ok(Head::default()) };
    if length == 0 {
        return Ok(Head::default());
    }
    let mut bytes = vec![0; length.min(HEAD_BYTES)];
    let read = read_up_to(&mut open_file(path)?, &mut bytes).map_err(|error| read_failed(&place.name(), &error))?;
    Ok(Head { length: read, hash: xxh3_64(&bytes[..read]) })
}

/// How a file begins.
pub(crate) fn whole_head(place: &Place) -> Result<Head, IoFailure> {
    head(place, HEAD_BYTES)
}

impl FileToken {
    /// Reads a token, and checks that its file is still among the places and begins as it did.
    pub fn read(token: &str, places: &[Place]) -> Result<FileToken, IoFailure> {
        let token: FileToken = serde_json::from_str(token)
            .map_err(|error| IoFailure::new(format!("where it was left is written as '{token}': {error}")))?;
        if token.file <= places.len() && token.name.is_empty() {
            return Ok(token);
        }
        let Some(place) = places.get(token.file).filter(|place| place.name() == token.name) else {
            return Err(IoFailure::new(format!(
                "it was left in file {} of its files, {}, which is not there among them",
                token.file + 1,
                token.name
            )));
        };
        let now = head(place, token.head.length)?;
        let length = place.regular_length().unwrap_or(0);
        if now != token.head || length < token.offset {
            return Err(IoFailure::new(format!(
                "{} is not the file that it was: {} bytes of it were read, and it was changed since",
                token.name, token.offset
            )));
        }
        Ok(token)
    }
}

/// Whether all places can be read again: then the source can be.
pub(crate) fn all_regular(places: &[Place]) -> bool {
    places.iter().all(|place| place.regular_length().is_some())
}

/// What becomes of a source over places that cannot all be read again.
pub(crate) fn check_new(places: &[Place]) -> Result<(), IoFailure> {
    match places {
        [_] => Ok(()),
        _ => Err(IoFailure::new(
            "it has several inputs, of which one is no file and cannot be read again: a durable run cannot go on with it",
        )),
    }
}
