//! What a run did.

use serde::Serialize;
use tidemill_recovery::DurabilitySummary;
use tidemill_stages::gate::SourcePosition;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The application.
    pub application: String,
    /// Events that went through, of all sources.
    pub events: u64,
    /// By source.
    pub sources: Vec<SourceSummary>,
    /// By transaction.
    pub transactions: Vec<TransactionSummary>,
    /// By filter or map.
    pub failed: Vec<FailedSummary>,
    /// Epochs.
    pub epochs: u64,
    /// How they were scheduled, in the order in which the policies were first used.
    pub policies: Vec<PolicySummary>,
    /// Wall time in seconds, from the first thread's start to the last sink's end.
    pub seconds: f64,
    /// Events per second.
    pub events_per_second: f64,
    /// From an event's arrival at the gate to the release of its epoch's results.
    pub latency: LatencySummary,
    /// Seconds that workers spent in each stage, all together.
    pub stage_seconds: StageSummary,
    /// Seconds that workers spent in the access stage, by kind.
    pub access_seconds: WorkerSummary,
    /// Whether the run was stopped before its sources ended.
    pub stopped: bool,
    /// Of a durable run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilitySummary>,
}

/// What was done under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicySummary {
    /// The policy, as `--scheduling` takes it.
    pub policy: String,
    /// Of which group of transactions, where groups were scheduled by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Epochs.
    pub epochs: u64,
    /// Their transactions.
    pub transactions: u64,
    /// Transactions that were run again because of an abort, as often as they were.
    pub redone: u64,
    /// Seconds of their access stage; of a group, of the part of it that was its own.
    pub access_seconds: f64,
    /// Why it was chosen, the last time.
    pub why: String,
}

/// Seconds of workers in the access stage, all together, by kind (MorphStream §6.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorkerSummary {
    /// Transactions.
    pub useful: f64,
    /// Waiting for other workers.
    pub sync: f64,
    /// Waiting for locks.
    pub lock: f64,
    /// Building the graph; looking at epochs to decide.
    pub construct: f64,
    /// Finding what to run.
    pub explore: f64,
    /// Undoing and running again.
    pub abort: f64,
    /// What is left.
    pub other: f64,
}

/// What came from a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceSummary {
    /// Its name.
    pub name: String,
    /// Events that went through.
    pub events: u64,
    /// Events that came too late.
    pub late: u64,
    /// Records that could not be decoded.
    pub bad: u64,
    /// The event time of the last event that went through, in its unit.
    pub last_time: Option<i64>,
    /// Events that were read but not processed because the run was stopped.
    pub held: u64,
    /// Whether it had ended in an earlier run over the same state, for good: nothing was read of it.
    pub ended_before: bool,
}

/// What became of a transaction's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransactionSummary {
    /// Its name.
    pub name: String,
    /// Committed.
    pub committed: u64,
    /// Aborted.
    pub aborted: u64,
    /// What one took in the access stage on average, by those that were timed, nanoseconds; none where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// Aborted by reason; reasons that occurred, most frequent first.
    pub reasons: Vec<(String, u64)>,
}

/// Events that failed in a filter or map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FailedSummary {
    /// The stream.
    pub stream: String,
    /// How many.
    pub events: u64,
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Half of the events were faster.
    pub p50_ms: f64,
    /// 95 of 100.
    pub p95_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1,000.
    pub p999_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// Seconds by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageSummary {
    /// Stateless, before access.
    pub prepare: f64,
    /// Transactions (wall time of the stage).
    pub access: f64,
    /// Of it, looking at epochs and deciding how to schedule them.
    pub decide: f64,
    /// Stateless, after access.
    pub finish: f64,
    /// Writing to sinks.
    pub sinks: f64,
}

impl SourceSummary {
    pub(crate) fn stand(&mut self, position: SourcePosition, stopped: bool) {
        self.events = position.events;
        self.last_time = position.time;
        self.ended_before = position.ended_before;
        self.held = if stopped { position.held } else { 0 };
    }
}
