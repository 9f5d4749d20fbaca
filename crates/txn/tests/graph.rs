//! The fast graph against the slow one, on random epochs, cut and partitioned in every way.

use std::slice;
use tidemill_txn::reference::{self, ReferenceGraph};
use tidemill_txn::sample::{self, Random, Zipf};
use tidemill_txn::{
    AccessBuffer, ChainSummary, Flow, Graph, Linker, Partitioning, Precedence, RowId, Scratch, Slot, SortedAccesses,
    Strata, Use, UseBuffer, Verdicts, Versions,
};

fn epoch(transactions: &[&[u64]]) -> AccessBuffer {
    let mut epoch = AccessBuffer::new();
    for rows in transactions {
        epoch.push(rows.iter().map(|&row| RowId(row)));
    }
    epoch
}

fn build(epoch: &AccessBuffer) -> (Graph, ChainSummary) {
    let mut graph = Graph::new();
    let summary = graph.build(epoch.accesses(), &mut Scratch::default());
    (graph, summary)
}

#[test]
fn streaming_ledger_of_three() {
    // MorphStream Figure 2: a deposit to A; a transfer from A to B; a transfer from B to A.
    let (graph, summary) = build(&epoch(&[&[10], &[10, 20], &[20, 10]]));
    let pending: Vec<u32> = (0..3).map(|transaction| graph.pending(transaction)).collect();
    assert_eq!(pending, [0, 1, 2]);
    assert_eq!(graph.successors(0).collect::<Vec<_>>(), [1]);
    assert_eq!(graph.successors(1).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(graph.successors(2).count(), 0);
    assert_eq!(graph.slot(0), Slot::Operation { next: Some(1), next_transaction: Some(1), has_predecessor: false });
    assert_eq!(graph.slot(4), Slot::Operation { next: None, next_transaction: None, has_predecessor: true });
    assert_eq!((summary.chains(), summary.temporal_edges(), summary.longest), (2, 3, 3));
}

#[test]
fn accesses_that_meet_are_one_operation() {
    let (graph, summary) = build(&epoch(&[&[1, 1, 1], &[], &[2, 1, 2]]));
    assert_eq!(graph.operations(0).collect::<Vec<_>>(), [0]);
    assert_eq!(graph.operations(2).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(graph.slot(1), Slot::Alias);
    assert_eq!(graph.slot(5), Slot::Alias);
    assert_eq!((graph.pending(2), summary.operations), (1, 3));
}

/// An operation is a write if one of several accesses to its row writes, whichever comes first.
#[test]
fn an_operation_writes_if_one_of_its_accesses_does() {
    for writes in [[true, false], [false, true], [true, true], [false, false]] {
        let epoch = epoch(&[&[1, 1], &[1]]);
        let mut uses = UseBuffer::default();
        uses.parts.extend([0, 0]);
        uses.uses.extend([writes[0], writes[1], false].map(|writes| Use::new(0, writes)));
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        graph.build_and_follow(epoch.accesses(), &uses, Verdicts::After, &mut Scratch::default(), &mut flow);
        let is_written = writes.contains(&true);
        assert_eq!((flow.operation(1), flow.use_of(0).writes()), (0, is_written), "{writes:?}");
        assert_eq!(flow.source(2), is_written.then_some(0), "{writes:?}");
        let pending = Versions { graph: &graph, flow: &flow }.pending(1);
        assert_eq!(pending, u32::from(is_written), "{writes:?}");
    }
}

/// Random epochs, some of whose accesses write and some of which meet in a row, give the last write of each row.
#[test]
fn the_last_write_of_each_row_is_found() {
    for seed in 0..200u64 {
        let draw = |n: u64| (seed * 0x1_0001 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let rows: Vec<Vec<u64>> =
            (0..40).map(|t| (0..draw(t) % 4).map(|i| draw(1_000 + t * 4 + i) % 12).collect()).collect();
        let rows: Vec<&[u64]> = rows.iter().map(Vec::as_slice).collect();
        let epoch = epoch(&rows);
        let all: Vec<u64> = rows.concat();
        let writes: Vec<bool> = (0..all.len() as u64).map(|slot| draw(5_000 + slot) % 3 == 0).collect();
        let mut uses = UseBuffer::default();
        uses.parts.extend(rows.iter().map(|_| 0));
        uses.uses.extend(writes.iter().map(|&writes| Use::new(0, writes)));
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        graph.build_and_follow(epoch.accesses(), &uses, Verdicts::First, &mut Scratch::default(), &mut flow);
        let mut found: Vec<u32> = (0..all.len() as u32).filter_map(|slot| flow.last_write(&graph, slot)).collect();
        found.sort_unstable();
        // The operation of the last access that writes.
        let last = |row: u64| (0..all.len()).rev().find(|&slot| all[slot] == row && writes[slot]);
        let mut expected: Vec<u32> = (0..12).filter_map(last).map(|slot| flow.operation(slot as u32)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn bytes_are_those_in_use() {
    let epoch = epoch(&[&[1, 2], &[3], &[]]);
    assert_eq!(build(&epoch).0.bytes(), 3 * 8 + 4 * 4);
    let mut run = SortedAccesses::new();
    run.partition(Partitioning::for_accesses(3), epoch.accesses());
    assert_eq!(run.bytes(), 3 * 16 + 4 * 4 + 4 * (run.partitioning().partitions() + 1));
}

#[test]
fn nothing_at_all() {
    let (graph, summary) = build(&AccessBuffer::new());
    assert_eq!((graph.transactions(), summary), (0, ChainSummary::default()));
    let mut strata = Strata::new();
    strata.compute(&graph);
    assert_eq!(strata.depth(), 0);
    // And an epoch of no slices.
    let mut graph = Graph::new();
    graph.assemble(&mut []);
    assert_eq!((graph.transactions(), graph.partitions()), (0, 1));
}

/// Buffers live through all rounds, so what a large epoch leaves in them meets the small ones.
#[test]
fn agrees_with_the_reference() {
    let mut random = Random::new(7);
    let (mut graph, mut scratch, mut strata) = (Graph::new(), Scratch::default(), Strata::new());
    let mut operations = 0;
    for round in 0..600 {
        let epoch = sample::mixed(&mut random, if round % 10 == 0 { 500 } else { 40 });
        let accesses = epoch.accesses();
        let summary = graph.build(accesses, &mut scratch);
        assert_eq!(ReferenceGraph::of(&graph), ReferenceGraph::build(accesses), "round {round}");
        assert_eq!(summary, reference::chain_summary(accesses), "round {round}");
        let levels = reference::strata(accesses);
        strata.compute(&graph);
        let computed: Vec<u32> = (0..graph.transactions()).map(|transaction| strata.of(transaction)).collect();
        assert_eq!(computed, levels, "round {round}");
        check_strata(&strata, &levels);
        check_summary(&graph, summary, &strata);
        operations += summary.operations;
    }
    assert!(operations > 50_000, "{operations} operations in all epochs");
}

fn check_strata(strata: &Strata, levels: &[u32]) {
    let mut members = 0;
    for stratum in 0..strata.depth() {
        let transactions = strata.stratum(stratum);
        assert!(transactions.is_sorted() && !transactions.is_empty());
        assert!(transactions.iter().all(|&transaction| levels[transaction as usize] == stratum));
        members += transactions.len();
    }
    assert_eq!(members, levels.len());
    let by_stratum = (0..strata.depth()).flat_map(|stratum| strata.stratum(stratum));
    assert!(strata.members().iter().eq(by_stratum));
    for stratum in 0..strata.depth() + 2 {
        let range = strata.bounds(stratum);
        assert_eq!(&strata.members()[range.start as usize..range.end as usize], strata.stratum(stratum));
    }
}

fn check_summary(graph: &Graph, summary: ChainSummary, strata: &Strata) {
    let edges: u32 = (0..graph.transactions()).map(|transaction| graph.pending(transaction)).sum();
    assert_eq!(summary.temporal_edges(), edges, "edges by their beginnings and by their ends");
    let roots = (0..graph.transactions()).filter(|&transaction| graph.pending(transaction) == 0).count();
    assert_eq!(strata.stratum(0).len(), roots);
    assert!(strata.depth() >= summary.longest, "a chain is a path");
    let operations: usize = (0..graph.transactions()).map(|transaction| graph.operations(transaction).count()).sum();
    assert_eq!(summary.operations as usize, operations);
}

#[test]
fn cut_into_slices_anywhere_it_is_the_same_graph() {
    let mut random = Random::new(11);
    let (mut graph, mut linker) = (Graph::new(), Linker::new());
    let mut runs: Vec<SortedAccesses> = Vec::new();
    for round in 0..200 {
        let epoch = sample::mixed(&mut random, 200);
        let transactions = epoch.accesses().transactions();
        let mut cuts: Vec<usize> = (0..random.below(5))
            .map(|_| random.below(transactions as u64 + 1) as usize)
            .chain([0, transactions])
            .collect();
        cuts.sort_unstable();
        let partitioning = Partitioning::with_bits(random.below(7) as u32);
        runs.resize(cuts.len() - 1, SortedAccesses::new());
        for (run, cut) in runs.iter_mut().zip(cuts.windows(2)) {
            run.partition(partitioning, epoch.slice(cut[0]..cut[1]).accesses());
        }
        graph.assemble(&mut runs);
        let mut summary = ChainSummary::default();
        // From the last partition to the first: the order does not matter.
        for partition in (0..graph.partitions()).rev() {
            summary.add(&graph.link(partition, &runs, &mut linker));
        }
        assert_eq!(ReferenceGraph::of(&graph), ReferenceGraph::build(epoch.accesses()), "round {round}, cuts {cuts:?}");
        assert_eq!(summary, reference::chain_summary(epoch.accesses()), "round {round}");
    }
}

#[test]
fn one_hot_row_is_one_chain() {
    let epoch = epoch(&vec![&[5_u64][..]; 10_000]);
    let (graph, summary) = build(&epoch);
    assert_eq!((summary.chains(), summary.longest, summary.skew()), (1, 10_000, 1.0));
    assert_eq!(summary.at_least[13], 1);
    assert_eq!(summary.at_least[14], 0);
    let mut strata = Strata::new();
    strata.compute(&graph);
    assert_eq!(strata.depth(), 10_000);
}

#[test]
fn a_ledger_epoch_stays_within_32_bytes_per_operation() {
    let epoch = sample::ledger(&mut Random::new(3), 20_000, &Zipf::new(100_000, 0.2));
    let mut run = SortedAccesses::new();
    run.partition(Partitioning::for_accesses(epoch.accesses().rows().len()), epoch.accesses());
    let mut graph = Graph::new();
    graph.assemble(slice::from_mut(&mut run));
    let bytes = (run.bytes() + graph.bytes()) as f64 / epoch.accesses().rows().len() as f64;
    assert!(bytes <= 32.0, "{bytes} bytes per operation");
}
