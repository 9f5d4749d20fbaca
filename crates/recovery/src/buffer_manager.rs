//! Which rows are in memory, in a run with a limit for it.
//!
//! Rows live in *runs* on the medium, and those that epochs touch are in memory besides (`tidemill_state::Table`,
//! whose `cold` has the invariant). An epoch's cold rows are read while it is prepared, in batches of some thousand
//! keys, beside the access of the epochs before; only where a key is known no earlier than in access (a cascade, a
//! dependent key) is it read there.
//!
//! **Live runs.** Of each table there is a list of runs, oldest first, which with the rows in memory are the state as it
//! is. The newest checkpoint's are among them, or have become others by merges. Behind them are *spills*: runs of what
//! was changed and then evicted. No manifest names a spill until the next checkpoint, of which it is a part; until then
//! it need not be durable, as the log has what is in it, and what opens the state after a crash removes it.
//!
//! **Eviction** (`eviction`) is begun by the gate, which looks before each epoch how much room is left.
//!
//! **Checkpoints.** The gate notes the lists as they are when it cuts the epoch of a checkpoint ([`BufferManager::cut`]): what
//! is spilled behind that is newer. What the checkpoint copies of memory becomes a run between the two
//! ([`BufferManager::install`]). Until then a row without a mark may be nowhere but in memory, so all that is evicted is
//! spilled.
//!
//! **Merges** are made by the checkpointer's thread, of runs on one side of the place where a checkpoint's run will go.

use crate::control::{Failure, RunError};
use crate::summary::MemorySummary;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidemill_durability::store::{Merging, OpenRun, Runs, due};
use tidemill_durability::{Bug, Planted, StateDirectory, StateError};
use tidemill_stages::machine::Machine;
use tidemill_state::{ColdError, ColdRows, Found, Image, NOWHERE, Table};

/// The runs of a table as it is.
struct Live {
    runs: Arc<Runs>,
    /// How many of them, at the end, were spilled since a checkpoint was cut that is not installed yet.
    since_cut: Option<usize>,
}

impl Live {
    /// Runs that are not behind the place where the run of a checkpoint goes.
    fn before_cut(&self) -> usize {
        self.runs.len() - self.since_cut.unwrap_or(0)
    }
}

/// The rows of a table that are in its runs.
pub(super) struct Evicted {
    live: RwLock<Live>,
    failure: Arc<Failure>,
    planted: Planted,
    /// Keys that were looked for, and rows that were found. Written by who prepares.
    pub asked: AtomicU64,
    fetched: AtomicU64,
}

impl Evicted {
    pub fn runs(&self) -> Arc<Runs> {
        self.live.read().runs.clone()
    }
}

