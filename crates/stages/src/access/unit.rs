//! A call of compiled code on one transaction, or a part of it, on rows that are given one by one.

use crate::access::serial::{Call, Located};
use crate::environment::Environment;
use crate::epoch::{Epoch, Sampled};
use crate::input::Identity;
use crate::machine::Machine;
use crate::wiring::{InputEvent, InputId};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use tidemill_compile::abi::{InputView, Verdict};
use tidemill_compile::{AccessContext, AccessFn};
use tidemill_plan::RoleId;
use typed_index_collections::{TiSlice, TiVec};

/// The buffers that one worker needs to run transactions. Reused from epoch to epoch.
pub struct WorkerScratch {
    /// Its execution context.
    pub context: Box<AccessContext>,
    /// Its buffers for the unit at hand.
    pub buffers: UnitBuffers,
}

/// A worker's buffers for the unit that it runs, and the samples that it took.
#[derive(Default)]
pub struct UnitBuffers {
    /// Addresses of the rows of the current unit, role by role.
    rows: Vec<u64>,
    /// The start of each role's addresses, offset so that indexing by the event's number finds them.
    roles: Vec<*const u64>,
    /// The start of each event's rows, by role; needed if the code has more roles than its transaction.
    starts: Vec<*const u32>,
    /// Copies of rows for the verdict operation.
    pub copies: Vec<u64>,
    /// The values of a transaction's versions before it is run again.
    pub before: Vec<u64>,
    /// The measured cost of the transactions on an input, by input.
    sampled: TiVec<InputId, Sampled>,
}

impl UnitBuffers {
    /// Records that this fraction of a transaction (1 for a whole one) took this time.
    pub fn sampled(&mut self, input: InputId, time: u64, part: f64) {
        let sampled = &mut self.samples(usize::from(input) + 1)[input];
        sampled.time += time;
        sampled.transactions += part;
    }

    /// Returns the samples, of this many inputs at least.
    pub fn samples(&mut self, inputs: usize) -> &mut TiSlice<InputId, Sampled> {
        if self.sampled.len() < inputs {
            self.sampled.resize(inputs, Sampled::default());
        }
        &mut self.sampled
    }

    /// Adds the recorded samples to `all`, and removes them here.
    pub fn take_sampled(&mut self, all: &mut TiSlice<InputId, Sampled>) {
        for (all, some) in all.iter_mut().zip(self.sampled.drain(..)) {
            all.time += some.time;
            all.transactions += some.transactions;
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: the addresses are valid only during a call, and the call fills them first.
unsafe impl Send for UnitBuffers {}

/// A function of compiled code, and what it sees of an event.
pub struct Function<'a> {
    /// The code.
    pub run: AccessFn,
    /// Roles that follow the transaction's own roles.
    pub further: &'a [RoleId],
    /// A list, and the elements of it that the function sees; none: all elements of all lists.
    pub elements: Option<(usize, Range<u32>)>,
    /// Receives the verdict; none: the input's verdicts do.
    pub verdict: Option<&'a mut Verdict>,
}

impl<'a> Function<'a> {
    /// Returns a function that sees the whole event.
    pub fn whole(run: AccessFn, further: &'a [RoleId]) -> Self {
        Function { run, further, elements: None, verdict: None }
    }
}

/// The transactions of an epoch by number, and what calls on them need.
pub struct Units<'a> {
    pub machine: &'a Machine,
    pub environment: &'a dyn Environment,
    epoch: &'a Epoch,
    located: &'a Located,
    calls: TiVec<InputId, Call<'a>>,
    scratches: &'a [Mutex<WorkerScratch>],
}

#[allow(unsafe_code)]
// SAFETY: the views in `calls` are only read; workers write disjoint parts of the memory that they point to, as
// `Execute` promises.
unsafe impl Sync for Units<'_> {}

impl<'a> Units<'a> {
    /// Makes the transactions of an epoch that were located; each worker has a scratch of its own.
    pub fn new(
        machine: &'a Machine,
        environment: &'a dyn Environment,
        epoch: &'a Epoch,
        located: &'a Located,
        scratches: &'a [Mutex<WorkerScratch>],
        identity: &Identity,
    ) -> Self {
        let calls = epoch.work.inputs.keys().map(|id| Call::of(machine, epoch, id, identity)).collect();
        Units { machine, environment, epoch, located, calls, scratches }
    }

