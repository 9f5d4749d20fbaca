//! The disk: what processes see, and what is durable.
//!
//! Each file has its contents as processes see them, its durable contents, and the ordered changes between the two;
//! likewise the names. A power cut draws what is left:
//!
//! - of a file: a length that it had at some time since its last sync, and for each sector the bytes that it had at
//!   some time since then, zeros where it was never written. One time in four none of the unsynced changes is left,
//!   and one time in four all of them;
//! - of the names: each creation, rename and removal since the last sync of its directory survives or not,
//!   independently.
//!
//! A process that is killed loses nothing that it wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tidemill_histories::Random;

/// The unit that is written as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A file, independently of its names (an inode).
pub(crate) type Id = usize;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    File(Id),
    Directory,
}

/// A change of contents that is not yet durable.
#[derive(Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes } => {
                let end = at + bytes.len();
                if contents.len() < end {
                    contents.resize(end, 0);
                }
                contents[*at..end].copy_from_slice(bytes);
            }
            Change::Truncate(length) => contents.truncate(*length),
        }
    }
}

/// A file.
#[derive(Default)]
pub(crate) struct Contents {
    pub seen: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

impl Contents {
    pub fn append(&mut self, bytes: &[u8]) {
        self.write(self.seen.len(), bytes);
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.change(Change::Write { at, bytes: bytes.to_vec() });
    }

    pub fn truncate(&mut self, length: usize) {
        self.change(Change::Truncate(length));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.changes.push(change);
    }

    pub fn sync(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Lets the changes of a failed sync never be durable; they are still seen.
    pub fn drop_changes(&mut self) {
        self.changes.clear();
    }

    /// Flips a bit, in what is durable and in what is seen.
    pub fn flip(&mut self, byte: usize, bit: u8) {
        for contents in [&mut self.seen, &mut self.durable] {
            if let Some(byte) = contents.get_mut(byte) {
                *byte ^= 1 << bit;
            }
        }
    }

    fn cut_power(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => {}
            1 => self.sync(),
            _ => self.tear(random),
        }
        self.changes.clear();
        self.seen.clone_from(&self.durable);
    }

    fn tear(&mut self, random: &mut Random) {
        let mut versions = vec![self.durable.clone()];
        for change in &self.changes {
            let mut next = versions[versions.len() - 1].clone();
            change.apply(&mut next);
            versions.push(next);
        }
        let length = random.pick(&versions).len();
        let mut left = vec![0; length];
        for (sector, bytes) in left.chunks_mut(SECTOR_BYTES).enumerate() {
            let start = sector * SECTOR_BYTES;
            let version = random.pick(&versions);
            let end = version.len().min(start + bytes.len());
            if start < end {
                bytes[..end - start].copy_from_slice(&version[start..end]);
            }
        }
        self.durable = left;
    }
}

/// A change of names that is not yet durable.
#[derive(Clone)]
enum Naming {
    Create(PathBuf, Node),
    Rename(PathBuf, PathBuf, Node),
    Remove(PathBuf, Node),
}

impl Naming {
    /// Returns the directory that must be synced to make the change durable.
    fn directory(&self) -> PathBuf {
        let (Naming::Create(path, _) | Naming::Rename(_, path, _) | Naming::Remove(path, _)) = self;
        tidemill_durability::directory_of(path)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        let mut forget = |path: &PathBuf, node: &Node| {
            if names.get(path) == Some(node) {
                names.remove(path);
            }
        };
        match self {
            Naming::Remove(path, node) => forget(path, node),
            Naming::Rename(from, to, node) => {
                forget(from, node);
                names.insert(to.clone(), *node);
            }
            Naming::Create(path, node) => _ = names.insert(path.clone(), *node),
        }
    }
}

/// The disk of a machine.
#[derive(Default)]
pub(crate) struct World {
    pub files: Vec<Contents>,
    /// The names as processes see them.
    pub names: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    changes: Vec<Naming>,
    /// Locked files.
    pub locks: BTreeSet<Id>,
    /// Locked directories.
    pub directory_locks: BTreeSet<PathBuf>,
}

impl World {
    pub fn create(&mut self, path: &Path) -> Id {
        self.files.push(Contents::default());
        let id = self.files.len() - 1;
        self.rename_nodes(Naming::Create(path.into(), Node::File(id)));
        id
    }

    /// Makes a directory; its name is durable at once.
    pub fn create_directory(&mut self, path: &Path) {
        for names in [&mut self.names, &mut self.durable] {
            names.insert(path.into(), Node::Directory);
        }
    }

    pub fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.rename_nodes(Naming::Rename(from.into(), to.into(), node));
    }

    /// Gives a file another name.
    pub fn link(&mut self, path: &Path, node: Node) {
        self.rename_nodes(Naming::Create(path.into(), node));
    }

    pub fn remove(&mut self, path: &Path, node: Node) {
        self.rename_nodes(Naming::Remove(path.into(), node));
    }

    fn rename_nodes(&mut self, change: Naming) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub fn sync_directory(&mut self, directory: &Path) {
        let (synced, rest) = self.changes.drain(..).partition(|change| change.directory() == directory);
        let synced: Vec<Naming> = synced;
        self.changes = rest;
        synced.iter().for_each(|change| change.apply(&mut self.durable));
    }

    /// Keeps a random part of the unsynced changes.
    pub fn cut_power(&mut self, random: &mut Random) {
        let keep = [0, 100, 50, 50][random.below(4)];
        for change in std::mem::take(&mut self.changes) {
            if random.chance(keep) {
                change.apply(&mut self.durable);
            }
        }
        self.names.clone_from(&self.durable);
        self.files.iter_mut().for_each(|file| file.cut_power(random));
        self.locks.clear();
        self.directory_locks.clear();
    }

    /// Ends the processes; nothing is lost.
    pub fn kill(&mut self) {
        self.locks.clear();
        self.directory_locks.clear();
    }

    /// Returns a copy of what processes see, all of it durable.
    pub fn copy(&self) -> World {
        let file =
            |file: &Contents| Contents { seen: file.seen.clone(), durable: file.seen.clone(), changes: Vec::new() };
        let names = self.names.clone();
        World { files: self.files.iter().map(file).collect(), durable: names.clone(), names, ..World::default() }
    }

    /// Returns the bytes in all files that have a name.
    pub fn bytes(&self) -> u64 {
        let ids = self.names.values().filter_map(|node| if let Node::File(id) = node { Some(*id) } else { None });
        ids.collect::<BTreeSet<Id>>().into_iter().map(|id| self.files[id].seen.len() as u64).sum()
    }
}
