//! Properties of an epoch for a decision model, before the epoch runs (MorphStream §4.4, Table 3): computed from a
//! sample, the first transactions of the epoch, on the calling thread.
//!
//! **What.** Edges by kind, the degrees of rows, whether chains depend on each other in a cycle, and for each way to cut
//! transactions into units the longest path through the graph, weighted by the cost of the units.
//!
//! **Cost.** Linking once per way, and a pass over the edges for each: some 100 ns per operation of the sample.
//!
//! **Given up.** The longest path is a larger share of a sample than of the epoch, unless a few hot rows make the path.
//! Where none do, both shares are small.

use crate::access::AccessBuffer;
use crate::flow::{Flow, UseBuffer, Versions};
use crate::graph::{Graph, Scratch};
use crate::precedence::Precedence;
use crate::summary::ChainSummary;

/// The cost of a verdict operation, in parts of its transaction.
const VERDICT: f64 = 0.1;

/// How transactions are cut into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Whole; at each row one after the other.
    InPlace,
    /// Whole; reads of a row in parallel.
    Whole,
    /// In parts, before the verdict.
    Parts,
}

/// The units and paths that one way to cut transactions gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paths {
    /// Units.
    pub units: u32,
    /// The number of strata: units on the path that has most.
    pub strata: u32,
    /// The share of all work that is on the heaviest path.
    pub critical: f64,
    /// The wall time if workers share out one stratum after the other, over the time of all work on one worker.
    pub stepwise: f64,
    /// The mean share of all work that the unit at a random moment of the work has: larger if there are fewer units or
    /// more uneven ones.
    pub lump: f64,
}

/// The properties of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Survey {
    /// Transactions of the sample.
    pub transactions: u32,
    /// Temporal edges, the degrees of rows, the longest chain.
    pub chains: ChainSummary,
    /// Pairs of a write and another operation of its transaction that its value needs, or that a requirement reads
    /// (MorphStream Definition 5). Of a transaction that is not taken apart, every other operation.
    pub parametric_edges: u32,
    /// Edges of a path through each transaction's operations (Definition 6).
    pub logical_edges: u32,
    /// Whether chains wait for each other in a cycle (§4.2.2).
    pub is_cyclic: bool,
    /// By [`Cut`].
    pub paths: [Paths; 3],
}

impl Survey {
    /// The paths of one way to cut.
    pub fn paths(&self, cut: Cut) -> &Paths {
        &self.paths[cut as usize]
    }
}

/// Surveys epochs. Reused: its memory is kept.
#[derive(Debug, Default)]
pub struct Surveyor {
    graph: Graph,
    flow: Flow,
    scratch: Scratch,
    whole: UseBuffer,
    paths: PathFinder,
}

impl Surveyor {
    /// Surveys these transactions, for this many workers. `uses`: the parts that they could be taken apart into;
    /// `required`: by slot, whether a requirement of the transaction reads it; `weight`: the cost of a transaction, in
    /// any unit.
    pub fn survey(
        &mut self,
        sample: &AccessBuffer,
        uses: &UseBuffer,
        required: &[bool],
        workers: usize,
        weight: impl Fn(u32) -> f64,
    ) -> Survey {
        let accesses = sample.accesses();
        assert_eq!(required.len(), uses.uses.len(), "each slot is required or not");
        self.whole.clear();
        self.whole.uses.extend(uses.uses.iter().map(|used| used.whole()));
        self.whole.parts.resize(accesses.transactions(), 0);
        let mut survey = Survey { transactions: accesses.transactions() as u32, ..Survey::default() };
        for (cut, uses, judged) in [(Cut::Parts, uses, true), (Cut::Whole, &self.whole, false)] {
            let (scratch, flow) = (&mut self.scratch, &mut self.flow);
            survey.chains = self.graph.build_and_follow(accesses, uses, judged, scratch, flow);
            let units_of = |transaction: u32| f64::from(uses.parts[transaction as usize].max(1));
            let of_unit = |unit: u32| {
                let transaction = self.flow.unit(unit).0;
                let share = if self.flow.is_verdict_unit(unit) { VERDICT } else { 1.0 };
                weight(transaction) * share / units_of(transaction)
            };
            let versions = Versions { graph: &self.graph, flow: &self.flow };
            survey.paths[cut as usize] = self.paths.find(&versions, workers, of_unit);
            if cut == Cut::Parts {
                (survey.parametric_edges, survey.is_cyclic) = self.parametric(uses, required);
            }
        }
        survey.paths[Cut::InPlace as usize] = self.paths.find(&self.graph, workers, weight);
        let touching = (0..survey.transactions).filter(|&t| self.graph.operations(t).next().is_some()).count();
        survey.logical_edges = survey.chains.operations - touching as u32;
        survey
    }

