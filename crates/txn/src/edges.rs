//! The dependencies of an epoch by kind, as MorphStream counts the edges of its graph (2023, §2.2, §4.4, Table 3).
//!
//! **What.** A [`Parameter`] says that a write needs what another slot of its transaction reads. A slot that is only read,
//! and only for that, is a *proxy operation* (§5.2): it leads to parametric dependencies and has none of its own.
//!
//! **Cost.** A pass over the slots, and one over the parameters, which are sorted.

use crate::flow::Flow;
use crate::graph::{Graph, Slot};

/// The value of a write, or whether it happens, is made of what another slot of the same transaction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    /// The slot that is read.
    pub read: u32,
    /// The slot that is written.
    pub written: u32,
}

/// Dependencies by kind. All counts are of the whole epoch that was surveyed, not per transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Edges from each operation of a row to the next one, proxy operations left out (Definition 4).
    pub temporal: u32,
    /// Edges from the last write before a parameter to the write that needs it (Definition 5). A parameter that no
    /// earlier transaction of the epoch writes gives no edge.
    pub parametric: u32,
    /// The edges of a path through each transaction's operations, proxy operations left out (Definition 6).
    pub logical: u32,
    /// A flag: whether parametric edges between chains close a circle (§4.2.2). What stays within a chain closes none.
    pub is_cyclic: bool,
}

impl Edges {
    /// Returns the sum of all three kinds.
    pub fn sum(&self) -> u64 {
        u64::from(self.temporal) + u64::from(self.parametric) + u64::from(self.logical)
    }

    /// Counts the edges of a graph with its flow.
    pub fn of(graph: &Graph, flow: &Flow, parameters: &[Parameter]) -> Edges {
        let mut chains = Vec::new();
        graph.chains(&mut chains);
        // Roles that meet in a row are one operation.
        let operations = parameters.iter().map(|p| (flow.operation(p.read), flow.operation(p.written)));
        let mut pairs: Vec<(u32, u32)> = operations.filter(|(read, written)| read != written).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut is_proxy = vec![false; chains.len()];
        for &(read, written) in &pairs {
            assert!(flow.use_of(written).writes(), "slot {written} has a parameter, and is not written");
            is_proxy[read as usize] = !flow.use_of(read).writes();
        }
        let mut edges = Edges { logical: logical(graph, &is_proxy), ..Edges::default() };
        edges.temporal = temporal(graph, &chains, &is_proxy);
        let depends = |&(read, _): &(u32, u32)| flow.source(read).is_some();
        let between: Vec<(u32, u32)> = pairs
            .into_iter()
            .filter(depends)
            .map(|(read, written)| (chains[read as usize], chains[written as usize]))
            .collect();
        edges.parametric = between.len() as u32;
        debug_assert!(between.iter().all(|(from, to)| from != to), "two operations of a transaction share a chain");
        edges.is_cyclic = leads_back(between, chains.iter().max().map_or(0, |last| *last as usize + 1));
        edges
    }
}

fn temporal(graph: &Graph, chains: &[u32], is_proxy: &[bool]) -> u32 {
    let mut has_one = vec![false; chains.len()];
    let mut count = 0;
    for slot in (0..chains.len()).filter(|&slot| !is_proxy[slot]) {
        if let Slot::Operation { .. } = graph.slot(slot as u32) {
            count += u32::from(std::mem::replace(&mut has_one[chains[slot] as usize], true));
        }
    }
    count
}

fn logical(graph: &Graph, is_proxy: &[bool]) -> u32 {
    let operations = |t: u32| graph.operations(t).filter(|&slot| !is_proxy[slot as usize]).count() as u32;
    (0..graph.transactions()).map(|t| operations(t).saturating_sub(1)).sum()
}

