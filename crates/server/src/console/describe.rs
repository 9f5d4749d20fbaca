//! A description of the program for the console: the flow graph, tables, procedures, and the streams of refused events.

use crate::index;
use crate::shared::Shared;
use serde_json::{Value, json};
use tidemill_model::{Field, FieldType, Schema};
use tidemill_plan::{Carried, Column, FlowEdge, FlowGraph, Origin, Program, StreamId, Table, shown_streams};

/// Returns the program as JSON.
pub fn text(shared: &Shared) -> String {
    let session = &shared.session;
    let program = session.engine().program();
    let graph = FlowGraph::of(program);
    let procedures = shared.calls.procedures();
    let procedures: Vec<Value> =
        procedures.map(|(name, schema)| json!({"name": name, "fields": fields(&schema)})).collect();
    let streams = index::streams(program);
    let streams: Vec<Value> =
        streams.map(|stream| json!({"name": stream.name, "fields": fields(&stream.schema)})).collect();
    let refused: Vec<Value> = refused(program)
        .map(|id| {
            let position = position(program, id).map(|(source, field)| json!({"source": source, "field": field}));
            json!({"stream": program.streams[id].name, "position": position})
        })
        .collect();
    json!({
        "application": program.name,
        "nodes": graph.nodes,
        "edges": graph.edges.iter().map(|edge| edge_of(program, edge)).collect::<Vec<_>>(),
        "tables": index::tables(program).map(table_of).collect::<Vec<_>>(),
        "procedures": procedures,
        "streams": streams,
        "refused": refused,
        "sources": session.source_names().collect::<Vec<_>>(),
        "has_state": session.state().is_some(),
    })
    .to_string()
}

fn edge_of(program: &Program, edge: &FlowEdge) -> Value {
    let (kind, stream) = carried(edge.carried);
    let stream = stream.map(|stream| &program.streams[stream].name);
    json!({"from": edge.from, "to": edge.to, "kind": kind, "stream": stream})
}

fn table_of(table: &Table) -> Value {
    let column = |(place, column): (usize, &Column)| {
        let ty = column.window.as_ref().map_or_else(|| column.ty.to_string(), ToString::to_string);
        json!({"name": column.name, "type": ty, "key": table.key.contains(&place)})
    };
    json!({"name": table.name, "columns": table.columns.iter().enumerate().map(column).collect::<Vec<_>>()})
}

/// Returns the streams of events that were refused: late and bad ones, those that failed in a filter or map, aborts.
pub fn refused(program: &Program) -> impl Iterator<Item = StreamId> {
    shown_streams(program).filter(|&id| {
        program.late_of(id).is_some()
            || matches!(program.streams[id].origin, Origin::Bad(_) | Origin::Failed(_) | Origin::Aborted(_))
    })
}

/// Returns the kind of what goes along an edge, and its stream.
fn carried(carried: Carried) -> (&'static str, Option<StreamId>) {
    match carried {
        Carried::Events(stream) | Carried::Input(stream, ..) | Carried::Output(stream, _) => ("events", Some(stream)),
        Carried::Wakes(stream, ..) => ("wakes", Some(stream)),
        Carried::Reads => ("reads", None),
        Carried::Writes => ("writes", None),
    }
}

fn fields(schema: &Schema) -> Vec<Value> {
    let field = |field: &Field| {
        let scalar = match &field.ty {
            FieldType::Scalar(ty) => Some(ty),
            FieldType::List(_) => None,
        };
        let optional = scalar.is_some_and(|ty| ty.nullable);
        let ty = scalar.map_or_else(|| field.ty.to_string(), |ty| ty.ty.to_string());
        json!({"name": field.name, "type": ty, "optional": optional})
    };
    schema.fields.iter().map(field).collect()
}

/// Returns the names by which a refused event is found in the log: the source, and the field that holds its event time
/// there. None if the events do not come from one source as they are, or have no time.
fn position(program: &Program, id: StreamId) -> Option<(&str, &str)> {
    let inputs = match (program.late_of(id), &program.streams[id].origin) {
        (Some(source), _) => vec![source],
        (None, Origin::Aborted(transaction)) => program.transactions[*transaction].inputs.clone(),
        (None, _) => return None,
    };
    let mut sources = inputs.into_iter().map(|input| unchanged(program, input));
    let source = sources.next()??;
    if !sources.all(|other| other == Some(source)) {
        return None;
    }
    let source = &program.streams[source];
    Some((&source.name, &source.schema.fields[source.event_time?].name))
}

/// Returns the source whose events a stream has, unchanged.
fn unchanged(program: &Program, id: StreamId) -> Option<StreamId> {
    match program.streams[id].origin {
        Origin::Source { .. } => Some(id),
        Origin::Map { .. } => program.late_of(id),
        Origin::Filter { input, .. } => unchanged(program, input),
        _ => None,
    }
}
