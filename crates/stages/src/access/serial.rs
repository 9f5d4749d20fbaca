//! The access stage: transactions against tables, under a policy.
//!
//! Serially (`Epoch`): run after run in position order, with the rows of later transactions prefetched. In parallel:
//! the schedule crate decides which worker runs which transaction when; here a transaction is a number that leads to
//! its input and event (in place: below; on versions of the rows: `versions`). If one transaction's events reach
//! another (a cascade), each event is followed through before the next, on one worker.

use crate::access::grouping::{GroupSet, Grouping, Selection, within};
use crate::access::unit::Units;
use crate::environment::Environment;
use crate::epoch::{Epoch, JointRun, Sampled};
use crate::input::Identity;
use crate::machine::{InputContext, Machine, Scratch};
use crate::wiring::{InputEvent, InputId, Joint, JointId};
use std::ops::Range;
use tidemill_compile::abi::InputView;
use tidemill_compile::{AccessContext, AccessFn};
use tidemill_plan::Role;
use tidemill_schedule::Execute;
use tidemill_state::blob;
use tidemill_state::memory::prefetch;
use tidemill_txn::{AccessBuffer, RowId};
use typed_index_collections::{TiSlice, TiVec};

/// The maximum number of events per call of compiled code, where rows are prefetched in between.
pub(super) const BLOCK: usize = 16;
/// The number of blocks per call if all rows are near, in caches.
const NEAR_BLOCKS: u32 = 16;
/// The distance, in transactions, at which rows are prefetched, and the number of transactions for which this is done
/// at a time: a processor stalls if more lines are requested than it can fetch at once.
const AHEAD: usize = 32;
/// The distance, in transactions, at which the texts and windows of rows are prefetched: the rows are there by then.
const TEXTS_AHEAD: usize = AHEAD / 2;
const ASKED: usize = 2;
/// The number of blocks of events of which one call of compiled code is timed; timing adds some 100 ns to a call.
pub const CALLS_PER_SAMPLE: u32 = 128;

/// An input as compiled code is called on it: function, view, and the rows to prefetch.
pub struct Call<'a> {
    /// Runs whole events.
    pub run: AccessFn,
    /// The view that the code reads.
    pub view: InputView,
    /// The rows of each role, by role, if its table is larger than a cache.
    far: Vec<Far<'a>>,
    len: usize,
}

/// The rows of a role that have to be fetched.
struct Far<'a> {
    rows: &'a [u64],
    /// The start of each event's rows, if an event may have several.
    starts: Option<&'a [u32]>,
    /// The cells that hold the texts and windows that the role reads or writes, if an event has one row.
    texts: Vec<usize>,
}

impl<'a> Far<'a> {
    fn of(machine: &Machine, role: &Role, rows: &'a [u64], starts: &'a [u32]) -> Self {
        let table = &machine.tables[role.table];
        let columns = &table.definition().columns;
        let mut texts: Vec<usize> = role.reads.iter().chain(&role.writes).copied().collect();
        texts.retain(|&column| columns[column].ty.ty.is_bytes() && !role.is_found_late() && role.over.is_none());
        texts.sort_unstable();
        texts.dedup();
        let texts = texts.into_iter().map(|column| table.layout().cell(column)).collect();
        Far { rows, starts: role.over.map(|_| starts), texts }
    }

    /// Prefetches the rows of some events.
    #[inline]
    fn prefetch(&self, events: Range<usize>) {
        let range = match self.starts {
            None => events,
            Some(starts) => starts[events.start] as usize..starts[events.end] as usize,
        };
        self.rows[range].iter().for_each(|&row| prefetch(row as *const u8));
    }

    /// Prefetches the texts and windows of some events, whose rows no other worker writes now.
    #[inline]
    fn prefetch_texts(&self, events: Range<usize>) {
        for &row in self.rows[events].iter().filter(|&&row| row != 0) {
            for &cell in &self.texts {
                #[allow(unsafe_code)]
                // SAFETY: the row is a slot of the role's table, and the cell is one of its texts; by the caller.
                unsafe {
                    blob::ask((row as usize + cell) as *const u64);
                }
            }
        }
    }
}

impl<'a> Call<'a> {
    /// Returns the call for one of an epoch's inputs.
    pub fn of(machine: &Machine, epoch: &'a Epoch, id: InputId, identity: &Identity) -> Self {
        let InputContext { transaction, code, .. } = machine.input(id);
        let input = &epoch.work.inputs[id];
        let far = transaction.roles.iter().enumerate().filter(|(_, role)| machine.tables[role.table].is_far());
        let far = far.map(|(r, role)| Far::of(machine, role, &input.rows[r], &input.starts[r]));
        Call { run: code.run, view: input.view(identity), far: far.collect(), len: input.len }
    }

