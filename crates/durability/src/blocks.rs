//! Checkpoint files: blocks of bytes, immutable once written. A reference to a block has its place and its check.
//! Blocks of rows, which an index refers to, begin with their check instead.

use crate::error::StateError;
use crate::manifest::Block;
use crate::planted::{Bug, Planted};
use crate::proof::{Hash256, Hasher};
use crate::storage::{File, Mapped, Open, Storage};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ENDING: &str = ".rows";

/// Bytes that are buffered before they are written.
const WRITE_BYTES: usize = 64 << 10;

/// Bytes that are read at once to be hashed.
const HASH_BYTES: usize = 1 << 20;

/// Bytes of the check at the start of a sealed block.
const SEAL: usize = 8;

/// Returns the name of the checkpoint file of a number.
pub fn file_name(number: u64) -> String {
    format!("{number:08}{ENDING}")
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number))
}

fn check(bytes: &[u8], id: u64, file: u64, offset: u64) -> u64 {
    xxh3_64_with_seed(bytes, (id ^ file.rotate_left(32)).wrapping_add(offset))
}

/// Returns the numbers of the checkpoint files in a directory.
pub fn numbers(storage: &dyn Storage, directory: &Path) -> Result<Vec<u64>, StateError> {
    let names = storage.list(directory).map_err(StateError::io(directory, "read"))?;
    Ok(names.iter().filter_map(|name| number(name)).collect())
}

/// Returns the number of a checkpoint file, from its name.
pub fn number(name: &str) -> Option<u64> {
    name.strip_suffix(ENDING)?.parse().ok()
}

/// Removes a checkpoint file.
pub fn remove(storage: &dyn Storage, directory: &Path, number: u64) -> Result<(), StateError> {
    let path = path(directory, number);
    storage.remove(&path).map_err(StateError::io(&path, "removed"))
}

/// The numbers of files that this process writes, or reads although no manifest may name them. They are not removed.
#[derive(Clone, Default)]
pub struct FilesInUse(Arc<Mutex<BTreeSet<u64>>>);

impl FilesInUse {
    /// Marks the file of a number as in use, until the result is dropped.
    pub fn begin(&self, number: u64) -> FileInUse {
        self.0.lock().insert(number);
        FileInUse { number, all: self.clone() }
    }

    /// Returns whether the file of a number is in use.
    pub fn has(&self, number: u64) -> bool {
        self.0.lock().contains(&number)
    }
}

/// A file in use.
pub struct FileInUse {
    number: u64,
    all: FilesInUse,
}

impl Drop for FileInUse {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.number);
    }
}

/// Writes one checkpoint file.
pub struct BlockWriter {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    file: Box<dyn File>,
    id: u64,
    number: u64,
    /// Offset of the next block.
    offset: u64,
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
    /// The hash of the bytes that are written; none if the file is not hashed.
    hasher: Option<Hasher>,
    planted: Planted,
    used: FileInUse,
}

