//! The policy for the next epoch, by a cost model that is corrected as epochs run.
//!
//! # The rule
//!
//! Let *a* be the time that an operation's access takes on one worker when an epoch runs serially, *c* the wall time
//! of its access when *k* of the *W* workers run the epoch's graph under some policy, and *o* the time that the other
//! stages spend on it. All three are per operation (an access to a row): the number of operations is known before an epoch
//! runs, and the cost of an operation varies less between kinds of transactions than the cost of a transaction.
//!
//! - Serially, one worker accesses while *W* − 1 do the rest, so the pipeline moves at max(*a*, *o* / (*W* − 1)).
//!   **While *a* is the smaller, run serially**: a graph could only move work that is not the bottleneck, at a price.
//! - Otherwise the pipeline moves at *a* serially and at max(*c*, (*k* *c* + *o*) / *W*) in parallel, as *W* − *k*
//!   workers do the rest meanwhile and all of them what is left: **take the cheapest** *candidate*: of [`POLICIES`], each
//!   on 2, 4, 8, … and all *W* workers.
//!
//! *W* is the number of workers that have tasks at a time, not the number of threads: where more threads were asked for
//! than the machine can run at once, the others sleep.
//!
//! # What is known
//!
//! *a* and *o* are measured: averages over recent epochs that ignore outliers (`level`). *c* is predicted for every
//! policy ([`model`]) from a [`Survey`] of a sample of the epoch and the time that units take in parallel, times the
//! policy's *ratio*: measured over predicted time of its epochs (`known`). While epochs run in parallel, *a* is the
//! time that units take there, less the extra time that they were seen to take compared to serial runs. That may be
//! wrong, so the serial loop is then doubted like a policy that was never run. When epochs run serially again *a* is
//! measured, and the belief about the time that units take in parallel stays: a wrong belief about one is not carried
//! to the other.
//!
//! A policy that was never run is expected to have the mean ratio of those that were, plus a margin. So a policy can
//! be chosen by prediction alone if it is better by more than the margin, and then becomes known.
//!
//! The first epoch begins serially, until a few transactions have shown what they cost ([`Decision::wants_sample`]);
//! the first decision is about the rest of it.
//!
//! # What it costs
//!
//! Surveys have a budget ([`SURVEYING_MAX`]), charged at their typical cost: one survey in which the processor was
//! taken away does not delay the next ones for seconds. The first survey is taken as soon as access is the bottleneck
//! and operations are expensive enough for a graph, of as many operations as the budget allows. Later surveys are of
//! the whole sample; the smaller it is, and the less it says, the longer it waits. Policies are compared at most once
//! in [`COMPARING_NS`]; in between the last comparison holds.
//!
//! # Exploration
//!
//! A policy that is the best if its margin is in its favour is *probed* for a few epochs. The best of them counts,
//! since the first ones warm up caches. No policy can share out work better than evenly; where the best known policy
//! is close to that, nothing is probed. *Regret* is the time that epochs took beyond what the best known policy was
//! expected to take, in probes and after choices by a wrong prediction. A probe begins only while all regret so far,
//! and the regret expected of the probe, is below [`REGRET_MAX`] of all time. A policy that lost a probe rests, twice
//! as long each time.
//!
//! Pure: no clock and no randomness; the same costs give the same choices. Choosing may run ahead of recording by a few
//! epochs, as stages of neighbouring epochs overlap.

mod budget;
mod candidate;
mod compare;
mod known;
mod learn;
mod level;
pub mod model;
mod morphstream;
mod reason;

use crate::policy::{Abort, Explore, Granularity, Policy, Rows, Search};
use budget::Budget;
pub use candidate::Candidate;
use compare::{Estimate, Probe};
use known::Known;
use level::Level;
pub use model::Load;
pub use morphstream::decide_as_morphstream;
pub use reason::{Choice, Reason};
use tidemill_txn::Survey;

