//! Which policy the next epoch gets, by a model of its cost that is corrected as epochs run.
//!
//! # The rule
//!
//! Let an epoch cost *a* of access on one worker when run serially, *c* of access wall time when all *W* workers
//! run its graph under some policy, and *o* of work in the other stages, all per transaction.
//!
//! - Serially, one worker accesses while *W* − 1 do the rest, so the pipeline moves at
//!   max(*a*, *o* / (*W* − 1)). **As long as *a* is the smaller, run serially**: a graph could only move
//!   work that is not the bottleneck, at a price (DESIGN §4).
//! - Otherwise the pipeline moves at *a* serially and at *c* + *o* / *W* in parallel: **take the cheapest**.
//!
//! # What is known
//!
//! *a* and *o* are measured: averages over recent epochs, in which accidents do not count (`level`). *c* is predicted for
//! every policy from a [`Survey`] of a sample of the epoch and the time that units take in parallel ([`model`]), times
//! the policy's *ratio*: what its epochs took, of what was predicted (`known`). While epochs run in parallel *a* is what
//! units take there, less what they were seen to take longer than serially. When epochs run serially again *a* is
//! measured, and what units take in parallel stays what it was: so a wrong belief about one is not carried to the other.
//!
//! A policy that was never run has the ratio of those most like it, and is taken for dearer than that by a doubt. So a
//! policy can be taken on prediction alone, if it is better by more than the doubt, and from then on is known.
//!
//! The very first epoch is begun serially, until a few transactions have shown what they cost
//! ([`Decision::wants_sample`]); the rest of it is the first to be decided about.
//!
//! # What it costs
//!
//! A survey is taken when access is the bottleneck and operations are not too cheap for any graph, and again when
//! the last has cost less than [`SURVEY_MAX`] of the time since.
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

mod known;
mod level;
pub mod model;
mod morphstream;
mod reason;

use crate::policy::{Granularity, Policy};
use known::{CHANGE, Families, Known, WARM_UP};
use level::Level;
pub use model::Load;
pub use reason::{Choice, Reason};
use tidemill_txn::Survey;

/// Below this cost of an operation, in nanoseconds, no graph is looked at. `examples/chain_overhead.rs` on two
/// workers: chains about even with the loop at 50, 1.2 to 1.6 times as fast at 100.
pub const OPERATION_NS_MIN: f64 = 60.0;
/// The part of all time that probes and wrong guesses may cost before no further probe begins.
pub const REGRET_MAX: f64 = 0.03;
/// The part of all time that surveys may cost.
pub const SURVEY_MAX: f64 = 0.005;
/// Epochs with fewer transactions per worker are run serially and not learned from, unless they take
/// [`SHARED_NS_MIN`]: the cost of waking the workers would be most of what is measured.
pub const TRANSACTIONS_PER_WORKER_MIN: u32 = 16;
/// Access that takes longer serially, nanoseconds, may be shared out however few transactions it is: twenty times what
/// waking workers costs.
pub const SHARED_NS_MIN: f64 = 100_000.0;

/// Epochs of a probe at the least and at the most, and how long it takes about, nanoseconds: what is new to the caches
/// stays so for some time, however short epochs are.
const PROBE_EPOCHS: u32 = 2;
const PROBE_EPOCHS_MAX: u32 = 6;
const PROBE_NS: f64 = 2_000_000.0;
/// How much of the weight of earlier epochs remains with each new one, in the share of aborts.
const DECAY: f64 = 0.75;
/// As if so many epochs had run before the first, so that short runs explore a little, too.
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

