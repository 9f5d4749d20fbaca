//! Transactions over versions, with numbers for rows: what they write and whether they abort are hashes of what they
//! read, so a transaction that reads a wrong version, or keeps one, gives another result.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidemill_schedule::{Baseline, Execute, Executor, Known, Policy, Scheme, Worker};
use tidemill_txn::sample::Random;
use tidemill_txn::{AccessBuffer, Flow, Partitioning, RowId, SortedAccesses, Use, UseBuffer};

/// An access: the row, the part that it belongs to, whether it writes.
pub type Access = (u64, u32, bool);

/// A transaction: how many parts it is in (0: whole), and its accesses.
pub type Transaction = (u8, Vec<Access>);

/// An epoch as its units see it.
pub struct Model {
    transactions: Vec<Transaction>,
    /// One of this many transactions aborts; none if 0.
    aborting: u32,
    first_slot: Vec<u32>,
    versions: Vec<AtomicU32>,
    epoch: AccessBuffer,
    uses: UseBuffer,
    pub executor: Executor,
    /// Runs the epoch instead of the executor.
    pub baseline: Option<Baseline>,
}

/// What a version holds while it is written.
const TORN: u32 = 1;

fn mix(value: u32) -> u32 {
    let value = (value ^ (value >> 15)).wrapping_mul(0x85eb_ca6b);
    let value = (value ^ (value >> 13)).wrapping_mul(0xc2b2_ae35);
    value ^ (value >> 16)
}

fn row(number: u64) -> u32 {
    mix(number as u32 + 77)
}

/// The value that a part writes to a row, given the value that it finds.
fn written(transaction: u32, reads: u32, found: u32) -> u32 {
    mix(found ^ mix(reads.wrapping_add(transaction)))
}

/// Two transactions in parts, of which the first aborts, and the second does if it finds what the first wrote, and
/// does not if it finds what was there before.
#[allow(dead_code, reason = "not all tests use all of it")]
pub fn aborts_that_turn_round(aborting: u32) -> Vec<Transaction> {
    let aborts = |reads: u32| mix(reads).is_multiple_of(aborting);
    for (first, other) in (0..1_000).flat_map(|first| (1_000..1_100).map(move |other| (first, other))) {
        let found = row(first);
        let reads = mix(1 ^ found);
        let second = |value: u32| mix(mix(1 ^ value) ^ row(other));
        if aborts(reads) && aborts(second(written(0, reads, found))) && !aborts(second(found)) {
            return vec![(1, vec![(first, 0, true)]), (1, vec![(first, 0, true), (other, 1, false)])];
        }
    }
    unreachable!("there are rows enough")
}

/// Two transactions in parts that abort, each on a row of its own, and for each of them a whole one that reads its row.
#[allow(dead_code, reason = "not all tests use all of it")]
pub fn aborts_side_by_side(aborting: u32) -> Vec<Transaction> {
    let aborts = |number: &u64| mix(mix(1 ^ row(*number))).is_multiple_of(aborting);
    let rows: Vec<u64> = (0..).filter(aborts).take(2).collect();
    [1, 0].iter().flat_map(|&parts| rows.iter().map(move |&number| (parts, vec![(number, 0, true)]))).collect()
}

/// A transaction on few rows, each of them once, in parts or whole.
#[allow(dead_code, reason = "not all tests use all of it")]
pub fn random_transaction(random: &mut Random, rows: u64) -> Transaction {
    let parts = random.below(4) as u8;
    let mut accesses: Vec<Access> = Vec::new();
    for _ in 0..random.below(5) {
        let row = random.below(rows);
        if accesses.iter().all(|access| access.0 != row) {
            // A part of no number is the verdict operation's alone: it only reads.
            let part = random.below(u64::from(parts) + 1) as u32;
            let judges = parts > 0 && part == u32::from(parts);
            accesses.push((row, part, !judges && random.below(3) > 0));
        }
    }
    (parts, accesses)
}