    /// Prefetches the rows of events `from..to`.
    #[inline]
    fn prefetch(&self, from: usize, to: usize) {
        let (from, to) = (from.min(self.len), to.min(self.len));
        self.far.iter().for_each(|far| far.prefetch(from..to));
    }

    /// Prefetches the texts and windows of events `from..to`, whose rows no other worker writes now.
    #[inline]
    fn prefetch_texts(&self, from: usize, to: usize) {
        let (from, to) = (from.min(self.len), to.min(self.len));
        self.far.iter().filter(|far| !far.texts.is_empty()).for_each(|far| far.prefetch_texts(from..to));
    }

    /// Runs events `first..first + count`.
    #[inline]
    fn run(&self, context: &mut AccessContext, first: usize, count: usize) {
        debug_assert!(first + count <= self.len);
        context.write_in_place(true);
        #[allow(unsafe_code)]
        // SAFETY: the view was taken of a prepared input, whose index, rows and result columns cover its events; row
        // addresses come from the tables' `resolve`; the schedule gives this worker exclusive use of the rows of these
        // events now.
        unsafe {
            (self.run)(context, &self.view, first as u64, count as u64);
        }
    }
}

/// Grows a worker's identity to the epoch's largest input.
pub fn ensure_identity(epoch: &Epoch, identity: &mut Identity) {
    identity.ensure(epoch.work.inputs.iter().map(|i| i.len).max().unwrap_or(0));
}

/// A joint during a serial run.
struct Course<'a> {
    run: AccessFn,
    /// The view that the code of an input reads, by input.
    views: Vec<InputView>,
    /// One for each of its inputs.
    calls: Vec<(InputId, Call<'a>)>,
    /// The event that runs next.
    next: usize,
    /// The event up to which rows were prefetched.
    asked: usize,
    /// A flag: whether rows outside of caches hold texts or windows, which are prefetched, too.
    has_far_texts: bool,
}

impl<'a> Course<'a> {
    fn of(machine: &Machine, epoch: &'a Epoch, joint: &Joint, identity: &Identity) -> Self {
        let calls: Vec<_> = joint.inputs().map(|id| (id, Call::of(machine, epoch, id, identity))).collect();
        let views = calls.iter().map(|(_, call)| call.view).collect();
        let asked = if calls.iter().all(|(_, call)| call.far.is_empty()) { usize::MAX } else { 0 };
        let has_far_texts = calls.iter().any(|(_, call)| call.far.iter().any(|far| !far.texts.is_empty()));
        Course { run: joint.run, views, calls, next: 0, asked, has_far_texts }
    }

    /// Returns whether all of its rows are in caches.
    fn is_near(&self) -> bool {
        self.asked == usize::MAX
    }

    /// Prefetches the rows of the next few events, and what they hold outside of rows of some before these.
    #[inline(never)]
    fn ask(&mut self) {
        self.calls.iter().for_each(|(_, call)| call.prefetch(self.asked, self.asked + ASKED));
        if self.has_far_texts {
            let first = self.asked.saturating_sub(TEXTS_AHEAD);
            self.calls.iter().for_each(|(_, call)| call.prefetch_texts(first, first + ASKED));
        }
        self.asked += ASKED;
    }

    /// Runs the transactions of `count` events.
    #[inline]
    fn run(&mut self, context: &mut AccessContext, count: usize) {
        while self.asked < self.next + count + AHEAD {
            self.ask();
        }
        debug_assert!(self.calls.iter().all(|(_, call)| self.next + count <= call.len));
        context.write_in_place(true);
        #[allow(unsafe_code)]
        // SAFETY: as in `Call::run`, for each of the inputs.
        unsafe {
            (self.run)(context, self.views.as_ptr(), self.next as u64, count as u64);
        }
        self.next += count;
    }

    /// Runs those of `wanted` among the transactions in `range`, which is numbered from the first transaction of event
    /// `first`.
    fn run_some(&self, context: &mut AccessContext, first: usize, range: Range<usize>, wanted: OfGroups<'_>) {
        let inputs = self.calls.len();
        for number in range {
            let ((id, call), event) = (&self.calls[number % inputs], first + number / inputs);
            if wanted.has(*id, event) {
                call.run(context, event, 1);
            }
        }
    }

