//! An epoch's transactions as operations over versions of rows: every operation that writes stores the row's value in a
//! place of its own, and the last version is copied into the row after all operations have run.
//!
//! The [`Flow`] defines which versions exist and which operation reads which; the schedule defines when each part runs.
//! Here a part is a call of compiled code on a few addresses: copies of the rows that it may write, and the sources
//! themselves of the rows that it only reads.
//!
//! # Why the unsafe is sound
//!
//! Only the units of its own transaction write a version (the one part that writes the row), or the one worker that
//! repairs the transaction, while none of its units and of those that read the version runs. Only units that the
//! schedule runs after that one read it. [`Execute`] promises both. Rows are only read until all units have run; then
//! each is written by the one worker that copies its last version. Key cells are never written, because the next
//! epoch's prepare compares them concurrently.

use crate::access::serial::Located;
use crate::access::unit::{Function, UnitBuffers, Units, WorkerScratch};
use crate::epoch::Epoch;
use crate::machine::{InputContext, Machine};
use crate::wiring::InputEvent;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_compile::abi::Verdict;
use tidemill_compile::{AccessContext, OperationCode, OperationsCode, resize_zeroed};
use tidemill_plan::{RoleId, TableId};
use tidemill_schedule::Execute;
use tidemill_txn::{Flow, Graph, PARTS_MAX, Use, UseBuffer};
use typed_index_collections::TiVec;

/// The versions of an epoch. Reused from epoch to epoch.
pub struct Versions {
    /// The uses that the schedule reads.
    pub uses: UseBuffer,
    /// First part of each transaction among `parts` and `failed`.
    part_start: Vec<u32>,
    parts: Vec<TransactionPart>,
    /// A flag for each part: whether it failed when it last ran.
    failed: Vec<AtomicBool>,
    /// Slot → where its version begins among `words`, or [`NO_PLACE`].
    place: Vec<u32>,
    /// Slot → its table.
    table: Vec<TableId>,
    words: Vec<u64>,
    /// The shape of a version of each table's rows, by table.
    shapes: TiVec<TableId, Shape>,
}

/// A part of a transaction: an operation, or an operation on some elements of its list.
#[derive(Clone, Debug)]
struct TransactionPart {
    operation: u32,
    /// Empty if the operation is not by element.
    elements: Range<u32>,
}

const NO_PLACE: u32 = u32::MAX;

/// The number of rows up to which all pairs are compared; more rows are sorted.
const ROWS_COMPARED_MAX: usize = 32;

/// The layout of a table's rows.
#[derive(Clone, Debug)]
struct Shape {
    /// Size of a row in eight-byte words.
    words: usize,
    /// The words that are not part of the key.
    changing: Vec<usize>,
}

impl Versions {
    /// Versions of no epoch.
    pub fn new(machine: &Machine) -> Self {
        Versions {
            uses: UseBuffer::default(),
            part_start: Vec::new(),
            parts: Vec::new(),
            failed: Vec::new(),
            place: Vec::new(),
            table: Vec::new(),
            words: Vec::new(),
            shapes: machine.tables.iter().map(Shape::of).collect(),
        }
    }

