//! Zipf-distributed numbers (Gray et al., "Quickly generating billion-record synthetic databases",
//! SIGMOD 1994, §3.2), and the plain generator under them.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }
}

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
    /// For `count` keys; θ in [0, 1).
    pub fn new(count: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(theta)).sum::<f64>();
        let (zeta, zeta2) = (zeta_of(count), zeta_of(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
        Zipf { count, zeta, zeta2, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// The next key.
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
