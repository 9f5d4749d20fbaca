//! The record of what the file sinks of a state have released: the file `sinks` in the state's directory.
//!
//! It has an entry for each output: the last epoch, and the number of bytes of all epochs up to it, with their checksum. The
//! sinks of a process share it, so that one write releases an epoch of all of them.
//!
//! 1. Each sink *stages* its entry when it has prepared an epoch. Nothing is written.
//! 2. The first sink that *commits* the epoch replaces the record by a rename, with all that is staged for it. The others
//!    find that done.
//! 3. Where no sink has new bytes, nothing is written: the entries are of the older epoch, with the same bytes. Before a
//!    checkpoint relies on the epoch, the record is *kept*: written if it is behind.
//!
//! # Invariant
//!
//! The file has no entry of an epoch before the output's bytes up to it are durable. After a write that failed nothing more
//! is written: only the next process learns what the file has.
//!
//! Each entry names its owner, the course of the state whose epochs it counts. The last line is a checksum of the others; a
//! record with another checksum is refused. States of earlier versions have a file beside each output instead
//! ([`Entry::parse_old`]).

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{Bug, Guard, Planted, Storage, directory_of, overwrite, read_all, replace};
use xxhash_rust::xxh3::xxh3_64;

/// The version of the record's form.
const VERSION: u32 = 3;
/// The version of the records beside the outputs.
const OLD_VERSION: u32 = 2;

/// The released part of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub owner: String,
    pub form: String,
    pub epoch: Option<u64>,
    pub length: u64,
    /// The checksum of the bytes up to that length.
    pub sum: String,
    pub finished: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// The entry of each output, by output.
    sinks: BTreeMap<String, Entry>,
}

/// The record of a state.
pub(crate) struct SinkRecord {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// The guard that holds the state's lock.
    guard: Option<Guard>,
    planted: Planted,
    progress: Mutex<Progress>,
}

/// Changed by the sinks, which one thread drives.
#[derive(Default)]
struct Progress {
    /// A flag: whether the file was read.
    is_read: bool,
    /// The committed entries, by output.
    entries: BTreeMap<String, Entry>,
    /// The prepared ones, each with its epoch.
    staged: BTreeMap<String, Staged>,
    /// A flag: whether the file may not have the entries, durably.
    is_behind: bool,
    has_failed: bool,
}

struct Staged {
    epoch: u64,
    entry: Entry,
    /// A flag: whether the output has new bytes.
    is_news: bool,
}

/// The reason why an entry cannot be read.
pub(crate) enum Unread {
    Io(io::Error),
    /// The file is no record.
    Unusable(PathBuf, String),
}

impl SinkRecord {
    /// Makes the record at `path`, which is read when it is needed.
    pub fn new(storage: Arc<dyn Storage>, path: PathBuf, guard: Option<Guard>, planted: Planted) -> SinkRecord {
        SinkRecord { storage, path, guard, planted, progress: Mutex::default() }
    }

    /// Returns the name of an output in the record: its path from the directory of the state, so that both may be moved
    /// together.
    pub fn name_of(&self, output: &Path) -> io::Result<String> {
        let directory = |path: &Path| self.storage.resolve(&directory_of(path));
        let (from, mut to) = (directory(&self.path)?, directory(output)?);
        to.push(output.file_name().unwrap_or_default());
        Ok(path_between(&from, &to).to_string_lossy().into_owned())
    }

    /// Returns the committed entry of an output.
    pub fn entry(&self, output: &str) -> Result<Option<Entry>, Unread> {
        let mut progress = self.progress.lock();
        if !progress.is_read {
            match read_all(&*self.storage, &self.path) {
                Ok(bytes) => {
                    let unusable = |why| Unread::Unusable(self.path.clone(), why);
                    progress.entries = parse::<Content>(&bytes, VERSION, self.planted).map_err(unusable)?.sinks;
                    // It may have been read from a cache that never reached the disk.
                    progress.is_behind = true;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Unread::Io(error)),
            }
            progress.is_read = true;
        }
        Ok(progress.entries.get(output).cloned())
    }

    /// Returns the path of the record.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the record has an entry of any output.
    pub fn has_entries(&self) -> bool {
        !self.progress.lock().entries.is_empty()
    }

    /// Stages the entry of a prepared epoch.
    pub fn stage(&self, output: &str, epoch: u64, entry: Entry, is_news: bool) {
        self.progress.lock().staged.insert(output.to_owned(), Staged { epoch, entry, is_news });
    }

