//! A part of an epoch's transactions that is accessed under one policy: all of them, or those of some groups.

use crate::access::grouping::{GroupSet, Selection};
use crate::access::key_hashes;
use crate::access::listing::{Listing, Wants};
use crate::access::parameters::Parameters;
use crate::access::serial::{CALLS_PER_SAMPLE, RowWork, Serial};
use crate::access::unit::{UnitBuffers, Units, WorkerScratch};
use crate::access::versions::VersionWork;
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::input::Identity;
use crate::machine::Machine;
use crate::wiring::InputId;
use parking_lot::Mutex;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tidemill_schedule::{
    Baseline, Breakdown, Execute, Executor, Known, Method, Progress, Scheme, SurveyWanted, Worker,
};
use tidemill_txn::{Flow, Graph, RowId, Survey, Surveyor};

/// The buffers that a part needs; reused from epoch to epoch.
pub struct Memory {
    listing: Listing,
    executor: Executor,
    baseline: Baseline,
    /// The hashes of the accesses' keys, by slot, for PAT.
    key_hashes: Vec<u64>,
    surveyor: Surveyor,
    parameters: Parameters,
    /// The scratch of each worker.
    scratches: Vec<Mutex<WorkerScratch>>,
}

impl Memory {
    /// Buffers for workers on these sockets.
    pub fn new(machine: &Machine, sockets: &[usize]) -> Self {
        let scratch =
            |_: &usize| Mutex::new(WorkerScratch { context: machine.context(false), buffers: UnitBuffers::default() });
        let mut executor = Executor::on_sockets(sockets);
        if machine.homes.are_several() {
            executor.place(socket_of);
        }
        Memory {
            listing: Listing::new(machine),
            executor,
            baseline: Baseline::new(),
            key_hashes: Vec::new(),
            surveyor: Surveyor::default(),
            parameters: Parameters::new(machine),
            scratches: sockets.iter().map(scratch).collect(),
        }
    }

    /// Lists the selected transactions of an epoch, or takes what was listed of them ahead, for buffers that can be
    /// filled again.
    fn list(
        &mut self,
        machine: &Machine,
        epoch: &Epoch,
        ahead: Option<&mut Listing>,
        selection: &Selection,
        wants: Wants,
    ) {
        match ahead.filter(|ahead| ahead.has(machine, epoch, selection, wants)) {
            Some(ahead) => mem::swap(&mut self.listing, ahead),
            None => self.listing.fill(machine, epoch, selection, wants),
        }
    }

    /// Surveys the selected transactions as far as is `wanted`. `cost` gives the cost of a transaction of each input.
    pub fn survey(
        &mut self,
        machine: &Machine,
        epoch: &Epoch,
        selection: &Selection,
        wanted: SurveyWanted,
        workers: usize,
        cost: &dyn Fn(InputId) -> f64,
    ) -> Survey {
        let Memory { listing: Listing { located, versions, .. }, surveyor, parameters, .. } = self;
        match wanted {
            SurveyWanted::Edges => {
                located.fill(machine, epoch, selection, usize::MAX);
                versions.fill_uses(machine, epoch, located);
                surveyor.count(located.buffer(), &versions.uses, parameters.fill(machine, epoch, located))
            }
            SurveyWanted::Paths { operations } => {
                located.fill(machine, epoch, selection, operations as usize);
                versions.fill(machine, epoch, located, true);
                let weight = |transaction: u32| cost(located.at()[transaction as usize].input);
                let parameters = parameters.fill(machine, epoch, located);
                surveyor.survey(located.buffer(), &versions.uses, parameters, workers, weight)
            }
        }
    }
}

/// Returns the socket that a row is on, where there are several.
fn socket_of(row: RowId) -> usize {
    #[allow(unsafe_code)]
    // SAFETY: the rows that the executor asks about are slots of the machine's tables.
    unsafe {
        tidemill_state::socket_of(row.0)
    }
}

/// Returns whether transactions may be run again: an emitted event or a replaced text cannot be undone.
pub fn may_redo(machine: &Machine) -> bool {
    machine.program.transactions.iter().all(|transaction| transaction.is_final(&machine.program).is_none())
}

/// Slots that a worker goes through at a time to copy last versions. Debug builds have few, so that workers share the
/// small epochs of tests.
const COPIED_AT_ONCE: u32 = if cfg!(debug_assertions) { 8 } else { 1_024 };

/// The last versions, which workers copy into rows after all units have run.
#[derive(Default)]
struct Copying {
    /// A flag: whether copying has begun; set by a worker that knows that all units have run.
    begun: AtomicBool,
    /// The next slots to copy. Claimed by workers.
    next: AtomicU32,
    /// The number of slots that were copied.
    copied: AtomicU32,
}

