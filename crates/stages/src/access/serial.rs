//! The access stage: transactions against tables, under a policy.
//!
//! Serially (`Epoch`): run after run in position order, with the rows of later transactions prefetched. In parallel:
//! the schedule crate decides which worker runs which transaction when; here a transaction is a number that leads to
//! its input and event (in place: below; on versions of the rows: `versions`). If one transaction's events reach
//! another (a cascade), each event is followed through before the next, on one worker.

use crate::access::grouping::{GroupSet, within};
use crate::access::versions::WorkerScratch;
use crate::environment::Environment;
use crate::epoch::{Epoch, Run, Sampled};
use crate::input::Identity;
use crate::machine::Machine;
use crate::wiring::{InputId, Joint};
use parking_lot::Mutex;
use std::ops::Range;
use tidemill_compile::abi::InputView;
use tidemill_compile::{AccessContext, AccessFn};
use tidemill_schedule::Execute;
use tidemill_state::memory::prefetch;
use tidemill_txn::{AccessBuffer, RowId};

/// The maximum number of transactions per call of compiled code.
const BLOCK: usize = 16;
/// How many transactions ahead rows are prefetched, and for how many transactions at a time: a processor stalls if more
/// lines are requested than it can fetch at once.
const AHEAD: usize = 32;
const ASKED: usize = 2;
/// One call of compiled code in this many is timed; timing adds some 100 ns to a call.
pub const CALLS_PER_SAMPLE: u32 = 128;

/// An input as compiled code is called on it: function, view, and the rows to prefetch.
pub struct Call<'a> {
    /// Runs whole events.
    pub run: AccessFn,
    /// The view that the code reads.
    pub view: InputView,
    /// By role, if its table is larger than a cache: its rows, and the start of each event's rows if an event may have
    /// several.
    far: Vec<(&'a [u64], Option<&'a [u32]>)>,
    len: usize,
}

impl<'a> Call<'a> {
    /// The call for one of an epoch's inputs.
    pub fn of(machine: &Machine, epoch: &'a Epoch, id: usize, identity: &Identity) -> Self {
        let wiring = &machine.wiring.inputs[id];
        let input = &epoch.inputs[id];
        let roles = &machine.program.transactions[wiring.transaction].roles;
        let far = roles.iter().enumerate().filter(|(_, role)| machine.tables[role.table].is_far());
        let far = far.map(|(r, role)| (input.rows[r].as_slice(), role.over.map(|_| input.starts[r].as_slice())));
        Call {
            run: machine.code.transactions[wiring.transaction][wiring.input].run,
            view: input.view(identity),
            far: far.collect(),
            len: input.len,
        }
    }

    /// Prefetches the rows of events `from..to`.
    #[inline]
    fn prefetch(&self, from: usize, to: usize) {
        let (from, to) = (from.min(self.len), to.min(self.len));
        for (rows, starts) in &self.far {
            let range = match starts {
                None => from..to,
                Some(starts) => starts[from] as usize..starts[to] as usize,
            };
            rows[range].iter().for_each(|&row| prefetch(row as *const u8));
        }
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
    identity.ensure(epoch.inputs.iter().map(|i| i.len).max().unwrap_or(0));
}

/// A joint during a serial run.
struct Course<'a> {
    run: AccessFn,
    /// By input: the view that its code reads.
    views: Vec<InputView>,
    inputs: Range<InputId>,
    /// By input.
    calls: Vec<Call<'a>>,
    /// The event that runs next.
    next: usize,
    /// The event up to which rows were prefetched.
    asked: usize,
}

impl<'a> Course<'a> {
    fn of(machine: &Machine, epoch: &'a Epoch, joint: &Joint, identity: &Identity) -> Self {
        let calls: Vec<_> = joint.inputs.clone().map(|id| Call::of(machine, epoch, id, identity)).collect();
        let views = calls.iter().map(|call| call.view).collect();
        let asked = if calls.iter().all(|call| call.far.is_empty()) { usize::MAX } else { 0 };
        Course { run: joint.run, views, inputs: joint.inputs.clone(), calls, next: 0, asked }
    }