    /// Runs those of `wanted` among the transactions of `count` events, one at a time.
    fn run_wanted(&mut self, context: &mut AccessContext, count: usize, wanted: OfGroups<'_>) {
        for event in self.next..self.next + count {
            let ahead = event + AHEAD;
            let is_wanted = |(id, call): &&(InputId, Call<'_>)| ahead < call.len && wanted.has(*id, ahead);
            self.calls.iter().filter(is_wanted).for_each(|(_, call)| call.prefetch(ahead, ahead + 1));
            let numbers = 0..self.calls.len();
            self.run_some(context, event, numbers, wanted);
        }
        self.next += count;
    }

    /// Runs events as `run` does, and adds the time of each input's own code to its sample. With several inputs it runs
    /// one event only.
    fn run_timed(
        &mut self,
        environment: &dyn Environment,
        context: &mut AccessContext,
        count: usize,
        sampled: &mut TiSlice<InputId, Sampled>,
    ) {
        let single = self.calls.len() == 1;
        let count = if single { count } else { 1 };
        for (id, call) in &self.calls {
            let start = environment.now();
            call.run(context, self.next, count);
            sampled[*id].time += environment.now() - start;
            sampled[*id].transactions += count as f64;
        }
        self.next += count;
    }
}

/// The transactions that a serial run is for.
#[derive(Clone, Copy)]
struct OfGroups<'a> {
    groups: GroupSet,
    grouping: &'a Grouping,
}

impl OfGroups<'_> {
    fn has(self, input: InputId, event: usize) -> bool {
        let at = InputEvent { input, event: event as u32 };
        self.groups == GroupSet::ALL || self.groups.has(self.grouping.of(at))
    }
}

/// Granularity `Epoch`, for programs that do not cascade: one worker runs transactions in position order.
pub struct Serial<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The clock.
    pub environment: &'a dyn Environment,
    /// The worker's context.
    pub context: &'a mut AccessContext,
    /// The numbers 0, 1, 2, … up to the size of the epoch's largest input ([`ensure_identity`]).
    pub identity: &'a Identity,
    /// Receives the samples.
    pub sampled: &'a mut TiSlice<InputId, Sampled>,
}

impl Serial<'_> {
    /// Runs selected transactions of an epoch. If those of all groups are selected, it runs blocks of transactions, and
    /// one call of compiled code in `calls_per_sample` is timed.
    pub fn run(self, epoch: &Epoch, Selection { range, groups }: Selection, calls_per_sample: u32) {
        let Serial { machine, environment, context, identity, sampled } = self;
        let wanted = OfGroups { groups, grouping: &epoch.accessed.grouping };
        let joints = machine.wiring.joints.iter();
        let mut courses: TiVec<JointId, _> = joints.map(|joint| Course::of(machine, epoch, joint, identity)).collect();
        let (mut at, mut untimed) = (0, calls_per_sample);
        for &JointRun { joint, count } in &epoch.work.order {
            if at >= range.end {
                break;
            }
            let course = &mut courses[joint];
            let (first, inputs) = (course.next, course.calls.len());
            let transactions = count as usize * inputs;
            let (skipped, here) = within(&range, at, transactions);
            at += transactions;
            let mut events = 0..count as usize;
            let mut after = 0..0;
            if here < transactions {
                // The range may begin and end between two transactions of one event.
                let end = skipped + here;
                events = skipped.div_ceil(inputs)..end / inputs;
                let before = skipped..end.min(events.start * inputs);
                after = before.end.max(events.end * inputs)..end;
                course.run_some(context, first, before, wanted);
            }
            course.next = first + events.start;
            course.asked = course.asked.max(course.next);
            if groups != GroupSet::ALL {
                course.run_wanted(context, events.len(), wanted);
            }
            while course.next < first + events.end {
                let left = first + events.end - course.next;
                untimed -= 1;
                if untimed == 0 {
                    untimed = calls_per_sample;
                    course.run_timed(environment, context, BLOCK.min(left), sampled);
                } else {
                    let blocks = if course.is_near() { blocks(left, untimed) } else { 1 };
                    untimed -= blocks - 1;
                    course.run(context, left.min(BLOCK * blocks as usize));
                }
            }
            course.run_some(context, first, after, wanted);
            course.next = first + count as usize;
        }
    }
}

