//! Committed files: files that grow by commits, which keep the contract of [`Sink`](tidemill_runtime::Sink).
//!
//! An output `x` is written as `.x.tidemill-part` in the same directory. The record `.x.tidemill-epoch` says how much
//! of it is committed: the last epoch, and the number of bytes of all epochs up to it, with their checksum.
//!
//! 1. *Prepare*: sync the part; before the first record, sync its directory entry too.
//! 2. *Commit*: replace the record by a rename. This single step releases the epoch.
//! 3. *Recover*: truncate the part to the length in the record, and compare its checksum. Then write the record again,
//!    as it may have been read from a cache that never reached the disk.
//! 4. *Finish*: truncate the part to the committed length, mark the record as finished, and rename the part to `x`.
//!    After a crash between the last two, the next recovery does the rename.
//! 5. *Continue after that*: before the first byte is written, copy `x`, compare the copy's checksum with the record,
//!    and rename the copy to the part. `x` stays as it is until the next finish.
//!
//! The record names its owner, the state whose epochs it counts: a file that another state's run left is begun anew.
//! It also names the form of the contents, and another form is refused. Its last line is a checksum of the other
//! lines; a record with another checksum is refused.
//!
//! A lock on `.x.tidemill-lock` keeps two sinks from writing one output.

use crate::output::{SinkDurability, write_failed};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{
    Bug, File, Lock, Locked, Open, Planted, Storage, directory_of, overwrite, read_all, replace,
};
use tidemill_runtime::IoFailure;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The version of the record's form.
const VERSION: u32 = 2;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// An output file that grows by commits.
pub(crate) struct CommittedFile {
    /// The path as the user gave it, for messages.
    name: String,
    storage: Arc<dyn Storage>,
    planted: Planted,
    path: PathBuf,
    /// The part. None before recovery, and while the output is finished.
    file: Option<Box<dyn File>>,
    record: Record,
    /// The whole part, with what is not committed.
    written: Extent,
    prepared: Option<(u64, Extent)>,
    /// The beginning of the part that the record covers.
    committed: Extent,
    /// Whether the part's directory entry may not be durable yet.
    is_new: bool,
    state: State,
    _lock: Box<dyn Lock>,
}

/// A part, or the beginning of one.
#[derive(Clone, Default)]
struct Extent {
    length: u64,
    hash: Xxh3,
}

impl Extent {
    fn grow(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.hash.update(bytes);
    }

    fn sum(&self) -> String {
        format!("{:016x}", self.hash.digest())
    }

    /// Reads the first `length` bytes of a file, and shows them to `each`.
    fn read(file: &dyn File, length: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Extent> {
        let mut extent = Extent::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        while extent.length < length {
            let wanted = (length - extent.length).min(CHUNK_BYTES as u64) as usize;
            let read = file.read_at(extent.length, &mut chunk[..wanted])?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            each(&chunk[..read])?;
            extent.grow(&chunk[..read]);
        }
        Ok(extent)
    }
}

#[derive(PartialEq, Eq)]
enum State {
    Opened,
    Recovered,
    Failed,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    owner: String,
    form: String,
    epoch: Option<u64>,
    length: u64,
    /// The checksum of the bytes up to that length.
    sum: String,
    finished: bool,
}

impl Record {
    fn commit(&mut self, extent: &Extent) {
        self.length = extent.length;
        self.sum = extent.sum();
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("strings and numbers");
        bytes.push(b'\n');
        let sum = format!("{:016x}\n", xxh3_64(&bytes));
        bytes.extend_from_slice(sum.as_bytes());
        bytes
    }

    fn parse(bytes: &[u8], planted: Planted) -> Result<Record, String> {
        let damaged = || "it is damaged".to_owned();
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (body, sum) = bytes.split_at(end + 1);
        if sum != format!("{:016x}\n", xxh3_64(body)).as_bytes() && !planted.is(Bug::SinkTrustsRecord) {
            return Err(damaged());
        }
        let value: serde_json::Value = serde_json::from_slice(body).map_err(|_| damaged())?;
        match value["version"].as_u64() {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(format!("its version is {version}, and only {VERSION} is known")),
            None => return Err(damaged()),
        }
        serde_json::from_value(value).map_err(|_| damaged())
    }
}

impl CommittedFile {
    /// Takes the lock of the output at `path`, whose directory exists. `form` says what is written.
    pub fn open(name: &str, path: PathBuf, durable: &SinkDurability, form: String) -> Result<CommittedFile, IoFailure> {
        let storage = durable.storage.clone();
        let failed = |error: &dyn std::fmt::Display| write_failed(name, error);
        let lock = match storage.lock(&beside(&path, "lock"), "").map_err(|error| failed(&error))? {
            Locked::Mine(lock) => lock,
            Locked::By(_) => return Err(failed(&"another sink is writing it")),
        };
        let owner = durable.owner.clone();
        let committed = CommittedFile {
            name: name.to_owned(),
            storage,
            planted: durable.planted,
            path,
            file: None,
            record: Record {
                version: VERSION,
                owner,
                form,
                epoch: None,
                length: 0,
                sum: Extent::default().sum(),
                finished: false,
            },
            written: Extent::default(),
            prepared: None,
            committed: Extent::default(),
            is_new: false,
            state: State::Opened,
            _lock: lock,
        };
        // An output that cannot be continued is refused before the run changes anything else.
        committed.recorded()?;
        Ok(committed)
    }

