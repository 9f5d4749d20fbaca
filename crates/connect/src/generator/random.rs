//! Random numbers by position: the `n`-th number of a stream without the ones before it.
//!
//! The generator is SplitMix64 ([`tidemill_random`]), whose state is a counter, so that any element is as
//! cheap as the next.

use tidemill_random::{GAMMA, mix, unit};

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    key: u64,
}

impl Stream {
    /// Makes the stream of a seed.
    pub fn new(seed: u64) -> Stream {
        Stream { key: mix(seed ^ GAMMA) }
    }

    /// Returns a stream of its own for each `index`.
    pub fn split(self, index: u64) -> Stream {
        Stream { key: mix(self.at(index) ^ 0xd1b5_4a32_d192_ed03) }
    }

    /// Returns a stream of its own for each name.
    pub fn named(self, name: &str) -> Stream {
        name.bytes().fold(self, |stream, byte| stream.split(u64::from(byte)))
    }

    /// Returns the `n`-th 64 random bits.
    pub fn at(self, n: u64) -> u64 {
        mix(self.key.wrapping_add(n.wrapping_add(1).wrapping_mul(GAMMA)))
    }

    /// Returns a number from 0 to below 1.
    pub fn unit(self, n: u64) -> f64 {
        unit(self.at(n))
    }

    /// Numbers from 0 to below 1, as many as the `n`-th element takes; the first is [`Stream::unit`]'s.
    pub fn units(self, n: u64) -> impl FnMut() -> f64 {
        let mut attempt = 0;
        move || {
            let number = if attempt == 0 { self.unit(n) } else { self.split(n).unit(attempt - 1) };
            attempt += 1;
            number
        }
    }

    /// Returns an integer from 0 to `last`, included. The bias is below `last / 2^64`.
    pub fn up_to(self, n: u64, last: u64) -> u64 {
        ((u128::from(self.at(n)) * (u128::from(last) + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_kept_and_filled() {
        let stream = Stream::new(7).named("column");
        let mut seen = [0u32; 6];
        for n in 0..6000 {
            seen[stream.up_to(n, 5) as usize] += 1;
            assert!((0.0..1.0).contains(&stream.unit(n)));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert!((0..100).any(|n| stream.up_to(n, u64::MAX) > u64::MAX / 2));
        assert_ne!(stream.at(0), Stream::new(8).named("column").at(0));
        assert_ne!(stream.split(0).at(0), stream.split(1).at(0));
    }
}
