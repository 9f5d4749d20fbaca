//! Savepoints: checkpoints that are kept, under a name.
//!
//! ```text
//! DIR/savepoint/NAME/manifest        the manifest of the state at that time
//! DIR/savepoint/NAME/checkpoint/…    the files that it names
//! ```
//!
//! So a savepoint is a state directory without a log, and is read like one. Its files are those of the state under
//! second names, if the file system has hard links; they are never written again. The manifest is written last: a
//! savepoint without one is unfinished, and is begun anew.
//!
//! A savepoint keeps the log after it: as long as the savepoint exists, the later epochs can be run again.
//!
//! The state does not need its savepoints. One whose manifest is damaged, or that a crash left unfinished, is listed and
//! can be removed; it keeps no log, and the state goes on beside it. No later file of the state has a number that one of
//! its files has.

use crate::directory::StateDirectory;
use crate::error::StateError;
use crate::manifest::Manifest;
use crate::nodes::NodeRange;
use crate::planted::Planted;
use crate::proof::{Head, Proof, Restored};
use crate::storage::{Kind, Storage, directory_of};
use std::io;
use std::path::{Path, PathBuf};

/// A savepoint.
#[derive(Clone, Debug)]
pub struct Savepoint {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The manifest of its checkpoint.
    pub manifest: Manifest,
}

impl Savepoint {
    /// Refuses a savepoint that has the rows of some nodes only.
    fn refuse_part(&self, why: &str) -> Result<(), StateError> {
        let nodes = self.manifest.checkpoint.nodes;
        match nodes.is_whole() {
            true => Ok(()),
            false => Err(StateError::Refused(format!("savepoint '{}' has the rows of {nodes} only; {why}", self.name))),
        }
    }
}

/// A directory among the savepoints that none can be read from.
#[derive(Debug)]
pub struct Remains {
    /// Its name.
    pub name: String,
    /// The fault of its manifest; none if it has no manifest, as it was never finished.
    pub damage: Option<StateError>,
}

const DIRECTORY: &str = "savepoint";
const NAME_BYTES_MAX: usize = 100;

impl StateDirectory {
    /// Keeps the newest checkpoint under a name.
    pub fn create_savepoint(&self, name: &str) -> Result<Savepoint, StateError> {
        self.create_savepoint_of(name, NodeRange::default())
    }

    /// Keeps the part of the newest checkpoint that has the rows of some virtual nodes. The part can be read, but no
    /// run can continue from it. No row is written again: the part names the files of the checkpoint.
    pub fn create_savepoint_of(&self, name: &str, nodes: NodeRange) -> Result<Savepoint, StateError> {
        self.no_savepoint(name)?;
        let Some(manifest) = self.manifest() else {
            return Err(StateError::Refused(format!("the state {} has not begun", self.path().display())));
        };
        let checkpoint = manifest.checkpoint.within(nodes).ok_or_else(|| {
            let there = manifest.checkpoint.nodes;
            StateError::Refused(format!("the state {} has {there}, and none of {nodes}", self.path().display()))
        })?;
        let manifest = &Manifest { checkpoint: checkpoint.with_root(), ..manifest.clone() };
        let (storage, path) = (&**self.storage(), savepoint_directory(self.path()).join(name));
        let checkpoints = path.join("checkpoint");
        storage.create_directory(&checkpoints).map_err(StateError::io(&checkpoints, "made"))?;
        // An unfinished savepoint may have left files of another checkpoint.
        for name in storage.list(&checkpoints).map_err(StateError::io(&checkpoints, "read"))? {
            let path = checkpoints.join(name);
            storage.remove(&path).map_err(StateError::io(&path, "removed"))?;
        }
        link_files(storage, manifest, &self.checkpoints(), &checkpoints)?;
        manifest.write(storage, &path, Planted::default())?;
        Ok(Savepoint { name: name.into(), path, manifest: manifest.clone() })
    }

    /// Refuses a name under which no savepoint can be made.
    pub fn no_savepoint(&self, name: &str) -> Result<(), StateError> {
        let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(is_name) {
            return Err(StateError::Refused(format!(
                "'{name}' is no name for a savepoint; give letters, digits, '-', '_' or '.', not first"
            )));
        }
        match self.find_savepoint(name)? {
            None => Ok(()),
            Some(_) => Err(StateError::Refused(format!("there is a savepoint '{name}' already"))),
        }
    }

