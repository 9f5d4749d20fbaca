//! Checkpoints, taken while epochs run.
//!
//! 1. The gate decides with which epoch a checkpoint is due, and records the positions of the sources after it
//!    ([`Cut`]).
//! 2. The worker that has accessed that epoch begins a snapshot before the next epoch is accessed. Nothing is copied at
//!    this point. Later epochs save the rows that they are about to change (`tidemill_stages::prepare::changes`, and
//!    `tidemill_state::Table::begin_snapshot`).
//! 3. The checkpointer copies the rows that have changed since the last checkpoint, and writes them node by node as a
//!    run of each table, concurrently with the epochs. It pauses between batches of rows, so that epochs keep the
//!    processors. With a memory limit it also makes the spills durable that are part of the checkpoint
//!    ([`crate::buffer_manager`]).
//! 4. After all sinks have committed the epoch, the checkpoint becomes the newest, and the log before it may be
//!    removed.
//!    Where savepoints were asked for, it is kept under their names now ([`crate::savepoints`]).
//! 5. If there are too many runs, they are merged, and the manifest then names the merged run. With a memory limit,
//!    runs of tables are merged as they are spilled, and the next checkpoint's manifest names the merged ones.
//!
//! If step 3 or 4 fails for lack of disk space, the rows that it copied are no longer marked as changed, so the next
//! checkpoint contains all rows.

use crate::buffer_manager::{BufferManager, LiveMerge};
use crate::checkpoint::{Before, Remembered, RunMerger, SnapshotWriter, SourceAt, forget, tables, write_sources};
use crate::control::{Control, Failure, RunError};
use crate::digest::outputs_by_name;
use crate::logger::LogState;
use crate::savepoints::SavepointRequest;
use crate::vitals::Happening;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemill_durability::store::{OpenRun, Runs};
use tidemill_durability::{Bug, Checkpoint, NodeRange, StateDirectory, StateError};
use tidemill_model::StreamDigest;
use tidemill_stages::actor::{Actor, Inbox, Progress, Took};
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::Machine;

/// The interval at which the checkpointer checks whether the sinks have committed, nanoseconds.
const COMMITTED_POLL: u64 = 1_000_000;
/// Rows between two rests.
const REST_ROWS: usize = 1 << 13;
/// Rows of one step of a merge.
const MERGE_ROWS: usize = 1 << 12;
/// A rest takes this many times as long as the work before it.
const REST_FACTOR: u64 = 3;
/// The longest rest, nanoseconds.
const REST_MAX: u64 = 20_000_000;
/// The maximum number of bytes of a table's rows that are copied ahead of writing them.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// The gate's record of a checkpoint, made when it cuts the epoch that the checkpoint is due with.
pub struct Cut {
    /// The last epoch that the checkpoint contains.
    pub epoch: u64,
    /// The positions of the sources after that epoch.
    pub sources: Vec<SourceAt>,
    /// A flag: whether all rows are to be written.
    pub whole: bool,
    /// The runs of rows that changed before the cut and are not in memory, by table, with a memory limit.
    pub live: Option<Vec<Arc<Runs>>>,
    /// The savepoints to keep of the checkpoint.
    pub savepoints: Vec<SavepointRequest>,
}

/// A snapshot that has begun at the end of an epoch, as reported by the committer.
pub struct Captured {
    /// The epoch.
    pub epoch: u64,
    /// The digest of each sink's output up to the epoch, by sink.
    pub outputs: Vec<StreamDigest>,
}

/// State that the participants in checkpoints share.
#[derive(Default)]
pub struct CheckpointState {
    /// The checkpoint that is due. Stored by the gate, taken by the checkpointer.
    pub cut: Mutex<Option<Cut>>,
    /// A flag: whether a checkpoint is in progress. Set by the gate, cleared by the checkpointer.
    pub busy: AtomicBool,
    /// The number of checkpoints taken.
    pub count: AtomicU64,
    /// All sinks have committed the epochs up to this one. Written by the committer.
    pub committed: AtomicU64,
    /// The time that the stages of epochs took, nanoseconds, also in a replay. Added to by the committer, read by the gate.
    pub work: AtomicU64,
    /// A flag: whether the next checkpoint must contain all rows, because some unmarked rows are not in the newest.
    /// Written by the checkpointer while busy, read by the gate.
    pub whole: AtomicBool,
    /// A flag: whether the gate waits for merges, or all other actors have ended; then the checkpointer does not rest.
    /// Written by the gate, and by the run at its end.
    pub presses: AtomicBool,
}

