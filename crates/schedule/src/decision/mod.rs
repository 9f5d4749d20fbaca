//! Which policy the next epoch gets, by a model of its cost that is corrected as epochs run.
//!
//! # The rule
//!
//! Let an epoch cost *a* of access on one worker when run serially, *c* of access wall time when all *W* workers
//! run its graph under some policy, and *o* of work in the other stages, all per operation: an access to a row, of which
//! an epoch's number is known beforehand, and which transactions of different kinds have more alike than their cost.
//!
//! - Serially, one worker accesses while *W* − 1 do the rest, so the pipeline moves at
//!   max(*a*, *o* / (*W* − 1)). **As long as *a* is the smaller, run serially**: a graph could only move
//!   work that is not the bottleneck, at a price.
//! - Otherwise the pipeline moves at *a* serially and at *c* + *o* / *W* in parallel: **take the cheapest**.
//!
//! # What is known
//!
//! *a* and *o* are measured: averages over recent epochs, in which accidents do not count (`level`). *c* is predicted for
//! every policy from a [`Survey`] of a sample of the epoch and the time that units take in parallel ([`model`]), times
//! the policy's *ratio*: what its epochs took, of what was predicted (`known`). While epochs run in parallel *a* is what
//! units take there, less what they were seen to take longer than serially. That may be wrong, so the loop is doubted then
//! like a policy that was never run. When epochs run serially again *a* is measured, and what units take in parallel stays
//! what it was: so a wrong belief about one is not carried to the other.
//!
//! A policy that was never run has the ratio of those most like it, and is taken for dearer than that by a doubt. So a
//! policy can be taken on prediction alone, if it is better by more than the doubt, and from then on is known.
//!
//! The very first epoch is begun serially, until a few transactions have shown what they cost
//! ([`Decision::wants_sample`]); the rest of it is the first to be decided about.
//!
//! # What it costs
//!
//! Surveys and estimates have a budget each ([`DECIDING_MAX`], of which half), by what they are measured to take as a rule:
//! one in which the processor was taken away does not forbid others for seconds. The first survey, as soon as access is the
//! bottleneck and operations are not too cheap for any graph, is of as many operations as there is time for; later ones are
//! whole, and a smaller sample, which says less, waits the longer for it. Between two estimates the last stands.
//!
//! # Exploration
//!
//! A policy that may be the best, if the doubt is in its favour, is *probed* for a few epochs, of which the best counts,
//! since the first warm up. None can be hoped to share out work better than evenly; where the best known is near that,
//! nothing is probed.
//! What epochs cost over what the best known policy was expected to cost is *regret*, be they probes or choices that
//! prediction was wrong about. A probe begins only if all regret so far, and that which it must be expected to cause,
//! is below [`REGRET_MAX`] of all time. A policy that lost rests, twice as long each time.
//!
//! Pure: no clock and no randomness; the same costs give the same choices. Choosing may run ahead of
//! recording by a few epochs, as stages of neighbouring epochs overlap.

mod budget;
mod known;
mod level;
pub mod model;
mod morphstream;
mod reason;

use crate::method::Method;
use crate::policy::{Granularity, Policy};
use budget::Budget;
use known::{CHANGE, DOUBT, Families, Known, TRAVEL_MAX, WARM_UP};
use level::Level;
pub use model::Load;
pub use reason::{Choice, Reason};
use tidemill_txn::Survey;

/// Below this cost of an operation, in nanoseconds, no graph is looked at. `examples/chain_overhead.rs` on two
/// workers: chains about even with the loop at 50, 1.2 to 1.6 times as fast at 100.
pub const OPERATION_NS_MIN: f64 = 60.0;
/// The part of all time that probes and wrong guesses may cost before no further probe begins.
pub const REGRET_MAX: f64 = 0.03;
/// The part of all time that deciding may cost, half of it looking at epochs and half of it comparing policies.
pub const DECIDING_MAX: f64 = 0.005;
/// Access that takes less serially, nanoseconds, is run so: some times what waking workers costs.
pub const SHARED_NS_MIN: f64 = 30_000.0;
/// Transactions of an epoch that can show what they cost, for each worker.
pub const SAMPLED_PER_WORKER_MIN: u32 = 16;