/// A part that is being run.
pub struct Part {
    /// The method by which the part is run.
    pub method: Method,
    /// The number of workers that the part wants.
    pub workers: u32,
    /// The transactions of the part.
    selection: Selection,
    memory: Memory,
    /// A flag, for a serial part: whether a worker has claimed it.
    claimed: AtomicBool,
    copying: Copying,
    done: AtomicBool,
    /// The time breakdown of the workers that took part.
    breakdown: Mutex<Breakdown>,
    /// The sum of the workers' time in the part, in nanoseconds.
    busy: AtomicU64,
}

impl Part {
    /// Prepares the structures of the method that runs the selected transactions of an epoch, on this many workers.
    /// `ahead`: what prepare has listed of the epoch, which is taken if it is of these transactions.
    pub fn new(
        machine: &Machine,
        mut memory: Memory,
        epoch: &Epoch,
        ahead: Option<&mut Listing>,
        selection: Selection,
        (method, workers): (Method, u32),
    ) -> Part {
        // It may be of the epoch that these buffers were used for last.
        memory.listing.forget();
        if let Some(wants) = Wants::of(machine, method) {
            memory.list(machine, epoch, ahead, &selection, wants);
        }
        let Memory { listing: Listing { located, runs, versions, .. }, executor, baseline, key_hashes, .. } =
            &mut memory;
        match method {
            method if method.is_serial() => {}
            Method::Policy(policy) => {
                executor.prepare(runs);
                executor.limit(workers);
                executor.arrange(policy, located.accesses(), &versions.uses);
            }
            Method::Scheme(scheme) => {
                if let Scheme::Partitioned(_) = scheme {
                    key_hashes::fill(machine, epoch, located, key_hashes);
                }
                let known = Known { may_redo: may_redo(machine), key_hashes };
                baseline.prepare(scheme, located.accesses(), &versions.uses, known);
            }
        }
        Part {
            method,
            workers,
            selection,
            memory,
            claimed: AtomicBool::new(false),
            copying: Copying::default(),
            done: AtomicBool::new(false),
            breakdown: Mutex::new(Breakdown::default()),
            busy: AtomicU64::new(0),
        }
    }

    /// Returns the time it took to list its accesses in prepare, nanoseconds; 0 if they were listed when access began.
    pub fn listed(&self) -> u64 {
        self.memory.listing.took
    }

    /// Returns whether all transactions have run and their effects are visible.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns whether no further worker can help: the part is done, or one worker runs it alone.
    pub fn is_taken(&self) -> bool {
        self.is_done() || self.claimed.load(Ordering::Relaxed)
    }

    /// Takes part: until all has run if the worker `waits`, otherwise until there is nothing more for it to do.
    pub fn help(
        &self,
        machine: &Machine,
        environment: &dyn Environment,
        epoch: &Epoch,
        identity: &Identity,
        worker: &mut Worker,
        waits: bool,
    ) {
        if self.is_done() || self.method.is_serial() && self.claimed.swap(true, Ordering::Relaxed) {
            return;
        }
        let start = environment.now();
        let Memory { listing: Listing { located, versions, .. }, scratches, .. } = &self.memory;
        let units = |identity| Units::new(machine, environment, epoch, located, scratches, identity);
        let is_done = if self.method.is_serial() {
            let mut scratch = scratches[worker.id()].try_lock().expect("a scratch belongs to one worker");
            let WorkerScratch { context, buffers } = &mut *scratch;
            let sampled = buffers.samples(epoch.work.inputs.len());
            let serial = Serial { machine, environment, context, identity, sampled };
            serial.run(epoch, self.selection.clone(), CALLS_PER_SAMPLE);
            worker.account(environment.now() - start);
            true
        } else if self.copying.begun.load(Ordering::Acquire) {
            self.copy_last()
        } else if self.method.on_versions() {
            let (graph, flow) = self.flow();
            self.work(worker, &VersionWork::new(units(identity), versions, graph, flow), waits) && self.copy_last()
        } else {
            self.work(worker, &RowWork(units(identity)), waits)
        };
        if is_done {
            self.done.store(true, Ordering::Release);
        }
        let took = environment.now() - start;
        let mut times = worker.take_times();
        times.other += took.saturating_sub(times.total());
        self.breakdown.lock().add(&times);
        self.busy.fetch_add(took, Ordering::Relaxed);
    }

    /// Does this worker's share; returns whether all transactions have run.
    fn work<E: Execute>(&self, worker: &mut Worker, execute: &E, waits: bool) -> bool {
        let Memory { listing: Listing { located, versions, .. }, executor, baseline, .. } = &self.memory;
        match self.method {
            Method::Policy(_) if waits => executor.work(worker, execute),
            Method::Policy(_) => return executor.help(worker, execute) == Progress::Done,
            Method::Scheme(_) => baseline.work(worker, located.accesses(), &versions.uses, execute),
        }
        true
    }