/// Takes checkpoints, and merges spilled runs.
pub struct Checkpointer {
    pub(crate) directory: Arc<Mutex<StateDirectory>>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) control: Arc<Control>,
    /// The time when the checkpoint in progress began (time of the clock).
    pub(crate) begun: u64,
    pub(crate) captured: Inbox<Captured>,
    /// The channel from the gate: rows were spilled.
    pub(crate) spilled: Inbox<()>,
    pub(crate) state: Arc<CheckpointState>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) buffers: Option<Arc<BufferManager>>,
    pub(crate) remembered: Arc<Remembered>,
    pub(crate) failure: Arc<Failure>,
    pub(crate) pace: CopyPace,
    pub(crate) work: Work,
    /// The savepoints to keep of the checkpoint in progress.
    pub(crate) savepoints: Vec<SavepointRequest>,
    /// A flag: whether it found no room on the disk.
    pub(crate) lacks_room: bool,
    /// A merge of spilled runs.
    pub(crate) merge: Option<LiveMerge>,
    /// A flag: whether there may be more to merge.
    pub(crate) merges: bool,
}

/// The progress of a checkpoint.
pub(crate) enum Work {
    /// No checkpoint is in progress.
    Nothing,
    /// The checkpoint's rows are being written.
    Rows(Box<Writing>),
    /// The checkpoint is written, and waits for the sinks and the log.
    Committing(Box<Checkpoint>, Vec<Option<OpenRun>>),
    /// The checkpoint is the newest; runs are being merged.
    Merging(Box<RunMerger>),
}

/// A checkpoint whose rows are being written.
pub(crate) struct Writing {
    epoch: u64,
    sources: Vec<SourceAt>,
    /// The digest of each sink's output, by sink.
    outputs: Vec<StreamDigest>,
    /// The runs that precede those of this checkpoint.
    before: Before,
    writer: SnapshotWriter,
}

impl Actor for Checkpointer {
    fn step(&mut self) -> Progress {
        if let Some(until) = self.pace.rests(&*self.environment, &self.state) {
            return Progress::Waits(Some(until));
        }
        if !matches!(self.work, Work::Nothing) {
            return self.go_on();
        }
        // Before merges, because its run is inserted after the runs that are merged.
        match self.captured.take() {
            Took::Message(captured) => {
                self.begin(captured);
                return Progress::Worked;
            }
            Took::Closed => return self.leave(),
            Took::Nothing => {}
        }
        if let Took::Message(()) = self.spilled.take() {
            self.merges = true;
        }
        if self.merges && !self.failure.is_set() && self.buffers.is_some() {
            let merged = self.merge_live();
            self.merges = self.unless_full(merged).unwrap_or_else(|| {
                self.forget_merge();
                false
            });
            return Progress::Worked;
        }
        Progress::Waits(None)
    }
}

impl Checkpointer {
    /// Ends the checkpointer: all epochs are done.
    fn leave(&mut self) -> Progress {
        self.forget_merge();
        Progress::Over
    }

    fn forget_merge(&mut self) {
        if self.merge.take().is_some() {
            self.buffers.iter().for_each(|buffers| buffers.abandon_merge());
        }
    }

