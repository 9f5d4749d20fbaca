//! Evicting rows, in a run with a memory limit.
//!
//! **When.** The gate looks before each epoch how much room is left ([`MemoryControl::room`]). Where that is less than
//! [`SOFT`], or than the epochs that are cut may need by what the last ones did, it takes all epochs, so that nothing is
//! in flight, spills and evicts until [`GOAL`] is free, and goes on. So nothing ever waits for a checkpoint. Where one
//! epoch needs more than the limit, epochs are made smaller.
//!
//! **How.** In two steps, each on all processors in shares of the virtual nodes: rows that go are chosen, and those that
//! are only here packed into blocks; when these have been written to a run, which is live from then on, slots go.
//!
//! **Room.** Memory of rows that has been taken once is filled again and never given back. So what indexes of runs, and
//! a merge, can come to need is not given to rows from the beginning.

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
use tidemill_stages::actor::Outbox;
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::Machine;
use tidemill_state::{Eviction, Removal, Table, TableMemory, Victims, Wrongly};

/// Share of the rows' memory that is free after an eviction.
const GOAL: f64 = 0.2;
/// Rows are evicted where less is free.
const SOFT: f64 = 0.05;
/// Indexes have room for so many times the slots: most keys that are looked for in vain have an end to their search in
/// the first bucket then, and some virtual nodes have more slots than others.
const UNEVEN: f64 = 1.2;
/// Bytes of an index with so much room, for a slot.
const INDEX_BYTES: f64 = 12.6 * UNEVEN;
/// Epochs are not made smaller than this.
const EVENTS_MIN: usize = 256;
/// The gate waits for merges where a table has more runs: each is an open file, and a filter to ask.
const RUNS_MAX: usize = 48;
/// Virtual nodes that are worked on at once.
const SHARE: usize = 16;

/// What events needed lately: slots for keys that had none, and memory for texts.
#[derive(Default)]
pub struct Demand {
    /// Events that were cut.
    pub events: u64,
    /// The events, the keys that were asked for, and the bytes of texts at the last observation.
    seen: (u64, u64, usize),
    slots_per_event: f64,
    text_bytes_per_event: f64,
}

impl Demand {
    /// Notes how many keys were asked for, and how many bytes of texts were added, since the last observation.
    pub(crate) fn observe(&mut self, asked: u64, text_bytes: usize) {
        let (events, keys) = ((self.events - self.seen.0) as f64, (asked - self.seen.1) as f64);
        if events > 0.0 {
            let added = text_bytes.saturating_sub(self.seen.2) as f64;
            // Older epochs fade.
            self.slots_per_event += (keys / events - self.slots_per_event) / 4.0;
            self.text_bytes_per_event += (added / events - self.text_bytes_per_event) / 4.0;
            self.seen = (self.events, asked, text_bytes);
        }
    }

    /// What an eviction frees is not what events add.
    fn forget_texts(&mut self, text_bytes: usize) {
        self.seen.2 = text_bytes;
    }

    /// Bytes that so many events may need.
    fn bytes(&self, events: usize, level: &Level) -> f64 {
        events as f64 * (self.slots_per_event * level.row() + self.text_bytes_per_event)
    }
}

impl BufferManager {
    /// How much is used.
    fn level(&self, machine: &Machine) -> Level {
        let runs: Vec<_> = self.tables.iter().map(|cold| cold.runs()).collect();
        let merging = self.merging.load(Ordering::Relaxed);
        let indexes = runs.iter().map(|runs| runs.bytes()).sum::<usize>() + merging;
        // One table is merged at a time.
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
        let tables: Vec<(f64, TableMemory)> = tables.iter().map(share).collect();
        for (left, table) in &tables {
            let row = row_with_texts(table);
            let mut rows = new_rows(*left, table);
            // An index that grows is twice as large, and takes memory beside its former self.
            if *left < 3.0 * table.index as f64 {
                rows = rows.min(table.indexed as f64 / UNEVEN - table.slots as f64);
            }
            spare += rows * row;
            used += table.slots as f64 * row;
        }
        let text_bytes = tables.iter().map(|(_, table)| table.texts).sum();
        Level { held, spare, used, slots, text_bytes, tables }
    }

    /// Whether a table has so many runs that merges must come first.
    fn has_many_runs(&self) -> bool {
        self.tables.iter().any(|cold| cold.runs().len() > RUNS_MAX)
    }

