//! Checkpoints while epochs run.
//!
//! 1. The gate says with which epoch a checkpoint is due, and how the sources stand behind it.
//! 2. The worker that has accessed that epoch begins a snapshot before the next epoch is accessed. Nothing is
//!    copied then. Later epochs save the rows that they are about to change (`changes`, and
//!    `tidemill_state::Table::begin_snapshot`).
//! 3. The checkpointer's thread copies what has changed since the last checkpoint, and writes it node by node as a
//!    run of each table, beside the epochs. It rests as it writes, so that epochs keep the processors. With a memory
//!    limit it makes what was spilled durable, which is a part of the checkpoint (`residence`).
//! 4. When all sinks have committed the epoch, the checkpoint becomes the newest, and the log before it
//!    may go.
//! 5. Runs are merged where there are too many, and the manifest names the merged one in their stead; with a memory
//!    limit the next checkpoint's does, and runs are merged as they are spilled.
//!
//! Where 3 or 4 fails for want of room, what it had taken is not marked as changed any more; so the next checkpoint
//! is one of all rows.

use super::checkpoint::{Before, SourceAt, merge, tables, write_rows, write_sources};
use super::logger::LogState;
use super::residence::Residence;
use super::wait;
use crate::engine::{Failure, RunError};
use crate::environment::Environment;
use crate::pipeline::Pipeline;
use crate::worker::Machine;
use crossbeam_channel::{Receiver, TryRecvError, never, select};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::store::Runs;
use tidemill_durability::{Bug, Checkpoint, StateDirectory, StateError};
use tidemill_model::StreamDigest;
use tidemill_state::Generation;

/// How often it is looked whether the sinks have committed.
const COMMITTED_POLL: Duration = Duration::from_millis(1);
/// Rows between two rests.
const REST_ROWS: usize = 1 << 13;
/// How much longer a rest is than the work before it.
const REST_FACTOR: u64 = 3;
/// And how long at the most.
const REST_MAX: Duration = Duration::from_millis(20);
/// Bytes of a table's rows that are copied at once before they are written.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// A checkpoint that is due with an epoch.
pub struct Due {
    /// How the sources stand behind it.
    pub sources: Vec<SourceAt>,
    /// What epochs up to it have marked as.
    pub generation: Generation,
    /// Whether all rows are to be written.
    pub whole: bool,
    /// With a memory limit: the runs of what has changed before and is not in memory, by table.
    pub live: Option<Vec<Arc<Runs>>>,
}

/// A snapshot that was begun at the end of an epoch.
pub struct Captured {
    epoch: u64,
    sources: Vec<SourceAt>,
    whole: bool,
    live: Option<Vec<Arc<Runs>>>,
    /// By sink: what went to it up to the epoch. Added by the committer.
    pub outputs: Vec<StreamDigest>,
}

impl Captured {
    /// Begins it. To be called between the access of `epoch` and that of the next.
    pub fn begin(machine: &Machine, epoch: u64, due: Due) -> Captured {
        begin_snapshots(machine, due.generation, due.whole);
        Captured { epoch, sources: due.sources, whole: due.whole, live: due.live, outputs: Vec::new() }
    }
}

/// Begins a snapshot of each table. While none is open and no transaction runs.
pub fn begin_snapshots(machine: &Machine, generation: Generation, whole: bool) {
    for table in &machine.tables {
        // Cold rows are as the newest checkpoint has them, whatever became of others.
        let is_cold = table.has_cold_rows();
        if whole && is_cold {
            table.mark_all(generation);
        }
        #[allow(unsafe_code)]
        // SAFETY: by the caller. There is one checkpoint at a time, and it ends its snapshots.
        unsafe {
            table.begin_snapshot(generation, whole && !is_cold);
        }
    }
}

/// What those who take part in checkpoints share.
#[derive(Default)]
pub struct CheckpointState {
    /// One is under way. Set by the gate, cleared by the checkpointer.
    pub busy: AtomicBool,
    /// How many were taken.
    pub count: AtomicU64,
    /// Epochs up to this one are committed by all sinks. Written by the committer.
    pub committed: AtomicU64,
    /// The next one must have all rows: some without a mark are not in the newest. Written by the checkpointer while
    /// busy, read by the gate.
    pub whole: AtomicBool,
    /// Merges are waited for, or all else has ended, so they do not rest. Written by the gate and, when it has
    /// ended, by who waits for the threads.
    pub presses: AtomicBool,
}

/// The checkpointer's thread.
pub struct Checkpointer {
    pub directory: Arc<Mutex<StateDirectory>>,
    pub machine: Arc<Machine>,
    pub environment: Arc<dyn Environment>,
    pub captured: Receiver<Captured>,
    /// From the gate: rows were spilled.
    pub spilled: Receiver<()>,
    pub state: Arc<CheckpointState>,
    pub log_state: Arc<LogState>,
    pub residence: Option<Arc<Residence>>,
    pub failure: Arc<Failure>,
    pub pipeline: Arc<Pipeline>,
}

