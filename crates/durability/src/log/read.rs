//! Reading a log back, from its first segment to its torn end.

use super::record::{self, ALIGNMENT, Kind};
use super::segment::{self, Segment};
use super::write::Log;
use crate::error::StateError;
use crate::planted::{Bug, Planted};
use crate::proof::{Chain, Head};
use crate::state_lock::StateLock;
use crate::storage::{Storage, read_all};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An epoch read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEpoch {
    /// Its number.
    pub epoch: u64,
    /// Its logged content.
    pub payload: Vec<u8>,
}

/// Reads a log's records in order, then turns into a log that can be appended to.
pub struct LogReader {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    log: u64,
    /// Epochs up to this one are skipped.
    after: u64,
    /// All segments, in order.
    segments: Vec<Segment>,
    /// Index of the segment being read, and its bytes.
    current: usize,
    bytes: Vec<u8>,
    /// The position where reading began, and the last one where it can end.
    whole: Range<u64>,
    /// The end of the last record that was read.
    position: u64,
    chain: u64,
    epoch: u64,
    /// Everything before this position is known to have been durable.
    durable: u64,
    /// Epochs that were read but are not known to have been durable, with the ends of their records and the heads after them.
    unsure: VecDeque<(u64, u64, Option<Head>)>,
    durable_epoch: u64,
    /// The chain of proof up to the last epoch that was read, from the epoch after which it is kept on.
    proof: Option<Chain>,
    /// The head of the last epoch that is known to have been durable.
    durable_head: Option<Head>,
    /// The payloads of marks that were read and not yet taken.
    notes: Vec<Vec<u8>>,
    ended: bool,
    /// The epoch up to which the log is at least durable, if it may be written meanwhile: the reader ends with what is
    /// known to be durable.
    bound: Option<u64>,
    /// Epochs after this one are not removed.
    held: Option<u64>,
    /// The lock of the state, which the log is written under.
    lock: Option<Arc<StateLock>>,
    planted: Planted,
}

impl LogReader {
    /// Opens the log of this identity in a directory, to read the epochs after `after`, the epoch of the checkpoint.
    pub fn open(storage: Arc<dyn Storage>, directory: PathBuf, log: u64, after: u64) -> Result<LogReader, StateError> {
        // A power cut may still remove a name that is visible.
        let needed = StateError::needed(&directory, "synced", format!("the epochs after {after} are lost"));
        storage.sync_directory(&directory).map_err(needed)?;
        let mut segments = Vec::new();
        for number in segment::numbers(&*storage, &directory)? {
            segments.push(look(&*storage, &directory, log, number)?);
        }
        check_order(&segments, &directory)?;
        // A crash may have kept any of the segments that a checkpoint has made void.
        let current = segments.iter().rposition(|s: &Segment| s.epoch <= after).unwrap_or(0);
        let Some(first) = segments.get(current).copied() else {
            return Err(StateError::Damaged {
                file: directory,
                offset: 0,
                what: "the log has no segments".into(),
                affected: format!("the epochs after {after} are lost"),
            });
        };
        if first.epoch > after {
            let path = first.path(&directory);
            return Err(StateError::Damaged {
                file: path,
                offset: 0,
                what: "the segments before it are missing".into(),
                affected: format!("the epochs {} to {} are lost", after + 1, first.epoch),
            });
        }
        // A segment was named when everything before it was durable.
        let durable = segments.last().map_or(0, |last| last.durable.max(last.base));
        let mut reader = LogReader {
            storage,
            directory,
            log,
            after,
            segments,
            current,
            bytes: Vec::new(),
            whole: first.base..first.base,
            position: first.base,
            chain: first.chain,
            epoch: first.epoch,
            durable,
            unsure: VecDeque::new(),
            durable_epoch: first.epoch,
            proof: None,
            durable_head: None,
            notes: Vec::new(),
            ended: false,
            bound: None,
            held: None,
            lock: None,
            planted: Planted::default(),
        };
        let last = reader.segments.last().expect("there is a first one");
        let path = last.path(&reader.directory);
        let length = reader.storage.look(&path).map_err(StateError::io(&path, "read"))?.length;
        reader.whole.end = last.base + length.saturating_sub(last.offset(last.base));
        reader.load()?;
        Ok(reader)
    }

