//! Operations over versions of rows: which operation reads the value of which other one.
//!
//! **What.** Where each operation that writes leaves its row's value in a version of its own, an operation waits for the
//! last write before it in the chain and for nothing else: reads of a row pass each other, and no write waits for the
//! reads before it. That write is the operation's *source*.
//!
//! A transaction is one unit, or several: its *parts* (operations in the sense of MorphStream §2.1, each with the slots
//! that it uses) and, if it is judged while the epoch is explored, a last unit, its *verdict operation*, which waits for
//! the parts and uses every slot. Who tells the consumers of a version is up to [`Verdicts`].
//!
//! **How.** Computed while the graph is linked, partition by partition and so in parallel. A chain's operations are seen
//! in order; when the next one is seen, all accesses of the one before and its source are known. Consumers are found by
//! walking the chain from a write to the next write; no edge is stored.
//!
//! What is written for a slot belongs to the slot's row, so two workers never write one word. `graph.rs` says why the
//! words are atomics all the same.
//!
//! **Cost.** 12 bytes per slot, 4 per transaction, 12 per unit.

use crate::graph::{Graph, Slot};
use crate::link::Linked;
use crate::precedence::Precedence;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No write before it: the row as the epoch finds it.
const NO_SOURCE: u32 = u32::MAX;
const WRITES: u32 = 1 << 31;

/// The most parts that a transaction may have, its verdict operation not counted.
pub const PARTS_MAX: usize = 30;

/// The use of a slot by its transaction: which parts use it, and whether it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use(u32);

impl Use {
    /// Makes the use of a row by the parts whose bits are set: by one at the most, if it is written.
    pub fn new(parts: u32, writes: bool) -> Self {
        debug_assert!(parts < 1 << PARTS_MAX, "parts {parts:#b}, more than {PARTS_MAX}");
        debug_assert!(!writes || parts.count_ones() <= 1, "parts {parts:#b} use a slot that one of them writes");
        Use(parts | if writes { WRITES } else { 0 })
    }

    /// Returns the bits of the parts.
    pub fn parts(self) -> u32 {
        self.0 & !WRITES
    }

    /// Returns whether a part uses the slot.
    #[inline]
    pub fn by(self, part: u32) -> bool {
        self.0 >> part & 1 == 1
    }

    /// Calls `see` with each part that uses it, in order.
    #[inline]
    fn each_part(self, mut see: impl FnMut(u32)) {
        let mut left = self.parts();
        while left != 0 {
            see(left.trailing_zeros());
            left &= left - 1;
        }
    }

    /// Returns the use by a transaction that is whole.
    pub(crate) fn whole(self) -> Use {
        Use(self.0 & WRITES)
    }

    /// Returns whether any part writes the slot.
    pub fn writes(self) -> bool {
        self.0 & WRITES != 0
    }
}

/// The number of parts of a transaction: 0 for one that stays whole, which is one unit.
pub type Parts = u8;

/// The uses of an epoch's slots and the parts of its transactions; cleared and filled again for each epoch.
#[derive(Clone, Debug, Default)]
pub struct UseBuffer {
    /// The use of each access, by slot.
    pub uses: Vec<Use>,
    /// The parts of each transaction, by transaction.
    pub parts: Vec<Parts>,
}

impl UseBuffer {
    /// Removes all, keeps the memory.
    pub fn clear(&mut self) {
        self.uses.clear();
        self.parts.clear();
    }
}

/// The time at which transactions in parts are judged. A whole transaction votes as it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdicts {
    /// A verdict operation judges before any other transaction reads what the parts have written: the verdict operation
    /// tells those that wait for a version of its transaction.
    #[default]
    First,
    /// A verdict operation judges while others read already what the parts have written.
    Beside,
    /// No transaction is judged while the epoch is explored.
    After,
}