    /// Returns the result of a piece of work; none if there was no disk space for it, or if it failed.
    fn unless_full<T>(&mut self, done: Result<T, StateError>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            // The log still has everything; the work is tried again when there may be space.
            Err(error) if error.is_no_room() => {
                if !self.lacks_room {
                    self.control.vitals.checkpoints.without_room.fetch_add(1, Ordering::Relaxed);
                    self.control.vitals.happened(Happening::CheckpointWithoutRoom);
                }
                self.lacks_room = true;
                None
            }
            Err(error) => {
                self.failure.set(RunError::State(error));
                None
            }
        }
    }

    /// Continues merging spilled runs; returns whether there is more to merge.
    fn merge_live(&mut self) -> Result<bool, StateError> {
        let buffers = self.buffers.as_ref().expect("only with a memory limit");
        let Some(merge) = &mut self.merge else {
            self.merge = buffers.begin_merge(&self.directory, &self.machine)?;
            if self.merge.is_none() {
                self.directory.lock().tidy()?;
            }
            return Ok(self.merge.is_some());
        };
        let more = merge.merging.step(MERGE_ROWS)?;
        self.pace.worked(MERGE_ROWS, true);
        if !more {
            let merge = self.merge.take().expect("just looked at");
            buffers.end_merge(merge)?;
            self.directory.lock().tidy()?;
        }
        Ok(true)
    }

    /// Begins a checkpoint whose snapshot has begun.
    fn begin(&mut self, captured: Captured) {
        let cut = self.state.cut.lock().take().expect("the gate cut it");
        assert_eq!(cut.epoch, captured.epoch, "one checkpoint at a time");
        assert!(self.state.busy.load(Ordering::Acquire), "the gate cuts no checkpoint while one is in progress");
        // Until this checkpoint is the newest, the rows that it copies are no longer marked.
        let forgets = self.directory.lock().planted().is(Bug::SnapshotForgetsFailed);
        self.state.whole.store(!forgets, Ordering::Release);
        self.pace.begin(&*self.environment);
        self.begun = self.pace.since;
        self.control.vitals.happened(Happening::CheckpointBegun { epoch: cut.epoch });
        self.copy_ahead();
        let Cut { epoch, sources, whole, live, savepoints } = cut;
        (self.savepoints, self.lacks_room) = (savepoints, false);
        let before = Before::of(&self.directory.lock(), whole, live);
        let (outputs, writer) = (captured.outputs, SnapshotWriter::default());
        self.work = Work::Rows(Box::new(Writing { epoch, sources, outputs, before, writer }));
    }

    /// Notes that the checkpoint in progress is the newest.
    fn note_taken(&self, epoch: u64) {
        let (vitals, now) = (&self.control.vitals, self.environment.now());
        let took = now.saturating_sub(self.begun);
        vitals.checkpoints.taken.add(took, 1);
        vitals.checkpoints.epoch.store(epoch, Ordering::Relaxed);
        vitals.checkpoints.at.store(now.max(1), Ordering::Relaxed);
        vitals.happened(Happening::CheckpointDone { epoch, seconds: took as f64 / 1e9 });
    }

    /// Copies the changed rows at full speed before they are written at a slower pace: until a row is copied, an epoch
    /// that changes it has to copy it. With a memory limit there is no memory for that.
    fn copy_ahead(&self) {
        for table in self.machine.tables.iter().filter(|table| !table.has_evicted_rows()) {
            #[allow(unsafe_code)]
            // SAFETY: epochs save their rows before they change them.
            unsafe {
                table.copy_ahead(AHEAD_BYTES_MAX);
            }
        }
    }

    /// Continues the checkpoint that is in progress.
    fn go_on(&mut self) -> Progress {
        let mut progress = Progress::Worked;
        let done = match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => unreachable!("work is under way"),
            Work::Rows(writing) => self.write(writing),
            Work::Committing(checkpoint, written) => self.switch(checkpoint, written).map(|(work, waits)| {
                progress = waits;
                work
            }),
            Work::Merging(mut merger) => {
                self.pace.worked(MERGE_ROWS, true);
                let more = merger.step(&self.machine, &self.directory, &self.remembered.answers, MERGE_ROWS);
                more.map(|more| if more { Work::Merging(merger) } else { Work::Nothing })
            }
        };
        self.work = self.unless_full(done).unwrap_or(Work::Nothing);
        if matches!(self.work, Work::Nothing) {
            self.buffers.iter().for_each(|buffers| buffers.forget_cut());
            self.merges = true;
            assert!(self.state.cut.lock().is_none(), "a checkpoint has taken its cut before it ends");
            let unmade = std::mem::take(&mut self.savepoints).into_iter();
            // If the run has failed or ends, nobody is told that there was no room.
            unmade.filter(|_| self.lacks_room).for_each(SavepointRequest::has_no_room);
            self.state.busy.store(false, Ordering::Release);
        }
        progress
    }

    /// Writes rows, and after the last of them the rest of the checkpoint.
    fn write(&mut self, mut writing: Box<Writing>) -> Result<Work, StateError> {
        let begin = &mut |shape: &_, filter| self.directory.lock().write_run(shape, filter);
        match writing.writer.step(&self.machine, &writing.before, begin) {
            Ok(Some(rows)) => {
                // With a memory limit, the copies that epochs and evictions make during the checkpoint have no memory of
                // their own, so it does not rest.
                self.pace.worked(2 * rows, self.buffers.is_none());
                return Ok(Work::Rows(writing));
            }
            Ok(None) => {}
            Err(error) => {
                writing.writer.abandon(&self.machine);
                return Err(error);
            }
        }
        let Writing { epoch, mut sources, outputs, before, writer } = *writing;
        let written = writer.end(&self.machine);
        forget(&mut sources, self.directory.lock().planted());
        let sources = write_sources(sources, &mut || self.directory.lock().write_blocks())?;
        let planted = self.directory.lock().planted();
        let tables = tables(&before, &written, planted)?;
        let outputs = outputs_by_name(&self.machine.program, outputs);
        let newest = self.directory.lock().checkpoint().cloned();
        let begin = &mut |shape: &_, filter| self.directory.lock().write_run(shape, filter);
        let (answers, keys) = self.remembered.answers.write(&self.machine, epoch, planted, begin)?;
        let begin = &mut || self.directory.lock().write_blocks();
        let kept = self.remembered.write_kept(&self.machine.program, newest.as_ref(), epoch, begin)?;
        let nodes = NodeRange::default();
        // The head is known once the epoch is logged.
        let proof = None;
        let passed_before = self.machine.passed_before();
        let checkpoint =
            Checkpoint { epoch, sources, tables, outputs, answers, keys, kept, proof, nodes, passed_before };
        Ok(Work::Committing(Box::new(checkpoint), written))
    }

    /// Makes a checkpoint the newest once its epoch is committed and durable. (With the weaker sync, sinks may be ahead
    /// of the log, and the log must not end before the checkpoint.)
    fn switch(
        &mut self,
        mut checkpoint: Box<Checkpoint>,
        written: Vec<Option<OpenRun>>,
    ) -> Result<(Work, Progress), StateError> {
        let epoch = checkpoint.epoch;
        let committed = self.state.committed.load(Ordering::Acquire);
        if committed.min(self.log_state.durable.load(Ordering::Acquire)) < epoch {
            // An aborted replay leaves epochs that are never committed.
            let is_over =
                matches!(self.captured.take(), Took::Closed) && self.state.committed.load(Ordering::Acquire) < epoch;
            if self.failure.is_set() || is_over {
                return Ok((Work::Nothing, Progress::Worked));
            }
            let until = self.environment.now() + COMMITTED_POLL;
            return Ok((Work::Committing(checkpoint, written), Progress::Waits(Some(until))));
        }
        checkpoint.proof = self.log_state.proof_at(epoch);
        {
            let directory = &mut *self.directory.lock();
            let newest = directory.checkpoint().map(|newest| newest.epoch);
            assert!(newest < Some(epoch), "a checkpoint is newer than the one that it replaces");
            directory.switch(*checkpoint)?;
            if !self.savepoints.is_empty() {
                self.log_state.hold(epoch);
            }
            std::mem::take(&mut self.savepoints).into_iter().for_each(|savepoint| savepoint.keep(directory));
        }
        if let Some(buffers) = &self.buffers {
            buffers.install(written);
        }
        self.state.whole.store(false, Ordering::Release);
        self.log_state.truncate.store(epoch, Ordering::Release);
        self.state.count.fetch_add(1, Ordering::Release);
        self.note_taken(epoch);
        let merger = RunMerger::new(&self.directory.lock(), self.buffers.is_none());
        Ok((merger.map_or(Work::Nothing, |merger| Work::Merging(Box::new(merger))), Progress::Worked))
    }
}

