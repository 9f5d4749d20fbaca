//! Outputs that grow by commits: the sinks' contract for files.
//!
//! An output `x` is written as `.x.tidemill-part` beside it. What of it is committed is said by the
//! record `.x.tidemill-epoch`: the last epoch, and how many bytes belong to the epochs up to it.
//!
//! 1. *Prepare*: the part is synced; before the first record, its name as well.
//! 2. *Commit*: the record is replaced by way of a rename. That is the one step by which an epoch is
//!    released or not.
//! 3. *Recover*: the part is cut to the length of the record. The record is then written anew: it may
//!    have been read from memory that never reached the disk.
//! 4. *Finish*: the part is cut to what is committed; the record says that it is finished; the part is
//!    renamed to `x`. A crash between the two is made up for by the next recovery.
//! 5. *Going on after that*: before the first byte is written, `x` is copied and the copy becomes the
//!    part. `x` stays as it is until the next finish.
//!
//! The record names its owner, the state whose epochs it counts: what another state's run has left is
//! begun anew. It names the form of the contents, too, and another form is refused. Its last line is a
//! checksum of the others; a record that does not fit it is refused, not guessed at. The contents of
//! the part have no checksum: they are never read.
//!
//! A lock on `.x.tidemill-lock` keeps two sinks from writing one output.

use crate::output::{Durable, write_failed};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{
    Bug, File, Lock, Locked, Open, Planted, Storage, directory_of, overwrite, read_all, replace,
};
use tidemill_runtime::IoFailure;
use xxhash_rust::xxh3::xxh3_64;

/// Of the record's form.
const VERSION: u32 = 1;

/// Copied at once.
const COPY_BYTES: usize = 1 << 20;

/// An output that grows by commits.
pub(crate) struct Growing {
    /// In messages.
    name: String,
    storage: Arc<dyn Storage>,
    planted: Planted,
    path: PathBuf,
    /// None before it is recovered, and while the output is finished.
    file: Option<Box<dyn File>>,
    record: Record,
    /// Bytes in the part.
    length: u64,
    prepared: Option<Prepared>,
    /// Whether the part's name may not be durable.
    is_new: bool,
    state: State,
    _lock: Box<dyn Lock>,
}

#[derive(Clone, Copy)]
struct Prepared {
    epoch: u64,
    length: u64,
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
    finished: bool,
}

impl Record {
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

impl Growing {
    /// Takes the lock of the output at `path`, whose directory exists. `form` says what is written.
    pub fn open(name: &str, path: PathBuf, durable: &Durable, form: String) -> Result<Growing, IoFailure> {
        let storage = durable.storage.clone();
        let failed = |error: &dyn std::fmt::Display| write_failed(name, error);
        let lock = match storage.lock(&beside(&path, "lock"), "").map_err(|error| failed(&error))? {
            Locked::Mine(lock) => lock,
            Locked::By(_) => return Err(failed(&"another sink is writing it")),
        };
        let owner = durable.owner.clone();
        let growing = Growing {
            name: name.to_owned(),
            storage,
            planted: durable.planted,
            path,
            file: None,
            record: Record { version: VERSION, owner, form, epoch: None, length: 0, finished: false },
            length: 0,
            prepared: None,
            is_new: false,
            state: State::Opened,
            _lock: lock,
        };
        // What cannot go on is refused before anything else of the run is changed.
        growing.recorded()?;
        Ok(growing)
    }

    /// What was released of this output before, by the same state; none where nothing was.
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

    /// Whether nothing is in it, not even uncommitted.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Undoes what was not committed.
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
        if self.record.finished {
            if found.is_some() {
                self.put_under_its_name().map_err(|error| failed(&error))?;
            }
            let length = match self.storage.look(&self.path) {
                Ok(entry) => entry.length,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(failed(&"it was released before, and is gone"));
                }
                Err(error) => return Err(failed(&error)),
            };
            if length != recorded {
                let text = format!("it was released before with {recorded} bytes, and now has {length}");
                return Err(failed(&text));
            }
        } else {
            let part = part.display();
            let Some(file) = found else {
                return Err(failed(&format!("{part}, with what was released, is gone")));
            };
            let length = file.length().map_err(|error| failed(&error))?;
            if length < recorded {
                let text = format!("{part} has {length} bytes, and {recorded} were released");
                return Err(failed(&text));
            }
            if self.planted.is(Bug::SinkKeepsTail) {
                self.record.length = length;
            } else {
                file.truncate(recorded).map_err(|error| failed(&error))?;
            }
            self.file = Some(file);
        }
        self.length = self.record.length;
        self.write_record().map_err(|error| failed(&error))
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

