//! Counts in the text format of Prometheus.

use crate::shared::Shared;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The counts so far.
pub fn text(shared: &Shared) -> String {
    let summary = shared.session.summary();
    let mut out = String::new();
    family(&mut out, "tidemill_epochs_total", "counter", "Epochs released.", [(String::new(), summary.epochs as f64)]);
    let sources = summary.sources.iter();
    let events = sources.clone().map(|s| (labels(&[("source", &s.name)]), s.events as f64));
    family(&mut out, "tidemill_events_total", "counter", "Events that passed, by source.", events);
    let late = sources.clone().map(|s| (labels(&[("source", &s.name)]), s.late as f64));
    family(&mut out, "tidemill_late_events_total", "counter", "Late events, by source.", late);
    let held = sources.map(|s| (labels(&[("source", &s.name)]), s.held as f64));
    family(&mut out, "tidemill_held_events", "gauge", "Events that wait for others, by source.", held);
    let outcomes = summary.transactions.iter().flat_map(|t| {
        let of = |outcome, count| (labels(&[("transaction", &t.name), ("outcome", outcome)]), count as f64);
        [of("committed", t.committed), of("aborted", t.aborted)]
    });
    family(&mut out, "tidemill_transactions_total", "counter", "Transactions, by outcome.", outcomes);
    let reasons = summary.transactions.iter().flat_map(|t| {
        let of =
            |(reason, count): &(String, u64)| (labels(&[("transaction", &t.name), ("reason", reason)]), *count as f64);
        t.reasons.iter().map(of)
    });
    family(&mut out, "tidemill_aborts_total", "counter", "Aborts, by reason.", reasons);
    let latency = &summary.latency;
    let quantiles = [("0.5", latency.p50_ms), ("0.95", latency.p95_ms), ("0.99", latency.p99_ms)];
    let quantiles = quantiles.map(|(quantile, ms)| (labels(&[("quantile", quantile)]), ms / 1e3));
    family(&mut out, "tidemill_latency_seconds", "gauge", "From arrival to release, since the start.", quantiles);
    let calls = &shared.calls;
    let single = [
        ("tidemill_calls_total", "counter", "Calls made.", calls.made.load(Ordering::Relaxed)),
        ("tidemill_calls_refused_total", "counter", "Calls over the limit.", calls.refused.load(Ordering::Relaxed)),
        ("tidemill_calls_in_flight", "gauge", "Calls without a reply yet.", calls.in_flight() as u64),
        ("tidemill_queries_in_flight", "gauge", "Queries without an answer yet.", shared.queries.under_way() as u64),
        ("tidemill_connections", "gauge", "Open connections.", shared.connections.load(Ordering::Relaxed) as u64),
        (
            "tidemill_postgres_connections",
            "gauge",
            "Open connections of clients of PostgreSQL.",
            shared.postgres_connections.load(Ordering::Relaxed) as u64,
        ),
        ("tidemill_stream_readers", "gauge", "Readers of streams.", shared.hubs.readers() as u64),
    ];
    for (name, kind, help, value) in single {
        family(&mut out, name, kind, help, [(String::new(), value as f64)]);
    }
    out
}

/// A family of counts with their labels.
fn family(out: &mut String, name: &str, kind: &str, help: &str, counts: impl IntoIterator<Item = (String, f64)>) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in counts {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("a", "x\"y\\z\n"), ("b", "")]), r#"{a="x\"y\\z\n",b=""}"#);
    }
}
