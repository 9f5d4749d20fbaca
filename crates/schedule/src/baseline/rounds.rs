//! TStream: operation chains, evaluated in rounds.
//!
//! **What.** The operations of a row are its chain, and one worker at a time evaluates a chain, in order. In a round,
//! workers take every unfinished chain once and evaluate it until an operation depends on a value of another chain that
//! is not there yet. A barrier ends the round. Values are kept in versions, so a chain may run ahead of those that read
//! it. Updates do not wait for the verdict of their transaction. When all chains are evaluated, the verdicts are checked;
//! if any transaction aborts, the aborted ones are removed and *the whole batch* is evaluated again. That may change
//! later verdicts, so it repeats until exactly the transactions that abort are removed.
//!
//! **It ends with the serial result.** If the first *n* verdicts of a pass are those of the serial order, so are the
//! first *n* + 1 of the next pass, since a verdict is a function of the values that the *n* transactions before it leave.
//! A pass that changes no verdict therefore has the verdicts of the serial order.
//!
//! An operation is a unit of [`tidemill_txn::Flow`]. A transaction that is not taken apart is one unit, in the chain of
//! the first row that it writes, and has its verdict as soon as it runs. It is removed like the others all the same: it
//! costs a pass over the batch. Only where transactions cannot be run again is there one pass, and nothing is removed; then
//! all of them are whole.
//!
//! **Without dynamic scheduling** (TStream 2019, §6.6) a round's chains are dealt out beforehand: a piece is a share of them
//! by the number of the chain, the same in each round.
//!
//! **Rounds without a fixed number of workers.** `claims` holds the number of the round and how much of it is claimed.
//! The worker that completes the last piece (1) closes the round, so that nothing can be claimed; (2) arranges the next
//! one, while no worker has a piece; (3) publishes its number. A worker that reads the new arrangement too early finds
//! the round closed when it claims, and fails. Whatever belongs to a round is read before a piece of it is completed:
//! afterwards, another worker may have begun the next round.

use super::Baseline;
use crate::execute::Execute;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, BLOCK_MAX, Ordering};
use crate::worker::Worker;
use crossbeam_utils::CachePadded;
use std::ops::Range;

/// The task of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// Evaluates chains.
    Explore,
    /// Checks verdicts.
    Verdict,
    /// Nothing: all is done.
    Done,
}

/// A part of a round, for the worker that claimed it.
struct Piece {
    round: u32,
    kind: Kind,
    /// Items of the whole round.
    size: u32,
    /// The claimed items: chains of the round or shares of them, or transactions.
    range: Range<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// First unit of each chain among `units`, and the end.
    start: Vec<u32>,
    /// The units of each chain, in order.
    units: Vec<u32>,
    /// The next unit of each chain. Written by the worker that has claimed the chain.
    at: Vec<AtomicU32>,
    /// The pass in which the version of each operation was last written. Read by the chains that need the version.
    written: Vec<AtomicU32>,
    /// A flag for each transaction: whether it is removed. Written while judging.
    removed: Vec<AtomicBool>,
    /// A flag: whether any transaction was removed or put back in this pass.
    changed: AtomicBool,
    /// The chains of the round and those of the next one, by the parity of the round.
    active: [Vec<AtomicU32>; 2],
    /// The round in the upper half, what is claimed of it in the lower.
    claims: CachePadded<AtomicU64>,
    /// Items of the round that are done.
    completed: CachePadded<AtomicU32>,
    /// Chains of the next round, so far.
    blocked: CachePadded<AtomicU32>,
    /// Kind and size of the round, its chains, and the pass. Written between rounds.
    kind: AtomicU32,
    size: AtomicU32,
    chains: AtomicU32,
    pass: AtomicU32,
    /// A flag: whether transactions that abort are removed.
    removes: bool,
    /// The number of shares in which chains are dealt out; none if workers ask for chains one by one.
    shares: Option<u32>,
}

impl Rounds {
    pub fn passes(&self) -> u32 {
        self.pass.load(Ordering::Relaxed)
    }

    fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Acquire) {
            0 => Kind::Explore,
            1 => Kind::Verdict,
            _ => Kind::Done,
        }
    }

    /// Arranges the next round, of this number of chains or transactions, and publishes its number. By one worker,
    /// while no piece is claimed.
    fn begin(&self, round: u32, kind: Kind, items: u32) {
        let size = if kind == Kind::Explore { self.shares.unwrap_or(items) } else { items };
        self.chains.store(items, Ordering::Relaxed);
        self.claims.fetch_or(u64::from(u32::MAX), Ordering::Relaxed);
        self.kind.store(kind as u32, Ordering::Release);
        self.size.store(size, Ordering::Release);
        self.completed.store(0, Ordering::Relaxed);
        self.blocked.store(0, Ordering::Relaxed);
        self.claims.store(u64::from(round) << 32, Ordering::Release);
    }

    /// Begins a pass over the whole batch.
    fn begin_pass(&self, round: u32) {
        let chains = self.at.len() as u32;
        for (chain, at) in (0..chains).zip(&self.at) {
            at.store(self.start[chain as usize], Ordering::Relaxed);
            self.active[round as usize % 2][chain as usize].store(chain, Ordering::Relaxed);
        }
        self.changed.store(false, Ordering::Relaxed);
        self.pass.fetch_add(1, Ordering::Relaxed);
        self.begin(round, Kind::Explore, chains);
    }

    /// Claims a piece of the current round; if none is left, returns the round.
    fn claim(&self, workers: u32) -> Result<Piece, u32> {
        let mut claims = self.claims.load(Ordering::Acquire);
        loop {
            let (round, begin) = ((claims >> 32) as u32, claims as u32);
            let (kind, size) = (self.kind(), self.size.load(Ordering::Acquire));
            if begin >= size {
                return Err(round);
            }
            let is_share = kind == Kind::Explore && self.shares.is_some();
            let count = if is_share { 1 } else { ((size - begin) / workers).clamp(1, BLOCK_MAX) };
            let order = Ordering::AcqRel;
            match self.claims.compare_exchange_weak(claims, claims + u64::from(count), order, Ordering::Acquire) {
                Ok(_) => return Ok(Piece { round, kind, size, range: begin..begin + count }),
                Err(now) => claims = now,
            }
        }
    }
}

impl Baseline {
    /// Prepares the rounds of a batch. `removes`: whether transactions that abort are removed, and the batch is
    /// evaluated again. `shares`: the number of shares in which chains are dealt out, if they are.
    pub(super) fn prepare_rounds(&mut self, removes: bool, shares: Option<u32>) {
        const NO_CHAIN: u32 = u32::MAX;
        let (units, slots) = (self.flow.units(), self.chain.len());
        // Number the chains, and count their units.
        let mut number = vec![NO_CHAIN; slots];
        let mut counts: Vec<u32> = Vec::new();
        let mut chain_of_unit = Vec::with_capacity(units as usize);
        for unit in 0..units {
            let operations = || self.flow.operations(&self.graph, unit);
            let first = operations().find(|&slot| self.flow.use_of(slot).writes()).or_else(|| operations().next());
            let fresh = counts.len() as u32;
            let chain = match first {
                // It touches no row: a chain of its own.
                None => fresh,
                Some(slot) => {
                    let number = &mut number[self.chain[slot as usize] as usize];
                    *number = if *number == NO_CHAIN { fresh } else { *number };
                    *number
                }
            };
            counts.resize(counts.len().max(chain as usize + 1), 0);
            counts[chain as usize] += 1;
            chain_of_unit.push(chain);
        }
        let Rounds { start, units: by_chain, at, written, removed, active, .. } = &mut self.rounds;
        let mut next = Vec::with_capacity(counts.len());
        start.clear();
        start.push(0);
        for count in &counts {
            let begin = *start.last().expect("begins with 0");
            next.push(begin);
            start.push(begin + count);
        }
        by_chain.clear();
        by_chain.resize(units as usize, 0);
        for (unit, chain) in (0..units).zip(chain_of_unit) {
            by_chain[next[chain as usize] as usize] = unit;
            next[chain as usize] += 1;
        }
        at.clear();
        at.resize_with(counts.len(), AtomicU32::default);
        active.iter_mut().for_each(|active| active.resize_with(counts.len().max(active.len()), AtomicU32::default));
        written.clear();
        written.resize_with(slots, AtomicU32::default);
        removed.clear();
        removed.resize_with(self.transactions as usize, AtomicBool::default);
        (self.rounds.removes, self.rounds.shares) = (removes, shares);
        self.rounds.pass.store(0, Ordering::Relaxed);
        match units {
            0 => self.rounds.begin(0, Kind::Done, 0),
            _ => self.rounds.begin_pass(0),
        }
    }