impl ColdRows for Evicted {
    fn get(&self, keys: &Image) -> Found {
        self.asked.fetch_add(keys.len() as u64, Ordering::Relaxed);
        match self.runs().get(keys) {
            Ok(mut found) => {
                if self.planted.is(Bug::ColdIsAbsent) {
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

    fn each(&self, each: &mut dyn FnMut(Image)) -> Result<(), ColdError> {
        let runs = self.runs();
        runs.parts().try_for_each(|part| {
            each(runs.read(&part)?.existing());
            Ok(())
        })
    }
}

/// What of the state is in memory, and how much may be.
pub struct BufferManager {
    pub(super) limit: usize,
    /// By table.
    pub(super) tables: Vec<Arc<Evicted>>,
    /// Bytes that a merge under way takes. Written by the checkpointer.
    pub(super) merging: AtomicUsize,
    /// The most bytes that were seen.
    pub(super) peak: AtomicU64,
    pub(super) evicted: AtomicU64,
    spilled: AtomicU64,
}

impl BufferManager {
    /// Puts the tables where all their rows are cold: in the newest checkpoint, which has them all. Nothing runs.
    pub fn begin(
        limit: usize,
        directory: &StateDirectory,
        machine: &Machine,
        failure: &Arc<Failure>,
    ) -> Result<BufferManager, StateError> {
        let mut tables = Vec::new();
        for (table, runs) in machine.tables.iter().zip(newest(directory, &machine.tables)?) {
            let cold = Arc::new(Evicted {
                live: RwLock::new(Live { runs, since_cut: None }),
                failure: failure.clone(),
                planted: directory.planted(),
                asked: AtomicU64::new(0),
                fetched: AtomicU64::new(0),
            });
            #[allow(unsafe_code)]
            // SAFETY: no run has begun, so nothing knows a row.
            unsafe {
                table.chill(cold.clone());
            }
            tables.push(cold);
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

    /// A checkpoint of the epoch that is cut now is due: the runs that are a part of it, by table.
    pub fn cut(&self) -> Vec<Arc<Runs>> {
        let cut = |cold: &Arc<Evicted>| {
            let live = &mut *cold.live.write();
            live.since_cut = Some(0);
            live.runs.clone()
        };
        self.tables.iter().map(cut).collect()
    }

    /// The runs by table, as nothing goes on any more.
    pub fn at_rest(&self) -> Vec<Arc<Runs>> {
        self.tables.iter().map(|cold| cold.runs()).collect()
    }

    /// What a checkpoint has copied of memory is in these runs, by table.
    pub fn install(&self, copied: Vec<Option<OpenRun>>) {
        for (cold, run) in self.tables.iter().zip(copied) {
            let live = &mut *cold.live.write();
            let mut place = live.before_cut();
            if cold.planted.is(Bug::CheckpointHidesSpills) {
                place = live.runs.len();
            }
            live.runs = Arc::new(live.runs.with(place..place, run));
        }
    }

    /// The checkpoint that was cut is installed, or will never be.
    pub fn forget_cut(&self) {
        self.tables.iter().for_each(|cold| cold.live.write().since_cut = None);
    }

    /// The newest checkpoint has all rows as they are now. Nothing runs.
    pub fn end(&self, directory: &StateDirectory, tables: &[Table]) -> Result<(), StateError> {
        for (cold, runs) in self.tables.iter().zip(newest(directory, tables)?) {
            *cold.live.write() = Live { runs, since_cut: None };
        }
        Ok(())
    }

    /// Begins to merge runs of a table that has too many; none where no table has. Others write no run of that table
    /// before the merge has ended, but for those that come after the merged ones.
    pub fn begin_merge(
        &self,
        directory: &Mutex<StateDirectory>,
        machine: &Machine,
    ) -> Result<Option<LiveMerge>, StateError> {
        for (t, (evicted, table)) in self.tables.iter().zip(&machine.tables).enumerate() {
            let runs = {
                let live = evicted.live.read();
                live.runs.only(0..live.before_cut())
            };
            let Some(first) = due(&runs.named()) else { continue };
            let old = runs.only(first..runs.len());
            let filter = (first > 0).then_some(old.rows() as usize);
            let into = directory.lock().write_run(table.shape(), filter)?.unsynced();
            self.merging.store(into.bytes(), Ordering::Relaxed);
            let merging = Merging::new(&old, into, first == 0)?;
            return Ok(Some(LiveMerge { table: t, first, count: old.len(), merging }));
        }
        Ok(None)
    }

    /// Puts the merged run in the place of those that it was made of.
    pub fn end_merge(&self, merge: LiveMerge) -> Result<(), StateError> {
        self.merging.store(0, Ordering::Relaxed);
        let LiveMerge { table, first, count, merging } = merge;
        let merged = merging.end().finish_unsynced()?;
        let live = &mut *self.tables[table].live.write();
        assert!(first + count <= live.runs.len(), "runs that are merged stay until then");
        live.runs = Arc::new(live.runs.with(first..first + count, Some(merged)));
        Ok(())
    }

    /// A merge has failed: the runs stay as they are.
    pub fn abandon_merge(&self) {
        self.merging.store(0, Ordering::Relaxed);
    }

    /// What it did.
    pub fn summary(&self) -> MemorySummary {
        MemorySummary {
            limit: self.limit as u64,
            peak: self.peak.load(Ordering::Relaxed),
            fetched: self.tables.iter().map(|cold| cold.fetched.load(Ordering::Relaxed)).sum(),
            evicted: self.evicted.load(Ordering::Relaxed),
            spilled: self.spilled.load(Ordering::Relaxed),
        }
    }

    /// Puts a run of rows that were evicted behind the others.
    pub(super) fn spill(&self, table: usize, run: OpenRun) {
        self.spilled.fetch_add(run.run().rows, Ordering::Relaxed);
        let live = &mut *self.tables[table].live.write();
        live.runs = Arc::new(live.runs.with(live.runs.len()..live.runs.len(), Some(run)));
        live.since_cut = live.since_cut.map(|since| since + 1);
    }
}

/// Runs of a table that become one while it is in use.
pub struct LiveMerge {
    table: usize,
    /// The first of them, and how many they are.
    first: usize,
    count: usize,
    /// The merge itself.
    pub merging: Merging,
}

/// The runs of the newest checkpoint, by table.
fn newest(directory: &StateDirectory, tables: &[Table]) -> Result<Vec<Arc<Runs>>, StateError> {
    let states = directory.checkpoint().map(|checkpoint| checkpoint.tables.as_slice()).unwrap_or_default();
    let open = |(t, table): (usize, &Table)| {
        let runs = states.get(t).map(|state| state.runs.as_slice()).unwrap_or_default();
        directory.runs(runs, table.shape(), &table.definition().name).map(Arc::new)
    };
    tables.iter().enumerate().map(open).collect()
}