    /// The record of what the same state released of this output before, if it did.
    fn recorded(&self) -> Result<Option<Record>, IoFailure> {
        let path = beside(&self.path, "epoch");
        let bytes = match read_all(&*self.storage, &path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(write_failed(&self.name, &error)),
        };
        let record = Record::parse(&bytes, self.planted).map_err(|reason| {
            let path = path.display();
            IoFailure::new(format!("{path}, which says what of {} was released, cannot be used: {reason}", self.name))
        })?;
        if record.owner != self.record.owner && !self.planted.is(Bug::SinkIgnoresOwner) {
            return Ok(None);
        }
        if record.form != self.record.form {
            let (was, is) = (&record.form, &self.record.form);
            return Err(IoFailure::new(format!("{} was begun as {was} and cannot go on as {is}", self.name)));
        }
        Ok(Some(record))
    }

    /// Whether it is empty, without uncommitted bytes too.
    pub fn is_empty(&self) -> bool {
        self.written.length == 0
    }

    /// Undoes everything after the last commit; the last committed epoch.
    pub fn recover(&mut self) -> Result<Option<u64>, IoFailure> {
        assert!(self.state == State::Opened, "recovery comes first");
        self.state = State::Failed;
        match self.recorded()? {
            Some(record) => {
                self.record = record;
                self.resume()?;
            }
            None => self.start_over().map_err(|error| write_failed(&self.name, &error))?,
        }
        self.state = State::Recovered;
        Ok(self.record.epoch)
    }

