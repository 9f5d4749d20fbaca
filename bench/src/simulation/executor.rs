//! A discrete-event simulation of the executor under its policies: the units of an epoch, on a number of workers.
//!
//! What is simulated is who runs which unit when, by the rules of `tidemill_schedule`, not how: a worker goes on with
//! what it has made ready, else takes the ready unit that is first in position order (unstructured); takes units of a
//! stratum as they come and waits after it (breadth first); goes through its own share, which is of the chains that it
//! owns or of every stratum, and waits for what its next unit waits for (depth first). Time is in nanoseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidemill_schedule::{Explore, Search};
use tidemill_txn::{Precedence, Strata};

/// The costs of the executor's steps, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The cost of a unit beside its work: finding it, telling those that wait.
    pub unit: f64,
    /// The additional cost if something that it waits for was run by another worker.
    pub transfer: f64,
    /// The wait for all workers after a stratum or a round.
    pub barrier: f64,
    /// The cost of a turn that another worker passes on, in turns.
    pub line: f64,
    /// The cost of a transaction's requests, which it inserts while it has the turn, in turns.
    pub insert: f64,
}

/// Returns the length of the critical path: the time at which the last unit ends if there are workers enough.
pub fn critical_path(precedence: &impl Precedence, weight: &[f64]) -> f64 {
    let mut starts = vec![0.0_f64; weight.len()];
    let mut longest = 0.0_f64;
    for unit in 0..precedence.units() {
        let end = starts[unit as usize] + weight[unit as usize];
        longest = longest.max(end);
        precedence.tell(unit, |told| starts[told as usize] = end.max(starts[told as usize]));
    }
    longest
}

/// Returns the time that the units take on a number of workers. `owners`: where chains are owned, a number for each
/// unit, the same for those of one owner.
pub fn makespan(
    precedence: &impl Precedence,
    weight: &[f64],
    costs: Costs,
    explore: Explore,
    owners: Option<&[u32]>,
    workers: usize,
) -> f64 {
    let mut run = Execution {
        ready_at: vec![(0.0, None); weight.len()],
        pending: (0..precedence.units()).map(|unit| precedence.pending(unit)).collect(),
        weight,
        costs,
        workers: vec![0.0; workers],
    };
    match explore {
        Explore::Unstructured => run.unstructured(precedence),
        Explore::Structured(search) => {
            let mut strata = Strata::new();
            strata.compute(precedence);
            match search {
                Search::Bfs => run.breadth_first(precedence, &strata),
                Search::Dfs => run.depth_first(precedence, &strata, owners),
            }
        }
    }
    run.workers.iter().copied().fold(0.0, f64::max)
}

struct Execution<'a> {
    /// The time at which the last predecessor of each unit ended, and its worker; none before any.
    ready_at: Vec<(f64, Option<usize>)>,
    pending: Vec<u32>,
    weight: &'a [f64],
    costs: Costs,
    /// The time at which each worker is free, by worker.
    workers: Vec<f64>,
}

