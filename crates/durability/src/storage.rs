//! Files as a parameter: the operations that log, checkpoints and file sinks need from the system.
//!
//! The promises are those of POSIX on a disk that may lose power, no more:
//!
//! - a write is visible to every later read, but is durable only after [`File::sync`]; until then a crash may leave
//!   any part of it, zeros, or the earlier content, in any order;
//! - a file's length is as durable as its contents;
//! - a name (a file's creation, renaming or removal, a directory's creation) is durable only after
//!   [`Storage::sync_directory`] of the directory that holds it; until then a crash may keep or lose each of them on
//!   its own. A rename is atomic all the same: its target names the old file or the new;
//! - a failed sync says nothing about what is durable, and neither does a later one that succeeds: the kernel may
//!   have dropped the pages. The file must be written anew from data that is known to be durable;
//! - a call that failed may still have been applied, in part or whole.
//!
//! Errors are `std::io::Error`, with the kind that the operating system gives (`NotFound`, `AlreadyExists`,
//! `StorageFull`). The caller adds the name of the file.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Zeros written at once. Where a page cache keeps what one write gave as one piece, however large, each sync of a few bytes of
/// it goes through all of it.
const ZEROS: &[u8] = &[0; 4096];

/// A file system: names and directories.
pub trait Storage: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>>;

    /// Renames a file within the same file system, and replaces any file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, or makes a durable copy under that name. The file is never written again, and no
    /// other file has the name.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        copy(self, from, to)
    }

    /// Removes a file, or an empty directory.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the path with its links resolved; something must exist under it.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Returns the entry under a name; `NotFound` if there is none. Links are followed.
    fn look(&self, path: &Path) -> io::Result<Entry>;

    /// Returns the names in a directory, sorted. Names that are not UTF-8 are not ours, and are left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and its missing parents. Their names are synced.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the bytes for which there is room in the file system that has a path; none if nobody knows.
    fn free(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Takes the exclusive lock of a file, which is created if missing. Writes `holder` into the file, unless it is
    /// empty: then the file stays as it is. Never waits. The lock is released with the value, or with the process;
    /// the file stays. A lock of the same file in this process counts as another's. What is locked is the file that has
    /// the name when this returns.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked>;

    /// Takes the exclusive lock of a file or directory that is there, likewise, and leaves it as it is. Where the file
    /// system has no lock of it, everybody is given it.
    fn lock_entry(&self, path: &Path) -> io::Result<Locked>;
}

/// An open file. Several threads may call the methods. An append and a sync may run concurrently, and the sync then
/// covers the bytes that were appended before it began; two appends may not. Nor may two other writes.
pub trait File: Send + Sync {
    /// Writes all of `bytes` at the end. After an error the file may have any part of them.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, which is at most the length, over what stands there, and beyond the end. Only for
    /// a file that is open for that ([`Open::InPlace`]). After an error any part of them may stand there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeros over all that stands in a range, which begins at most at the end, as [`File::write_at`] does.
    fn fill(&self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let page = (at + 1).next_multiple_of(ZEROS.len() as u64).min(range.end);
            self.write_at(at, &ZEROS[..(page - at) as usize])?;
            at = page;
        }
        Ok(())
    }

    /// Reads from `offset` until `into` is full or the file ends; returns the number of bytes read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns the whole file, mapped into memory, if the system can do so. Only for a file that is not changed any
    /// more. If the medium cannot read a page, access to it ends the process.
    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        Ok(None)
    }

    /// Returns the bytes in the file.
    fn length(&self) -> io::Result<u64>;

    /// Returns what distinguishes the file from every other that is there, under whatever name; none if the system cannot say.
    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Cuts the file to `length`, which is at most its length. Durable after [`File::sync`].
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file mapped into memory.
pub trait Mapped: Send + Sync {
    /// Returns the whole file.
    fn bytes(&self) -> &[u8];
}

/// The mode in which a file is opened. Except with the first and the last, it can be read and appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file is opened for reading, and must exist.
    Read,
    /// The file must exist.
    Append,
    /// The file is created if it is missing.
    AppendOrCreate,
    /// The file is created, and must not exist.
    CreateNew,
    /// The file is created if it is missing, and can be read and written at any place, not appended to.
    InPlace,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// The length in bytes, if the entry is a file.
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

/// A lock, held until it is dropped. It is of a file or directory, not of a name: another may be given the name.
pub trait Lock: Send + Sync {
    /// Returns whether the name still leads to what is locked. If it does not, another process may hold what has the name now.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// The result of asking for a lock.
pub enum Locked {
    /// This caller has the lock.
    Mine(Box<dyn Lock>),
    /// Another holder has the lock. The text is the one that it wrote, as far as it can be read.
    By(String),
}

/// Returns whether a call was refused for lack of room on the disk or of file descriptors: it has done nothing, or only a part of
/// a write, and may succeed at a later time.
pub fn is_shortage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull || is_lack_of_descriptors(error)
}

/// Returns whether the process, or the system, has as many open files as it may have.
pub fn is_lack_of_descriptors(error: &io::Error) -> bool {
    // The numbers are the same on all systems that have them.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Returns the whole content of a file.
pub fn read_all(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path, Open::Read)?;
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies a file to a name that no file has. The content is durable, the name is not.
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

/// Replaces the content of a file by `bytes`. After a crash the file has the old content or the new, and the new once
/// this has returned. Writes `<name>.new` beside it first, which only one writer at a time may use; a file that an
/// earlier crash left there is overwritten. The error is `StorageFull` only if the file certainly has the old
/// content: a sync that finds no room is a failed sync.
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

/// Returns the directory of `path`: `.` for a bare name.
pub fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}