    /// Keys that were looked for in runs.
    fn asked(&self) -> u64 {
        self.tables.iter().map(|cold| cold.asked.load(Ordering::Relaxed)).sum()
    }

    /// Evicts some of a table's rows, and fits its indexes to the memory there is. Nothing is in flight.
    fn evict(
        &self,
        table: usize,
        (machine, environment): (&Arc<Machine>, &dyn Environment),
        directory: &Mutex<StateDirectory>,
        eviction: Eviction,
        level: &Level,
    ) -> Result<(), RunError> {
        let chosen = choose(machine, environment, table, eviction)?;
        let (victims, packed): (Vec<Victims>, Vec<Packed>) = chosen.into_iter().unzip();
        let rows = packed.iter().map(Packed::rows).sum();
        if rows > 0 {
            let mut spill = directory.lock().write_run(machine.tables[table].shape(), Some(rows))?.unsynced();
            packed.into_iter().try_for_each(|packed| spill.append(packed))?;
            self.spill(table, spill.finish_unsynced()?);
        }
        self.evicted.fetch_add(victims.iter().map(Victims::slots).sum::<usize>() as u64, Ordering::Relaxed);
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
        // SAFETY: nothing is in flight still, and what was handed over is in the spill.
        unsafe {
            table.remove(victims, remove);
            if let Some(slots) = fitted {
                table.fit_indexes(slots);
                // Both were there for a moment.
                self.peak.fetch_max((level.held + table.memory().index) as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The slots of a table that go, in shares of its nodes, in order, and their rows that are only here. Nothing is in
/// flight.
fn choose(
    machine: &Arc<Machine>,
    environment: &dyn Environment,
    table: usize,
    eviction: Eviction,
) -> Result<Vec<(Victims, Packed)>, RunError> {
    let shares: Vec<_> = (0..VIRTUAL_NODE_COUNT).step_by(SHARE).map(|first| first..first + SHARE).collect();
    let machine = machine.clone();
    let choose = move |nodes| {
        let table = &machine.tables[table];
        let mut packed = Packed::new(table.shape());
        #[allow(unsafe_code)]
        // SAFETY: nothing is in flight; the table is cold.
        let victims = unsafe { table.choose(nodes, eviction, &mut |rows| packed.push(rows)) };
        (victims, packed)
    };
    in_parallel(environment, shares, choose).map_err(RunError::Panic)
}

/// Bytes of a row with its texts, by those in memory.
fn row_with_texts(table: &TableMemory) -> f64 {
    table.row as f64 + table.texts as f64 / table.slots.max(1) as f64
}

/// How many rows more a table can have in so many bytes; less than 0 where it has too many.
///
/// A free slot needs memory for texts only. Where there is not enough for those of all free slots, fewer of these are
/// filled. A shortage counts as if texts took half a row at the least, so that a small one does not evict everything where
/// texts are so short that evictions free next to nothing.
fn new_rows(left: f64, table: &TableMemory) -> f64 {
    let (free, row) = (table.free as f64, row_with_texts(table));
    let texts = row - table.row as f64;
    let beyond = left - free * texts;
    free + if beyond >= 0.0 { beyond / row } else { beyond / texts.max(table.row as f64 / 2.0) }
}

/// Bytes of memory.
struct Level {
    /// What is taken.
    held: usize,
    /// What new rows could take; less than 0 where more is taken than is aimed at.
    spare: f64,
    /// What rows take.
    used: f64,
    slots: usize,
    /// What texts take.
    text_bytes: usize,
    /// What each table can still take, by its share of the slots, and what it takes.
    tables: Vec<(f64, TableMemory)>,
}

impl Level {
    /// What rows take and could.
    fn whole(&self) -> f64 {
        (self.used + self.spare).max(0.0)
    }

    /// What a row takes without its texts.
    fn row(&self) -> f64 {
        (self.used - self.text_bytes as f64) / self.slots.max(1) as f64
    }

    fn is_below(&self, bytes: f64) -> bool {
        self.spare < bytes.max(SOFT * self.whole()) || self.spare <= 0.0
    }

    /// The share of the rows that is to go.
    fn excess(&self) -> f64 {
        ((GOAL * self.whole() - self.spare) / self.used.max(1.0)).clamp(0.0, 1.0)
    }

    /// The slots that a table's indexes are to have room for, if that is to be changed: as many as there is memory for
    /// with them.
    fn fitted(&self, table: usize) -> Option<usize> {
        let (left, memory) = self.tables[table];
        let rows = (memory.slots + memory.free) * memory.row;
        let bytes = (rows + memory.texts + memory.index) as f64 + left;
        let slots = UNEVEN * bytes / (row_with_texts(&memory) + INDEX_BYTES);
        let is_off = (slots - memory.indexed as f64).abs() > 0.08 * slots;
        (slots > 0.0 && is_off).then_some(slots as usize)
    }
}

/// Keeps the memory of rows below its limit. At the gate, as it needs that nothing is in flight.
pub struct MemoryControl {
    pub(crate) buffers: Arc<BufferManager>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) directory: Arc<Mutex<StateDirectory>>,
    pub(crate) checkpoints: Arc<CheckpointState>,
    /// To the checkpointer: rows were spilled.
    pub(crate) spilled: Outbox<()>,
    pub(crate) planted: Planted,
    /// Events of an epoch at the most, as far as memory says.
    pub(crate) events_max: usize,
    pub(crate) demand: Demand,
}

/// Whether there is room for another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Enough,
    /// Rows are to be evicted first ([`MemoryControl::evict`]).
    Short {
        /// Epochs are to be smaller: one needs too much.
        too_much: bool,
    },
}

impl MemoryControl {
    /// Events of an epoch at the most.
    pub fn events_max(&self) -> usize {
        self.events_max
    }

    /// So many events were cut.
    pub fn cut(&mut self, events: usize) {
        self.demand.events += events as u64;
    }

    /// Whether there is room for another epoch of at most so many events, of at most so many epochs in flight.
    pub fn room(&mut self, events_max: usize, epochs: usize) -> Room {
        let level = self.buffers.level(&self.machine);
        self.demand.observe(self.buffers.asked(), level.text_bytes);
        // All epochs but the one in access may not have been prepared.
        let events = events_max.min(self.events_max) * (epochs - 1);
        let demand = self.demand.bytes(events, &level);
        // What epochs may need is at most half of what an eviction frees.
        let too_much = demand > GOAL / 2.0 * level.whole();
        if level.is_below(demand.min(GOAL / 2.0 * level.whole())) {
            return Room::Short { too_much };
        }
        if !too_much {
            self.events_max = self.events_max.saturating_mul(2);
        }
        Room::Enough
    }

    /// Evicts rows of all tables, so that there is room. Nothing is in flight. `events_max`: what else limits epochs.
    pub fn evict(&mut self, too_much: bool, events_max: usize) -> Result<(), RunError> {
        let level = self.buffers.level(&self.machine);
        self.evict_tables(&level)?;
        let level = self.buffers.level(&self.machine);
        self.demand.forget_texts(level.text_bytes);
        if too_much || level.spare <= 0.0 {
            self.events_max = (self.events_max.min(events_max) / 2).max(EVENTS_MIN);
        }
        // Where the checkpointer has not heard yet of what came before, it will see this, too.
        self.spilled.nudge(());
        Ok(())
    }

    /// Whether merges must come before the next epoch; then the checkpointer does not rest. A checkpoint is not waited
    /// for: its epoch is committed when it is old enough.
    pub fn waits_for_merges(&self) -> bool {
        let waits = self.buffers.has_many_runs() && !self.checkpoints.busy.load(Ordering::Acquire);
        self.checkpoints.presses.store(waits, Ordering::Relaxed);
        if waits {
            // A merge that found no room is tried again.
            self.spilled.nudge(());
        }
        waits
    }

    fn evict_tables(&self, level: &Level) -> Result<(), RunError> {
        // Looked at first: when a snapshot has ended, `whole` was set before.
        let copies = self.machine.tables.iter().any(Table::is_in_snapshot);
        let keeps_all = copies || self.checkpoints.whole.load(Ordering::Acquire);
        let keeps_all = keeps_all && !self.planted.is(Bug::EvictsCopied);
        let wrongly = if self.planted.is(Bug::EvictsDirty) { Wrongly::Dirty } else { Wrongly::Nothing };
        let eviction = Eviction { share: level.excess(), keeps_all, wrongly };
        for table in 0..self.machine.tables.len() {
            let on = (&self.machine, &*self.environment);
            match self.buffers.evict(table, on, &self.directory, eviction, level) {
                // Rows stay, and the limit is exceeded; the log waits for room, too.
                Err(RunError::State(error)) if error.is_no_room() => break,
                evicted => evicted?,
            }
        }
        Ok(())
    }
}