    /// Parametric edges, and whether those between chains lead back.
    fn parametric(&self, uses: &UseBuffer, required: &[bool]) -> (u32, bool) {
        let mut chains = Vec::new();
        self.graph.chains(&mut chains);
        let (mut count, mut is_cyclic) = (0, false);
        let mut edges: Vec<(u32, u32)> = Vec::new();
        for transaction in 0..self.graph.transactions() {
            let parts = u32::from(uses.parts[transaction as usize]).max(1);
            for part in 0..parts {
                let unit = self.flow.units_of(transaction).start + part;
                let slots = || self.flow.operations(&self.graph, unit);
                let mut written = slots().filter(|&slot| self.flow.use_of(slot).writes());
                let Some(first) = written.next() else { continue };
                let others = written.count();
                let is_elsewhere = |&slot: &u32| required[slot as usize] && !self.flow.use_of(slot).by(part);
                let elsewhere = || self.graph.operations(transaction).filter(is_elsewhere);
                count += (1 + others) * (slots().count() - 1 + elsewhere().count());
                // Two operations that one unit writes depend on each other.
                is_cyclic |= others > 0;
                if !is_cyclic {
                    let read = slots().filter(|&slot| slot != first).chain(elsewhere());
                    edges.extend(read.map(|slot| (chains[slot as usize], chains[first as usize])));
                }
            }
        }
        let nodes = chains.iter().max().map_or(0, |last| *last as usize + 1);
        (count as u32, is_cyclic || leads_back(edges, nodes))
    }
}

/// Whether directed edges between this many nodes close a circle. Repeatedly removes nodes without incoming edges; the
/// nodes of circles remain (Kahn, "Topological sorting of large networks", CACM 1962).
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

/// The work of a stratum, and of its most expensive unit.
#[derive(Clone, Copy, Debug, Default)]
struct StratumWork {
    sum: f64,
    most: f64,
}

/// The memory of a search for paths.
#[derive(Debug, Default)]
struct PathFinder {
    /// Unit → the latest end of its predecessors.
    ends: Vec<f64>,
    /// Unit → its stratum.
    levels: Vec<u32>,
    strata: Vec<StratumWork>,
}

impl PathFinder {
    /// One forward pass over the edges gives the earliest end of each unit, and its stratum.
    fn find(&mut self, precedence: &impl Precedence, workers: usize, weight: impl Fn(u32) -> f64) -> Paths {
        let PathFinder { ends, levels, strata } = self;
        let units = precedence.units();
        ends.clear();
        ends.resize(units as usize, 0.0);
        levels.clear();
        levels.resize(units as usize, 0);
        strata.clear();
        let (mut work, mut squares, mut longest) = (0.0, 0.0, 0.0_f64);
        for unit in 0..units {
            let cost = weight(unit);
            let (end, level) = (ends[unit as usize] + cost, levels[unit as usize]);
            work += cost;
            squares += cost * cost;
            longest = longest.max(end);
            if strata.len() <= level as usize {
                strata.resize(level as usize + 1, StratumWork::default());
            }
            let stratum = &mut strata[level as usize];
            stratum.sum += cost;
            stratum.most = stratum.most.max(cost);
            precedence.tell(unit, |told| {
                ends[told as usize] = end.max(ends[told as usize]);
                levels[told as usize] = (level + 1).max(levels[told as usize]);
            });
        }
        let turns: f64 = strata.iter().map(|stratum| stratum.most.max(stratum.sum / workers as f64)).sum();
        let share = |part: f64| if work > 0.0 { part / work } else { 0.0 };
        let lump = share(share(squares));
        debug_assert!(longest <= work * (1.0 + 1e-9), "a path of {longest} in work of {work}");
        Paths { units, strata: strata.len() as u32, critical: share(longest), stepwise: share(turns), lump }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::RowId;
    use crate::flow::Use;

    /// Row, part, whether it is written.
    type Access = (u64, u32, bool);
    /// In so many parts.
    type Transaction<'a> = (u8, &'a [Access]);