/// Operations of a survey at the most, and of the first one at the least, if there are as many.
const SURVEYED_MAX: f64 = 2_048.0;
const SURVEYED_MIN: f64 = 64.0;
/// What surveying an operation takes, nanoseconds, until it was measured: with nothing in caches. And what comparing all
/// policies takes.
const SURVEY_NS: f64 = 200.0;
const ESTIMATE_NS: f64 = 3_000.0;

/// Epochs of a probe at the least and at the most, and how long it takes about, nanoseconds: what is new to the caches
/// stays so for some time, however short epochs are.
const PROBE_EPOCHS: u32 = 2;
const PROBE_EPOCHS_MAX: u32 = 6;
const PROBE_NS: f64 = 2_000_000.0;
/// How much of the weight of earlier epochs remains with each new one, in the share of aborts.
const DECAY: f64 = 0.75;
/// As if so many epochs had run before the first, so that short runs look around a little, too.
const HEAD_START: f64 = 16.0;
/// A probe begins for no less than this may save of the time.
const PROMISE_MIN: f64 = 0.06;
/// A policy is replaced by one that is better by so much.
const ADVANTAGE_MIN: f64 = 0.03;
/// The first rest of a policy that lost, in epochs.
const REST_EPOCHS_MIN: f64 = 64.0;

/// Whose model decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Ours.
    #[default]
    Measured,
    /// MorphStream's heuristic, to measure against.
    MorphStream,
}

/// What a finished epoch cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochCost {
    /// How it was run.
    pub choice: Choice,
    /// Its transactions.
    pub transactions: u32,
    /// Its operations.
    pub operations: u32,
    /// Those that aborted.
    pub aborted: u32,
    /// Wall time of the access stage, linking included, in nanoseconds.
    pub access_ns: u64,
    /// Of it, the time that transactions took, all workers together; 0 where it is not known.
    pub useful_ns: u64,
    /// Time that all workers together spent in its other stages, in nanoseconds.
    pub other_ns: u64,
}

/// What the pipeline is expected to take for an operation under a policy.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    policy: Policy,
    /// Access alone.
    access: f64,
    pipeline: f64,
    /// The same, if the doubt is in its favour, and if it is not.
    hoped: f64,
    feared: f64,
}

/// A probe on its way: chosen for some epochs, recorded for some.
#[derive(Clone, Copy, Debug)]
struct Probe {
    policy: Policy,
    /// What access is expected to take for an operation.
    access: f64,
    chosen: u32,
    recorded: u32,
    /// How long it may go on beyond the least number of epochs.
    left_ns: f64,
    regret_ns: f64,
}

impl Probe {
    fn goes_on(&self) -> bool {
        self.chosen < PROBE_EPOCHS || self.chosen < PROBE_EPOCHS_MAX && self.left_ns > 0.0
    }
}

/// The decision model of one pipeline.
#[derive(Clone, Debug)]
pub struct Decision {
    workers: u32,
    model: Model,
    access: Level,
    others: Level,
    /// Whether `access` is from more than a few transactions.
    is_measured: bool,
    /// Serial epochs since the last parallel one, and the least that access took in one of them.
    serial_epochs: u32,
    serial_least: f64,
    /// Smoothed alike, but shares may be 0, from where everything is far.
    aborts: f64,
    survey: Option<Survey>,
    /// What surveys take for an operation, and estimates, nanoseconds.
    survey_ns: Level,
    estimate_ns: Level,
    known: Vec<Known>,
    current: Policy,
    /// The best policy and the one next to it, by the last estimates.
    standing: Option<(Estimate, Estimate)>,
    /// Whether the last choice was by new ones.
    is_fresh: bool,
    probe: Option<Probe>,
    /// Sum over the recorded epochs of what the pipeline took.
    elapsed_ns: f64,
    /// What of it is lost on worse policies, and goes into surveys and estimates.
    regret: Budget,
    surveying: Budget,
    estimating: Budget,
}