    /// Returns the epoch after which the log in a directory begins; none if there is none. Segments that a crash has kept, and
    /// after which one is missing, do not count.
    pub(crate) fn begins(storage: &dyn Storage, directory: &Path, log: u64) -> Result<Option<u64>, StateError> {
        let mut numbers = segment::numbers(storage, directory)?;
        let after_gap = numbers.windows(2).rposition(|pair| pair[0] + 1 != pair[1]).map_or(0, |gap| gap + 1);
        let first = numbers.drain(after_gap..).next();
        first.map(|number| Ok(look(storage, directory, log, number)?.epoch)).transpose()
    }

    /// Ends the log with the last epoch that is known to be durable, for a reader beside the run that writes the log.
    /// `checkpoint`: the epoch of the newest checkpoint, up to which everything is durable.
    pub fn end_with_durable(&mut self, checkpoint: u64) -> Result<(), StateError> {
        let last = *self.segments.last().expect("there is a first one");
        let path = last.path(&self.directory);
        let bytes = read_all(&*self.storage, &path).map_err(StateError::io(&path, "read"))?;
        let mut at = segment::HEADER;
        while at < bytes.len() {
            let position = last.base + (at - segment::HEADER) as u64;
            // Also what follows a damaged record says what was durable.
            at += record::read(&bytes[at..], self.log, position).map_or(ALIGNMENT, |read| {
                self.durable = self.durable.max(read.header.durable);
                read.size
            });
        }
        self.bound = Some(checkpoint);
        Ok(())
    }

    /// Returns whether a reader beside a run has come to the end of what is known to be durable.
    fn is_at_bound(&self) -> bool {
        self.position >= self.durable && self.bound.is_some_and(|checkpoint| self.epoch >= checkpoint)
    }

    /// Returns the bytes that were read, and bytes in total.
    pub fn progress(&self) -> (u64, u64) {
        (self.position - self.whole.start, self.whole.end.max(self.position) - self.whole.start)
    }

    /// Passes the state's lock to the log that it turns into.
    pub(crate) fn guard(&mut self, lock: Option<Arc<StateLock>>) {
        self.lock = lock;
    }