    fn survey(transactions: &[Transaction<'_>], workers: usize) -> Survey {
        survey_with(transactions, &[], workers)
    }

    /// Requirements read these rows.
    fn survey_with(transactions: &[Transaction<'_>], required: &[u64], workers: usize) -> Survey {
        let (mut sample, mut uses) = (AccessBuffer::new(), UseBuffer::default());
        for (parts, accesses) in transactions {
            sample.push(accesses.iter().map(|&(row, ..)| RowId(row)));
            uses.parts.push(*parts);
            let mask = |part: u32| if *parts > 0 { 1 << part } else { 0 };
            uses.uses.extend(accesses.iter().map(|&(_, part, writes)| Use::new(mask(part), writes)));
        }
        let accesses = transactions.iter().flat_map(|(_, accesses)| *accesses);
        let required: Vec<bool> = accesses.map(|(row, ..)| required.contains(row)).collect();
        Surveyor::default().survey(&sample, &uses, &required, workers, |_| 1.0)
    }

    #[test]
    fn one_hot_row_is_all_path_in_place_and_none_where_it_is_only_read() {
        let reads: Vec<Transaction<'_>> = vec![(0, &[(7, 0, false)]); 100];
        let survey = survey(&reads, 2);
        assert_eq!((survey.chains.longest, survey.chains.temporal_edges()), (100, 99));
        assert_eq!(survey.paths(Cut::InPlace).critical, 1.0);
        assert_eq!(survey.paths(Cut::InPlace).strata, 100);
        assert_eq!(survey.paths(Cut::Whole).critical, 0.01);
        assert_eq!(survey.paths(Cut::Whole).stepwise, 0.5);
        assert!(!survey.is_cyclic);
    }

    #[test]
    fn transfers_that_lead_back_are_a_cycle_and_ones_that_do_not_are_none() {
        let there: &[Access] = &[(1, 0, false), (2, 0, true)];
        let back: &[Access] = &[(2, 0, false), (1, 0, true)];
        assert!(!survey(&[(0, there), (0, there)], 2).is_cyclic);
        let both = survey(&[(0, there), (0, back)], 2);
        assert!(both.is_cyclic);
        assert_eq!((both.parametric_edges, both.logical_edges), (2, 2));
    }

    /// Streaming Ledger's transfer: requirements read two of the four rows that it writes, each in a part of its own.
    /// Each of these two decides about the other three.
    #[test]
    fn requirements_are_parametric_dependencies_of_every_write() {
        let transfer: &[Access] = &[(1, 0, true), (2, 1, true), (3, 2, true), (4, 3, true)];
        let without = survey(&[(4, transfer)], 2);
        assert_eq!((without.parametric_edges, without.is_cyclic), (0, false));
        let with = survey_with(&[(4, transfer)], &[1, 2], 2);
        assert_eq!((with.parametric_edges, with.is_cyclic), (6, true));
        assert_eq!(with.paths, without.paths, "they are no edges between units");
        let one = survey_with(&[(4, transfer)], &[1], 2);
        assert_eq!((one.parametric_edges, one.is_cyclic), (3, false));
    }

    /// What an operation reads already is not counted again, in parts or whole.
    #[test]
    fn a_required_operation_counts_once_for_a_write() {
        let checked: &[Access] = &[(1, 0, false), (2, 0, true), (3, 1, true)];
        assert_eq!(survey_with(&[(2, checked)], &[1], 2).parametric_edges, 2);
        let whole: &[Access] = &[(1, 0, false), (2, 0, true)];
        assert_eq!(survey_with(&[(0, whole)], &[1], 2).parametric_edges, 1);
    }

    #[test]
    fn parts_shorten_the_path() {
        // Each in two parts, one on a hot row, one on a row of its own.
        let rows: Vec<[Access; 2]> = (0..50).map(|t| [(0, 0, true), (t + 1, 1, true)]).collect();
        let transactions: Vec<Transaction<'_>> = rows.iter().map(|rows| (2, &rows[..])).collect();
        let survey = survey(&transactions, 2);
        assert_eq!(survey.paths(Cut::Whole).critical, 1.0);
        let parts = survey.paths(Cut::Parts);
        assert_eq!(parts.units, 150);
        assert!(parts.critical < 0.5, "{parts:?}");
    }

    #[test]
    fn nothing_is_nothing() {
        let nothing = survey(&[], 2);
        assert_eq!((nothing.transactions, nothing.paths(Cut::Parts).critical), (0, 0.0));
        assert!(!nothing.is_cyclic);
    }
}