    fn start_over(&mut self) -> io::Result<()> {
        let file = self.storage.open(&beside(&self.path, "part"), Open::AppendOrCreate)?;
        file.truncate(0)?;
        self.file = Some(file);
        self.is_new = true;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), IoFailure> {
        let failed = |error: &dyn std::fmt::Display| write_failed(&self.name, error);
        let part = beside(&self.path, "part");
        let recorded = self.record.length;
        let found = match self.storage.open(&part, Open::Append) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        let (finished, is_named) = (self.record.finished, found.is_none());
        let file = match found {
            Some(file) => file,
            None if finished => match self.storage.open(&self.path, Open::Read) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(failed(&"it was released before, and is gone"));
                }
                Err(error) => return Err(failed(&error)),
            },
            None => return Err(failed(&format!("{}, with what was released, is gone", part.display()))),
        };
        let what = if is_named { "it".to_owned() } else { part.display().to_string() };
        let length = file.length().map_err(|error| failed(&error))?;
        if length < recorded || finished && length > recorded {
            return Err(failed(&format!("{what} has {length} bytes, and {recorded} were released")));
        }
        let begun = Extent::read(&*file, recorded, |_| Ok(())).map_err(|error| failed(&error))?;
        if !self.is_released(&begun) {
            let text = format!("{what} is damaged: its first {recorded} bytes are not those that were released");
            return Err(failed(&text));
        }
        let mut released = begun;
        if finished {
            if !is_named {
                self.put_under_its_name().map_err(|error| failed(&error))?;
            }
        } else {
            if self.planted.is(Bug::SinkKeepsTail) {
                released = Extent::read(&*file, length, |_| Ok(())).map_err(|error| failed(&error))?;
                self.record.commit(&released);
            } else {
                file.truncate(recorded).map_err(|error| failed(&error))?;
            }
            self.file = Some(file);
        }
        self.written = released.clone();
        self.committed = released;
        self.write_record().map_err(|error| failed(&error))
    }

    /// Whether these are the bytes that the record covers.
    fn is_released(&self, extent: &Extent) -> bool {
        extent.sum() == self.record.sum || self.planted.is(Bug::SinkTrustsPart)
    }

    fn write_record(&self) -> io::Result<()> {
        let path = beside(&self.path, "epoch");
        if self.planted.is(Bug::SinkRecordsInPlace) {
            return overwrite(&*self.storage, &path, &self.record.to_bytes());
        }
        replace(&*self.storage, &path, &self.record.to_bytes())
    }

    fn put_under_its_name(&self) -> io::Result<()> {
        self.storage.rename(&beside(&self.path, "part"), &self.path)?;
        self.storage.sync_directory(&directory_of(&self.path))
    }

    /// Runs a call of the contract. After a failure every later call fails.
    fn call<T>(&mut self, body: impl FnOnce(&mut CommittedFile) -> io::Result<T>) -> Result<T, IoFailure> {
        match self.state {
            State::Opened => panic!("recovery comes first"),
            State::Failed => return Err(write_failed(&self.name, &"it failed before")),
            State::Recovered => {}
        }
        body(self).map_err(|error| {
            if !self.planted.is(Bug::SinkForgetsErrors) {
                self.state = State::Failed;
            }
            write_failed(&self.name, &error)
        })
    }

    /// Appends bytes to the part.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.record.finished {
                this.go_on()?;
            }
            this.file.as_ref().expect("it is recovered").append(bytes)?;
            this.written.grow(bytes);
            Ok(())
        })
    }

    /// Makes a part again from a finished output.
    fn go_on(&mut self) -> io::Result<()> {
        if self.planted.is(Bug::SinkRestartsFinished) {
            (self.committed, self.written) = (Extent::default(), Extent::default());
            self.record.commit(&self.committed);
            self.start_over()?;
        } else {
            let (copy, part) = (beside(&self.path, "copy"), beside(&self.path, "part"));
            let from = self.storage.open(&self.path, Open::Read)?;
            let to = self.storage.open(&copy, Open::AppendOrCreate)?;
            to.truncate(0)?;
            let copied = Extent::read(&*from, self.record.length, |chunk| to.append(chunk))?;
            if !self.is_released(&copied) {
                return Err(io::Error::new(ErrorKind::InvalidData, "what was released of it was changed"));
            }
            to.sync()?;
            self.storage.rename(&copy, &part)?;
            self.storage.sync_directory(&directory_of(&self.path))?;
            self.file = Some(to);
        }
        self.record.finished = false;
        self.write_record()
    }

    /// Makes everything appended so far durable, as the output of the epochs up to `epoch`.
    pub fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) {
                let kept = this.prepared.as_ref().map_or(&this.committed, |(_, extent)| extent).clone();
                return this.cut(kept);
            }
            if let Some((prepared, _)) = this.prepared.as_ref().filter(|(prepared, _)| *prepared > epoch) {
                return Err(io::Error::other(format!("epoch {epoch} comes after epoch {prepared}")));
            }
            if this.planted.is(Bug::SinkRecordsFirst) {
                this.record.epoch = Some(epoch);
                this.committed = this.written.clone();
                this.record.commit(&this.committed);
                this.write_record()?;
            }
            this.prepared = Some((epoch, this.written.clone()));
            this.settle()
        })
    }

    /// Whether an epoch was committed before.
    pub fn is_old(&self, epoch: u64) -> bool {
        self.record.epoch.is_some_and(|last| epoch <= last) && !self.planted.is(Bug::SinkTakesOldEpochs)
    }

    /// Makes the part and its directory entry durable.
    fn settle(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.sync()?;
            if self.is_new {
                self.storage.sync_directory(&directory_of(&self.path))?;
                self.is_new = false;
            }
        }
        Ok(())
    }

    /// Truncates the part to the given beginning.
    fn cut(&mut self, kept: Extent) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.written.length > kept.length) {
            file.truncate(kept.length)?;
            self.written = kept;
        }
        Ok(())
    }

    /// Releases the prepared bytes.
    pub fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) {
                return Ok(());
            }
            let Some((_, extent)) = this.prepared.take_if(|(prepared, _)| *prepared == epoch) else {
                return Err(io::Error::other(format!("epoch {epoch} was not prepared")));
            };
            let skipped = this.planted.is(Bug::SinkSkipsEmptyEpochs) && extent.length == this.committed.length;
            let unprepared = this.planted.is(Bug::SinkCommitsUnprepared);
            this.committed = if unprepared { this.written.clone() } else { extent };
            this.record.epoch = Some(epoch);
            this.record.commit(&this.committed);
            if skipped { Ok(()) } else { this.write_record() }
        })
    }

    /// Drops everything written since the last commit.
    pub fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) || this.planted.is(Bug::SinkKeepsAborted) {
                return Ok(());
            }
            this.prepared = None;
            this.cut(this.committed.clone())
        })
    }

    /// Drops everything written since the last commit, for good. Bytes written after this belong to no epoch, such as
    /// the header of an output without events.
    pub fn close(&mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            this.prepared = None;
            this.cut(this.committed.clone())
        })
    }

    /// Gives the closed output its final name.
    pub fn finish(mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.record.finished {
                return Ok(());
            }
            this.settle()?;
            this.record.commit(&this.written);
            this.record.finished = true;
            if !this.planted.is(Bug::SinkFinishesUnrecorded) {
                this.write_record()?;
            }
            this.put_under_its_name()
        })
    }

    /// The committed bytes of the part.
    pub fn committed_length(&self) -> u64 {
        self.committed.length
    }

    /// Reads from the part.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.as_ref().ok_or(ErrorKind::NotFound)?.read_at(at, into)
    }
}

/// A hidden file of the output at `path`.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tidemill-{what}"))
}
