//! What was chosen and why, in one line.

use super::candidate::Candidate;
use crate::baseline::Scheme;
use crate::method::Method;
use crate::policy::Policy;
use std::fmt;

/// How an epoch is executed, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How.
    pub method: Method,
    /// How many workers take part in access.
    pub workers: u32,
    /// Why. `to_string` of the choice gives method and reason in one line.
    pub reason: Reason,
    /// The expected time of access, nanoseconds, where it is known.
    pub expected_ns: Option<f64>,
}

impl Choice {
    /// The serial loop, for which no time is expected.
    pub fn serially(reason: Reason) -> Choice {
        Choice::on(Candidate::SERIAL, reason)
    }

    /// A policy on some workers, for which no time is expected.
    pub fn on(Candidate { policy, workers }: Candidate, reason: Reason) -> Choice {
        Choice { method: Method::Policy(policy), workers, reason, expected_ns: None }
    }

    /// A scheme that was asked for, on this many workers.
    pub fn scheme(scheme: Scheme, workers: u32) -> Choice {
        Choice { method: Method::Scheme(scheme), workers, reason: Reason::Fixed, expected_ns: None }
    }

    /// The policy and its number of workers. None of a scheme.
    pub fn candidate(&self) -> Option<Candidate> {
        match self.method {
            Method::Policy(policy) => Some(Candidate::new(policy, self.workers)),
            Method::Scheme(_) => None,
        }
    }

    /// How, and on how many workers, as `--scheduling` takes it.
    pub fn name(&self) -> String {
        match self.candidate() {
            Some(candidate) => candidate.to_string(),
            None => self.method.to_string(),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.reason)
    }
}

/// Why a policy was chosen. Times are expected times for the epoch at hand, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There is no other worker to share the work with.
    OneWorker,
    /// The epoch is too small to be shared out.
    Small {
        /// Its operations.
        operations: u32,
    },
    /// No epoch has been looked at yet.
    Unmeasured,
    /// Access is not the bottleneck.
    OthersLonger {
        /// Serial access.
        access_ns: f64,
        /// The other stages, on the other workers.
        others_ns: f64,
    },
    /// Access is the bottleneck, but operations are too cheap for a graph to pay.
    Cheap {
        /// One operation, serially.
        operation_ns: f64,
    },
    /// The pipeline is expected to be faster than under any other policy.
    Cheaper {
        /// The epoch under this policy.
        chosen_ns: f64,
        /// The epoch under the second best.
        rejected_ns: f64,
        /// The second best.
        rejected: Candidate,
    },
    /// By MorphStream's heuristic.
    MorphStream,
    /// It was asked for.
    Fixed,
    /// Another policy was asked for, which would run transactions again that cannot be undone.
    Final {
        /// That policy.
        asked: Policy,
    },
    /// A scheme was asked for whose workers race, and the program sets texts.
    Racing {
        /// That scheme.
        asked: Scheme,
    },
    /// The program follows its events one by one: transactions cause others, or read keys from rows.
    OneByOne,
    /// To learn what it costs.
    Probe {
        /// The epoch under the policy otherwise chosen.
        instead_of_ns: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::OneWorker => f.write_str("there is one worker"),
            Reason::Small { operations } => write!(f, "{operations} operations are too few to share out"),
            Reason::Unmeasured => f.write_str("no epoch has been looked at yet"),
            Reason::OthersLonger { access_ns, others_ns } => {
                write!(f, "access {} is below the {} of the other stages", Time(access_ns), Time(others_ns))
            }
            Reason::Cheap { operation_ns } => {
                let operation = Time(operation_ns);
                write!(f, "access is the bottleneck, but {operation} per operation is too cheap to share out")
            }
            Reason::Cheaper { chosen_ns, rejected_ns, rejected } => {
                write!(f, "{} expected, against {} as {rejected}", Time(chosen_ns), Time(rejected_ns))
            }
            Reason::MorphStream => f.write_str("by MorphStream's heuristic"),
            Reason::Fixed => f.write_str("as asked for"),
            Reason::Final { asked } => {
                write!(
                    f,
                    "instead of {asked}, since events that the program emits, or texts or windows that it sets, could not be taken back"
                )
            }
            Reason::Racing { asked } => {
                write!(f, "instead of {asked}, whose workers could free the memory of a text twice")
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_one_line_with_times_in_their_unit() {
        let rejected = Candidate::new(Policy::TRANSACTION, 4);
        let reason = |chosen_ns, rejected_ns| Reason::Cheaper { chosen_ns, rejected_ns, rejected }.to_string();
        assert_eq!(reason(1.0, 2_345.0), "1 ns expected, against 2.3 µs as transaction@4");
        assert_eq!(reason(2.35e6, 4.2e9), "2.4 ms expected, against 4.2 s as transaction@4");
        let choice = Choice::on(rejected, Reason::Fixed);
        assert_eq!(choice.to_string(), "transaction@4: as asked for");
        assert_eq!(Choice::serially(Reason::OneWorker).to_string(), "epoch: there is one worker");
    }
}
