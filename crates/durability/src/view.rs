//! A state as it stands at one moment, to be read while a run goes on with it.
//!
//! A reader takes no lock for longer than this moment, removes nothing and writes nothing. It *pins* the state:
//!
//! 1. It reads the manifest and lists the segments of the log that the manifest names.
//! 2. It opens each checkpoint file that the manifest names, and each of these segments, whose length it notes.
//! 3. It reads the manifest and lists the segments once more. If either has changed, it begins again.
//!
//! # Why this is one moment
//!
//! A run removes a checkpoint file only after it has replaced the manifest by one that does not name it, and numbers of
//! files and segments are never given twice. So if both looks are equal, nothing was removed between them that the first
//! one has found: each file was opened while it had its name, and what is missing is damage. From then on names do not
//! matter: a file that is open keeps its content after its removal.
//!
//! A checkpoint file never changes once a manifest names it, and only the last segment grows. Of that segment the reader
//! takes the bytes up to the length of that moment, and while a run holds the state only the records that a later one, or
//! the manifest, says were durable ([`crate::LogReader`]). A run changes nothing before that place: it appends, and where
//! the disk is full it cuts off what it has not synced. What cannot be read before that place is damage, as it is when
//! nothing runs.
//!
//! A pin begins again only if a checkpoint or a segment was finished meanwhile, which takes the run much longer than the
//! pin. Savepoints are not pinned: only the holder of the lock removes one, by command, and a reader then finds it gone.
//!
//! Costs: a descriptor for each file and segment, and the disk space of files that are removed while they are read.

use crate::blocks;
use crate::directory::{checkpoint_directory, log_directory};
use crate::error::StateError;
use crate::manifest::Manifest;
use crate::savepoint::savepoint_directory;
use crate::storage::{Entry, File, Kind, Lock, Locked, Mapped, Open, Storage, directory_of, read_all};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of times that a pin begins again before the reader gives up.
const PINS_MAX: usize = 100;

/// A pinned state directory, as storage that can only be read.
pub(crate) struct Pinned {
    storage: Arc<dyn Storage>,
    /// The savepoints, which are not pinned.
    savepoints: PathBuf,
    files: BTreeMap<PathBuf, Held>,
}

/// The observation that a pin makes twice.
#[derive(PartialEq, Eq)]
struct Look {
    manifest: Vec<u8>,
    /// The names in the directory of the log.
    segments: Vec<String>,
}

/// A file that was open at the moment of the pin, and its length then.
#[derive(Clone)]
struct Held {
    file: Arc<dyn File>,
    length: u64,
}

impl Pinned {
    /// Pins the state in a directory; none if there is no manifest.
    pub(crate) fn of(storage: Arc<dyn Storage>, path: &Path) -> Result<Option<Pinned>, StateError> {
        let (manifest_path, checkpoints) = (path.join("manifest"), checkpoint_directory(path));
        for _ in 0..PINS_MAX {
            let Some(manifest) = Manifest::read(&*storage, path)? else { return Ok(None) };
            let log = log_directory(path, manifest.log);
            let first = look(&*storage, &manifest_path, &log)?;
            let mut files = BTreeMap::new();
            let named = manifest.checkpoint.files().into_iter().map(|file| checkpoints.join(blocks::file_name(file)));
            let segments = first.segments.iter().map(|name| log.join(name));
            for path in named.chain(segments).chain([manifest_path.clone()]) {
                if let Some(held) = hold(&*storage, &path)? {
                    files.insert(path, held);
                }
            }
            let pinned = Pinned { storage: storage.clone(), savepoints: savepoint_directory(path), files };
            // The manifest that was read last must be the one that named the files.
            if Manifest::read(&pinned, path)?.as_ref() == Some(&manifest)
                && look(&*storage, &manifest_path, &log)? == first
            {
                return Ok(Some(pinned));
            }
        }
        Err(StateError::Refused(format!("the state {} changes faster than it can be read; try again", path.display())))
    }

    fn is_savepoint(&self, path: &Path) -> bool {
        path.starts_with(&self.savepoints)
    }
}

fn look(storage: &dyn Storage, manifest: &Path, log: &Path) -> Result<Look, StateError> {
    let absent = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) };
    let manifest = read_all(storage, manifest).or_else(absent).map_err(StateError::io(manifest, "read"))?;
    let names = storage.list(log).or_else(|error| absent(error).map(|_| Vec::new()));
    let mut segments = names.map_err(StateError::io(log, "read"))?;
    // A segment that has not got its name yet.
    segments.retain(|name| !name.ends_with(".new"));
    Ok(Look { manifest, segments })
}

/// Opens a file, if it is there.
fn hold(storage: &dyn Storage, path: &Path) -> Result<Option<Held>, StateError> {
    match storage.open(path, Open::Read) {
        Ok(file) => {
            let length = file.length().map_err(StateError::io(path, "read"))?;
            Ok(Some(Held { file: file.into(), length }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateError::io(path, "opened")(error)),
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::new(ErrorKind::PermissionDenied, "the state is only read"))
}

impl Storage for Pinned {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        match self.files.get(path) {
            _ if how != Open::Read => read_only(),
            Some(held) => Ok(Box::new(held.clone())),
            None if self.is_savepoint(path) => self.storage.open(path, how),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        match self.files.get(path) {
            Some(held) => Ok(Entry { kind: Kind::File, length: held.length }),
            None if self.is_savepoint(path) => self.storage.look(path),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        if self.is_savepoint(directory) {
            return self.storage.list(directory);
        }
        let inside = self.files.keys().filter(|path| directory_of(path) == directory);
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _: &Path, _: &str) -> io::Result<Locked> {
        Ok(Locked::Mine(Box::new(NoLock)))
    }

    fn lock_entry(&self, _: &Path) -> io::Result<Locked> {
        Ok(Locked::Mine(Box::new(NoLock)))
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }
}

impl File for Held {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = into.len().min(rest);
        self.file.read_at(offset, &mut into[..length])
    }

    fn map(&self) -> io::Result<Option<Box<dyn Mapped>>> {
        self.file.map()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn append(&self, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }
}

/// The lock of something that is only read.
struct NoLock;

impl Lock for NoLock {
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
}
