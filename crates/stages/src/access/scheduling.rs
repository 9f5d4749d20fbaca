//! The user's choice of how the access stage is scheduled.

use std::fmt;
use std::str::FromStr;
use tidemill_plan::GROUPS_MAX;
use tidemill_schedule::{Policy, PolicyError, Scheme};

/// How the access stage is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The policy is chosen by measured cost.
    #[default]
    Auto,
    /// For measurement: chosen by MorphStream's heuristic (2023, §4.4).
    MorphStream,
    /// A fixed policy for each group of transactions that share no row; a program with a single group runs as under
    /// [`Scheduling::Fixed`].
    ByGroup(Policies),
    /// A fixed policy. A program that cascades runs serially; a program whose effects cannot be undone (it emits by
    /// name or writes text) votes first instead of speculating.
    Fixed(Policy),
    /// For measurement: a scheme of an earlier system. A program that cascades runs serially. Under [`Scheme::NoLock`]
    /// results are wrong; under [`Scheme::NoOrder`] they are the results of another order.
    Baseline(Scheme),
}

impl FromStr for Scheduling {
    type Err = PolicyError;

    /// Accepts `auto`, `morphstream`, a policy as it is displayed, or several policies for groups, separated by `+`.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "auto" => Ok(Scheduling::Auto),
            "morphstream" => Ok(Scheduling::MorphStream),
            several if several.contains('+') => {
                let policies: Vec<Policy> = several.split('+').map(str::parse).collect::<Result<_, _>>()?;
                Ok(Scheduling::ByGroup(Policies::new(&policies)))
            }
            policy => policy.parse().map(Scheduling::Fixed),
        }
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

    /// The policy of a group.
    pub fn of(&self, group: usize) -> Policy {
        self.policies[group]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_group_are_read_as_they_print() {
        for text in ["chain+operation,lazy", "epoch+chain,bfs+chain"] {
            let Ok(Scheduling::ByGroup(policies)) = text.parse() else { panic!("{text} is a policy for each group") };
            assert_eq!(policies.to_string(), text);
            assert_eq!(policies.of(4), policies.of(4 % text.split('+').count()));
        }
        assert!("chain+".parse::<Scheduling>().is_err());
    }
}
