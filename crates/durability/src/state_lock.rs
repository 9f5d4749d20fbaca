//! The lock of a state: one process at a time has it.
//!
//! Two things are locked: the file `lock`, which says who the holder is, and the directory itself. A name can be removed
//! and given to another file, and the lock stays with the file that nobody finds any more. The directory cannot be
//! replaced without what is in it, so whoever finds the state finds its lock.
//!
//! # Invariant
//!
//! Only the process that has locked the directory, and the file that has the name `lock` in it, writes the state. Who begins takes
//! both, and is refused if another has either. The holder asks before each write to the log, before each checkpoint file and
//! before each manifest whether both names still lead to what it has locked ([`StateLock::check`]), and ends if not: a
//! file system may have no lock of a directory, and a name that leads elsewhere is written by this process and by the
//! next. What was released before is durable.
//!
//! **Traded away.** A file that is removed from a running state ends the run, also where the lock of the directory
//! would have kept others away.

use crate::error::StateError;
use crate::storage::{Lock, Locked, Storage, read_all};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// A look at the lock of a state, for those who write a file of it elsewhere. It does not keep the lock.
#[derive(Clone)]
pub struct Guard(Weak<StateLock>);

impl Guard {
    pub(crate) fn of(lock: &Arc<StateLock>) -> Guard {
        Guard(Arc::downgrade(lock))
    }

    /// Refuses to go on where the state was let go, or is not what was locked.
    pub fn check(&self) -> Result<(), StateError> {
        let let_go = || StateError::Refused("the state was let go: nothing more is written".into());
        self.0.upgrade().ok_or_else(let_go)?.check()
    }
}

/// The lock of a state. Dropping it gives the state free.
pub(crate) struct StateLock {
    path: PathBuf,
    directory: Box<dyn Lock>,
    file: Box<dyn Lock>,
}

/// The process that has the state, in words.
pub(crate) struct TakenBy(pub String);

impl StateLock {
    /// Takes the lock of a state directory that is there. Writes `holder` into its file, unless that is empty.
    pub(crate) fn take(
        storage: &dyn Storage,
        path: &Path,
        holder: &str,
    ) -> Result<Result<StateLock, TakenBy>, StateError> {
        let name = path.join("lock");
        let directory = match storage.lock_entry(path).map_err(StateError::io(path, "locked"))? {
            Locked::Mine(lock) => lock,
            // The file may have been removed, or is another's.
            Locked::By(_) => return Ok(Err(TakenBy::of(&read_all(storage, &name).unwrap_or_default()))),
        };
        match storage.lock(&name, holder).map_err(StateError::io(&name, "locked"))? {
            Locked::Mine(file) => Ok(Ok(StateLock { path: path.to_owned(), directory, file })),
            Locked::By(other) => Ok(Err(TakenBy::of(other.as_bytes()))),
        }
    }

    /// Refuses to go on where a name does not lead to what is locked.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        let name = self.path.join("lock");
        for (lock, path, what) in
            [(&self.directory, &self.path, "its directory"), (&self.file, &name, "its file 'lock'")]
        {
            if !lock.is_in_place().map_err(StateError::io(path, "looked at"))? {
                return Err(StateError::LetGo { state: self.path.clone(), what: what.into() });
            }
        }
        Ok(())
    }
}

impl TakenBy {
    /// Reads the holder from the content of the lock file.
    fn of(written: &[u8]) -> TakenBy {
        let written = String::from_utf8_lossy(written);
        let written = written.trim();
        TakenBy(if written.is_empty() { "another process".into() } else { written.into() })
    }
}
