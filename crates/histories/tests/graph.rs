//! The flow graphs of random programs: all that was declared is there, and no part that it is made of.

use std::collections::BTreeSet;
use tidemill_histories::{PlanSize, random_call_plan, random_plan};
use tidemill_plan::{Carried, FlowGraph, NodeKind, Origin, Program, StreamId, analyze, shown_streams};

#[test]
fn graphs_have_what_was_declared_and_no_part_of_it() {
    let mut kinds = BTreeSet::new();
    for seed in 0..600 {
        let size = [PlanSize::Small, PlanSize::Medium, PlanSize::Large][seed as usize % 3];
        let plan = if seed % 5 == 0 { random_call_plan(seed, size) } else { random_plan(seed, size) };
        let program = analyze(&plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        let graph = FlowGraph::of(&program);
        kinds.extend(graph.nodes.iter().map(|node| format!("{:?}", node.kind)));
        check(&program, &graph, seed);
    }
    let all = ["Batch", "Filter", "Join", "Map", "Sink", "Source", "Table", "Ticks", "Transaction", "Window"];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

fn check(program: &Program, graph: &FlowGraph, seed: u64) {
    let names = |kinds: &[NodeKind]| -> Vec<&str> {
        let mut names: Vec<&str> =
            graph.nodes.iter().filter(|node| kinds.contains(&node.kind)).map(|node| &*node.name).collect();
        names.sort_unstable();
        names
    };
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let tables = program.tables.iter().filter(|table| !table.is_hidden).map(|table| &*table.name).collect();
    assert_eq!(names(&[NodeKind::Table]), sorted(tables), "seed {seed}");
    let transactions = program.transactions.iter().filter(|of| !of.name.contains('.')).map(|of| &*of.name).collect();
    let kinds = [NodeKind::Transaction, NodeKind::Window, NodeKind::Join];
    assert_eq!(names(&kinds), sorted(transactions), "seed {seed}");
    let sinks = program.sinks.iter().map(|sink| &*sink.name).collect();
    assert_eq!(names(&[NodeKind::Sink]), sorted(sinks), "seed {seed}");
    let derived = program.streams.iter().filter(|stream| {
        matches!(stream.origin, Origin::Batch(_) | Origin::Filter { .. } | Origin::Map { .. })
            && !stream.name.contains('.')
    });
    let operators = [NodeKind::Batch, NodeKind::Filter, NodeKind::Map];
    assert_eq!(names(&operators), sorted(derived.map(|stream| &*stream.name).collect()), "seed {seed}");
    let shown: BTreeSet<StreamId> = shown_streams(program).collect();
    for (place, edge) in graph.edges.iter().enumerate() {
        assert!(!graph.edges[..place].contains(edge), "seed {seed}: twice {edge:?}");
        let is = |node: usize, kinds: &[NodeKind]| kinds.contains(&graph.nodes[node].kind);
        let runs = [NodeKind::Transaction, NodeKind::Window, NodeKind::Join];
        match edge.carried {
            Carried::Events(stream) => {
                assert!(shown.contains(&stream) && is(edge.to, &operators), "seed {seed}");
            }
            Carried::Output(stream, _) => assert!(shown.contains(&stream) && is(edge.to, &[NodeKind::Sink])),
            Carried::Wakes(stream, ..) => {
                assert!(shown.contains(&stream) && is(edge.from, &[NodeKind::Table]) && is(edge.to, &runs));
            }
            Carried::Input(stream, transaction, input) => {
                assert!(shown.contains(&stream), "seed {seed}: {}", program.streams[stream].name);
                assert!(is(edge.to, &runs), "seed {seed}");
                assert!(input < program.transactions[transaction].inputs.len(), "seed {seed}");
            }
            Carried::Reads | Carried::Writes => assert!(is(edge.to, &[NodeKind::Table]) && is(edge.from, &runs)),
        }
    }
    // Each of them takes something.
    for (place, node) in graph.nodes.iter().enumerate() {
        if !matches!(node.kind, NodeKind::Source | NodeKind::Ticks | NodeKind::Table) {
            assert!(graph.edges.iter().any(|edge| edge.to == place), "seed {seed}: nothing reaches {node:?}");
        }
    }
}
