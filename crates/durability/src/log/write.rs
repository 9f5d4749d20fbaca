//! Appending to a log.

use super::record::{self, Header, Kind};
use super::segment::{self, Segment};
use crate::error::StateError;
use crate::planted::{Bug, Planted};
use crate::proof::Chain;
use crate::state_lock::StateLock;
use crate::storage::{File, Open, Storage, is_shortage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes after which a new segment begins.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The most zeros that are written ahead of the records at once.
const AHEAD_BYTES_MAX: u64 = 256 << 10;
/// A write of more bytes is not given zeros to lie on: its records are worth a sync that changes the file's length.
const LIES_ON_ZEROS_MAX: usize = 64 << 10;

/// The result of a write.
#[derive(Debug)]
pub enum Written {
    /// Everything that was pushed is in the file.
    All,
    /// There is no room. The pushed records are kept, and the write can be tried again.
    Full(io::Error),
}

/// The end of a log. Records are pushed, written together and synced together.
pub struct Log {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    /// All but the last may be removed when a checkpoint has their epochs.
    segments: Vec<Segment>,
    file: Box<dyn File>,
    segment_bytes: u64,
    /// The length of the file: zeros stand after the records.
    length: u64,
    /// A flag: whether there is room for zeros ahead of the records.
    fills: bool,
    /// Records that are not in the file yet.
    pushed: Vec<u8>,
    /// The end position of the records in the file.
    written: u64,
    /// The end position of the durable records.
    durable: u64,
    /// The position up to which a record states durability.
    marked: u64,
    chain: u64,
    epoch: u64,
    /// The chain of proof up to that epoch; none if none is kept.
    proof: Option<Chain>,
    /// The reason why nothing may be written any more.
    lost: Option<String>,
    /// Epochs after this one are not removed.
    held: Option<u64>,
    /// The lock of the state, without which nothing is written; none for a log alone.
    lock: Option<Arc<StateLock>>,
    pub(super) planted: Planted,
}

impl Log {
    /// Size of the file of a log without records.
    pub const EMPTY_BYTES: u64 = segment::HEADER as u64;

    /// Makes a log without records in an empty directory; the next epoch is `epoch` + 1.
    pub fn create(storage: Arc<dyn Storage>, directory: PathBuf, log: u64, epoch: u64) -> Result<Log, StateError> {
        let first = Segment { log, number: 1, base: 0, chain: 0, epoch, durable: 0 };
        Log::begin(storage, directory, Vec::new(), first, &[], 0, epoch)
    }

    /// Continues in a new segment that begins with `tail`, whose last record has the check `chain`.
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        directory: PathBuf,
        mut segments: Vec<Segment>,
        next: Segment,
        tail: &[u8],
        chain: u64,
        epoch: u64,
    ) -> Result<Log, StateError> {
        let file = start(&*storage, &directory, &next, tail).map_err(NotStarted::into_error)?;
        let end = next.base + tail.len() as u64;
        let length = next.offset(end);
        segments.push(next);
        let mut log = Log {
            storage,
            directory,
            segments,
            file,
            segment_bytes: SEGMENT_BYTES,
            length,
            fills: true,
            pushed: Vec::new(),
            written: end,
            durable: end,
            marked: end,
            chain,
            epoch,
            proof: None,
            lost: None,
            held: None,
            lock: None,
            planted: Planted::default(),
        };
        log.remove_void()?;
        Ok(log)
    }

    /// Sets the size after which a new segment begins.
    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    /// Keeps the epochs after this one, regardless of checkpoints.
    pub fn hold(&mut self, epoch: Option<u64>) {
        self.held = epoch;
    }

    /// Keeps the epochs after this one, too.
    pub fn hold_after(&mut self, epoch: u64) {
        self.held = Some(self.held.map_or(epoch, |held| held.min(epoch)));
    }

    /// Writes only as long as this process holds the state.
    pub(crate) fn guard(&mut self, lock: Option<Arc<StateLock>>) {
        self.lock = lock;
    }

    /// Plants a bug.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Returns the bug that is planted, if any.
    pub fn planted(&self) -> Planted {
        self.planted
    }

    /// Keeps a chain of proof, which is at the last epoch; none: keeps none.
    pub fn prove(&mut self, proof: Option<Chain>) {
        self.proof = proof;
    }

    /// Returns the chain of proof up to the last epoch that was pushed.
    pub fn proof(&self) -> Option<Chain> {
        self.proof
    }

    /// Returns the last epoch that was pushed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the file that is appended to.
    pub fn path(&self) -> PathBuf {
        self.last().path(&self.directory)
    }

    /// Returns the bytes logged since the log began.
    pub fn position(&self) -> u64 {
        self.written + self.pushed.len() as u64
    }

    /// Returns whether everything pushed is in the file.
    pub fn is_written(&self) -> bool {
        self.pushed.is_empty()
    }

    /// Returns whether everything written is durable.
    pub fn is_durable(&self) -> bool {
        self.durable == self.written
    }

    /// Pushes the next epoch's record.
    pub fn push(&mut self, epoch: u64, payload: &[u8]) {
        assert_eq!(epoch, self.epoch + 1, "epochs are logged in order");
        self.epoch = epoch;
        self.proof.iter_mut().for_each(|proof| proof.link(epoch, payload));
        self.push_record(Kind::Epoch, payload);
    }

    /// Pushes a record of how far the log is durable, if no record states it yet.
    pub fn mark(&mut self) {
        if self.marked < self.durable {
            self.push_record(Kind::Mark, &[]);
        }
    }

    /// Pushes a note that belongs to no epoch.
    pub fn note(&mut self, payload: &[u8]) {
        self.push_record(Kind::Mark, payload);
    }

    fn push_record(&mut self, kind: Kind, payload: &[u8]) {
        self.check_ends();
        let (log, position) = (self.segments[0].log, self.position());
        let durable = if self.planted.is(Bug::LogMarksUnsynced) { position } else { self.durable };
        let header = Header { kind, length: payload.len() as u64, epoch: self.epoch, chain: self.chain, durable };
        self.chain = record::write(&mut self.pushed, log, position, &header, payload);
        self.marked = self.durable;
    }

    /// Checks how far the log is marked, durable and written.
    fn check_ends(&self) {
        assert!(self.marked <= self.durable, "what is marked as durable is durable");
        assert!(self.durable <= self.written, "what is durable is written");
    }

    /// Writes the pushed records. They are durable only after [`Log::sync`].
    pub fn write(&mut self) -> Result<Written, StateError> {
        self.check()?;
        if self.pushed.is_empty() {
            return Ok(Written::All);
        }
        self.check_held()?;
        let offset = self.last().offset(self.written);
        let end = offset + self.pushed.len() as u64;
        self.fill_ahead(end)?;
        match self.file.write_at(offset, &self.pushed) {
            Ok(()) => {
                self.written += self.pushed.len() as u64;
                self.length = self.length.max(end);
                self.pushed.clear();
                Ok(Written::All)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.cut(offset)?;
                Ok(Written::Full(error))
            }
            Err(error) => Err(self.lose(format!("a write failed: {error}"))),
        }
    }

    /// Writes zeros where a small write up to `end` and those after it will stand, as many as the segment has bytes. So
    /// a sync of them changes neither the length of the file nor its blocks, which would take the file system a sync of
    /// its own. They need not be durable, and a reader takes them for a torn tail. Without room the file grows with its records.
    fn fill_ahead(&mut self, end: u64) -> Result<(), StateError> {
        let until = (end + end.min(AHEAD_BYTES_MAX)).min(self.segment_bytes);
        if end <= self.length || until <= end || !self.fills || self.pushed.len() > LIES_ON_ZEROS_MAX {
            return Ok(());
        }
        let planted = self.planted.is(Bug::LogFillsUnsynced);
        let from = if planted { self.last().offset(self.durable) } else { self.length };
        match self.file.fill(from..until) {
            Ok(()) => {
                self.length = until;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.fills = false;
                self.cut(self.length)
            }
            Err(error) => Err(self.lose(format!("a write failed: {error}"))),
        }
    }

    /// Cuts off zeros, and what was written in part.
    fn cut(&mut self, length: u64) -> Result<(), StateError> {
        match self.file.truncate(length) {
            Ok(()) => {
                self.length = length;
                Ok(())
            }
            Err(error) => Err(self.lose(format!("what follows the records cannot be cut off: {error}"))),
        }
    }

    /// Makes the written records durable. A failure is final, because the content of the medium is then unknown.
    pub fn sync(&mut self) -> Result<(), StateError> {
        self.check()?;
        if self.durable < self.written {
            if !self.planted.is(Bug::LogUnsynced)
                && let Err(error) = self.file.sync()
            {
                return Err(self.lose(format!("a sync failed: {error}")));
            }
            self.durable = self.written;
        }
        self.check_ends();
        Ok(())
    }

    /// Begins a new segment if the last is long enough and everything is durable. Without room, or a descriptor, it stays in
    /// the old one.
    pub fn roll(&mut self) -> Result<(), StateError> {
        let full = self.last().offset(self.written) >= self.segment_bytes;
        if full { self.roll_now() } else { Ok(()) }
    }

    /// Begins a new segment if everything is durable and the last one has a record.
    pub fn roll_now(&mut self) -> Result<(), StateError> {
        self.check()?;
        if !self.pushed.is_empty() || self.durable < self.written || self.last().base == self.written {
            return Ok(());
        }
        let end = self.last().offset(self.written);
        if end < self.length {
            self.cut(end)?;
        }
        let next = Segment {
            log: self.last().log,
            number: self.last().number + 1,
            base: self.written,
            chain: self.chain,
            epoch: self.epoch,
            durable: self.durable,
        };
        match start(&*self.storage, &self.directory, &next, &[]) {
            Ok(file) => {
                self.file = file;
                self.length = next.offset(next.base);
                self.fills = true;
                self.segments.push(next);
                Ok(())
            }
            Err(NotStarted::Unnamed(StateError::Io { error, .. })) if is_shortage(&error) => Ok(()),
            // The name may exist or not, so nothing may be appended to the old segment.
            Err(NotStarted::Unnamed(error) | NotStarted::PerhapsNamed(error)) => Err(self.lose(error.to_string())),
        }
    }

    /// Removes at most `count_max` segments from the front, all of whose epochs are at or before `epoch`.
    pub fn truncate(&mut self, epoch: u64, count_max: usize) -> Result<(), StateError> {
        let epoch = self.held.map_or(epoch, |held| held.min(epoch));
        let void = self.segments.iter().skip(1).take_while(|next| next.epoch <= epoch).count();
        self.remove_first(void.min(count_max))
    }

    /// Removes the segments before the last that have no records.
    fn remove_void(&mut self) -> Result<(), StateError> {
        let nexts: Vec<u64> = self.segments.iter().skip(1).map(|next| next.base).collect();
        let mut nexts = nexts.into_iter();
        let (void, kept) = self.segments.drain(..).partition(|segment| nexts.next() == Some(segment.base));
        self.segments = kept;
        assert!(!self.segments.is_empty(), "the segment that is appended to stays");
        self.remove(void)
    }

    fn remove_first(&mut self, count: usize) -> Result<(), StateError> {
        assert!(count < self.segments.len(), "the segment that is appended to stays");
        let void = self.segments.drain(..count).collect();
        self.remove(void)
    }

    /// Removes segments. A crash may keep any of them: a reader begins at the last segment that has the epochs it
    /// needs.
    fn remove(&self, segments: Vec<Segment>) -> Result<(), StateError> {
        for segment in &segments {
            let path = segment.path(&self.directory);
            self.storage.remove(&path).map_err(StateError::io(&path, "removed"))?;
        }
        if !segments.is_empty() {
            self.storage.sync_directory(&self.directory).map_err(StateError::io(&self.directory, "synced"))?;
        }
        Ok(())
    }

    /// Refuses to write where another process may hold the state.
    fn check_held(&mut self) -> Result<(), StateError> {
        let lock = self.lock.as_ref().filter(|_| !self.planted.is(Bug::LockNotCompared));
        let checked = lock.map_or(Ok(()), |lock| lock.check());
        checked.inspect_err(|error| _ = self.lost.get_or_insert(error.to_string()))
    }

    fn last(&self) -> &Segment {
        self.segments.last().expect("a log has a segment")
    }

    fn check(&self) -> Result<(), StateError> {
        match &self.lost {
            None => Ok(()),
            Some(reason) => Err(StateError::Lost { file: self.last().path(&self.directory), reason: reason.clone() }),
        }
    }

    fn lose(&mut self, reason: String) -> StateError {
        self.lost.get_or_insert(reason);
        self.check().expect_err("it is lost")
    }
}

