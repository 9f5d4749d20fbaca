//! Committed files: files that grow by commits, which keep the contract of [`Sink`](tidemill_io::Sink).
//!
//! An output `x` is written as `.x.tidemill-part` in the same directory. Its entry in the record of the state's sinks
//! ([`SinkRecord`]) says how much of it is committed: the last epoch, and the number of bytes of all epochs up to it, with
//! their checksum.
//!
//! 1. *Prepare*: sync the part; before the first entry, sync its directory entry too. Stage the entry.
//! 2. *Commit*: replace the record by a rename. This single step releases the epoch. It and the sync are left out where the
//!    epoch wrote nothing.
//! 3. *Recover*: truncate the part to the length in the entry, and compare its checksum. Then write the record again,
//!    as it may have been read from a cache that never reached the disk.
//! 4. *Finish*: truncate the part to the committed length, mark the entry as finished, and rename the part to `x`.
//!    After a crash between the last two, the next recovery does the rename.
//! 5. *Continue after that*: before the first byte is written, copy `x`, compare the copy's checksum with the entry,
//!    and rename the copy to the part. `x` stays as it is until the next finish.
//!
//! The entry names its owner, the state whose epochs it counts: a file that another state's run left is begun anew.
//! It also names the form of the contents, and another form is refused.
//!
//! Earlier versions had a record of its own beside each output, `.x.tidemill-epoch`. It is read where the state's record has
//! no entry, and removed when that has one.
//!
//! A lock keeps two sinks from writing one output ([`OutputLock`]). A note keeps an older copy of a state from cutting off what a
//! later run has released ([`OutputNote`]).

use crate::output::{SinkDurability, write_failed};
use crate::output_lock::{OutputLock, beside};
use crate::output_note::OutputNote;
use crate::sink_record::{Entry, SinkRecord, Unread};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{Bug, File, Open, Planted, Storage, directory_of, read_all};
use tidemill_io::IoFailure;
use xxhash_rust::xxh3::Xxh3;

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
    record: Arc<SinkRecord>,
    /// The output in the record.
    key: String,
    entry: Entry,
    /// The whole part, with what is not committed.
    written: Extent,
    prepared: Option<(u64, Extent)>,
    /// The beginning of the part that the entry covers.
    committed: Extent,
    /// The length of the part that is durable.
    synced: u64,
    /// A flag: whether the part's directory entry may not be durable yet.
    is_new: bool,
    /// A flag: whether the part was cut, which may not be durable yet: a power cut could bring back what was cut off.
    is_cut: bool,
    state: State,
    note: OutputNote,
    lock: OutputLock,
}

/// The length and hash of a part of the file, or of the beginning of one.
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

impl Entry {
    fn commit(&mut self, extent: &Extent) {
        self.length = extent.length;
        self.sum = extent.sum();
    }
}

impl CommittedFile {
    /// Takes the lock of the output at `path`, whose directory exists. `form` says what is written.
    pub fn open(name: &str, path: PathBuf, durable: &SinkDurability, form: String) -> Result<CommittedFile, IoFailure> {
        let storage = durable.storage.clone();
        let failed = |error: &dyn std::fmt::Display| write_failed(name, error);
        let lock = OutputLock::take(&storage, &path, durable.planted).map_err(|error| failed(&error))?;
        let owner = durable.owner.clone();
        let note = OutputNote::of(storage.clone(), &path);
        let committed = CommittedFile {
            name: name.to_owned(),
            storage,
            planted: durable.planted,
            key: durable.record.name_of(&path).map_err(|error| failed(&error))?,
            path,
            file: None,
            record: durable.record.clone(),
            entry: Entry { owner, form, epoch: None, length: 0, sum: Extent::default().sum(), finished: false },
            written: Extent::default(),
            prepared: None,
            committed: Extent::default(),
            synced: 0,
            is_new: false,
            is_cut: false,
            state: State::Opened,
            note,
            lock,
        };
        // An output that cannot be continued is refused before the run changes anything else.
        committed.recorded()?;
        Ok(committed)
    }

    /// Returns the entry of what the same state released of this output before, if it did.
    fn recorded(&self) -> Result<Option<Entry>, IoFailure> {
        let entry = match self.record.entry(&self.key) {
            Ok(entry) => entry,
            Err(Unread::Io(error)) => return Err(write_failed(&self.name, &error)),
            Err(Unread::Unusable(path, reason)) => return Err(self.unusable(&path, &reason)),
        };
        let is_own = |entry: &Entry| entry.owner == self.entry.owner || self.planted.is(Bug::SinkIgnoresOwner);
        let entry = match entry.filter(is_own) {
            Some(entry) => Some(entry),
            None => self.recorded_beside()?.filter(is_own),
        };
        self.check_note(entry.as_ref())?;
        let Some(entry) = entry else { return Ok(None) };
        if entry.form != self.entry.form {
            let (was, is) = (&entry.form, &self.entry.form);
            return Err(IoFailure::new(format!("{} was begun as {was} and cannot go on as {is}", self.name)));
        }
        Ok(Some(entry))
    }