/// The policies to choose among: one for each reason to win that the grid of `docs/figures.md` has shown.
///
/// - `epoch`: operations are cheap, or another stage is the bottleneck.
/// - `transaction`: the best at nearly half of the points of the grid, and close to the best at most others.
/// - `transaction,bfs`: strata are wide, and claiming them in order is cheaper than following chains.
/// - `transaction,versions`: many transactions read a few rows, and reads of versions pass each other.
/// - `operation,lazy`: a few rows are in most transactions, whose work is mostly on other rows, so that their parts
///   need not wait for each other. Lazy and not eager: the two are level without aborts, and lazy is ahead with them.
/// - `operation,eager`: transactions go over lists with a hot row, and aborts are rare. Each element is an operation:
///   Online Bidding at theta 0.99 runs 1.75 times as fast as the loop, 1.16 to 1.4 times under `operation,lazy`.
///
/// The other policies run by request only.
pub const POLICIES: [Policy; 6] = [
    Policy::EPOCH,
    Policy::TRANSACTION,
    Policy { explore: Explore::Structured(Search::Bfs), ..Policy::TRANSACTION },
    Policy { granularity: Granularity::Operation, abort: Abort::Eager, ..Policy::EPOCH },
    Policy { granularity: Granularity::Transaction(Rows::Versions), ..Policy::EPOCH },
    Policy { granularity: Granularity::Operation, abort: Abort::Lazy, ..Policy::EPOCH },
];

/// Below this cost of an operation, in nanoseconds, no graph is considered. `examples/chain_overhead.rs` on two
/// workers: chains about even with the loop at 50, 1.2 to 1.6 times as fast at 100.
pub const OPERATION_NS_MIN: f64 = 60.0;
/// An epoch whose serial access takes less, in nanoseconds, runs serially: a few times the cost of waking workers.
pub const SHARED_NS_MIN: f64 = 30_000.0;
/// The share of all time that probes and wrong predictions may cost before no further probe begins.
pub const REGRET_MAX: f64 = 0.03;
/// The share of all time that surveys may take.
pub const SURVEYING_MAX: f64 = 0.0025;
/// Time between comparisons of the policies, nanoseconds, of which one takes less than 500.
pub const COMPARING_NS: f64 = 200_000.0;
/// Transactions per worker that an epoch must have to show what they cost.
pub const SAMPLED_PER_WORKER_MIN: u32 = 16;

/// Operations of a survey at most; and of the first survey at least, if the epoch has as many.
const SURVEYED_MAX: f64 = 2_048.0;
const SURVEYED_MIN: f64 = 64.0;
/// Assumed time to survey an operation, nanoseconds, until it was measured: with cold caches.
const SURVEY_NS: f64 = 200.0;
/// The surveying budget before the first epoch: that of this many epochs. Short runs explore a little, too.
const HEAD_START: f64 = 16.0;

/// The model that decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Ours.
    #[default]
    Measured,
    /// MorphStream's heuristic, to measure against.
    MorphStream,
}

/// The survey that the decision wants of an epoch before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyWanted {
    /// Edges and paths, of a sample.
    Paths {
        /// Operations of the sample.
        operations: u32,
    },
    /// The edges of all transactions.
    Edges,
}

/// The cost of a finished epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochCost {
    /// The method and the reason by which it was run.
    pub choice: Choice,
    /// Its transactions.
    pub transactions: u32,
    /// Its operations.
    pub operations: u32,
    /// Transactions that aborted.
    pub aborted: u32,
    /// Wall time of the access stage, linking included, in nanoseconds.
    pub access_ns: u64,
    /// Time in transactions within it, all workers together; 0 where it is not known.
    pub useful_ns: u64,
    /// Time that all workers together spent in the other stages, in nanoseconds.
    pub other_ns: u64,
}

