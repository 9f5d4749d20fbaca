//! Files as a parameter: what log, checkpoints and file sinks ask of the machine.
//!
//! The promises are those of POSIX on a disk that may lose power, no more:
//!
//! - what was written is seen by whoever reads it next, but is durable only after [`File::sync`];
//!   until then a crash may leave any part of it, zeros, or what was there before, in any order;
//! - a file's length is as durable as its contents;
//! - a name (a file's creation, renaming or removal, a directory's creation) is durable only after
//!   [`Storage::sync_directory`] of the directory that holds it; until then a crash may keep or lose
//!   each of them on its own. A rename is atomic all the same: its target names the old file or the new;
//! - a sync that failed says nothing about what is durable, and neither does a later one that succeeds:
//!   the kernel may have dropped the pages. The file must be written anew from what is known durable;
//! - a call that failed may still have been applied, in part or whole.
//!
//! Errors are `std::io::Error`, with the kind that the operating system gives (`NotFound`,
//! `AlreadyExists`, `StorageFull`); naming the file is the caller's.

use std::io;
use std::path::{Path, PathBuf};

/// Copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Names and directories.
pub trait Storage: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>>;

    /// Gives a file another name in the same file system, in the stead of what has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file that is never written again a second name, or a copy, which is durable; none has the name.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        copy(self, from, to)
    }

    /// Removes a file, or a directory with nothing in it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The path without links, for a name that something stands under.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// What stands under a name; `NotFound` if nothing does. Links are followed.
    fn look(&self, path: &Path) -> io::Result<Entry>;

    /// The names in a directory, sorted. A name that is no UTF-8 is none of ours and is left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and those above it, as far as they are missing. Their names are synced.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Takes the exclusive lock of a file, created if missing, and writes into it who holds it, unless
    /// that is empty: then the file stays as it is. It is never waited for. The lock goes with the value, or with the process; the file stays. Another
    /// lock of the same file in this process counts as another's.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked>;
}

/// An open file. The methods may be called from several threads: an append and a sync may run side by
/// side, and the sync then covers what was appended before it began; two appends may not.
pub trait File: Send + Sync {
    /// Writes all of `bytes` at the end. After an error any part of them may stand there.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Reads from `offset` on until `into` is full or the file ends; how much was read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// The whole file as memory, where the system can show it so. Only for one that is not changed any more. What the
    /// medium cannot give back then ends the process when it is looked at.
    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        Ok(None)
    }

    /// Bytes in the file.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file off at `length`, which is at most its length. Durable after [`File::sync`].
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file as memory.
pub trait Mapped: Send + Sync {
    /// All of it.
    fn bytes(&self) -> &[u8];
}

/// How a file is opened. All but the first can be read and appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To be read. It must exist.
    Read,
    /// It must exist.
    Append,
    /// It is created if missing.
    AppendOrCreate,
    /// It must not exist.
    CreateNew,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Bytes, of a file.
    pub length: u64,
}

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A pipe, a device.
    Other,
}

/// A lock, held until it is dropped.
pub trait Lock: Send + Sync {}

/// What asking for a lock came to.
pub enum Locked {
    /// It is ours.
    Mine(Box<dyn Lock>),
    /// Somebody else holds it: the text that they left, as far as it can be read.
    By(String),
}

/// All of a file.
pub fn read_all(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path, Open::Read)?;
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes a file once more under a name that none has, durable but for the name.
pub fn copy<S: Storage + ?Sized>(storage: &S, from: &Path, to: &Path) -> io::Result<()> {
    let from = storage.open(from, Open::Read)?;
    let copy = storage.open(to, Open::CreateNew)?;
    let mut chunk = vec![0; COPY_BYTES];
    let mut at = 0;
    loop {
        let read = from.read_at(at, &mut chunk)?;
        if read == 0 {
            return copy.sync();
        }
        copy.append(&chunk[..read])?;
        at += read as u64;
    }
}

/// Puts `bytes` in the stead of a file, so that after a crash it holds the old ones or the new, and the
/// new once this has returned. Goes by way of `<name>.new` beside it, of which one writer at a time may
/// make use; one that an earlier crash left is overwritten. An error is `StorageFull` only where it holds the old ones
/// for certain: a sync that finds no room is a failed sync.
pub fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let file = storage.open(&new, Open::AppendOrCreate)?;
    file.truncate(0)?;
    file.append(bytes)?;
    let named = || {
        file.sync()?;
        storage.rename(&new, path)?;
        storage.sync_directory(&directory_of(path))
    };
    named().map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => io::Error::other(error),
        _ => error,
    })
}

/// The directory that holds `path`: `.` for a bare name.
pub fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}
