//! The durability part of a run's summary.

use serde::Serialize;

/// The durability part of a run's summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DurabilitySummary {
    /// The last epoch, counted from the state's beginning.
    pub epoch: u64,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// Epochs of an earlier run that were replayed.
    pub replayed_epochs: u64,
    /// The events of these epochs, which are not among this run's.
    pub replayed_events: u64,
    /// Epochs whose results an earlier run had released before they were durable, and which a crash has removed; their
    /// input was taken again if the source allows it.
    pub lost_epochs: u64,
    /// The seconds between syncs, with the weaker sync. Results released since the last sync may be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_seconds: Option<f64>,
    /// Seconds until the run could take its first new event.
    pub recovery_seconds: f64,
    /// A flag: whether there was no disk space for a last checkpoint: the next run replays the log after the previous
    /// one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_behind: bool,
    /// The effect of the memory limit, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySummary>,
}

/// The effect of a memory limit on a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySummary {
    /// Bytes that the state may take in memory.
    pub limit: u64,
    /// The maximum that it took.
    pub peak: u64,
    /// Rows that were read from the medium because an epoch needed them.
    pub fetched: u64,
    /// Rows that were evicted from memory.
    pub evicted: u64,
    /// The evicted rows that were written at that time, because they had changed.
    pub spilled: u64,
}
