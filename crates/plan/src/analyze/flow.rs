//! The order in which streams and transactions can be typed: each after what it takes its events
//! from. Also finds cycles, which no plan may have.

use super::fault::Fault;
use super::{changes, expire, parts};
use crate::{OriginDef, Plan, PlanError, StreamRef, TransactionDef};

/// A thing of the plan that has events, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowNode {
    /// Into `plan.streams`.
    Stream(usize),
    /// Into `plan.transactions`.
    Transaction(usize),
}

/// Returns the name of the stream or transaction that a reference means.
pub(super) fn base(plan: &Plan, reference: &StreamRef) -> Option<FlowNode> {
    use StreamRef::*;
    match reference {
        Named(name) | Late(name) | Bad(name) | Failed(name) => {
            plan.streams.iter().position(|s| s.name == *name).map(FlowNode::Stream)
        }
        Woken(_) => None,
        Changes(table) => {
            let name = changes::name(table);
            plan.transactions.iter().position(|t| t.name == name).map(FlowNode::Transaction)
        }
        Expired(table) => {
            let name = expire::name(table);
            plan.transactions.iter().position(|t| t.name == name).map(FlowNode::Transaction)
        }
        Committed(name) | Aborted(name) | Emitted { transaction: name, .. } => {
            let is_it = |t: &TransactionDef| [&t.name, &parts::early(&t.name), &parts::add(&t.name)].contains(&name);
            plan.transactions.iter().position(is_it).map(FlowNode::Transaction)
        }
    }
}

/// Returns everything that has events, inputs first, otherwise in declaration order. Nodes on or behind a cycle are
/// left out; each cycle is one error.
pub(super) fn order(plan: &Plan, errors: &mut Vec<PlanError>) -> Vec<FlowNode> {
    let mut walk = Walk { plan, path: Vec::new(), done: Vec::new(), refused: Vec::new(), errors };
    let streams = (0..plan.streams.len()).map(FlowNode::Stream);
    let transactions = (0..plan.transactions.len()).map(FlowNode::Transaction);
    for node in streams.chain(transactions) {
        walk.visit(node);
    }
    walk.done
}

struct Walk<'a> {
    plan: &'a Plan,
    /// The nodes being visited, each feeding from the next.
    path: Vec<FlowNode>,
    done: Vec<FlowNode>,
    refused: Vec<FlowNode>,
    errors: &'a mut Vec<PlanError>,
}

impl Walk<'_> {
    /// Returns whether the node could be put in order.
    fn visit(&mut self, node: FlowNode) -> bool {
        if self.done.contains(&node) || self.refused.contains(&node) {
            return self.done.contains(&node);
        }
        if let Some(start) = self.path.iter().position(|n| *n == node) {
            self.cycle(start);
            return false;
        }
        self.path.push(node);
        let inputs = self.inputs(node);
        let mut sound = true;
        for input in inputs {
            sound &= self.visit(input);
        }
        self.path.pop();
        if sound {
            self.done.push(node)
        } else {
            self.refused.push(node)
        }
        sound
    }

    /// Returns the nodes from which the node takes its events, as far as they exist. A stream that names one declared
    /// later is refused when it is typed, so this is no edge.
    fn inputs(&self, node: FlowNode) -> Vec<FlowNode> {
        let plan = self.plan;
        let earlier = |input: &FlowNode| match (node, *input) {
            (FlowNode::Stream(own), FlowNode::Stream(other)) => other < own,
            _ => true,
        };
        let references: Vec<&StreamRef> = match node {
            FlowNode::Stream(index) => match &plan.streams[index].origin {
                OriginDef::Source { .. } | OriginDef::Every { .. } => vec![],
                OriginDef::Filter { input, .. } | OriginDef::Map { input, .. } | OriginDef::Batch { input, .. } => {
                    vec![input]
                }
            },
            FlowNode::Transaction(index) => plan.transactions[index].inputs.iter().collect(),
        };
        references.into_iter().filter_map(|r| base(plan, r)).filter(earlier).collect()
    }

    fn cycle(&mut self, start: usize) {
        let name = |node: &FlowNode| match *node {
            FlowNode::Stream(i) => self.plan.streams[i].name.as_str(),
            FlowNode::Transaction(i) => self.plan.transactions[i].name.as_str(),
        };
        // The path goes against the flow.
        let mut names: Vec<&str> = self.path[start..].iter().rev().map(name).collect();
        names.push(names[0]);
        let transaction = self.path[start..].iter().find(|n| matches!(n, FlowNode::Transaction(_)));
        let (kind, of) = match transaction {
            Some(node) => ("transaction", name(node)),
            None => ("stream", name(&self.path[start])),
        };
        let fault = Fault::new(format!("it feeds itself: {}", names.join(" -> ")))
            .hint("an event must come to an end; do the repetition inside one transaction");
        let error = fault.of(kind, of);
        self.errors.push(error);
    }
}