impl Decision {
    /// For a pipeline of this many workers. `may_speculate`: transactions can be run again.
    pub fn new(workers: usize, model: Model, may_speculate: bool) -> Self {
        let policies = Policy::all().into_iter().filter(|policy| may_speculate || !policy.speculates());
        Decision {
            workers: workers as u32,
            model,
            access: Level::default(),
            others: Level::default(),
            is_measured: false,
            serial_epochs: 0,
            serial_least: f64::INFINITY,
            aborts: 0.0,
            survey: None,
            survey_ns: Level::of(SURVEY_NS),
            estimate_ns: Level::of(ESTIMATE_NS),
            known: policies.map(Known::new).collect(),
            current: Policy::EPOCH,
            standing: None,
            is_fresh: false,
            probe: None,
            elapsed_ns: 0.0,
            regret: Budget::new(REGRET_MAX),
            surveying: Budget::new(DECIDING_MAX / 2.0),
            estimating: Budget::new(DECIDING_MAX / 2.0),
        }
    }

    /// Whether an epoch of so many transactions should be begun serially, to know what they cost.
    pub fn wants_sample(&self, transactions: u32) -> bool {
        self.workers > 1 && self.access.value().is_none() && transactions >= self.workers * SAMPLED_PER_WORKER_MIN
    }

    /// Some transactions of the epoch at hand were run serially. By that the whole epoch is expected to take
    /// `access_ns`; `prepare_ns` is what it took to prepare.
    pub fn sample(&mut self, operations: u32, access_ns: u64, prepare_ns: u64) {
        let count = f64::from(operations.max(1));
        self.access.set(access_ns as f64 / count);
        // What it takes to finish is not known, and less.
        self.others.set(1.3 * prepare_ns as f64 / count);
    }

    /// Of how many operations a survey of the next epoch, which has so many, should be before it is chosen for, if there
    /// should be one.
    pub fn wants_survey(&self, operations: u32) -> Option<u32> {
        let load = self.load().filter(|_| self.workers > 1 && !self.is_small(operations))?;
        if self.model == Model::MorphStream {
            return Some(SURVEYED_MAX as u32);
        }
        let epoch_ns = load.access_ns * f64::from(operations) / f64::from(self.workers);
        let affordable = self.surveying.left(self.with_head_start(epoch_ns)) / self.survey_ns.value()?;
        let whole = f64::from(operations).min(SURVEYED_MAX);
        let (size, least) = match self.survey {
            None => (affordable.min(whole), whole.min(SURVEYED_MIN)),
            Some(last) => (whole, (SURVEYED_MAX * (f64::from(last.chains.operations) / whole).powi(2)).max(whole)),
        };
        (self.is_worth_a_look(&load) && affordable >= least).then_some(size.ceil() as u32)
    }

    /// It was, and that took so long.
    pub fn surveyed(&mut self, survey: Survey, took_ns: u64) {
        let operations = f64::from(survey.chains.operations.max(1));
        self.survey_ns.add(took_ns as f64 / operations);
        self.surveying.spend(self.survey_ns.value().unwrap_or_default() * operations);
        self.survey = Some(survey);
    }