    /// Refuses a state that knows of less than what it has released, where that would be cut off: an older copy of it.
    fn check_note(&self, recorded: Option<&Entry>) -> Result<(), IoFailure> {
        let part = [beside(&self.path, "part"), self.path.clone()].into_iter().find_map(|path| {
            // A file that cannot be read is reported when it is needed.
            self.storage.open(&path, Open::Read).ok()
        });
        let Some(part) = part.filter(|_| !self.planted.is(Bug::SinkIgnoresNote)) else { return Ok(()) };
        let failed = |error| write_failed(&self.name, &error);
        let Some(noted) = self.note.epoch(&self.entry.owner, &*part).map_err(failed)? else { return Ok(()) };
        let epoch = recorded.and_then(|entry| entry.epoch);
        let loses = part.length().map_err(failed)? > recorded.map_or(0, |entry| entry.length);
        if !loses || epoch.is_some_and(|epoch| epoch >= noted) {
            return Ok(());
        }
        let has = format!("{} has what epoch {noted} of this state released, and the state knows of", self.name);
        let text = match epoch {
            None if self.record.has_entries() => {
                format!("{has} no output at this place: move a state and its outputs together, or neither")
            }
            None => {
                let (record, note) = (self.record.path().display(), self.note.path().display());
                format!(
                    "{has} none: {record} is not there, or this is an older copy of the state. Put the record, or the later \
                     state, back; or, if the output is of the older state, too, remove {note}"
                )
            }
            Some(epoch) => {
                let note = self.note.path().display();
                format!(
                    "{has} epoch {epoch}: it is an older copy of the state. Put the later state back; or, if the output is \
                     of the older state, too, remove {note}"
                )
            }
        };
        Err(IoFailure::new(text))
    }

    /// Returns the record beside the output, which earlier versions had.
    fn recorded_beside(&self) -> Result<Option<Entry>, IoFailure> {
        let path = beside(&self.path, "epoch");
        match read_all(&*self.storage, &path) {
            Ok(bytes) => {
                Entry::parse_old(&bytes, self.planted).map(Some).map_err(|reason| self.unusable(&path, &reason))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(write_failed(&self.name, &error)),
        }
    }

    fn unusable(&self, path: &Path, reason: &str) -> IoFailure {
        let path = path.display();
        IoFailure::new(format!("{path}, which says what of {} was released, cannot be used: {reason}", self.name))
    }

    /// Returns whether the file is empty, without uncommitted bytes too.
    pub fn is_empty(&self) -> bool {
        self.written.length == 0
    }

    /// Undoes everything after the last commit; the last committed epoch.
    pub fn recover(&mut self) -> Result<Option<u64>, IoFailure> {
        assert!(self.state == State::Opened, "recovery comes first");
        self.state = State::Failed;
        match self.recorded()? {
            Some(entry) => {
                self.entry = entry;
                self.resume()?;
                // The failure changes nothing: the state's record has precedence.
                let _ = self.storage.remove(&beside(&self.path, "epoch"));
            }
            None => self.start_over().map_err(|error| write_failed(&self.name, &error))?,
        }
        self.state = State::Recovered;
        Ok(self.entry.epoch)
    }

    fn start_over(&mut self) -> io::Result<()> {
        let part = beside(&self.path, "part");
        self.lock.check()?;
        let file = self.storage.open(&part, Open::AppendOrCreate)?;
        self.lock.hold(&part)?;
        file.truncate(0)?;
        self.file = Some(file);
        (self.is_new, self.synced) = (true, 0);
        Ok(())
    }

    fn resume(&mut self) -> Result<(), IoFailure> {
        let failed = |error: &dyn std::fmt::Display| write_failed(&self.name, error);
        let part = beside(&self.path, "part");
        let recorded = self.entry.length;
        let found = match self.storage.open(&part, Open::Append) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        let (finished, is_named) = (self.entry.finished, found.is_none());
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
        self.lock.hold(if is_named { &self.path } else { &part }).map_err(|error| failed(&error))?;
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
            let named = match is_named {
                // The process that gave it the name may have ended before that was durable.
                true => self.storage.sync_directory(&directory_of(&self.path)),
                false => self.put_under_its_name(),
            };
            named.map_err(|error| failed(&error))?;
        } else {
            if self.planted.is(Bug::SinkKeepsTail) {
                released = Extent::read(&*file, length, |_| Ok(())).map_err(|error| failed(&error))?;
                self.entry.commit(&released);
            } else {
                file.truncate(recorded).map_err(|error| failed(&error))?;
                self.is_cut = length > recorded;
            }
            self.file = Some(file);
        }
        self.written = released.clone();
        self.committed = released;
        self.synced = self.committed.length;
        self.put().map_err(|error| failed(&error))
    }

    /// Returns whether these are the bytes that the entry covers.
    fn is_released(&self, extent: &Extent) -> bool {
        extent.sum() == self.entry.sum || self.planted.is(Bug::SinkTrustsPart)
    }

    /// Sets the entry of the output.
    fn put(&self) -> io::Result<()> {
        self.lock.check()?;
        self.record.put(&self.key, &self.entry)
    }