/// Limits the checkpointer's share of the processors, so that the epochs have them most of the time.
#[derive(Default)]
pub(crate) struct CopyPace {
    /// The time at which the work since the last rest began, and its number of rows.
    since: u64,
    rows: usize,
    /// A rest is due.
    tired: bool,
    /// The end of the current rest.
    until: u64,
}

impl CopyPace {
    fn begin(&mut self, environment: &dyn Environment) {
        *self = CopyPace { since: environment.now(), ..CopyPace::default() };
    }

    /// Notes that this number of rows was processed; `rests` tells whether a rest may become due.
    fn worked(&mut self, rows: usize, rests: bool) {
        self.rows += rows;
        if self.rows >= REST_ROWS && rests {
            (self.rows, self.tired) = (0, true);
        }
    }

    /// Returns the time until which to rest; none if no rest is due.
    fn rests(&mut self, environment: &dyn Environment, state: &CheckpointState) -> Option<u64> {
        if !self.tired && self.until == 0 {
            return None;
        }
        let now = environment.now();
        if self.tired {
            self.tired = false;
            self.until = now + (REST_FACTOR * now.saturating_sub(self.since)).min(REST_MAX);
        }
        if now >= self.until || state.presses.load(Ordering::Relaxed) {
            (self.until, self.since) = (0, now);
            return None;
        }
        Some(self.until)
    }
}
