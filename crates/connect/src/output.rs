//! Output files: a file has its final name only when it is complete.
//!
//! In a run without a state, a file is written as `.<name>.tidemill-tmp-<pid>` in its own directory,
//! then (1) synced, (2) renamed over the final name, (3) the directory is synced. If the output
//! is dropped before that, the temporary is removed. After a crash it remains, hidden, and the next process with the
//! same id takes it over. A lock on the temporary keeps two sinks of one machine from writing the same file at once.
//!
//! In a durable run it is a [`CommittedFile`].
//!
//! Standard output, a pipe or a device cannot be replaced by a rename and is written directly.

use crate::committed_file::CommittedFile;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{File, Kind, Lock, Locked, Open, Planted, Storage, directory_of};
use tidemill_runtime::IoFailure;

/// What the sinks of a durable run share.
#[derive(Clone)]
pub struct SinkDurability {
    /// Where the files are.
    pub storage: Arc<dyn Storage>,
    /// The state whose epochs are counted: an output of another state is begun anew.
    pub owner: String,
    /// A bug on purpose.
    pub planted: Planted,
}

/// An open output.
pub(crate) struct Output {
    name: String,
    target: Target,
}

enum Target {
    Standard(io::Stdout),
    Direct(std::fs::File),
    Renamed(Temporary),
    Committed(Box<CommittedFile>),
}

/// What a path leads to.
enum Place {
    Standard,
    Direct(std::fs::File),
    /// A file, that may not be there yet, in a directory that is.
    File(PathBuf),
}

impl Output {
    /// Opens `path`, or standard output for `-`.
    pub fn open(storage: &Arc<dyn Storage>, path: &str) -> Result<Output, IoFailure> {
        let target = match place(&**storage, path)? {
            Place::Standard => return Ok(Output::standard()),
            Place::Direct(file) => Target::Direct(file),
            Place::File(file) => Target::Renamed(Temporary::open(storage, file, path)?),
        };
        Ok(Output { name: path.to_owned(), target })
    }

    /// The same for a durable run, with contents of the given form.
    pub fn open_durable(durable: &SinkDurability, path: &str, form: String) -> Result<Output, IoFailure> {
        let target = match place(&*durable.storage, path)? {
            Place::Standard => return Ok(Output::standard()),
            Place::Direct(file) => Target::Direct(file),
            Place::File(file) => Target::Committed(CommittedFile::open(path, file, durable, form)?.into()),
        };
        Ok(Output { name: path.to_owned(), target })
    }

    fn standard() -> Output {
        Output { name: "standard output".into(), target: Target::Standard(io::stdout()) }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a reader may be waiting for what is written: standard output, a pipe, a device.
    pub fn is_interactive(&self) -> bool {
        matches!(self.target, Target::Standard(_) | Target::Direct(_))
    }

    /// The committed file, if this is one.
    pub fn committed_file(&mut self) -> Option<&mut CommittedFile> {
        match &mut self.target {
            Target::Committed(committed) => Some(committed),
            _ => None,
        }
    }

    /// Makes the output whole under its final name.
    pub fn finish(self) -> Result<(), IoFailure> {
        let finished = match self.target {
            Target::Standard(mut stdout) => stdout.flush(),
            Target::Direct(mut file) => file.flush(),
            Target::Renamed(temporary) => temporary.finish(),
            Target::Committed(committed) => return committed.finish(),
        };
        finished.map_err(|error| write_failed(&self.name, &error))
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
            Target::Direct(file) => file.write(bytes),
            Target::Renamed(temporary) => temporary.file.append(bytes).map(|()| bytes.len()),
            Target::Committed(committed) => committed.append(bytes).map(|()| bytes.len()).map_err(io::Error::other),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Standard(stdout) => stdout.flush(),
            Target::Direct(file) => file.flush(),
            Target::Renamed(_) | Target::Committed(_) => Ok(()),
        }
    }
}

fn place(storage: &dyn Storage, path: &str) -> Result<Place, IoFailure> {
    if path == "-" {
        return Ok(Place::Standard);
    }
    let failed = |error: io::Error| write_failed(path, &error);
    let file = match storage.look(Path::new(path)) {
        Ok(entry) => match entry.kind {
            Kind::Directory => return Err(IoFailure::new(format!("{path} is a directory, not a file"))),
            Kind::Other => {
                let file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
                return Ok(Place::Direct(file));
            }
            // Where the path is a link, the file that it leads to is replaced, not the link.
            Kind::File => storage.resolve(Path::new(path)).map_err(failed)?,
        },
        Err(_) => PathBuf::from(path),
    };
    if path.ends_with('/') || file.file_name().is_none() {
        return Err(IoFailure::new(format!("{path} is no name of a file")));
    }
    let directory = directory_of(&file);
    match storage.look(&directory) {
        Ok(entry) if entry.kind == Kind::Directory => Ok(Place::File(file)),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(failed(error)),
        _ => Err(write_failed(path, &format!("there is no directory {}", directory.display()))),
    }
}

/// A file that is removed with this value unless it was finished.
struct Temporary {
    storage: Arc<dyn Storage>,
    file: Box<dyn File>,
    hidden: PathBuf,
    path: PathBuf,
    renamed: bool,
    _lock: Box<dyn Lock>,
}

impl Temporary {
    fn open(storage: &Arc<dyn Storage>, path: PathBuf, name: &str) -> Result<Temporary, IoFailure> {
        let failed = |error: &dyn std::fmt::Display| write_failed(name, error);
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{file_name}.tidemill-tmp-{}", std::process::id()));
        let lock = match storage.lock(&hidden, "").map_err(|error| failed(&error))? {
            Locked::Mine(lock) => lock,
            Locked::By(_) => return Err(failed(&"another sink is writing it")),
        };
        let file = storage.open(&hidden, Open::AppendOrCreate).map_err(|error| failed(&error))?;
        file.truncate(0).map_err(|error| failed(&error))?;
        Ok(Temporary { storage: storage.clone(), file, hidden, path, renamed: false, _lock: lock })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.sync()?;
        self.storage.rename(&self.hidden, &self.path)?;
        self.renamed = true;
        self.storage.sync_directory(&directory_of(&self.path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // The failure cannot be reported; a hidden file that remains does no harm.
            let _ = self.storage.remove(&self.hidden);
        }
    }
}
