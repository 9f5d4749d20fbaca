//! Evicting rows, in a run with a memory limit.
//!
//! **When.** Before each epoch the gate checks how much memory is left ([`MemoryControl::room`]). If that is less than
//! [`SOFT`], or less than the cut epochs may need judging by recent ones, the gate first waits until no epoch is in
//! flight; then it spills and evicts rows until [`GOAL`] is free. So nothing ever waits for a checkpoint. If one epoch
//! needs more than the limit, epochs become smaller.
//!
//! **How.** There are two steps, each parallel over shares of the virtual nodes. First the victims are chosen, and rows
//! that exist only in memory are packed into blocks. After these have been written to a run, which is live from then
//! on, the slots are removed.
//!
//! **Room.** Memory that rows have occupied is reused for rows and never returned. So the memory that indexes of runs
//! and a merge may need is reserved from the beginning.

use crate::buffer_manager::BufferManager;
use crate::checkpointer::CheckpointState;
use crate::control::RunError;
use crate::parallel::in_parallel;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_durability::store::Packed;
use tidemill_durability::{Bug, Planted, StateDirectory};
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_plan::TableId;
use tidemill_stages::actor::Outbox;
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::Machine;
use tidemill_state::{Eviction, Removal, Table, TableMemory, Victims, Wrongly};
use typed_index_collections::TiVec;

/// The share of the rows' memory that is free after an eviction.
const GOAL: f64 = 0.2;
/// Rows are evicted if a smaller share than this is free.
const SOFT: f64 = 0.05;
/// Indexes have room for this many times the slots: then most unsuccessful lookups end in the first bucket, and some
/// virtual nodes may have more slots than others.
const UNEVEN: f64 = 1.2;
/// Bytes of such an index, per slot.
const INDEX_BYTES: f64 = 12.6 * UNEVEN;
/// The minimum size of epochs that memory pressure leads to, in events.
const EVENTS_MIN: usize = 256;
/// The gate waits for merges if a table has more runs than this: each run is an open file, and a filter to query.
const RUNS_MAX: usize = 48;
/// Virtual nodes per share of the work.
const SHARE: usize = 16;

/// The recent memory demand of events: slots for keys that had none, and bytes of texts.
#[derive(Default)]
pub struct Demand {
    /// Events that were cut.
    pub events: u64,
    /// At the last observation: the events, the keys that were looked up, and the bytes of texts.
    seen: (u64, u64, usize),
    slots_per_event: f64,
    text_bytes_per_event: f64,
}

impl Demand {
    /// Updates the averages from the keys that were looked up, and the bytes of texts that were added, since the last
    /// observation.
    pub(crate) fn observe(&mut self, asked: u64, text_bytes: usize) {
        assert!(self.seen.0 <= self.events && self.seen.1 <= asked, "counts of events and keys only grow");
        let (events, keys) = ((self.events - self.seen.0) as f64, (asked - self.seen.1) as f64);
        if events > 0.0 {
            let added = text_bytes.saturating_sub(self.seen.2) as f64;
            // Exponential decay of older epochs.
            self.slots_per_event += (keys / events - self.slots_per_event) / 4.0;
            self.text_bytes_per_event += (added / events - self.text_bytes_per_event) / 4.0;
            self.seen = (self.events, asked, text_bytes);
        }
    }

    /// Resets the text level after an eviction, so that freed memory does not count as negative demand.
    fn forget_texts(&mut self, text_bytes: usize) {
        self.seen.2 = text_bytes;
    }

    /// Returns the bytes that this number of events may need.
    fn bytes(&self, events: usize, level: &Level) -> f64 {
        events as f64 * (self.slots_per_event * level.row() + self.text_bytes_per_event)
    }
}

