//! A simulation of the schemes of earlier systems (`tidemill_schedule::Scheme`): transactions in turns, and chains in
//! rounds.
//!
//! In turns, a worker that is free claims the next transaction in position order and keeps it: it waits for its turn in
//! each of its partitions, inserts its requests, waits for those that it conflicts with, and runs. In rounds, workers take
//! every unfinished chain once and evaluate it until an operation lacks a value; a barrier ends the round.

use super::executor::Costs;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use tidemill_txn::{Accesses, Flow, Graph, Precedence, RowId, UseBuffer};

/// The partitions and transactions that each transaction of an epoch waits for before it runs whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// The partitions in which it has a turn.
    partitions: Vec<Vec<u32>>,
    /// The transactions before it that it conflicts with.
    waits: Vec<Vec<u32>>,
}

impl Turns {
    /// Nothing.
    pub fn none(transactions: usize) -> Turns {
        Turns { partitions: vec![Vec::new(); transactions], waits: vec![Vec::new(); transactions] }
    }

    /// Returns a turn in each partition that it touches, and locks: shared for reads, exclusive for writes.
    /// `partition`: of each access.
    pub fn locks(accesses: Accesses<'_>, uses: &UseBuffer, partition: &[u32]) -> Turns {
        let mut turns = Turns::none(accesses.transactions());
        // The last transaction that wrote each row, and those that have read it since.
        let mut held: HashMap<RowId, (Option<u32>, Vec<u32>)> = HashMap::new();
        for (transaction, slots) in accesses.op_start().windows(2).enumerate() {
            let slots = slots[0] as usize..slots[1] as usize;
            let mut exclusive: HashMap<RowId, bool> = HashMap::new();
            for slot in slots {
                push_new(&mut turns.partitions[transaction], partition[slot]);
                *exclusive.entry(accesses.rows()[slot]).or_default() |= uses.uses[slot].writes();
            }
            for (row, exclusive) in exclusive {
                let (writer, readers) = held.entry(row).or_default();
                let waits = &mut turns.waits[transaction];
                writer.iter().for_each(|&before| push_new(waits, before));
                if exclusive {
                    readers.drain(..).for_each(|before| push_new(waits, before));
                    *writer = Some(transaction as u32);
                } else {
                    readers.push(transaction as u32);
                }
            }
        }
        turns
    }

    /// One turn, and the last writes before its accesses.
    pub fn versions(accesses: Accesses<'_>, graph: &Graph, flow: &Flow) -> Turns {
        let mut turns = Turns::none(accesses.transactions());
        let transaction_of = |slot: u32| accesses.op_start().partition_point(|&start| start <= slot) as u32 - 1;
        for (transaction, waits) in (0..).zip(&mut turns.waits) {
            let sources = graph.operations(transaction).filter_map(|operation| flow.source(operation));
            sources.map(transaction_of).for_each(|before| push_new(waits, before));
        }
        turns.partitions.iter_mut().for_each(|partitions| partitions.push(0));
        turns
    }

    /// Returns the longest path of transactions that wait for each other.
    pub fn critical_path(&self, weight: &[f64]) -> f64 {
        let mut ends: Vec<f64> = Vec::with_capacity(weight.len());
        for (waits, weight) in self.waits.iter().zip(weight) {
            let start = waits.iter().map(|&before| ends[before as usize]).fold(0.0, f64::max);
            ends.push(start + weight);
        }
        ends.into_iter().fold(0.0, f64::max)
    }
}

fn push_new(list: &mut Vec<u32>, number: u32) {
    if !list.contains(&number) {
        list.push(number);
    }
}

/// Returns the time that transactions take in turns, nanoseconds.
pub fn in_turns(turns: &Turns, weight: &[f64], costs: Costs, workers: usize) -> f64 {
    let mut free = vec![0.0_f64; workers];
    // Who had the last turn of each partition, and until when; when each transaction ended, and where.
    let mut passed: HashMap<u32, (f64, usize)> = HashMap::new();
    let mut ended: Vec<(f64, usize)> = Vec::with_capacity(weight.len());
    for (transaction, weight) in weight.iter().enumerate() {
        let worker = first_free(&free);
        let mut now = free[worker];
        let partitions = &turns.partitions[transaction];
        for (until, from) in partitions.iter().filter_map(|partition| passed.get(partition)) {
            now = now.max(until + if *from == worker { 0.0 } else { costs.line });
        }
        if !partitions.is_empty() {
            now += costs.insert;
        }
        passed.extend(partitions.iter().map(|&partition| (partition, (now, worker))));
        let before = turns.waits[transaction].iter().map(|&before| ended[before as usize]);
        let last = before.max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((end, from)) = last {
            now = now.max(end) + if from == worker { 0.0 } else { costs.transfer };
        }
        now += costs.unit + weight;
        free[worker] = now;
        ended.push((now, worker));
    }
    free.into_iter().fold(0.0, f64::max)
}

fn first_free(free: &[f64]) -> usize {
    (0..free.len()).min_by(|&a, &b| free[a].total_cmp(&free[b])).expect("a worker")
}

