//! The flow graph as its user declared it: sources, filters, maps, transactions, windows, joins, tables and sinks, and
//! what goes from one to the other. The parts that windows, joins, ticks and wakes are made of are one node each.

use super::joins;
use super::windows::{is_hidden, rows};
use crate::{CHANGES, EXPIRED, Origin, Program, Stream, StreamId, TransactionId};
use serde::Serialize;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Events from outside.
    Source,
    /// Ticks of event time.
    Ticks,
    /// The batches of a source.
    Batch,
    /// A filter of a stream.
    Filter,
    /// A map of a stream.
    Map,
    /// A state transaction.
    Transaction,
    /// A window over a stream.
    Window,
    /// A join of two streams.
    Join,
    /// A table.
    Table,
    /// A stream that leaves the application.
    Sink,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowNode {
    /// Its kind.
    pub kind: NodeKind,
    /// Its name; unique among those of its kind.
    pub name: String,
}

/// The things that go along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The events of a stream, to batches, a filter or a map.
    Events(StreamId),
    /// The events of a stream, to an input of a transaction; the transaction may be a hidden one.
    Input(StreamId, TransactionId, usize),
    /// The events of a stream, to a sink.
    Output(StreamId, usize),
    /// The rows of a table that wake, to a transaction.
    Wakes(StreamId, TransactionId, usize),
    /// Reads of a table, by a transaction.
    Reads,
    /// Reads and writes of a table, by a transaction.
    Writes,
}

/// An edge between two nodes, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEdge {
    /// The node where it begins; the transaction of [`Carried::Reads`] and [`Carried::Writes`].
    pub from: usize,
    /// The node where it ends.
    pub to: usize,
    /// The kind of things that go along the edge.
    pub carried: Carried,
}

/// The flow graph of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowGraph {
    /// The nodes; producers mostly before what they feed.
    pub nodes: Vec<FlowNode>,
    /// The edges; each pair of nodes and stream once.
    pub edges: Vec<FlowEdge>,
}

impl FlowGraph {
    /// Returns the graph of a program.
    pub fn of(program: &Program) -> FlowGraph {
        let mut graph = FlowGraph::default();
        for table in program.tables.iter().filter(|table| !table.is_hidden) {
            graph.nodes.push(FlowNode { kind: NodeKind::Table, name: table.name.clone() });
        }
        for id in shown_streams(program) {
            graph.stream(program, id);
        }
        for (id, _) in program.transactions.iter_enumerated() {
            graph.transaction(program, id);
        }
        for (number, sink) in program.sinks.iter().enumerate() {
            let to = graph.node(NodeKind::Sink, &sink.name);
            graph.from(program, sink.stream, to, Carried::Output(sink.stream, number));
        }
        graph
    }

    /// Adds the node of a source, of ticks, of batches, of a filter or of a map.
    fn stream(&mut self, program: &Program, id: StreamId) {
        let stream = &program.streams[id];
        let (kind, input) = match &stream.origin {
            Origin::Source { .. } => (NodeKind::Source, None),
            Origin::Due(due) if due.is_ticks() => (NodeKind::Ticks, None),
            Origin::Batch(of) => (NodeKind::Batch, Some(of.source)),
            Origin::Filter { input, .. } => (NodeKind::Filter, Some(*input)),
            // A late stream belongs to the node of its source.
            Origin::Map { .. } if program.late_of(id).is_some() => return,
            Origin::Map { input, .. } => (NodeKind::Map, Some(*input)),
            _ => return,
        };
        let to = self.node(kind, &stream.name);
        if let Some(input) = input {
            self.from(program, input, to, Carried::Events(input));
        }
    }

    /// Adds what a transaction takes and touches, to its own node or to that of the window or join that it is a part of.
    fn transaction(&mut self, program: &Program, id: TransactionId) {
        let transaction = &program.transactions[id];
        let (owner, is_part) = match transaction.name.split_once('.') {
            None => (transaction.name.as_str(), false),
            Some((owner, "add")) => (owner, true),
            Some(_) => return,
        };
        let kind = kind_of(program, owner);
        let to = self.node(kind, owner);
        if let Some(of) = rows(program, owner).filter(|_| is_part) {
            let table = self.node(NodeKind::Table, &program.tables[of].name);
            self.touches(to, table, false);
        }
        for (number, &input) in transaction.inputs.iter().enumerate() {
            let declared = declared(program, input);
            // The function of a window or join takes what its own parts give, and these what is due of it.
            if (kind == NodeKind::Transaction || is_part) && is_shown(program, declared) {
                let wakes = matches!(&program.streams[declared].origin, Origin::Due(due) if due.is_wakes());
                let carried = if wakes { Carried::Wakes } else { Carried::Input };
                self.from(program, declared, to, carried(declared, id, number));
            }
        }
        for role in transaction.roles.iter().filter(|role| !program.tables[role.table].is_hidden) {
            let table = self.node(NodeKind::Table, &program.tables[role.table].name);
            self.touches(to, table, role.written);
        }
    }

