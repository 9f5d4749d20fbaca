//! Checkpoint files: blocks of bytes, immutable once written. The manifest says where each block is and
//! what its check is, so a file needs no structure of its own.

use crate::error::StateError;
use crate::manifest::Block;
use crate::planted::{Bug, Planted};
use crate::storage::{File, Open, Storage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ENDING: &str = ".rows";

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}{ENDING}"))
}

fn seed(id: u64, file: u64, offset: u64) -> u64 {
    (id ^ file.rotate_left(32)).wrapping_add(offset)
}

/// The numbers of the checkpoint files in a directory.
pub fn numbers(storage: &dyn Storage, directory: &Path) -> Result<Vec<u64>, StateError> {
    let names = storage.list(directory).map_err(StateError::io(directory, "read"))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(ENDING)?.parse().ok()).collect())
}

/// Removes a checkpoint file.
pub fn remove(storage: &dyn Storage, directory: &Path, number: u64) -> Result<(), StateError> {
    let path = path(directory, number);
    storage.remove(&path).map_err(StateError::io(&path, "removed"))
}

/// Writes one checkpoint file.
pub struct BlockWriter {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    file: Box<dyn File>,
    id: u64,
    number: u64,
    offset: u64,
    planted: Planted,
}

impl BlockWriter {
    /// Begins the file of that number; one that a crash left is overwritten.
    pub fn create(storage: Arc<dyn Storage>, directory: &Path, id: u64, number: u64) -> Result<Self, StateError> {
        let path = path(directory, number);
        let file = storage.open(&path, Open::AppendOrCreate).map_err(StateError::io(&path, "written"))?;
        file.truncate(0).map_err(StateError::io(&path, "written"))?;
        Ok(BlockWriter {
            storage,
            directory: directory.into(),
            file,
            id,
            number,
            offset: 0,
            planted: Planted::default(),
        })
    }

    /// Plants a bug.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Appends a block.
    pub fn write(&mut self, bytes: &[u8], rows: u64) -> Result<Block, StateError> {
        let path = path(&self.directory, self.number);
        self.file.append(bytes).map_err(StateError::io(&path, "written"))?;
        let check = xxh3_64_with_seed(bytes, seed(self.id, self.number, self.offset));
        let block = Block { file: self.number, offset: self.offset, length: bytes.len() as u64, check, rows };
        self.offset += block.length;
        Ok(block)
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.offset
    }

    /// Makes the file durable, its name included.
    pub fn finish(self) -> Result<(), StateError> {
        let path = path(&self.directory, self.number);
        if self.planted.is(Bug::CheckpointUnsynced) {
            return Ok(());
        }
        self.file.sync().map_err(StateError::io(&path, "synced"))?;
        self.storage.sync_directory(&self.directory).map_err(StateError::io(&self.directory, "synced"))
    }
}

/// Reads blocks of any checkpoint file.
pub struct BlockReader {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    id: u64,
    files: BTreeMap<u64, Box<dyn File>>,
}

impl BlockReader {
    /// For the checkpoints in a directory.
    pub fn new(storage: Arc<dyn Storage>, directory: PathBuf, id: u64) -> Self {
        BlockReader { storage, directory, id, files: BTreeMap::new() }
    }

    /// The bytes of a block; `what` is lost if they are damaged.
    pub fn read(&mut self, block: &Block, what: &str) -> Result<Vec<u8>, StateError> {
        let path = path(&self.directory, block.file);
        if !self.files.contains_key(&block.file) {
            let file = self.storage.open(&path, Open::Read).map_err(StateError::io(&path, "opened"))?;
            self.files.insert(block.file, file);
        }
        let damaged = |reason: &str| StateError::Damaged {
            file: path.clone(),
            offset: block.offset,
            what: reason.into(),
            affected: format!("{what} cannot be read"),
        };
        let length = usize::try_from(block.length).map_err(|_| damaged("a block is longer than the memory"))?;
        let mut bytes = vec![0; length];
        let read = self.files[&block.file].read_at(block.offset, &mut bytes).map_err(StateError::io(&path, "read"))?;
        if read < bytes.len() {
            return Err(damaged("the file ends inside a block"));
        }
        if xxh3_64_with_seed(&bytes, seed(self.id, block.file, block.offset)) != block.check {
            return Err(damaged("a block does not have the check that it was written with"));
        }
        Ok(bytes)
    }
}
