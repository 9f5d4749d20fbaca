//! Zipf-distributed keys by the method of Gray et al., "Quickly generating billion-record synthetic databases",
//! SIGMOD 1994, §3.2: exact for the first two ranks, an approximation for the rest, θ below 1.
//!
//! [`tidemill_random::Zipf`] is exact for every θ. This one stays because the workloads' digests and the figures of
//! `docs/figures.md` are of its numbers.

pub use tidemill_random::Random;

/// Ranks 0 to count − 1, rank r with probability proportional to 1 / (r + 1)^θ; scattered over the
/// keys so that popular ones are not neighbours.
pub struct Zipf {
    count: u64,
    zeta: f64,
    zeta2: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Makes a distribution over `count` keys; θ in [0, 1).
    pub fn new(count: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(theta)).sum::<f64>();
        let (zeta, zeta2) = (zeta_of(count), zeta_of(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
        Zipf { count, zeta, zeta2, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// Returns the next key.
    pub fn key(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta;
        let rank = if uz < 1.0 {
            0
        } else if uz < self.zeta2 {
            1
        } else {
            (self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        };
        // A bijection on 0..count as long as the factor, a prime, does not divide it.
        (rank.min(self.count - 1) as u128 * 2_147_483_647 % self.count as u128) as u64
    }
}