    pub(super) fn run_in_rounds<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) {
        loop {
            match self.rounds.claim(8) {
                Ok(Piece { round, kind, size, range }) => {
                    let (count, start) = (range.len() as u32, execute.now());
                    match kind {
                        Kind::Explore => range.for_each(|item| self.explore(worker.id, execute, round, item)),
                        Kind::Verdict => {
                            range.for_each(|transaction| self.check_verdict(worker.id, execute, transaction))
                        }
                        Kind::Done => unreachable!("an empty round"),
                    }
                    match self.rounds.passes() {
                        1 => worker.times.useful += execute.now() - start,
                        _ => worker.times.abort += execute.now() - start,
                    }
                    let completed = self.rounds.completed.fetch_add(count, Ordering::AcqRel) + count;
                    assert!(completed <= size, "{completed} items of round {round} are done, of {size}");
                    if completed == size {
                        self.end_round(round, kind);
                    }
                }
                Err(round) => {
                    if self.rounds.kind() == Kind::Done {
                        return;
                    }
                    self.wait_as(worker, execute, || {
                        (self.rounds.claims.load(Ordering::Acquire) >> 32) as u32 != round
                    });
                }
            }
        }
    }

    /// Evaluates a chain of the round, or all chains of a share.
    fn explore<E: Execute + ?Sized>(&self, worker: usize, execute: &E, round: u32, item: u32) {
        let rounds = &self.rounds;
        let Some(shares) = rounds.shares else { return self.evaluate(worker, execute, round, item) };
        let active = &rounds.active[round as usize % 2];
        let is_own = |at: &u32| active[*at as usize].load(Ordering::Relaxed) % shares == item;
        let chains = 0..rounds.chains.load(Ordering::Relaxed);
        chains.filter(is_own).for_each(|at| self.evaluate(worker, execute, round, at));
    }

    /// Evaluates a chain of the round until an operation lacks a value.
    fn evaluate<E: Execute + ?Sized>(&self, worker: usize, execute: &E, round: u32, at: u32) {
        let rounds = &self.rounds;
        let parity = round as usize % 2;
        let chain = rounds.active[parity][at as usize].load(Ordering::Relaxed);
        let pass = rounds.pass.load(Ordering::Relaxed);
        let end = rounds.start[chain as usize + 1];
        let mut next = rounds.at[chain as usize].load(Ordering::Relaxed);
        assert!(next < end, "chain {chain} is in round {round} with nothing left");
        while next < end {
            let unit = rounds.units[next as usize];
            let (transaction, _) = self.flow.unit(unit);
            let operations = || self.flow.operations(&self.graph, unit);
            let is_there = |source: u32| rounds.written[source as usize].load(Ordering::Acquire) == pass;
            if !operations().filter_map(|operation| self.flow.source(operation)).all(is_there) {
                let blocked = rounds.blocked.fetch_add(1, Ordering::Relaxed);
                rounds.active[1 - parity][blocked as usize].store(chain, Ordering::Relaxed);
                break;
            }
            match rounds.removed[transaction as usize].load(Ordering::Relaxed) {
                true => execute.skip(worker, unit),
                false => execute.execute(worker, unit),
            }
            for operation in operations().filter(|&operation| self.flow.use_of(operation).writes()) {
                rounds.written[operation as usize].store(pass, Ordering::Release);
            }
            next += 1;
        }
        rounds.at[chain as usize].store(next, Ordering::Relaxed);
    }

    /// Checks the verdict of a transaction in this pass.
    fn check_verdict<E: Execute + ?Sized>(&self, worker: usize, execute: &E, transaction: u32) {
        let removed = &self.rounds.removed[transaction as usize];
        let was_removed = removed.load(Ordering::Relaxed);
        let aborts = match was_removed {
            true => execute.would_abort(worker, transaction),
            false => execute.judge(worker, transaction),
        };
        if aborts != was_removed {
            removed.store(aborts, Ordering::Relaxed);
            self.rounds.changed.store(true, Ordering::Relaxed);
        }
    }

    fn end_round(&self, round: u32, kind: Kind) {
        let rounds = &self.rounds;
        let blocked = rounds.blocked.load(Ordering::Relaxed);
        match kind {
            Kind::Explore if blocked > 0 => rounds.begin(round + 1, Kind::Explore, blocked),
            Kind::Explore if rounds.removes => rounds.begin(round + 1, Kind::Verdict, self.transactions),
            Kind::Verdict if rounds.changed.load(Ordering::Relaxed) => rounds.begin_pass(round + 1),
            _ => rounds.begin(round + 1, Kind::Done, 0),
        }
    }
}
