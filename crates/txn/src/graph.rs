//! The task precedence graph of an epoch, in two flat arrays.
//!
//! **What.** `op_start` groups slots by transaction; one word per slot says which slot, of which
//! transaction, comes next in the row's chain, and whether the operation has a predecessor. There is
//! no edge list and no object per vertex: a chain is its `next` fields, a transaction its slots.
//!
//! **Invariants** of a linked graph:
//! 1. An alias has neither successor nor predecessor. Every other slot is an operation.
//! 2. If `b` is the successor of `a`, they have the same row, `b` belongs to a later transaction, and
//!    no transaction between the two touches the row.
//! 3. Each operation is the successor of at most one other; those with the predecessor mark of
//!    exactly one. So the marks of a transaction count the edges that end in it.
//!
//! **How.** [`Graph::assemble`] takes the partitioned slices of the epoch and computes where each begins. Then each
//! partition is linked once, by any worker, in any order ([`Graph::link`]). Then the graph is read. Two workers never
//! link the same row, so no word is written by two of them. Rust cannot express this by dividing the array, since the
//! slots of a partition are spread over all of it; so words are atomics, with relaxed loads and stores, which compile
//! to plain ones. A caller that links on several threads must order all linking before all reading, as a join, a lock
//! or a released counter does.
//!
//! **Cost.** 8 bytes per slot and 4 per transaction here, 16 per slot and 4 per transaction in the
//! runs: 27 bytes per operation in Streaming Ledger, where a transaction has three on average.
//!
//! **Traded away.** A read is an operation like any other, so two reads of a row are ordered although they commute.
//! Letting them pass each other would need a count in place of the predecessor mark.

use crate::access::Accesses;
use crate::flow::{Flow, UseBuffer, Verdicts};
use crate::link::{Linked, Linker};
use crate::partition::{Partitioning, SortedAccesses};
use crate::summary::ChainSummary;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most slots of an epoch; two larger numbers have special meanings.
const SLOTS_MAX: u32 = NO_SLOT - 2;
const NO_SLOT: u32 = u32::MAX >> 1;
const ALIAS_SLOT: u32 = NO_SLOT - 1;
const NO_TRANSACTION: u32 = u32::MAX;

/// A slot's place in its chain. From the top: 1 bit has a predecessor, 31 bits the successor's slot,
/// 32 bits the successor's transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub(crate) const ALIAS: Word = Word(((ALIAS_SLOT as u64) << 32) | NO_TRANSACTION as u64);

    #[inline]
    pub(crate) fn followed_by(slot: u32, transaction: u32, has_predecessor: bool) -> Word {
        Word((u64::from(has_predecessor) << 63) | (u64::from(slot) << 32) | u64::from(transaction))
    }

    #[inline]
    pub(crate) fn last(has_predecessor: bool) -> Word {
        Word::followed_by(NO_SLOT, NO_TRANSACTION, has_predecessor)
    }

    #[inline]
    fn predecessors(self) -> u32 {
        (self.0 >> 63) as u32
    }

    #[inline]
    fn next_transaction(self) -> Option<u32> {
        let transaction = self.0 as u32;
        (transaction != NO_TRANSACTION).then_some(transaction)
    }

    fn next_slot(self) -> u32 {
        (self.0 >> 32) as u32 & NO_SLOT
    }
}

/// The meaning of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A further access to a row that an earlier slot of the transaction accesses.
    Alias,
    /// An operation and its place in the row's chain.
    Operation {
        /// The slot of the successor.
        next: Option<u32>,
        /// The transaction of the successor.
        next_transaction: Option<u32>,
        /// A flag: whether the operation is the successor of another one.
        has_predecessor: bool,
    },
}

/// The task precedence graph of an epoch. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub struct Graph {
    /// First slot of each transaction, and the end.
    op_start: Vec<u32>,
    /// The operation of each slot; as long as the largest epoch so far, `op_start` says how much is in use. Written by
    /// the one worker that links the slot's partition; read by all after linking.
    words: Vec<AtomicU64>,
    partitioning: Partitioning,
}

/// The working memory of [`Graph::build`].
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    run: SortedAccesses,
    linker: Linker,
}

impl Graph {
    /// Makes a graph without transactions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds the graph of an epoch on the calling thread.
    pub fn build(&mut self, accesses: Accesses<'_>, scratch: &mut Scratch) -> ChainSummary {
        self.build_by(accesses, scratch, |graph, partition, run, linker| graph.link(partition, run, linker))
    }

    /// Builds the graph and computes the flow, given the uses of the accesses.
    pub fn build_and_follow(
        &mut self,
        accesses: Accesses<'_>,
        uses: &UseBuffer,
        verdicts: Verdicts,
        scratch: &mut Scratch,
        flow: &mut Flow,
    ) -> ChainSummary {
        flow.begin(uses, accesses.op_start(), verdicts);
        self.build_by(accesses, scratch, |graph, partition, run, linker| {
            graph.link_and_follow(partition, run, linker, flow)
        })
    }

    fn build_by(
        &mut self,
        accesses: Accesses<'_>,
        scratch: &mut Scratch,
        link: impl Fn(&Graph, usize, &[SortedAccesses], &mut Linker) -> ChainSummary,
    ) -> ChainSummary {
        let Scratch { run, linker } = scratch;
        run.partition(Partitioning::for_accesses(accesses.rows().len()), accesses);
        self.assemble(slice::from_mut(run));
        let mut summary = ChainSummary::default();
        for partition in 0..self.partitions() {
            summary.add(&link(self, partition, slice::from_ref(run), linker));
        }
        summary
    }