    /// Prepares the versions of an epoch whose transactions were located. With `apart`, transactions are split into
    /// parts if they can be.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, located: &Located, apart: bool) {
        let Versions { uses, part_start, parts, failed, place, table, words, shapes, .. } = self;
        uses.clear();
        part_start.clear();
        parts.clear();
        place.clear();
        table.clear();
        let mut word_count = 0;
        let accesses = located.accesses();
        for (t, at) in located.at().iter().enumerate() {
            let input = &epoch.work.inputs[at.input];
            let InputContext { transaction, code, .. } = machine.input(at.input);
            let (roles, operations) = (&transaction.roles, code.operations.as_ref());
            let meets = meet(accesses.rows_of(t));
            let operations = operations.filter(|o| apart && o.operations.len() <= PARTS_MAX && !meets);
            let rows_of = |r: RoleId| input.rows_of(r, at.event as usize, roles[r].over.is_some());
            let first = parts.len();
            if let Some(operations) = operations {
                let length = |list: usize| {
                    let over = roles.iter().position(|role| role.over == Some(list));
                    rows_of(over.expect("an operation by element has a role over the list")).len() as u32
                };
                take_apart(operations, length, parts);
                let has_all = |operation: &OperationCode| operation.roles.len() == roles.len();
                if parts.len() == first + 1 && operations.operations.iter().all(has_all) {
                    // One part that covers all roles gains nothing over the whole transaction.
                    parts.truncate(first);
                }
            }
            part_start.push(first as u32);
            let own = &parts[first..];
            uses.parts.push(own.len() as u8);
            for (r, role) in roles.iter().enumerate() {
                for (element, _) in (0..).zip(rows_of(r)).filter(|(_, row)| **row != 0) {
                    let mask = operations.map_or(0, |o| parts_of(o, own, r, role.over, element));
                    uses.uses.push(Use::new(mask, role.written));
                    table.push(role.table);
                    // If several roles name one row, the first of them holds its version, whether it writes or not.
                    let needs_place = role.written || meets;
                    place.push(if needs_place { word_count as u32 } else { NO_PLACE });
                    word_count += if needs_place { shapes[role.table].words } else { 0 };
                    assert!(word_count < NO_PLACE as usize, "the versions of an epoch are numbered by u32");
                }
            }
        }
        failed.clear();
        failed.resize_with(parts.len(), AtomicBool::default);
        if words.len() < word_count {
            resize_zeroed(words, word_count);
        }
    }

    /// Records only which accesses write.
    pub fn fill_uses(&mut self, machine: &Machine, epoch: &Epoch, located: &Located) {
        let uses = &mut self.uses;
        uses.clear();
        for at in located.at() {
            uses.parts.push(0);
            for (r, role) in machine.input(at.input).roles().iter().enumerate() {
                let rows = epoch.work.inputs[at.input].rows_of(r, at.event as usize, role.over.is_some());
                let there = rows.iter().filter(|&&row| row != 0);
                uses.uses.extend(there.map(|_| Use::new(0, role.written)));
            }
        }
    }

    /// Copies last versions into rows: those of the chains whose last operation is in one of these slots. Called after
    /// all units have run, once for each slot; several workers may call it at a time, for different slots.
    pub fn copy_last(&self, slots: Range<u32>, located: &Located, graph: &Graph, flow: &Flow) {
        let rows = located.accesses().rows();
        for slot in slots {
            let Some(last) = flow.last_write(graph, slot) else { continue };
            let version = &self.words[self.place_of(last)..];
            let row = rows[slot as usize].0 as *mut u64;
            for &word in &self.shapes[self.table[slot as usize]].changing {
                #[allow(unsafe_code)]
                // SAFETY: a row of the table, which no other thread accesses now, since one operation is its chain's last;
                // the words of its key are left out.
                unsafe {
                    row.add(word).write(version[word]);
                }
            }
        }
    }

    /// Returns the place where the version of a written operation begins.
    fn place_of(&self, operation: u32) -> usize {
        let place = self.place[operation as usize];
        debug_assert_ne!(place, NO_PLACE);
        place as usize
    }
}

/// Lists the parts of a transaction whose lists have these lengths. An operation by element gets one part per element,
/// or, if those are too many, the maximum number of parts with about equal numbers of elements. For an empty list it
/// gets one part as well, because code outside of the loops may fail.
fn take_apart(operations: &OperationsCode, length: impl Fn(usize) -> u32, parts: &mut Vec<TransactionPart>) {
    let by_element = operations.operations.iter().filter(|operation| operation.list.is_some()).count();
    let most = (PARTS_MAX - (operations.operations.len() - by_element)) / by_element.max(1);
    for (operation, code) in (0..).zip(&operations.operations) {
        let Some(list) = code.list else {
            parts.push(TransactionPart { operation, elements: 0..0 });
            continue;
        };
        let length = length(list);
        let pieces = length.clamp(1, most as u32);
        let start = |piece: u32| (u64::from(piece) * u64::from(length) / u64::from(pieces)) as u32;
        parts.extend((0..pieces).map(|piece| TransactionPart { operation, elements: start(piece)..start(piece + 1) }));
    }
}

