//! The files of the operating system, as the log, the checkpoints and the sinks use them.

use crate::map::Map;
use crate::system;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tidemill_durability::{Entry, File, Kind, Lock, Locked, Mapped, Open, Storage, directory_of};

/// Storage on the disks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).append(!matches!(how, Open::Read | Open::InPlace));
        match how {
            Open::Read | Open::Append => {}
            Open::AppendOrCreate => _ = options.create(true),
            Open::CreateNew => _ = options.create_new(true),
            Open::InPlace => _ = options.create(true).write(true),
        }
        Ok(Box::new(OnDisk { file: options.open(path)?, how }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // Across file systems, or where one has no such thing.
            Err(error) if error.kind() != io::ErrorKind::NotFound && error.kind() != io::ErrorKind::AlreadyExists => {
                let mut from = fs::File::open(from)?;
                let mut copy = OpenOptions::new().write(true).create_new(true).open(to)?;
                let copied = io::copy(&mut from, &mut copy).and_then(|_| copy.sync_all());
                // A part of it must not be taken for the file.
                copied.inspect_err(|_| _ = fs::remove_file(to))
            }
            done => done,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path)?.is_dir() {
            true => fs::remove_dir(path),
            false => fs::remove_file(path),
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        let data = fs::metadata(path)?;
        let kind = match data.is_dir() {
            true => Kind::Directory,
            false if data.is_file() => Kind::File,
            false => Kind::Other,
        };
        Ok(Entry { kind, length: data.len() })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let mut names: Vec<String> = names.filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        // Without a descriptor of its directory the name could not be made durable, and is not made.
        let parent = match fs::File::open(directory_of(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory_of(path) != path => {
                self.create_directory(&directory_of(path))?;
                return self.create_directory(path);
            }
            opened => opened?,
        };
        match fs::create_dir(path) {
            Ok(()) => parent.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn free(&self, path: &Path) -> io::Result<Option<u64>> {
        system::free(path).map(Some)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        loop {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            if !try_lock(&file)? {
                let mut text = Vec::new();
                file.read_to_end(&mut text)?;
                return Ok(Locked::By(String::from_utf8_lossy(&text).into_owned()));
            }
            let lock = HeldLock::of(file, path)?;
            // Between the two calls its holder may have removed the file, or somebody may have put another in its place.
            if !lock.is_in_place()? {
                continue;
            }
            if !holder.is_empty() {
                lock.file.set_len(0)?;
                (&lock.file).seek(SeekFrom::Start(0))?;
                (&lock.file).write_all(holder.as_bytes())?;
            }
            return Ok(Locked::Mine(Box::new(lock)));
        }
    }

    fn lock_entry(&self, path: &Path) -> io::Result<Locked> {
        let file = fs::File::open(path)?;
        match try_lock(&file) {
            Ok(true) => {}
            Ok(false) => return Ok(Locked::By(String::new())),
            // Some lock only what can be written, as a directory never can.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL | libc::EISDIR)) => {}
            Err(error) => return Err(error),
        }
        Ok(Locked::Mine(Box::new(HeldLock::of(file, path)?)))
    }
}

/// Takes the lock of an open file; false if another has it.
fn try_lock(file: &fs::File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        // Some file systems have no locks; then two writers of one file are the user's to avoid.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

struct OnDisk {
    file: fs::File,
    how: Open,
}

impl File for OnDisk {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        assert_ne!(self.how, Open::InPlace, "it would be written wherever the last write ended");
        (&self.file).write_all(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(self.how, Open::InPlace, "the system appends what is written to other files, whatever the offset");
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        Ok(Map::of(&self.file)?.map(|map| Box::new(map) as Box<dyn Mapped>))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(Some(inode(&self.file.metadata()?)))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The lock goes with the last handle of the file. A process that is just being started from this one
/// has a copy of the handle for a moment, so the lock is given back by name.
struct HeldLock {
    file: fs::File,
    path: PathBuf,
    /// The device and the number of the inode.
    inode: (u64, u64),
}

impl HeldLock {
    fn of(file: fs::File, path: &Path) -> io::Result<HeldLock> {
        let inode = inode(&file.metadata()?);
        Ok(HeldLock { file, path: path.to_owned(), inode })
    }
}

/// Returns the identity of a file or directory, which no other one has at that time.
fn inode(data: &fs::Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // The failure cannot be reported; the lock then ends when the file is closed.
        let _ = self.file.unlock();
    }
}

impl Lock for HeldLock {
    fn is_in_place(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(data) => Ok(inode(&data) == self.inode),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