/// The decision model of one pipeline. Times are in nanoseconds, and per operation unless they say otherwise.
#[derive(Clone, Debug)]
pub struct Decision {
    workers: u32,
    model: Model,
    /// A flag: whether transactions can be run again.
    may_speculate: bool,
    /// Serial access.
    access: Level,
    /// The other stages, all workers together.
    others: Level,
    /// A flag: whether `access` comes from more than a few transactions.
    is_measured: bool,
    /// Serial epochs since the last parallel one, and the least access time in one of them.
    serial_epochs: u32,
    serial_least: f64,
    /// The share of transactions that abort. No level: shares may be 0, to which no ratio is close.
    aborts: f64,
    survey: Option<Survey>,
    /// The time that a survey takes.
    survey_ns: Level,
    surveying: Budget,
    known: Vec<Known>,
    /// The best by the last comparison.
    current: Candidate,
    /// The best and the second best, by the last comparison.
    standing: Option<(Estimate, Estimate)>,
    /// The time at which the next comparison may be made, on the scale of `elapsed_ns`.
    compares_at_ns: f64,
    probe: Option<Probe>,
    regret: Budget,
    /// Pipeline time of all recorded epochs.
    elapsed_ns: f64,
}

impl Decision {
    /// Begins the decisions of a pipeline in which this many workers have tasks at a time. `may_speculate`:
    /// transactions can be run again.
    pub fn new(workers: usize, model: Model, may_speculate: bool) -> Self {
        let all = candidate::numbers(workers as u32);
        let on = |policy: Policy| match policy.granularity {
            Granularity::Epoch => vec![Candidate::SERIAL],
            _ => all.iter().map(|&number| Candidate::new(policy, number)).collect(),
        };
        let policies = POLICIES.into_iter().filter(|policy| may_speculate || !policy.speculates());
        Decision {
            workers: workers as u32,
            model,
            may_speculate,
            access: Level::default(),
            others: Level::default(),
            is_measured: false,
            serial_epochs: 0,
            serial_least: f64::INFINITY,
            aborts: 0.0,
            survey: None,
            survey_ns: Level::of(SURVEY_NS),
            surveying: Budget::new(SURVEYING_MAX),
            known: policies.flat_map(on).map(Known::new).collect(),
            current: Candidate::SERIAL,
            standing: None,
            compares_at_ns: 0.0,
            probe: None,
            regret: Budget::new(REGRET_MAX),
            elapsed_ns: 0.0,
        }
    }

    /// Returns whether an epoch of this many transactions should begin serially, to learn what they cost.
    pub fn wants_sample(&self, transactions: u32) -> bool {
        self.workers > 1 && self.access.value().is_none() && transactions >= self.workers * SAMPLED_PER_WORKER_MIN
    }

    /// Takes note that some transactions of the epoch at hand were run serially. By their cost the whole epoch is
    /// expected to take `access_ns`; `prepare_ns` is the time that its preparation took.
    pub fn sample(&mut self, operations: u32, access_ns: u64, prepare_ns: u64) {
        let count = f64::from(operations.max(1));
        self.access.set(access_ns as f64 / count);
        // The time to finish is not known yet; it is less than that to prepare.
        self.others.set(1.3 * prepare_ns as f64 / count);
    }

    /// Returns the survey to make of the next epoch, of this many operations, before its policy is chosen; none if none
    /// is needed.
    pub fn wants_survey(&self, operations: u32) -> Option<SurveyWanted> {
        let load = self.load().filter(|_| self.workers > 1)?;
        if self.model == Model::MorphStream {
            return Some(SurveyWanted::Edges);
        }
        if self.is_small(operations) {
            return None;
        }
        let epoch_ns = load.access_ns * f64::from(operations) / f64::from(self.workers);
        let affordable = self.surveying.left(self.with_head_start(epoch_ns)) / self.survey_ns.value()?;
        let whole = f64::from(operations).min(SURVEYED_MAX);
        let (size, least) = match self.survey {
            None => (affordable.min(whole), whole.min(SURVEYED_MIN)),
            Some(last) => (whole, (SURVEYED_MAX * (f64::from(last.chains.operations) / whole).powi(2)).max(whole)),
        };
        let wanted = SurveyWanted::Paths { operations: size.ceil() as u32 };
        (self.may_gain_from_a_graph(&load) && affordable >= least).then_some(wanted)
    }

    /// Takes in a survey that was wanted, and the time that it took.
    pub fn surveyed(&mut self, survey: Survey, took_ns: u64) {
        let operations = f64::from(survey.chains.operations.max(1));
        self.survey_ns.add(took_ns as f64 / operations);
        self.surveying.spend(self.survey_ns.value().unwrap_or_default() * operations);
        self.survey = Some(survey);
    }