    /// Prefetches the rows of the next few events.
    #[inline(never)]
    fn ask(&mut self) {
        self.calls.iter().for_each(|call| call.prefetch(self.asked, self.asked + ASKED));
        self.asked += ASKED;
    }

    /// Runs the transactions of `count` events.
    #[inline]
    fn run(&mut self, context: &mut AccessContext, count: usize) {
        while self.asked < self.next + count + AHEAD {
            self.ask();
        }
        debug_assert!(self.calls.iter().all(|call| self.next + count <= call.len));
        context.write_in_place(true);
        #[allow(unsafe_code)]
        // SAFETY: as in `Call::run`, for each of the inputs.
        unsafe {
            (self.run)(context, self.views.as_ptr(), self.next as u64, count as u64);
        }
        self.next += count;
    }

    /// Runs the transactions in `range`, numbered from the first transaction of event `first`.
    fn run_some(&self, context: &mut AccessContext, first: usize, range: Range<usize>) {
        let inputs = self.calls.len();
        range.for_each(|number| self.calls[number % inputs].run(context, first + number / inputs, 1));
    }

    /// As `run`, and adds the time of each input's own code to its sample. With several inputs it runs one event only.
    fn run_timed(
        &mut self,
        environment: &dyn Environment,
        context: &mut AccessContext,
        count: usize,
        sampled: &mut [Sampled],
    ) {
        let single = self.calls.len() == 1;
        let count = if single { count } else { 1 };
        for (call, sampled) in self.calls.iter().zip(&mut sampled[self.inputs.clone()]) {
            let start = environment.now();
            call.run(context, self.next, count);
            sampled.time += environment.now() - start;
            sampled.transactions += count as f64;
        }
        self.next += count;
    }
}

/// Granularity `Epoch`, for programs that do not cascade: runs transactions `range` of the order. One call of compiled
/// code in the given number is timed, for `epoch.sampled`.
pub fn run_serially(
    machine: &Machine,
    environment: &dyn Environment,
    epoch: &mut Epoch,
    (context, identity): (&mut AccessContext, &Identity),
    (range, calls_per_sample): (Range<usize>, u32),
) {
    let mut sampled = std::mem::take(&mut epoch.sampled);
    let joints = machine.wiring.joints.iter();
    let mut courses: Vec<_> = joints.map(|joint| Course::of(machine, epoch, joint, identity)).collect();
    let (mut at, mut untimed) = (0, calls_per_sample);
    for &Run { joint, count } in &epoch.order {
        if at >= range.end {
            break;
        }
        let course = &mut courses[joint as usize];
        let (first, inputs) = (course.next, course.calls.len());
        let transactions = count as usize * inputs;
        let (skipped, wanted) = within(&range, at, transactions);
        at += transactions;
        let mut events = 0..count as usize;
        let mut behind = 0..0;
        if wanted < transactions {
            // The range may begin and end between two transactions of one event.
            let end = skipped + wanted;
            events = skipped.div_ceil(inputs)..end / inputs;
            let before = skipped..end.min(events.start * inputs);
            behind = before.end.max(events.end * inputs)..end;
            course.run_some(context, first, before);
        }
        course.next = first + events.start;
        course.asked = course.asked.max(course.next);
        while course.next < first + events.end {
            let block = BLOCK.min(first + events.end - course.next);
            untimed -= 1;
            if untimed == 0 {
                untimed = calls_per_sample;
                course.run_timed(environment, context, block, &mut sampled);
            } else {
                course.run(context, block);
            }
        }
        course.run_some(context, first, behind);
        course.next = first + count as usize;
    }
    drop(courses);
    epoch.sampled = sampled;
}

/// The transactions of an epoch by number, for the executor.
#[derive(Default)]
pub struct Located {
    /// Transaction → input and event.
    at: Vec<(u32, u32)>,
    accesses: AccessBuffer,
}