    /// The last survey.
    pub fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// The policy for the next epoch, of so many operations. Every choice is to be recorded once its epoch
    /// has run.
    pub fn choose(&mut self, operations: u32) -> Choice {
        if self.workers < 2 {
            return Choice::given(Policy::EPOCH, Reason::OneWorker);
        }
        let Some(load) = self.load().filter(|_| !self.is_small(operations)) else {
            return Choice::given(Policy::EPOCH, Reason::Small { operations });
        };
        let count = f64::from(operations);
        let serial = Choice::given(Policy::EPOCH, Reason::Unmeasured);
        let serial = Choice { expected_ns: Some(load.access_ns * count), ..serial };
        let is_worth_a_look = self.is_worth_a_look(&load);
        let Some(survey) = self.survey else {
            let reason = if is_worth_a_look { Reason::Unmeasured } else { self.serial_reason(&load, count) };
            return Choice { reason, ..serial };
        };
        if self.model == Model::MorphStream {
            let policy = morphstream::morphstream(&survey, &load);
            let policy = self.known.iter().map(|known| known.policy).find(|known| *known == policy);
            // Where nothing can be run again, as the next best: vote first.
            let policy = policy.unwrap_or(Policy { abort: crate::Abort::VoteFirst, ..Policy::CHAIN });
            return Choice::given(policy, Reason::MorphStream);
        }
        if !is_worth_a_look {
            self.current = Policy::EPOCH;
            return Choice { reason: self.serial_reason(&load, count), ..serial };
        }
        self.is_fresh = self.standing.is_none() || self.estimating.left(self.elapsed_ns) > 0.0;
        let (best, second) = match self.standing {
            Some(standing) if !self.is_fresh => standing,
            _ => self.compare(&survey, &load, count),
        };
        if let Some(probe) = &mut self.probe
            && probe.goes_on()
        {
            probe.chosen += 1;
            probe.left_ns -= probe.access * count;
            let reason = Reason::Probe { instead_of_ns: best.pipeline * count };
            return Choice { method: Method::Policy(probe.policy), reason, expected_ns: Some(probe.access * count) };
        }
        let (chosen_ns, rejected_ns) = (best.pipeline * count, second.pipeline * count);
        let reason = Reason::Cheaper { chosen_ns, rejected_ns, rejected: second.policy };
        Choice { method: Method::Policy(best.policy), reason, expected_ns: Some(best.access * count) }
    }

    /// The last choice took so long.
    pub fn chosen(&mut self, took_ns: u64) {
        if std::mem::take(&mut self.is_fresh) {
            self.estimate_ns.add(took_ns as f64);
            self.estimating.spend(self.estimate_ns.value().unwrap_or_default());
        }
    }

    /// Compares all policies: the best and the one next to it. A probe may begin.
    fn compare(&mut self, survey: &Survey, load: &Load, count: f64) -> (Estimate, Estimate) {
        let estimates = self.estimates(survey, load, count);
        let (best, second) = self.best(&estimates);
        self.current = best.policy;
        self.standing = Some((best, second));
        if self.probe.is_none() {
            self.probe = self.next_probe(&estimates, &best, count);
            let probed = self.probe.and_then(|probe| self.known.iter_mut().find(|known| known.policy == probe.policy));
            probed.into_iter().for_each(Known::probe);
        }
        (best, second)
    }

    /// Learns from a finished epoch.
    pub fn record(&mut self, cost: EpochCost) {
        let EpochCost { choice, transactions, operations, access_ns, .. } = cost;
        let is_small = matches!(choice.reason, Reason::Small { .. }) && (access_ns as f64) < SHARED_NS_MIN;
        let Method::Policy(policy) = choice.method else { return };
        if self.workers < 2 || is_small {
            return;
        }
        let count = f64::from(operations.max(1));
        self.others.add(cost.other_ns as f64 / count);
        let aborted = f64::from(cost.aborted) / f64::from(transactions.max(1));
        self.aborts = self.aborts * DECAY + aborted * (1.0 - DECAY);
        if policy.granularity == Granularity::Epoch {
            self.follow_serially(access_ns as f64 / count);
        } else {
            self.follow_in_parallel(policy, &cost);
        }
        let Some(load) = self.load() else { return };
        let taken = self.pipeline(policy, access_ns as f64 / count, &load) * count;
        self.elapsed_ns += taken;
        let Some(survey) = self.survey else { return };
        if policy.granularity != Granularity::Epoch {
            let units_ns = if cost.useful_ns > 0 { cost.useful_ns as f64 / count } else { load.access_ns };
            let load = Load { units_ns, ..load };
            let predicted = model::predict(policy, &survey, &load, count, f64::from(self.workers));
            let families = Families::of(&self.known);
            if let Some(known) = self.known.iter_mut().find(|known| known.policy == policy) {
                known.learn(access_ns as f64 / predicted.max(1.0), known.expected(&families).ratio);
            }
        }
        let regret = match choice.reason {
            Reason::Probe { instead_of_ns } => taken - instead_of_ns,
            // What a wrong prediction cost, by what the next best was expected to.
            Reason::Cheaper { rejected_ns, .. } if self.is_new(policy) => taken - rejected_ns,
            _ => 0.0,
        };
        self.regret.spend(regret.max(0.0));
        self.end_probe(policy, regret, taken);
    }

