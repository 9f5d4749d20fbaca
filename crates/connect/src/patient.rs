//! Waiting for room: storage whose writes wait while the disk is full instead of failing.
//!
//! It is for outputs. An epoch's output is made from the log, which is durable, so it can wait, and later epochs wait
//! with it. A write that finds no room is undone by truncating the file to its length before, and tried again. A sync
//! that finds no room is a failed sync like any other, and is not tried again.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_durability::{Entry, File, Locked, Mapped, Open, Storage};

/// How long to wait for room before it is tried again.
const POLL: Duration = Duration::from_millis(100);

/// Whether writes wait for room, and whether one does. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Patience(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    waits: AtomicBool,
}

impl Patience {
    /// Has writes that find no room fail from now on.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    /// Whether a write waits for room.
    pub fn waits(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Tries until there is room, or patience is over.
    fn until_room<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::StorageFull && !self.0.over.load(Ordering::Relaxed) => {
                    self.0.waits.store(true, Ordering::Relaxed);
                    std::thread::park_timeout(POLL);
                }
                done => {
                    self.0.waits.store(false, Ordering::Relaxed);
                    return done;
                }
            }
        }
    }
}

/// Storage whose writes wait for room.
pub struct Patient {
    storage: Arc<dyn Storage>,
    patience: Patience,
}

impl Patient {
    /// Over another storage.
    pub fn new(storage: Arc<dyn Storage>, patience: Patience) -> Patient {
        Patient { storage, patience }
    }
}

impl Storage for Patient {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let file = self.patience.until_room(|| self.storage.open(path, how))?;
        Ok(Box::new(PatientFile { file, patience: self.patience.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.patience.until_room(|| self.storage.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.storage.remove(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.storage.resolve(path)
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        self.storage.look(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.storage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.patience.until_room(|| self.storage.create_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.storage.sync_directory(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        self.patience.until_room(|| self.storage.lock(path, holder))
    }
}

struct PatientFile {
    file: Box<dyn File>,
    patience: Patience,
}

impl File for PatientFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let length = self.file.length()?;
        self.patience.until_room(|| {
            self.file.append(bytes).or_else(|error| {
                if error.kind() == ErrorKind::StorageFull {
                    // A part of them may stand there.
                    self.file.truncate(length)?;
                }
                Err(error)
            })
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        self.file.map()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
