//! A segment file: its name and its header.

use crate::error::StateError;
use crate::storage::Storage;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before a segment's first record.
pub const HEADER: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"TIDELOG1");
const ENDING: &str = ".log";

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The identity of its log.
    pub log: u64,
    /// Its place among the segments; part of its name.
    pub number: u64,
    /// The position of its first record.
    pub base: u64,
    /// The check of the record before `base`.
    pub chain: u64,
    /// The last epoch before `base`.
    pub epoch: u64,
    /// Everything before this position was durable when the segment got its name.
    pub durable: u64,
}

impl Segment {
    /// Returns its encoded header.
    pub fn header(&self) -> Vec<u8> {
        let words = [MAGIC, self.log, self.number, self.base, self.chain, self.epoch, self.durable];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), HEADER, "records begin where the header ends");
        bytes
    }

    /// Reads a header; otherwise returns its fault.
    pub fn read(bytes: &[u8]) -> Result<Segment, &'static str> {
        let header = bytes.get(..HEADER).ok_or("it is shorter than the header of a segment")?;
        let word = |i: usize| u64::from_le_bytes(header[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        if word(0) != MAGIC {
            return Err("it does not begin as a segment of a log");
        }
        if xxh3_64(&header[..HEADER - 8]) != word(7) {
            return Err("its header does not have the check that it was written with");
        }
        Ok(Segment { log: word(1), number: word(2), base: word(3), chain: word(4), epoch: word(5), durable: word(6) })
    }

    /// Returns the offset in its file of a position in this segment.
    pub fn offset(&self, position: u64) -> u64 {
        assert!(self.base <= position, "a segment has the positions from its base on");
        HEADER as u64 + position - self.base
    }

    /// Returns its file.
    pub fn path(&self, directory: &Path) -> PathBuf {
        path(directory, self.number)
    }
}

/// Returns the file of a segment's number.
pub fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}{ENDING}"))
}

/// Returns the numbers of the segments in a directory, in order. Removes files that never got their final name.
pub fn numbers(storage: &dyn Storage, directory: &Path) -> Result<Vec<u64>, StateError> {
    let names = storage.list(directory).map_err(StateError::io(directory, "read"))?;
    let mut numbers = Vec::new();
    for name in names {
        let path = directory.join(&name);
        if name.ends_with(".new") {
            storage.remove(&path).map_err(StateError::io(&path, "removed"))?;
        } else if let Some(number) = name.strip_suffix(ENDING).and_then(|stem| stem.parse().ok()) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}