    /// Returns all savepoints that can be read, by name.
    pub fn savepoints(&self) -> Result<Vec<Savepoint>, StateError> {
        let mut savepoints = Vec::new();
        for name in self.savepoint_names()? {
            match self.find_savepoint(&name) {
                Ok(found) => savepoints.extend(found),
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(savepoints)
    }

    /// Returns the other directories there, by name: damaged savepoints, and what a crash left of some that were being
    /// made or removed. A run that makes one now has it here, too.
    pub fn remains(&self) -> Result<Vec<Remains>, StateError> {
        let mut remains = Vec::new();
        for name in self.savepoint_names()? {
            match self.find_savepoint(&name) {
                Ok(Some(_)) => {}
                Ok(None) => remains.push(Remains { name, damage: None }),
                Err(error) if is_damage(&error) => remains.push(Remains { name, damage: Some(error) }),
                Err(error) => return Err(error),
            }
        }
        Ok(remains)
    }

    /// Returns the names of the directories of savepoints.
    fn savepoint_names(&self) -> Result<Vec<String>, StateError> {
        let directory = savepoint_directory(self.path());
        match self.storage().list(&directory) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StateError::io(&directory, "read")(error)),
        }
    }

    /// Returns the greatest number of a checkpoint file that savepoints have, whether or not they can be read.
    pub(crate) fn last_savepoint_file(&self) -> Result<Option<u64>, StateError> {
        let mut last = None;
        for name in self.savepoint_names()? {
            let directory = savepoint_directory(self.path()).join(name).join("checkpoint");
            let numbers = match crate::blocks::numbers(&**self.storage(), &directory) {
                Ok(numbers) => numbers,
                Err(StateError::Io { error, .. }) if is_no_directory(&error) => continue,
                Err(error) => return Err(error),
            };
            last = last.max(numbers.into_iter().max());
        }
        Ok(last)
    }

    /// Makes the names of the savepoints durable, which an earlier process may have made and not synced.
    pub(crate) fn sync_savepoints(&self) -> Result<(), StateError> {
        self.savepoints()?.into_iter().try_for_each(|Savepoint { path, .. }| {
            self.storage().sync_directory(&path).map_err(StateError::io(&path, "synced"))
        })
    }

