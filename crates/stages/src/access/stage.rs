//! The access stage as a whole: chooses how an epoch is accessed, runs it, and learns from its cost.
//!
//! This is the one place where configuration ([`Scheduling`]) and measurement ([`Decision`]) become a policy for each
//! group of an epoch's transactions, and a number of workers. One epoch at a time is accessed, either by one worker or by
//! those that join its [`Job`].

use crate::access::costs::Costs;
use crate::access::grouping::{GroupSet, Scheduled, Selection};
use crate::access::listing::{Listing, Listings, Wants};
use crate::access::read::begin_reads;
use crate::access::scheduling::{FixedOn, Scheduling};
use crate::access::serial::{CALLS_PER_SAMPLE, run_range};
use crate::access::snapshot::begin_snapshots;
use crate::access::together::{Job, Memory, Role, Sharing, may_redo};
use crate::access::{cascade, hot, merge, stretches, touched, waves};
use crate::environment::Environment;
use crate::epoch::{Accessed, Epoch};
use crate::input::Input;
use crate::machine::{Machine, Scratch};
use crate::prepare::changes;
use crate::wiring::{InputEvent, InputId};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use tidemill_schedule::{
    Abort, Candidate, Choice, Decision, EpochCost, Method, Model, Policy, Reason, Scheme, SurveyWanted, Worker,
};
use tidemill_txn::Survey;

/// The maximum number of transactions in the sampling prefix.
const SAMPLED_MAX: usize = 256;
/// The sampling prefix ends after this time, nanoseconds.
const SAMPLED_NS: u64 = 100_000;
/// The first few transactions warm up the caches and are not counted.
const WARM_UP: usize = 8;
/// The number of operations that are surveyed for one who looks on, about.
const LOOKED_AT: u32 = 1024;

/// The workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// The number of workers.
    pub workers: usize,
    /// The most workers that have tasks at a time, unless more are asked for in access ([`Scheduling::FixedOn`]).
    pub seats: usize,
}

/// The access stage.
pub struct AccessStage {
    machine: Arc<Machine>,
    environment: Arc<dyn Environment>,
    scheduling: Scheduling,
    crew: Crew,
    /// Written by the worker that accesses an epoch, and by workers that finish one ([`AccessStage::learn`]).
    state: Mutex<State>,
}

struct State {
    /// The decision of each group of transactions, by group.
    decisions: Vec<Decision>,
    costs: Costs,
    /// Buffers that are reused from job to job.
    spare: Vec<Memory>,
    /// The method of the epochs to come, if they run as a whole: the one that was asked for, or that of the epoch
    /// accessed last.
    expected: Option<Method>,
    /// The listings that prepare has made.
    listings: Listings,
}

impl AccessStage {
    /// Makes an access stage for these workers.
    pub fn new(
        machine: Arc<Machine>,
        environment: Arc<dyn Environment>,
        scheduling: Scheduling,
        crew: Crew,
    ) -> AccessStage {
        let model = match scheduling {
            Scheduling::MorphStream => Model::MorphStream,
            _ => Model::Measured,
        };
        let state = State {
            decisions: vec![Decision::new(crew.seats, model, may_redo(&machine)); machine.groups.names.len()],
            costs: Costs::new(machine.wiring.inputs.len()),
            spare: Vec::new(),
            expected: None,
            listings: Listings::default(),
        };
        let stage = AccessStage { machine, environment, scheduling, crew, state: Mutex::new(state) };
        if !stage.machine.wiring.cascades {
            stage.state.lock().expected = stage.asked_for_all().map(|choice| choice.method);
        }
        stage
    }

