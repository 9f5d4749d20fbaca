//! What is known of a policy, by the epochs that ran under it.
//!
//! Two things, as they change for different reasons. Its *ratio*: what access took, of what [`crate::decision::model`]
//! predicts from the time that the units of the same epochs took, so what its schedule is worth, whatever transactions
//! cost. And its *travel*: how much longer an operation takes there than serially, as rows go from worker to worker or
//! are copied to versions.

use super::level::Level;
use crate::policy::Policy;

/// How much dearer, or in a probe's favour cheaper, a policy may be than predicted that was never run.
pub const DOUBT: f64 = 0.25;
/// The same, if one of its family was run.
const DOUBT_ALIKE: f64 = 0.1;
/// Of a policy that was run once, how far it may have changed.
pub const CHANGE: f64 = 0.1;
/// How much longer an operation may take than serially, nanoseconds, unless more is known: two lines of a cache that
/// another processor has.
pub const TRAVEL_MAX: f64 = 300.0;
/// Epochs after which a policy is warm. The best of them counts.
pub const WARM_UP: u32 = 3;

/// What is known of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Which.
    pub policy: Policy,
    /// Epochs that ran under it, since it was last probed.
    pub samples: u32,
    /// It is not probed before so much time has passed; how long it rested last.
    pub rests_until_ns: f64,
    /// See there.
    pub rest_ns: f64,
    ratio: Level,
    /// The least that the ratio was since it was last probed: what it was it may be again.
    least: f64,
    travel: f64,
}

/// Sums over the policies of a family that were run.
#[derive(Clone, Copy, Debug, Default)]
struct Family {
    count: f64,
    ratio: f64,
    travel: f64,
}

/// What is known of policies by how they treat rows: in place, on versions, speculating.
#[derive(Clone, Copy, Debug, Default)]
pub struct Families([Family; 3]);

impl Families {
    /// Of all policies.
    pub fn of(all: &[Known]) -> Families {
        let mut families = Families::default();
        for known in all {
            let Some(ratio) = known.ratio.value() else { continue };
            let family = &mut families.0[known.family()];
            family.count += 1.0;
            family.ratio += ratio;
            family.travel += known.travel;
        }
        families
    }

    /// The family next to one of which anything is known, and how far from it that is.
    fn nearest(&self, family: usize) -> Option<(Family, usize)> {
        let known = self.0.iter().enumerate().filter(|(_, family)| family.count > 0.0);
        known.map(|(other, known)| (*known, other.abs_diff(family))).min_by_key(|(_, distance)| *distance)
    }
}

/// How a policy compares to what is predicted of it.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Time of access, of the prediction.
    pub ratio: f64,
    /// The same at the least and at the most.
    pub least: f64,
    /// See there.
    pub most: f64,
    /// Nanoseconds that an operation takes longer than serially.
    pub travel: f64,
}

impl Known {
    /// Of one that was never run.
    pub fn new(policy: Policy) -> Known {
        Known {
            policy,
            samples: 0,
            rests_until_ns: 0.0,
            rest_ns: 0.0,
            ratio: Level::default(),
            least: 1.0,
            travel: 0.0,
        }
    }

    /// What to expect of it, by its own epochs, or by those of policies like it.
    pub fn expected(&self, families: &Families) -> Expected {
        if let Some(ratio) = self.ratio.value() {
            let least = self.least.min(ratio * (1.0 - CHANGE));
            return Expected { ratio, least, most: ratio, travel: self.travel };
        }
        let Some((family, likeness)) = families.nearest(self.family()) else {
            return Expected { ratio: 1.0, least: 1.0 - DOUBT, most: 1.0 + DOUBT, travel: 0.0 };
        };
        let Family { count, ratio, travel } = family;
        let (ratio, travel) = (ratio / count, travel / count);
        let doubt = if likeness == 0 { DOUBT_ALIKE } else { DOUBT };
        // What is bad about those like it may be their own.
        let least = ratio.sqrt().min(1.0 + doubt).min(ratio) * (1.0 - doubt);
        Expected { ratio, least, most: ratio.max(1.0) * (1.0 + doubt), travel }
    }

    /// Policies are alike by how they treat rows, from in place over versions to speculation.
    fn family(&self) -> usize {
        usize::from(self.policy.on_versions()) + usize::from(self.policy.speculates())
    }

    /// An epoch took so much of what was predicted, when `expected` was.
    pub fn learn(&mut self, ratio: f64, expected: f64) {
        match self.ratio.value() {
            None => {
                self.ratio.set(expected);
                self.ratio.renew(ratio);
            }
            Some(_) if self.samples == 0 => self.ratio.set(ratio),
            Some(best) if self.samples < WARM_UP => self.ratio.renew(best.min(ratio)),
            Some(_) => self.ratio.add(ratio),
        }
        let now = self.ratio.value().unwrap_or(expected);
        self.least = if self.samples < WARM_UP { now } else { self.least.min(now) };
        self.samples = self.samples.saturating_add(1);
    }

    /// It is run to know it: what was known is not to count any more.
    pub fn probe(&mut self) {
        self.samples = 0;
    }

    /// What an operation takes serially, if in units it took `useful_ns`. While the policy warms up, that is taken to be
    /// `serial_ns` as far as rows' travel can explain the difference.
    pub fn serial_ns(&mut self, useful_ns: f64, serial_ns: f64) -> f64 {
        if self.samples < WARM_UP {
            let travel = (useful_ns - serial_ns).clamp(0.0, TRAVEL_MAX);
            self.travel = if self.samples == 0 { travel } else { self.travel.min(travel) };
        }
        (useful_ns - self.travel).max(1.0)
    }

    /// A probe of it is over: what it showed is believed.
    pub fn settle(&mut self) {
        self.ratio.settle();
    }

    /// Serially, an operation takes so much longer than was believed, and under this policy as long as before.
    pub fn recalibrate(&mut self, longer_ns: f64) {
        self.travel -= longer_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_was_it_may_be_again_until_a_probe_says_otherwise() {
        let mut known = Known::new(Policy::CHAIN);
        let least = |known: &Known| known.expected(&Families::default()).least;
        (0..10).for_each(|_| known.learn(1.0, 1.0));
        (0..10).for_each(|_| known.learn(1.4, 1.0));
        assert!(known.expected(&Families::default()).ratio > 1.2 && least(&known) == 1.0);
        known.probe();
        known.learn(1.4, 1.0);
        assert_eq!(least(&known), 1.4 * (1.0 - CHANGE));
    }
}
