//! Refuses a sink that would overwrite a file that the same run reads.
//!
//! Paths are compared after links, `.` and `..` are resolved. A glob counts as reading each file that it
//! matches now, and the sink's own file even before it exists: the next run would read it.

use crate::files::{GLOB_CHARACTERS, glob_options};
use glob::{MatchOptions, Pattern};
use std::path::{Component, Path, PathBuf};
use tidemill_io::{SinkConnection, SourceConnection};

/// An input or an output with its name in messages, such as `source 'transfers'`.
#[derive(Clone)]
pub struct Named<'a, T: ?Sized> {
    /// The name.
    pub name: String,
    /// The connection that reads or writes.
    pub connection: &'a T,
}

/// Checks that no sink writes a file that one of the inputs reads; which does, as a sentence.
pub fn check_overlap(
    inputs: &[Named<dyn SourceConnection>],
    sinks: &[Named<dyn SinkConnection>],
) -> Result<(), String> {
    for sink in sinks {
        let Some(path) = sink.connection.path() else { continue };
        let Some(file) = replaced_file(path) else { continue };
        for input in inputs {
            if input.connection.paths().iter().any(|read| reads(read, &file)) {
                let (sink, input) = (&sink.name, &input.name);
                return Err(format!("{sink} would overwrite {path}, which {input} reads; give the sink another file"));
            }
        }
    }
    Ok(())
}

/// Returns the file that a sink replaces: none for standard output, a pipe or a device, which it writes directly.
fn replaced_file(path: &str) -> Option<PathBuf> {
    let is_file = std::fs::metadata(path).map_or(true, |data| data.is_file());
    (path != "-" && is_file).then(|| resolved(Path::new(path)))
}

/// Returns the path without links, `.` and `..`, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (directory.canonicalize(), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// Returns whether a path of a source, which may be a glob, stands for `file`.
fn reads(path: &str, file: &Path) -> bool {
    if path == "-" {
        return false;
    }
    if !path.contains(GLOB_CHARACTERS) || Path::new(path).exists() {
        return resolved(Path::new(path)) == file;
    }
    let matched = glob::glob_with(path, glob_options());
    matched.is_ok_and(|found| found.flatten().any(|found| resolved(&found) == file)) || would_match(path, file)
}

/// Returns whether a glob would match `file` if it existed.
fn would_match(glob: &str, file: &Path) -> bool {
    let is_plain = |part: &Component| !part.as_os_str().to_string_lossy().contains(GLOB_CHARACTERS);
    let parts: Vec<Component> = Path::new(glob).components().collect();
    let plain = parts.iter().take_while(|part| is_plain(part)).count();
    let directory: PathBuf = Path::new(".").components().chain(parts[..plain].iter().copied()).collect();
    let pattern: PathBuf = parts[plain..].iter().collect();
    let (Ok(below), Ok(pattern)) = (file.strip_prefix(resolved(&directory)), Pattern::new(&pattern.to_string_lossy()))
    else {
        return false;
    };
    pattern.matches_path_with(below, MatchOptions { require_literal_separator: true, ..glob_options() })
}