    /// Lists, at the end of prepare, the accesses of an epoch for the method that is expected. One worker alone would
    /// do so no sooner than when access begins.
    pub fn list_ahead(&self, epoch: &Epoch) {
        let mut state = self.state.lock();
        let expected = state.expected.filter(|_| self.crew.seats > 1);
        let Some(wants) = expected.and_then(|method| Wants::of(&self.machine, method)) else { return };
        let spare = state.listings.spare();
        drop(state);
        let start = self.environment.now();
        let mut listing = spare.unwrap_or_else(|| Listing::new(&self.machine));
        listing.fill_ahead(&self.machine, epoch, wants);
        listing.took = self.environment.now() - start;
        self.state.lock().listings.put(epoch.number, listing);
    }

    /// Accesses the next epoch in order. Its snapshots, if some are due or wanted, begin at the end.
    pub fn run(
        &self,
        scratch: &mut Scratch,
        worker: &mut Worker,
        mut epoch: Box<Epoch>,
        sharing: &dyn Sharing,
    ) -> Box<Epoch> {
        let start = self.environment.now();
        epoch.accessed.accessor = worker.id();
        changes::save(&self.machine, &mut epoch);
        let divided = stretches::is_divided(&self.machine, &mut scratch.boundaries, &epoch);
        epoch.accessed.one_by_one = self.machine.wiring.cascades || matches!(divided, Ok(true));
        epoch.accessed.unread = divided.err();
        merge::merge(&self.machine, scratch, &mut epoch);
        epoch.accessed.breakdown.useful += self.environment.now() - start;
        let range = self.choose(scratch, &mut epoch);
        let contends = range.len() > 1 && !epoch.accessed.one_by_one;
        if epoch.input.wanted.touched && contends && epoch.accessed.survey.is_none() {
            let wanted = SurveyWanted::Paths { operations: LOOKED_AT };
            epoch.accessed.survey = Some(self.survey(&mut epoch, Selection::all(range.clone()), wanted).0);
        }
        let decided = self.environment.now();
        let is_serial = epoch.accessed.scheduled.iter().all(|s| s.choice.method.is_serial());
        let mut state = self.state.lock();
        state.expected = whole(&epoch.accessed.scheduled);
        let mut ahead = state.listings.take(epoch.number);
        drop(state);
        if epoch.accessed.one_by_one {
            cascade::run(&self.machine, scratch, &mut epoch);
            epoch.accessed.breakdown.useful += self.environment.now() - decided;
        } else if is_serial {
            self.access_serially(scratch, &mut epoch, range, CALLS_PER_SAMPLE);
        } else {
            epoch = self.access_together(scratch, worker, epoch, range, sharing, ahead.as_mut());
        }
        self.state.lock().listings.give_back(ahead);
        epoch.work.produced.push(scratch.context.take());
        let end = self.environment.now();
        epoch.accessed.access_after_sampling = end - decided;
        if epoch.accessed.scheduled.iter().all(|scheduled| scheduled.access == 0) {
            self.account(&mut epoch);
        }
        waves::run(&self.machine, self.environment.as_ref(), scratch, &mut epoch);
        // Emissions are followed in their order within a cascade only.
        drop(scratch.context.drain_order());
        if !(epoch.accessed.one_by_one && self.machine.wiring.has_stretches) {
            touched::note(&self.machine, &epoch);
        }
        let over = self.environment.now();
        epoch.accessed.breakdown.useful += over - end;
        epoch.times.access = over - start;
        if let Some(due) = epoch.input.snapshot_due.take() {
            begin_snapshots(&self.machine, due);
            epoch.accessed.has_snapshot = true;
        }
        if epoch.input.wanted.touched {
            epoch.accessed.touched = hot::touched(&self.machine, &epoch);
            epoch.accessed.critical = hot::critical(&self.machine, &epoch);
        }
        epoch.accessed.tables = begin_reads(&self.machine, &epoch.input.wanted.tables);
        epoch
    }

    fn access_serially(&self, scratch: &mut Scratch, epoch: &mut Epoch, range: Range<usize>, calls_per_sample: u32) {
        let start = self.environment.now();
        run_range(&self.machine, self.environment.as_ref(), scratch, epoch, range, calls_per_sample);
        epoch.accessed.breakdown.useful += self.environment.now() - start;
    }

