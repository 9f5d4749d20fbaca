//! The flow graph as its user declared it: sources, filters, maps, transactions, windows, joins, tables and sinks, and
//! what goes from one to the other. The parts that windows, joins, ticks and wakes are made of are one node each.

use crate::{Operator, OperatorKind, Origin, Program, StreamId, TransactionId, TransactionPart};
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

    /// Adds what a transaction takes and touches, to its own node or to that of the operator that it is a part of.
    fn transaction(&mut self, program: &Program, id: TransactionId) {
        let transaction = &program.transactions[id];
        let owner = transaction.owner.map(|owner| (owner.part, &program.operators[owner.operator]));
        let (to, inputs) = match owner {
            None => (self.node(NodeKind::Transaction, &transaction.name), &transaction.inputs[..]),
            // The function of a window or join takes what its own parts give, and these what is due of it.
            Some((TransactionPart::Function, operator)) => (self.node(kind_of(operator), &operator.name), &[][..]),
            Some((TransactionPart::Add | TransactionPart::Pass, operator)) => {
                (self.node(kind_of(operator), &operator.name), &operator.inputs[..])
            }
            Some(_) => return,
        };
        if let Some((TransactionPart::Add, Operator { kind: OperatorKind::Window { rows: Some(of), .. }, .. })) = owner
        {
            let table = self.node(NodeKind::Table, &program.tables[*of].name);
            self.touches(to, table, false);
        }
        for (number, &input) in inputs.iter().enumerate() {
            let wakes = matches!(&program.streams[input].origin, Origin::Due(due) if due.is_wakes());
            let carried = if wakes { Carried::Wakes } else { Carried::Input };
            self.from(program, input, to, carried(input, id, number));
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

/// Returns the streams that a user knows: all but those that operators are made of.
pub fn shown_streams(program: &Program) -> impl Iterator<Item = StreamId> {
    program.streams.keys().filter(|&id| program.is_shown(id))
}

/// Returns the kind of the node of an operator whose function or input is a transaction.
fn kind_of(operator: &Operator) -> NodeKind {
    match operator.kind {
        OperatorKind::Window { .. } | OperatorKind::Top { .. } => NodeKind::Window,
        OperatorKind::Join { .. } => NodeKind::Join,
        OperatorKind::First { .. } => NodeKind::Transaction,
        OperatorKind::Batch(_) => NodeKind::Batch,
        OperatorKind::Ticks { .. } => NodeKind::Ticks,
        OperatorKind::Wakes(_) | OperatorKind::Expiry(_) | OperatorKind::Changes(_) => NodeKind::Table,
    }
}

/// Returns the node that gives the events of a stream that users know.
fn producer(program: &Program, id: StreamId) -> (NodeKind, &str) {
    let stream = &program.streams[id];
    if let Some(owner) = stream.owner {
        let operator = &program.operators[owner.operator];
        return (kind_of(operator), &operator.name);
    }
    match &stream.origin {
        Origin::Source { .. } => (NodeKind::Source, &stream.name),
        Origin::Filter { .. } => (NodeKind::Filter, &stream.name),
        Origin::Map { input, .. } if program.late_of(id).is_some() => producer(program, *input),
        Origin::Map { .. } => (NodeKind::Map, &stream.name),
        Origin::Batch(_) | Origin::Due(_) => unreachable!("they are of an operator"),
        Origin::Committed(t) | Origin::Aborted(t) | Origin::Emitted(t, _) => {
            let transaction = &program.transactions[*t];
            match transaction.owner.map(|owner| &program.operators[owner.operator]) {
                // The function of a window or join emits by itself.
                Some(operator) => (kind_of(operator), &operator.name),
                None => (NodeKind::Transaction, &transaction.name),
            }
        }
        Origin::Late(of) | Origin::LateRoot(of) | Origin::Bad(of) | Origin::Failed(of) => producer(program, *of),
    }
}
