//! What a run can be told.

use std::fmt;
use std::str::FromStr;
use tidemill_plan::GROUPS_MAX;
use tidemill_schedule::{Policy, PolicyError, Scheme};

/// When the gate closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochSize {
    /// When the access stage would otherwise idle; at the latest at as many events as [`Options::latency`] allows,
    /// and at [`Options::epoch_events_max`].
    #[default]
    Auto,
    /// At this many events; with fewer when input pauses or ends.
    Events(usize),
    /// When the oldest event is this old, in nanoseconds; at the latest at
    /// [`Options::epoch_events_max`].
    Age(u64),
}

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

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that prepare, access and finish, at least 1; 0 for one per processor.
    pub workers: usize,
    /// When the gate closes.
    pub epoch: EpochSize,
    /// How the access stage is scheduled.
    pub scheduling: Scheduling,
    /// Events of an epoch at the most, but for [`EpochSize::Events`].
    pub epoch_events_max: usize,
    /// How long an event may wait for its epoch to close, nanoseconds.
    pub epoch_age_max: u64,
    /// What 99 of 100 events should wait for their results at the most, nanoseconds: the size of epochs follows it
    /// where it is [`EpochSize::Auto`].
    pub latency: u64,
    /// Bytes that rows, their keys' index and the checkpoint's may take in memory; the other rows are read from the
    /// state's newest checkpoint when they are needed. For durable runs only. None: all rows are in memory.
    pub memory: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 0,
            epoch: EpochSize::Auto,
            scheduling: Scheduling::Auto,
            epoch_events_max: 1 << 14,
            epoch_age_max: 10_000_000,
            latency: 10_000_000,
            memory: None,
        }
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
