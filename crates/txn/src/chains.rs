//! Chains as units: the coarse-grained scheduling units of MorphStream (§4.2.2, c-schedule).
//!
//! **What.** All operations on a row are one unit: of the units of a [`crate::Flow`], those that write the row. A unit
//! that writes several rows is of the first one's chain, one that only reads of the first row that it reads, and a
//! verdict operation, which concerns all rows of its transaction, is by itself. Where chains wait for each other in a
//! cycle, they are merged into one unit.
//!
//! **Invariants.** (1) A chain waits for smaller numbers only. (2) Inside, units are in position order, so each comes
//! after those of its own chain that it waits for. So a chain can run from its beginning to its end once the chains
//! that it waits for have run.
//!
//! **How.** Chains and the edges between them are a graph that may have cycles; its strongly connected components are
//! the units (Tarjan 1972), and are found in a topological order.
//!
//! **Cost.** One worker passes once over the edges between units, and over those between chains: 8 bytes per unit, 16 per
//! edge between two chains.
//!
//! **Given up.** Between operations of one chain nothing runs in parallel, not even reads; and those that wait for the
//! first of its operations wait for the last.

use crate::buckets::Buckets;
use crate::flow::Versions;
use crate::precedence::Precedence;

const NONE: u32 = u32::MAX;

/// The units of an epoch by chain. Reused from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// The units of each chain, by chain.
    units: Buckets,
    /// The chains that wait for each chain, each once, by chain.
    told: Buckets,
    /// The number of chains that each chain waits for, by chain.
    pending: Vec<u32>,
    building: Building,
}

/// Buffers for finding chains. Chains that are not merged yet are *rows*.
#[derive(Clone, Debug, Default)]
struct Building {
    /// Slot → the number of its chain in the graph.
    chain_of_slot: Vec<u32>,
    /// The row of each chain, by that number, or [`NONE`] if the chain has no unit.
    row_of_chain: Vec<u32>,
    /// Unit → its row, and in the end its chain.
    of_unit: Vec<u32>,
    /// Edges between two rows, and in the end between two chains.
    edges: Vec<(u32, u32)>,
    by_row: Buckets,
    components: Components,
}

impl Chains {
    /// Finds the chains of an epoch that is linked.
    pub fn compute(&mut self, versions: &Versions<'_>) {
        let Chains { units, told, pending, building } = self;
        let rows = building.find_rows(versions);
        building.find_edges(versions);
        let Building { of_unit, edges, by_row, components, .. } = building;
        by_row.fill(rows, || edges.iter().copied());
        let count = components.find(by_row);
        of_unit.iter_mut().for_each(|of| *of = components.number(*of));
        units.fill(count, || (0..).zip(of_unit.iter()).map(|(unit, &chain)| (chain, unit)));
        edges.iter_mut().for_each(|(from, to)| (*from, *to) = (components.number(*from), components.number(*to)));
        edges.retain(|(from, to)| from != to);
        edges.sort_unstable();
        edges.dedup();
        told.fill(count, || edges.iter().copied());
        pending.clear();
        pending.resize(count as usize, 0);
        edges.iter().for_each(|&(_, to)| pending[to as usize] += 1);
    }

    /// Returns the units of a chain, in position order.
    pub fn units_of(&self, chain: u32) -> &[u32] {
        self.units.of(chain)
    }
}

impl Precedence for Chains {
    fn units(&self) -> u32 {
        self.units.count()
    }

    fn pending(&self, unit: u32) -> u32 {
        self.pending[unit as usize]
    }

    fn tell(&self, unit: u32, told: impl FnMut(u32)) {
        self.told.of(unit).iter().copied().for_each(told);
    }
}

