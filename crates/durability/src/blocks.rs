//! Checkpoint files: blocks of bytes, immutable once written. The manifest says where each block is and
//! what its check is, so a file needs no structure of its own.

use crate::error::StateError;
use crate::manifest::Block;
use crate::planted::{Bug, Planted};
use crate::storage::{File, Open, Storage};
use crate::store::MalformedBlock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ENDING: &str = ".rows";

/// The name of the checkpoint file of a number.
pub fn file_name(number: u64) -> String {
    format!("{number:08}{ENDING}")
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number))
}

fn seed(id: u64, file: u64, offset: u64) -> u64 {
    (id ^ file.rotate_left(32)).wrapping_add(offset)
}

/// The numbers of the checkpoint files in a directory.
pub fn numbers(storage: &dyn Storage, directory: &Path) -> Result<Vec<u64>, StateError> {
    let names = storage.list(directory).map_err(StateError::io(directory, "read"))?;
    Ok(names.iter().filter_map(|name| number(name)).collect())
}

/// The number of a checkpoint file, from its name.
pub fn number(name: &str) -> Option<u64> {
    name.strip_suffix(ENDING)?.parse().ok()
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

    /// Makes what was written durable; its name is not yet.
    pub fn sync(&self) -> Result<(), StateError> {
        let path = path(&self.directory, self.number);
        self.file.sync().map_err(StateError::io(&path, "synced"))
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

/// Reads blocks of checkpoint files. Any thread may.
pub struct BlockReader {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    id: u64,
    files: Mutex<BTreeMap<u64, Arc<dyn File>>>,
}

/// Bytes that are read at once where blocks lie one behind the other.
const READ_BYTES: u64 = 1 << 20;

impl BlockReader {
    /// For the checkpoints in a directory.
    pub fn new(storage: Arc<dyn Storage>, directory: PathBuf, id: u64) -> Self {
        BlockReader { storage, directory, id, files: Mutex::default() }
    }

    /// Another one, which has open what this one has of some files.
    pub fn with_open(&self, numbers: impl Iterator<Item = u64>) -> BlockReader {
        let open = self.files.lock();
        let files = numbers.filter_map(|number| Some((number, open.get(&number)?.clone()))).collect();
        let (storage, directory) = (self.storage.clone(), self.directory.clone());
        BlockReader { storage, directory, id: self.id, files: Mutex::new(files) }
    }

    /// The bytes of a block, in the stead of what is in `into`; `what` is lost if they are damaged.
    pub fn read_into(&self, block: &Block, what: &str, into: &mut Vec<u8>) -> Result<(), StateError> {
        let length = usize::try_from(block.length).map_err(|_| self.malformed(block, what, "a block is too long"))?;
        into.resize(length, 0);
        let io = |error| StateError::io(&path(&self.directory, block.file), "read")(error);
        let read = self.file(block.file)?.read_at(block.offset, into).map_err(io)?;
        if read < length {
            return Err(self.malformed(block, what, "the file ends inside a block"));
        }
        if xxh3_64_with_seed(into, seed(self.id, block.file, block.offset)) != block.check {
            return Err(self.malformed(block, what, "a block does not have the check that it was written with"));
        }
        Ok(())
    }

    fn file(&self, number: u64) -> Result<Arc<dyn File>, StateError> {
        let files = &mut *self.files.lock();
        if let Some(file) = files.get(&number) {
            return Ok(file.clone());
        }
        let path = path(&self.directory, number);
        let file: Arc<dyn File> = self.storage.open(&path, Open::Read).map_err(StateError::io(&path, "opened"))?.into();
        files.insert(number, file.clone());
        Ok(file)
    }

    /// A block that has its check and yet is not what it should be; `what` is lost.
    pub fn malformed(&self, block: &Block, what: &str, reason: &str) -> StateError {
        StateError::Damaged {
            file: path(&self.directory, block.file),
            offset: block.offset,
            what: reason.into(),
            affected: format!("{what} cannot be read"),
        }
    }

    /// The bytes of a block; `what` is lost if they are damaged.
    pub fn read(&self, block: &Block, what: &str) -> Result<Vec<u8>, StateError> {
        let mut bytes = Vec::new();
        self.read_each(std::slice::from_ref(block), what, |block| {
            bytes = block.to_vec();
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Hands over the bytes of blocks of one file, which lie one behind the other.
    pub fn read_each(
        &self,
        mut blocks: &[Block],
        what: &str,
        mut each: impl FnMut(&[u8]) -> Result<(), MalformedBlock>,
    ) -> Result<(), StateError> {
        let mut bytes = Vec::new();
        while let Some(first) = blocks.first() {
            let near = |block: &&Block| block.offset + block.length <= first.offset + READ_BYTES;
            let count = blocks.iter().take_while(near).count().max(1);
            let (run, rest) = blocks.split_at(count);
            blocks = rest;
            let length: u64 = run.iter().map(|block| block.length).sum();
            let length = usize::try_from(length).map_err(|_| self.malformed(first, what, "a block is too long"))?;
            bytes.resize(length, 0);
            let path = path(&self.directory, first.file);
            let read =
                self.file(first.file)?.read_at(first.offset, &mut bytes).map_err(StateError::io(&path, "read"))?;
            let mut left = &bytes[..read];
            for block in run {
                let inside = left.split_at_checked(block.length as usize);
                let (bytes, rest) =
                    inside.ok_or_else(|| self.malformed(block, what, "the file ends inside a block"))?;
                left = rest;
                if xxh3_64_with_seed(bytes, seed(self.id, block.file, block.offset)) != block.check {
                    let reason = "a block does not have the check that it was written with";
                    return Err(self.malformed(block, what, reason));
                }
                each(bytes).map_err(|MalformedBlock(reason)| self.malformed(block, what, reason))?;
            }
        }
        Ok(())
    }
}