    /// Divides the access time of an epoch that was accessed in one part among its groups, in proportion to the cost of
    /// their transactions.
    fn account(&self, epoch: &mut Epoch) {
        let Accessed { scheduled, access_after_sampling, breakdown, .. } = &mut epoch.accessed;
        if let [whole] = &mut scheduled[..] {
            (whole.access, whole.useful) = (*access_after_sampling, breakdown.useful);
            return;
        }
        let costs = self.state.lock().costs.clone();
        let mut weights = vec![0.0; self.machine.groups.names.len()];
        for (id, input) in epoch.work.inputs.iter_enumerated() {
            let of = |event| epoch.accessed.grouping.of(InputEvent { input: id, event });
            (0..input.len as u32).for_each(|event| weights[of(event)] += costs.of(id));
        }
        let in_all: f64 = weights.iter().sum();
        for scheduled in &mut epoch.accessed.scheduled {
            let share = scheduled.group.map_or(1.0, |group| weights[group] / in_all.max(1.0));
            scheduled.access = (epoch.accessed.access_after_sampling as f64 * share) as u64;
            scheduled.useful = (epoch.accessed.breakdown.useful as f64 * share) as u64;
        }
    }

    /// Chooses how to access an epoch; returns the range of its order that is not yet accessed.
    fn choose(&self, scratch: &mut Scratch, epoch: &mut Epoch) -> Range<usize> {
        let all = 0..epoch.transactions();
        let one_by_one = epoch.accessed.one_by_one.then(|| Choice::serially(Reason::OneByOne));
        if let Some(choice) = one_by_one.or_else(|| self.asked_for_all()) {
            epoch.accessed.scheduled.push(Scheduled::new(None, choice, all.len() as u32));
            return all;
        }
        let Scheduling::ByGroup(policies) = self.scheduling else { return self.decide(scratch, epoch, all) };
        self.group(epoch, &all);
        for scheduled in &mut epoch.accessed.scheduled {
            let policy = policies.of(scheduled.group.unwrap_or(0));
            scheduled.choice = self.asked_for(policy, self.crew.seats);
        }
        all
    }

    /// Returns the method by which the user wants all epochs to be accessed as a whole; none if it is chosen for each
    /// epoch, or by group.
    fn asked_for_all(&self) -> Option<Choice> {
        Some(match self.scheduling {
            Scheduling::Fixed(policy) => self.asked_for(policy, self.crew.seats),
            Scheduling::FixedOn(FixedOn { policy, workers }) => {
                self.asked_for(policy, self.crew.workers.min(workers.get() as usize))
            }
            Scheduling::Baseline(asked @ Scheme::NoLock) if self.sets_text() => {
                Choice::serially(Reason::Racing { asked })
            }
            Scheduling::Baseline(scheme) => Choice::scheme(scheme, self.crew.seats as u32),
            Scheduling::Auto | Scheduling::MorphStream | Scheduling::ByGroup(_) => return None,
        })
    }

    /// Returns a policy that the user requested; without speculation if the program forbids it.
    fn asked_for(&self, policy: Policy, workers: usize) -> Choice {
        let on = |policy, reason| Choice::on(Candidate::new(policy, workers as u32), reason);
        match policy.speculates() && !may_redo(&self.machine) {
            true => on(Policy { abort: Abort::VoteFirst, ..policy }, Reason::Final { asked: policy }),
            false => on(policy, Reason::Fixed),
        }
    }

