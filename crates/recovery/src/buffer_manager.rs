//! The buffer manager: decides which rows are in memory, in a run with a memory limit.
//!
//! All rows live in *runs* on the medium; rows that epochs touch are in memory as well (`tidemill_state::Table`, whose
//! `evicted` module states the invariant). The evicted rows of an epoch are read while it is prepared, in batches of some
//! thousand keys, concurrently with the access of earlier epochs. Only if a key is not known before access (a cascade,
//! a dependent key) is its row read during access.
//!
//! **Live runs.** Each table has a list of runs, oldest first. Together with the rows in memory they are the current
//! state. The list begins with the runs of the newest checkpoint, or the runs that merges made of them. After these
//! come *spills*: runs of rows that were changed and then evicted. No manifest names a spill before the next
//! checkpoint, which includes it. Until then a spill need not be durable, because the log has its content; after a
//! crash, opening the state removes it.
//!
//! **Eviction** (`eviction`) is started by the gate, which checks before each epoch how much memory is left.
//!
//! **Checkpoints.** When the gate cuts the epoch of a checkpoint, it records the current lists
//! ([`BufferManager::cut`]); later spills are newer than the checkpoint. The rows that the checkpoint copies from
//! memory become a run between the two ([`BufferManager::install`]). Until then a row without a mark may exist only in
//! memory, so every evicted row is spilled.
//!
//! **Merges** run on the checkpointer's thread. All runs of a merge are on one side of the place where a checkpoint's
//! run will be inserted.

use crate::control::{Failure, RunError};
use crate::summary::MemorySummary;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidemill_durability::store::{Merging, OpenRun, Runs, due};
use tidemill_durability::{Bug, Planted, StateDirectory, StateError};
use tidemill_plan::TableId;
use tidemill_stages::machine::Machine;
use tidemill_state::{EvictedError, EvictedRows, Found, Image, NOWHERE, PinnedRows, Table};
use typed_index_collections::TiVec;

/// The current runs of a table.
struct Live {
    runs: Arc<Runs>,
    /// The number of runs, at the end, that were spilled after the cut of a checkpoint that is not installed yet.
    since_cut: Option<usize>,
}

impl Live {
    /// Returns the number of runs before the place where the run of a checkpoint is inserted.
    fn before_cut(&self) -> usize {
        let since = self.since_cut.unwrap_or(0);
        assert!(since <= self.runs.len(), "what was spilled since the cut is among the runs");
        self.runs.len() - since
    }
}

/// The evicted rows of a table: those in its runs.
pub(super) struct Evicted {
    live: RwLock<Live>,
    failure: Arc<Failure>,
    planted: Planted,
    /// Keys that were looked up, and rows that were found. Written by the preparing workers.
    pub asked: AtomicU64,
    fetched: AtomicU64,
}

impl Evicted {
    pub fn runs(&self) -> Arc<Runs> {
        self.live.read().runs.clone()
    }
}

impl EvictedRows for Evicted {
    fn get(&self, keys: &Image) -> Found {
        self.asked.fetch_add(keys.len() as u64, Ordering::Relaxed);
        match self.runs().get(keys) {
            Ok(mut found) => {
                if self.planted.is(Bug::EvictedIsAbsent) {
                    found.places.iter_mut().step_by(5).for_each(|place| *place = NOWHERE);
                }
                self.fetched.fetch_add(found.rows.len() as u64, Ordering::Relaxed);
                found
            }
            Err(error) => {
                self.failure.set(RunError::State(error));
                Found { rows: Image::new(keys.shape()), places: vec![NOWHERE; keys.len()] }
            }
        }
    }

    fn pin(&self) -> Arc<dyn PinnedRows> {
        Arc::new(Pinned(self.runs()))
    }
}

/// The rows in the runs of one instant. Runs never change, and those that are merged stay readable while they are held.
struct Pinned(Arc<Runs>);

impl PinnedRows for Pinned {
    fn each(&self, each: &mut dyn FnMut(Image)) -> Result<(), EvictedError> {
        let Pinned(runs) = self;
        runs.parts().try_for_each(|part| {
            each(runs.read(&part)?.existing());
            Ok(())
        })
    }

    fn get(&self, keys: &Image) -> Result<Found, EvictedError> {
        let Pinned(runs) = self;
        Ok(runs.get(keys)?)
    }
}

/// Tracks which part of the state is in memory, and how much memory it may take.
pub struct BufferManager {
    pub(super) limit: usize,
    /// The evicted rows of each table, by table.
    pub(super) tables: TiVec<TableId, Arc<Evicted>>,
    /// Bytes used by a running merge. Written by the checkpointer.
    pub(super) merging: AtomicUsize,
    /// The maximum number of bytes observed.
    pub(super) peak: AtomicU64,
    pub(super) evicted: AtomicU64,
    spilled: AtomicU64,
}

impl BufferManager {
    /// Marks all rows of the tables as evicted: they are in the newest checkpoint. Call it while nothing runs.
    pub fn begin(
        limit: usize,
        directory: &StateDirectory,
        machine: &Machine,
        failure: &Arc<Failure>,
    ) -> Result<BufferManager, StateError> {
        let mut tables = TiVec::new();
        for (table, runs) in machine.tables.iter().zip(newest(directory, &machine.tables.raw)?) {
            let evicted = Arc::new(Evicted {
                live: RwLock::new(Live { runs, since_cut: None }),
                failure: failure.clone(),
                planted: directory.planted(),
                asked: AtomicU64::new(0),
                fetched: AtomicU64::new(0),
            });
            #[allow(unsafe_code)]
            // SAFETY: no run has begun, so no thread holds a row.
            unsafe {
                table.evict_all(evicted.clone());
            }
            tables.push(evicted);
        }
        Ok(BufferManager {
            limit,
            tables,
            merging: AtomicUsize::new(0),
            peak: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
        })
    }