    /// Plants a bug.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        match () {
            () if planted.is(Bug::ReplaySkipsFirst) => self.after += 1,
            () if planted.is(Bug::ReplayRepeats) => self.after = self.after.saturating_sub(1),
            () => {}
        }
    }

    /// Makes the log keep the epochs after this one, regardless of checkpoints.
    pub fn hold(&mut self, epoch: Option<u64>) {
        self.held = epoch;
    }

    fn load(&mut self) -> Result<(), StateError> {
        let path = self.segments[self.current].path(&self.directory);
        self.bytes = read_all(&*self.storage, &path).map_err(StateError::io(&path, "read"))?;
        if let Some(next) = self.segments.get(self.current + 1) {
            let end = self.segments[self.current].offset(next.base);
            self.bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    /// Keeps a chain of proof. It is at the epoch after which the log is read, which is durable.
    pub fn prove(&mut self, proof: Option<Chain>) {
        self.proof = proof;
        self.durable_head = proof.map(|proof| proof.head());
    }

    /// Returns the chain of proof up to the last epoch that was read.
    pub fn proof(&self) -> Option<Chain> {
        self.proof
    }

    /// Returns the head of the last epoch that is known to have been durable, as far as the log was read.
    pub fn durable_head(&self) -> Option<Head> {
        self.durable_head
    }

    /// Returns the last epoch that was read.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the last epoch that is known to have been durable, as far as the log was read.
    pub fn durable_epoch(&self) -> u64 {
        self.durable_epoch
    }

    /// Returns the notes between the epochs that were read.
    pub fn take_notes(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the next epoch to replay; none at the end.
    pub fn next_epoch(&mut self) -> Result<Option<LoggedEpoch>, StateError> {
        while !self.ended {
            if self.is_at_bound() {
                self.ended = true;
                break;
            }
            let segment = self.segments[self.current];
            let offset = segment.offset(self.position) as usize;
            let rest = self.bytes.get(offset..).unwrap_or_default();
            if rest.is_empty() && self.current + 1 < self.segments.len() {
                self.enter_next()?;
                continue;
            }
            if rest.is_empty() && self.position >= self.durable && self.bound.is_none() {
                self.ended = true;
                break;
            }
            let checked = !self.planted.is(Bug::LogUnchecked);
            let read = record::read_checked(rest, self.log, self.position, checked);
            let read = read.and_then(|read| self.follows(read));
            let read = match read {
                Ok(read) => read,
                Err(what) => {
                    self.judge(offset, what)?;
                    break;
                }
            };
            let epoch = (read.header.kind == Kind::Epoch && read.header.epoch > self.after)
                .then(|| LoggedEpoch { epoch: read.header.epoch, payload: read.payload.to_vec() });
            if read.header.kind == Kind::Mark && !read.payload.is_empty() {
                self.notes.push(read.payload.to_vec());
            }
            let (size, check, header) = (read.size, read.check, read.header);
            if let Some(proof) = self.proof.as_mut().filter(|proof| header.epoch > proof.head().epoch) {
                proof.link(header.epoch, read.payload);
            }
            self.position += size as u64;
            self.chain = check;
            self.epoch = header.epoch;
            self.durable = self.durable.max(header.durable);
            self.unsure.push_back((header.epoch, self.position, self.proof.map(|proof| proof.head())));
            while let Some((epoch, _, head)) = self.unsure.pop_front_if(|(_, end, _)| *end <= self.durable) {
                self.durable_epoch = epoch;
                self.durable_head = head;
            }
            if epoch.is_some() {
                return Ok(epoch);
            }
        }
        Ok(None)
    }

    /// Checks that a record, valid in itself, is the one that comes next.
    fn follows<'a>(&self, read: record::Read<'a>) -> Result<record::Read<'a>, &'static str> {
        let wanted = match read.header.kind {
            Kind::Epoch => self.epoch + 1,
            Kind::Mark => self.epoch,
        };
        if read.header.chain != self.chain {
            return Err("a record does not follow the one before it");
        }
        if read.header.epoch != wanted {
            return Err("a record is of another epoch than is due");
        }
        Ok(read)
    }

    fn enter_next(&mut self) -> Result<(), StateError> {
        let next = self.segments[self.current + 1];
        if self.position < next.base {
            let offset = self.bytes.len();
            return self.judge(offset, "it ends before the next segment begins");
        }
        let matches = next.base == self.position && next.chain == self.chain && next.epoch == self.epoch;
        if !matches {
            let file = next.path(&self.directory);
            let what = "it does not follow the segment before it".into();
            return Err(StateError::Damaged { file, offset: 0, what, affected: self.affected() });
        }
        self.current += 1;
        self.load()
    }

    fn affected(&self) -> String {
        format!("epochs from {} on cannot be read", self.epoch + 1)
    }

    /// Decides whether it is the end of the log or damage that no record can be read at `offset` of the current
    /// segment.
    fn judge(&mut self, offset: usize, what: &str) -> Result<(), StateError> {
        let last = self.current + 1 == self.segments.len();
        let was_checkpointed = self.bound.is_some_and(|checkpoint| self.epoch < checkpoint);
        if last && self.position >= self.durable && !was_checkpointed && !self.was_durable(offset) {
            self.ended = true;
            return Ok(());
        }
        let file = self.segments[self.current].path(&self.directory);
        Err(StateError::Damaged { file, offset: offset as u64, what: what.into(), affected: self.affected() })
    }

    /// Returns whether a later record says that the bytes at `offset` were durable when it was written.
    fn was_durable(&self, offset: usize) -> bool {
        let places = (offset + ALIGNMENT..self.bytes.len()).step_by(ALIGNMENT);
        places
            .map(|at| (at, self.position + (at - offset) as u64))
            .filter_map(|(at, position)| record::read(&self.bytes[at..], self.log, position).ok())
            .any(|read| read.header.durable > self.position)
    }

    /// Ends reading: cuts the torn tail, and writes anew the records that are not known to be durable.
    ///
    /// Panics if there is more to read.
    pub fn into_log(self) -> Result<Log, StateError> {
        assert!(self.ended, "a log is read to its end before it goes on");
        assert_eq!(self.current + 1, self.segments.len(), "a log ends in its last segment");
        let last = *self.segments.last().expect("a log has a segment");
        let mut from = last.offset(self.durable.min(self.position)) as usize;
        let mut until = last.offset(self.position) as usize;
        if self.planted.is(Bug::LogTrustsUnmarked) {
            from = until;
        }
        if self.planted.is(Bug::LogKeepsTornTail) {
            until = self.bytes.len();
        }
        if self.planted.is(Bug::LogDropsUnmarked) {
            until = from;
        }
        let (chain, epoch) = self.before(last, from);
        let next = Segment {
            log: self.log,
            number: last.number + 1,
            base: last.base + (from - segment::HEADER) as u64,
            chain,
            epoch,
            durable: self.position,
        };
        let tail = &self.bytes[from..until];
        let dropped = self.planted.is(Bug::LogDropsUnmarked);
        let (chain, epoch) = if dropped { (chain, epoch) } else { (self.chain, self.epoch) };
        let mut log = Log::begin(self.storage, self.directory, self.segments, next, tail, chain, epoch)?;
        log.plant(self.planted);
        log.prove(self.proof);
        log.guard(self.lock);
        log.hold(self.held);
        Ok(log)
    }

    /// Returns the check and epoch of the record that ends at `offset` of the last segment.
    fn before(&self, segment: Segment, offset: usize) -> (u64, u64) {
        let (mut chain, mut epoch, mut at) = (segment.chain, segment.epoch, segment::HEADER);
        while at < offset {
            let position = segment.base + (at - segment::HEADER) as u64;
            let read = record::read(&self.bytes[at..], self.log, position).expect("it was read before");
            (chain, epoch) = (read.check, read.header.epoch);
            at += read.size;
        }
        (chain, epoch)
    }
}

/// Refuses segments of which one begins before the segment before it.
fn check_order(segments: &[Segment], directory: &Path) -> Result<(), StateError> {
    let is_out = |pair: &&[Segment]| pair[0].base > pair[1].base || pair[0].epoch > pair[1].epoch;
    segments.windows(2).find(is_out).map_or(Ok(()), |pair| {
        Err(StateError::Damaged {
            file: pair[1].path(directory),
            offset: 0,
            what: "it begins before the segment before it".into(),
            affected: format!("epochs from {} on cannot be read", pair[1].epoch + 1),
        })
    })
}

/// Reads a segment's header.
fn look(storage: &dyn Storage, directory: &Path, log: u64, number: u64) -> Result<Segment, StateError> {
    let path = segment::path(directory, number);
    let damaged = |what: &str| StateError::Damaged {
        file: path.clone(),
        offset: 0,
        what: what.into(),
        affected: "none of its epochs can be read".into(),
    };
    let file = storage.open(&path, crate::storage::Open::Read).map_err(StateError::io(&path, "opened"))?;
    let mut bytes = vec![0; segment::HEADER];
    let read = file.read_at(0, &mut bytes).map_err(StateError::io(&path, "read"))?;
    let segment = Segment::read(&bytes[..read]).map_err(damaged)?;
    if segment.log != log {
        return Err(damaged("it is of another log"));
    }
    if segment.number != number {
        return Err(damaged("it has the name of another segment"));
    }
    Ok(segment)
}