    /// Finds the groups of an epoch's transactions, and lists the groups that have transactions in a range of its
    /// order.
    fn group(&self, epoch: &mut Epoch, range: &Range<usize>) {
        let groups = self.machine.groups.names.len();
        if groups == 1 {
            epoch.accessed.scheduled.push(Scheduled { transactions: range.len() as u32, ..Scheduled::default() });
            return;
        }
        epoch.accessed.grouping.fill(&self.machine, &epoch.work.inputs);
        let mut counts = vec![0u32; groups];
        epoch.each_in(&self.machine.wiring.joints, range, |at| {
            counts[epoch.accessed.grouping.of(at)] += 1;
            true
        });
        let some = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let fresh = |(group, count)| Scheduled { group: Some(group), transactions: count, ..Scheduled::default() };
        epoch.accessed.scheduled.extend(some.map(fresh));
        if epoch.accessed.scheduled.is_empty() {
            epoch.accessed.scheduled.push(Scheduled::default());
        }
    }

    /// Chooses by the known costs of transactions, and measures them first where necessary.
    fn decide(&self, scratch: &mut Scratch, epoch: &mut Epoch, mut range: Range<usize>) -> Range<usize> {
        let count = range.len() as u32;
        if self.state.lock().decisions.iter().any(|decision| decision.wants_sample(count)) {
            range.start = self.sample(scratch, epoch);
        }
        let start = self.environment.now();
        self.group(epoch, &range);
        let per_transaction = epoch.operations() as f64 / epoch.transactions().max(1) as f64;
        let mut scheduled = std::mem::take(&mut epoch.accessed.scheduled);
        for scheduled in &mut scheduled {
            let group = scheduled.group.unwrap_or(0);
            let count = (f64::from(scheduled.transactions) * per_transaction) as u32;
            let mut state = self.state.lock();
            if let Some(wanted) = state.decisions[group].wants_survey(count) {
                drop(state);
                let groups = scheduled.group.map_or(GroupSet::ALL, |group| GroupSet::of(std::iter::once(group)));
                let (survey, took) = self.survey(epoch, Selection { range: range.clone(), groups }, wanted);
                state = self.state.lock();
                state.decisions[group].surveyed(survey, took);
            }
            let decision = &mut state.decisions[group];
            scheduled.choice = decision.choose(count);
            epoch.accessed.survey = epoch.accessed.survey.or(decision.survey().copied());
        }
        epoch.accessed.scheduled = scheduled;
        epoch.times.decide = self.environment.now() - start;
        range
    }

    /// Surveys transactions; also how long that took, nanoseconds.
    fn survey(&self, epoch: &mut Epoch, selection: Selection, wanted: SurveyWanted) -> (Survey, u64) {
        let costs = self.state.lock().costs.clone();
        let start = self.environment.now();
        let mut memory = self.memory();
        let survey = memory.survey(&self.machine, epoch, &selection, wanted, self.crew.seats, &|input| costs.of(input));
        let took = self.environment.now() - start;
        epoch.accessed.breakdown.construct += took;
        self.state.lock().spare.push(memory);
        (survey, took)
    }

    /// Runs the sampling prefix: the first transactions of an epoch, serially, to estimate the cost of each input's
    /// transactions and of the whole epoch. Returns their number.
    fn sample(&self, scratch: &mut Scratch, epoch: &mut Epoch) -> usize {
        let (all, operations) = (epoch.transactions(), epoch.operations());
        let mut at = WARM_UP.min(all);
        self.access_serially(scratch, epoch, 0..at, CALLS_PER_SAMPLE);
        let (first, start) = (at, self.environment.now());
        while at < all.min(SAMPLED_MAX) && self.environment.now() - start < SAMPLED_NS {
            let next = (at + WARM_UP.max(at - first)).min(all).min(SAMPLED_MAX);
            self.access_serially(scratch, epoch, at..next, 1);
            at = next;
        }
        let mut state = self.state.lock();
        state.costs.add(&epoch.accessed.sampled);
        let of_input = |(id, input): (InputId, &Input)| input.len as f64 * state.costs.of(id);
        let access_ns = epoch.work.inputs.iter_enumerated().map(of_input).sum::<f64>() as u64;
        let others_ns = epoch.times.prepare;
        state.decisions.iter_mut().for_each(|d| d.sample(operations as u32, access_ns, others_ns));
        at
    }