impl BufferManager {
    /// Returns the current use of memory.
    fn level(&self, machine: &Machine) -> Level {
        let runs: Vec<_> = self.tables.iter().map(|evicted| evicted.runs()).collect();
        let merging = self.merging.load(Ordering::Relaxed);
        let indexes = runs.iter().map(|runs| runs.bytes()).sum::<usize>() + merging;
        // Only one table is merged at a time.
        let behind = runs.iter().map(|runs| runs.bytes_behind_max()).max().unwrap_or(0);
        let reserved = runs.iter().map(|runs| runs.bytes_first() + runs.bytes_behind_max()).sum::<usize>() + behind;
        let tables: Vec<TableMemory> = machine.tables.iter().map(Table::memory).collect();
        let rows: usize = tables.iter().map(|table| table.held).sum();
        let held = indexes + rows;
        self.peak.fetch_max(held as u64, Ordering::Relaxed);
        let slots: usize = tables.iter().map(|table| table.slots).sum();
        let left = self.limit as f64 - (indexes.max(reserved) + rows) as f64;
        let (mut spare, mut used) = (0.0, 0.0);
        let share = |table: &TableMemory| (left * table.slots as f64 / slots.max(1) as f64, *table);
        let tables: TiVec<TableId, (f64, TableMemory)> = tables.iter().map(share).collect();
        for (left, table) in &tables {
            let row = row_with_texts(table);
            let mut rows = new_rows(*left, table);
            // A growing index doubles in size, and exists alongside the old one for a while.
            if *left < 3.0 * table.index as f64 {
                rows = rows.min(table.indexed as f64 / UNEVEN - table.slots as f64);
            }
            spare += rows * row;
            used += table.slots as f64 * row;
        }
        let text_bytes = tables.iter().map(|(_, table)| table.texts).sum();
        Level { held, spare, used, slots, text_bytes, tables }
    }

    /// Returns whether a table has so many runs that merges must come before the next epoch.
    fn has_many_runs(&self) -> bool {
        self.tables.iter().any(|evicted| evicted.runs().len() > RUNS_MAX)
    }

    /// Returns the number of keys that were looked up in runs.
    fn asked(&self) -> u64 {
        self.tables.iter().map(|evicted| evicted.asked.load(Ordering::Relaxed)).sum()
    }