/// Returns the parts of a transaction that use the row of a role; for a role over a list, the row of this element.
fn parts_of(
    operations: &OperationsCode,
    parts: &[TransactionPart],
    role: RoleId,
    over: Option<usize>,
    element: u32,
) -> u32 {
    let uses = |part: &TransactionPart| {
        let code = &operations.operations[part.operation as usize];
        let is_other = code.list.is_some() && over.is_some() && !part.elements.contains(&element);
        code.roles.contains(&role) && !is_other
    };
    (0..).zip(parts).filter(|(_, part)| uses(part)).fold(0, |all, (p, _): (u32, _)| all | 1 << p)
}

/// Returns whether two accesses of a transaction refer to the same row.
fn meet(rows: &[tidemill_txn::RowId]) -> bool {
    if rows.len() <= ROWS_COMPARED_MAX {
        return rows.iter().enumerate().any(|(i, row)| rows[..i].contains(row));
    }
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

impl Shape {
    fn of(table: &tidemill_state::Table) -> Shape {
        let words = table.layout().size() / 8;
        let key: Vec<usize> = table.definition().key.iter().map(|&c| table.layout().cell(c) / 8).collect();
        Shape { words, changing: (0..words).filter(|word| !key.contains(word)).collect() }
    }
}

/// An epoch's transactions as the schedule runs them on versions.
pub struct VersionWork<'a> {
    units: Units<'a>,
    versions: &'a Versions,
    graph: &'a Graph,
    flow: &'a Flow,
    words: *mut u64,
}

#[allow(unsafe_code)]
// SAFETY: workers write disjoint parts of the versions, as `Execute` promises.
unsafe impl Sync for VersionWork<'_> {}

/// The code to run for a transaction.
#[derive(Clone, Copy)]
enum Code {
    Whole,
    Part(u32),
}

impl<'a> VersionWork<'a> {
    /// Makes the work on an epoch whose versions were filled and whose flow was computed.
    pub fn new(units: Units<'a>, versions: &'a Versions, graph: &'a Graph, flow: &'a Flow) -> Self {
        let words = versions.words.as_ptr().cast_mut();
        VersionWork { units, versions, graph, flow, words }
    }

    fn operations_code(&self, transaction: u32) -> &OperationsCode {
        self.units
            .machine
            .input(self.units.at(transaction).input)
            .code
            .operations
            .as_ref()
            .expect("a transaction in parts has their code")
    }

    fn words_of(&self, operation: u32) -> usize {
        self.versions.shapes[self.versions.table[operation as usize]].words
    }

    fn version(&self, operation: u32) -> *mut u64 {
        self.words.wrapping_add(self.versions.place_of(operation))
    }

    /// Returns the value that an operation reads: an earlier version or the row itself.
    fn source(&self, operation: u32) -> *const u64 {
        match self.flow.source(operation) {
            Some(source) => self.version(source),
            None => self.units.row(operation).cast_const(),
        }
    }

    fn written(&self, transaction: u32) -> impl Iterator<Item = u32> {
        self.graph.operations(transaction).filter(|&operation| self.flow.use_of(operation).writes())
    }

    /// Copies the source of an operation.
    fn copy_source(&self, operation: u32, to: *mut u64) {
        #[allow(unsafe_code)]
        // SAFETY: both are as long as rows of the operation's table; no thread writes the source now, and `to` belongs
        // to the caller alone.
        unsafe {
            std::ptr::copy_nonoverlapping(self.source(operation), to, self.words_of(operation));
        }
    }

    /// Returns a version's words.
    fn value(&self, operation: u32) -> &[u64] {
        #[allow(unsafe_code)]
        // SAFETY: the version is among `words`; as `Execute` promises, no thread writes it now.
        unsafe {
            std::slice::from_raw_parts(self.version(operation), self.words_of(operation))
        }
    }

    /// Copies the source into the version; returns whether that changes the version.
    fn put_back(&self, operation: u32) -> bool {
        #[allow(unsafe_code)]
        // SAFETY: as in `copy_source`.
        let source = unsafe { std::slice::from_raw_parts(self.source(operation), self.words_of(operation)) };
        if self.value(operation) == source {
            return false;
        }
        self.copy_source(operation, self.version(operation));
        true
    }

