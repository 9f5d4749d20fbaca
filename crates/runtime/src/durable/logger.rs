//! The logger's thread: entries that wait are appended together and synced once.

use super::digest::{Digests, EpochDigests, write_digests};
use super::entry::EpochEntry;
use super::packed::PackedCodec;
use super::{DurabilityOptions, Sync, wait};
use crate::engine::{Control, Failure};
use crate::environment::Environment;
use crossbeam_channel::{Receiver, Sender, never, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::{Bug, Log, StateError, Written};

/// How long the log idles before it is noted, durably, how far it is durable.
const IDLE: Duration = Duration::from_millis(50);
/// How long to wait for room on a full disk before it is tried again.
const FULL_POLL: Duration = Duration::from_millis(100);
/// Bytes of entries that are appended together at the most, as they are before compression.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// How far the log is durable, or in a weaker mode written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Epochs up to this one.
    pub epoch: u64,
    /// What came of epochs up to this one.
    pub results: u64,
}

/// What the logger shares with those who watch it.
#[derive(Default)]
pub struct LogState {
    /// Bytes appended in this run.
    pub bytes: AtomicU64,
    /// Epochs up to this one are durable in this run.
    pub durable: AtomicU64,
    /// Epochs up to this one are in a checkpoint: their segments may go.
    pub truncate: AtomicU64,
}

/// The life of a log in a run.
pub struct Logger {
    /// What it appends to.
    pub log: Log,
    /// In the order of epochs.
    pub entries: Receiver<EpochEntry>,
    /// A word where there are digests that results wait for.
    pub results: Receiver<()>,
    /// Of the last digest that was logged.
    pub results_epoch: u64,
    /// Makes bytes, and holds those of an entry.
    pub codec: PackedCodec,
    pub payload: Vec<u8>,
    /// Told when epochs are durable.
    pub durable: Sender<Logged>,
    /// Whether the run is to end.
    pub control: Arc<Control>,
    /// Whether it has failed.
    pub failure: Arc<Failure>,
    /// Shared.
    pub state: Arc<LogState>,
    /// Of epochs that are done, to be logged.
    pub digests: Arc<Digests>,
    /// For the distance between syncs.
    pub environment: Arc<dyn Environment>,
    /// How.
    pub options: DurabilityOptions,
    /// There are no more entries.
    pub entries_over: bool,
    /// There are no results that wait any more.
    pub results_over: bool,
}

impl Logger {
    /// Logs until there are no more entries, nor results that wait; gives the log back.
    pub fn run(mut self) -> Result<Log, StateError> {
        let (mut synced, mut truncate) = (self.environment.now(), 0);
        loop {
            let before = self.log.position();
            match self.next(self.until_due(synced)) {
                Next::Entry(first) => self.push(first),
                Next::Results => self.note(),
                Next::Nothing if self.until_due(synced).is_zero() => {
                    self.sync(&mut synced)?;
                    continue;
                }
                Next::Nothing => {
                    self.mark()?;
                    continue;
                }
                Next::Over => break,
            }
            if self.log.planted().is(Bug::ReleasesUnsynced) {
                self.tell();
                // Long enough for those who are told too early to act on it.
                wait(Duration::from_millis(1));
            }
            self.write()?;
            if self.until_due(synced).is_zero() {
                self.sync(&mut synced)?;
            }
            self.state.bytes.fetch_add(self.log.position() - before, Ordering::Relaxed);
            self.tell();
            self.log.roll()?;
            let checkpoint = self.state.truncate.swap(0, Ordering::Relaxed);
            if checkpoint > 0 {
                self.log.roll_now()?;
                truncate = checkpoint;
            }
            // To free many at once takes a file system tens of milliseconds, in which nothing is released.
            self.log.truncate(truncate, 1)?;
        }
        self.log.sync()?;
        self.state.durable.store(self.log.epoch(), Ordering::Release);
        self.mark()?;
        Ok(self.log)
    }

    /// What is to be logged next, waited for so long.
    fn next(&mut self, wait: Duration) -> Next {
        loop {
            if self.entries_over && self.results_over {
                return Next::Over;
            }
            select! {
                recv(self.entries) -> entry => match entry {
                    Ok(entry) => return Next::Entry(entry),
                    Err(_) => (self.entries, self.entries_over) = (never(), true),
                },
                recv(self.results) -> word => match word {
                    Ok(()) => return Next::Results,
                    Err(_) => (self.results, self.results_over) = (never(), true),
                },
                default(wait) => return Next::Nothing,
            }
        }
    }

    /// Pushes an entry and those that wait behind it.
    fn push(&mut self, first: EpochEntry) {
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(mut entry) = next.take() {
            self.payload.clear();
            entry.digests = self.digests.take_unlogged(entry.epoch);
            self.took(&entry.digests);
            entry.write(&mut self.codec, &mut self.payload);
            bytes += self.payload.len();
            self.log.push(entry.epoch, &self.payload);
            next = (bytes < GROUP_BYTES_MAX).then(|| self.entries.try_recv().ok()).flatten();
        }
    }

    /// Pushes digests that wait for no entry.
    fn note(&mut self) {
        let digests = self.digests.take_unlogged(self.log.epoch());
        if !digests.is_empty() {
            self.took(&digests);
            note(&mut self.log, &mut self.codec, &digests);
        }
    }

    fn took(&mut self, digests: &EpochDigests) {
        self.results_epoch = digests.last().map_or(self.results_epoch, |(epoch, _)| *epoch);
    }

    /// Tells how far it is. Gone is who would release it: the run has failed.
    fn tell(&self) {
        let _ = self.durable.send(Logged { epoch: self.log.epoch(), results: self.results_epoch });
    }

    /// How long until something is to be done without new entries: a sync, or a mark.
    fn until_due(&self, synced: u64) -> Duration {
        match self.options.sync {
            // Behind a sync nothing is due but the mark.
            _ if self.log.is_durable() => IDLE,
            Sync::Epoch => Duration::ZERO,
            Sync::Every(every) => {
                every.saturating_sub(Duration::from_nanos(self.environment.now().saturating_sub(synced))).min(IDLE)
            }
        }
    }

    fn sync(&mut self, synced: &mut u64) -> Result<(), StateError> {
        self.log.sync()?;
        *synced = self.environment.now();
        self.state.durable.store(self.log.epoch(), Ordering::Release);
        Ok(())
    }

    /// Writes what was pushed, as soon as there is room. A run that is to end does not wait for it: what
    /// is not logged was not released, and the sources have it still.
    fn write(&mut self) -> Result<(), StateError> {
        while let Written::Full(error) = self.log.write()? {
            self.control.log_waits.store(true, Ordering::Relaxed);
            if self.control.stops() || self.failure.is_set() {
                return Err(StateError::Io { file: self.log.path(), action: "written", error });
            }
            wait(FULL_POLL);
        }
        self.control.log_waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes how far the log is durable.
    fn mark(&mut self) -> Result<(), StateError> {
        if !self.log.is_durable() {
            return Ok(());
        }
        self.log.mark();
        self.note();
        // Without room it is noted another time.
        if let Written::All = self.log.write()? {
            self.log.sync()?;
            self.tell();
        }
        Ok(())
    }
}

/// What comes next.
enum Next {
    Entry(EpochEntry),
    Results,
    Nothing,
    Over,
}

/// Notes digests in a log, for which no entry came.
pub fn note(log: &mut Log, codec: &mut PackedCodec, digests: &EpochDigests) {
    let mut payload = Vec::new();
    write_digests(digests, codec, &mut payload);
    log.note(&payload);
}
