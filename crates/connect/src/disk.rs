//! The files of the operating system, as the log, the checkpoints and the sinks use them.

use crate::map::Map;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tidemill_durability::{Entry, File, Kind, Lock, Locked, Mapped, Open, Storage, directory_of};

/// Storage on the disks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).append(how != Open::Read);
        match how {
            Open::Read | Open::Append => {}
            Open::AppendOrCreate => _ = options.create(true),
            Open::CreateNew => _ = options.create_new(true),
        }
        Ok(Box::new(OnDisk(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // Across file systems, or where one has no such thing.
            Err(error) if error.kind() != io::ErrorKind::NotFound && error.kind() != io::ErrorKind::AlreadyExists => {
                fs::copy(from, to)?;
                fs::File::open(to)?.sync_all()
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
        match fs::create_dir(path) {
            Ok(()) => self.sync_directory(&directory_of(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory_of(path) != path => {
                self.create_directory(&directory_of(path))?;
                self.create_directory(path)
            }
            Err(error) => Err(error),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = Vec::new();
                file.read_to_end(&mut text)?;
                return Ok(Locked::By(String::from_utf8_lossy(&text).into_owned()));
            }
            // Some file systems have no locks; then two writers of one file are the user's to avoid.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !holder.is_empty() {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(holder.as_bytes())?;
        }
        Ok(Locked::Mine(Box::new(HeldLock { file })))
    }
}

struct OnDisk(fs::File);

impl File for OnDisk {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        Ok(Map::of(&self.0)?.map(|map| Box::new(map) as Box<dyn Mapped>))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// The lock goes with the last handle of the file. A process that is just being started from this one
/// has a copy of the handle for a moment, so the lock is given back by name.
struct HeldLock {
    file: fs::File,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // The failure cannot be reported; the lock then ends when the file is closed.
        let _ = self.file.unlock();
    }
}

impl Lock for HeldLock {}