    /// Copies last versions into rows, after all units have run; returns whether all are there.
    fn copy_last(&self) -> bool {
        let Copying { begun, next, copied } = &self.copying;
        begun.store(true, Ordering::Release);
        let in_all = self.memory.listing.located.accesses().rows().len() as u32;
        while next.load(Ordering::Relaxed) < in_all {
            let start = next.fetch_add(COPIED_AT_ONCE, Ordering::Relaxed).min(in_all);
            let end = (start + COPIED_AT_ONCE).min(in_all);
            self.copy_slots(start..end);
            copied.fetch_add(end - start, Ordering::AcqRel);
        }
        copied.load(Ordering::Acquire) == in_all
    }

    /// Copies those of which the chain's last operation is in one of these slots.
    fn copy_slots(&self, slots: Range<u32>) {
        let Listing { located, versions, .. } = &self.memory.listing;
        let (graph, flow) = self.flow();
        versions.copy_last(slots, located, graph, flow);
    }

    fn flow(&self) -> (&Graph, &Flow) {
        let Memory { executor, baseline, .. } = &self.memory;
        match self.method {
            Method::Scheme(_) => (baseline.graph(), baseline.flow()),
            Method::Policy(_) => (executor.graph(), executor.flow()),
        }
    }

    /// Ends the part after all has run: adds its measurements to the epoch. Returns them and the reusable buffers.
    pub fn end(mut self, epoch: &mut Epoch) -> (Ended, Memory) {
        let Memory { executor, scratches, .. } = &mut self.memory;
        let redone = if matches!(self.method, Method::Policy(_)) { executor.redone() } else { 0 };
        for scratch in scratches {
            let WorkerScratch { context, buffers } = scratch.get_mut();
            epoch.work.produced.push(context.take());
            buffers.take_sampled(&mut epoch.accessed.sampled);
        }
        let breakdown = *self.breakdown.get_mut();
        epoch.accessed.breakdown.add(&breakdown);
        let busy = *self.busy.get_mut();
        (
            Ended { workers: self.workers, groups: self.selection.groups, redone, busy, useful: breakdown.useful },
            self.memory,
        )
    }
}