    /// Returns the last survey.
    pub fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// Returns the policy for the next epoch, of this many operations. Every choice is to be recorded once its epoch
    /// has run.
    pub fn choose(&mut self, operations: u32) -> Choice {
        if self.workers < 2 {
            return Choice::serially(Reason::OneWorker);
        }
        if self.model == Model::MorphStream {
            return self.choose_as_morphstream();
        }
        let Some(load) = self.load().filter(|_| !self.is_small(operations)) else {
            return Choice::serially(Reason::Small { operations });
        };
        let count = f64::from(operations);
        let serially = |reason| Choice { expected_ns: Some(load.access_ns * count), ..Choice::serially(reason) };
        let may_gain = self.may_gain_from_a_graph(&load);
        let Some(survey) = self.survey else {
            return serially(if may_gain { Reason::Unmeasured } else { self.serial_reason(&load, count) });
        };
        if !may_gain {
            self.current = Candidate::SERIAL;
            return serially(self.serial_reason(&load, count));
        }
        let (best, second) = match self.standing {
            Some(standing) if self.elapsed_ns < self.compares_at_ns => standing,
            _ => self.compare(&survey, &load, count),
        };
        if let Some(probed) = self.next_of_probe(&best, count) {
            return probed;
        }
        let (chosen_ns, rejected_ns) = (best.pipeline * count, second.pipeline * count);
        let reason = Reason::Cheaper { chosen_ns, rejected_ns, rejected: second.candidate };
        Choice { expected_ns: Some(best.access * count), ..Choice::on(best.candidate, reason) }
    }

    /// Chooses by MorphStream's heuristic. What operations cost is measured in a first epoch, which runs serially.
    fn choose_as_morphstream(&self) -> Choice {
        let Some((survey, load)) = self.survey.zip(self.load()) else {
            return Choice::serially(Reason::Unmeasured);
        };
        let policy = decide_as_morphstream(&survey, &load);
        let abort = if self.may_speculate { policy.abort } else { Abort::VoteFirst };
        Choice::on(Candidate::new(Policy { abort, ..policy }, self.workers), Reason::MorphStream)
    }

    /// Returns whether an epoch is not known to be worth waking workers for.
    fn is_small(&self, operations: u32) -> bool {
        self.access.value().is_none_or(|access_ns| access_ns * f64::from(operations) < SHARED_NS_MIN)
    }

    /// Makes the time so far, as if a few epochs had run before the first.
    fn with_head_start(&self, epoch_ns: f64) -> f64 {
        self.elapsed_ns + HEAD_START * epoch_ns
    }

    fn load(&self) -> Option<Load> {
        let access_ns = self.access.value()?;
        Some(Load { access_ns, units_ns: access_ns, other_ns: self.others.value()?, aborts: self.aborts })
    }

    /// Returns the time that the other workers need for the other stages while one accesses serially.
    fn others(&self, load: &Load) -> f64 {
        load.other_ns / f64::from(self.workers - 1)
    }

    /// Returns whether access is the bottleneck, and operations are expensive enough for a graph.
    fn may_gain_from_a_graph(&self, load: &Load) -> bool {
        load.access_ns > self.others(load) && load.access_ns > OPERATION_NS_MIN
    }

    fn serial_reason(&self, load: &Load, count: f64) -> Reason {
        let (access, others) = (load.access_ns, self.others(load));
        match access <= others {
            true => Reason::OthersLonger { access_ns: access * count, others_ns: others * count },
            false => Reason::Cheap { operation_ns: access },
        }
    }

    /// Returns the time that the pipeline takes for an operation, if its access takes this long.
    fn pipeline(&self, candidate: Candidate, access: f64, load: &Load) -> f64 {
        if candidate.is_serial() {
            return access.max(self.others(load));
        }
        let all = f64::from(candidate.workers) * access + load.other_ns;
        access.max(all / f64::from(self.workers))
    }

    fn known_mut(&mut self, candidate: Candidate) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.candidate == candidate)
    }
}

#[cfg(test)]
mod tests;