    /// Runs a part, or the whole transaction, on its versions. Returns whether it aborts or fails.
    fn run(&self, scratch: &mut WorkerScratch, transaction: u32, code: Code) -> bool {
        let part = if let Code::Part(part) = code { part } else { 0 };
        let uses = |operation: u32| self.flow.use_of(operation).by(part);
        let unit = self.flow.units_of(transaction).start + part;
        let operations = self.flow.operations(self.graph, unit);
        for operation in operations.filter(|&operation| self.flow.use_of(operation).writes()) {
            self.copy_source(operation, self.version(operation));
        }
        let row = |_: RoleId, operation: u32| match uses(operation) {
            false => 0,
            true if self.flow.use_of(operation).writes() => self.version(operation) as u64,
            true => self.source(operation) as u64,
        };
        let WorkerScratch { context, buffers } = scratch;
        match code {
            Code::Whole => {
                let at = self.units.at(transaction);
                self.call(context, buffers, transaction, Function::whole(self.units.run_of(at.input), &[]), row);
                self.aborted(at)
            }
            Code::Part(part) => {
                let mut verdict = Verdict::COMMITTED;
                let place = (self.versions.part_start[transaction as usize] + part) as usize;
                let TransactionPart { operation, elements } = self.versions.parts[place].clone();
                let code = &self.operations_code(transaction).operations[operation as usize];
                context.set_elements(elements.clone());
                let elements = code.list.map(|list| (list, elements));
                let told = Some(&mut verdict);
                let function = Function { run: code.run, further: &[], elements, verdict: told };
                self.call(context, buffers, transaction, function, row);
                let failed = !verdict.is_committed();
                self.versions.failed[place].store(failed, Ordering::Relaxed);
                failed
            }
        }
    }

    /// Returns whether the last function that wrote the event's verdict aborted it. No worker writes it now.
    fn aborted(&self, at: InputEvent) -> bool {
        let verdicts = self.units.view(at.input).verdicts;
        #[allow(unsafe_code)]
        // SAFETY: the event's place exists; this worker was the last to write it, or the schedule orders it after that
        // one.
        let verdict = unsafe { verdicts.add(at.event as usize).read() };
        !verdict.is_committed()
    }

    /// Runs a function on the rows as they are before the transaction. Roles that it updates get copies; the roles
    /// in `function.further` follow the transaction's own roles. Returns whether it aborts.
    fn try_out(
        &self,
        WorkerScratch { context, buffers }: &mut WorkerScratch,
        transaction: u32,
        function: Function<'_>,
        updates: impl Fn(RoleId, u32) -> bool,
    ) -> bool {
        let at = self.units.at(transaction);
        let roles = self.units.machine.input(at.input).roles().len();
        let mut copies = std::mem::take(&mut buffers.copies);
        // The versions of a transaction are contiguous, and so are the copies.
        let first = self.written(transaction).next().map_or(0, |operation| self.versions.place_of(operation));
        let last = self.written(transaction).last();
        let end = last.map_or(first, |operation| self.versions.place_of(operation) + self.words_of(operation));
        copies.resize((end - first).max(copies.len()), 0);
        let base = copies.as_mut_ptr();
        let row = |role: RoleId, operation: u32| {
            if role >= roles {
                self.version(operation) as u64
            } else if updates(role, operation) {
                let copy = base.wrapping_add(self.versions.place_of(operation) - first);
                self.copy_source(operation, copy);
                copy as u64
            } else {
                self.source(operation) as u64
            }
        };
        self.call(context, buffers, transaction, function, row);
        buffers.copies = copies;
        self.aborted(at)
    }

    /// Runs a transaction as a whole on copies, to find out whether it aborts and why. Roles that meet in a row share
    /// the copy.
    fn try_whole(&self, scratch: &mut WorkerScratch, transaction: u32) -> bool {
        let run = self.units.run_of(self.units.at(transaction).input);
        let updates = |_, operation| self.flow.use_of(operation).writes();
        self.try_out(scratch, transaction, Function::whole(run, &[]), updates)
    }

