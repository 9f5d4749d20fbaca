//! Transactions over versions, with numbers for rows: what they write and whether they abort are hashes of what they
//! read, so a transaction that reads a wrong version, or keeps one, gives another result.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidemill_schedule::{Baseline, Execute, Executor, Known, Policy, Scheme, Worker};
use tidemill_txn::sample::Random;
use tidemill_txn::{AccessBuffer, Flow, Partitioning, RowId, SortedAccesses, Use, UseBuffer};

/// An access to a row.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub row: u64,
    /// The bits of the parts that use the row; where there is none of such a number, only the verdict operation does.
    parts: u32,
    /// The part that writes the row, if one does.
    writer: Option<u32>,
}

impl Access {
    /// Returns an access of a part that only reads, or of a whole transaction.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn reads(row: u64, part: u32) -> Access {
        Access { row, parts: 1 << part, writer: None }
    }

    /// Returns an access of a part that writes, or of a whole transaction.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn writes(row: u64, part: u32) -> Access {
        Access { row, parts: 1 << part, writer: Some(part) }
    }

    /// Returns whether a part uses the row, or the whole transaction.
    fn is_of(&self, part: Option<u32>) -> bool {
        part.is_none_or(|part| self.parts >> part & 1 == 1)
    }

    /// Returns whether a part writes the row, or the whole transaction.
    fn is_written_by(&self, part: Option<u32>) -> bool {
        self.writer.is_some() && part.is_none_or(|part| self.writer == Some(part))
    }
}

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

/// The value of a version while it is written.
const TORN: u32 = 1;

fn mix(value: u32) -> u32 {
    let value = (value ^ (value >> 15)).wrapping_mul(0x85eb_ca6b);
    let value = (value ^ (value >> 13)).wrapping_mul(0xc2b2_ae35);
    value ^ (value >> 16)
}

fn row(number: u64) -> u32 {
    mix(number as u32 + 77)
}

/// Returns the value that a part writes to a row, given the value that it finds.
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
            return vec![
                (1, vec![Access::writes(first, 0)]),
                (1, vec![Access::writes(first, 0), Access::reads(other, 1)]),
            ];
        }
    }
    unreachable!("there are rows enough")
}

/// Two transactions in parts that abort, each on a row of its own, and for each of them a whole one that reads its row.
#[allow(dead_code, reason = "not all tests use all of it")]
pub fn aborts_side_by_side(aborting: u32) -> Vec<Transaction> {
    let aborts = |number: &u64| mix(mix(1 ^ row(*number))).is_multiple_of(aborting);
    let rows: Vec<u64> = (0..).filter(aborts).take(2).collect();
    [1, 0].iter().flat_map(|&parts| rows.iter().map(move |&number| (parts, vec![Access::writes(number, 0)]))).collect()
}

/// Returns a transaction on few rows, each of them once, in parts or whole. Several parts may read a row that none of
/// them writes.
#[allow(dead_code, reason = "not all tests use all of it")]
pub fn random_transaction(random: &mut Random, rows: u64) -> Transaction {
    let parts = random.below(4) as u8;
    let mut accesses: Vec<Access> = Vec::new();
    for _ in 0..random.below(5) {
        let row = random.below(rows);
        if accesses.iter().all(|access| access.row != row) {
            accesses.push(match random.below(2) {
                0 => Access { row, parts: random.below(1 << parts) as u32, writer: None },
                _ => Access::writes(row, random.below(u64::from(parts.max(1))) as u32),
            });
        }
    }
    (parts, accesses)
}

impl Model {
    /// Prepares an epoch under a policy that works on versions, for workers on these sockets.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn new(transactions: Vec<Transaction>, aborting: u32, policy: Policy, sockets: &[usize]) -> Self {
        Model::told(transactions, aborting, policy, sockets, |_| {})
    }

    /// Prepares an epoch as [`Model::new`] does; `changes` what the executor is told of how rows are used.
    #[allow(dead_code, reason = "not all tests use all of it")]
    pub fn told(
        transactions: Vec<Transaction>,
        aborting: u32,
        policy: Policy,
        sockets: &[usize],
        changes: impl FnOnce(&mut [Use]),
    ) -> Self {
        let mut model = Model::of(transactions, aborting, policy.takes_apart());
        changes(&mut model.uses.uses);
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

    /// Prepares an epoch under a scheme with transactions that cannot be run again: all are whole.
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
            epoch.push(accesses.iter().map(|access| RowId(access.row)));
            let apart = takes_apart && *parts > 0;
            uses.parts.push(if apart { *parts } else { 0 });
            let all = if apart { (1 << parts) - 1 } else { 0 };
            let used = |access: &Access| Use::new(access.parts & all, access.writer.is_some());
            uses.uses.extend(accesses.iter().map(used));
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

    /// Returns a hash of what the accesses of a part (or all accesses) find.
    fn reads(&self, transaction: u32, part: Option<u32>) -> u32 {
        let used = self.slots(transaction).filter(|(_, access)| access.is_of(part));
        used.fold(1, |all, (slot, access)| mix(all ^ self.source(slot, access.row)))
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
        for (slot, access) in self.slots(transaction) {
            if access.is_written_by(part) {
                let found = self.source(slot, access.row);
                let value = if aborts { found } else { written(transaction, reads, found) };
                self.versions[slot as usize].store(TORN, Relaxed);
                self.versions[slot as usize].store(value, Relaxed);
            }
        }
    }

    /// Returns the versions, by slot; 0 where nothing is written.
    pub fn result(&self) -> Vec<u32> {
        self.versions.iter().map(|version| version.load(Relaxed)).collect()
    }

    /// Returns the expected versions, computed one transaction after the other.
    pub fn expected(&self) -> Vec<u32> {
        let mut rows = std::collections::BTreeMap::new();
        let mut result = Vec::new();
        for (t, (parts, accesses)) in self.transactions.iter().enumerate() {
            let t = t as u32;
            let find = |number: u64| *rows.get(&number).unwrap_or(&row(number));
            let reads = |part: Option<u32>| {
                let used = accesses.iter().filter(|access| access.is_of(part));
                used.fold(1, |all, access| mix(all ^ find(access.row)))
            };
            let aborts = self.aborting > 0 && mix(reads(None)).is_multiple_of(self.aborting);
            let value = |access: &Access| match (access.writer, aborts) {
                (None, _) => 0,
                (Some(_), true) => find(access.row),
                (Some(part), false) => written(t, reads((*parts > 0).then_some(part)), find(access.row)),
            };
            let values: Vec<u32> = accesses.iter().map(value).collect();
            for (access, value) in accesses.iter().zip(&values).filter(|(access, _)| access.writer.is_some()) {
                rows.insert(access.row, *value);
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
        let part = self.is_apart(transaction).then_some(part);
        for (slot, access) in self.slots(transaction) {
            if access.is_written_by(part) {
                self.versions[slot as usize].store(self.source(slot, access.row), Relaxed);
            }
        }
    }

    fn would_abort(&self, _worker: usize, transaction: u32) -> bool {
        self.aborts(transaction)
    }

    fn revert(&self, _worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
        for (slot, access) in self.slots(transaction) {
            if access.writer.is_some() {
                let found = self.source(slot, access.row);
                if self.versions[slot as usize].swap(found, Relaxed) != found {
                    changed(slot);
                }
            }
        }
    }

    fn redo(&self, worker: usize, transaction: u32, parts: u32, judged: bool, changed: &mut dyn FnMut(u32)) -> bool {
        let slots = || self.slots(transaction).filter(|(_, access)| access.writer.is_some()).map(|(slot, _)| slot);
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
