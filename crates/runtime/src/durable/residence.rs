//! Which rows are in memory, in a run with a limit for it.
//!
//! Rows live in *runs* on the medium, and those that epochs touch are in memory besides (`tidemill_state::Table`,
//! whose `cold` has the invariant). An epoch's cold rows are read while it is prepared, in a batch for each role,
//! beside the access of the epochs before; only where a key is known no earlier than in access (a cascade, a dependent
//! key) is it read there.
//!
//! **Live runs.** Of each table there is a list of runs, oldest first, which with the rows in memory are the state as it
//! is. The newest checkpoint's are among them, or have become others by merges. Behind them are *spills*: runs of what
//! was changed and then evicted. No manifest names a spill until the next checkpoint, of which it is a part; until then
//! it need not be durable, as the log has what is in it, and what opens the state after a crash removes it.
//!
//! **Eviction.** The gate looks before each epoch how much room is left ([`DurableGate::relieve`]). Below [`SOFT`] it
//! takes all epochs, so that nothing is in flight, spills and evicts until [`GOAL`] is free, and goes on. So nothing ever
//! waits for a checkpoint. Where one epoch needs more than the limit, epochs are made smaller.
//!
//! **Checkpoints.** The gate notes the lists as they are when it cuts the epoch of a checkpoint ([`Residence::cut`]): what
//! is spilled behind that is newer. What the checkpoint copies of memory becomes a run between the two
//! ([`Residence::install`]). Until then a row without a mark may be nowhere but in memory, so all that is evicted is
//! spilled.
//!
//! **Merges** are made by the checkpointer's thread, of runs on one side of the place where a checkpoint's run will go.

use super::recovery::DurableGate;
use super::wait;
use crate::engine::{Failure, RunError};
use crate::gather::Gatherer;
use crate::summary::MemorySummary;
use crate::worker::Machine;
use parking_lot::{Mutex, RwLock};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tidemill_durability::store::{OpenRun, Runs, due};
use tidemill_durability::{Bug, Planted, StateDirectory, StateError};
use tidemill_state::{ColdError, ColdRows, Eviction, Found, Image, NOWHERE, Table, TableMemory, Wrongly};

/// Share of the limit that is aimed at: what epochs in flight need is known when they are prepared.
const AIM: f64 = 0.92;
/// Share of the rows' memory that is free after an eviction.
const GOAL: f64 = 0.2;
/// Rows are evicted where less is free.
const SOFT: f64 = 0.05;
/// Indexes have room for so many times the slots: some virtual nodes have more than others, and where rows come and go
/// full buckets make searches long.
const UNEVEN: f64 = 1.15;
/// Epochs are not made smaller than this.
const EVENTS_MIN: usize = 256;
/// The gate waits for merges where a table has more runs: each is an open file, and a filter to ask.
const RUNS_MAX: usize = 48;
/// How often it is looked whether they are done.
const POLL: Duration = Duration::from_millis(1);

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
struct Cold {
    live: RwLock<Live>,
    failure: Arc<Failure>,
    planted: Planted,
    fetched: AtomicU64,
}

impl Cold {
    fn runs(&self) -> Arc<Runs> {
        self.live.read().runs.clone()
    }
}