impl Located {
    /// Numbers the transactions of these groups in `range` of an epoch's order, until they have `most` operations, and
    /// lists their rows.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, range: &Range<usize>, (groups, most): (GroupSet, usize)) {
        self.at.clear();
        self.accesses.clear();
        epoch.each_in(&machine.wiring.joints, range, |id, i| {
            if groups != GroupSet::ALL && !groups.has(epoch.grouping.of(id, i)) {
                return true;
            }
            let input = &epoch.inputs[id];
            let roles = &machine.program.transactions[machine.wiring.inputs[id].transaction].roles;
            self.at.push((id as u32, i as u32));
            let rows = roles.iter().enumerate().flat_map(|(r, role)| input.rows_of(r, i, role.over.is_some()));
            self.accesses.push(rows.copied().filter(|&row| row != 0).map(RowId));
            self.accesses.len() < most
        });
    }

    /// Transaction → input and event.
    pub fn at(&self) -> &[(u32, u32)] {
        &self.at
    }

    /// The rows of each transaction.
    pub fn accesses(&self) -> tidemill_txn::Accesses<'_> {
        self.accesses.accesses()
    }

    /// The same, owned.
    pub fn buffer(&self) -> &AccessBuffer {
        &self.accesses
    }
}

/// An epoch's transactions as the executor runs them in place.
///
/// Under [`tidemill_schedule::Scheme::NoLock`], which exists only for measurement, workers run transactions that share
/// rows concurrently. They then race on the rows' words: in compiled code, and during rollback, with atomic stores. The
/// rows then hold wrong values; nothing worse happens, because no text is replaced.
pub struct RowWork<'a> {
    environment: &'a dyn Environment,
    located: &'a Located,
    calls: Vec<Call<'a>>,
    scratches: &'a [Mutex<WorkerScratch>],
}

#[allow(unsafe_code)]
// SAFETY: the views in `calls` are only read; workers write disjoint events through them, each with its own context.
unsafe impl Sync for RowWork<'_> {}

impl<'a> RowWork<'a> {
    /// Work on an epoch whose transactions were located; each worker has a scratch of its own.
    pub fn new(
        machine: &Machine,
        environment: &'a dyn Environment,
        epoch: &'a Epoch,
        located: &'a Located,
        scratches: &'a [Mutex<WorkerScratch>],
        identity: &Identity,
    ) -> Self {
        let calls = (0..epoch.inputs.len()).map(|id| Call::of(machine, epoch, id, identity)).collect();
        RowWork { environment, located, calls, scratches }
    }
}

impl Execute for RowWork<'_> {
    fn execute(&self, worker: usize, transaction: u32) {
        let (input, i) = self.located.at[transaction as usize];
        // Never contended: a worker uses only its own scratch. The lock checks this.
        let mut scratch = self.scratches[worker].try_lock().expect("a scratch belongs to one worker");
        self.calls[input as usize].run(&mut scratch.context, i as usize, 1);
    }

    fn prefetch(&self, transaction: u32) {
        let (input, i) = self.located.at[transaction as usize];
        self.calls[input as usize].prefetch(i as usize, i as usize + 1);
    }

    fn now(&self) -> u64 {
        self.environment.now()
    }

    fn took(&self, worker: usize, transaction: u32, ns: u64) {
        let (input, _) = self.located.at[transaction as usize];
        let mut scratch = self.scratches[worker].try_lock().expect("a scratch belongs to one worker");
        scratch.buffers.sampled(input as usize, ns, 1.0);
    }
}

/// Runs one event of an input. For cascades, whose inputs grow as they run.
pub fn run_one(
    machine: &Machine,
    epoch: &Epoch,
    id: usize,
    i: usize,
    context: &mut AccessContext,
    identity: &Identity,
) {
    let wiring = &machine.wiring.inputs[id];
    let view = epoch.inputs[id].view(identity);
    let run = machine.code.transactions[wiring.transaction][wiring.input].run;
    context.write_in_place(true);
    #[allow(unsafe_code)]
    // SAFETY: as in `Call::run`; `Input::point` was called after the input last grew.
    unsafe {
        run(context, &view, i as u64, 1);
    }
}