    /// Runs a call of the contract. Its failure is the last word.
    fn call<T>(&mut self, body: impl FnOnce(&mut Growing) -> io::Result<T>) -> Result<T, IoFailure> {
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

    /// Writes behind what is there.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.record.finished {
                this.go_on()?;
            }
            this.file.as_ref().expect("it is recovered").append(bytes)?;
            this.length += bytes.len() as u64;
            Ok(())
        })
    }

    /// Makes the part of a finished output again.
    fn go_on(&mut self) -> io::Result<()> {
        if self.planted.is(Bug::SinkRestartsFinished) {
            (self.record.length, self.length) = (0, 0);
            self.start_over()?;
        } else {
            let (copy, part) = (beside(&self.path, "copy"), beside(&self.path, "part"));
            let from = self.storage.open(&self.path, Open::Read)?;
            let to = self.storage.open(&copy, Open::AppendOrCreate)?;
            to.truncate(0)?;
            let mut chunk = vec![0; COPY_BYTES];
            let mut at = 0;
            while at < self.record.length {
                let read = from.read_at(at, &mut chunk)?;
                if read == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                to.append(&chunk[..read])?;
                at += read as u64;
            }
            to.sync()?;
            self.storage.rename(&copy, &part)?;
            self.storage.sync_directory(&directory_of(&self.path))?;
            self.file = Some(to);
        }
        self.record.finished = false;
        self.write_record()
    }

    /// What was appended is of epochs up to `epoch`; makes it durable.
    pub fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) {
                return this.cut(this.prepared.map_or(this.record.length, |prepared| prepared.length));
            }
            if let Some(prepared) = this.prepared.filter(|prepared| prepared.epoch > epoch) {
                return Err(io::Error::other(format!("epoch {epoch} comes after epoch {}", prepared.epoch)));
            }
            if this.planted.is(Bug::SinkRecordsFirst) {
                (this.record.epoch, this.record.length) = (Some(epoch), this.length);
                this.write_record()?;
            }
            this.prepared = Some(Prepared { epoch, length: this.length });
            this.settle()
        })
    }

    /// Whether an epoch was committed before.
    pub fn is_old(&self, epoch: u64) -> bool {
        self.record.epoch.is_some_and(|last| epoch <= last) && !self.planted.is(Bug::SinkTakesOldEpochs)
    }

    /// Makes the part durable under its name.
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

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.length > length) {
            file.truncate(length)?;
            self.length = length;
        }
        Ok(())
    }

    /// Releases what was prepared.
    pub fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) {
                return Ok(());
            }
            let prepared = this.prepared.filter(|prepared| prepared.epoch == epoch);
            let Some(Prepared { length, .. }) = prepared else {
                return Err(io::Error::other(format!("epoch {epoch} was not prepared")));
            };
            let skipped = this.planted.is(Bug::SinkSkipsEmptyEpochs) && length == this.record.length;
            let unprepared = this.planted.is(Bug::SinkCommitsUnprepared);
            this.record.length = if unprepared { this.length } else { length };
            this.record.epoch = Some(epoch);
            this.prepared = None;
            if skipped { Ok(()) } else { this.write_record() }
        })
    }

    /// Forgets what was written since the last commit.
    pub fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) || this.planted.is(Bug::SinkKeepsAborted) {
                return Ok(());
            }
            this.prepared = None;
            this.cut(this.record.length)
        })
    }

    /// Forgets what was written since the last commit, for good. What is written after that is the frame
    /// of an output without any epoch.
    pub fn close(&mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            this.prepared = None;
            this.cut(this.record.length)
        })
    }

    /// Puts what is closed under its final name.
    pub fn finish(mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.record.finished {
                return Ok(());
            }
            this.settle()?;
            this.record.length = this.length;
            this.record.finished = true;
            if !this.planted.is(Bug::SinkFinishesUnrecorded) {
                this.write_record()?;
            }
            this.put_under_its_name()
        })
    }

    /// How much of the part is committed.
    pub fn committed_length(&self) -> u64 {
        self.record.length
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
