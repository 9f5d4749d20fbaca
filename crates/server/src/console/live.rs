//! The state of the run for the console: counts so far, from which the page makes rates, and the latest events.

use super::describe;
use super::refused::Event;
use crate::shared::Shared;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use tidemill_connect::{json_string, time_text};
use tidemill_model::{Type, Value as Datum, format_decimal};
use tidemill_plan::{Carried, FlowGraph, Origin, Program, StreamId, TransactionPart};
use tidemill_runtime::{HotRow, Live, Summary};

/// Returns one document about the run. `after`: the number of the last refused event that the page has.
pub fn text(shared: &Shared, after: u64) -> Vec<u8> {
    let session = &shared.session;
    let program = session.engine().program();
    let (summary, live) = (session.summary(), session.live());
    let refused = shared.tails.after(after, || describe::refused(program).collect());
    let edges: Vec<Option<u64>> =
        FlowGraph::of(program).edges.iter().map(|edge| events(program, &summary, &live, edge.carried)).collect();
    // An early result is one of the window that it is of.
    let is_node = |name: &String| {
        let of = program.transactions.iter().find(|transaction| transaction.name == *name);
        of.is_none_or(|of| !of.is_hidden() && of.part() != Some(TransactionPart::Early))
    };
    let transactions: Vec<&_> = summary.transactions.iter().filter(|of| is_node(&of.name)).collect();
    let (control, calls) = (session.control(), &shared.calls);
    let document = json!({
        "seconds": summary.seconds,
        "over": session.is_over(),
        "events": summary.events,
        "epochs": summary.epochs,
        "sources": summary.sources,
        "transactions": transactions,
        "failed": summary.failed,
        "edges": edges,
        "latency": live.latency,
        "latency_so_far": summary.latency,
        "stages": summary.stage_seconds,
        "access": summary.access_seconds,
        "policies": summary.policies,
        "recent": live.epochs,
        "contention": live.contention,
        "critical": live.critical.iter().map(|row| hot(program, row)).collect::<Vec<_>>(),
        "hot": live.hot.iter().map(|row| hot(program, row)).collect::<Vec<_>>(),
        "under_way": live.under_way,
        "waits": {
            "log": control.log_waits.load(Ordering::Relaxed),
            "sink": control.sink_waits.load(Ordering::Relaxed),
        },
        "calls": {
            "made": calls.made.load(Ordering::Relaxed),
            "refused": calls.refused.load(Ordering::Relaxed),
            "in_flight": calls.in_flight(),
        },
        "connections": shared.places.taken(),
        "readers": shared.hubs.readers(),
    });
    with_refused(document.to_string(), &refused)
}

/// Returns a row that many transactions touch; its key as text.
fn hot(program: &Program, row: &HotRow) -> Value {
    let table = &program.tables[row.table];
    let key = table.key.iter().zip(&row.key).map(|(&column, value)| match (value, table.columns[column].ty.ty) {
        (Datum::Str(text), _) => text.clone(),
        (Datum::Decimal(unscaled), Type::Decimal { scale, .. }) => format_decimal(*unscaled, scale),
        (Datum::Time(time), _) => time_text(*time),
        (other, _) => other.to_string(),
    });
    json!({"table": table.name, "key": key.collect::<Vec<_>>(), "share": row.share})
}

/// Makes the document with one more entry. The events are JSON already, whose fields and digits are left as they are.
fn with_refused(document: String, refused: &[Event]) -> Vec<u8> {
    let mut out = document.into_bytes();
    assert_eq!(out.pop(), Some(b'}'), "an object ends so");
    out.extend_from_slice(b",\"refused\":[");
    for (place, event) in refused.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"" } else { b"," });
        out.extend_from_slice(
            format!("{{\"number\":{},\"epoch\":{},\"stream\":", event.number, event.epoch).as_bytes(),
        );
        json_string(&mut out, &event.stream);
        out.extend_from_slice(b",\"event\":");
        out.extend_from_slice(&event.fields);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// Returns the events that have gone along an edge, where they are counted.
fn events(program: &Program, summary: &Summary, live: &Live, carried: Carried) -> Option<u64> {
    match carried {
        Carried::Input(_, transaction, input) | Carried::Wakes(_, transaction, input) => {
            Some(live.inputs[usize::from(transaction)][input])
        }
        Carried::Output(_, sink) => Some(live.sinks[sink]),
        Carried::Events(stream) => of_stream(program, summary, stream),
        Carried::Reads | Carried::Writes => None,
    }
}

/// Returns the events of a stream, where they are counted.
fn of_stream(program: &Program, summary: &Summary, stream: StreamId) -> Option<u64> {
    if let Some(source) = program.late_of(stream) {
        let name = &program.streams[source].name;
        return summary.sources.iter().find(|source| source.name == *name).map(|source| source.late);
    }
    match program.streams[stream].origin {
        Origin::Source { .. } => {
            let name = &program.streams[stream].name;
            summary.sources.iter().find(|source| source.name == *name).map(|source| source.events)
        }
        // A transaction that returns a record may return none.
        Origin::Committed(of) if program.transactions[of].committed.passes_event => {
            Some(summary.transactions[usize::from(of)].committed)
        }
        Origin::Aborted(of) => Some(summary.transactions[usize::from(of)].aborted),
        _ => None,
    }
}
