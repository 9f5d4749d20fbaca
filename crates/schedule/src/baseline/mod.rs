//! The schemes of earlier systems, to measure against: No-Lock, LAL, LWM, PAT, TStream and NOCC.
//!
//! They run the same transactions ([`Execute`]) on the same rows or versions as the policies. They know beforehand what
//! the papers let them know: the rows of each transaction and which of them it writes. They should not lose by poor
//! code: a lock is at most two words in a table that is kept from epoch to epoch, versions have their places before the
//! epoch begins, waiting is spinning, then yielding. One thing is slower than necessary: one worker runs
//! [`Baseline::prepare`], which links the graph of the schemes on versions; the policies link on all workers.
//!
//! | | order | conflicts | described in |
//! |---|---|---|---|
//! | [`Scheme::NoLock`] | none | not resolved: wrong results, an upper bound | TStream 2020 §VI-B |
//! | [`Scheme::Lock`] | one counter | row locks, shared and exclusive | LOCK: TStream 2020 §II-C1; LAL: 2019 §3 |
//! | [`Scheme::MultiVersion`] | one counter | versions, a low-water mark per row | MVLK: §II-C2; LWM: 2019 §3 |
//! | [`Scheme::Partitioned`] | a counter per partition | row locks | PAT: §II-C3; 2019 §3 |
//! | [`Scheme::TStream`] | operation chains | versions, rounds, whole-batch redo | 2020 §IV-C; redo: MorphStream §6.3.1 |
//! | [`Scheme::TStreamDealt`] | the same | the same, without dynamic scheduling | 2019 §6.6 |
//! | [`Scheme::NoOrder`] | none | row locks, no wait | NOCC: TStream 2019 §5 |
//!
//! All but No-Lock and NOCC give the results of the serial order. Workers may come at any time, and one is enough. If
//! `execute` panics, all workers do.

mod locks;
mod ordered;
mod rounds;
mod unordered;
mod versions;

use crate::execute::Execute;
use crate::presence::{Presence, Shared};
use crate::sync::{AtomicBool, AtomicU32, Ordering, SPINS_MAX, spin_loop, yield_now};
use crate::times::Sampler;
use crate::worker::Worker;
use crossbeam_utils::CachePadded;
use std::fmt;
use std::str::FromStr;
use tidemill_txn::{Accesses, Flow, Graph, Scratch, UseBuffer, Verdicts};

/// A scheme of an earlier system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// All transactions at once, without locks. Wrong wherever transactions meet.
    NoLock,
    /// Strict two-phase locking, the locks requested in position order.
    Lock,
    /// Two-phase locking in position order, but on versions: reads do not wait for later writes, nor writes for reads.
    MultiVersion,
    /// Two-phase locking as `Lock`, with a separate order for each of this many partitions.
    Partitioned(u32),
    /// Operation chains in rounds.
    TStream,
    /// Operation chains in rounds, as `TStream`, but each round's chains are dealt out beforehand, in this many shares,
    /// of which a worker takes one at a time: nothing evens out shares that take longer.
    TStreamDealt(u32),
    /// Two-phase locking that releases its locks and tries again instead of waiting; in any order.
    NoOrder,
}

impl Scheme {
    /// All schemes but TStream's without dynamic scheduling; PAT with 16 partitions.
    pub const ALL: [Scheme; 6] =
        [Scheme::NoLock, Scheme::Lock, Scheme::MultiVersion, Scheme::Partitioned(16), Scheme::TStream, Scheme::NoOrder];

    /// Returns whether transactions work on versions of the rows rather than on the rows.
    pub fn on_versions(self) -> bool {
        self == Scheme::MultiVersion || self.in_rounds()
    }

    /// Returns whether updates run before the verdict of their transaction.
    pub fn speculates(self) -> bool {
        self.in_rounds()
    }

    /// Returns whether chains are evaluated in rounds.
    fn in_rounds(self) -> bool {
        matches!(self, Scheme::TStream | Scheme::TStreamDealt(_))
    }

    /// Returns whether it gives the results of the serial order.
    pub fn keeps_order(self) -> bool {
        !matches!(self, Scheme::NoLock | Scheme::NoOrder)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::NoLock => f.write_str("no-lock"),
            Scheme::Lock => f.write_str("lal"),
            Scheme::MultiVersion => f.write_str("lwm"),
            Scheme::Partitioned(partitions) => write!(f, "pat:{partitions}"),
            Scheme::TStream => f.write_str("tstream"),
            Scheme::TStreamDealt(shares) => write!(f, "tstream:{shares}"),
            Scheme::NoOrder => f.write_str("nocc"),
        }
    }
}