    /// Buffers for a part, reused if there are any.
    fn memory(&self) -> Memory {
        let spare = self.state.lock().spare.pop();
        spare.unwrap_or_else(|| {
            let workers = self.crew.workers;
            let sockets = (0..workers).map(|worker| self.environment.socket(worker, workers));
            Memory::new(&self.machine, &sockets.collect::<Vec<_>>())
        })
    }

    /// Returns whether a transaction sets texts. Workers that race must not set any: two of them would free the memory
    /// of the same old text.
    fn sets_text(&self) -> bool {
        let program = &self.machine.program;
        program.transactions.iter().any(|transaction| transaction.sets_text(program))
    }

    /// Accesses a range of an epoch's order together with as many workers as its choices want.
    fn access_together(
        &self,
        scratch: &mut Scratch,
        worker: &mut Worker,
        epoch: Box<Epoch>,
        range: Range<usize>,
        sharing: &dyn Sharing,
        ahead: Option<&mut Listing>,
    ) -> Box<Epoch> {
        let start = self.environment.now();
        let job = Arc::new(Job::new(&self.machine, || self.memory(), epoch, &range, ahead));
        let begun = self.environment.now();
        let helpers = job.workers().min(self.crew.workers) - 1;
        if helpers > 0 {
            sharing.share(job.clone(), helpers);
        }
        job.help(&self.machine, self.environment.as_ref(), scratch, worker, Role::Owner);
        let done = self.environment.now();
        job.finish();
        if helpers > 0 {
            sharing.withdraw();
        }
        let (mut epoch, memories) = Job::end(job);
        self.state.lock().spare.extend(memories);
        epoch.accessed.breakdown.construct += begun - start;
        epoch.accessed.breakdown.other += self.environment.now() - done;
        epoch
    }

    /// Reports an epoch's cost to the decisions: to each the cost of its group, and the group's share of the other
    /// stages.
    pub fn learn(&self, epoch: &Epoch) {
        if !self.scheduling.is_decided() || epoch.accessed.one_by_one {
            return;
        }
        // The decision covers the first wave only.
        let first = |id| self.machine.wiring.is_first(id);
        let outcomes: Vec<_> = epoch.accessed.scheduled.iter().map(|s| epoch.outcomes_of(s.group, first)).collect();
        let operations = epoch.operations_of(first) as f64;
        // Listing serves some policies only, so its time counts as their access.
        let listed = epoch.accessed.listed;
        let others = (epoch.times.prepare.saturating_sub(listed) + epoch.times.finish) as f64;
        let in_all: u32 = epoch.accessed.scheduled.iter().map(|s| s.transactions).sum();
        let mut state = self.state.lock();
        state.costs.add(&epoch.accessed.sampled);
        for (scheduled, (of_group, aborted)) in epoch.accessed.scheduled.iter().zip(outcomes) {
            // The sampling prefix is not part of the transactions that the decision covers.
            let decided = f64::from(scheduled.transactions) / f64::from(of_group.max(1));
            let aborted = ((f64::from(aborted) * decided).round() as u32).min(scheduled.transactions);
            let share = f64::from(scheduled.transactions) / f64::from(in_all.max(1));
            state.decisions[scheduled.group.unwrap_or(0)].record(EpochCost {
                choice: scheduled.choice,
                transactions: scheduled.transactions,
                operations: (operations * share) as u32,
                aborted,
                access_ns: scheduled.access + listed / u64::from(scheduled.choice.workers),
                useful_ns: scheduled.useful,
                other_ns: (others * share) as u64,
            });
        }
    }
}

/// Returns the method of an epoch that runs as a whole.
fn whole(scheduled: &[Scheduled]) -> Option<Method> {
    match scheduled {
        [Scheduled { group: None, choice, .. }] => Some(choice.method),
        _ => None,
    }
}