    /// Evicts some of a table's rows, and fits its indexes to the available memory. Nothing is in flight.
    fn evict(
        &self,
        table: TableId,
        machine: &Arc<Machine>,
        environment: &dyn Environment,
        directory: &Mutex<StateDirectory>,
        eviction: Eviction,
        level: &Level,
    ) -> Result<(), RunError> {
        let chosen = choose(machine, environment, table, eviction)?;
        let (victims, packed): (Vec<Victims>, Vec<Packed>) = chosen.into_iter().unzip();
        let rows = packed.iter().map(Packed::rows).sum();
        let slots = victims.iter().map(Victims::slots).sum::<usize>();
        assert!(rows <= slots, "only rows that go are spilled");
        if rows > 0 {
            let mut spill = directory.lock().write_run(machine.tables[table].shape(), Some(rows))?.unsynced();
            packed.into_iter().try_for_each(|packed| spill.append(packed))?;
            self.spill(table, spill.finish_unsynced()?);
        }
        self.evicted.fetch_add(slots as u64, Ordering::Relaxed);
        let fitted = level.fitted(table);
        let others = machine.clone();
        let remove = |removals: Vec<Removal>| {
            in_parallel(environment, removals, move |mut removal| {
                removal.work(&others.tables[table]);
                removal
            })
            .unwrap_or_else(|panic| panic!("{panic}"))
        };
        let table = &machine.tables[table];
        #[allow(unsafe_code)]
        // SAFETY: nothing is in flight, and the victims' unsaved rows are in the spill.
        unsafe {
            table.remove(victims, remove);
            if let Some(slots) = fitted {
                table.fit_indexes(slots);
                // Both indexes existed for a moment.
                self.peak.fetch_max((level.held + table.memory().index) as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Chooses the victims of a table, in shares of its nodes, in order, and packs those of their rows that exist only in
/// memory. Nothing is in flight.
fn choose(
    machine: &Arc<Machine>,
    environment: &dyn Environment,
    table: TableId,
    eviction: Eviction,
) -> Result<Vec<(Victims, Packed)>, RunError> {
    let shares: Vec<_> = (0..VIRTUAL_NODE_COUNT).step_by(SHARE).map(|first| first..first + SHARE).collect();
    let machine = machine.clone();
    let choose = move |nodes| {
        let table = &machine.tables[table];
        let mut packed = Packed::new(table.shape());
        #[allow(unsafe_code)]
        // SAFETY: nothing is in flight, and the table has evicted rows.
        let victims = unsafe { table.choose(nodes, eviction, &mut |rows| packed.push(rows)) };
        (victims, packed)
    };
    in_parallel(environment, shares, choose).map_err(RunError::Panic)
}

/// Returns the bytes of a row with its texts, averaged over the rows in memory.
fn row_with_texts(table: &TableMemory) -> f64 {
    table.row as f64 + table.texts as f64 / table.slots.max(1) as f64
}

/// Returns the number of rows that a table can gain with `left` bytes; negative if it has too many rows.
///
/// A free slot needs memory for texts only. If there is not enough for the texts of all free slots, fewer of them can
/// be filled. A shortage is converted as if texts took at least half a row: otherwise, with texts so short that
/// evicting a row frees almost nothing, a small shortage would evict everything.
fn new_rows(left: f64, table: &TableMemory) -> f64 {
    let (free, row) = (table.free as f64, row_with_texts(table));
    let texts = row - table.row as f64;
    let beyond = left - free * texts;
    free + if beyond >= 0.0 { beyond / row } else { beyond / texts.max(table.row as f64 / 2.0) }
}

/// Bytes of memory.
struct Level {
    /// Bytes in use.
    held: usize,
    /// Bytes that new rows could take; negative if more is in use than the target.
    spare: f64,
    /// Bytes that rows take.
    used: f64,
    slots: usize,
    /// Bytes that texts take.
    text_bytes: usize,
    /// The bytes that each table can still take, in proportion to its slots, and its current memory.
    tables: TiVec<TableId, (f64, TableMemory)>,
}

impl Level {
    /// Returns the bytes that rows take and could take.
    fn whole(&self) -> f64 {
        (self.used + self.spare).max(0.0)
    }

    /// Returns the bytes of a row without its texts.
    fn row(&self) -> f64 {
        (self.used - self.text_bytes as f64) / self.slots.max(1) as f64
    }

    fn is_below(&self, bytes: f64) -> bool {
        self.spare < bytes.max(SOFT * self.whole()) || self.spare <= 0.0
    }

    /// Returns the share of the rows to evict.
    fn excess(&self) -> f64 {
        ((GOAL * self.whole() - self.spare) / self.used.max(1.0)).clamp(0.0, 1.0)
    }

    /// Returns the number of slots that a table's indexes should be sized for, if the size has to change: as many as
    /// fit in memory together with their index entries.
    fn fitted(&self, table: TableId) -> Option<usize> {
        let (left, memory) = self.tables[table];
        let rows = (memory.slots + memory.free) * memory.row;
        let bytes = (rows + memory.texts + memory.index) as f64 + left;
        let slots = UNEVEN * bytes / (row_with_texts(&memory) + INDEX_BYTES);
        let is_off = (slots - memory.indexed as f64).abs() > 0.08 * slots;
        (slots > 0.0 && is_off).then_some(slots as usize)
    }
}

/// Keeps the memory of rows below its limit. It belongs to the gate, because it needs a moment when nothing is in
/// flight.
pub struct MemoryControl {
    pub(crate) buffers: Arc<BufferManager>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) directory: Arc<Mutex<StateDirectory>>,
    pub(crate) checkpoints: Arc<CheckpointState>,
    /// The channel to the checkpointer: rows were spilled.
    pub(crate) spilled: Outbox<()>,
    pub(crate) planted: Planted,
    /// The maximum number of events of an epoch, by memory.
    pub(crate) events_max: usize,
    pub(crate) demand: Demand,
}

/// The room for another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is enough room.
    Enough,
    /// Rows have to be evicted first ([`MemoryControl::evict`]).
    Short {
        /// A flag: whether epochs have to be smaller because one needs too much.
        too_much: bool,
    },
}

impl MemoryControl {
    /// Returns the maximum number of events of an epoch.
    pub fn events_max(&self) -> usize {
        self.events_max
    }

    /// Notes that this number of events was cut.
    pub fn cut(&mut self, events: usize) {
        self.demand.events += events as u64;
    }

    /// Returns the room for another epoch of at most `events_max` events, with at most `epochs` epochs in flight.
    pub fn room(&mut self, events_max: usize, epochs: usize) -> Room {
        assert!(epochs > 0, "there is an epoch to make room for");
        let level = self.buffers.level(&self.machine);
        self.demand.observe(self.buffers.asked(), level.text_bytes);
        // All epochs except the one in access may still have to be prepared.
        let events = events_max.min(self.events_max) * (epochs - 1);
        let demand = self.demand.bytes(events, &level);
        // Epochs may need at most half of the memory that an eviction frees.
        let too_much = demand > GOAL / 2.0 * level.whole();
        if level.is_below(demand.min(GOAL / 2.0 * level.whole())) {
            return Room::Short { too_much };
        }
        if !too_much {
            self.events_max = self.events_max.saturating_mul(2);
        }
        Room::Enough
    }

    /// Evicts rows of all tables to make room. Nothing is in flight. `events_max`: the limit of epochs by other
    /// criteria.
    pub fn evict(&mut self, too_much: bool, events_max: usize) -> Result<(), RunError> {
        let level = self.buffers.level(&self.machine);
        self.evict_tables(&level)?;
        let level = self.buffers.level(&self.machine);
        self.demand.forget_texts(level.text_bytes);
        if too_much || level.spare <= 0.0 {
            self.events_max = (self.events_max.min(events_max) / 2).max(EVENTS_MIN);
        }
        // If an earlier notification is still unread, the checkpointer will see this spill with it.
        self.spilled.nudge(());
        Ok(())
    }

    /// Returns whether merges must come before the next epoch; then the checkpointer does not rest. The gate does not
    /// wait for a checkpoint, because its epoch is committed only when it is old enough.
    pub fn waits_for_merges(&self) -> bool {
        let waits = self.buffers.has_many_runs() && !self.checkpoints.busy.load(Ordering::Acquire);
        self.checkpoints.presses.store(waits, Ordering::Relaxed);
        if waits {
            // Retries a merge that found no disk space.
            self.spilled.nudge(());
        }
        waits
    }

    fn evict_tables(&self, level: &Level) -> Result<(), RunError> {
        // Read before `whole`: a snapshot ends only after `whole` was set.
        let copies = self.machine.tables.iter().any(Table::is_in_snapshot);
        let keeps_all = copies || self.checkpoints.whole.load(Ordering::Acquire);
        let keeps_all = keeps_all && !self.planted.is(Bug::EvictsCopied);
        let wrongly = if self.planted.is(Bug::EvictsDirty) { Wrongly::Dirty } else { Wrongly::Nothing };
        let eviction = Eviction { share: level.excess(), keeps_all, wrongly };
        for table in self.machine.tables.keys() {
            let (machine, environment) = (&self.machine, &*self.environment);
            match self.buffers.evict(table, machine, environment, &self.directory, eviction, level) {
                // The rows stay in memory and the limit is exceeded; the log waits for disk space, too.
                Err(RunError::State(error)) if error.is_no_room() => break,
                evicted => evicted?,
            }
        }
        Ok(())
    }
}