/// The measurements of a part.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The number of workers that the part wanted.
    pub workers: u32,
    /// The groups whose transactions the part ran.
    pub groups: GroupSet,
    /// Number of re-executions because of aborts.
    pub redone: u32,
    /// The sum of all workers' time in the part, in nanoseconds.
    pub busy: u64,
    /// The share of that time that was spent in transactions, in nanoseconds.
    pub useful: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::indexes;
    use crate::access::read::Kept;
    use crate::due;
    use crate::machine::{Logging, Scratch};
    use crate::prepare::prepare;
    use crate::wiring::Wiring;
    use std::sync::Arc;
    use tidemill_compile::Code;
    use tidemill_histories::adversarial;
    use tidemill_model::Value;
    use tidemill_model::arrow::batch_of;
    use tidemill_plan::{Groups, Program, analyze};
    use tidemill_schedule::Participant;
    use tidemill_state::{Homes, Table};
    use typed_index_collections::ti_vec;

    const EVENTS: i64 = 400;

    /// Returns a machine for a program, with rows on these sockets.
    fn machine(program: Program, sockets: &[usize]) -> Machine {
        let wanted = ti_vec![false; program.streams.len()];
        let code = Code::compile(&program, &wanted).expect("a program that compiles");
        let wiring = Wiring::of(&program, &code);
        let homes = Homes::of(sockets.iter().copied(), Arc::new(|_, _| ()));
        let tables = program.tables.iter().map(|table| Table::with_homes(table, &homes)).collect();
        Machine {
            due_rows: due::indexes(&program, &wiring, &tables),
            groups: Groups::of(&program),
            kept: Kept::of(&program),
            column_indexes: indexes::of(&program),
            logging: Logging::default(),
            passed_before: Default::default(),
            program,
            code,
            wiring,
            tables,
            homes,
        }
    }

    /// Returns a prepared epoch of transfers that share no row.
    fn transfers(machine: &Machine) -> Epoch {
        let schema = &machine.program.streams[machine.wiring.given[0]].schema;
        let events: Vec<Vec<Value>> = (0..EVENTS).map(|i| [2 * i, 2 * i + 1, 1].map(Value::Int).to_vec()).collect();
        let mut epoch = Epoch::new(&machine.program, &machine.code, &machine.wiring);
        epoch.input.sources[0].events = Some(batch_of(schema, &events));
        epoch.input.merge.push((0, EVENTS as u32));
        prepare(machine, &mut Scratch::new(machine, 1), &mut epoch);
        epoch
    }

    fn program() -> Program {
        let history = adversarial().into_iter().find(|(name, _)| *name == "a chain of transfers").expect("a history").1;
        analyze(&history.plan).expect("a right plan")
    }

    fn policy(text: &str) -> Method {
        Method::Policy(text.parse().expect("a policy"))
    }

    /// It is all transactions of its epoch, for a method that wants the same.
    #[test]
    fn a_listing_is_taken_for_what_it_is_of() {
        let machine = machine(program(), &[0]);
        let (epoch, mut listing) = (transfers(&machine), Listing::new(&machine));
        let wants = |text| Wants::of(&machine, policy(text)).expect("a parallel policy");
        let all = Selection::all(0..epoch.transactions());
        listing.fill_ahead(&machine, &epoch, wants("operation,lazy"));
        let has = |selection: &Selection, text| listing.has(&machine, &epoch, selection, wants(text));
        assert!(has(&all, "operation,lazy") && has(&all, "chain"));
        assert!(!has(&all, "transaction") && !has(&all, "transaction,versions"));
        assert!(!has(&Selection::all(8..epoch.transactions()), "chain"), "some have run");
        assert!(!has(&Selection { groups: GroupSet::of(0..1), ..all.clone() }, "chain"), "there are other groups");
        listing.fill(&machine, &epoch, &all, wants("chain"));
        assert!(!listing.has(&machine, &epoch, &all, wants("chain")), "it was listed in access");
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "what was listed ahead is not true any more")]
    fn a_row_that_changes_after_it_was_listed_is_found() {
        let machine = machine(program(), &[0]);
        let (mut epoch, mut listing) = (transfers(&machine), Listing::new(&machine));
        let wants = Wants::of(&machine, policy("transaction")).expect("a parallel policy");
        listing.fill_ahead(&machine, &epoch, wants);
        epoch.work.inputs[InputId::from(0)].rows[0].swap(0, 1);
        listing.has(&machine, &epoch, &Selection::all(0..epoch.transactions()), wants);
    }

    /// A part that runs serially has listed nothing, whatever its buffers were used for before.
    #[test]
    fn a_serial_part_has_not_listed_what_the_part_before_it_had() {
        let machine = machine(program(), &[0]);
        let (epoch, mut listing) = (transfers(&machine), Listing::new(&machine));
        let method = policy("transaction");
        listing.fill_ahead(&machine, &epoch, Wants::of(&machine, method).expect("a parallel policy"));
        listing.took = 7;
        let all = || Selection::all(0..epoch.transactions());
        let parallel = Part::new(&machine, Memory::new(&machine, &[0]), &epoch, Some(&mut listing), all(), (method, 1));
        assert_eq!((parallel.listed(), listing.took), (7, 0));
        let serial = Part::new(&machine, parallel.memory, &epoch, None, all(), (policy("epoch"), 1));
        assert_eq!(serial.listed(), 0);
    }

    /// Notes which worker runs what, and runs nothing.
    struct Noted(Mutex<Vec<(usize, u32)>>);

    impl Execute for Noted {
        fn execute(&self, worker: usize, transaction: u32) {
            self.0.lock().push((worker, transaction));
        }
    }

    /// Each worker steps until there is nothing for it before the next one comes.
    #[test]
    fn transactions_run_on_the_socket_of_their_first_row() {
        let sockets = [7, 3, 7];
        let machine = machine(program(), &sockets);
        let epoch = transfers(&machine);
        let policy = policy("transaction,shared-per-socket,patient");
        let (memory, selection) = (Memory::new(&machine, &sockets), Selection::all(0..epoch.transactions()));
        let part = Part::new(&machine, memory, &epoch, None, selection, (policy, 3));
        let (noted, mut workers) = (Noted(Mutex::default()), [0, 1].map(Worker::new));
        let mut present: Vec<Participant<'_, _>> =
            workers.iter_mut().map(|worker| part.memory.executor.join(worker, &noted)).collect();
        present.iter_mut().for_each(|participant| while participant.step() == Progress::Advanced {});
        drop(present);
        let ran = noted.0.into_inner();
        assert_eq!(ran.len(), EVENTS as usize);
        let first = |transaction: u32| part.memory.listing.located.accesses().rows_of(transaction as usize)[0];
        assert!(ran.iter().all(|&(worker, transaction)| sockets[worker] == socket_of(first(transaction))));
        let of_first = ran.iter().filter(|(worker, _)| *worker == 0).count();
        assert!((100..300).contains(&of_first), "{of_first} of {EVENTS} on the first socket");
    }
}
