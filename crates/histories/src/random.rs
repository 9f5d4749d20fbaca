//! Choices by seed, so that a seed means the same history on every machine and in every version.

use tidemill_random::{GAMMA, Random as Numbers, mix};

/// A sequence of choices that is a function of its seed.
#[derive(Clone, Debug)]
pub struct Random(Numbers);

impl Random {
    /// Makes the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds start apart.
        Random(Numbers::new(mix(seed.wrapping_add(GAMMA))))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Returns a number less than `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Returns a number from `least` to `most`, both included.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Returns an integer from `least` to `most`, both included; they are not far apart.
    pub fn int(&mut self, least: i64, most: i64) -> i64 {
        least + (self.bits() % (most - least + 1) as u64) as i64
    }

    /// Returns true in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random one of several things.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// Returns a random one of several things, or none if there are none.
    pub fn pick_any<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        (!things.is_empty()).then(|| self.pick(things))
    }

    /// Puts things into a random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}
