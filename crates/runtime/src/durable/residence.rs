//! Which rows are in memory, in a run with a limit for it.
//!
//! Rows live in the newest checkpoint, and those that epochs touch are in memory besides (`tidemill_state::Table`,
//! whose `cold` has the invariant). An epoch's cold rows are read while it is prepared, in a batch for each role,
//! beside the access of the epochs before; only where a key is known no earlier than in access (a cascade, a dependent
//! key) is it read there.
//!
//! The gate looks before each epoch how much room is left ([`DurableGate::relieve`]):
//!
//! 1. Below [`SOFT`] it takes all epochs, so that nothing is in flight, and evicts rows that the newest checkpoint
//!    has as they are, until [`GOAL`] is free. With the next epoch a checkpoint is due, so that there will be more
//!    such rows.
//! 2. Below [`HARD`] it holds the sources back until that checkpoint is there, and evicts again.
//! 3. Where that does not help it lets one epoch through for each checkpoint, and makes epochs smaller: what one
//!    needs can be more than the limit, and then it is exceeded rather than waited for for ever.
//!
//! A checkpoint waits for the log, the workers and the sinks, but never for the gate; so 2 comes to an end.

use super::recovery::DurableGate;
use crate::engine::{Failure, RunError};
use crate::gather::Gatherer;
use crate::summary::MemorySummary;
use crate::worker::Machine;
use crossbeam_channel::bounded;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::store::Runs;
use tidemill_durability::{Bug, Checkpoint, Planted, StateDirectory, StateError};
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::{ColdError, ColdRows, Eviction, Found, Image, NOWHERE, Wrongly};

/// Share of the limit that is aimed at: an index that grows and epochs in flight take more before it is looked again.
const AIM: f64 = 0.85;
/// Share of the rows' memory that is free after an eviction.
const GOAL: f64 = 0.4;
/// A checkpoint is taken, and rows are evicted, where less is free.
const SOFT: f64 = 0.2;
/// The sources wait where less is free.
const HARD: f64 = 0.04;
/// Slots of a table that are looked at while nothing is in flight, more or less.
const SLOTS_AT_ONCE: usize = 1 << 19;
/// Epochs are not made smaller than this.
const EVENTS_MIN: usize = 256;
/// How often it is looked whether a checkpoint is there.
const POLL: Duration = Duration::from_millis(1);

/// The rows of a table that are in the newest checkpoint.
struct Cold {
    /// Replaced with each checkpoint and merge.
    runs: RwLock<Arc<Runs>>,
    failure: Arc<Failure>,
    planted: Planted,
    fetched: AtomicU64,
}

