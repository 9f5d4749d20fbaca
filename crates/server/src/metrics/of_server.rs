//! The counts of a server: calls, connections, queries.

use super::{Metric, by, counter, gauge, histogram, one};
use crate::shared::Shared;
use crate::traces::Counts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the counts so far.
pub fn counted(shared: &Shared) -> Vec<Metric> {
    let calls = &shared.calls;
    let of_traces = calls.traces().map(|traces| traces.counts());
    let spans = |count: fn(&Counts) -> &AtomicU64| of_traces.map_or(0, |counts| count(counts).load(Ordering::Relaxed));
    let lost = |reason: &str, count: fn(&Counts) -> &AtomicU64| (by("reason", reason), spans(count));
    let taken = calls.taken().map(|(procedure, spread)| (by("procedure", procedure), spread)).collect();
    vec![
        counter("tidemill_calls_total", "Calls made.", one(calls.made.load(Ordering::Relaxed))),
        counter("tidemill_calls_refused_total", "Calls over the limit.", one(calls.refused.load(Ordering::Relaxed))),
        gauge("tidemill_calls_in_flight", "Calls without a reply yet.", one(calls.in_flight() as u64)),
        histogram("tidemill_call_seconds", "From a call to its reply, by procedure.", taken),
        gauge("tidemill_queries_in_flight", "Queries without an answer yet.", one(shared.queries.under_way() as u64)),
        counter(
            "tidemill_query_processes_ended_total",
            "Processes that queries have ended, by what they took or by a fault.",
            one(shared.queries.processes_ended()),
        ),
        gauge("tidemill_connections", "Open connections.", one(shared.places.taken() as u64)),
        gauge(
            "tidemill_postgres_connections",
            "Open connections of clients of PostgreSQL.",
            one(shared.postgres_places.taken() as u64),
        ),
        gauge("tidemill_responses_bytes", "Bytes of tables that responses hold.", one(shared.held.taken() as u64)),
        counter("tidemill_trace_spans_sent_total", "Spans that the collector has taken.", one(spans(|c| &c.sent))),
        counter(
            "tidemill_trace_spans_lost_total",
            "Spans that were not sent, by reason: no room in the queue, or the collector did not take them.",
            vec![lost("queue", |counts| &counts.without_room), lost("collector", |counts| &counts.not_taken)],
        ),
        gauge("tidemill_stream_readers", "Readers of streams.", one(shared.hubs.readers() as u64)),
    ]
}