/// What the pipeline is expected to take for a transaction under a policy.
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
    to_choose: u32,
    to_record: u32,
    regret_ns: f64,
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
    /// Serial epochs since the last parallel one.
    serial_epochs: u32,
    /// Smoothed alike, but shares may be 0, from where everything is far.
    aborts: f64,
    operations_per_transaction: f64,
    survey: Option<Survey>,
    /// When it was taken, in `elapsed_ns`, and how long it took.
    surveyed: (f64, f64),
    known: Vec<Known>,
    current: Policy,
    probe: Option<Probe>,
    /// Sum over the recorded epochs of what the pipeline took, and the part of it that was lost on worse policies.
    elapsed_ns: f64,
    regret_ns: f64,
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
            aborts: 0.0,
            operations_per_transaction: 1.0,
            survey: None,
            surveyed: (0.0, 0.0),
            known: policies.map(Known::new).collect(),
            current: Policy::EPOCH,
            probe: None,
            elapsed_ns: 0.0,
            regret_ns: 0.0,
        }
    }

    /// Whether an epoch of so many transactions should be begun serially, to know what they cost.
    pub fn wants_sample(&self, transactions: u32) -> bool {
        self.workers > 1 && !self.is_few(transactions) && self.access.value().is_none()
    }

    /// Some transactions of the epoch at hand were run serially. By that the whole epoch is expected to take
    /// `access_ns`; `prepare_ns` is what it took to prepare.
    pub fn sample(&mut self, transactions: u32, operations: u32, access_ns: u64, prepare_ns: u64) {
        let count = f64::from(transactions.max(1));
        self.operations_per_transaction = f64::from(operations.max(1)) / count;
        self.access.set(access_ns as f64 / count);
        // What it takes to finish is not known, and less.
        self.others.set(1.3 * prepare_ns as f64 / count);
    }

    /// Whether the next epoch should be surveyed before it is chosen for.
    pub fn wants_survey(&self, transactions: u32) -> bool {
        let Some(load) = self.load() else { return false };
        if self.workers < 2 || self.is_small(transactions) {
            return false;
        }
        if self.model == Model::MorphStream || self.survey.is_none() {
            return self.model == Model::MorphStream || self.is_worth_a_look(&load);
        }
        let (at, cost) = self.surveyed;
        self.is_worth_a_look(&load) && (self.elapsed_ns - at) * SURVEY_MAX >= cost
    }

    /// It was, and that took so long.
    pub fn surveyed(&mut self, survey: Survey, took_ns: u64) {
        self.survey = Some(survey);
        self.surveyed = (self.elapsed_ns, took_ns as f64);
    }

    /// The last survey.
    pub fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// The policy for the next epoch, of so many transactions. Every choice is to be recorded once its epoch
    /// has run.
    pub fn choose(&mut self, transactions: u32) -> Choice {
        if self.workers < 2 {
            return Choice::given(Policy::EPOCH, Reason::OneWorker);
        }
        if self.is_small(transactions) {
            return Choice::given(Policy::EPOCH, Reason::Small { transactions });
        }
        let Some(load) = self.load() else {
            return Choice::given(Policy::EPOCH, Reason::Unmeasured);
        };
        let count = f64::from(transactions);
        let serial = Choice::given(Policy::EPOCH, Reason::Unmeasured);
        let serial = Choice { expected_ns: Some(load.access_ns * count), ..serial };
        let Some(survey) = self.survey else {
            return Choice { reason: self.serial_reason(&load, count), ..serial };
        };
        if self.model == Model::MorphStream {
            let policy = morphstream::morphstream(&survey, &load);
            let policy = self.known.iter().map(|known| known.policy).find(|known| *known == policy);
            // Where nothing can be run again, as the next best: vote first.
            let policy = policy.unwrap_or(Policy { abort: crate::Abort::VoteFirst, ..Policy::CHAIN });
            return Choice::given(policy, Reason::MorphStream);
        }
        if !self.is_worth_a_look(&load) {
            self.current = Policy::EPOCH;
            return Choice { reason: self.serial_reason(&load, count), ..serial };
        }
        let estimates = self.estimates(&survey, &load, count);
        let (best, second) = self.best(&estimates);
        self.current = best.policy;
        if self.probe.is_none() {
            self.probe = self.next_probe(&estimates, &best, count);
        }
        if let Some(probe) = &mut self.probe
            && probe.to_choose > 0
        {
            probe.to_choose -= 1;
            let estimate = estimates.iter().find(|e| e.policy == probe.policy).expect("every policy is estimated");
            let reason = Reason::Probe { instead_of_ns: best.pipeline * count };
            return Choice { policy: probe.policy, reason, expected_ns: Some(estimate.access * count) };
        }
        let (chosen_ns, rejected_ns) = (best.pipeline * count, second.pipeline * count);
        let reason = Reason::Cheaper { chosen_ns, rejected_ns, rejected: second.policy };
        Choice { policy: best.policy, reason, expected_ns: Some(best.access * count) }
    }

    /// Learns from a finished epoch.
    pub fn record(&mut self, cost: EpochCost) {
        let EpochCost { choice, transactions, access_ns, .. } = cost;
        if self.workers < 2 || self.is_few(transactions) && (access_ns as f64) < SHARED_NS_MIN {
            return;
        }
        let count = f64::from(transactions);
        self.others.add(cost.other_ns as f64 / count);
        self.aborts = self.aborts * DECAY + f64::from(cost.aborted) / count * (1.0 - DECAY);
        self.operations_per_transaction = f64::from(cost.operations.max(1)) / count;
        let policy = choice.policy;
        if policy.granularity == Granularity::Epoch {
            self.follow_serially(access_ns as f64 / count);
        } else {
            self.follow_in_parallel(&cost);
        }
        let Some(load) = self.load() else { return };
        let taken = self.pipeline(policy, access_ns as f64 / count, &load) * count;
        self.elapsed_ns += taken;
        let Some(survey) = self.survey else { return };
        if policy.granularity != Granularity::Epoch {
            let units_ns = if cost.useful_ns > 0 { cost.useful_ns as f64 / count } else { load.access_ns };
            let load = Load { units_ns, ..load };
            let predicted = model::predict(policy, &survey, &load, count, f64::from(self.workers));
            self.learn(policy, access_ns as f64 / predicted.max(1.0));
        }
        let regret = match choice.reason {
            Reason::Probe { instead_of_ns } => taken - instead_of_ns,
            // What a wrong prediction cost, by what the next best was expected to.
            Reason::Cheaper { rejected_ns, .. } if self.is_new(policy) => taken - rejected_ns,
            _ => 0.0,
        };
        self.regret_ns += regret.max(0.0);
        self.end_probe(policy, regret, taken);
    }

    /// Follows the cost of transactions by a serial epoch.
    fn follow_serially(&mut self, access_ns: f64) {
        self.serial_epochs = self.serial_epochs.saturating_add(1);
        let before = self.access.value();
        if self.serial_epochs > WARM_UP {
            return self.access.add(access_ns);
        }
        // What was inferred from units may be wrong, and the first epochs warm up: the best of them counts.
        let best = if self.serial_epochs == 1 { access_ns } else { before.map_or(access_ns, |b| b.min(access_ns)) };
        self.access.renew(best);
        self.is_measured = true;
        let longer = self.access.value().zip(before).map_or(0.0, |(now, before)| now - before);
        let per_operation = longer / self.operations_per_transaction;
        self.known.iter_mut().for_each(|known| known.recalibrate(per_operation));
    }

    /// Follows the cost of transactions by that of units, as far as both are known.
    fn follow_in_parallel(&mut self, cost: &EpochCost) {
        self.serial_epochs = 0;
        let Some(access) = self.access.value() else { return };
        let policy = cost.choice.policy;
        let Some(known) = self.known.iter_mut().find(|known| known.policy == policy) else { return };
        if cost.useful_ns == 0 {
            return;
        }
        let useful_ns = cost.useful_ns as f64 / f64::from(cost.transactions);
        let serial_ns = known.serial_ns(useful_ns, access, self.operations_per_transaction);
        match known.samples < WARM_UP {
            false => self.access.add(serial_ns),
            true if !self.is_measured => self.access.set(serial_ns),
            true => {}
        }
        self.is_measured |= known.samples >= WARM_UP;
    }

    fn learn(&mut self, policy: Policy, ratio: f64) {
        let Some(at) = self.known.iter().position(|known| known.policy == policy) else { return };
        let expected = self.known[at].expected(&Families::of(&self.known)).ratio;
        self.known[at].learn(ratio, expected);
    }

    /// Whether so little is known of a policy that its choice was a guess.
    fn is_new(&self, policy: Policy) -> bool {
        self.known.iter().any(|known| known.policy == policy && known.samples <= PROBE_EPOCHS)
    }

    fn end_probe(&mut self, policy: Policy, regret: f64, epoch_ns: f64) {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.policy == policy) else { return };
        probe.regret_ns += regret.max(0.0);
        probe.to_record -= 1;
        if probe.to_record > 0 {
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

    fn is_few(&self, transactions: u32) -> bool {
        transactions < self.workers * TRANSACTIONS_PER_WORKER_MIN
    }

    /// Whether an epoch is not worth waking workers for: few transactions, and not known to take long.
    fn is_small(&self, transactions: u32) -> bool {
        let access_ns = self.access.value().unwrap_or(0.0) * f64::from(transactions);
        transactions < 2 || self.is_few(transactions) && access_ns < SHARED_NS_MIN
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
        load.access_ns > self.others(load) && self.operation_ns(load) > OPERATION_NS_MIN
    }

    fn operation_ns(&self, load: &Load) -> f64 {
        load.access_ns / self.operations_per_transaction.max(1.0)
    }

    fn serial_reason(&self, load: &Load, count: f64) -> Reason {
        let (access, others) = (load.access_ns, self.others(load));
        match access <= others {
            true => Reason::OthersLonger { access_ns: access * count, others_ns: others * count },
            false => Reason::Cheap { operation_ns: self.operation_ns(load) },
        }
    }

    /// What the pipeline takes for a transaction whose access takes so long.
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
                return Estimate {
                    policy,
                    access,
                    pipeline: expected,
                    hoped: expected * (1.0 - CHANGE),
                    feared: expected,
                };
            }
            let expected = known.expected(&families);
            let load = Load {
                units_ns: (load.access_ns + expected.travel * self.operations_per_transaction).max(1.0),
                ..*load
            };
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
        let regret = self.regret_ns + f64::from(epochs) * feared.max(0.0) * count;
        let is_promising = candidate.hoped < best.pipeline * (1.0 - PROMISE_MIN);
        let elapsed = self.elapsed_ns + HEAD_START * best.pipeline * count;
        (is_promising && regret <= elapsed * REGRET_MAX).then_some(Probe {
            policy: candidate.policy,
            to_choose: epochs,
            to_record: epochs,
            regret_ns: 0.0,
        })
    }
}

#[cfg(test)]
mod tests;