    /// Returns the input and event of a transaction.
    pub fn at(&self, transaction: u32) -> InputEvent {
        self.located.at()[transaction as usize]
    }

    /// Returns the row of a slot.
    pub fn row(&self, slot: u32) -> *mut u64 {
        self.located.accesses().rows()[slot as usize].0 as *mut u64
    }

    /// Returns the call on an input's rows in place.
    pub fn call_of(&self, input: InputId) -> &Call<'a> {
        &self.calls[input]
    }

    /// Returns the code of an input's whole transactions.
    pub fn run_of(&self, input: InputId) -> AccessFn {
        self.calls[input].run
    }

    /// Returns the view that code has of an input.
    pub fn view(&self, input: InputId) -> &InputView {
        &self.calls[input].view
    }

    /// Locks a worker's memory, never contended: a worker uses only its own. The lock checks this.
    pub fn scratch(&self, worker: usize) -> MutexGuard<'_, WorkerScratch> {
        self.scratches[worker].try_lock().expect("a scratch belongs to one worker")
    }

    /// Calls a function on one event. For each role and slot, `row` gives the row.
    pub fn call(
        &self,
        context: &mut AccessContext,
        buffers: &mut UnitBuffers,
        transaction: u32,
        function: Function<'_>,
        row: impl Fn(RoleId, u32) -> u64,
    ) {
        let Function { run, further, elements, verdict } = function;
        let at = self.at(transaction);
        let (input, i) = (&self.epoch.work.inputs[at.input], at.event as usize);
        let roles = self.machine.input(at.input).roles();
        let all_rows_of = |role: RoleId| input.rows_of(role, i, roles[role].over.is_some());
        let given = |role: RoleId| match &elements {
            Some((list, elements)) if roles[role].over == Some(*list) => elements.start as usize..elements.end as usize,
            _ => 0..all_rows_of(role).len(),
        };
        let rows_of = |role: RoleId| &all_rows_of(role)[given(role)];
        // A null key has no row and no slot.
        let count = |rows: &[u64]| rows.iter().filter(|&&address| address != 0).count() as u32;
        let there = |role: RoleId| count(all_rows_of(role));
        buffers.rows.clear();
        let start = self.located.accesses().op_start()[transaction as usize];
        let mut own = start;
        for (number, role) in (0..roles.len()).chain(further.iter().copied()).enumerate() {
            let first = if number < roles.len() { own } else { start + (0..role).map(there).sum::<u32>() };
            let mut slot = first + count(&all_rows_of(role)[..given(role).start]);
            for &address in rows_of(role) {
                let there = address != 0;
                buffers.rows.push(if there { row(number, slot) } else { 0 });
                slot += u32::from(there);
            }
            own = if number < roles.len() { first + there(role) } else { own };
        }
        buffers.roles.clear();
        buffers.starts.clear();
        let mut first = 0;
        for role in (0..roles.len()).chain(further.iter().copied()) {
            let number = if roles[role].over.is_some() { input.starts[role][i] as usize } else { i };
            buffers.roles.push(buffers.rows.as_ptr().wrapping_add(first).wrapping_sub(number + given(role).start));
            first += rows_of(role).len();
            if !further.is_empty() {
                buffers.starts.push(input.starts[role].as_ptr());
            }
        }
        let view = &self.calls[at.input].view;
        let starts = if further.is_empty() { view.starts } else { buffers.starts.as_ptr() };
        let verdicts = verdict.map_or(view.verdicts, |verdict| std::ptr::from_mut(verdict).wrapping_sub(i));
        let view = InputView { rows: buffers.roles.as_ptr(), starts, verdicts, ..*view };
        context.write_in_place(false);
        #[allow(unsafe_code)]
        // SAFETY: as in `Call::run`. The rows are this unit's copies, or sources that no thread writes now. Addresses
        // that are offset by the event's number are indexed by that number again.
        unsafe {
            run(context, &view, i as u64, 1);
        }
    }
}