impl BlockWriter {
    /// Begins the file of this number; overwrites a file that a crash left.
    pub fn create(storage: Arc<dyn Storage>, directory: &Path, id: u64, used: FileInUse) -> Result<Self, StateError> {
        let number = used.number;
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
            waiting: Vec::new(),
            hasher: None,
            planted: Planted::default(),
            used,
        })
    }

    /// Plants a bug.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Hashes the file as it is written.
    pub(crate) fn hash(&mut self) {
        assert_eq!(self.offset, 0, "all of a file is hashed");
        self.hasher = Some(Hasher::default());
    }

    /// Ends the file; returns its hash, if it is hashed.
    pub(crate) fn end_hash(&mut self) -> Result<Option<Hash256>, StateError> {
        self.flush()?;
        Ok(self.hasher.take().map(Hasher::end))
    }

    /// Returns the bug that is planted, if any.
    pub(crate) fn planted(&self) -> Planted {
        self.planted
    }

    fn path(&self) -> PathBuf {
        path(&self.directory, self.number)
    }

    /// Appends a block whose check is kept elsewhere.
    pub fn write(&mut self, bytes: &[u8], rows: u64) -> Result<Block, StateError> {
        let check = check(bytes, self.id, self.number, self.offset);
        let block = Block { file: self.number, offset: self.offset, length: bytes.len() as u64, check, rows };
        self.waiting.extend_from_slice(bytes);
        self.wrote(bytes.len())?;
        Ok(block)
    }

    /// Appends a block that begins with its check, padded with zeros to a multiple of `alignment`. Returns its place.
    pub fn seal(&mut self, fill: impl FnOnce(&mut Vec<u8>), alignment: u64) -> Result<Range<u64>, StateError> {
        let start = self.waiting.len();
        self.waiting.extend_from_slice(&[0; SEAL]);
        fill(&mut self.waiting);
        let length = (self.waiting.len() - start).next_multiple_of(alignment as usize);
        self.waiting.resize(start + length, 0);
        let check = check(&self.waiting[start + SEAL..], self.id, self.number, self.offset);
        self.waiting[start..start + SEAL].copy_from_slice(&check.to_le_bytes());
        let offset = self.offset;
        self.wrote(length)?;
        Ok(offset..offset + length as u64)
    }

    fn wrote(&mut self, length: usize) -> Result<(), StateError> {
        self.offset += length as u64;
        if self.waiting.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StateError> {
        self.hasher.iter_mut().for_each(|hasher| hasher.add(&self.waiting));
        let written = self.file.append(&self.waiting).map_err(StateError::io(&self.path(), "written"));
        self.waiting.clear();
        written
    }

    /// Makes the written bytes durable; the file's name is not durable yet.
    pub fn sync(&mut self) -> Result<(), StateError> {
        self.flush()?;
        self.file.sync().map_err(StateError::io(&self.path(), "synced"))
    }

    /// Returns the bytes so far.
    pub fn length(&self) -> u64 {
        self.offset
    }

    /// Makes the file durable, including its name.
    pub fn finish(mut self) -> Result<(), StateError> {
        self.flush()?;
        if self.planted.is(Bug::CheckpointUnsynced) {
            return Ok(());
        }
        self.sync()?;
        self.storage.sync_directory(&self.directory).map_err(StateError::io(&self.directory, "synced"))
    }

    /// Returns the file, for reading; none of it need be durable yet.
    pub fn into_file(mut self) -> Result<BlockFile, StateError> {
        self.flush()?;
        BlockFile::of(self.storage, &self.directory, self.id, self.number, self.file, Some(self.used))
    }
}

/// Returns the hash of a checkpoint file.
pub(crate) fn file_hash(storage: &dyn Storage, directory: &Path, number: u64) -> Result<Hash256, StateError> {
    let path = path(directory, number);
    let affected = "its rows are lost".into();
    let file = storage.open(&path, Open::Read).map_err(StateError::needed(&path, "opened", affected))?;
    let (mut hasher, mut chunk, mut at) = (Hasher::default(), vec![0; HASH_BYTES], 0);
    loop {
        let read = file.read_at(at, &mut chunk).map_err(StateError::io(&path, "read"))?;
        if read == 0 {
            return Ok(hasher.end());
        }
        hasher.add(&chunk[..read]);
        at += read as u64;
    }
}

/// A checkpoint file open for reading, by any thread.
pub struct BlockFile {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    path: PathBuf,
    id: u64,
    number: u64,
    file: Box<dyn File>,
    /// The whole file, if the system can map it into memory.
    map: Option<Box<dyn Mapped>>,
    /// The note that this process has written the file, if it has.
    _used: Option<FileInUse>,
}