impl Model {
    /// Prepares an epoch under a policy that works on versions, for workers on these sockets.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn new(transactions: Vec<Transaction>, aborting: u32, policy: Policy, sockets: &[usize]) -> Self {
        let mut model = Model::of(transactions, aborting, policy.takes_apart());
        let mut run = SortedAccesses::new();
        run.partition(Partitioning::with_bits(1), model.epoch.accesses());
        model.executor = Executor::on_sockets(sockets);
        model.executor.prepare(&mut vec![run]);
        model.executor.arrange(policy, model.epoch.accesses(), &model.uses);
        model
    }

    /// Prepares an epoch under a scheme that works on versions.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn under_scheme(transactions: Vec<Transaction>, aborting: u32, scheme: Scheme, baseline: Baseline) -> Self {
        Model::prepared(Model::of(transactions, aborting, scheme.speculates()), scheme, baseline, true)
    }

    /// The same with transactions that cannot be run again: all are whole.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn once_under_scheme(transactions: Vec<Transaction>, scheme: Scheme, baseline: Baseline) -> Self {
        Model::prepared(Model::of(transactions, 0, false), scheme, baseline, false)
    }

    fn prepared(mut model: Model, scheme: Scheme, baseline: Baseline, may_redo: bool) -> Self {
        let baseline = model.baseline.insert(baseline);
        let known = Known { may_redo, ..Known::default() };
        baseline.prepare(scheme, model.epoch.accesses(), &model.uses, known);
        model
    }

    fn of(transactions: Vec<Transaction>, aborting: u32, takes_apart: bool) -> Self {
        let mut epoch = AccessBuffer::new();
        let mut uses = UseBuffer::default();
        let mut first_slot = Vec::new();
        for (parts, accesses) in &transactions {
            first_slot.push(uses.uses.len() as u32);
            epoch.push(accesses.iter().map(|(row, ..)| RowId(*row)));
            let apart = takes_apart && *parts > 0;
            uses.parts.push(if apart { *parts } else { 0 });
            let mask = |part: u32| if apart && part < u32::from(*parts) { 1 << part } else { 0 };
            uses.uses.extend(accesses.iter().map(|(_, part, writes)| Use::new(mask(*part), *writes)));
        }
        let versions = uses.uses.iter().map(|_| AtomicU32::new(0)).collect();
        let transactions =
            transactions.into_iter().zip(&uses.parts).map(|((_, accesses), parts)| (*parts, accesses)).collect();
        let executor = Executor::new(1);
        Model { transactions, aborting, first_slot, versions, epoch, uses, executor, baseline: None }
    }

    /// Takes part as one worker.
    pub fn work(&self, id: usize) {
        match &self.baseline {
            Some(baseline) => baseline.work(&mut Worker::new(id), self.epoch.accesses(), &self.uses, self),
            None => self.executor.work(&mut Worker::new(id), self),
        }
    }

    fn flow(&self) -> &Flow {
        self.baseline.as_ref().map_or(self.executor.flow(), Baseline::flow)
    }

    fn slots(&self, transaction: u32) -> impl Iterator<Item = (u32, &Access)> {
        let first = self.first_slot[transaction as usize];
        (first..).zip(&self.transactions[transaction as usize].1)
    }

    fn version(&self, slot: u32) -> u32 {
        let value = self.versions[slot as usize].load(Relaxed);
        assert_ne!(value, TORN, "slot {slot} is read while it is written");
        value
    }

    fn source(&self, slot: u32, row_number: u64) -> u32 {
        match self.flow().source(slot) {
            Some(source) => self.version(source),
            None => row(row_number),
        }
    }

    /// A hash of what the accesses of a part (or all accesses) find.
    fn reads(&self, transaction: u32, part: Option<u32>) -> u32 {
        let of_part = |(_, access): &(u32, &Access)| part.is_none_or(|part| access.1 == part);
        self.slots(transaction).filter(of_part).fold(1, |all, (slot, access)| mix(all ^ self.source(slot, access.0)))
    }

    fn aborts(&self, transaction: u32) -> bool {
        self.aborting > 0 && mix(self.reads(transaction, None)).is_multiple_of(self.aborting)
    }

    fn run(&self, transaction: u32, part: Option<u32>) {
        let reads = self.reads(transaction, part);
        #[cfg(not(feature = "loom"))]
        if self.baseline.is_some() && transaction.is_multiple_of(16) {
            // So that others come in between, if they are let.
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        let aborts = part.is_none() && self.aborts(transaction);
        for (slot, &(number, p, writes)) in self.slots(transaction) {
            if writes && part.is_none_or(|part| p == part) {
                let found = self.source(slot, number);
                let value = if aborts { found } else { written(transaction, reads, found) };
                self.versions[slot as usize].store(TORN, Relaxed);
                self.versions[slot as usize].store(value, Relaxed);
            }
        }
    }

    /// The versions, by slot; 0 where nothing is written.
    pub fn result(&self) -> Vec<u32> {
        self.versions.iter().map(|version| version.load(Relaxed)).collect()
    }

    /// The expected versions, computed one transaction after the other.
    pub fn expected(&self) -> Vec<u32> {
        let mut rows = std::collections::BTreeMap::new();
        let mut result = Vec::new();
        for (t, (parts, accesses)) in self.transactions.iter().enumerate() {
            let t = t as u32;
            let find = |number: u64| *rows.get(&number).unwrap_or(&row(number));
            let reads = |part: Option<u32>| {
                let of_part = accesses.iter().filter(|access| part.is_none_or(|part| access.1 == part));
                of_part.fold(1, |all, access| mix(all ^ find(access.0)))
            };
            let aborts = self.aborting > 0 && mix(reads(None)).is_multiple_of(self.aborting);
            let value = |&(number, part, writes): &Access| match (writes, aborts) {
                (false, _) => 0,
                (true, true) => find(number),
                (true, false) => written(t, reads((*parts > 0).then_some(part)), find(number)),
            };
            let values: Vec<u32> = accesses.iter().map(value).collect();
            for (access, value) in accesses.iter().zip(&values).filter(|(access, _)| access.2) {
                rows.insert(access.0, *value);
            }
            result.extend(values);
        }
        result
    }
}