/// Returns the number of blocks that the next call runs if rows are near. `left` events of the input are left in a row,
/// and `untimed` blocks before one is timed. Less than a block counts as one.
fn blocks(left: usize, untimed: u32) -> u32 {
    (left.div_ceil(BLOCK) as u32).min(NEAR_BLOCKS).min(untimed)
}

/// Runs all transactions in a range of an epoch's order on one worker.
pub fn run_range(
    machine: &Machine,
    environment: &dyn Environment,
    scratch: &mut Scratch,
    epoch: &mut Epoch,
    range: Range<usize>,
    calls_per_sample: u32,
) {
    ensure_identity(epoch, &mut scratch.identity);
    let mut sampled = std::mem::take(&mut epoch.accessed.sampled);
    let Scratch { context, identity, .. } = scratch;
    let serial = Serial { machine, environment, context, identity, sampled: &mut sampled };
    serial.run(epoch, Selection::all(range), calls_per_sample);
    epoch.accessed.sampled = sampled;
}

/// The transactions of an epoch by number, for the executor.
#[derive(Default, PartialEq)]
pub struct Located {
    /// Transaction → input and event.
    at: Vec<InputEvent>,
    accesses: AccessBuffer,
}

impl Located {
    /// Numbers the selected transactions of an epoch, until they have `most` operations, and lists their rows.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, selection: &Selection, most: usize) {
        let Selection { range, groups } = selection;
        self.at.clear();
        self.accesses.clear();
        epoch.each_in(&machine.wiring.joints, range, |at| {
            if *groups != GroupSet::ALL && !groups.has(epoch.accessed.grouping.of(at)) {
                return true;
            }
            let (input, i) = (&epoch.work.inputs[at.input], at.event as usize);
            let roles = machine.input(at.input).roles();
            self.at.push(at);
            let rows = roles.iter().enumerate().flat_map(|(r, role)| input.rows_of(r, i, role.over.is_some()));
            self.accesses.push(rows.copied().filter(|&row| row != 0).map(RowId));
            self.accesses.len() < most
        });
    }

    /// Returns the input and event of each transaction.
    pub fn at(&self) -> &[InputEvent] {
        &self.at
    }

    /// Returns the rows of each transaction.
    pub fn accesses(&self) -> tidemill_txn::Accesses<'_> {
        self.accesses.accesses()
    }

    /// Returns the rows of each transaction, as the owned buffer.
    pub fn buffer(&self) -> &AccessBuffer {
        &self.accesses
    }
}

/// An epoch's transactions as the executor runs them in place.
///
/// Under [`tidemill_schedule::Scheme::NoLock`], which exists only for measurement, workers run transactions that share
/// rows concurrently. They then race on the rows' words: in compiled code, and during rollback, with atomic stores. The
/// rows then hold wrong values; nothing worse happens, because no text is replaced.
pub struct RowWork<'a>(pub Units<'a>);

impl Execute for RowWork<'_> {
    fn execute(&self, worker: usize, transaction: u32) {
        let InputEvent { input, event } = self.0.at(transaction);
        self.0.call_of(input).run(&mut self.0.scratch(worker).context, event as usize, 1);
    }

    fn prefetch(&self, transaction: u32) {
        let InputEvent { input, event } = self.0.at(transaction);
        self.0.call_of(input).prefetch(event as usize, event as usize + 1);
    }

    fn now(&self) -> u64 {
        self.0.environment.now()
    }

    fn took(&self, worker: usize, transaction: u32, ns: u64) {
        self.0.scratch(worker).buffers.sampled(self.0.at(transaction).input, ns, 1.0);
    }
}

/// Runs one event of an input. For cascades, whose inputs grow as they run.
pub fn run_one(machine: &Machine, epoch: &Epoch, at: InputEvent, context: &mut AccessContext, identity: &Identity) {
    let view = epoch.work.inputs[at.input].view(identity);
    let run = machine.input(at.input).code.run;
    context.write_in_place(true);
    #[allow(unsafe_code)]
    // SAFETY: as in `Call::run`; `Input::point` was called after the input last grew.
    unsafe {
        run(context, &view, u64::from(at.event), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call counts all of its blocks. Else inputs that take turns would be timed many times as often as others.
    #[test]
    fn a_call_counts_the_blocks_that_it_has() {
        assert_eq!([1, BLOCK, BLOCK + 1, 100 * BLOCK].map(|left| blocks(left, 100)), [1, 1, 2, NEAR_BLOCKS]);
        assert_eq!(blocks(100 * BLOCK, 3), 3);
    }
}
