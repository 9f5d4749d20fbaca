//! What a server counts, and the text that Prometheus reads.

use crate::shared::Shared;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a server counts. It can be asked as long as there is the session.
#[derive(Clone)]
pub struct Metrics(pub(crate) Arc<Shared>);

/// Whether a count only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It is as things are now.
    Gauge,
}

impl MetricKind {
    /// Its word, as Prometheus has it.
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// Counts of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as Prometheus has it: with the unit, and with `total` if it is a counter.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// What it counts, as a sentence.
    pub help: &'static str,
    /// The counts by the values of their labels.
    pub counts: Vec<(Labels, f64)>,
}

/// The labels of a count, with their values.
pub type Labels = Vec<(&'static str, String)>;

impl Metrics {
    /// The counts so far.
    pub fn now(&self) -> Vec<Metric> {
        counted(&self.0)
    }
}

/// The counts so far, in the text format of Prometheus.
pub fn text(shared: &Shared) -> String {
    let mut out = String::new();
    for Metric { name, kind, help, counts } in counted(shared) {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
        for (labels, value) in counts {
            let _ = writeln!(out, "{name}{} {value}", printed(&labels));
        }
    }
    out
}

fn counted(shared: &Shared) -> Vec<Metric> {
    use MetricKind::{Counter, Gauge};
    let summary = shared.session.summary();
    let by_source = |count: fn(&tidemill_runtime::SourceSummary) -> u64| {
        summary.sources.iter().map(|s| (vec![("source", s.name.clone())], count(s) as f64)).collect()
    };
    let outcomes = summary.transactions.iter().flat_map(|t| {
        let of = |outcome: &str, n: u64| (vec![("transaction", t.name.clone()), ("outcome", outcome.into())], n as f64);
        [of("committed", t.committed), of("aborted", t.aborted)]
    });
    let reasons = summary.transactions.iter().flat_map(|t| {
        let of = |(reason, n): &(String, u64)| {
            (vec![("transaction", t.name.clone()), ("reason", reason.clone())], *n as f64)
        };
        t.reasons.iter().map(of)
    });
    let latency = &summary.latency;
    let quantiles = [("0.5", latency.p50_ms), ("0.95", latency.p95_ms), ("0.99", latency.p99_ms)];
    let quantiles = quantiles.map(|(quantile, ms)| (vec![("quantile", quantile.into())], ms / 1e3));
    let calls = &shared.calls;
    let one = |n: u64| vec![(Labels::new(), n as f64)];
    let metric = |name, kind, help, counts| Metric { name, kind, help, counts };
    vec![
        metric("tidemill_epochs_total", Counter, "Epochs released.", one(summary.epochs)),
        metric("tidemill_events_total", Counter, "Events that passed, by source.", by_source(|s| s.events)),
        metric("tidemill_late_events_total", Counter, "Late events, by source.", by_source(|s| s.late)),
        metric("tidemill_held_events", Gauge, "Events that wait for others, by source.", by_source(|s| s.held)),
        metric("tidemill_transactions_total", Counter, "Transactions, by outcome.", outcomes.collect()),
        metric("tidemill_aborts_total", Counter, "Aborts, by reason.", reasons.collect()),
        metric("tidemill_latency_seconds", Gauge, "From arrival to release, since the start.", quantiles.into()),
        metric("tidemill_calls_total", Counter, "Calls made.", one(calls.made.load(Ordering::Relaxed))),
        metric(
            "tidemill_calls_refused_total",
            Counter,
            "Calls over the limit.",
            one(calls.refused.load(Ordering::Relaxed)),
        ),
        metric("tidemill_calls_in_flight", Gauge, "Calls without a reply yet.", one(calls.in_flight() as u64)),
        metric(
            "tidemill_queries_in_flight",
            Gauge,
            "Queries without an answer yet.",
            one(shared.queries.under_way() as u64),
        ),
        metric(
            "tidemill_connections",
            Gauge,
            "Open connections.",
            one(shared.connections.load(Ordering::Relaxed) as u64),
        ),
        metric(
            "tidemill_postgres_connections",
            Gauge,
            "Open connections of clients of PostgreSQL.",
            one(shared.postgres_connections.load(Ordering::Relaxed) as u64),
        ),
        metric("tidemill_stream_readers", Gauge, "Readers of streams.", one(shared.hubs.readers() as u64)),
    ]
}

fn printed(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let labels = vec![("a", "x\"y\\z\n".to_owned()), ("b", String::new())];
        assert_eq!(printed(&labels), r#"{a="x\"y\\z\n",b=""}"#);
        assert_eq!(printed(&Labels::new()), "");
    }
}
