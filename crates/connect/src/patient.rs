//! Waiting for room and for descriptors: storage whose calls wait, while the disk is full or the process has as many open
//! files as it may have, instead of failing.
//!
//! Outputs wait for both. An epoch's output is made from the log, which is durable, so it can wait, and later epochs wait
//! with it. A write that finds no room is undone by truncating the file to its length before, and tried again. A sync
//! that finds no room is a failed sync like any other, and is not tried again.
//!
//! A state waits for descriptors only: its log and its checkpoints know themselves what to do where there is no room. A call that
//! gets no descriptor has done nothing, so it is tried again as it was.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tidemill_durability::{Entry, File, Locked, Mapped, Open, Storage, is_lack_of_descriptors, is_shortage};

/// The time between two attempts.
const POLL: Duration = Duration::from_millis(100);

/// The patience of calls: it tells whether they wait, and what for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Patience(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    /// The calls that wait for room.
    for_room: AtomicUsize,
    /// The calls that wait for descriptors.
    for_descriptors: AtomicUsize,
}

impl Patience {
    /// Makes a patience that lets calls fail until [`Patience::begin`].
    pub fn later() -> Patience {
        let patience = Patience::default();
        patience.end();
        patience
    }

    /// Has calls wait from now on.
    pub fn begin(&self) {
        self.0.over.store(false, Ordering::Relaxed);
    }

    /// Has calls fail from now on that would wait.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call waits for room.
    pub fn waits(&self) -> bool {
        self.0.for_room.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a call waits for a descriptor.
    pub fn waits_for_descriptors(&self) -> bool {
        self.0.for_descriptors.load(Ordering::Relaxed) > 0
    }

    /// Tries until it is done, or fails in a way that is not to be waited for, or patience is over.
    fn until_done<T>(
        &self,
        is_waited_for: fn(&io::Error) -> bool,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        // Counted without a break, so that whoever looks sees it.
        let mut _waiting = None;
        loop {
            match attempt() {
                Err(error) if is_waited_for(&error) && !self.0.over.load(Ordering::Relaxed) => {
                    let lacks_descriptors = is_lack_of_descriptors(&error);
                    let those = if lacks_descriptors { &self.0.for_descriptors } else { &self.0.for_room };
                    _waiting = Some(Waiting::among(those));
                    std::thread::park_timeout(POLL);
                }
                done => return done,
            }
        }
    }
}

/// A call that waits, counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn among(those: &AtomicUsize) -> Waiting<'_> {
        those.fetch_add(1, Ordering::Relaxed);
        Waiting(those)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Storage whose calls wait.
pub struct Patient {
    storage: Arc<dyn Storage>,
    patience: Patience,
    /// The failures that are waited for.
    is_waited_for: fn(&io::Error) -> bool,
}

impl Patient {
    /// Wraps a storage so that calls wait for room and for descriptors.
    pub fn new(storage: Arc<dyn Storage>, patience: Patience) -> Patient {
        Patient { storage, patience, is_waited_for: is_shortage }
    }

    /// Wraps a storage so that calls wait for descriptors only.
    pub fn for_descriptors(storage: Arc<dyn Storage>, patience: Patience) -> Patient {
        Patient { storage, patience, is_waited_for: is_lack_of_descriptors }
    }

    fn until_done<T>(&self, attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.patience.until_done(self.is_waited_for, attempt)
    }

    /// A call that has failed for lack of a descriptor has done nothing; for lack of room it is not tried again.
    fn until_descriptor<T>(&self, attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.patience.until_done(is_lack_of_descriptors, attempt)
    }
}

impl Storage for Patient {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let file = self.until_done(|| self.storage.open(path, how))?;
        Ok(Box::new(PatientFile { file, patience: self.patience.clone(), is_waited_for: self.is_waited_for }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.until_done(|| self.storage.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.until_descriptor(|| self.storage.link(from, to))
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
        self.until_descriptor(|| self.storage.list(directory))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.until_done(|| self.storage.create_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.until_descriptor(|| self.storage.sync_directory(path))
    }

    fn free(&self, path: &Path) -> io::Result<Option<u64>> {
        self.storage.free(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        self.until_done(|| self.storage.lock(path, holder))
    }

    fn lock_entry(&self, path: &Path) -> io::Result<Locked> {
        self.until_descriptor(|| self.storage.lock_entry(path))
    }
}

struct PatientFile {
    file: Box<dyn File>,
    patience: Patience,
    is_waited_for: fn(&io::Error) -> bool,
}

impl File for PatientFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let length = self.file.length()?;
        self.patience.until_done(self.is_waited_for, || {
            self.file.append(bytes).or_else(|error| {
                if (self.is_waited_for)(&error) {
                    // A part of them may stand there.
                    self.file.truncate(length)?;
                }
                Err(error)
            })
        })
    }

    /// It does not wait: what is written over cannot be put back before another attempt.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn fill(&self, range: Range<u64>) -> io::Result<()> {
        self.file.fill(range)
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

    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        self.file.identity()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