/// The flow of values between the units of an epoch. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub struct Flow {
    /// Slot → the slot of its operation: itself unless it is an alias.
    operation: Vec<AtomicU32>,
    /// Slot of an operation → its source.
    source: Vec<AtomicU32>,
    /// Slot of an operation → the use of all its accesses together ([`Use`]).
    uses: Vec<AtomicU32>,
    /// First unit of each transaction, and the end.
    unit_start: Vec<u32>,
    /// Unit → its transaction.
    transaction: Vec<u32>,
    /// Unit → the range of slots in which all that it uses are: the first, and one past the last.
    span: Vec<(u32, u32)>,
    verdicts: Verdicts,
}

impl Flow {
    /// Makes an empty flow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins an epoch, given the uses of its accesses and the first slot of each transaction. The flow may be read once
    /// every partition has been linked by [`Graph::link_and_follow`]. A transaction in parts has no row in two slots.
    pub fn begin(&mut self, buffer: &UseBuffer, op_start: &[u32], verdicts: Verdicts) {
        let slots = op_start.last().map_or(0, |&end| end as usize);
        assert_eq!(buffer.uses.len(), slots, "each slot has a use");
        assert_eq!(buffer.parts.len(), op_start.len() - 1, "each transaction has a number of parts");
        self.verdicts = verdicts;
        if self.operation.len() < slots {
            for words in [&mut self.operation, &mut self.source, &mut self.uses] {
                words.resize_with(slots, AtomicU32::default);
            }
        }
        self.unit_start.clear();
        self.unit_start.push(0);
        self.transaction.clear();
        self.span.clear();
        for (transaction, &parts) in (0..).zip(&buffer.parts) {
            let (start, end) = (op_start[transaction as usize], op_start[transaction as usize + 1]);
            assert!(usize::from(parts) <= PARTS_MAX, "transaction {transaction} has {parts} parts, over {PARTS_MAX}");
            let range = start as usize..end as usize;
            let first = self.span.len();
            self.span.resize(first + usize::from(parts), (end, start));
            if parts == 0 || verdicts != Verdicts::After {
                self.span.push((start, end));
            }
            for (slot, (uses, given)) in (start..).zip(self.uses[range.clone()].iter_mut().zip(&buffer.uses[range])) {
                // The only part of a whole transaction uses every slot, and so does a verdict operation, whether it is a unit or not.
                *uses.get_mut() = given.0 | 1 << parts;
                if parts > 0 {
                    given.each_part(|part| {
                        let span = &mut self.span[first + part as usize];
                        *span = (span.0.min(slot), slot + 1);
                    });
                }
            }
            self.transaction.resize(self.span.len(), transaction);
            self.unit_start.push(self.transaction.len() as u32);
        }
        assert_eq!(self.transaction.len(), self.span.len(), "each unit has a transaction");
    }

    #[inline]
    pub(crate) fn see(&self, linked: Linked) {
        match linked {
            Linked::First { slot } => self.begin_operation(slot, NO_SOURCE),
            Linked::Next { slot, before, .. } => {
                debug_assert!(before < slot, "the source of slot {slot} comes after it");
                let writes = self.use_of(before).writes();
                let source = if writes { before } else { self.source[before as usize].load(Relaxed) };
                self.begin_operation(slot, source);
            }
            Linked::Alias { slot, of } => {
                self.operation[slot as usize].store(of, Relaxed);
                let all = self.uses[of as usize].load(Relaxed) | self.uses[slot as usize].load(Relaxed);
                self.uses[of as usize].store(all, Relaxed);
            }
        }
    }

    fn begin_operation(&self, slot: u32, source: u32) {
        self.operation[slot as usize].store(slot, Relaxed);
        self.source[slot as usize].store(source, Relaxed);
    }

    /// Returns the number of units.
    pub fn units(&self) -> u32 {
        self.transaction.len() as u32
    }

    /// Returns the transaction of a unit, and which of its units it is.
    #[inline]
    pub fn unit(&self, unit: u32) -> (u32, u32) {
        let transaction = self.transaction[unit as usize];
        (transaction, unit - self.unit_start[transaction as usize])
    }