impl Checkpointer {
    /// Makes captured states the newest checkpoint until there are no more, and merges what is spilled.
    pub fn run(self) {
        let mut spilled = self.spilled.clone();
        loop {
            select! {
                recv(self.captured) -> captured => match captured {
                    Ok(captured) => {
                        self.take(captured);
                        self.merge_live();
                    }
                    Err(_) => return,
                },
                recv(spilled) -> spill => match spill {
                    Ok(()) => self.merge_live(),
                    Err(_) => spilled = never(),
                },
            }
        }
    }

    fn take(&self, captured: Captured) {
        _ = self.done(self.keep(captured).map(|()| false));
        self.residence.iter().for_each(|residence| residence.forget_cut());
        self.state.busy.store(false, Ordering::Release);
    }

    /// What became of it, where it did not fail.
    fn done(&self, done: Result<bool, StateError>) -> bool {
        match done {
            Ok(done) => done,
            // The log has everything still; it will be tried again when there may be room.
            Err(error) if error.is_no_room() => false,
            Err(error) => {
                self.failure.set(RunError::State(error));
                self.pipeline.stop();
                false
            }
        }
    }

    /// Merges runs of tables as they are, as long as there are too many. A checkpoint that is due meanwhile is taken
    /// at once: its runs are behind those that are merged.
    fn merge_live(&self) {
        let Some(residence) = &self.residence else { return };
        let mut pace = Pace::new(&*self.environment, &self.state);
        let mut worked = |rows| {
            pace.worked(rows);
            if let Ok(captured) = self.captured.try_recv() {
                self.take(captured);
            }
        };
        let mut merge = || {
            let merged = residence.merge(&self.directory, &self.machine, &mut worked)?;
            self.directory.lock().tidy()?;
            Ok(merged)
        };
        while !self.failure.is_set() && self.done(merge()) {}
    }

    fn keep(&self, captured: Captured) -> Result<(), StateError> {
        let Captured { epoch, sources, whole, live, outputs } = captured;
        let outputs = super::run::outputs(&self.machine.program, outputs);
        // Until it is the newest: what it takes is not marked any more.
        let forgets = self.directory.lock().planted().is(Bug::SnapshotForgetsFailed);
        self.state.whole.store(!forgets, Ordering::Release);
        let mut pace = Pace::new(&*self.environment, &self.state);
        // Where memory is limited, the copies that epochs and evictions make meanwhile have none of their own.
        pace.rests = self.residence.is_none();
        self.copy_ahead();
        let before = match &live {
            Some(live) => Before::Live(live),
            None => Before::of(&self.directory.lock(), whole),
        };
        let begin = &mut |shape: &_, filter| self.directory.lock().write_run(shape, filter);
        let written = write_rows(&self.machine, &before, begin, &mut |rows| pace.worked(rows))?;
        let sources = write_sources(sources, &mut || self.directory.lock().write_blocks())?;
        let planted = self.directory.lock().planted();
        let checkpoint = Checkpoint { epoch, sources, tables: tables(&before, &written, planted)?, outputs };
        // In the weaker mode sinks may be ahead of the log, which must not end before the checkpoint.
        let kept = || self.state.committed.load(Ordering::Acquire).min(self.log_state.durable.load(Ordering::Acquire));
        while kept() < epoch {
            // A replay that is broken off leaves epochs that nobody will commit.
            let is_over = matches!(self.captured.try_recv(), Err(TryRecvError::Disconnected))
                && self.state.committed.load(Ordering::Acquire) < epoch;
            if self.failure.is_set() || is_over {
                return Ok(());
            }
            wait(COMMITTED_POLL);
        }
        self.directory.lock().switch(checkpoint)?;
        if let Some(residence) = &self.residence {
            residence.install(written);
        }
        self.state.whole.store(false, Ordering::Release);
        self.log_state.truncate.store(epoch, Ordering::Release);
        self.state.count.fetch_add(1, Ordering::Release);
        match self.residence {
            Some(_) => Ok(()),
            None => merge(&self.machine, &self.directory, &mut |rows| pace.worked(rows)),
        }
    }

    /// Copies what has changed, as fast as it goes, before it is written at leisure: until a row is copied, the epoch
    /// that changes it has to do it. Where memory is limited there is no room for that.
    fn copy_ahead(&self) {
        for table in self.machine.tables.iter().filter(|table| !table.has_cold_rows()) {
            #[allow(unsafe_code)]
            // SAFETY: epochs save their rows before they change them.
            unsafe {
                table.copy_ahead(AHEAD_BYTES_MAX);
            }
        }
    }
}

/// Leaves the processors to the epochs most of the time.
struct Pace<'a> {
    environment: &'a dyn Environment,
    state: &'a CheckpointState,
    rests: bool,
    since: u64,
    rows: usize,
}

impl<'a> Pace<'a> {
    fn new(environment: &'a dyn Environment, state: &'a CheckpointState) -> Pace<'a> {
        Pace { environment, state, rests: true, since: environment.now(), rows: 0 }
    }

    /// So many rows were worked on.
    fn worked(&mut self, rows: usize) {
        self.rows += rows;
        if self.rows >= REST_ROWS && self.rests && !self.state.presses.load(Ordering::Relaxed) {
            self.rows = 0;
            let work = self.environment.now().saturating_sub(self.since);
            wait(Duration::from_nanos(REST_FACTOR * work).min(REST_MAX));
            self.since = self.environment.now();
        }
    }
}
