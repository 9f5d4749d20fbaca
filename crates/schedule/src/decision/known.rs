//! The experience with a policy on one number of workers, from the epochs that ran under it.
//!
//! Two numbers, because they change for different reasons. The *ratio* is measured access time over the time that
//! [`crate::decision::model`] predicts from the time that the units of the same epochs took: the quality of the
//! schedule, whatever transactions cost. The *travel* is the extra time per operation compared to serial execution, as
//! rows move between processors' caches or are copied to versions.

use super::candidate::Candidate;
use super::level::Level;

/// The margin of a policy that was never run: how much more, or in favour of a probe less, it may take than expected.
pub const DOUBT: f64 = 0.25;
/// The margin of a policy that was run: how far it may have changed since.
pub const CHANGE: f64 = 0.1;
/// The most extra time per operation that is assumed without measurement, nanoseconds: two cache lines that another
/// processor holds.
pub const TRAVEL_MAX: f64 = 300.0;
/// Epochs until a policy is warm. The best of them counts.
pub const WARM_UP: u32 = 3;

/// The experience with a policy.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The policy, and the number of workers.
    pub candidate: Candidate,
    /// Epochs that ran under it since its last probe began.
    pub samples: u32,
    /// No probe before this time, nanoseconds.
    pub rests_until_ns: f64,
    /// Length of the last rest, nanoseconds; it doubles with each probe.
    rest_ns: f64,
    ratio: Level,
    /// Lowest ratio since the last probe: an optimistic bound.
    least: f64,
    travel: f64,
}

/// The mean over the parallel policies that were run: what to expect of one that was not.
#[derive(Clone, Copy, Debug)]
pub struct Typical {
    ratio: f64,
    travel: f64,
}

impl Typical {
    /// Returns the mean of these policies; none if none of them was run.
    pub fn of(all: &[Known]) -> Option<Typical> {
        let (mut count, mut ratios, mut travel) = (0.0, 0.0, 0.0);
        for known in all {
            if let Some(ratio) = known.ratio.value() {
                count += 1.0;
                ratios += ratio;
                travel += known.travel;
            }
        }
        (count > 0.0).then(|| Typical { ratio: ratios / count, travel: travel / count })
    }
}

/// The cost that is to be expected of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Access time over the predicted time.
    pub ratio: f64,
    /// The ratio at best.
    pub least: f64,
    /// The ratio at worst.
    pub most: f64,
    /// Extra time per operation compared to serial execution, nanoseconds.
    pub travel: f64,
}

impl Known {
    /// Makes a policy that was never run.
    pub fn new(candidate: Candidate) -> Known {
        Known {
            candidate,
            samples: 0,
            rests_until_ns: 0.0,
            rest_ns: 0.0,
            ratio: Level::default(),
            least: 1.0,
            travel: 0.0,
        }
    }

    /// Returns the cost to expect, by the policy's own epochs, or else by those of the others.
    pub fn expected(&self, typical: Option<Typical>) -> Expected {
        if let Some(ratio) = self.ratio.value() {
            let least = self.least.min(ratio * (1.0 - CHANGE));
            return Expected { ratio, least, most: ratio, travel: self.travel };
        }
        let Typical { ratio, travel } = typical.unwrap_or(Typical { ratio: 1.0, travel: 0.0 });
        // If the other policies are slow, this may be their own fault, so the least ratio is assumed better than
        // theirs.
        let least = ratio.sqrt().min(1.0 + DOUBT).min(ratio) * (1.0 - DOUBT);
        Expected { ratio, least, most: ratio.max(1.0) * (1.0 + DOUBT), travel }
    }

    /// Learns the ratio of an epoch. `typical`: of all policies before it.
    pub fn learn(&mut self, ratio: f64, typical: Option<Typical>) {
        match self.ratio.value() {
            None => {
                self.ratio.set(self.expected(typical).ratio);
                self.ratio.renew(ratio);
            }
            Some(_) if self.samples == 0 => self.ratio.set(ratio),
            Some(best) if self.samples < WARM_UP => self.ratio.renew(best.min(ratio)),
            Some(_) => self.ratio.add(ratio),
        }
        let now = self.ratio.value().unwrap_or(ratio);
        self.least = if self.samples < WARM_UP { now } else { self.least.min(now) };
        self.samples = self.samples.saturating_add(1);
    }

    /// Returns the serial time of an operation, given that it took `useful_ns` in units and is believed to take
    /// `serial_ns` serially. While the policy warms up the belief stands, as far as travel can explain the difference.
    pub fn serial_ns(&mut self, useful_ns: f64, serial_ns: f64) -> f64 {
        if self.samples < WARM_UP {
            let travel = (useful_ns - serial_ns).clamp(0.0, TRAVEL_MAX);
            self.travel = if self.samples == 0 { travel } else { self.travel.min(travel) };
        }
        (useful_ns - self.travel).max(1.0)
    }

    /// Takes note that an operation takes this much longer serially than was believed, and under this policy as long as
    /// before.
    pub fn recalibrate(&mut self, longer_ns: f64) {
        self.travel -= longer_ns;
    }

    /// Begins a probe: what is known of the policy no longer counts.
    pub fn begin_probe(&mut self) {
        self.samples = 0;
    }

    /// Ends a probe: what it showed is believed. No other one begins for a while.
    pub fn end_probe(&mut self, now_ns: f64, rest_ns: f64) {
        self.ratio.settle();
        self.rest_ns = rest_ns.max(self.rest_ns * 2.0);
        self.rests_until_ns = now_ns + self.rest_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const PARALLEL: Candidate = Candidate { policy: Policy::TRANSACTION, workers: 2 };

    #[test]
    fn a_policy_may_again_be_as_good_as_it_was_until_a_probe_says_otherwise() {
        let mut known = Known::new(PARALLEL);
        let least = |known: &Known| known.expected(None).least;
        (0..10).for_each(|_| known.learn(1.0, None));
        (0..10).for_each(|_| known.learn(1.4, None));
        assert!(known.expected(None).ratio > 1.2 && least(&known) == 1.0);
        known.begin_probe();
        known.learn(1.4, None);
        assert_eq!(least(&known), 1.4 * (1.0 - CHANGE));
    }

    #[test]
    fn a_policy_that_was_never_run_is_expected_to_be_as_the_others_with_a_margin() {
        let mut ran = Known::new(PARALLEL);
        (0..10).for_each(|_| ran.learn(1.2, None));
        let never = Known::new(Candidate::SERIAL);
        let expected = never.expected(Typical::of(&[ran, never]));
        assert!((expected.ratio - 1.2).abs() < 1e-9 && expected.least < 1.0 && expected.most > 1.4, "{expected:?}");
    }
}