impl Execution<'_> {
    /// Runs a unit on a worker, as soon as both can: when it ends.
    fn run(&mut self, unit: u32, worker: usize) -> f64 {
        let (ready, from) = self.ready_at[unit as usize];
        let transfer = if from.is_some_and(|from| from != worker) { self.costs.transfer } else { 0.0 };
        let start = self.workers[worker].max(ready);
        let end = start + transfer + self.costs.unit + self.weight[unit as usize];
        self.workers[worker] = end;
        end
    }

    /// Tells those that wait for a unit; which became ready.
    fn tell(&mut self, precedence: &impl Precedence, unit: u32, end: f64, worker: usize) -> Vec<u32> {
        let mut ready = Vec::new();
        precedence.tell(unit, |told| {
            let (at, _) = self.ready_at[told as usize];
            if end >= at {
                self.ready_at[told as usize] = (end, Some(worker));
            }
            self.pending[told as usize] -= 1;
            if self.pending[told as usize] == 0 {
                ready.push(told);
            }
        });
        ready
    }

    fn unstructured(&mut self, precedence: &impl Precedence) {
        // In the order of time: units that end, each with its worker; times are ordered as bits, being positive.
        let mut ends: BinaryHeap<Reverse<(u64, usize, u32)>> = BinaryHeap::new();
        let mut ready: BinaryHeap<Reverse<u32>> =
            (0..precedence.units()).filter(|&unit| self.pending[unit as usize] == 0).map(Reverse).collect();
        let mut idle: Vec<usize> = (0..self.workers.len()).rev().collect();
        loop {
            while !idle.is_empty()
                && let Some(Reverse(unit)) = ready.pop()
            {
                let worker = idle.pop().expect("not empty");
                ends.push(Reverse((self.run(unit, worker).to_bits(), worker, unit)));
            }
            let Some(Reverse((end, worker, unit))) = ends.pop() else { return };
            let now = f64::from_bits(end);
            let mut fresh = self.tell(precedence, unit, now, worker);
            // Along the chain, with the first in position order.
            fresh.sort_unstable_by_key(|&unit| Reverse(unit));
            match fresh.pop() {
                Some(next) => ends.push(Reverse((self.run(next, worker).to_bits(), worker, next))),
                None => idle.push(worker),
            }
            ready.extend(fresh.into_iter().map(Reverse));
            // Who was idle begins now, not when it became idle.
            idle.iter().for_each(|&worker| self.workers[worker] = self.workers[worker].max(now));
        }
    }

    fn breadth_first(&mut self, precedence: &impl Precedence, strata: &Strata) {
        for stratum in 0..strata.depth() {
            for &unit in strata.stratum(stratum) {
                let first = |a: &usize, b: &usize| self.workers[*a].total_cmp(&self.workers[*b]);
                let worker = (0..self.workers.len()).min_by(first).expect("a worker");
                let end = self.run(unit, worker);
                self.tell(precedence, unit, end, worker);
            }
            let last = self.workers.iter().copied().fold(0.0, f64::max);
            let barrier = if self.workers.len() > 1 { self.costs.barrier } else { 0.0 };
            self.workers.fill(last + barrier);
        }
    }

    fn depth_first(&mut self, precedence: &impl Precedence, strata: &Strata, owners: Option<&[u32]>) {
        // Members are in the order of strata, so whatever a unit waits for was run before it.
        for (member, &unit) in strata.members().iter().enumerate() {
            let worker = owners.map_or(member, |owners| owners[unit as usize] as usize) % self.workers.len();
            let end = self.run(unit, worker);
            self.tell(precedence, unit, end, worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_txn::{AccessBuffer, Graph, RowId, Scratch};

    const ALL: [Explore; 3] =
        [Explore::Unstructured, Explore::Structured(Search::Bfs), Explore::Structured(Search::Dfs)];

    fn graph(rows: impl Iterator<Item = Vec<u64>>) -> Graph {
        let mut epoch = AccessBuffer::new();
        rows.for_each(|rows| epoch.push(rows.into_iter().map(RowId)));
        let mut graph = Graph::new();
        graph.build(epoch.accesses(), &mut Scratch::default());
        graph
    }

    fn time(graph: &Graph, costs: Costs, explore: Explore, workers: usize) -> f64 {
        makespan(graph, &vec![100.0; graph.transactions() as usize], costs, explore, None, workers)
    }

    #[test]
    fn what_shares_nothing_is_divided_evenly() {
        let graph = graph((0..64).map(|row| vec![row]));
        for explore in ALL {
            for workers in [1, 2, 4, 64] {
                let expected = 64.0 / workers as f64 * 100.0;
                assert_eq!(time(&graph, Costs::default(), explore, workers), expected, "{explore:?}, {workers}");
            }
        }
    }

    #[test]
    fn one_chain_takes_turns_and_stays_with_its_worker() {
        let graph = graph((0..64).map(|_| vec![7]));
        let costs = Costs { unit: 10.0, transfer: 1_000.0, barrier: 50.0, ..Costs::default() };
        assert_eq!(time(&graph, costs, Explore::Unstructured, 8), 64.0 * 110.0);
        assert_eq!(time(&graph, costs, ALL[1], 1), 64.0 * 110.0);
        // Each next unit is another worker's, or the chain is one's.
        assert_eq!(time(&graph, costs, ALL[2], 2), 64.0 * 110.0 + 63.0 * 1_000.0);
        let owned = makespan(&graph, &[100.0; 64], costs, ALL[2], Some(&[3; 64]), 2);
        assert_eq!(owned, 64.0 * 110.0);
    }

    #[test]
    fn no_schedule_beats_the_critical_path_or_the_work() {
        let mut random = tidemill_txn::sample::Random::new(5);
        for _ in 0..50 {
            let epoch = tidemill_txn::sample::mixed(&mut random, 80);
            let mut graph = Graph::new();
            graph.build(epoch.accesses(), &mut Scratch::default());
            let weight: Vec<f64> = (0..graph.transactions()).map(|_| 1.0 + random.below(100) as f64).collect();
            let (path, work) = (critical_path(&graph, &weight), weight.iter().sum::<f64>());
            for (explore, workers) in ALL.into_iter().flat_map(|explore| [1, 3, 16].map(|workers| (explore, workers))) {
                let took = makespan(&graph, &weight, Costs::default(), explore, None, workers);
                assert!(took >= path - 1e-6 && took >= work / workers as f64 - 1e-6, "{took} of {path}, {work}");
                // Graham's bound of list scheduling, which one list has.
                let bound = path + (work - path) / workers as f64;
                assert!(explore != Explore::Unstructured || took <= bound + 1e-6, "{took} above {bound}");
            }
        }
    }
}
