//! The time of the access stage, divided into the kinds of the papers (MorphStream §6.3.1).
//!
//! The clock is a parameter ([`crate::Execute::now`]). Waiting and repair are timed whenever they happen. Of the units
//! a sample is timed, so few of them that reading the clock costs less than 1 % of their time, unless they take less
//! than 150 ns. Exploring is the rest of the time inside the executor.

/// Nanoseconds of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Transactions and their parts.
    pub useful: u64,
    /// Waiting for other workers.
    pub sync: u64,
    /// Waiting for locks.
    pub lock: u64,
    /// Locating, partitioning, linking, strata; looking at the epoch to decide.
    pub construct: u64,
    /// Finding units and releasing those that wait for them.
    pub explore: u64,
    /// Undoing and running again.
    pub abort: u64,
    /// The rest: copying versions into rows, coming and leaving.
    pub other: u64,
}

impl Breakdown {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        let Breakdown { useful, sync, lock, construct, explore, abort, other } = self;
        useful + sync + lock + construct + explore + abort + other
    }

    /// Adds the times of another breakdown.
    pub fn add(&mut self, more: &Breakdown) {
        self.useful += more.useful;
        self.sync += more.sync;
        self.lock += more.lock;
        self.construct += more.construct;
        self.explore += more.explore;
        self.abort += more.abort;
        self.other += more.other;
    }
}

/// Time between samples: reading the clock twice, some 100 ns, is 0.5 % of it.
const SAMPLE_NS: u64 = 20_000;
/// Units between samples, at most.
const INTERVAL_MAX: u64 = 64;

/// A choice of units that are timed, and an estimate of the time of all units.
///
/// A unit that is timed stands for all since the last one that was. How many these are was decided before, by the
/// average time of units, so it does not depend on the unit itself. So the sum is right on average, also where some
/// units take a thousand times as long as others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    interval: u64,
    left: u64,
    units: u64,
    sum: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler { interval: 1, left: 1, units: 0, sum: 0 }
    }
}

impl Sampler {
    /// Returns whether the next unit is to be timed.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Notes that the unit took this long. Returns the estimate for all units since the last sample, this one included.
    pub(crate) fn took(&mut self, ns: u64) -> u64 {
        let all = ns * self.interval;
        self.units += self.interval;
        self.sum += all;
        debug_assert!(self.units > 0, "an interval has a unit");
        self.interval = (SAMPLE_NS * self.units / self.sum.max(1)).clamp(1, INTERVAL_MAX);
        self.left = self.interval;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_units_are_timed_seldom_and_expensive_ones_always() {
        let run = |units: u64, cost: &dyn Fn(u64) -> u64| {
            let (mut sampler, mut timed, mut sum) = (Sampler::default(), 0, 0);
            for unit in 0..units {
                if sampler.is_due() {
                    timed += 1;
                    sum += sampler.took(cost(unit));
                }
            }
            (timed, sum)
        };
        assert_eq!(run(6401, &|_| 10), (101, 64_010));
        // Two of three are cheap, any third takes twenty-four microseconds: about every second is timed.
        let is_any = |unit: u64| (unit.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(3);
        let (timed, sum) = run(30_000, &|unit| if is_any(unit) { 24_000 } else { 80 });
        assert!((192_000_000..288_000_000).contains(&sum) && timed < 20_000, "{sum} by {timed}");
        let mut sampler = Sampler::default();
        assert!((0..100).all(|_| sampler.is_due() && sampler.took(40_000) == 40_000));
    }
}
