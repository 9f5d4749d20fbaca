//! The logger: appends waiting entries together and syncs once for all of them.

use crate::control::{Control, Failure, RunError};
use crate::digest::{Digests, EpochDigests, write_digests};
use crate::entry::EpochEntry;
use crate::packed::PackedCodec;
use crate::{DurabilityOptions, Sync};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_durability::{Bug, Chain, Log, Proof, StateError, Written};
use tidemill_stages::actor::{Actor, Bell, Inbox, Outbox, Progress, Took};
use tidemill_stages::environment::Environment;

/// The time for which the log is idle before the logger durably marks how far it is durable, nanoseconds.
const IDLE: u64 = 50_000_000;
/// The time to wait before the next attempt when the disk is full, nanoseconds.
const FULL_POLL: u64 = 100_000_000;
/// The time for which a planted bug lets other actors act on a premature message, nanoseconds.
const TOO_EARLY: u64 = 1_000_000;
/// The maximum number of bytes of entries that are appended together, before compression.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// The extent to which the log is durable, or, with the weaker sync, written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Epochs up to this one.
    pub epoch: u64,
    /// The digests of epochs up to this one.
    pub results: u64,
}

/// State that the logger shares with gate and checkpointer.
#[derive(Default)]
pub struct LogState {
    /// Bytes appended in this run. Written by the logger.
    pub bytes: AtomicU64,
    /// Epochs up to this one are durable in this run. Written by the gate during a replay, then by the logger.
    pub durable: AtomicU64,
    /// Epochs up to this one are in the log's file in this run, durable or not: no lack of room can keep them out any more.
    /// Written by the gate when the log begins, then by the logger.
    pub written: AtomicU64,
    /// Epochs up to this one are in a checkpoint: their segments may be removed. Written by the checkpointer, taken by
    /// the logger.
    pub truncate: AtomicU64,
    /// The epoch of the first savepoint that was made in this run, after which the log keeps everything; 0: none was made.
    /// Written by the checkpointer, before it lets segments go.
    held: AtomicU64,
    heads: Mutex<Heads>,
}

/// The head that a checkpoint needs. The gate hands the entry of the checkpoint's epoch to the logger, says that it wants the
/// head after it, and only then hands over the next entry. So the logger has that head, or comes to it.
#[derive(Default)]
struct Heads {
    /// The chain after the last entry. Written by the logger.
    last: Option<Chain>,
    /// The epoch of the checkpoint. Written by the gate.
    wanted: u64,
    /// The chain at that epoch, as soon as it is known.
    found: Option<Chain>,
}

impl Heads {
    fn find(&mut self) {
        if let Some(last) = self.last.filter(|last| last.head().epoch == self.wanted) {
            self.found = Some(last);
        }
    }
}

impl LogState {
    /// Wants the head after an epoch, whose entry is the last one that the logger was given, for a checkpoint.
    pub(crate) fn want_head(&self, epoch: u64) {
        let heads = &mut *self.heads.lock();
        heads.wanted = epoch;
        heads.find();
    }

    /// Takes the chain after the last entry.
    fn pass_head(&self, chain: Option<Chain>) {
        let heads = &mut *self.heads.lock();
        heads.last = chain;
        heads.find();
    }

    /// Returns the proof of a checkpoint of an epoch whose head was wanted, and which is logged; none if none is kept.
    pub(crate) fn proof_at(&self, epoch: u64) -> Option<Proof> {
        let heads = self.heads.lock();
        let found = heads.found.filter(|chain| chain.head().epoch == epoch);
        assert_eq!(found.is_some(), heads.last.is_some(), "the head that a checkpoint needs is known");
        found.map(|chain| chain.proof())
    }

