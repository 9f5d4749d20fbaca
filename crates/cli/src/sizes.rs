//! The sizes of a state on the disk.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The sizes of a state on the disk, in bytes. A run may change it meanwhile: then they are about right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSizes {
    /// The log.
    pub log: u64,
    /// The newest checkpoint, and what it needs of earlier ones.
    pub checkpoint: u64,
    /// The savepoints. Where the file system has hard links, they share files with the checkpoint.
    pub savepoints: u64,
    /// The time when the newest checkpoint was taken, microseconds since 1970.
    pub checkpoint_time: Option<i64>,
}

impl StateSizes {
    /// Returns the sizes of a state.
    pub fn of(path: &Path) -> StateSizes {
        let log = |name: &str| name == "log" || name.starts_with("log.");
        let written = fs::metadata(path.join("manifest")).and_then(|manifest| manifest.modified()).ok();
        let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
        let folders = fs::read_dir(path).into_iter().flatten().flatten();
        let logs = folders.filter(|entry| entry.file_name().to_str().is_some_and(log));
        StateSizes {
            log: logs.map(|entry| size(&entry.path())).sum(),
            checkpoint: size(&path.join("checkpoint")),
            savepoints: size(&path.join("savepoint")),
            checkpoint_time: since.map(|since| since.as_micros() as i64),
        }
    }
}

/// Returns the bytes of all files below a folder.
fn size(folder: &Path) -> u64 {
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        // It was removed meanwhile.
        Err(_) => 0,
    };
    fs::read_dir(folder).into_iter().flatten().flatten().map(of).sum()
}
