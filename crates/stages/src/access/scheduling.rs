//! The user's choice of how the access stage is scheduled.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use tidemill_plan::GROUPS_MAX;
use tidemill_schedule::{Granularity, Policy, PolicyError, Scheme};

/// The largest number of workers that can be asked for.
const WORKERS_MAX: u32 = 1024;

/// The way in which the access stage is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The policy is chosen by measured cost.
    #[default]
    Auto,
    /// The policy that MorphStream's heuristic chooses (2023, §4.4), for measurement.
    MorphStream,
    /// A fixed policy for each group of transactions that share no row; a program with a single group runs as under
    /// [`Scheduling::Fixed`].
    ByGroup(Policies),
    /// A fixed policy. A program that cascades runs serially; a program whose effects cannot be undone (it emits by
    /// name or writes text) votes first instead of speculating.
    Fixed(Policy),
    /// A fixed policy with at most this many of the workers in access, also where the machine cannot run as many at once.
    FixedOn(FixedOn),
    /// A scheme of an earlier system, for measurement. A program that cascades runs serially. Under [`Scheme::NoLock`]
    /// results are wrong; under [`Scheme::NoOrder`] they are the results of another order.
    Baseline(Scheme),
}

impl FromStr for Scheduling {
    type Err = SchedulingError;

    /// Accepts `auto`, `morphstream`, a policy as it is displayed, a policy with a number of workers (`transaction@4`), or
    /// several policies for groups, separated by `+`.
    fn from_str(text: &str) -> Result<Self, SchedulingError> {
        match text {
            "auto" => Ok(Scheduling::Auto),
            "morphstream" => Ok(Scheduling::MorphStream),
            several if several.contains('+') => {
                let policies: Vec<Policy> = several.split('+').map(str::parse).collect::<Result<_, _>>()?;
                Ok(Scheduling::ByGroup(Policies::new(&policies)))
            }
            policy => match policy.split_once('@') {
                None => Ok(Scheduling::Fixed(policy.parse()?)),
                Some((policy, workers)) => FixedOn::new(policy.parse()?, workers).map(Scheduling::FixedOn),
            },
        }
    }
}

impl Scheduling {
    /// Returns whether policies are chosen as epochs run.
    pub fn is_decided(self) -> bool {
        matches!(self, Scheduling::Auto | Scheduling::MorphStream)
    }
}

/// A text that is no scheduling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulingError {
    /// The text names no policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The text after `@` is no number of workers.
    #[error("'{0}' is no number of workers: say how many take part in access, 1 to 1024, as in 'transaction@4'")]
    Workers(String),
    /// The serial policy has one worker.
    #[error(
        "'epoch' runs on one worker, and not on {0}: say 'epoch', or a policy that shares work, as in 'transaction@{0}'"
    )]
    Serial(NonZeroU32),
}

/// A policy with a number of workers. Prints as it is parsed, `transaction@4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedOn {
    /// The policy.
    pub policy: Policy,
    /// The number of workers that take part in access, at most.
    pub workers: NonZeroU32,
}

impl FixedOn {
    fn new(policy: Policy, workers: &str) -> Result<FixedOn, SchedulingError> {
        let number = workers.parse().ok().filter(|number: &NonZeroU32| number.get() <= WORKERS_MAX);
        let workers = number.ok_or_else(|| SchedulingError::Workers(workers.into()))?;
        match policy.granularity {
            Granularity::Epoch if workers.get() > 1 => Err(SchedulingError::Serial(workers)),
            _ => Ok(FixedOn { policy, workers }),
        }
    }
}

impl fmt::Display for FixedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.policy, self.workers)
    }
}

/// The form that is parsed; the repetitions at the end are left out.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeats = |period: &usize| (0..GROUPS_MAX).all(|g| self.policies[g] == self.policies[g % period]);
        let period = (1..GROUPS_MAX).find(repeats).unwrap_or(GROUPS_MAX);
        let words: Vec<String> = self.policies[..period].iter().map(Policy::to_string).collect();
        f.write_str(&words.join("+"))
    }
}

/// A policy for each group of transactions, in the order of groups. If there are more groups than policies, the
/// policies repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    policies: [Policy; GROUPS_MAX],
}

impl Policies {
    /// Policies for groups, in order. Panics on an empty list.
    pub fn new(policies: &[Policy]) -> Self {
        assert!(!policies.is_empty(), "a policy for each group");
        Policies { policies: std::array::from_fn(|group| policies[group % policies.len()]) }
    }

    /// Returns the policy of a group.
    pub fn of(&self, group: usize) -> Policy {
        self.policies[group]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_with_a_number_of_workers_are_read_as_they_print() {
        for text in ["transaction@4", "operation,dfs,lazy@16", "epoch@1"] {
            let Ok(Scheduling::FixedOn(fixed)) = text.parse() else { panic!("{text} is a policy on some workers") };
            assert_eq!(fixed.to_string(), text);
        }
        for (text, error) in [
            ("transaction@", "'' is no number of workers"),
            ("transaction@0", "'0' is no number of workers"),
            ("transaction@1025", "'1025' is no number of workers"),
            ("transaction@two", "'two' is no number of workers"),
            ("epoch@2", "'epoch' runs on one worker, and not on 2"),
            ("quick@2", "'quick' is no policy"),
        ] {
            let refused = text.parse::<Scheduling>().expect_err(text).to_string();
            assert!(refused.starts_with(error), "{refused}");
        }
    }

    #[test]
    fn policies_by_group_are_read_as_they_print() {
        for text in ["transaction+operation,lazy", "epoch+transaction,bfs+transaction"] {
            let Ok(Scheduling::ByGroup(policies)) = text.parse() else { panic!("{text} is a policy for each group") };
            assert_eq!(policies.to_string(), text);
            assert_eq!(policies.of(4), policies.of(4 % text.split('+').count()));
        }
        assert!("transaction+".parse::<Scheduling>().is_err());
    }
}
