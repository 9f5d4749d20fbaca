//! Files that are read again when they change.

use std::fs::Permissions;
use std::path::Path;
use std::time::SystemTime;

/// The properties by which versions of a file are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
    /// The permissions of the file.
    permissions: Option<Permissions>,
}

impl FileVersion {
    /// Returns the version that the file has now.
    pub fn of(path: &Path) -> FileVersion {
        let found = std::fs::metadata(path).ok();
        FileVersion {
            modified: found.as_ref().and_then(|found| found.modified().ok()),
            bytes: found.as_ref().map_or(0, |found| found.len()),
            permissions: found.map(|found| found.permissions()),
        }
    }
}