impl Building {
    /// Finds the row of each unit; rows are numbered by their first unit. Returns how many there are.
    fn find_rows(&mut self, Versions { graph, flow }: &Versions<'_>) -> u32 {
        let Building { chain_of_slot, row_of_chain, of_unit, .. } = self;
        graph.chains(chain_of_slot);
        row_of_chain.clear();
        row_of_chain.resize(chain_of_slot.len(), NONE);
        of_unit.clear();
        let mut rows = 0;
        for unit in 0..flow.units() {
            let used = || flow.operations(graph, unit);
            let first = match flow.is_verdict_unit(unit) {
                true => None,
                false => used().find(|&operation| flow.use_of(operation).writes()).or_else(|| used().next()),
            };
            let mut by_itself = NONE;
            let row = match first {
                Some(operation) => &mut row_of_chain[chain_of_slot[operation as usize] as usize],
                None => &mut by_itself,
            };
            if *row == NONE {
                *row = rows;
                rows += 1;
            }
            of_unit.push(*row);
        }
        rows
    }

    fn find_edges(&mut self, versions: &Versions<'_>) {
        let Building { of_unit, edges, .. } = self;
        edges.clear();
        for (unit, &from) in (0..).zip(of_unit.iter()) {
            versions.tell(unit, |told| {
                let edge = (from, of_unit[told as usize]);
                if edge.0 != edge.1 && edges.last() != Some(&edge) {
                    edges.push(edge);
                }
            });
        }
    }
}

/// The strongly connected components of a graph.
#[derive(Clone, Debug, Default)]
struct Components {
    /// The number of each node in the order of finding, by node; [`NONE`] before it is found.
    found: Vec<u32>,
    /// The earliest node that is known to be reached from each node, of those whose component is not complete, by node.
    reaches: Vec<u32>,
    /// The component of each node, in the order of completion, by node; [`NONE`] before.
    component: Vec<u32>,
    /// Nodes whose component is not complete, in the order of finding.
    open: Vec<u32>,
    /// The path to the node at hand, each node with the number of its edges that were followed.
    path: Vec<(u32, usize)>,
    count: u32,
}

impl Components {
    /// Finds the components, given by node those that its edges lead to. Returns how many there are.
    fn find(&mut self, edges: &Buckets) -> u32 {
        let nodes = edges.count();
        for by_node in [&mut self.found, &mut self.reaches, &mut self.component] {
            by_node.clear();
            by_node.resize(nodes as usize, NONE);
        }
        self.count = 0;
        let mut clock = 0;
        // Components are numbered from the last one completed, so the first nodes come last.
        for root in (0..nodes).rev() {
            if self.found[root as usize] == NONE {
                self.enter(root, &mut clock);
            }
            while let Some((node, followed)) = self.path.last_mut() {
                let (node, next) = (*node, edges.of(*node).get(*followed).copied());
                *followed += 1;
                match next {
                    None => self.leave(node),
                    Some(to) if self.found[to as usize] == NONE => self.enter(to, &mut clock),
                    Some(to) if self.component[to as usize] == NONE => self.reach(node, self.found[to as usize]),
                    Some(_) => {}
                }
            }
        }
        assert!(self.open.is_empty(), "every node is in one component");
        self.count
    }

    /// Returns the component of a node, such that edges lead to larger numbers.
    fn number(&self, node: u32) -> u32 {
        self.count - 1 - self.component[node as usize]
    }

    fn enter(&mut self, node: u32, clock: &mut u32) {
        (self.found[node as usize], self.reaches[node as usize]) = (*clock, *clock);
        *clock += 1;
        self.open.push(node);
        self.path.push((node, 0));
    }

    fn reach(&mut self, node: u32, found: u32) {
        let reaches = &mut self.reaches[node as usize];
        *reaches = found.min(*reaches);
    }