    /// Forgets what is staged of an output.
    pub fn unstage(&self, output: &str) {
        self.progress.lock().staged.remove(output);
    }

    /// Commits what is staged for an epoch, of all outputs.
    pub fn commit(&self, epoch: u64) -> io::Result<()> {
        let progress = &mut *self.progress.lock();
        self.check(progress)?;
        let mut has_news = false;
        for (output, staged) in progress.staged.extract_if(.., |_, staged| staged.epoch == epoch) {
            has_news |= staged.is_news;
            progress.entries.insert(output, staged.entry);
            progress.is_behind = true;
        }
        if has_news || progress.is_behind && self.planted.is(Bug::SilentSinkSyncs) {
            self.write(progress)?;
        }
        Ok(())
    }

    /// Sets the entry of an output, durably.
    pub fn put(&self, output: &str, entry: &Entry) -> io::Result<()> {
        let progress = &mut *self.progress.lock();
        self.check(progress)?;
        if progress.entries.get(output) != Some(entry) {
            progress.entries.insert(output.to_owned(), entry.clone());
            progress.is_behind = true;
        }
        if progress.is_behind { self.write(progress) } else { Ok(()) }
    }

    /// Makes the committed entries durable.
    pub fn keep(&self) -> io::Result<()> {
        let progress = &mut *self.progress.lock();
        self.check(progress)?;
        if progress.is_behind && !self.planted.is(Bug::SinkSkipsEmptyEpochs) { self.write(progress) } else { Ok(()) }
    }

    fn check(&self, progress: &Progress) -> io::Result<()> {
        if progress.has_failed {
            Err(io::Error::other("the record of what was released failed before"))
        } else {
            Ok(())
        }
    }

    fn write(&self, progress: &mut Progress) -> io::Result<()> {
        progress.has_failed = !self.planted.is(Bug::SinkForgetsErrors);
        if let Some(guard) = &self.guard {
            guard.check().map_err(io::Error::other)?;
        }
        let bytes = sealed(&progress.entries);
        match self.planted.is(Bug::SinkRecordsInPlace) {
            true => overwrite(&*self.storage, &self.path, &bytes)?,
            false => replace(&*self.storage, &self.path, &bytes)?,
        }
        (progress.has_failed, progress.is_behind) = (false, false);
        Ok(())
    }
}

/// Returns the way from a directory to a path.
fn path_between(from: &Path, to: &Path) -> PathBuf {
    if from.is_absolute() != to.is_absolute() {
        return to.to_owned();
    }
    let shared = from.components().zip(to.components()).take_while(|(from, to)| from == to).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

impl Entry {
    /// Reads the record that earlier versions kept beside an output.
    pub fn parse_old(bytes: &[u8], planted: Planted) -> Result<Entry, String> {
        parse(bytes, OLD_VERSION, planted)
    }
}

fn sealed(entries: &BTreeMap<String, Entry>) -> Vec<u8> {
    let mut bytes = serde_json::json!({ "version": VERSION, "sinks": entries }).to_string().into_bytes();
    bytes.push(b'\n');
    let sum = format!("{:016x}\n", xxh3_64(&bytes));
    bytes.extend_from_slice(sum.as_bytes());
    bytes
}

fn parse<T: DeserializeOwned>(bytes: &[u8], known: u32, planted: Planted) -> Result<T, String> {
    let damaged = || "it is damaged".to_owned();
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (body, sum) = bytes.split_at(end + 1);
    if sum != format!("{:016x}\n", xxh3_64(body)).as_bytes() && !planted.is(Bug::SinkTrustsRecord) {
        return Err(damaged());
    }
    let mut value: serde_json::Value = serde_json::from_slice(body).map_err(|_| damaged())?;
    let version = value.as_object_mut().and_then(|fields| fields.remove("version"));
    match version.and_then(|version| version.as_u64()) {
        Some(version) if version == u64::from(known) => {}
        Some(version) => return Err(format!("its version is {version}, and only {known} is known")),
        None => return Err(damaged()),
    }
    serde_json::from_value(value).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_named_by_the_way_to_it() {
        let between = |from: &str, to: &str| path_between(Path::new(from), Path::new(to)).display().to_string();
        assert_eq!(between("/a/state", "/a/out.csv"), "../out.csv");
        assert_eq!(between("/a/state", "/a/state/out.csv"), "out.csv");
        assert_eq!(between("/a/b/state", "/c/out.csv"), "../../../c/out.csv");
        assert_eq!(between("state", "out/result"), "../out/result");
        assert_eq!(between("state", "/out"), "/out");
    }
}