    fn judge_at(&self, scratch: &mut WorkerScratch, transaction: u32) -> bool {
        let code = self.operations_code(transaction);
        let first = self.versions.part_start[transaction as usize] as usize;
        let count = self.versions.uses.parts[transaction as usize] as usize;
        let failed = self.versions.failed[first..first + count].iter().any(|part| part.load(Ordering::Relaxed));
        let verdict = Function::whole(code.verdict, &code.outcomes);
        if !failed && !self.try_out(scratch, transaction, verdict, |role, _| code.again[role]) {
            return false;
        }
        // Some part fails, so the whole fails too, and gives the reason.
        assert!(self.try_whole(scratch, transaction), "transaction {transaction} fails in parts and not as a whole");
        true
    }

    /// Calls a function on one event. For each role and operation, `row` gives the row.
    fn call(
        &self,
        context: &mut AccessContext,
        buffers: &mut UnitBuffers,
        transaction: u32,
        function: Function<'_>,
        row: impl Fn(RoleId, u32) -> u64,
    ) {
        self.units.call(context, buffers, transaction, function, |role, slot| row(role, self.flow.operation(slot)));
    }
}

impl Execute for VersionWork<'_> {
    fn execute(&self, worker: usize, unit: u32) {
        let (transaction, part) = self.flow.unit(unit);
        let code = if self.is_apart(transaction) { Code::Part(part) } else { Code::Whole };
        self.run(&mut self.units.scratch(worker), transaction, code);
    }

    fn now(&self) -> u64 {
        self.units.environment.now()
    }

    fn took(&self, worker: usize, unit: u32, ns: u64) {
        let (transaction, _) = self.flow.unit(unit);
        let InputEvent { input, .. } = self.units.at(transaction);
        // Estimate: all units of the transaction take the same time.
        let units = self.flow.units_of(transaction).len() as f64;
        self.units.scratch(worker).buffers.sampled(input, ns, 1.0 / units);
    }

    fn is_apart(&self, transaction: u32) -> bool {
        self.versions.uses.parts[transaction as usize] > 0
    }

    fn judge(&self, worker: usize, transaction: u32) -> bool {
        match self.is_apart(transaction) {
            true => self.judge_at(&mut self.units.scratch(worker), transaction),
            false => self.aborted(self.units.at(transaction)),
        }
    }

    fn skip(&self, _worker: usize, unit: u32) {
        let operations = self.flow.operations(self.graph, unit);
        for operation in operations.filter(|&operation| self.flow.use_of(operation).writes()) {
            self.copy_source(operation, self.version(operation));
        }
    }

    fn would_abort(&self, worker: usize, transaction: u32) -> bool {
        self.try_whole(&mut self.units.scratch(worker), transaction)
    }

    fn revert(&self, _worker: usize, transaction: u32, changed: &mut dyn FnMut(u32)) {
        self.written(transaction).filter(|&operation| self.put_back(operation)).for_each(changed);
    }

    fn redo(&self, worker: usize, transaction: u32, parts: u32, judged: bool, changed: &mut dyn FnMut(u32)) -> bool {
        let scratch = &mut *self.units.scratch(worker);
        let mut before = std::mem::take(&mut scratch.buffers.before);
        before.clear();
        self.written(transaction).for_each(|operation| before.extend_from_slice(self.value(operation)));
        let aborts = if self.is_apart(transaction) {
            for part in 0..u32::from(self.versions.uses.parts[transaction as usize]) {
                if parts >> part & 1 == 1 {
                    self.run(scratch, transaction, Code::Part(part));
                }
            }
            let aborts = judged && self.judge_at(scratch, transaction);
            if aborts {
                self.written(transaction).for_each(|operation| {
                    self.put_back(operation);
                });
            }
            aborts
        } else {
            self.run(scratch, transaction, Code::Whole)
        };
        let mut at = 0;
        for operation in self.written(transaction) {
            let words = self.words_of(operation);
            if self.value(operation) != &before[at..at + words] {
                changed(operation);
            }
            at += words;
        }
        assert_eq!(at, before.len(), "what was there before is that of transaction {transaction} alone");
        scratch.buffers.before = before;
        aborts
    }
}