    /// Leaves the last node of the path, as all of its edges were followed.
    fn leave(&mut self, node: u32) {
        self.path.pop();
        let reaches = self.reaches[node as usize];
        if let Some(&(before, _)) = self.path.last() {
            self.reach(before, reaches);
        }
        if reaches == self.found[node as usize] {
            while let Some(member) = self.open.pop() {
                self.component[member as usize] = self.count;
                if member == node {
                    break;
                }
            }
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessBuffer, RowId};
    use crate::flow::{Flow, Use, UseBuffer, Verdicts};
    use crate::graph::{Graph, Scratch};
    use crate::sample::Random;
    use std::collections::BTreeSet;

    /// Row, part, whether it is written.
    type Access = (u64, u32, bool);

    /// Returns the chains of transactions of these numbers of parts, as units and edges.
    fn chains(transactions: &[(u8, Vec<Access>)], verdicts: Verdicts) -> (Chains, Graph, Flow) {
        let (mut epoch, mut uses) = (AccessBuffer::new(), UseBuffer::default());
        for (parts, accesses) in transactions {
            epoch.push(accesses.iter().map(|&(row, ..)| RowId(row)));
            uses.parts.push(*parts);
            let mask = |part: u32| if *parts > 0 { 1 << part } else { 0 };
            uses.uses.extend(accesses.iter().map(|&(_, part, writes)| Use::new(mask(part), writes)));
        }
        let (mut graph, mut flow, mut chains) = (Graph::new(), Flow::new(), Chains::default());
        graph.build_and_follow(epoch.accesses(), &uses, verdicts, &mut Scratch::default(), &mut flow);
        chains.compute(&Versions { graph: &graph, flow: &flow });
        (chains, graph, flow)
    }

    fn units(chains: &Chains) -> Vec<&[u32]> {
        (0..chains.units()).map(|chain| chains.units_of(chain)).collect()
    }

    fn told(chains: &Chains) -> Vec<(u32, u32)> {
        let mut edges = Vec::new();
        (0..chains.units()).for_each(|chain| chains.tell(chain, |told| edges.push((chain, told))));
        edges
    }

    #[test]
    fn a_chain_has_all_operations_on_its_row() {
        let deposits = [0, 1, 0, 1, 2].map(|row| (0, vec![(row, 0, true)]));
        let (chains, ..) = chains(&deposits, Verdicts::After);
        assert_eq!(units(&chains), [&[0, 2][..], &[1, 3], &[4]]);
        assert_eq!(told(&chains), []);
    }

    #[test]
    fn a_chain_waits_once_for_one_that_it_reads() {
        // The second row is written by what the first one has, twice.
        let reading = || (0, vec![(1, 0, true), (0, 0, false)]);
        let writing = || (0, vec![(0, 0, true)]);
        let (chains, ..) = chains(&[writing(), reading(), writing(), reading()], Verdicts::After);
        assert_eq!(units(&chains), [&[0, 2][..], &[1, 3]]);
        assert_eq!((told(&chains), chains.pending(1)), (vec![(0, 1)], 1));
    }

    #[test]
    fn chains_that_wait_for_each_other_are_one() {
        let of = |written: u64, read: u64| (0, vec![(written, 0, true), (read, 0, false)]);
        let (chains, ..) = chains(&[of(0, 1), of(1, 0), of(0, 1), of(2, 0), of(3, 4)], Verdicts::After);
        assert_eq!(units(&chains), [&[0, 1, 2][..], &[3], &[4]]);
        assert_eq!(told(&chains), [(0, 1)]);
    }

    /// The rows of a transaction wait for each other if the verdict comes first, and otherwise do not.
    #[test]
    fn a_verdict_ties_chains_together_where_it_comes_first() {
        let transfers = vec![(2, vec![(0, 0, true), (1, 1, true)]); 2];
        assert_eq!(units(&chains(&transfers, Verdicts::After).0), [&[0, 2][..], &[1, 3]]);
        let (beside, ..) = chains(&transfers, Verdicts::Beside);
        assert_eq!(units(&beside), [&[0, 3][..], &[1, 4], &[2], &[5]]);
        let (first, ..) = chains(&transfers, Verdicts::First);
        assert_eq!(units(&first), [&[0, 1, 2, 3, 4][..], &[5]]);
        assert_eq!(told(&first), [(0, 1)]);
    }

    /// Two rows are in one chain exactly if each waits for the other.
    #[test]
    fn random_chains_are_those_that_reach_each_other() {
        let mut random = Random::new(7);
        let (mut merged, mut apart) = (0, 0);
        for round in 0..400 {
            let rows = [3, 8, 40][round % 3];
            let verdicts = [Verdicts::After, Verdicts::Beside, Verdicts::First][round / 3 % 3];
            let transactions: Vec<(u8, Vec<Access>)> = (0..random.below(30))
                .map(|_| {
                    let parts = random.below(3) as u8;
                    let all: BTreeSet<u64> = (0..random.below(4)).map(|_| random.below(rows)).collect();
                    let access = |row| (row, random.below(u64::from(parts.max(1))) as u32, random.below(3) > 0);
                    (parts, all.into_iter().map(access).collect())
                })
                .collect();
            let (chains, graph, flow) = chains(&transactions, verdicts);
            let (versions, count) = (Versions { graph: &graph, flow: &flow }, flow.units());
            // Nodes: units. Those of one row reach each other, those that wait are reached.
            let row_of = |unit: u32| {
                let (transaction, part) = flow.unit(unit);
                let (parts, accesses) = &transactions[transaction as usize];
                let own = |access: &&Access| *parts == 0 || access.1 == part;
                let verdict = *parts > 0 && part == u32::from(*parts);
                let own: Vec<&Access> = accesses.iter().filter(own).filter(|_| !verdict).collect();
                own.iter().find(|access| access.2).or(own.first()).map(|access| access.0)
            };
            let mut reach = vec![vec![false; count as usize]; count as usize];
            for unit in 0..count {
                versions.tell(unit, |told| reach[unit as usize][told as usize] = true);
                let same = |other: u32| unit == other || row_of(unit).is_some() && row_of(unit) == row_of(other);
                (0..count).filter(|&other| same(other)).for_each(|o| reach[unit as usize][o as usize] = true);
            }
            for over in 0..count as usize {
                for from in 0..count as usize {
                    if reach[from][over] {
                        (0..count as usize).for_each(|to| reach[from][to] |= reach[over][to]);
                    }
                }
            }
            let mut chain_of = vec![NONE; count as usize];
            for (chain, units) in (0..).zip(units(&chains)) {
                assert!(units.is_sorted_by(|a, b| a < b), "in position order: {units:?}");
                units.iter().for_each(|&unit| {
                    assert_eq!(std::mem::replace(&mut chain_of[unit as usize], chain), NONE, "in one chain");
                });
            }
            let told: Vec<(u32, u32)> = told(&chains);
            for a in 0..count as usize {
                for b in 0..count as usize {
                    let (there, back) = (reach[a][b], reach[b][a]);
                    assert_eq!(chain_of[a] == chain_of[b], there && back, "round {round}: units {a} and {b}");
                    let is_merged = chain_of[a] == chain_of[b] && row_of(a as u32) != row_of(b as u32);
                    merged += u32::from(is_merged);
                    apart += u32::from(there && !back);
                }
                versions.tell(a as u32, |b| {
                    let edge = (chain_of[a], chain_of[b as usize]);
                    assert!(edge.0 == edge.1 || edge.0 < edge.1 && told.contains(&edge), "round {round}: {edge:?}");
                });
            }
            let pending: Vec<u32> = (0..chains.units()).map(|chain| chains.pending(chain)).collect();
            let expected = |chain: u32| told.iter().filter(|&&(_, to)| to == chain).count() as u32;
            assert_eq!(pending, (0..chains.units()).map(expected).collect::<Vec<_>>());
        }
        assert!(merged > 1_000 && apart > 1_000, "{merged} units of other rows merged, {apart} that only wait");
    }
}