impl ColdRows for Cold {
    fn get(&self, keys: &Image) -> Found {
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
pub struct Residence {
    limit: usize,
    /// By table.
    tables: Vec<Arc<Cold>>,
    /// Bytes that a merge under way takes. Written by the checkpointer.
    merging: AtomicUsize,
    /// The most bytes that were seen.
    peak: AtomicU64,
    evicted: AtomicU64,
    spilled: AtomicU64,
}

impl Residence {
    /// Puts the tables where all their rows are cold: in the newest checkpoint, which has them all. Nothing runs.
    pub fn begin(
        limit: usize,
        directory: &StateDirectory,
        machine: &Machine,
        failure: &Arc<Failure>,
    ) -> Result<Residence, StateError> {
        let mut tables = Vec::new();
        for (table, runs) in machine.tables.iter().zip(newest(directory, &machine.tables)?) {
            let cold = Arc::new(Cold {
                live: RwLock::new(Live { runs, since_cut: None }),
                failure: failure.clone(),
                planted: directory.planted(),
                fetched: AtomicU64::new(0),
            });
            #[allow(unsafe_code)]
            // SAFETY: no run has begun, so nothing knows a row.
            unsafe {
                table.chill(cold.clone());
            }
            tables.push(cold);
        }
        Ok(Residence {
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
        let cut = |cold: &Arc<Cold>| {
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

    /// Merges runs of a table that has too many; whether there were any. `worked` is told of so many rows now and
    /// then.
    pub fn merge(
        &self,
        directory: &Mutex<StateDirectory>,
        machine: &Machine,
        worked: &mut dyn FnMut(usize),
    ) -> Result<bool, StateError> {
        for (cold, table) in self.tables.iter().zip(&machine.tables) {
            let runs = {
                let live = cold.live.read();
                live.runs.only(0..live.before_cut())
            };
            let Some(first) = due(&runs.named()) else { continue };
            let old = runs.only(first..runs.len());
            let filter = (first > 0).then_some(old.rows() as usize);
            let into = directory.lock().write_run(table.shape(), filter)?.unsynced();
            self.merging.store(into.bytes(), Ordering::Relaxed);
            let merged = old.merge(into, first == 0, worked).and_then(|merged| merged.finish_unsynced());
            self.merging.store(0, Ordering::Relaxed);
            let merged = merged?;
            // What came meanwhile is behind them.
            let live = &mut *cold.live.write();
            live.runs = Arc::new(live.runs.with(first..first + old.len(), Some(merged)));
            return Ok(true);
        }
        Ok(false)
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

    /// How much is used.
    fn level(&self, machine: &Machine) -> Level {
        let indexes: usize = self.tables.iter().map(|cold| cold.runs().bytes()).sum();
        let fixed = indexes + self.merging.load(Ordering::Relaxed);
        let tables: Vec<TableMemory> = machine.tables.iter().map(Table::memory).collect();
        let held = fixed + tables.iter().map(|table| table.held).sum::<usize>();
        self.peak.fetch_max(held as u64, Ordering::Relaxed);
        let slots: usize = tables.iter().map(|table| table.slots).sum();
        let left = AIM * self.limit as f64 - held as f64;
        let (mut spare, mut used) = (0.0, 0.0);
        let share = |table: &TableMemory| (left * table.slots as f64 / slots.max(1) as f64, *table);
        let tables: Vec<(f64, TableMemory)> = tables.iter().map(share).collect();
        for (left, table) in &tables {
            let mut rows = table.free as f64 + left / table.row as f64;
            // An index that grows is twice as large, and takes memory beside its former self.
            if *left < 3.0 * table.index as f64 {
                rows = rows.min(table.indexed as f64 / UNEVEN - table.slots as f64);
            }
            spare += rows * table.row as f64;
            used += (table.slots * table.row) as f64;
        }
        Level { held, spare, used, tables }
    }

    /// Whether a table has so many runs that merges must come first.
    fn has_many_runs(&self) -> bool {
        self.tables.iter().any(|cold| cold.runs().len() > RUNS_MAX)
    }

    /// Evicts this share of a table's rows, and fits its indexes to the memory there is. Nothing is in flight.
    fn evict(
        &self,
        table: usize,
        machine: &Machine,
        directory: &Mutex<StateDirectory>,
        eviction: Eviction,
        level: &Level,
    ) -> Result<(), StateError> {
        let fitted = level.fitted(table);
        let (cold, table) = (&self.tables[table], &machine.tables[table]);
        let filter = (table.stats().slots as f64 * eviction.share) as usize + 1;
        let mut spill = None;
        #[allow(unsafe_code)]
        // SAFETY: nothing is in flight; the table is cold.
        let victims = unsafe {
            table.choose(eviction, &mut |rows| {
                let spill = match &mut spill {
                    Some(spill) => spill,
                    none => none.insert(directory.lock().write_run(table.shape(), Some(filter))?.unsynced()),
                };
                spill.push(rows)
            })?
        };
        if let Some(spill) = spill {
            let spill = spill.finish_unsynced()?;
            self.spilled.fetch_add(spill.run().rows, Ordering::Relaxed);
            let live = &mut *cold.live.write();
            live.runs = Arc::new(live.runs.with(live.runs.len()..live.runs.len(), Some(spill)));
            live.since_cut = live.since_cut.map(|since| since + 1);
        }
        #[allow(unsafe_code)]
        // SAFETY: nothing is in flight still, and what was handed over is in the spill.
        unsafe {
            table.remove(&victims);
            if let Some(slots) = fitted {
                table.fit_indexes(slots);
                // Both were there for a moment.
                self.peak.fetch_max((level.held + table.memory().index) as u64, Ordering::Relaxed);
            }
        }
        self.evicted.fetch_add(victims.slots() as u64, Ordering::Relaxed);
        Ok(())
    }
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

/// Bytes of memory.
struct Level {
    /// What is taken.
    held: usize,
    /// What new rows could take; less than 0 where more is taken than is aimed at.
    spare: f64,
    /// What rows take.
    used: f64,
    /// What each table can still take, by its share of the slots, and what it takes.
    tables: Vec<(f64, TableMemory)>,
}

impl Level {
    fn is_below(&self, share: f64) -> bool {
        self.spare < share * (self.used + self.spare) || self.spare <= 0.0
    }

    /// The share of the rows that is to go.
    fn excess(&self) -> f64 {
        ((GOAL * (self.used + self.spare).max(0.0) - self.spare) / self.used.max(1.0)).clamp(0.0, 1.0)
    }

    /// The slots that a table's indexes are to have room for, if that is to be changed: as many as there is memory for
    /// with them.
    fn fitted(&self, table: usize) -> Option<usize> {
        /// What a slot takes of indexes that fit.
        const INDEX_BYTES: f64 = 15.0;
        let (left, memory) = self.tables[table];
        let rows = (memory.slots + memory.free) as f64;
        let bytes = rows * memory.row as f64 + memory.index as f64 + left;
        let slots = UNEVEN * bytes / (memory.row as f64 + INDEX_BYTES);
        let is_off = (slots - memory.indexed as f64).abs() > 0.08 * slots;
        (slots > 0.0 && is_off).then_some(slots as usize)
    }
}

impl DurableGate {
    /// Sees to it that there is room for another epoch, as far as that is possible.
    pub fn relieve(&mut self, gatherer: &mut Gatherer) {
        let Some(residence) = self.residence.clone() else { return };
        let level = residence.level(&gatherer.machine);
        if !level.is_below(SOFT) {
            self.events_max = self.events_max.saturating_mul(2);
            return;
        }
        let epochs: Vec<_> = (0..gatherer.slot_count).map_while(|_| gatherer.slot()).collect();
        let is_quiet = epochs.len() == gatherer.slot_count;
        gatherer.stash = epochs;
        if !is_quiet {
            return;
        }
        // Looked at first: when a snapshot has ended, `whole` was set before.
        let copies = gatherer.machine.tables.iter().any(Table::is_in_snapshot);
        let keeps_all = copies || self.checkpoints.whole.load(Ordering::Acquire);
        let keeps_all = keeps_all && !self.planted.is(Bug::EvictsCopied);
        let wrongly = if self.planted.is(Bug::EvictsDirty) { Wrongly::Dirty } else { Wrongly::Nothing };
        let eviction = Eviction { share: level.excess(), keeps_all, wrongly };
        let tables = 0..gatherer.machine.tables.len();
        let evicted = tables
            .into_iter()
            .try_for_each(|table| residence.evict(table, &gatherer.machine, &self.directory, eviction, &level));
        match evicted {
            Ok(()) => {}
            // Rows stay, and the limit is exceeded; the log waits for room, too.
            Err(StateError::Io { error, .. }) if error.kind() == ErrorKind::StorageFull => {}
            Err(error) => {
                gatherer.failure.set(RunError::State(error));
                gatherer.pipeline.stop();
                return;
            }
        }
        if residence.level(&gatherer.machine).spare <= 0.0 {
            self.events_max = (self.events_max.min(gatherer.events_max()) / 2).max(EVENTS_MIN);
        }
        // Where the checkpointer has not heard yet of what came before, it will see this, too.
        let _ = self.spilled.try_send(());
        // What a checkpoint waits for may wait for the gate.
        let waits = || residence.has_many_runs() && !self.checkpoints.busy.load(Ordering::Acquire);
        while waits() && !gatherer.failure.is_set() && !gatherer.control.stops() {
            self.checkpoints.presses.store(true, Ordering::Relaxed);
            // A merge that found no room is tried again.
            let _ = self.spilled.try_send(());
            wait(POLL);
        }
        self.checkpoints.presses.store(false, Ordering::Relaxed);
    }
}