    fn touches(&mut self, from: usize, to: usize, written: bool) {
        let carried = if written { Carried::Writes } else { Carried::Reads };
        let is_it = |edge: &&mut FlowEdge| {
            (edge.from, edge.to) == (from, to) && matches!(edge.carried, Carried::Reads | Carried::Writes)
        };
        match self.edges.iter_mut().find(is_it) {
            Some(edge) if written => edge.carried = carried,
            Some(_) => {}
            None => self.edges.push(FlowEdge { from, to, carried }),
        }
    }

    /// Adds an edge from the node that a stream comes from.
    fn from(&mut self, program: &Program, stream: StreamId, to: usize, carried: Carried) {
        let (kind, name) = producer(program, stream);
        let from = self.node(kind, name);
        let edge = FlowEdge { from, to, carried };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    fn node(&mut self, kind: NodeKind, name: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.kind == kind && node.name == name);
        found.unwrap_or_else(|| {
            self.nodes.push(FlowNode { kind, name: name.to_owned() });
            self.nodes.len() - 1
        })
    }
}

/// Returns the streams that a user knows: all but those that windows, joins, ticks and wakes are made of.
pub fn shown_streams(program: &Program) -> impl Iterator<Item = StreamId> {
    program.streams.keys().filter(|&id| is_shown(program, id))
}

fn is_shown(program: &Program, id: StreamId) -> bool {
    let is_ticks = matches!(&program.streams[id].origin, Origin::Due(due) if due.is_ticks());
    is_ticks || !is_hidden(program, id)
}

/// Returns the kind of the transaction of this name: a transaction of the user, or the function of a window or a join.
fn kind_of(program: &Program, name: &str) -> NodeKind {
    let has = |part: &str| program.transactions.iter().any(|t| t.name.strip_prefix(name) == Some(part));
    let is_join = || program.streams.iter().any(|stream| joins::of_input(stream) == Some(name));
    match has(".add") {
        false => NodeKind::Transaction,
        true if is_join() => NodeKind::Join,
        true => NodeKind::Window,
    }
}

/// Returns the node that gives the events of a declared stream.
fn producer(program: &Program, id: StreamId) -> (NodeKind, &str) {
    let stream = &program.streams[id];
    let of = |t: TransactionId| {
        let name = program.transactions[t].name.as_str();
        let owner = name.split_once('.').map_or(name, |(owner, _)| owner);
        (kind_of(program, owner), owner)
    };
    match &stream.origin {
        Origin::Source { .. } => (NodeKind::Source, &stream.name),
        Origin::Filter { .. } => (NodeKind::Filter, &stream.name),
        Origin::Map { input, .. } if program.late_of(id).is_some() => producer(program, *input),
        Origin::Map { .. } => (NodeKind::Map, &stream.name),
        Origin::Batch(_) => (NodeKind::Batch, &stream.name),
        Origin::Due(due) if due.is_wakes() => {
            (NodeKind::Table, stream.name.strip_suffix(".woken").unwrap_or(&stream.name))
        }
        Origin::Due(_) => (NodeKind::Ticks, &stream.name),
        Origin::Committed(t) if program.transactions[*t].name.ends_with(CHANGES) => {
            (NodeKind::Table, stream.name.trim_end_matches(CHANGES))
        }
        Origin::Committed(t) if program.transactions[*t].name.ends_with(EXPIRED) => {
            (NodeKind::Table, stream.name.trim_end_matches(EXPIRED))
        }
        Origin::Committed(t) | Origin::Aborted(t) | Origin::Emitted(t, _) => of(*t),
        Origin::Late(of) | Origin::LateRoot(of) | Origin::Bad(of) | Origin::Failed(of) => producer(program, *of),
    }
}

/// Returns the declared stream whose events a stream has: the stream itself, unless it is a side of a join or was made
/// to carry the time of the position.
fn declared(program: &Program, id: StreamId) -> StreamId {
    if !is_hidden(program, id) {
        return id;
    }
    let stream = &program.streams[id];
    match &stream.origin {
        Origin::Map { input, .. } if joins::of_input(stream).is_some() => declared(program, *input),
        Origin::Filter { input, .. } | Origin::Map { input, .. } => {
            let input = declared(program, *input);
            let is_it = |other: &StreamId| is_same(&stream.origin, &program.streams[*other], input);
            shown_streams(program).find(is_it).unwrap_or(input)
        }
        // Emitted a second time; the fields are those of the other stream, and the time.
        Origin::Emitted(t, _) => {
            let transaction = &program.transactions[*t];
            let others = transaction.emits.iter().map(|emit| emit.stream).filter(|&other| !is_hidden(program, other));
            let fields = |of: StreamId| &program.streams[of].schema.fields;
            let mut others = std::iter::once(transaction.committed.stream).chain(others);
            others.find(|&other| fields(id).starts_with(fields(other))).unwrap_or(transaction.committed.stream)
        }
        _ => id,
    }
}

/// Returns whether a stream is made of `input` as a hidden copy of it is.
fn is_same(copy: &Origin, stream: &Stream, input: StreamId) -> bool {
    match (copy, &stream.origin) {
        (Origin::Filter { predicate, .. }, Origin::Filter { input: of, predicate: other, .. }) => {
            *of == input && predicate == other
        }
        (Origin::Map { fields, .. }, Origin::Map { input: of, fields: other, .. }) => {
            *of == input && fields.starts_with(other)
        }
        _ => false,
    }
}
