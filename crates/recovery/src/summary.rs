//! What a durable run did besides.

use serde::Serialize;

/// What a durable run did besides.
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
    /// Their events, which are not among this run's.
    pub replayed_events: u64,
    /// Epochs whose results an earlier run had released before they were durable, and which a crash has taken:
    /// their input was taken again where that can be done.
    pub lost_epochs: u64,
    /// In the weaker mode: seconds between syncs. What was released since the last one may be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_seconds: Option<f64>,
    /// Seconds until the first new event could be taken.
    pub recovery_seconds: f64,
    /// Whether there was no room for a last checkpoint: the next run replays the log behind the one before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_behind: bool,
    /// With a memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySummary>,
}

/// What a limit did to a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySummary {
    /// Bytes that the state may take in memory.
    pub limit: u64,
    /// The most that it took.
    pub peak: u64,
    /// Rows that were read because an epoch needed them.
    pub fetched: u64,
    /// Rows whose memory others got.
    pub evicted: u64,
    /// Those of them that were written for it, as they had changed.
    pub spilled: u64,
}
