//! The summary of a run.

use serde::Serialize;
use tidemill_recovery::DurabilitySummary;
use tidemill_stages::gate::SourcePosition;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The application.
    pub application: String,
    /// Events that passed, of all sources.
    pub events: u64,
    /// A summary of each source, by source.
    pub sources: Vec<SourceSummary>,
    /// A summary of each transaction, by transaction.
    pub transactions: Vec<TransactionSummary>,
    /// The failures of each filter and map.
    pub failed: Vec<FailedSummary>,
    /// The times that were left out, for each stream of ticks, or of windows of rows.
    pub left_out: Vec<LeftOutSummary>,
    /// The number of epochs.
    pub epochs: u64,
    /// The policies under which the epochs were scheduled, in the order in which they were first used.
    pub policies: Vec<PolicySummary>,
    /// Wall time in seconds, from the first thread's start to the last sink's end.
    pub seconds: f64,
    /// Events per second.
    pub events_per_second: f64,
    /// The latency from an event's arrival at the gate to the release of its epoch's results.
    pub latency: LatencySummary,
    /// Seconds that workers spent in each stage, summed over all workers.
    pub stage_seconds: StageSummary,
    /// Seconds that workers spent in the access stage, by kind.
    pub access_seconds: WorkerSummary,
    /// A flag: whether the run was stopped before its sources ended.
    pub stopped: bool,
    /// The durability part, for a durable run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilitySummary>,
}

/// The epochs that ran under one policy on one number of workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicySummary {
    /// The policy, in the syntax of `--scheduling`.
    pub policy: String,
    /// The most workers that took part in access.
    pub workers: u64,
    /// The group of transactions, if groups were scheduled separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The number of epochs.
    pub epochs: u64,
    /// The number of their transactions.
    pub transactions: u64,
    /// Number of re-executions of transactions because of aborts.
    pub redone: u64,
    /// Seconds of their access stage; for a group, of its share of the stage.
    pub access_seconds: f64,
    /// The reason for the most recent choice.
    pub why: String,
}

/// Seconds of workers in the access stage, summed over all workers, by kind (MorphStream §6.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorkerSummary {
    /// Running transactions.
    pub useful: f64,
    /// Waiting for other workers.
    pub sync: f64,
    /// Waiting for locks.
    pub lock: f64,
    /// Building the graph; surveying epochs to choose a policy.
    pub construct: f64,
    /// Finding operations to run.
    pub explore: f64,
    /// Undoing and re-executing.
    pub abort: f64,
    /// Everything else.
    pub other: f64,
}

/// The counts of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceSummary {
    /// Its name.
    pub name: String,
    /// Events that passed.
    pub events: u64,
    /// Late events.
    pub late: u64,
    /// Records that could not be decoded.
    pub bad: u64,
    /// The event time of the last event that passed, in its unit.
    pub last_time: Option<i64>,
    /// Events of what the run was given that an earlier run over the same state took, which crashed or was stopped: they
    /// were dropped.
    pub again: u64,
    /// Events that were read but not processed: an earlier one may still come, or the run was stopped. With a state they
    /// are kept for the next run.
    pub held: u64,
    /// The event time of the last of those that the state keeps, in its unit.
    pub held_until: Option<i64>,
    /// The source that holds them back: it may still have an earlier event.
    pub held_by: Option<String>,
    /// The earliest event time that such an event may have; none while that source has had no event, and for sources
    /// without event time.
    pub held_from: Option<i64>,
    /// A text that says what they wait for and what releases them; set by front ends after a run that was not stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// A flag: whether its input came to an end that is a pause: a later run over the same state continues it.
    pub paused: bool,
    /// A flag: whether it had ended for good in an earlier run over the same state: nothing was read from it.
    pub ended_before: bool,
}

/// The outcomes of a transaction's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransactionSummary {
    /// Its name.
    pub name: String,
    /// Committed.
    pub committed: u64,
    /// Aborted.
    pub aborted: u64,
    /// The mean time of a transaction in the access stage, over those that were timed, nanoseconds; none if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// Aborts by reason: the reasons that occurred, most frequent first.
    pub reasons: Vec<(String, u64)>,
}

/// Events that failed in a filter or map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FailedSummary {
    /// The stream.
    pub stream: String,
    /// The number of events.
    pub events: u64,
}

/// Times that were left out, as more than 10,000 lay between two events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeftOutSummary {
    /// The stream: ticks, or `NAME.rows` of a window with a result for each row.
    pub stream: String,
    /// The number of times, in long gaps those beyond the first 10,000.
    pub times: u64,
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The 99.9th percentile.
    pub p999_ms: f64,
    /// The maximum.
    pub max_ms: f64,
}

/// Seconds by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageSummary {
    /// Stateless work before access.
    pub prepare: f64,
    /// Access: transactions (wall time of the stage).
    pub access: f64,
    /// The part of access that surveys epochs and chooses their policies.
    pub decide: f64,
    /// Stateless work after access.
    pub finish: f64,
    /// Writing to sinks.
    pub sinks: f64,
}

impl SourceSummary {
    pub(crate) fn stand(&mut self, position: SourcePosition, names: &[&str]) {
        self.events = position.events;
        self.last_time = position.time;
        self.ended_before = position.ended_before;
        self.held = position.held;
        self.paused = position.paused;
        self.held_until = position.held_until;
        let (by, from) = position.held_by.unzip();
        self.held_by = by.map(|source| names[source].to_owned());
        self.held_from = from.flatten().filter(|_| position.held_until.is_some());
    }
}
