//! Random numbers that are a function of a seed: SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014), and Zipf's distribution over them.
//!
//! The same seed gives the same numbers on every machine and in every version. Generated data, the seeds that
//! failures report, and the digests of benchmarks rely on that; a test holds the first numbers fixed. Nothing here
//! is fit for secrets.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod zipf;

pub use zipf::Zipf;

/// SplitMix64's state is a counter with this step: the odd integer next to 2^64 divided by the golden ratio.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the output of SplitMix64's mixing function: a bijection whose output bits each depend on all input bits.
#[inline]
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the number in `0.0..1.0` that the upper 53 of 64 random bits stand for.
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the number below `bound` that 64 random bits stand for. The bias is below `bound / 2^64`.
#[inline]
pub fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Returns a number below `bound`, which is not 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.bits(), bound)
    }

    /// Returns a number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_fixed() {
        let mut random = Random::new(0);
        // As in the reference implementation, xoshiro.di.unimi.it/splitmix64.c.
        let first = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([random.bits(), random.bits(), random.bits()], first);
        assert_eq!(Random::new(0).below(100), 88);
        assert_eq!(Random::new(0).unit(), 0.883_310_808_213_642_6);
    }

    #[test]
    fn ranges_are_kept_and_filled() {
        let mut random = Random::new(7);
        let mut seen = [0_u32; 6];
        for _ in 0..6000 {
            seen[random.below(6) as usize] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