impl Execute for Model {
    fn execute(&self, _worker: usize, unit: u32) {
        let (transaction, part) = self.flow().unit(unit);
        self.run(transaction, self.is_apart(transaction).then_some(part));
    }

    fn is_apart(&self, transaction: u32) -> bool {
        self.transactions[transaction as usize].0 > 0
    }

    fn judge(&self, _worker: usize, transaction: u32) -> bool {
        self.aborts(transaction)
    }

    fn skip(&self, _worker: usize, unit: u32) {
        let (transaction, part) = self.flow().unit(unit);
        for (slot, &(number, p, writes)) in self.slots(transaction) {
            if writes && (p == part || !self.is_apart(transaction)) {
                self.versions[slot as usize].store(self.source(slot, number), Relaxed);
            }
        }
    }

    fn would_abort(&self, _worker: usize, transaction: u32) -> bool {
        self.aborts(transaction)
    }

    fn revert(&self, _worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
        for (slot, &(number, _, writes)) in self.slots(transaction) {
            if writes {
                let found = self.source(slot, number);
                if self.versions[slot as usize].swap(found, Relaxed) != found {
                    changed(slot);
                }
            }
        }
    }

    fn redo(&self, worker: usize, transaction: u32, parts: u32, judged: bool, changed: &mut dyn FnMut(u32)) -> bool {
        let slots = || self.slots(transaction).filter(|(_, access)| access.2).map(|(slot, _)| slot);
        let before: Vec<u32> = slots().map(|slot| self.version(slot)).collect();
        let mut aborts = false;
        if self.is_apart(transaction) {
            let count = u32::from(self.transactions[transaction as usize].0);
            (0..count).filter(|part| parts >> part & 1 == 1).for_each(|part| self.run(transaction, Some(part)));
            if judged && self.judge(worker, transaction) {
                self.revert(worker, transaction, &mut |_| {});
                aborts = true;
            }
        } else {
            self.run(transaction, None);
        }
        let is_other = |(slot, before): &(u32, u32)| self.version(*slot) != *before;
        slots().zip(before).filter(is_other).for_each(|(slot, _)| changed(slot));
        aborts
    }
}