/// Returns the units of each chain, in order: a unit is in the chain of the first row that it writes, or else of its
/// first row.
pub fn chains(graph: &Graph, flow: &Flow) -> Vec<Vec<u32>> {
    let mut of_operation = Vec::new();
    graph.chains(&mut of_operation);
    let mut numbers: HashMap<u32, usize> = HashMap::new();
    let mut chains: Vec<Vec<u32>> = Vec::new();
    for unit in 0..flow.units() {
        let operations = || flow.operations(graph, unit);
        let first = operations().find(|&operation| flow.use_of(operation).writes()).or_else(|| operations().next());
        let fresh = chains.len();
        let chain = first.map_or(fresh, |first| *numbers.entry(of_operation[first as usize]).or_insert(fresh));
        if chain == fresh {
            chains.push(Vec::new());
        }
        chains[chain].push(unit);
    }
    chains
}

/// The state of a worker at a moment of a round: it is in a chain, or claims one.
type At = Reverse<(u64, usize, Option<usize>)>;

/// Returns the time that chains take in rounds, nanoseconds. Once; what is removed is evaluated again.
pub fn in_rounds(
    precedence: &impl Precedence,
    chains: &[Vec<u32>],
    weight: &[f64],
    costs: Costs,
    workers: usize,
) -> f64 {
    let mut run = Rounds {
        chains,
        weight,
        costs,
        needs: needs(precedence),
        ended: vec![None; weight.len()],
        next: vec![0; chains.len()],
    };
    let mut active: Vec<usize> = (0..chains.len()).collect();
    let mut now = 0.0;
    while !active.is_empty() {
        (now, active) = run.round(now, active, workers);
        now += if workers > 1 { costs.barrier } else { 0.0 };
    }
    now
}

/// Returns the units that each unit waits for.
fn needs(precedence: &impl Precedence) -> Vec<Vec<u32>> {
    let mut needs = vec![Vec::new(); precedence.units() as usize];
    (0..precedence.units()).for_each(|unit| precedence.tell(unit, |told| push_new(&mut needs[told as usize], unit)));
    needs
}

struct Rounds<'a> {
    chains: &'a [Vec<u32>],
    weight: &'a [f64],
    costs: Costs,
    needs: Vec<Vec<u32>>,
    /// The time at which each unit ended, and the worker.
    ended: Vec<Option<(f64, usize)>>,
    /// The next unit of each chain.
    next: Vec<usize>,
}

