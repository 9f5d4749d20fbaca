//! Which policy the next epoch gets, by measured cost.
//!
//! # The rule
//!
//! Let an epoch cost *a* of access on one worker when run serially, *c* of access wall time when all *W*
//! workers run its chains, and *o* of work in the other stages, all per transaction.
//!
//! - Serially, one worker accesses while *W* − 1 do the rest, so the pipeline moves at
//!   max(*a*, *o* / (*W* − 1)). **As long as *a* is the smaller, run serially**: chains could only move
//!   work that is not the bottleneck, at a price (DESIGN §4).
//! - Otherwise the pipeline moves at *a* serially and at *c* + *o* / *W* in parallel: **take the cheaper**,
//!   both measured as epochs ran, the recent ones counting more.
//!
//! At *a* = *o* / (*W* − 1) the two cases meet: there the parallel pipeline can at best be as fast, so
//! it does no harm which side of the boundary noise chooses.
//!
//! # Exploration
//!
//! A policy that is not run is not measured, so now and then it is *probed* for two epochs; the first warms
//! up, the second counts. What a probe costs over the better policy is its *regret*.
//!
//! 1. Chains are probed first when access is the bottleneck and an operation takes longer than
//!    [`OPERATION_NS_MIN`]: below that the counters cost more than a second worker saves.
//! 2. After a probe that lost, the next waits for twice the time as the last, and at least until its
//!    regret is 2 % of the waiting ([`REGRET_MAX`]). So over any such interval exploration costs less.
//! 3. After one that won, the roles change and the intervals begin anew.
//! 4. If the cost of the policy being run has changed by half since the last probe, the workload is
//!    another one, and the next probe comes as soon as the regrets so far leave room for it.
//!
//! Costs change between probes. The serial cost is never taken for more than the *W* · *c* that the workers
//! together just spent on the same work, so a run of chains that has become cheap goes back to serial
//! without asking. A stale cost that looks too good is tried, measured by that, and given up.
//!
//! Pure: no clock and no randomness; the same costs give the same choices. Choosing may run ahead of
//! recording by a few epochs, as stages of neighbouring epochs overlap.

use crate::policy::{Granularity, Policy};
use std::fmt;

/// Below this cost of an operation, in nanoseconds, chains are not probed. `examples/chain_overhead.rs` on two
/// workers: about even with the loop at 50, 1.2 to 1.6 times as fast at 100.
pub const OPERATION_NS_MIN: f64 = 100.0;
/// The part of all time that probes may cost.
pub const REGRET_MAX: f64 = 0.02;
/// Epochs with fewer transactions per worker are run serially and not learned from: the cost of waking
/// the workers would be most of what is measured.
pub const TRANSACTIONS_PER_WORKER_MIN: u32 = 16;

/// Epochs of a probe; the last one counts.
const PROBE_EPOCHS: u32 = 2;
/// The first interval between probes, in epochs.
const INTERVAL_EPOCHS_MIN: f64 = 32.0;
/// Waiting no longer than this for the sake of doubling alone.
const INTERVAL_NS_MAX: f64 = 60e9;
/// How much of the weight of earlier epochs remains with each new one.
const DECAY: f64 = 0.75;
/// A cost that differs by this factor is that of another workload.
const DRIFT: f64 = 1.5;

/// What a finished epoch cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochCost {
    /// The policy that it was run under.
    pub policy: Policy,
    /// Its transactions.
    pub transactions: u32,
    /// Its operations.
    pub operations: u32,
    /// Wall time of the access stage, linking included, in nanoseconds.
    pub access_ns: u64,
    /// Time that all workers together spent in its other stages, in nanoseconds.
    pub other_ns: u64,
}

/// A policy for an epoch, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The policy.
    pub policy: Policy,
    /// Why. Prints as one line together with the policy: `to_string` of the choice.
    pub reason: Reason,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.policy, self.reason)
    }
}

/// Why a policy was chosen. Times are predictions for the epoch at hand, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There is nobody to share the work with.
    OneWorker,
    /// The epoch is too small to be shared out.
    Small {
        /// Its transactions.
        transactions: u32,
    },
    /// No epoch has been measured yet.
    Unmeasured,
    /// Access is not the bottleneck.
    OthersLonger {
        /// Serial access.
        access_ns: f64,
        /// The other stages, on the other workers.
        others_ns: f64,
    },
    /// Access is the bottleneck, but operations are too cheap for the counters to pay.
    Cheap {
        /// One operation, serially.
        operation_ns: f64,
    },
    /// Access is the bottleneck, and this policy is the cheaper.
    Cheaper {
        /// The epoch under this policy.
        chosen_ns: f64,
        /// And under the other.
        rejected_ns: f64,
    },
    /// It was asked for.
    Fixed,
    /// The program follows its events one by one: transactions reach others, or read keys from rows.
    OneByOne,
    /// To know what it costs.
    Probe {
        /// The epoch under the policy otherwise chosen.
        instead_of_ns: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::OneWorker => f.write_str("there is one worker"),
            Reason::Small { transactions } => write!(f, "{transactions} transactions are too few to share out"),
            Reason::Unmeasured => f.write_str("nothing has been measured yet"),
            Reason::OthersLonger { access_ns, others_ns } => {
                write!(f, "access {} is below the {} of the other stages", Time(access_ns), Time(others_ns))
            }
            Reason::Cheap { operation_ns } => {
                write!(
                    f,
                    "access is the bottleneck, but {} per operation is too cheap to share out",
                    Time(operation_ns)
                )
            }
            Reason::Cheaper { chosen_ns, rejected_ns } => {
                write!(f, "measured {} against {}", Time(chosen_ns), Time(rejected_ns))
            }
            Reason::Fixed => f.write_str("as asked for"),
            Reason::OneByOne => f.write_str("each event is followed through before the next"),
            Reason::Probe { instead_of_ns } => write!(f, "probing what would replace {}", Time(instead_of_ns)),
        }
    }
}

struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1e3 => write!(f, "{ns:.0} ns"),
            ns if ns < 1e6 => write!(f, "{:.1} µs", ns / 1e3),
            ns if ns < 1e9 => write!(f, "{:.1} ms", ns / 1e6),
            ns => write!(f, "{:.1} s", ns / 1e9),
        }
    }
}

/// A cost per transaction over recent epochs, weighted by their size.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    ns: f64,
    transactions: f64,
}

impl Average {
    fn add(&mut self, ns: u64, transactions: u32) {
        self.ns = self.ns * DECAY + ns as f64;
        self.transactions = self.transactions * DECAY + f64::from(transactions);
    }

    fn per_transaction(&self) -> Option<f64> {
        (self.transactions > 0.0).then(|| self.ns / self.transactions)
    }
}

/// The estimates at one moment, per transaction. Exists once a serial epoch was measured.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    /// Serial access, one worker.
    access: f64,
    /// The other stages, on all workers but one.
    others: f64,
    /// The pipeline with chains, if they were ever measured.
    chain: Option<f64>,
    operation_ns: f64,
}

impl Outlook {
    fn is_access_bottleneck(&self) -> bool {
        self.access > self.others
    }

    fn best(&self) -> Granularity {
        match self.chain {
            Some(chain) if self.is_access_bottleneck() && chain < self.access => Granularity::Chain,
            _ => Granularity::Epoch,
        }
    }

    /// What the pipeline takes for a transaction.
    fn pipeline(&self, granularity: Granularity) -> Option<f64> {
        match granularity {
            Granularity::Epoch => Some(self.access.max(self.others)),
            Granularity::Chain | Granularity::Operation => self.chain,
        }
    }
}

/// A probe on its way: chosen for some epochs, recorded for some.
#[derive(Clone, Copy, Debug)]
struct Probe {
    granularity: Granularity,
    /// What it is compared with, per transaction.
    instead_of: f64,
    to_choose: u32,
    to_record: u32,
    regret_ns: f64,
}

/// The decision model of one pipeline.
#[derive(Clone, Debug)]
pub struct Decision {
    workers: u32,
    epoch: Average,
    chain: Average,
    others: Average,
    operations_per_transaction: f64,
    probe: Option<Probe>,
    /// Sum over the recorded epochs of what the pipeline took, and the part of it that probes cost.
    elapsed_ns: f64,
    regret_ns: f64,
    /// When the next probe is due, in `elapsed_ns`, and how long the wait for it is.
    next_probe_ns: f64,
    interval_ns: f64,
    /// The regret of the last probe, the guess for the next.
    last_regret_ns: f64,
    /// What the policy being run cost per transaction when the last probe ended.
    cost_at_probe: f64,
}

impl Decision {
    /// For a pipeline of this many workers.
    pub fn new(workers: usize) -> Self {
        Decision {
            workers: workers as u32,
            epoch: Average::default(),
            chain: Average::default(),
            others: Average::default(),
            operations_per_transaction: 1.0,
            probe: None,
            elapsed_ns: 0.0,
            regret_ns: 0.0,
            next_probe_ns: 0.0,
            interval_ns: 0.0,
            last_regret_ns: 0.0,
            cost_at_probe: 0.0,
        }
    }

    /// The policy for the next epoch, of so many transactions. Every choice is to be recorded once its epoch
    /// has run.
    pub fn choose(&mut self, transactions: u32) -> Choice {
        if self.workers < 2 {
            return Choice { policy: Policy::EPOCH, reason: Reason::OneWorker };
        }
        if self.is_small(transactions) {
            return Choice { policy: Policy::EPOCH, reason: Reason::Small { transactions } };
        }
        let Some(outlook) = self.outlook() else {
            return Choice { policy: Policy::EPOCH, reason: Reason::Unmeasured };
        };
        if self.probe.is_none() && self.is_probe_due(&outlook) {
            self.begin_probe(&outlook);
        }
        let scale = f64::from(transactions);
        if let Some(probe) = &mut self.probe
            && probe.to_choose > 0
        {
            probe.to_choose -= 1;
            let reason = Reason::Probe { instead_of_ns: probe.instead_of * scale };
            return Choice { policy: policy(probe.granularity), reason };
        }
        let best = outlook.best();
        Choice { policy: policy(best), reason: reason(&outlook, best, scale) }
    }