/// A text that names no scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no scheme: say no-lock, lal, lwm, pat:16 (or another number of partitions), tstream, tstream:2 (or another number of shares) or nocc"
)]
pub struct SchemeError(String);

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Scheme, SchemeError> {
        let count = |prefix| text.strip_prefix(prefix).and_then(|n: &str| n.parse().ok()).filter(|&n: &u32| n > 0);
        let named = Scheme::ALL.into_iter().find(|scheme| scheme.to_string() == text);
        count("pat:")
            .map(Scheme::Partitioned)
            .or(count("tstream:").map(Scheme::TStreamDealt))
            .or(named)
            .ok_or_else(|| SchemeError(text.into()))
    }
}

/// The facts about an epoch that single schemes need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// A flag: whether transactions can be run again, so that TStream removes those that abort. If not, all are whole
    /// under TStream, too, and there is one pass.
    pub may_redo: bool,
    /// A hash of the key of each row, by slot; PAT divides rows into partitions by it. Other schemes do not look at it.
    pub key_hashes: &'a [u64],
}

/// Runs epochs under a scheme, one at a time. Reused: its tables are kept. Each epoch allocates the list of requests of
/// each worker that locks, the numbers of transactions in PAT's partitions, and the numbering of TStream's chains.
#[derive(Debug)]
pub struct Baseline {
    scheme: Scheme,
    transactions: u32,
    /// The next transaction to run. Claimed by workers.
    next: CachePadded<AtomicU32>,
    /// Transactions run. Added to by the workers that ran them.
    finished: CachePadded<AtomicU32>,
    /// A flag: whether a worker has panicked.
    poisoned: AtomicBool,
    /// Linked by schemes on versions.
    graph: Graph,
    flow: Flow,
    scratch: Scratch,
    /// Slot → the first slot of its chain, for schemes on versions.
    chain: Vec<u32>,
    turns: ordered::Turns,
    locks: Vec<locks::TicketLock>,
    flags: Vec<locks::TryLock>,
    marks: Vec<AtomicU32>,
    rounds: rounds::Rounds,
}

impl Default for Baseline {
    fn default() -> Self {
        Self::new()
    }
}

impl Baseline {
    /// Makes a scheme's memory without an epoch.
    pub fn new() -> Self {
        Baseline {
            scheme: Scheme::NoLock,
            transactions: 0,
            next: CachePadded::new(AtomicU32::new(0)),
            finished: CachePadded::new(AtomicU32::new(0)),
            poisoned: AtomicBool::new(false),
            graph: Graph::new(),
            flow: Flow::new(),
            scratch: Scratch::default(),
            chain: Vec::new(),
            turns: ordered::Turns::default(),
            locks: Vec::new(),
            flags: Vec::new(),
            marks: Vec::new(),
            rounds: rounds::Rounds::default(),
        }
    }

