//! The choice for an epoch and its reason, in one line.

use super::candidate::Candidate;
use crate::baseline::Scheme;
use crate::method::Method;
use crate::policy::Policy;
use std::fmt;

/// The method by which an epoch is executed, with the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// The number of workers that take part in access.
    pub workers: u32,
    /// The reason. `to_string` of the choice gives method and reason in one line.
    pub reason: Reason,
    /// The expected time of access, nanoseconds, where it is known.
    pub expected_ns: Option<f64>,
}

impl Choice {
    /// Returns the serial loop, for which no time is expected.
    pub fn serially(reason: Reason) -> Choice {
        Choice::on(Candidate::SERIAL, reason)
    }

    /// Returns a policy on some workers, for which no time is expected.
    pub fn on(Candidate { policy, workers }: Candidate, reason: Reason) -> Choice {
        Choice { method: Method::Policy(policy), workers, reason, expected_ns: None }
    }

    /// Returns a scheme that was asked for, on this many workers.
    pub fn scheme(scheme: Scheme, workers: u32) -> Choice {
        Choice { method: Method::Scheme(scheme), workers, reason: Reason::Fixed, expected_ns: None }
    }

    /// Returns the policy and its number of workers. None of a scheme.
    pub fn candidate(&self) -> Option<Candidate> {
        match self.method {
            Method::Policy(policy) => Some(Candidate::new(policy, self.workers)),
            Method::Scheme(_) => None,
        }
    }

    /// Returns the method and the number of workers, as `--scheduling` takes them.
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

/// The reason why a policy was chosen. Times are expected times for the epoch at hand, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There is no other worker to share the work with.
    OneWorker,
    /// The epoch is too small to be shared out.
    Small {
        /// The number of the epoch's operations.
        operations: u32,
    },
    /// No epoch has been looked at yet.
    Unmeasured,
    /// Access is not the bottleneck.
    OthersLonger {
        /// The time of serial access.
        access_ns: f64,
        /// The time of the other stages, on the other workers.
        others_ns: f64,
    },
    /// Access is the bottleneck, but operations are too cheap for a graph to pay.
    Cheap {
        /// The time of an operation in serial access.
        operation_ns: f64,
    },
    /// The pipeline is expected to be faster than under any other policy.
    Cheaper {
        /// The time of the epoch under this policy.
        chosen_ns: f64,
        /// The time of the epoch under the second-best policy.
        rejected_ns: f64,
        /// The second-best policy.
        rejected: Candidate,
    },
    /// The choice of MorphStream's heuristic.
    MorphStream,
    /// The policy was asked for.
    Fixed,
    /// Another policy was asked for, which would run transactions again that cannot be undone.
    Final {
        /// The policy that was asked for.
        asked: Policy,
    },
    /// A scheme was asked for whose workers race, and the program sets texts.
    Racing {
        /// The scheme that was asked for.
        asked: Scheme,
    },
    /// The program follows its events one by one: transactions cause others, or read keys from rows.
    OneByOne,
    /// The epoch is run under another policy to learn what that costs.
    Probe {
        /// The time of the epoch under the policy that would otherwise be chosen.
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