    /// Begins a new epoch of these slices, in position order. The graph may be read once every
    /// partition has been linked.
    ///
    /// # Panics
    ///
    /// If the slices are partitioned differently, or an epoch has 2³¹ − 3 slots or more.
    pub fn assemble(&mut self, runs: &mut [SortedAccesses]) {
        self.partitioning = runs.first().map_or(Partitioning::default(), SortedAccesses::partitioning);
        self.op_start.clear();
        self.op_start.push(0);
        let mut slots = 0_usize;
        for run in runs {
            assert_eq!(run.partitioning(), self.partitioning, "all slices of an epoch have one partitioning");
            assert!(slots + run.slots() <= SLOTS_MAX as usize, "an epoch has at most {SLOTS_MAX} slots");
            run.first_slot = slots as u32;
            run.first_transaction = self.transactions();
            let ends = run.op_start().iter().skip(1).map(|end| run.first_slot + end);
            self.op_start.extend(ends);
            slots += run.slots();
        }
        assert!(self.op_start.last() == Some(&(slots as u32)), "the slices have {slots} slots");
        assert!(self.op_start.len() < NO_TRANSACTION as usize, "an epoch has fewer than {NO_TRANSACTION} transactions");
        if self.words.len() < slots {
            self.words.resize_with(slots, AtomicU64::default);
        }
    }

    /// Returns the partitions to link.
    pub fn partitions(&self) -> usize {
        self.partitioning.partitions()
    }

    /// Links one partition of the slices that the epoch was assembled from. Partitions may be linked in parallel; each is
    /// linked once.
    pub fn link(&self, partition: usize, runs: &[SortedAccesses], linker: &mut Linker) -> ChainSummary {
        linker.link(partition, runs, |linked| self.see(linked))
    }

    /// Links a partition and computes its part of the flow.
    pub fn link_and_follow(
        &self,
        partition: usize,
        runs: &[SortedAccesses],
        linker: &mut Linker,
        flow: &Flow,
    ) -> ChainSummary {
        linker.link(partition, runs, |linked| {
            self.see(linked);
            flow.see(linked);
        })
    }

    #[inline]
    fn see(&self, linked: Linked) {
        debug_assert!(!matches!(linked, Linked::Next { slot, before, .. } if before >= slot), "a chain goes back");
        let write = |slot: u32, word: Word| self.words[slot as usize].store(word.0, Relaxed);
        match linked {
            Linked::First { slot } => write(slot, Word::last(false)),
            Linked::Alias { slot, .. } => write(slot, Word::ALIAS),
            Linked::Next { slot, transaction, before, second } => {
                write(before, Word::followed_by(slot, transaction, !second));
                write(slot, Word::last(true));
            }
        }
    }

    /// Returns the number of transactions.
    #[inline]
    pub fn transactions(&self) -> u32 {
        self.op_start.len().saturating_sub(1) as u32
    }

    /// Returns the slots of a transaction.
    #[inline]
    pub fn slots_of(&self, transaction: u32) -> Range<u32> {
        self.op_start[transaction as usize]..self.op_start[transaction as usize + 1]
    }

    /// Returns the meaning of a slot.
    #[inline]
    pub fn slot(&self, slot: u32) -> Slot {
        let word = Word(self.words[slot as usize].load(Relaxed));
        if word == Word::ALIAS {
            return Slot::Alias;
        }
        let next_transaction = word.next_transaction();
        Slot::Operation {
            next: next_transaction.map(|_| word.next_slot()),
            next_transaction,
            has_predecessor: word.predecessors() == 1,
        }
    }

    /// Returns the slots of a transaction that are operations.
    #[inline]
    pub fn operations(&self, transaction: u32) -> impl Iterator<Item = u32> {
        self.operations_among(self.slots_of(transaction))
    }

    /// Returns the slots of a range that are operations, without aliases.
    #[inline]
    pub fn operations_among(&self, slots: Range<u32>) -> impl Iterator<Item = u32> + use<'_> {
        slots.filter(|&slot| self.slot(slot) != Slot::Alias)
    }

    /// Returns the successor's transaction for each operation of a transaction that has a successor: it comes once for
    /// each row that the two share and that no transaction between them touches.
    #[inline]
    pub fn successors(&self, transaction: u32) -> impl Iterator<Item = u32> {
        self.words_of(transaction).filter_map(Word::next_transaction)
    }

    /// Returns the number of a transaction's operations that have a predecessor: the edges that end in it.
    #[inline]
    pub fn pending(&self, transaction: u32) -> u32 {
        self.words_of(transaction).map(Word::predecessors).sum()
    }

    /// Lists the chain of each operation, by its slot; chains are numbered by where they begin.
    pub fn chains(&self, chains: &mut Vec<u32>) {
        let slots = self.op_start.last().copied().unwrap_or(0);
        chains.clear();
        chains.resize(slots as usize, 0);
        let mut count = 0;
        for slot in 0..slots {
            if let Slot::Operation { next, has_predecessor, .. } = self.slot(slot) {
                if !has_predecessor {
                    chains[slot as usize] = count;
                    count += 1;
                }
                if let Some(next) = next {
                    assert!(next > slot, "the successor of slot {slot} is {next}");
                    chains[next as usize] = chains[slot as usize];
                }
            }
        }
    }

    /// Returns the bytes held for the epoch, without the runs.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.op_start[..]) + self.op_start.last().map_or(0, |&end| end as usize * size_of::<AtomicU64>())
    }

    #[inline]
    fn words_of(&self, transaction: u32) -> impl Iterator<Item = Word> {
        let slots = self.slots_of(transaction);
        self.words[slots.start as usize..slots.end as usize].iter().map(|word| Word(word.load(Relaxed)))
    }
}
