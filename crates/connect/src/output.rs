//! Output files: nothing stands under the final name until everything does.
//!
//! A file is written as `.<name>.tidemill-tmp-<pid>` in its own directory, then (1) synced, (2)
//! renamed over the final name, (3) the directory is synced. Dropped before that, the temporary is
//! removed; after a crash it stays behind, hidden, and the next process of the same id takes it over.
//! A lock on the temporary keeps two sinks of one machine from writing the same file at once.
//!
//! What is no regular file (standard output, a pipe, a device) cannot be renamed over and is written
//! directly.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tidemill_runtime::IoFailure;

/// An open output.
pub(crate) struct Output {
    name: String,
    target: Target,
}

enum Target {
    Standard(io::Stdout),
    Direct(File),
    Renamed { file: File, temporary: Temporary, path: PathBuf },
}

impl Output {
    /// Opens `path`, or standard output for `-`.
    pub fn open(path: &str) -> Result<Output, IoFailure> {
        if path == "-" {
            return Ok(Output { name: "standard output".into(), target: Target::Standard(io::stdout()) });
        }
        let failed = |error: &dyn std::fmt::Display| IoFailure::new(format!("{path} cannot be written: {error}"));
        let target = match std::fs::metadata(path) {
            Ok(data) if data.is_dir() => return Err(IoFailure::new(format!("{path} is a directory, not a file"))),
            Ok(data) if !data.is_file() => {
                Target::Direct(OpenOptions::new().write(true).open(path).map_err(|error| failed(&error))?)
            }
            // Where the path is a link, the file that it leads to is replaced, not the link.
            Ok(_) => open_temporary(std::fs::canonicalize(path).map_err(|error| failed(&error))?, path)?,
            Err(_) => open_temporary(path.into(), path)?,
        };
        Ok(Output { name: path.to_owned(), target })
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether someone may be waiting at the other end.
    pub fn is_interactive(&self) -> bool {
        !matches!(self.target, Target::Renamed { .. })
    }

    /// Makes the output whole under its final name.
    pub fn finish(mut self) -> Result<(), IoFailure> {
        let name = std::mem::take(&mut self.name);
        self.settle().map_err(|error| write_failed(&name, &error))
    }

    fn settle(self) -> io::Result<()> {
        match self.target {
            Target::Standard(mut stdout) => stdout.flush(),
            Target::Direct(mut file) => file.flush(),
            Target::Renamed { file, mut temporary, path } => {
                file.sync_all()?;
                std::fs::rename(&temporary.path, &path)?;
                temporary.renamed = true;
                File::open(directory_of(&path))?.sync_all()
            }
        }
    }
}

/// The failure to write on in an open output.
pub(crate) fn write_failed(name: &str, error: &dyn std::fmt::Display) -> IoFailure {
    IoFailure::new(format!("{name} cannot be written: {error}"))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Standard(stdout) => stdout.write(bytes),
            Target::Direct(file) | Target::Renamed { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Standard(stdout) => stdout.flush(),
            Target::Direct(file) | Target::Renamed { file, .. } => file.flush(),
        }
    }
}

/// A file that goes away with this value unless it was renamed.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // Nobody is left to tell; a hidden file staying behind does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open_temporary(path: PathBuf, name: &str) -> Result<Target, IoFailure> {
    let Some(file_name) = path.file_name().filter(|_| !name.ends_with('/')) else {
        return Err(IoFailure::new(format!("{name} is no name of a file")));
    };
    let directory = directory_of(&path);
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(IoFailure::new(format!("{name} cannot be written: there is no directory {directory}")));
    }
    let hidden = format!(".{}.tidemill-tmp-{}", file_name.to_string_lossy(), std::process::id());
    let hidden = directory.join(hidden);
    let failed = |error: &dyn std::fmt::Display| IoFailure::new(format!("{name} cannot be written: {error}"));
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(&hidden).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(failed(&"another sink is writing it")),
        // Some file systems have no locks; then two sinks of one name are the user's to avoid.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
    }
    file.set_len(0).map_err(|error| failed(&error))?;
    Ok(Target::Renamed { file, temporary: Temporary { path: hidden, renamed: false }, path })
}
