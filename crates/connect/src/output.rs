//! Output files: a file has its final name only when it is complete.
//!
//! In a run without a state, a file is written as `.<name>.tidemill-tmp-<pid>` in its own directory,
//! then (1) synced, (2) renamed over the final name, (3) the directory is synced. If the output
//! is dropped before that, the temporary is removed. After a crash it remains, hidden, and the next process with the
//! same id takes it over. A lock keeps two sinks of one machine from writing the same file at once ([`OutputLock`]).
//!
//! In a durable run it is a [`CommittedFile`].
//!
//! Standard output, a pipe or a device cannot be replaced by a rename and is written directly.

use crate::committed_file::CommittedFile;
use crate::output_lock::{OutputLock, beside};
use crate::sink_record::SinkRecord;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{File, Kind, Open, Planted, StateDirectory, Storage, directory_of};
use tidemill_io::{DurableRun, IoFailure};

/// The state that the sinks of a durable run share, with a storage for files.
#[derive(Clone)]
pub struct SinkDurability {
    /// The storage of the files.
    pub storage: Arc<dyn Storage>,
    /// The state whose epochs are counted: an output of another state is begun anew.
    pub owner: String,
    /// A bug on purpose.
    pub planted: Planted,
    /// The record of what was released of their outputs.
    pub(crate) record: Arc<SinkRecord>,
}

impl SinkDurability {
    /// Shares the record of a state among its sinks, whose files are on `storage`.
    pub fn of(directory: &StateDirectory, storage: Arc<dyn Storage>) -> SinkDurability {
        let planted = directory.planted();
        let record = SinkRecord::new(storage.clone(), directory.sink_record(), directory.guard(), planted);
        SinkDurability { storage, owner: directory.owner(), planted, record: Arc::new(record) }
    }

    /// Shares the record at a path, of a state that is not there.
    pub fn at(storage: Arc<dyn Storage>, owner: &str, planted: Planted, record: &Path) -> SinkDurability {
        let record = SinkRecord::new(storage.clone(), record.to_owned(), None, planted);
        SinkDurability { storage, owner: owner.into(), planted, record: Arc::new(record) }
    }
}

impl DurableRun for SinkDurability {
    fn owner(&self) -> &str {
        &self.owner
    }
}

/// An open output.
pub(crate) struct Output {
    name: String,
    target: Target,
    /// Bytes that were written.
    written: u64,
}

enum Target {
    Standard(io::Stdout),
    Direct(std::fs::File),
    Renamed(Temporary),
    Committed(Box<CommittedFile>),
}

/// The target of a path.
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
            Place::Standard => return Output::standard(),
            Place::Direct(file) => Target::Direct(file),
            Place::File(file) => {
                let lock = OutputLock::take_for_once(storage, &file).map_err(|error| write_failed(path, &error))?;
                Target::Renamed(Temporary::open(storage, file, path, Some(lock))?)
            }
        };
        Ok(Output { name: path.to_owned(), target, written: 0 })
    }

    /// Opens `path` for a sink that holds the output by its part.
    pub fn open_held(storage: &Arc<dyn Storage>, path: &str) -> Result<Output, IoFailure> {
        let target = match place(&**storage, path)? {
            Place::Standard => return Output::standard(),
            Place::Direct(file) => Target::Direct(file),
            Place::File(file) => Target::Renamed(Temporary::open(storage, file, path, None)?),
        };
        Ok(Output { name: path.to_owned(), target, written: 0 })
    }

    /// Opens `path` for a durable run, with contents of the given form.
    pub fn open_durable(durable: &SinkDurability, path: &str, form: String) -> Result<Output, IoFailure> {
        let target = match place(&*durable.storage, path)? {
            Place::Standard => return Output::standard(),
            Place::Direct(file) => Target::Direct(file),
            Place::File(file) => Target::Committed(CommittedFile::open(path, file, durable, form)?.into()),
        };
        Ok(Output { name: path.to_owned(), target, written: 0 })
    }

    fn standard() -> Result<Output, IoFailure> {
        let name = "standard output".to_owned();
        check_standard().map_err(|_| write_failed(&name, &"it is closed"))?;
        Ok(Output { name, target: Target::Standard(io::stdout()), written: 0 })
    }

    /// Returns the name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes that were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns whether a reader may be waiting for what is written: standard output, a pipe, a device.
    pub fn is_interactive(&self) -> bool {
        matches!(self.target, Target::Standard(_) | Target::Direct(_))
    }

    /// Returns the committed file, if this is one.
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

/// Returns the failure to write on in an open output.
pub(crate) fn write_failed(name: &str, error: &dyn std::fmt::Display) -> IoFailure {
    IoFailure::new(format!("{name} cannot be written: {error}"))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.target {
            Target::Standard(stdout) => stdout.write(bytes),
            Target::Direct(file) => file.write(bytes),
            Target::Renamed(temporary) => temporary.file.append(bytes).map(|()| bytes.len()),
            Target::Committed(committed) => committed.append(bytes).map(|()| bytes.len()).map_err(io::Error::other),
        }?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Standard(stdout) => stdout.flush(),
            Target::Direct(file) => file.flush(),
            Target::Renamed(_) | Target::Committed(_) => Ok(()),
        }
    }
}

/// The names that the system has for standard output.
const STANDARD_PATHS: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Fails if nothing can be written to standard output. (The library says nothing where it is closed: what is written is
/// dropped.)
fn check_standard() -> io::Result<()> {
    let stdout = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    (&stdout).write(&[]).map(drop)
}

fn place(storage: &dyn Storage, path: &str) -> Result<Place, IoFailure> {
    if path == "-" {
        return Ok(Place::Standard);
    }
    let failed = |error: io::Error| write_failed(path, &error);
    if STANDARD_PATHS.contains(&path) {
        check_standard().map_err(|_| write_failed(path, &"it is closed"))?;
    }
    let file = match storage.look(Path::new(path)) {
        Ok(entry) => match entry.kind {
            Kind::Directory => return Err(IoFailure::new(format!("{path} is a directory, not a file"))),
            Kind::Other => {
                let file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
                return Ok(Place::Direct(file));
            }
            // If the path is a link, the file that it leads to is replaced, not the link.
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
    /// None where another value holds the output.
    lock: Option<OutputLock>,
}

impl Temporary {
    /// Begins it under a lock; without one, another value holds the output.
    fn open(
        storage: &Arc<dyn Storage>,
        path: PathBuf,
        name: &str,
        mut lock: Option<OutputLock>,
    ) -> Result<Temporary, IoFailure> {
        let hidden = beside(&path, &format!("tmp-{}", std::process::id()));
        let mut open = || {
            let file = storage.open(&hidden, Open::AppendOrCreate)?;
            lock.as_mut().map_or(Ok(()), |lock| lock.hold(&hidden))?;
            file.truncate(0)?;
            Ok::<_, io::Error>(file)
        };
        let file = open().map_err(|error| write_failed(name, &error))?;
        Ok(Temporary { storage: storage.clone(), file, hidden, path, renamed: false, lock })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.sync()?;
        self.lock.as_ref().map_or(Ok(()), OutputLock::check)?;
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