/// The reason why a segment could not begin.
enum NotStarted {
    /// It did not get its name.
    Unnamed(StateError),
    /// It may have got its name.
    PerhapsNamed(StateError),
}

impl NotStarted {
    fn into_error(self) -> StateError {
        match self {
            NotStarted::Unnamed(error) | NotStarted::PerhapsNamed(error) => error,
        }
    }
}

/// Makes a segment that begins with `tail`; it gets its name when its content is durable.
fn start(storage: &dyn Storage, directory: &Path, segment: &Segment, tail: &[u8]) -> Result<Box<dyn File>, NotStarted> {
    let path = segment.path(directory);
    let new = path.with_extension("new");
    let failed = |error| StateError::Io { file: path.clone(), action: "written", error };
    let fill = || -> io::Result<Box<dyn File>> {
        let file = storage.open(&new, Open::InPlace)?;
        file.truncate(0)?;
        file.write_at(0, &[&segment.header(), tail].concat())?;
        file.sync()?;
        Ok(file)
    };
    let name = || -> io::Result<()> {
        storage.rename(&new, &path)?;
        storage.sync_directory(directory)
    };
    let file = fill().map_err(failed).map_err(NotStarted::Unnamed)?;
    name().map_err(failed).map_err(NotStarted::PerhapsNamed)?;
    Ok(file)
}
