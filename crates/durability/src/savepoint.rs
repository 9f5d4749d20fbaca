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

use crate::directory::StateDirectory;
use crate::error::StateError;
use crate::manifest::Manifest;
use crate::nodes::NodeRange;
use crate::planted::Planted;
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
        let manifest = &Manifest { checkpoint, ..manifest.clone() };
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

    /// All savepoints, by name.
    pub fn savepoints(&self) -> Result<Vec<Savepoint>, StateError> {
        let directory = savepoint_directory(self.path());
        let names = match self.storage().list(&directory) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StateError::io(&directory, "read")(error)),
        };
        names.iter().filter_map(|name| self.find_savepoint(name).transpose()).collect()
    }

    /// Makes the names of the savepoints durable, which an earlier process may have made and not synced.
    pub(crate) fn sync_savepoints(&self) -> Result<(), StateError> {
        self.savepoints()?.into_iter().try_for_each(|Savepoint { path, .. }| {
            self.storage().sync_directory(&path).map_err(StateError::io(&path, "synced"))
        })
    }

    fn find_savepoint(&self, name: &str) -> Result<Option<Savepoint>, StateError> {
        let path = savepoint_directory(self.path()).join(name);
        let manifest = Manifest::read(&**self.storage(), &path)?;
        Ok(manifest.map(|manifest| Savepoint { name: name.into(), path, manifest }))
    }

    /// The savepoint of this name.
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

    /// Whether the log still has the epochs after a savepoint, so that they can be run again from there. False for a
    /// savepoint of some nodes only.
    pub fn has_log_after(&self, savepoint: &Savepoint) -> bool {
        let of = |manifest: &Manifest| (manifest.id, manifest.log);
        let is_whole = savepoint.manifest.checkpoint.nodes.is_whole();
        is_whole && self.manifest().is_some_and(|manifest| of(manifest) == of(&savepoint.manifest))
    }

    /// The earliest epoch after which savepoints keep the log.
    pub(crate) fn held_epoch(&self) -> Result<Option<u64>, StateError> {
        let held = self.savepoints()?.into_iter().filter(|savepoint| self.has_log_after(savepoint));
        Ok(held.map(|savepoint| savepoint.manifest.checkpoint.epoch).min())
    }

    /// Removes a savepoint. The log that it kept is removed with the next checkpoint.
    pub fn remove_savepoint(&self, name: &str) -> Result<(), StateError> {
        let savepoint = self.savepoint(name)?;
        let storage = &**self.storage();
        // Without its manifest it is not a savepoint.
        let manifest = savepoint.path.join("manifest");
        storage.remove(&manifest).map_err(StateError::io(&manifest, "removed"))?;
        storage.sync_directory(&savepoint.path).map_err(StateError::io(&savepoint.path, "synced"))?;
        remove_all(storage, &savepoint.path)
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
        let manifest = Manifest { course: was.course + 1, begins, ..savepoint.manifest };
        self.begin_log_anew(manifest, was.log + 1)?;
        // The new course begins at the savepoint, which keeps its log.
        let manifest = self.manifest().expect("just written").clone();
        manifest.write(&*storage, &savepoint.path, Planted::default())
    }
}

/// The directory of a state's savepoints.
pub(crate) fn savepoint_directory(state: &Path) -> PathBuf {
    state.join(DIRECTORY)
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