    /// Begins an epoch. `work` must be given the same accesses and uses. Only TStream takes transactions apart; under
    /// the other schemes all are whole.
    pub fn prepare(&mut self, scheme: Scheme, accesses: Accesses<'_>, uses: &UseBuffer, known: Known<'_>) {
        assert_eq!(uses.uses.len(), accesses.rows().len(), "each access has a use");
        let apart = uses.parts.iter().filter(|&&parts| parts > 0).count();
        assert!(known.may_redo || apart == 0, "{apart} transactions are in parts and cannot be run again");
        self.scheme = scheme;
        self.transactions = accesses.transactions() as u32;
        self.next.store(0, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        if self.poisoned.swap(false, Ordering::Relaxed) {
            // After a panic some locks may still be held.
            self.locks.clear();
            self.flags.clear();
        }
        if scheme.on_versions() {
            self.graph.build_and_follow(accesses, uses, Verdicts::After, &mut self.scratch, &mut self.flow);
            self.find_chains(accesses.rows().len());
        }
        match scheme {
            Scheme::NoLock => {}
            Scheme::Lock => self.prepare_turns(1, accesses, known.key_hashes),
            Scheme::Partitioned(partitions) => self.prepare_turns(partitions, accesses, known.key_hashes),
            Scheme::NoOrder => locks::ensure(&mut self.flags, accesses.rows().len()),
            Scheme::MultiVersion => self.prepare_marks(accesses),
            Scheme::TStream => self.prepare_rounds(known.may_redo, None),
            Scheme::TStreamDealt(shares) => self.prepare_rounds(known.may_redo, Some(shares)),
        }
    }

    /// Returns the graph of an epoch on versions.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the flow of an epoch on versions.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns the number of times that the whole batch was run: once, and under TStream once more each time that
    /// verdicts changed.
    pub fn passes(&self) -> u32 {
        if self.scheme.in_rounds() { self.rounds.passes() } else { 1 }
    }

    /// Takes part in the epoch until all has run. The worker's times: inserting requests is `lock`, passes of TStream
    /// after the first are `abort`, and what is neither in units nor waiting is `explore`.
    ///
    /// # Panics
    ///
    /// If `execute` panics, here or on another worker.
    pub fn work<E: Execute + ?Sized>(
        &self,
        worker: &mut Worker,
        accesses: Accesses<'_>,
        uses: &UseBuffer,
        execute: &E,
    ) {
        let _presence = Presence(self);
        worker.sampler = Sampler::default();
        let (start, before) = (execute.now(), worker.times.total());
        match self.scheme {
            Scheme::NoLock => self.run_without_locks(worker, execute),
            Scheme::Lock | Scheme::Partitioned(_) => self.run_in_turns(worker, accesses, uses, execute),
            Scheme::MultiVersion => self.run_on_versions(worker, execute),
            Scheme::TStream | Scheme::TStreamDealt(_) => self.run_in_rounds(worker, execute),
            Scheme::NoOrder => self.run_in_any_order(worker, accesses, uses, execute),
        }
        if !self.scheme.in_rounds() {
            self.wait_as(worker, execute, || self.finished.load(Ordering::Acquire) == self.transactions);
        }
        let accounted = worker.times.total() - before;
        worker.times.explore += (execute.now() - start).saturating_sub(accounted);
    }

    /// Waits until a condition holds, and counts the time as synchronization.
    fn wait_as<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, condition: impl Fn() -> bool) {
        if !condition() {
            worker.wait(execute, || self.wait(condition));
        }
    }

    /// Runs a transaction, and times some of them.
    #[inline]
    fn run_timed<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E, transaction: u32) {
        if worker.sampler.is_due() {
            let start = execute.now();
            execute.execute(worker.id, transaction);
            worker.times.useful += worker.sampler.took(execute.now() - start);
        } else {
            execute.execute(worker.id, transaction);
        }
    }

    /// Claims the next transactions, at most `count`. The range is empty if none is left.
    fn claim(&self, count: u32) -> std::ops::Range<u32> {
        if self.next.load(Ordering::Relaxed) >= self.transactions {
            return 0..0;
        }
        let begin = self.next.fetch_add(count, Ordering::Relaxed).min(self.transactions);
        begin..begin.saturating_add(count).min(self.transactions)
    }

    fn finish(&self, count: u32) {
        let finished = self.finished.fetch_add(count, Ordering::AcqRel) + count;
        assert!(finished <= self.transactions, "{finished} transactions run of {}", self.transactions);
    }

    fn find_chains(&mut self, slots: usize) {
        self.chain.clear();
        self.chain.extend(0..slots as u32);
        for slot in 0..slots as u32 {
            if let tidemill_txn::Slot::Operation { next: Some(next), .. } = self.graph.slot(slot) {
                self.chain[next as usize] = self.chain[slot as usize];
            }
        }
    }

    fn stop_if_poisoned(&self) {
        assert!(!self.poisoned.load(Ordering::Acquire), "the epoch is stopped: another worker panicked");
    }

    /// Waits until another worker makes a condition hold: spins, then gives the processor away.
    fn wait(&self, condition: impl Fn() -> bool) {
        let mut spins = 0;
        while !condition() {
            self.stop_if_poisoned();
            if spins < SPINS_MAX {
                spins += 1;
                spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

impl Shared for Baseline {
    fn abandon(&self) {
        self.poisoned.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_print() {
        for scheme in Scheme::ALL.into_iter().chain([Scheme::Partitioned(3), Scheme::TStreamDealt(3)]) {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        for wrong in ["pat", "pat:0", "tstream:0", "tstream:", "lock"] {
            assert!(wrong.parse::<Scheme>().is_err(), "{wrong}");
        }
    }
}