impl ColdRows for Cold {
    fn get(&self, keys: &Image) -> Found {
        let runs = self.runs.read().clone();
        match runs.get(keys) {
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
        let runs = self.runs.read().clone();
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
    /// The most bytes that were seen.
    peak: AtomicU64,
    evicted: AtomicU64,
}

impl Residence {
    /// Puts the tables where all their rows are cold: in the newest checkpoint, which has them all. Nothing runs.
    pub fn begin(
        limit: usize,
        directory: &StateDirectory,
        machine: &Machine,
        failure: &Arc<Failure>,
    ) -> Result<Residence, StateError> {
        let states = directory.checkpoint().map(|checkpoint| checkpoint.tables.as_slice()).unwrap_or_default();
        let mut tables = Vec::new();
        for (t, table) in machine.tables.iter().enumerate() {
            let runs = states.get(t).map(|state| state.runs.as_slice()).unwrap_or_default();
            let runs = directory.runs(runs, table.shape(), &table.definition().name)?;
            let cold = Arc::new(Cold {
                runs: RwLock::new(Arc::new(runs)),
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
        Ok(Residence { limit, tables, peak: AtomicU64::new(0), evicted: AtomicU64::new(0) })
    }

    /// A checkpoint has become the newest: rows are read from it from now on.
    pub fn install(&self, checkpoint: &Checkpoint) -> Result<(), StateError> {
        for (cold, state) in self.tables.iter().zip(&checkpoint.tables) {
            let before = cold.runs.read().clone();
            *cold.runs.write() = Arc::new(before.successor(&state.runs)?);
        }
        Ok(())
    }

    /// What it did.
    pub fn summary(&self) -> MemorySummary {
        MemorySummary {
            limit: self.limit as u64,
            peak: self.peak.load(Ordering::Relaxed),
            fetched: self.tables.iter().map(|cold| cold.fetched.load(Ordering::Relaxed)).sum(),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// How much is used.
    fn level(&self, machine: &Machine) -> Level {
        let indexes: usize = self.tables.iter().map(|cold| cold.runs.read().bytes()).sum();
        let memory = machine.tables.iter().map(|table| table.memory());
        let (held, room, used) = memory.fold((0, 0, 0), |(h, r, u), m| (h + m.held, r + m.room, u + m.used));
        self.peak.fetch_max((held + indexes) as u64, Ordering::Relaxed);
        Level { spare: AIM * self.limit as f64 - (indexes + held) as f64 + room as f64, used: used as f64 }
    }
}

/// Bytes of memory.
#[derive(Clone, Copy)]
struct Level {
    /// What new rows could take; less than 0 where more is taken than is aimed at.
    spare: f64,
    /// What rows take.
    used: f64,
}

impl Level {
    fn is_below(self, share: f64) -> bool {
        self.spare < share * (self.used + self.spare) || self.spare <= 0.0
    }

    /// The share of the rows that is to go.
    fn excess(self) -> f64 {
        ((GOAL * (self.used + self.spare).max(0.0) - self.spare) / self.used.max(1.0)).clamp(0.0, 1.0)
    }
}

/// How far the gate is in making room.
pub struct Relief {
    /// Nodes of each table that were not visited twice since the last checkpoint.
    nodes: Vec<usize>,
    /// That checkpoint.
    checkpoint: u64,
    /// Rows are evicted until the goal is reached.
    pub is_open: bool,
    /// Events of an epoch at the most.
    pub events_max: usize,
}

impl Default for Relief {
    fn default() -> Self {
        Relief { nodes: Vec::new(), checkpoint: u64::MAX, is_open: false, events_max: usize::MAX }
    }
}

impl DurableGate {
    /// Sees to it that there is room for another epoch, as far as that is possible.
    pub fn relieve(&mut self, gatherer: &mut Gatherer) {
        let Some(residence) = self.residence.clone() else { return };
        loop {
            let level = residence.level(&gatherer.machine);
            let is_open = level.is_below(if self.relief.is_open { GOAL } else { SOFT });
            self.relief.is_open = is_open;
            self.checkpoints.presses.store(is_open, Ordering::Relaxed);
            self.log_state.hurries.store(is_open, Ordering::Relaxed);
            if !is_open || gatherer.failure.is_set() || gatherer.control.stops() {
                self.relief.events_max = self.relief.events_max.saturating_mul(2);
                return;
            }
            let is_gaining = self.evict(gatherer, &residence, level);
            let level = residence.level(&gatherer.machine);
            let is_hard = level.is_below(HARD);
            if is_gaining && is_hard {
                continue;
            }
            if level.spare <= 0.0 && !self.checkpoints.busy.load(Ordering::Acquire) {
                self.relief.events_max = (self.relief.events_max.min(gatherer.events_max()) / 2).max(EVENTS_MIN);
            }
            // In a replay the end of the log may be needed to know that the epoch of the checkpoint is durable.
            let comes = self.entries.is_some() || self.log_state.durable.load(Ordering::Acquire) >= self.due_epoch;
            if !is_hard || !comes || !self.checkpoints.busy.load(Ordering::Acquire) {
                return;
            }
            let (_never, never) = bounded::<()>(0);
            let _ = never.recv_timeout(POLL);
        }
    }

    /// Evicts rows of some nodes, if any can be; whether that gained something.
    fn evict(&mut self, gatherer: &mut Gatherer, residence: &Residence, level: Level) -> bool {
        let machine = gatherer.machine.clone();
        let count = self.checkpoints.count.load(Ordering::Acquire);
        if self.relief.checkpoint != count {
            self.relief.checkpoint = count;
            self.relief.nodes = vec![2 * VIRTUAL_NODE_COUNT; machine.tables.len()];
        }
        // While this is set, some rows without marks are not in the newest checkpoint.
        if self.checkpoints.whole.load(Ordering::Acquire) {
            return false;
        }
        // What was used since the hand passed last is spared as long as that is possible.
        let spared = if level.is_below(HARD) { 0 } else { VIRTUAL_NODE_COUNT };
        if self.relief.nodes.iter().all(|nodes| *nodes <= spared) {
            return false;
        }
        let epochs: Vec<_> = (0..gatherer.slot_count).map_while(|_| gatherer.slot()).collect();
        let mut gone = 0;
        if epochs.len() == gatherer.slot_count && !machine.tables.iter().any(|table| table.is_in_snapshot()) {
            for (table, nodes) in machine.tables.iter().zip(&mut self.relief.nodes) {
                let wrongly = if self.planted.is(Bug::EvictsDirty) { Wrongly::Dirty } else { Wrongly::Nothing };
                #[allow(unsafe_code)]
                // SAFETY: all epochs are here, cleared. A checkpoint that takes marks away sets `whole` before it
                // ends its snapshot, and clears it when it is the newest and installed.
                let evicted = unsafe {
                    table.evict(Eviction {
                        share: level.excess(),
                        nodes: nodes.saturating_sub(spared),
                        slots: SLOTS_AT_ONCE,
                        wrongly,
                    })
                };
                *nodes -= evicted.nodes;
                gone += evicted.slots;
            }
        }
        gatherer.stash = epochs;
        residence.evicted.fetch_add(gone as u64, Ordering::Relaxed);
        gone > 0
    }
}