    /// Returns the units of a transaction.
    #[inline]
    pub fn units_of(&self, transaction: u32) -> std::ops::Range<u32> {
        self.unit_start[transaction as usize]..self.unit_start[transaction as usize + 1]
    }

    /// Returns the operations that a unit uses, in slot order.
    #[inline]
    pub fn operations<'a>(&'a self, graph: &'a Graph, unit: u32) -> impl Iterator<Item = u32> + 'a {
        let (first, end) = self.span[unit as usize];
        let (_, part) = self.unit(unit);
        graph.operations_among(first..end.max(first)).filter(move |&slot| self.use_of(slot).by(part))
    }

    /// Returns whether a unit is the verdict operation of its transaction.
    #[inline]
    pub fn is_verdict_unit(&self, unit: u32) -> bool {
        let units = self.units_of(self.transaction[unit as usize]);
        self.verdicts != Verdicts::After && units.len() > 1 && unit + 1 == units.end
    }

    /// Returns the slot that carries the operation of a slot.
    #[inline]
    pub fn operation(&self, slot: u32) -> u32 {
        self.operation[slot as usize].load(Relaxed)
    }

    /// Returns the operation whose value an operation starts from; none where it is the row itself.
    #[inline]
    pub fn source(&self, operation: u32) -> Option<u32> {
        let source = self.source[operation as usize].load(Relaxed);
        (source != NO_SOURCE).then_some(source)
    }

    /// Returns the use of an operation by its transaction. Bit 0 stands for a transaction that is whole, the bit after
    /// the parts for the verdict operation of one in parts.
    #[inline]
    pub fn use_of(&self, operation: u32) -> Use {
        Use(self.uses[operation as usize].load(Relaxed))
    }

    /// Returns the last operation of a chain that writes, the slot's or an earlier one, for the slot of the chain's
    /// last operation. None if no operation of the chain writes, and for all other slots.
    #[inline]
    pub fn last_write(&self, graph: &Graph, slot: u32) -> Option<u32> {
        let Slot::Operation { next: None, .. } = graph.slot(slot) else { return None };
        if self.use_of(slot).writes() { Some(slot) } else { self.source(slot) }
    }

    /// Calls `see` with the slot and transaction of each operation that an operation is the source of.
    #[inline]
    pub fn consumers(&self, graph: &Graph, operation: u32, mut see: impl FnMut(u32, u32)) {
        if !self.use_of(operation).writes() {
            return;
        }
        let mut at = operation;
        while let Slot::Operation { next: Some(next), next_transaction: Some(transaction), .. } = graph.slot(at) {
            see(next, transaction);
            if self.use_of(next).writes() {
                return;
            }
            at = next;
        }
    }
}

/// A flow with the graph along which it was computed.
#[derive(Clone, Copy, Debug)]
pub struct Versions<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The flow.
    pub flow: &'a Flow,
}

impl Precedence for Versions<'_> {
    fn units(&self) -> u32 {
        self.flow.units()
    }

    fn pending(&self, unit: u32) -> u32 {
        let waits = |slot: &u32| self.flow.source(*slot).is_some();
        let sources = self.flow.operations(self.graph, unit).filter(waits).count() as u32;
        sources + if self.flow.is_verdict_unit(unit) { self.flow.unit(unit).1 } else { 0 }
    }

    fn tell(&self, unit: u32, mut told: impl FnMut(u32)) {
        let last = self.flow.units_of(self.flow.unit(unit).0).end - 1;
        let has_verdict = self.flow.is_verdict_unit(last);
        if has_verdict && unit != last {
            told(last);
        }
        let publishes = !has_verdict || (unit == last) == (self.flow.verdicts == Verdicts::First);
        if !publishes {
            return;
        }
        for slot in self.flow.operations(self.graph, unit) {
            self.flow.consumers(self.graph, slot, |next, consumer| {
                let units = self.flow.units_of(consumer);
                self.flow.use_of(next).each_part(|part| {
                    // Without a verdict operation, no unit has the verdict operation's bit.
                    if units.start + part < units.end {
                        told(units.start + part);
                    }
                });
            });
        }
    }
}
