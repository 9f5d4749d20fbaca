//! The lock of an output: one sink at a time writes it.
//!
//! An output `x` is locked by the file `.x.tidemill-lock` beside it, in runs with a state and in runs without. What is
//! written is locked too: the part, the temporary, or `x` while it is finished and may go on. So an output is
//! refused to a second sink also where the file of the lock was removed.
//!
//! # Invariant
//!
//! A sink renames, replaces or removes no file of an output unless the lock's name leads to what it has locked
//! ([`OutputLock::check`]). In a run without a state the file of the lock goes with the lock, unless a run with a state
//! has left it. Who takes a lock compares the name after that, so none is taken of a file that is going.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{Bug, Lock, Locked, Planted, Storage, directory_of};

const IN_USE: &str = "another sink is writing it";

/// The lock of an output.
pub(crate) struct OutputLock {
    storage: Arc<dyn Storage>,
    planted: Planted,
    /// The file of the lock.
    path: PathBuf,
    named: Box<dyn Lock>,
    /// The lock of what is written.
    content: Option<Box<dyn Lock>>,
    /// A flag: whether the file is removed in the end.
    is_removed: bool,
}

impl OutputLock {
    /// Takes the lock of the output at `path`, for a run with a state: the file of the lock stays.
    pub fn take(storage: &Arc<dyn Storage>, path: &Path, planted: Planted) -> io::Result<OutputLock> {
        OutputLock::take_with(storage, path, planted, false)
    }

    /// Takes the lock for a run without a state: no file of the lock stays that was not there.
    pub fn take_for_once(storage: &Arc<dyn Storage>, path: &Path) -> io::Result<OutputLock> {
        let was_there = storage.look(&beside(path, "lock")).is_ok();
        OutputLock::take_with(storage, path, Planted::default(), !was_there)
    }

    fn take_with(
        storage: &Arc<dyn Storage>,
        path: &Path,
        planted: Planted,
        is_removed: bool,
    ) -> io::Result<OutputLock> {
        let file = beside(path, "lock");
        let Locked::Mine(named) = storage.lock(&file, "")? else { return Err(in_use()) };
        let storage = storage.clone();
        let mut lock = OutputLock { storage, planted, path: file, named, content: None, is_removed };
        for path in lock.temporaries(path)?.into_iter().chain([path.to_owned(), beside(path, "part")]) {
            lock.hold(&path)?;
        }
        lock.content = None;
        Ok(lock)
    }

    /// Returns the temporaries of runs without a state, of any process.
    fn temporaries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let begin = beside(path, "tmp-").file_name().unwrap_or_default().to_string_lossy().into_owned();
        let names = self.storage.list(&directory_of(path))?;
        Ok(names.into_iter().filter(|name| name.starts_with(&begin)).map(|name| path.with_file_name(name)).collect())
    }

    /// Locks what is written from now on, if it is there, instead of what was before.
    pub fn hold(&mut self, content: &Path) -> io::Result<()> {
        self.content = None;
        match self.storage.lock_entry(content) {
            Ok(Locked::Mine(lock)) => self.content = Some(lock),
            Ok(Locked::By(_)) => return Err(in_use()),
            // A file that may not be read can still be replaced.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Refuses to go on where the name of the lock does not lead to what is locked.
    pub fn check(&self) -> io::Result<()> {
        if self.planted.is(Bug::LockNotCompared) || self.named.is_in_place()? {
            return Ok(());
        }
        let path = self.path.display();
        Err(io::Error::other(format!(
            "its lock {path} was removed or replaced, so that another sink may be writing it; nothing more is written"
        )))
    }
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        if self.is_removed && self.named.is_in_place().unwrap_or(false) {
            // The failure cannot be reported; an empty file that remains does no harm.
            let _ = self.storage.remove(&self.path);
        }
    }
}

fn in_use() -> io::Error {
    io::Error::other(IN_USE)
}

/// Returns a hidden file of the output at `path`.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tidemill-{what}"))
}