    /// Called when an epoch is cut with a checkpoint due: returns the runs that the checkpoint includes, by table.
    pub fn cut(&self) -> Vec<Arc<Runs>> {
        let cut = |evicted: &Arc<Evicted>| {
            let live = &mut *evicted.live.write();
            assert!(live.since_cut.is_none(), "a cut is forgotten before the next");
            live.since_cut = Some(0);
            live.runs.clone()
        };
        self.tables.iter().map(cut).collect()
    }

    /// Returns the runs by table, while nothing runs.
    pub fn at_rest(&self) -> Vec<Arc<Runs>> {
        self.tables.iter().map(|evicted| evicted.runs()).collect()
    }

    /// Inserts the runs of the rows that a checkpoint copied from memory, by table.
    pub fn install(&self, copied: Vec<Option<OpenRun>>) {
        assert_eq!(copied.len(), self.tables.len(), "a checkpoint has copied each table");
        for (evicted, run) in self.tables.iter().zip(copied) {
            let live = &mut *evicted.live.write();
            assert!(live.since_cut.is_some(), "a checkpoint is installed where it was cut");
            let mut place = live.before_cut();
            if evicted.planted.is(Bug::CheckpointHidesSpills) {
                place = live.runs.len();
            }
            live.runs = Arc::new(live.runs.with(place..place, run));
        }
    }

    /// Called when the checkpoint that was cut is installed or abandoned.
    pub fn forget_cut(&self) {
        self.tables.iter().for_each(|evicted| evicted.live.write().since_cut = None);
    }

    /// Called when the newest checkpoint contains all current rows. Nothing runs.
    pub fn end(&self, directory: &StateDirectory, tables: &[Table]) -> Result<(), StateError> {
        for (evicted, runs) in self.tables.iter().zip(newest(directory, tables)?) {
            *evicted.live.write() = Live { runs, since_cut: None };
        }
        Ok(())
    }

    /// Begins to merge runs of a table that has too many; none if no table has. Until the merge ends, other threads
    /// only append runs after the merged ones.
    pub fn begin_merge(
        &self,
        directory: &Mutex<StateDirectory>,
        machine: &Machine,
    ) -> Result<Option<LiveMerge>, StateError> {
        for ((t, evicted), table) in self.tables.iter_enumerated().zip(&machine.tables) {
            let runs = {
                let live = evicted.live.read();
                live.runs.only(0..live.before_cut())
            };
            let Some(first) = due(&runs.named()) else { continue };
            let old = runs.only(first..runs.len());
            let filter = (first > 0).then_some(old.rows() as usize);
            let into = directory.lock().write_run(table.shape(), filter)?.unsynced();
            let bytes = into.bytes();
            let merging = Merging::new(&old, into, first == 0)?;
            let before = self.merging.swap(bytes, Ordering::Relaxed);
            assert_eq!(before, 0, "one merge at a time");
            return Ok(Some(LiveMerge { table: t, first, count: old.len(), merging }));
        }
        Ok(None)
    }

    /// Replaces the merged runs by the result.
    pub fn end_merge(&self, merge: LiveMerge) -> Result<(), StateError> {
        self.merging.store(0, Ordering::Relaxed);
        let LiveMerge { table, first, count, merging } = merge;
        let merged = merging.end().finish_unsynced()?;
        let live = &mut *self.tables[table].live.write();
        assert!(first + count <= live.before_cut(), "no merge crosses the place of a checkpoint's run");
        live.runs = Arc::new(live.runs.with(first..first + count, Some(merged)));
        Ok(())
    }

    /// Called after a failed merge: the runs stay as they are.
    pub fn abandon_merge(&self) {
        self.merging.store(0, Ordering::Relaxed);
    }

    /// Returns the counters of the run.
    pub fn summary(&self) -> MemorySummary {
        MemorySummary {
            limit: self.limit as u64,
            peak: self.peak.load(Ordering::Relaxed),
            fetched: self.tables.iter().map(|evicted| evicted.fetched.load(Ordering::Relaxed)).sum(),
            evicted: self.evicted.load(Ordering::Relaxed),
            spilled: self.spilled.load(Ordering::Relaxed),
        }
    }

    /// Appends a run of evicted rows to the table's list.
    pub(super) fn spill(&self, table: TableId, run: OpenRun) {
        self.spilled.fetch_add(run.run().rows, Ordering::Relaxed);
        let live = &mut *self.tables[table].live.write();
        live.runs = Arc::new(live.runs.with(live.runs.len()..live.runs.len(), Some(run)));
        live.since_cut = live.since_cut.map(|since| since + 1);
    }
}

/// A merge of runs of a table that is in use.
pub struct LiveMerge {
    table: TableId,
    /// The index of the first of them, and their number.
    first: usize,
    count: usize,
    /// The merge itself.
    pub merging: Merging,
}

/// Returns the runs of the newest checkpoint, by table.
fn newest(directory: &StateDirectory, tables: &[Table]) -> Result<Vec<Arc<Runs>>, StateError> {
    let states = directory.checkpoint().map(|checkpoint| checkpoint.tables.as_slice()).unwrap_or_default();
    let open = |(t, table): (usize, &Table)| {
        let runs = states.get(t).map(|state| state.runs.as_slice()).unwrap_or_default();
        directory.runs(runs, table.shape(), &table.definition().name).map(Arc::new)
    };
    tables.iter().enumerate().map(open).collect()
}