    /// Returns the savepoint of a name, if there is one.
    pub fn find_savepoint(&self, name: &str) -> Result<Option<Savepoint>, StateError> {
        let path = savepoint_directory(self.path()).join(name);
        match Manifest::read(&**self.storage(), &path) {
            Ok(manifest) => Ok(manifest.map(|manifest| Savepoint { name: name.into(), path, manifest })),
            // A file among the directories is no savepoint.
            Err(StateError::Io { error, .. }) if is_no_directory(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the savepoint of this name.
    pub fn savepoint(&self, name: &str) -> Result<Savepoint, StateError> {
        let found = if name.contains('/') { None } else { self.find_savepoint(name)? };
        if let Some(savepoint) = found {
            return Ok(savepoint);
        }
        let names: Vec<String> = self.savepoints()?.into_iter().map(|savepoint| savepoint.name).collect();
        let names = if names.is_empty() { "there are none".into() } else { format!("there are {}", names.join(", ")) };
        Err(StateError::Refused(format!("the state {} has no savepoint '{name}'; {names}", self.path().display())))
    }

    /// Opens a savepoint as a state directory. Refused if it has the rows of some nodes only.
    pub fn open_savepoint(&self, savepoint: &Savepoint) -> Result<StateDirectory, StateError> {
        savepoint.refuse_part("this needs those of all")?;
        self.open_savepoint_part(savepoint)
    }

    /// Opens a savepoint, of all nodes or of some, to read its rows.
    pub fn open_savepoint_part(&self, savepoint: &Savepoint) -> Result<StateDirectory, StateError> {
        StateDirectory::open_as_it_is(self.storage().clone(), &savepoint.path, "a reader")
    }

    /// Returns whether the log still has the epochs after a savepoint, so that they can be run again from there. False
    /// for a savepoint of some nodes only.
    pub fn has_log_after(&self, savepoint: &Savepoint) -> bool {
        let of = |manifest: &Manifest| (manifest.id, manifest.log);
        let is_whole = savepoint.manifest.checkpoint.nodes.is_whole();
        is_whole && self.manifest().is_some_and(|manifest| of(manifest) == of(&savepoint.manifest))
    }

    /// Returns the earliest epoch after which savepoints keep the log.
    pub(crate) fn held_epoch(&self) -> Result<Option<u64>, StateError> {
        let held = self.savepoints()?.into_iter().filter(|savepoint| self.has_log_after(savepoint));
        Ok(held.map(|savepoint| savepoint.manifest.checkpoint.epoch).min())
    }

    /// Removes a savepoint, whole or half removed. The log that it kept is removed with the next checkpoint.
    pub fn remove_savepoint(&self, name: &str) -> Result<(), StateError> {
        if !self.savepoint_names()?.iter().any(|other| other == name) {
            // It says which there are.
            self.savepoint(name)?;
        }
        let (storage, path) = (&**self.storage(), savepoint_directory(self.path()).join(name));
        // Without its manifest it is not a savepoint.
        let manifest = path.join("manifest");
        match storage.remove(&manifest) {
            Ok(()) => storage.sync_directory(&path).map_err(StateError::io(&path, "synced"))?,
            Err(error) if is_no_directory(&error) => {}
            Err(error) => return Err(StateError::io(&manifest, "removed")(error)),
        }
        match storage.look(&path).map_err(StateError::io(&path, "read"))?.kind {
            Kind::Directory => remove_all(storage, &path),
            // Somebody put it there.
            _ => storage.remove(&path).map_err(StateError::io(&path, "removed")),
        }
    }

    /// Restores the state to a savepoint: later epochs are discarded, including their log. Outputs begin anew.
    pub fn restore_savepoint(&mut self, name: &str) -> Result<(), StateError> {
        let savepoint = self.savepoint(name)?;
        savepoint.refuse_part("a state goes on from those of all")?;
        let (storage, checkpoints) = (self.storage().clone(), self.checkpoints());
        link_files(&*storage, &savepoint.manifest, &savepoint.path.join("checkpoint"), &checkpoints)?;
        let was = self.manifest().expect("it has savepoints").clone();
        let epoch = savepoint.manifest.checkpoint.epoch;
        let outputs = savepoint.manifest.checkpoint.outputs.keys();
        let begins = outputs.map(|sink| (sink.clone(), epoch)).collect();
        let (course, mut restored) = (was.course + 1, was.restored);
        let mut manifest = Manifest { course, begins, ..savepoint.manifest };
        if let Some(proof) = manifest.checkpoint.proof {
            let before = self.last_head().unwrap_or(Head { epoch, hash: proof.head });
            let (before_epoch, before) = (before.epoch, before.hash);
            let entry = Restored { course, epoch, savepoint: proof.head, before_epoch, before };
            restored.push(entry);
            manifest.checkpoint.proof = Some(Proof { head: entry.head(was.id).hash, ..proof });
        }
        manifest.restored = restored;
        self.begin_log_anew(manifest, was.log + 1)?;
        // The new course begins at the savepoint, which keeps its log.
        let manifest = self.manifest().expect("just written").clone();
        manifest.write(&*storage, &savepoint.path, Planted::default())
    }
}

/// Returns the directory of a state's savepoints.
pub(crate) fn savepoint_directory(state: &Path) -> PathBuf {
    state.join(DIRECTORY)
}

/// Returns whether a manifest can be read, and is none that can be used.
fn is_damage(error: &StateError) -> bool {
    matches!(error, StateError::Damaged { .. } | StateError::Refused(_))
}

/// Returns whether a directory that a path needs is not there.
fn is_no_directory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Links the files of a checkpoint into another directory.
fn link_files(storage: &dyn Storage, manifest: &Manifest, from: &Path, to: &Path) -> Result<(), StateError> {
    for number in manifest.checkpoint.files() {
        let name = crate::blocks::file_name(number);
        let (from, to) = (from.join(&name), to.join(&name));
        match storage.link(&from, &to) {
            // File numbers are never given twice, so it is the same file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done.map_err(StateError::io(&to, "made"))?,
        }
    }
    storage.sync_directory(to).map_err(StateError::io(to, "synced"))
}

/// Removes a directory with all its content.
pub fn remove_all(storage: &dyn Storage, path: &Path) -> Result<(), StateError> {
    let names = storage.list(path).map_err(StateError::io(path, "read"))?;
    for name in names {
        let path = path.join(name);
        match storage.look(&path).map_err(StateError::io(&path, "read"))?.kind {
            Kind::Directory => remove_all(storage, &path)?,
            _ => storage.remove(&path).map_err(StateError::io(&path, "removed"))?,
        }
    }
    storage.remove(path).map_err(StateError::io(path, "removed"))?;
    let parent = directory_of(path);
    storage.sync_directory(&parent).map_err(StateError::io(&parent, "synced"))
}
