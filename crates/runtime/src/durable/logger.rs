//! The logger's thread: entries that wait are appended together and synced once.

use super::DurabilityOptions;
use super::digest::{Digests, EpochDigests, write_digests};
use super::entry::{BatchCodec, EpochEntry};
use crate::engine::{Control, Failure};
use crate::environment::Environment;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::{Bug, Log, StateError, Written};

/// How long the log idles before it is noted, durably, how far it is durable.
const IDLE: Duration = Duration::from_millis(50);
/// How long to wait for room on a full disk before it is tried again.
const FULL_POLL: Duration = Duration::from_millis(100);
/// Bytes of entries that are appended together at the most, as they are before compression.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// What the logger tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// Epochs up to this one are durable.
    Through(u64),
}

/// What the logger shares with those who watch it.
#[derive(Default)]
pub struct LogState {
    /// Bytes appended in this run.
    pub bytes: AtomicU64,
    /// Whether it waits for room on the disk.
    pub full: AtomicBool,
    /// Epochs up to this one are in a checkpoint: their segments may go.
    pub truncate: AtomicU64,
}

/// The life of a log in a run.
pub struct Logger {
    /// What it appends to.
    pub log: Log,
    /// In the order of epochs; it ends when they do.
    pub entries: Receiver<EpochEntry>,
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
}

impl Logger {
    /// Logs until there are no more entries; gives the log back.
    pub fn run(mut self) -> Result<Log, StateError> {
        let mut codec = BatchCodec::default();
        let mut payload = Vec::new();
        let mut synced = 0;
        loop {
            let first = match self.entries.recv_timeout(IDLE) {
                Ok(entry) => entry,
                Err(RecvTimeoutError::Timeout) => {
                    self.mark()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.wait_since(synced);
            let (mut next, mut bytes, before) = (Some(first), 0, self.log.position());
            while let Some(mut entry) = next.take() {
                payload.clear();
                entry.digests = self.digests.take_unlogged();
                entry.write(&mut codec, &mut payload);
                bytes += payload.len();
                self.log.push(entry.epoch, &payload);
                next = (bytes < GROUP_BYTES_MAX).then(|| self.entries.try_recv().ok()).flatten();
            }
            if self.log.planted().is(Bug::ReleasesUnsynced) {
                let _ = self.durable.send(Logged::Through(self.log.epoch()));
            }
            self.write()?;
            self.log.sync()?;
            synced = self.environment.now();
            self.state.bytes.fetch_add(self.log.position() - before, Ordering::Relaxed);
            // Gone is who would release them: the run has failed.
            let _ = self.durable.send(Logged::Through(self.log.epoch()));
            self.log.roll()?;
            let truncate = self.state.truncate.swap(0, Ordering::Relaxed);
            if truncate > 0 {
                self.log.roll_now()?;
                self.log.truncate(truncate)?;
            }
        }
        self.mark()?;
        Ok(self.log)
    }

    /// Keeps the distance from the last sync.
    fn wait_since(&self, synced: u64) {
        let every = self.options.sync_every.as_nanos() as u64;
        let since = self.environment.now().saturating_sub(synced);
        if every > since && synced > 0 {
            let (_never, never) = crossbeam_channel::bounded::<()>(0);
            let _ = never.recv_timeout(Duration::from_nanos(every - since));
        }
    }

    /// Writes what was pushed, as soon as there is room. A run that is to end does not wait for it: what
    /// is not logged was not released, and the sources have it still.
    fn write(&mut self) -> Result<(), StateError> {
        while let Written::Full(error) = self.log.write()? {
            self.state.full.store(true, Ordering::Relaxed);
            if self.control.stops() || self.failure.is_set() {
                return Err(StateError::Io { file: self.log.path(), action: "written", error });
            }
            let (_never, never) = crossbeam_channel::bounded::<()>(0);
            let _ = never.recv_timeout(FULL_POLL);
        }
        self.state.full.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes how far the log is durable.
    fn mark(&mut self) -> Result<(), StateError> {
        self.log.mark();
        let digests = self.digests.take_unlogged();
        if !digests.is_empty() {
            note(&mut self.log, &digests);
        }
        // Without room it is noted another time.
        if let Written::All = self.log.write()? {
            self.log.sync()?;
        }
        Ok(())
    }
}

/// Notes digests in a log, for which no entry came.
pub fn note(log: &mut Log, digests: &EpochDigests) {
    let mut payload = Vec::new();
    write_digests(digests, &mut payload);
    log.note(&payload);
}