impl BlockFile {
    /// Opens the file of a number; `what` names the data that is lost if the file is missing.
    fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        id: u64,
        number: u64,
        what: &str,
    ) -> Result<BlockFile, StateError> {
        let path = path(directory, number);
        let needed = StateError::needed(&path, "opened", format!("{what} cannot be read"));
        let file = storage.open(&path, Open::Read).map_err(needed)?;
        BlockFile::of(storage, directory, id, number, file, None)
    }

    fn of(
        storage: Arc<dyn Storage>,
        directory: &Path,
        id: u64,
        number: u64,
        file: Box<dyn File>,
        used: Option<FileInUse>,
    ) -> Result<BlockFile, StateError> {
        let path = path(directory, number);
        let map = file.map().map_err(StateError::io(&path, "read"))?;
        Ok(BlockFile { storage, directory: directory.into(), path, id, number, file, map, _used: used })
    }

    /// Makes the file's content and its name durable. Only for the process that has written it.
    pub fn sync(&self) -> Result<(), StateError> {
        self.file.sync().map_err(StateError::io(&self.path, "synced"))?;
        self.storage.sync_directory(&self.directory).map_err(StateError::io(&self.directory, "synced"))
    }

    /// Returns the error for malformed bytes; `what` names the data that is lost.
    pub fn malformed(&self, offset: u64, what: &str, reason: &str) -> StateError {
        let (file, affected) = (self.path.clone(), format!("{what} cannot be read"));
        StateError::Damaged { file, offset, what: reason.into(), affected }
    }

    /// Returns the bytes of the file, read into `buffer` unless the file is mapped.
    fn bytes<'a>(&'a self, range: Range<u64>, what: &str, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], StateError> {
        let offset = range.start;
        let short = || self.malformed(offset, what, "the file ends inside a block");
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
            return Err(short());
        };
        if let Some(map) = &self.map {
            return map.bytes().get(start..end).ok_or_else(short);
        }
        buffer.resize(end.checked_sub(start).ok_or_else(short)?, 0);
        let read = self.file.read_at(offset, buffer).map_err(StateError::io(&self.path, "read"))?;
        if read < buffer.len() { Err(short()) } else { Ok(buffer) }
    }

    fn checked<'a>(&self, bytes: &'a [u8], expected: u64, offset: u64, what: &str) -> Result<&'a [u8], StateError> {
        if check(bytes, self.id, self.number, offset) != expected {
            return Err(self.malformed(offset, what, "a block does not have the check that it was written with"));
        }
        Ok(bytes)
    }

    /// Returns the bytes of a block whose check is kept elsewhere; `what` names the data that is lost if they are
    /// damaged.
    pub fn read(&self, block: &Block, what: &str) -> Result<Vec<u8>, StateError> {
        let mut buffer = Vec::new();
        let end = block.offset.checked_add(block.length);
        let end = end.ok_or_else(|| self.malformed(block.offset, what, "a block is too long"))?;
        let bytes = self.bytes(block.offset..end, what, &mut buffer)?;
        Ok(self.checked(bytes, block.check, block.offset, what)?.to_vec())
    }

    /// Returns the content of a block that begins with its check. `buffer` is for its bytes.
    pub fn sealed<'a>(
        &'a self,
        place: Range<u64>,
        what: &str,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], StateError> {
        let offset = place.start;
        let bytes = self.bytes(place, what, buffer)?;
        let short = || self.malformed(offset, what, "a block is too short for its check");
        let (seal, bytes) = bytes.split_first_chunk::<SEAL>().ok_or_else(short)?;
        self.checked(bytes, u64::from_le_bytes(*seal), offset, what)
    }

    /// Prefetches a block that will be read soon.
    #[inline]
    pub fn ask(&self, place: Range<u64>) {
        const LINE: usize = 64;
        let bytes = self.map.as_ref().and_then(|map| map.bytes().get(place.start as usize..place.end as usize));
        bytes
            .into_iter()
            .for_each(|bytes| bytes.iter().step_by(LINE).for_each(|byte| tidemill_state::memory::prefetch(byte)));
    }
}

/// Reads single blocks of checkpoint files.
pub struct BlockReader {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    id: u64,
}

impl BlockReader {
    /// Makes a reader of the checkpoints in a directory.
    pub fn new(storage: Arc<dyn Storage>, directory: PathBuf, id: u64) -> Self {
        BlockReader { storage, directory, id }
    }

    /// Opens the file of a number; `what` names the data that is lost if the file is missing.
    pub fn open(&self, number: u64, what: &str) -> Result<BlockFile, StateError> {
        BlockFile::open(self.storage.clone(), &self.directory, self.id, number, what)
    }

    /// Returns the bytes of a block; `what` names the data that is lost if they are damaged.
    pub fn read(&self, block: &Block, what: &str) -> Result<Vec<u8>, StateError> {
        self.open(block.file, what)?.read(block, what)
    }
}