    fn put_under_its_name(&self) -> io::Result<()> {
        self.lock.check()?;
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
            if this.entry.finished {
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
            self.entry.commit(&self.committed);
            self.start_over()?;
        } else {
            let (copy, part) = (beside(&self.path, "copy"), beside(&self.path, "part"));
            self.lock.check()?;
            let from = self.storage.open(&self.path, Open::Read)?;
            let to = self.storage.open(&copy, Open::AppendOrCreate)?;
            to.truncate(0)?;
            let copied = Extent::read(&*from, self.entry.length, |chunk| to.append(chunk))?;
            if !self.is_released(&copied) {
                return Err(io::Error::new(ErrorKind::InvalidData, "what was released of it was changed"));
            }
            to.sync()?;
            self.storage.rename(&copy, &part)?;
            self.lock.hold(&part)?;
            self.storage.sync_directory(&directory_of(&self.path))?;
            self.file = Some(to);
            self.synced = self.entry.length;
        }
        self.entry.finished = false;
        self.put()?;
        self.write_note();
        Ok(())
    }

    /// Notes what is released, as the record has it.
    fn write_note(&mut self) {
        if let (Some(epoch), Some(file)) = (self.entry.epoch, &self.file) {
            self.note.write(&self.entry.owner, epoch, &**file);
        }
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
                this.entry.epoch = Some(epoch);
                this.committed = this.written.clone();
                this.entry.commit(&this.committed);
                this.put()?;
            }
            this.prepared = Some((epoch, this.written.clone()));
            this.settle()?;
            this.stage(epoch, &this.written);
            Ok(())
        })
    }

    /// Stages the entry of an epoch that ends with these bytes.
    fn stage(&self, epoch: u64, extent: &Extent) {
        let mut entry = Entry { epoch: Some(epoch), ..self.entry.clone() };
        entry.commit(extent);
        self.record.stage(&self.key, epoch, entry, extent.length != self.committed.length);
    }

    /// Returns whether an epoch was committed before.
    pub fn is_old(&self, epoch: u64) -> bool {
        self.entry.epoch.is_some_and(|last| epoch <= last) && !self.planted.is(Bug::SinkTakesOldEpochs)
    }

    /// Makes the part and its directory entry durable.
    fn settle(&mut self) -> io::Result<()> {
        let is_settled = self.synced == self.written.length && !self.is_new && !self.is_cut;
        let is_settled = is_settled && !self.planted.is(Bug::SilentSinkSyncs);
        let Some(file) = self.file.as_ref().filter(|_| !is_settled) else { return Ok(()) };
        self.lock.check()?;
        file.sync()?;
        (self.synced, self.is_cut) = (self.written.length, false);
        if self.is_new {
            self.storage.sync_directory(&directory_of(&self.path))?;
            self.is_new = false;
        }
        Ok(())
    }

    /// Truncates the part to the given beginning.
    fn cut(&mut self, kept: Extent) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.written.length > kept.length) {
            file.truncate(kept.length)?;
            self.is_cut = true;
            self.synced = self.synced.min(kept.length);
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
            if this.planted.is(Bug::SinkCommitsUnprepared) {
                this.stage(epoch, &this.written);
            }
            this.record.commit(epoch)?;
            let has_news = extent.length != this.committed.length;
            this.committed = if this.planted.is(Bug::SinkCommitsUnprepared) { this.written.clone() } else { extent };
            this.entry.epoch = Some(epoch);
            this.entry.commit(&this.committed);
            if has_news {
                this.write_note();
            }
            Ok(())
        })
    }

    /// Makes the record say so durably that the last epoch was committed.
    pub fn keep(&mut self) -> Result<(), IoFailure> {
        self.call(|this| this.record.keep())
    }

    /// Drops everything written since the last commit.
    pub fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.is_old(epoch) || this.planted.is(Bug::SinkKeepsAborted) {
                return Ok(());
            }
            this.unprepare();
            this.cut(this.committed.clone())
        })
    }

    /// Drops everything written since the last commit, for good. Bytes written after this belong to no epoch, such as
    /// the header of an output without events.
    pub fn close(&mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            this.unprepare();
            this.cut(this.committed.clone())
        })
    }

    fn unprepare(&mut self) {
        self.prepared = None;
        self.record.unstage(&self.key);
    }

    /// Gives the closed output its final name.
    pub fn finish(mut self) -> Result<(), IoFailure> {
        self.call(|this| {
            if this.entry.finished {
                return this.record.keep();
            }
            this.settle()?;
            this.entry.commit(&this.written);
            this.entry.finished = true;
            if !this.planted.is(Bug::SinkFinishesUnrecorded) {
                this.put()?;
            }
            this.put_under_its_name()
        })
    }

    /// Refuses to go on where another sink may be writing the output.
    pub fn check_held(&self) -> Result<(), IoFailure> {
        self.lock.check().map_err(|error| write_failed(&self.name, &error))
    }

    /// Returns the committed bytes of the part.
    pub fn committed_length(&self) -> u64 {
        self.committed.length
    }

    /// Reads from the part.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.as_ref().ok_or(ErrorKind::NotFound)?.read_at(at, into)
    }
}