    /// Follows the cost of operations by a serial epoch.
    fn follow_serially(&mut self, access_ns: f64) {
        self.serial_epochs = self.serial_epochs.saturating_add(1);
        let before = self.access.value();
        if self.serial_epochs > WARM_UP {
            return self.access.add(access_ns);
        }
        // What was inferred from units may be wrong, and the first epochs warm up: the best of them counts, and that
        // serial epochs take longer than believed only when all have said so.
        self.serial_least = self.serial_least.min(access_ns);
        if self.serial_epochs < WARM_UP && before.is_some_and(|before| self.serial_least > before) {
            return;
        }
        self.access.renew(self.serial_least);
        self.is_measured = true;
        let longer = self.access.value().zip(before).map_or(0.0, |(now, before)| now - before);
        self.known.iter_mut().for_each(|known| known.recalibrate(longer));
    }

    /// Follows the cost of operations by that of units, as far as both are known.
    fn follow_in_parallel(&mut self, policy: Policy, cost: &EpochCost) {
        (self.serial_epochs, self.serial_least) = (0, f64::INFINITY);
        let Some(access) = self.access.value() else { return };
        let Some(known) = self.known.iter_mut().find(|known| known.policy == policy) else { return };
        if cost.useful_ns == 0 {
            return;
        }
        let useful_ns = cost.useful_ns as f64 / f64::from(cost.operations.max(1));
        let serial_ns = known.serial_ns(useful_ns, access);
        match known.samples < WARM_UP {
            false => self.access.add(serial_ns),
            true if !self.is_measured => self.access.set(serial_ns),
            true => {}
        }
        self.is_measured |= known.samples >= WARM_UP;
    }

    /// Whether so little is known of a policy that its choice was a guess. What the loop costs is always known.
    fn is_new(&self, policy: Policy) -> bool {
        let is_new = |known: &Known| known.policy == policy && known.samples <= PROBE_EPOCHS;
        policy.granularity != Granularity::Epoch && self.known.iter().any(is_new)
    }