    /// Keeps epochs after this one in the log, since a savepoint of it is made.
    pub(crate) fn hold(&self, epoch: u64) {
        assert!(epoch > 0, "a run makes savepoints of its epochs");
        let _ = self.held.compare_exchange(0, epoch, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes a log keep what savepoints need of it.
    pub(crate) fn held_by(&self, log: &mut Log) {
        match self.held.load(Ordering::Acquire) {
            0 => {}
            epoch => log.hold_after(epoch),
        }
    }
}

/// Appends to the log during a run.
pub struct Logger {
    /// The channel from the gate for the log, after its whole content has been replayed.
    pub(crate) start: Inbox<Log>,
    /// The log from then on; taken at the end of the run.
    pub(crate) log: Option<Log>,
    /// The channel from the gate for entries, in the order of epochs.
    pub(crate) entries: Inbox<EpochEntry>,
    /// The channel from the committer: there are digests that results wait for. None if results do not wait for
    /// digests.
    pub(crate) results: Option<Inbox<()>>,
    /// The epoch of the last digest that was logged.
    pub(crate) results_epoch: u64,
    pub(crate) codec: PackedCodec,
    /// The bytes of an entry; a reused buffer.
    pub(crate) payload: Vec<u8>,
    /// The channel to the committer: epochs are durable. Dropped after the last message.
    pub(crate) told: Option<Outbox<Logged>>,
    pub(crate) control: Arc<Control>,
    pub(crate) failure: Arc<Failure>,
    pub(crate) state: Arc<LogState>,
    pub(crate) digests: Arc<Digests>,
    pub(crate) environment: Arc<dyn Environment>,
    /// The gate's: it may wait until an epoch is in the log's file.
    pub(crate) gate: Arc<Bell>,
    pub(crate) options: DurabilityOptions,
    /// Data that was pushed to the log and is not written yet.
    pub(crate) pushed: Option<Pushed>,
    /// The time at which the log was synced last.
    pub(crate) synced: u64,
    /// The time to wait for new entries before doing something else.
    pub(crate) waits: Option<u64>,
    /// The epoch up to which segments may be removed.
    pub(crate) truncate: u64,
}

/// Data that was pushed to the log and is not written yet.
pub(crate) struct Pushed {
    /// The end of the log before the data, a position in bytes.
    from: u64,
    /// The earliest time of the next attempt.
    at: u64,
}

/// The next item to be logged.
enum Next {
    Entry(EpochEntry),
    Results,
    Nothing,
    Over,
}

impl Actor for Logger {
    fn step(&mut self) -> Progress {
        if self.log.is_none() {
            match self.start.take() {
                Took::Message(log) => {
                    assert!(log.is_durable(), "a run goes on after what is durable");
                    self.state.pass_head(log.proof());
                    self.log = Some(log);
                    self.show_head();
                    self.synced = self.environment.now();
                    return Progress::Worked;
                }
                Took::Nothing => return Progress::Waits(None),
                Took::Closed => return self.leave(),
            }
        }
        match self.go_on() {
            Ok(Progress::Over) => self.leave(),
            Ok(progress) => progress,
            Err(error) => {
                self.failure.set(RunError::State(error));
                self.log = None;
                self.leave()
            }
        }
    }
}

impl Logger {
    /// Returns the log, at the end of the run; none if it never began, or failed.
    pub fn end(self) -> Option<Log> {
        self.log
    }

    /// The committer takes the end of this channel for the end of the log, so it is dropped last.
    fn leave(&mut self) -> Progress {
        self.told = None;
        Progress::Over
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("the log has begun")
    }

    fn go_on(&mut self) -> Result<Progress, StateError> {
        if self.pushed.is_some() {
            return self.write();
        }
        let from = self.log().position();
        match self.next() {
            Next::Entry(first) => self.push(first),
            Next::Results => self.note(),
            Next::Nothing => return self.idle(),
            Next::Over => {
                self.log().sync()?;
                self.note_durable();
                self.mark()?;
                return Ok(Progress::Over);
            }
        }
        self.waits = None;
        let planted = self.log().planted();
        if planted.is(Bug::ShowsHeadEarly) {
            self.show_head();
        }
        if planted.is(Bug::ReleasesUnsynced) {
            self.send_logged();
        }
        let too_early = [Bug::ReleasesUnsynced, Bug::AnswersUnsynced, Bug::AnswersAgainUnsynced];
        let is_early = too_early.iter().any(|&bug| planted.is(bug));
        let at = if is_early { self.environment.now() + TOO_EARLY } else { 0 };
        self.pushed = Some(Pushed { from, at });
        Ok(Progress::Worked)
    }

    /// Returns the next item to be logged.
    fn next(&mut self) -> Next {
        let mut over = true;
        match self.entries.take() {
            Took::Message(entry) => return Next::Entry(entry),
            Took::Nothing => over = false,
            Took::Closed => {}
        }
        match self.results.as_ref().map(Inbox::take) {
            Some(Took::Message(())) => Next::Results,
            Some(Took::Nothing) => Next::Nothing,
            Some(Took::Closed) | None if over => Next::Over,
            Some(Took::Closed) | None => Next::Nothing,
        }
    }

    /// Nothing new has to be logged: syncs, or marks how far the log is durable, if that is due.
    fn idle(&mut self) -> Result<Progress, StateError> {
        let due = self.until_due();
        let now = self.environment.now();
        let until = *self.waits.get_or_insert(now + due);
        if now < until {
            return Ok(Progress::Waits(Some(until)));
        }
        self.waits = None;
        if due == 0 {
            self.sync()?;
        } else {
            self.mark()?;
        }
        Ok(Progress::Worked)
    }

    /// Pushes an entry and the entries that wait after it.
    fn push(&mut self, first: EpochEntry) {
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(mut entry) = next.take() {
            self.payload.clear();
            entry.digests = self.digests.take_unlogged(entry.epoch);
            self.took(&entry.digests);
            if self.log().planted().is(Bug::LogForgetsOrder) {
                entry.passed.sent.sort_by_key(|&(source, _)| source);
            }
            entry.write(&mut self.codec, &mut self.payload);
            bytes += self.payload.len();
            let log = self.log.as_mut().expect("the log has begun");
            assert_eq!(entry.epoch, log.epoch() + 1, "entries come in the order of epochs");
            log.push(entry.epoch, &self.payload);
            self.state.pass_head(log.proof());
            if bytes < GROUP_BYTES_MAX
                && let Took::Message(entry) = self.entries.take()
            {
                next = Some(entry);
            }
        }
    }

    /// Pushes digests that are not logged with an entry.
    fn note(&mut self) {
        let epoch = self.log().epoch();
        let digests = self.digests.take_unlogged(epoch);
        if !digests.is_empty() {
            self.took(&digests);
            note(self.log.as_mut().expect("the log has begun"), &mut self.codec, &digests);
        }
    }

    fn took(&mut self, digests: &EpochDigests) {
        let last = digests.last().map_or(self.results_epoch, |(epoch, _)| *epoch);
        assert!(last >= self.results_epoch, "digests are logged in the order of epochs");
        self.results_epoch = last;
    }

    /// Reports progress.
    fn tell(&mut self) {
        let syncs = self.options.sync == Sync::Epoch;
        let log = self.log();
        assert!(log.is_written(), "an epoch is in the log's file before it is released");
        assert!(!syncs || log.is_durable(), "an epoch is durable before it is released");
        self.send_logged();
    }

    /// Reports progress to the committer. If it is gone, the run has failed.
    fn send_logged(&mut self) {
        let logged = Logged { epoch: self.log().epoch(), results: self.results_epoch };
        self.told.iter().for_each(|told| _ = told.send(logged));
    }

    /// Returns the time until something is due without new entries (a sync, or a mark), nanoseconds.
    fn until_due(&mut self) -> u64 {
        let is_durable = self.log().is_durable();
        match self.options.sync {
            // After a sync only the mark is due.
            _ if is_durable => IDLE,
            Sync::Epoch => 0,
            Sync::Every(every) => {
                let since = self.environment.now().saturating_sub(self.synced);
                (every.as_nanos() as u64).saturating_sub(since).min(IDLE)
            }
        }
    }

    fn sync(&mut self) -> Result<(), StateError> {
        let begun = self.environment.now();
        self.log().sync()?;
        self.synced = self.environment.now();
        self.control.vitals.log.syncs.add(self.synced.saturating_sub(begun), 1);
        self.note_durable();
        Ok(())
    }

    fn note_durable(&mut self) {
        assert!(self.log().is_durable(), "a sync has succeeded");
        let epoch = self.log().epoch();
        let before = self.state.durable.swap(epoch, Ordering::AcqRel);
        assert!(before <= epoch, "what was durable stays so");
        self.show_head();
    }

    /// Shows the head of the last epoch, which is durable.
    fn show_head(&self) {
        let log = self.log.as_ref().expect("the log has begun");
        assert!(log.is_durable() && log.is_written(), "only heads of durable entries are shown");
        *self.control.head.lock() = log.proof().map(|chain| chain.head());
    }

    /// Writes the pushed data as soon as there is disk space, and syncs if that is due. A run that is about to end does
    /// not wait for space: data that is not logged was not released, and the sources still have it.
    fn write(&mut self) -> Result<Progress, StateError> {
        let now = self.environment.now();
        let pushed = self.pushed.as_mut().expect("there is something to write");
        if now < pushed.at {
            return Ok(Progress::Waits(Some(pushed.at)));
        }
        let log = self.log.as_mut().expect("the log has begun");
        if let Written::Full(error) = log.write()? {
            self.control.log_waits.store(true, Ordering::Relaxed);
            if self.control.stops() || self.failure.is_set() {
                return Err(StateError::Io { file: log.path(), action: "written", error });
            }
            pushed.at = now + FULL_POLL;
            return Ok(Progress::Waits(Some(pushed.at)));
        }
        self.state.written.store(log.epoch(), Ordering::Release);
        self.control.log_waits.store(false, Ordering::Relaxed);
        self.gate.ring();
        let from = self.pushed.take().expect("just written").from;
        if self.until_due() == 0 && !self.log().planted().is(Bug::ReleasesWritten) {
            self.sync()?;
        }
        let end = self.log().position();
        assert!(from <= end, "the log only grows");
        let bytes = end - from;
        self.state.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.control.vitals.log.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tell();
        self.log().roll()?;
        let checkpoint = self.state.truncate.swap(0, Ordering::Acquire);
        if checkpoint > 0 {
            self.state.held_by(self.log.as_mut().expect("the log has begun"));
            self.log().roll_now()?;
            assert!(self.truncate < checkpoint, "checkpoints come in the order of epochs");
            let durable = self.state.durable.load(Ordering::Acquire);
            assert!(checkpoint <= durable, "the log is durable up to the checkpoint that replaces it");
            self.truncate = checkpoint;
        }
        // Removing many segments at once would take the file system tens of milliseconds, during which nothing is
        // released.
        let truncate = self.truncate;
        self.log().truncate(truncate, 1)?;
        Ok(Progress::Worked)
    }

    /// Marks how far the log is durable.
    fn mark(&mut self) -> Result<(), StateError> {
        if !self.log().is_durable() {
            return Ok(());
        }
        self.log().mark();
        self.note();
        // Without disk space, it is marked at a later time.
        if let Written::All = self.log().write()? {
            self.log().sync()?;
            self.tell();
        }
        Ok(())
    }
}

/// Notes digests in a log, without an entry.
pub fn note(log: &mut Log, codec: &mut PackedCodec, digests: &EpochDigests) {
    let mut payload = Vec::new();
    write_digests(digests, codec, &mut payload);
    log.note(&payload);
}