    /// Learns from a finished epoch.
    pub fn record(&mut self, cost: EpochCost) {
        if self.workers < 2 || self.is_small(cost.transactions) {
            return;
        }
        let EpochCost { transactions, access_ns, .. } = cost;
        self.others.add(cost.other_ns, transactions);
        self.operations_per_transaction = f64::from(cost.operations.max(1)) / f64::from(transactions);
        let others = cost.other_ns as f64;
        let pipeline_ns = match cost.policy.granularity {
            Granularity::Epoch => (access_ns as f64).max(others / f64::from(self.workers - 1)),
            Granularity::Chain | Granularity::Operation => access_ns as f64 + others / f64::from(self.workers),
        };
        self.elapsed_ns += pipeline_ns;
        let average = match cost.policy.granularity {
            Granularity::Epoch => &mut self.epoch,
            Granularity::Chain | Granularity::Operation => &mut self.chain,
        };
        match &mut self.probe {
            Some(probe) if probe.granularity == cost.policy.granularity => {
                // The last epoch of the probe replaces what was known, warm-up included.
                *average = Average::default();
                average.add(access_ns, transactions);
                probe.regret_ns += pipeline_ns - probe.instead_of * f64::from(transactions);
                probe.to_record -= 1;
                if probe.to_record == 0 {
                    let probe = *probe;
                    self.probe = None;
                    self.end_probe(probe, pipeline_ns);
                }
            }
            _ => average.add(access_ns, transactions),
        }
    }

    fn is_small(&self, transactions: u32) -> bool {
        transactions < self.workers * TRANSACTIONS_PER_WORKER_MIN
    }

    fn outlook(&self) -> Option<Outlook> {
        let workers = f64::from(self.workers);
        let others = self.others.per_transaction()?;
        let chain = self.chain.per_transaction();
        let measured = self.epoch.per_transaction()?;
        let access = chain.map_or(measured, |chain| measured.min(chain * workers));
        Some(Outlook {
            access,
            others: others / (workers - 1.0),
            chain: chain.map(|chain| chain + others / workers),
            operation_ns: access / self.operations_per_transaction,
        })
    }

    fn is_probe_due(&self, outlook: &Outlook) -> bool {
        if !outlook.is_access_bottleneck() {
            return false;
        }
        let best = outlook.best();
        if best == Granularity::Epoch && outlook.operation_ns <= OPERATION_NS_MIN {
            return false;
        }
        let Some(cost) = outlook.chain.and(outlook.pipeline(best)) else {
            return true;
        };
        let has_drifted = cost > self.cost_at_probe * DRIFT || cost * DRIFT < self.cost_at_probe;
        let has_room = self.regret_ns + self.last_regret_ns <= self.elapsed_ns * REGRET_MAX;
        self.elapsed_ns >= self.next_probe_ns || (has_drifted && has_room)
    }

    fn begin_probe(&mut self, outlook: &Outlook) {
        let granularity = match outlook.best() {
            Granularity::Epoch => Granularity::Chain,
            Granularity::Chain | Granularity::Operation => Granularity::Epoch,
        };
        let instead_of = outlook.pipeline(outlook.best()).expect("the best policy has been measured");
        self.probe =
            Some(Probe { granularity, instead_of, to_choose: PROBE_EPOCHS, to_record: PROBE_EPOCHS, regret_ns: 0.0 });
    }

    /// Sets the time of the next probe. `epoch_ns` is what the pipeline took for the last epoch.
    fn end_probe(&mut self, probe: Probe, epoch_ns: f64) {
        let regret = probe.regret_ns.max(0.0);
        self.regret_ns += regret;
        self.last_regret_ns = regret;
        let shortest = (epoch_ns * INTERVAL_EPOCHS_MIN).max(regret / REGRET_MAX);
        let outlook = self.outlook().expect("a probe follows a measured epoch");
        let has_won = outlook.best() == probe.granularity;
        self.interval_ns = if has_won { shortest } else { shortest.max((self.interval_ns * 2.0).min(INTERVAL_NS_MAX)) };
        self.next_probe_ns = self.elapsed_ns + self.interval_ns;
        self.cost_at_probe = outlook.pipeline(outlook.best()).expect("the best policy has been measured");
    }
}

fn policy(granularity: Granularity) -> Policy {
    Policy { granularity, ..Policy::default() }
}

fn reason(outlook: &Outlook, best: Granularity, scale: f64) -> Reason {
    if !outlook.is_access_bottleneck() {
        return Reason::OthersLonger { access_ns: outlook.access * scale, others_ns: outlook.others * scale };
    }
    let Some(chain) = outlook.chain else {
        return Reason::Cheap { operation_ns: outlook.operation_ns };
    };
    let (chosen, rejected) = match best {
        Granularity::Epoch => (outlook.access, chain),
        Granularity::Chain | Granularity::Operation => (chain, outlook.access),
    };
    Reason::Cheaper { chosen_ns: chosen * scale, rejected_ns: rejected * scale }
}

#[cfg(test)]
mod tests;