/// Returns whether directed edges between this many nodes close a circle. Repeatedly removes nodes without incoming
/// edges; the nodes of circles remain (Kahn, "Topological sorting of large networks", CACM 1962).
fn leads_back(mut edges: Vec<(u32, u32)>, nodes: usize) -> bool {
    edges.sort_unstable();
    edges.dedup();
    let mut incoming = vec![0u32; nodes];
    edges.iter().for_each(|&(_, to)| incoming[to as usize] += 1);
    let mut free: Vec<u32> = (0..nodes as u32).filter(|&node| incoming[node as usize] == 0).collect();
    let mut taken = 0;
    while let Some(node) = free.pop() {
        taken += 1;
        let first = edges.partition_point(|&(from, _)| from < node);
        for &(_, to) in edges[first..].iter().take_while(|&&(from, _)| from == node) {
            incoming[to as usize] -= 1;
            if incoming[to as usize] == 0 {
                free.push(to);
            }
        }
    }
    taken < nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessBuffer, RowId};
    use crate::flow::{Use, UseBuffer, Verdicts};
    use crate::graph::Scratch;
    use crate::sample::Random;

    /// The rows of a transaction and whether each is written; and its parameters, by place.
    type Transaction = (Vec<(u64, bool)>, Vec<(u32, u32)>);

    fn edges(transactions: &[Transaction]) -> Edges {
        let (mut accesses, mut uses, mut parameters) = (AccessBuffer::new(), UseBuffer::default(), Vec::new());
        for (rows, needed) in transactions {
            let first = uses.uses.len() as u32;
            accesses.push(rows.iter().map(|&(row, _)| RowId(row)));
            uses.parts.push(0);
            uses.uses.extend(rows.iter().map(|&(_, writes)| Use::new(0, writes)));
            parameters.extend(needed.iter().map(|&(r, w)| Parameter { read: first + r, written: first + w }));
        }
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        graph.build_and_follow(accesses.accesses(), &uses, Verdicts::After, &mut Scratch::default(), &mut flow);
        Edges::of(&graph, &flow, &parameters)
    }

    fn deposit(row: u64) -> Transaction {
        (vec![(row, true)], vec![])
    }

    /// Returns a transaction in which the value of one row decides about the write of the other.
    fn transfer(from: u64, to: u64) -> Transaction {
        (vec![(from, true), (to, true)], vec![(0, 1)])
    }

    /// Figure 2: a deposit to A, a transfer from A to B, one from B to A. The second depends on the first by A, the third
    /// on the second by B, and the chains of A and B on each other (Figure 5).
    #[test]
    fn the_example_of_the_paper_has_its_dependencies() {
        let found = edges(&[deposit(1), transfer(1, 2), transfer(2, 1)]);
        assert_eq!(found, Edges { temporal: 3, parametric: 2, logical: 2, is_cyclic: true });
        let found = edges(&[deposit(1), transfer(1, 2)]);
        assert_eq!(found, Edges { temporal: 1, parametric: 1, logical: 1, is_cyclic: false });
    }

    /// Streaming Ledger's: an account and an asset decide about all four rows. Nothing was written before.
    #[test]
    fn a_plain_transfer_is_no_cycle() {
        let needed = [0, 1].into_iter().flat_map(|read| (0..4).map(move |written| (read, written)));
        let transfer: Transaction = (vec![(1, true), (2, true), (3, true), (4, true)], needed.collect());
        assert_eq!(edges(std::slice::from_ref(&transfer)), Edges { logical: 3, ..Edges::default() });
        // Again: each of two parameters was written, and three other writes need it; both need each other.
        let twice = edges(&[transfer.clone(), transfer.clone()]);
        assert_eq!(twice, Edges { temporal: 4, parametric: 6, logical: 6, is_cyclic: true });
        // Only what others read was written: the account by a deposit.
        assert_eq!(edges(&[deposit(1), transfer]).parametric, 3);
    }

    #[test]
    fn a_proxy_operation_has_no_dependencies_of_its_own() {
        let checked: Transaction = (vec![(1, false), (2, true)], vec![(0, 1)]);
        assert_eq!(edges(&[checked.clone(), checked.clone()]), Edges { temporal: 1, ..Edges::default() });
        let after = edges(&[deposit(1), checked.clone(), checked]);
        assert_eq!(after, Edges { temporal: 1, parametric: 2, ..Edges::default() });
        // A read that no write needs is an operation.
        let reads: Transaction = (vec![(1, false), (2, true)], vec![]);
        assert_eq!(edges(&[reads.clone(), reads]), Edges { temporal: 2, logical: 2, ..Edges::default() });
    }

    /// Two roles in one row are one operation, and a chain does not wait for itself.
    #[test]
    fn what_stays_within_a_chain_does_not_count() {
        let within: Transaction = (vec![(1, true), (1, true)], vec![(0, 1), (1, 0)]);
        assert_eq!(edges(&[within.clone(), within]), Edges { temporal: 1, ..Edges::default() });
    }

    /// Against Definitions 4 to 6, and against circles found by walking from each row.
    #[test]
    fn random_epochs_have_the_dependencies_of_the_definitions() {
        let mut random = Random::new(5);
        let (mut cycles, mut parametric) = (0, 0);
        for _ in 0..400 {
            let rows = 2 + random.below(30);
            let mut transactions: Vec<Transaction> = Vec::new();
            for _ in 0..random.below(25) {
                let mut own: Vec<(u64, bool)> = Vec::new();
                for _ in 0..random.below(5) {
                    let row = random.below(rows);
                    if own.iter().all(|(other, _)| *other != row) {
                        own.push((row, random.below(2) == 0));
                    }
                }
                let count = own.len() as u32;
                let pairs = (0..count).flat_map(|read| (0..count).map(move |written| (read, written)));
                let is_one = |&(_, written): &(u32, u32)| own[written as usize].1;
                let pairs = pairs.filter(is_one).filter(|_| random.below(2) == 0).collect();
                transactions.push((own, pairs));
            }
            let found = edges(&transactions);
            assert_eq!(found, by_definition(&transactions), "{transactions:?}");
            cycles += u32::from(found.is_cyclic);
            parametric += found.parametric;
        }
        assert!((40..360).contains(&cycles) && parametric > 1_000, "{cycles} with cycles, {parametric} edges");
    }

    #[test]
    fn the_sum_is_of_all_three_kinds() {
        assert_eq!(Edges { temporal: 1, parametric: 20, logical: 300, is_cyclic: true }.sum(), 321);
    }

    fn by_definition(transactions: &[Transaction]) -> Edges {
        let is_proxy = |(rows, pairs): &Transaction, at: usize| {
            !rows[at].1 && pairs.iter().any(|&(read, written)| read as usize == at && read != written)
        };
        let mut edges = Edges::default();
        let mut waits = std::collections::BTreeSet::new();
        for (t, transaction) in transactions.iter().enumerate() {
            let (rows, pairs) = transaction;
            let own: Vec<u64> = (0..rows.len()).filter(|&at| !is_proxy(transaction, at)).map(|at| rows[at].0).collect();
            edges.logical += (own.len() as u32).saturating_sub(1);
            let earlier = &transactions[..t];
            let accessed =
                |row: u64| earlier.iter().any(|e| (0..e.0.len()).any(|at| e.0[at].0 == row && !is_proxy(e, at)));
            edges.temporal += own.into_iter().filter(|&row| accessed(row)).count() as u32;
            let is_written = |row: u64| earlier.iter().any(|(rows, _)| rows.contains(&(row, true)));
            for &(read, written) in pairs {
                let (from, to) = (rows[read as usize].0, rows[written as usize].0);
                if from != to && is_written(from) {
                    edges.parametric += 1;
                    waits.insert((from, to));
                }
            }
        }
        let reach = |start: u64| {
            let mut seen = std::collections::BTreeSet::new();
            let mut next = vec![start];
            while let Some(row) = next.pop() {
                let told = waits.iter().filter(|(from, _)| *from == row).map(|(_, to)| *to);
                next.extend(told.filter(|to| seen.insert(*to)).collect::<Vec<_>>());
            }
            seen
        };
        edges.is_cyclic = waits.iter().any(|(from, _)| reach(*from).contains(from));
        edges
    }
}