    fn end_probe(&mut self, policy: Policy, regret: f64, epoch_ns: f64) {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.policy == policy) else { return };
        probe.regret_ns += regret.max(0.0);
        probe.recorded += 1;
        if probe.goes_on() || probe.recorded < probe.chosen {
            return;
        }
        let rest = (probe.regret_ns / REGRET_MAX).max(epoch_ns * REST_EPOCHS_MIN);
        self.probe = None;
        if let Some(known) = self.known.iter_mut().find(|known| known.policy == policy) {
            known.settle();
            known.rest_ns = rest.max(known.rest_ns * 2.0);
            known.rests_until_ns = self.elapsed_ns + known.rest_ns;
        }
    }

    /// Whether an epoch is not known to be worth waking workers for.
    fn is_small(&self, operations: u32) -> bool {
        self.access.value().is_none_or(|access_ns| access_ns * f64::from(operations) < SHARED_NS_MIN)
    }

    /// The time so far, as if a few epochs had run before the first.
    fn with_head_start(&self, epoch_ns: f64) -> f64 {
        self.elapsed_ns + HEAD_START * epoch_ns
    }

    fn load(&self) -> Option<Load> {
        let access_ns = self.access.value()?;
        Some(Load { access_ns, units_ns: access_ns, other_ns: self.others.value()?, aborts: self.aborts })
    }

    fn others(&self, load: &Load) -> f64 {
        load.other_ns / f64::from(self.workers - 1)
    }

    /// Whether any graph may pay.
    fn is_worth_a_look(&self, load: &Load) -> bool {
        load.access_ns > self.others(load) && load.access_ns > OPERATION_NS_MIN
    }

    fn serial_reason(&self, load: &Load, count: f64) -> Reason {
        let (access, others) = (load.access_ns, self.others(load));
        match access <= others {
            true => Reason::OthersLonger { access_ns: access * count, others_ns: others * count },
            false => Reason::Cheap { operation_ns: access },
        }
    }

    /// What the pipeline takes for an operation whose access takes so long.
    fn pipeline(&self, policy: Policy, access: f64, load: &Load) -> f64 {
        match policy.granularity {
            Granularity::Epoch => access.max(self.others(load)),
            Granularity::Chain | Granularity::Operation => access + load.other_ns / f64::from(self.workers),
        }
    }

    fn estimates(&self, survey: &Survey, load: &Load, count: f64) -> Vec<Estimate> {
        let workers = f64::from(self.workers);
        // Nobody shares out work better than evenly.
        let least_access = load.access_ns / workers;
        let families = Families::of(&self.known);
        let of = |known: &Known| {
            let policy = known.policy;
            let pipeline = |access: f64| self.pipeline(policy, access, load);
            if policy.granularity == Granularity::Epoch {
                let (access, expected) = (load.access_ns, pipeline(load.access_ns));
                let hoped = match self.serial_epochs {
                    // It is what units take less what rows' travel was taken to be, which may be more.
                    0 => pipeline((access - TRAVEL_MAX).max(access * (1.0 - DOUBT))),
                    _ => expected,
                };
                let hoped = hoped.min(expected * (1.0 - CHANGE));
                return Estimate { policy, access, pipeline: expected, hoped, feared: expected };
            }
            let expected = known.expected(&families);
            let load = Load { units_ns: (load.access_ns + expected.travel).max(1.0), ..*load };
            let predicted = model::predict(policy, survey, &load, count, workers) / count;
            Estimate {
                policy,
                access: predicted * expected.ratio,
                pipeline: pipeline(predicted * expected.ratio),
                hoped: pipeline((predicted * expected.least).max(least_access)),
                feared: pipeline(predicted * expected.most),
            }
        };
        self.known.iter().map(of).collect()
    }

    /// The best and the one next to it, doubting those that were never run; the current one stays unless another is
    /// clearly better.
    fn best(&self, estimates: &[Estimate]) -> (Estimate, Estimate) {
        let bound = |e: &Estimate| e.feared * if e.policy == self.current { 1.0 - ADVANTAGE_MIN } else { 1.0 };
        let best = estimates.iter().min_by(|a, b| bound(a).total_cmp(&bound(b))).expect("there are policies");
        let others = estimates.iter().filter(|e| e.policy != best.policy);
        let second = others.min_by(|a, b| a.feared.total_cmp(&b.feared)).expect("there are several policies");
        (*best, *second)
    }

    /// A policy that may be better than the best, as far as there is room for regret.
    fn next_probe(&self, estimates: &[Estimate], best: &Estimate, count: f64) -> Option<Probe> {
        let awake = self.known.iter().zip(estimates).filter(|(known, _)| known.rests_until_ns <= self.elapsed_ns);
        let candidates = awake.map(|(_, estimate)| estimate).filter(|e| e.policy != best.policy);
        let candidate = candidates.min_by(|a, b| a.hoped.total_cmp(&b.hoped))?;
        let feared = candidate.feared - best.pipeline;
        let epochs = (PROBE_NS / (candidate.pipeline * count)).ceil() as u32;
        let epochs = epochs.clamp(PROBE_EPOCHS, PROBE_EPOCHS_MAX);
        let regret = f64::from(epochs) * feared.max(0.0) * count;
        let is_promising = candidate.hoped < best.pipeline * (1.0 - PROMISE_MIN);
        let elapsed = self.with_head_start(best.pipeline * count);
        (is_promising && regret <= self.regret.left(elapsed)).then_some(Probe {
            policy: candidate.policy,
            access: candidate.access,
            chosen: 0,
            recorded: 0,
            left_ns: PROBE_NS,
            regret_ns: 0.0,
        })
    }
}

#[cfg(test)]
mod tests;