impl Rounds<'_> {
    /// Runs a round from a moment on. Returns when the round ends, and the chains of the next one.
    fn round(&mut self, start: f64, active: Vec<usize>, workers: usize) -> (f64, Vec<usize>) {
        let mut claims = active.into_iter();
        let mut blocked = Vec::new();
        let mut last = start;
        // In the order of time, whose bits are ordered, being positive.
        let mut moments: BinaryHeap<At> = (0..workers).map(|worker| Reverse((start.to_bits(), worker, None))).collect();
        while let Some(Reverse((at, worker, chain))) = moments.pop() {
            let now = f64::from_bits(at);
            last = last.max(now);
            let Some(chain) = chain.or_else(|| claims.next()) else { continue };
            let Some(&unit) = self.chains[chain].get(self.next[chain]) else {
                moments.push(Reverse((at, worker, None)));
                continue;
            };
            match self.begin(unit, now, worker) {
                Some(end) => {
                    self.next[chain] += 1;
                    moments.push(Reverse((end.to_bits(), worker, Some(chain))));
                }
                None => {
                    blocked.push(chain);
                    moments.push(Reverse((at, worker, None)));
                }
            }
        }
        (last, blocked)
    }

    /// Runs a unit, if all that it needs has ended: when it ends.
    fn begin(&mut self, unit: u32, now: f64, worker: usize) -> Option<f64> {
        let mut transfer = 0.0;
        for &need in &self.needs[unit as usize] {
            let (_, from) = self.ended[need as usize].filter(|(end, _)| *end <= now)?;
            transfer = if from == worker { transfer } else { self.costs.transfer };
        }
        let end = now + transfer + self.costs.unit + self.weight[unit as usize];
        self.ended[unit as usize] = Some((end, worker));
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::executor::critical_path;
    use super::*;
    use tidemill_txn::sample::{self, Random};
    use tidemill_txn::{AccessBuffer, Scratch, Use, Verdicts, Versions};

    const WRITES: bool = true;
    const READS: bool = false;

    /// Transactions by their rows, each written or read.
    fn epoch(transactions: &[&[(u64, bool)]]) -> (AccessBuffer, UseBuffer) {
        let (mut epoch, mut uses) = (AccessBuffer::new(), UseBuffer::default());
        for accesses in transactions {
            epoch.push(accesses.iter().map(|&(row, _)| RowId(row)));
            uses.uses.extend(accesses.iter().map(|&(_, writes)| Use::new(0, writes)));
            uses.parts.push(0);
        }
        (epoch, uses)
    }

    fn graph(epoch: &AccessBuffer, uses: &UseBuffer) -> (Graph, Flow) {
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        graph.build_and_follow(epoch.accesses(), uses, Verdicts::After, &mut Scratch::default(), &mut flow);
        (graph, flow)
    }

    fn locks(epoch: &AccessBuffer, uses: &UseBuffer, partition: impl Fn(RowId) -> u32) -> Turns {
        let of: Vec<u32> = epoch.accesses().rows().iter().map(|&row| partition(row)).collect();
        Turns::locks(epoch.accesses(), uses, &of)
    }

    #[test]
    fn locks_wait_for_writes_and_writes_for_reads_and_versions_for_writes_alone() {
        let (epoch, uses) = epoch(&[&[(1, WRITES)], &[(1, READS)], &[(1, READS)], &[(1, WRITES)], &[(2, WRITES)]]);
        let locks = locks(&epoch, &uses, |_| 0);
        assert_eq!(locks.waits, [vec![], vec![0], vec![0], vec![0, 1, 2], vec![]]);
        let (graph, flow) = graph(&epoch, &uses);
        let versions = Turns::versions(epoch.accesses(), &graph, &flow);
        assert_eq!(versions.waits, [vec![], vec![0], vec![0], vec![0], vec![]]);
        assert_eq!(locks.critical_path(&[10.0; 5]), 30.0);
        assert_eq!(versions.critical_path(&[10.0; 5]), 20.0);
    }

    #[test]
    fn turns_of_one_partition_pass_from_worker_to_worker() {
        let transactions: Vec<[(u64, bool); 1]> = (0..64).map(|row| [(row, WRITES)]).collect();
        let transactions: Vec<&[(u64, bool)]> = transactions.iter().map(|accesses| &accesses[..]).collect();
        let (epoch, uses) = epoch(&transactions);
        let costs = Costs { insert: 10.0, line: 40.0, ..Costs::default() };
        let weight = [100.0; 64];
        // Alone, no turn is waited for.
        assert_eq!(in_turns(&locks(&epoch, &uses, |_| 0), &weight, costs, 1), 64.0 * 110.0);
        // Sixteen could run all at once; turns come every 50 ns.
        assert_eq!(in_turns(&locks(&epoch, &uses, |_| 0), &weight, costs, 16), 64.0 * 50.0 - 40.0 + 100.0);
        // A worker has a partition to itself: turns stay where they are.
        let apart = locks(&epoch, &uses, |RowId(row)| row as u32 % 16);
        assert_eq!(in_turns(&apart, &weight, costs, 16), 4.0 * 110.0);
        assert_eq!(in_turns(&Turns::none(64), &weight, costs, 16), 4.0 * 100.0);
    }

    #[test]
    fn a_chain_that_lacks_a_value_is_left_until_the_next_round() {
        // Row 1 is written, then read for row 2; row 2 was written before.
        let (epoch, uses) = epoch(&[&[(1, WRITES)], &[(2, WRITES)], &[(2, WRITES), (1, READS)]]);
        let (graph, flow) = graph(&epoch, &uses);
        let chains = chains(&graph, &flow);
        assert_eq!(chains, [vec![0], vec![1, 2]]);
        let costs = Costs { barrier: 7.0, ..Costs::default() };
        let versions = Versions { graph: &graph, flow: &flow };
        let took = |weight: [f64; 3], workers| in_rounds(&versions, &chains, &weight, costs, workers);
        assert_eq!(took([100.0; 3], 1), 300.0);
        // The value is there just in time, or it is not.
        assert_eq!(took([100.0, 100.0, 50.0], 2), 150.0 + 7.0);
        assert_eq!(took([100.0, 90.0, 50.0], 2), 100.0 + 7.0 + 50.0 + 7.0);
    }

    #[test]
    fn no_scheme_beats_the_work_or_the_path_of_its_values() {
        let mut random = Random::new(9);
        for _ in 0..50 {
            let epoch = sample::mixed(&mut random, 80);
            let rows = epoch.accesses().rows().len();
            let uses = UseBuffer {
                uses: (0..rows).map(|_| Use::new(0, random.below(2) > 0)).collect(),
                parts: vec![0; epoch.accesses().transactions()],
            };
            let (graph, flow) = graph(&epoch, &uses);
            let weight: Vec<f64> = (0..graph.transactions()).map(|_| 1.0 + random.below(100) as f64).collect();
            let versions = Versions { graph: &graph, flow: &flow };
            let (path, work) = (critical_path(&versions, &weight), weight.iter().sum::<f64>());
            for workers in [1, 3, 16] {
                let least = path.max(work / workers as f64) - 1e-6;
                let all = [locks(&epoch, &uses, |_| 0), locks(&epoch, &uses, |RowId(row)| row as u32 % 4)];
                for turns in all.iter().chain([&Turns::versions(epoch.accesses(), &graph, &flow)]) {
                    let took = in_turns(turns, &weight, Costs::default(), workers);
                    assert!(took >= least, "{took} of {least} on {workers}");
                }
                let chains = chains(&graph, &flow);
                assert_eq!(chains.iter().map(Vec::len).sum::<usize>(), weight.len());
                let took = in_rounds(&versions, &chains, &weight, Costs::default(), workers);
                assert!(took >= least, "{took} of {least} on {workers}");
            }
        }
    }
}
