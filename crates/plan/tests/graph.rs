//! The flow graph of what was declared.

use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, cell, event, literal, named};
use tidemill_plan::{Carried, FlowGraph, NodeKind, Origin, analyze, shown_streams};

#[test]
fn nodes_and_edges_are_those_that_were_declared() {
    let plan = PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Str).column("balance", Type::Int))
        .table("limits", |t| t.key("id", Type::Str).column("most", Type::Int))
        .source("transfers", |s| s.field("id", Type::Str).field("amount", Type::Int))
        .filter("positive", named("transfers"), event("amount").gt(0))
        .transaction("transfer", [named("positive"), named("transfers")], |t| {
            t.row("a", "accounts", [event("id")])
                .read("b", "accounts", [literal("bank")])
                .read("l", "limits", [event("id")])
                .body(|b| {
                    b.require(cell("a", "balance").lt(cell("l", "most")), "too much");
                    b.require(cell("b", "balance").gt(0), "nothing there");
                    b.set("a", "balance", cell("a", "balance") + event("amount"));
                })
        })
        .build();
    let program = analyze(&plan).expect("a good plan");
    let graph = FlowGraph::of(&program);
    let nodes: Vec<_> = graph.nodes.iter().map(|node| (node.kind, node.name.as_str())).collect();
    let expected = [
        (NodeKind::Table, "accounts"),
        (NodeKind::Table, "limits"),
        (NodeKind::Source, "transfers"),
        (NodeKind::Filter, "positive"),
        (NodeKind::Transaction, "transfer"),
    ];
    assert_eq!(nodes, expected);
    let edges: Vec<_> = graph.edges.iter().map(|edge| (nodes[edge.from].1, nodes[edge.to].1, edge.carried)).collect();
    let stream = |name: &str| program.streams.iter_enumerated().find(|(_, s)| s.name == name).expect("it is there").0;
    let transfer = program.transactions.keys().next().expect("there is one");
    let expected = [
        ("transfers", "positive", Carried::Events(stream("transfers"))),
        ("positive", "transfer", Carried::Input(stream("positive"), transfer, 0)),
        ("transfers", "transfer", Carried::Input(stream("transfers"), transfer, 1)),
        ("transfer", "accounts", Carried::Writes),
        ("transfer", "limits", Carried::Reads),
    ];
    assert_eq!(edges, expected);
    let shown: Vec<_> = shown_streams(&program).collect();
    assert_eq!(shown.len(), program.streams.len(), "nothing of it is hidden");
    assert!(matches!(program.streams[shown[0]].origin, Origin::Source { .. }));
}
