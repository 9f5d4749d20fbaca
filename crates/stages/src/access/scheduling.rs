//! How the user has the access stage scheduled.

use std::fmt;
use std::str::FromStr;
use tidemill_plan::GROUPS_MAX;
use tidemill_schedule::{Policy, PolicyError, Scheme};

/// How the access stage is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// By measured cost.
    #[default]
    Auto,
    /// For measurement: by MorphStream's heuristic (2023, §4.4).
    MorphStream,
    /// Group by group of transactions that share no row, always so; as [`Scheduling::Fixed`] otherwise.
    ByGroup(Policies),
    /// Always so; serially where the program cascades, voting first where it could not take back what
    /// it does (it emits by name or writes text).
    Fixed(Policy),
    /// For measurement: as systems before did it. Serially where the program cascades. Under
    /// [`Scheme::NoLock`] results are wrong, under [`Scheme::NoOrder`] those of another order.
    Baseline(Scheme),
}

impl FromStr for Scheduling {
    type Err = PolicyError;

    /// `auto`, `morphstream`, a policy as it prints, or for groups several with `+` between them.
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

/// As it is read; policies that come again are left out.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeats = |period: &usize| (0..GROUPS_MAX).all(|g| self.policies[g] == self.policies[g % period]);
        let period = (1..GROUPS_MAX).find(repeats).unwrap_or(GROUPS_MAX);
        let words: Vec<String> = self.policies[..period].iter().map(Policy::to_string).collect();
        f.write_str(&words.join("+"))
    }
}

/// A policy for each group of transactions, in the order of groups; where there are more groups, from the first again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    policies: [Policy; GROUPS_MAX],
}

impl Policies {
    /// These. Panics where there are none.
    pub fn new(policies: &[Policy]) -> Self {
        assert!(!policies.is_empty(), "a policy for each group");
        Policies { policies: std::array::from_fn(|group| policies[group % policies.len()]) }
    }

    /// That of a group.
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
