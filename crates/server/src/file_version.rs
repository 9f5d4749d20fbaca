//! Files that are read again when they change.

use std::path::Path;
use std::time::SystemTime;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl FileVersion {
    /// Of a file as it is now.
    pub fn of(path: &Path) -> FileVersion {
        let found = std::fs::metadata(path).ok();
        FileVersion {
            modified: found.as_ref().and_then(|found| found.modified().ok()),
            bytes: found.map_or(0, |found| found.len()),
        }
    }
}
