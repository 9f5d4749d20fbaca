//! Properties of an epoch for a decision model, before the epoch runs (MorphStream §4.4, Table 3): computed from its
//! transactions, or from a sample, the first of them, on the calling thread.
//!
//! **What.** Edges by kind, the degrees of rows, whether chains depend on each other in a cycle, and for each way to cut
//! transactions into units the longest path through the graph, weighted by the cost of the units.
//!
//! **Cost.** Linking once per way, and a pass over the edges for each: some 100 ns per operation of the sample. Edges alone
//! ([`Surveyor::count`]) need one linking.
//!
//! **Given up.** The longest path is a larger share of a sample than of the epoch, unless a few hot rows make the path.
//! Where none do, both shares are small.

use crate::access::AccessBuffer;
use crate::edges::{Edges, Parameter};
use crate::flow::{Flow, UseBuffer, Verdicts, Versions};
use crate::graph::{Graph, Scratch};
use crate::precedence::Precedence;
use crate::summary::ChainSummary;

/// The cost of a verdict operation, in parts of its transaction.
const VERDICT: f64 = 0.1;

/// The division of transactions into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Units are whole transactions, which run one after the other at each row.
    InPlace,
    /// Units are whole transactions, whose reads of a row run in parallel.
    Whole,
    /// Units are parts, before the verdict.
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
    /// The degrees of rows, the longest chain.
    pub chains: ChainSummary,
    /// Dependencies by kind.
    pub edges: Edges,
    /// The paths for each [`Cut`]; empty if only edges were counted.
    pub paths: [Paths; 3],
}

impl Survey {
    /// Returns the paths of one way to cut.
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
    /// `weight`: the cost of a transaction, in any unit.
    pub fn survey(
        &mut self,
        sample: &AccessBuffer,
        uses: &UseBuffer,
        parameters: &[Parameter],
        workers: usize,
        weight: impl Fn(u32) -> f64,
    ) -> Survey {
        let (parts, parts_paths) = self.follow(sample, uses, Verdicts::Beside, workers, &weight);
        self.take_whole(uses);
        let whole_uses = std::mem::take(&mut self.whole);
        let (whole, whole_paths) = self.follow(sample, &whole_uses, Verdicts::After, workers, &weight);
        self.whole = whole_uses;
        debug_assert_eq!(parts, whole, "both ways have the same chains");
        let mut survey = self.counted(whole, parameters);
        survey.paths[Cut::Parts as usize] = parts_paths;
        survey.paths[Cut::Whole as usize] = whole_paths;
        survey.paths[Cut::InPlace as usize] = self.paths.find(&self.graph, workers, weight);
        survey
    }

    /// Counts the edges of these transactions, and nothing else.
    pub fn count(&mut self, sample: &AccessBuffer, uses: &UseBuffer, parameters: &[Parameter]) -> Survey {
        self.take_whole(uses);
        let Surveyor { graph, flow, scratch, whole, .. } = self;
        let chains = graph.build_and_follow(sample.accesses(), whole, Verdicts::After, scratch, flow);
        self.counted(chains, parameters)
    }

    /// Takes the uses of the same transactions, each of them whole.
    fn take_whole(&mut self, uses: &UseBuffer) {
        self.whole.clear();
        self.whole.uses.extend(uses.uses.iter().map(|used| used.whole()));
        self.whole.parts.resize(uses.parts.len(), 0);
    }

    /// Returns the counts of the present graph.
    fn counted(&self, chains: ChainSummary, parameters: &[Parameter]) -> Survey {
        let edges = Edges::of(&self.graph, &self.flow, parameters);
        Survey { transactions: self.graph.transactions(), chains, edges, ..Survey::default() }
    }

    /// Builds the graph of one way to cut, and follows its paths.
    fn follow(
        &mut self,
        sample: &AccessBuffer,
        uses: &UseBuffer,
        verdicts: Verdicts,
        workers: usize,
        weight: &impl Fn(u32) -> f64,
    ) -> (ChainSummary, Paths) {
        let Surveyor { graph, flow, scratch, paths, .. } = self;
        let chains = graph.build_and_follow(sample.accesses(), uses, verdicts, scratch, flow);
        let units_of = |transaction: u32| f64::from(uses.parts[transaction as usize].max(1));
        let of_unit = |unit: u32| {
            let transaction = flow.unit(unit).0;
            let share = if flow.is_verdict_unit(unit) { VERDICT } else { 1.0 };
            weight(transaction) * share / units_of(transaction)
        };
        (chains, paths.find(&Versions { graph, flow }, workers, of_unit))
    }
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
    /// Finds, by one forward pass over the edges, the earliest end of each unit, and its stratum.
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
    /// The number of parts, and the accesses.
    type Transaction<'a> = (u8, &'a [Access]);

    fn survey(transactions: &[Transaction<'_>], workers: usize) -> Survey {
        let (mut sample, mut uses) = (AccessBuffer::new(), UseBuffer::default());
        for (parts, accesses) in transactions {
            sample.push(accesses.iter().map(|&(row, ..)| RowId(row)));
            uses.parts.push(*parts);
            let mask = |part: u32| if *parts > 0 { 1 << part } else { 0 };
            uses.uses.extend(accesses.iter().map(|&(_, part, writes)| Use::new(mask(part), writes)));
        }
        let mut surveyor = Surveyor::default();
        let counted = surveyor.count(&sample, &uses, &[]);
        let survey = surveyor.survey(&sample, &uses, &[], workers, |_| 1.0);
        assert_eq!(counted, Survey { paths: Default::default(), ..survey });
        survey
    }

    #[test]
    fn one_hot_row_is_all_path_in_place_and_none_where_it_is_only_read() {
        let reads: Vec<Transaction<'_>> = vec![(0, &[(7, 0, false)]); 100];
        let survey = survey(&reads, 2);
        assert_eq!((survey.chains.longest, survey.edges.temporal), (100, 99));
        assert_eq!(survey.paths(Cut::InPlace).critical, 1.0);
        assert_eq!(survey.paths(Cut::InPlace).strata, 100);
        assert_eq!(survey.paths(Cut::Whole).critical, 0.01);
        assert_eq!(survey.paths(Cut::Whole).stepwise, 0.5);
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
    fn a_lump_is_the_share_of_the_mean_unit_of_work() {
        let mut sample = AccessBuffer::new();
        (0..4).for_each(|row| sample.push([RowId(row)]));
        let uses = UseBuffer { uses: vec![Use::new(0, true); 4], parts: vec![0; 4] };
        let survey = Surveyor::default().survey(&sample, &uses, &[], 2, |transaction| f64::from(transaction + 1));
        assert_eq!((survey.transactions, survey.chains.longest), (4, 1));
        // The lump: of costs 1, 2, 3 and 4, each weighted by itself, 30 / 10, in a work of 10.
        let whole = survey.paths(Cut::Whole);
        assert!((whole.lump - 0.3).abs() < 1e-12 && (whole.critical - 0.4).abs() < 1e-12, "{whole:?}");
        assert!((whole.stepwise - 0.5).abs() < 1e-12, "{whole:?}");
    }

    #[test]
    fn nothing_is_nothing() {
        let nothing = survey(&[], 2);
        assert_eq!((nothing.transactions, nothing.paths(Cut::Parts).critical), (0, 0.0));
        assert_eq!(nothing.edges, Edges::default());
    }
}
