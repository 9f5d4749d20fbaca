//! Ranks by a Zipf distribution of any exponent, in constant time and memory.
//!
//! Rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996): invert the integral of `x^-theta`, round
//! to a rank, and accept it where the drawn area lies under that rank's bar. More than nine draws in ten
//! are accepted.

/// A Zipf distribution over the ranks 0 to `count - 1`: rank r has a probability proportional to
/// `1 / (r + 1)^theta`, so 0 is uniform.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    /// The areas between which is drawn.
    area_first: f64,
    area_last: f64,
    /// A rank at most this far above its point is accepted without a closer look.
    near: f64,
}

impl Zipf {
    /// Makes a Zipf distribution over `count` values with exponent `theta`: `count` must be positive, `theta` finite
    /// and not negative.
    pub fn new(count: u64, theta: f64) -> Zipf {
        assert!(count > 0 && theta.is_finite() && theta >= 0.0);
        let mut zipf = Zipf { count, theta, area_first: 0.0, area_last: 0.0, near: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count as f64 + 0.5);
        zipf.near = 2.0 - zipf.point(zipf.area(2.5) - zipf.bar(2.0));
        zipf
    }

    /// Returns the number of ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns a rank, by as many numbers in `0.0..1.0` as it takes.
    pub fn rank(&self, mut unit: impl FnMut() -> f64) -> u64 {
        loop {
            let area = self.area_last + unit() * (self.area_first - self.area_last);
            let point = self.point(area);
            let rank = point.round().clamp(1.0, self.count as f64);
            if rank - point <= self.near || area >= self.area(rank + 0.5) - self.bar(rank) {
                return (rank as u64).clamp(1, self.count) - 1;
            }
        }
    }

    /// Returns `x^-theta`.
    fn bar(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Returns the integral of `x^-theta` from 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.theta) * log;
        // (e^p - 1) / p, which goes to 1 with p.
        let ratio = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
        ratio * log
    }

    /// Returns the inverse of [`Zipf::area`].
    fn point(&self, area: f64) -> f64 {
        // Rounding must not take the argument of the logarithm below zero.
        let power = (area * (1.0 - self.theta)).max(-1.0);
        let ratio = if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
        (ratio * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn frequencies_follow_the_weights() {
        const DRAWS: u64 = 200_000;
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 3.0] {
            let (zipf, mut random) = (Zipf::new(10, theta), Random::new(3));
            let mut counts = [0_u64; 10];
            for _ in 0..DRAWS {
                counts[zipf.rank(|| random.unit()) as usize] += 1;
            }
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-theta);
            let total: f64 = (0..10).map(weight).sum();
            for (rank, count) in counts.iter().enumerate() {
                let expected = DRAWS as f64 * weight(rank) / total;
                let error = (*count as f64 - expected).abs();
                assert!(error < 5.0 * expected.sqrt() + 5.0, "theta {theta}, rank {rank}: {count} for {expected}");
            }
        }
    }

    #[test]
    fn extreme_counts_stay_in_range() {
        for count in [1, 2, u64::MAX] {
            for theta in [0.0, 0.99, 1.0, 5.0] {
                let (zipf, mut random) = (Zipf::new(count, theta), Random::new(1));
                assert!((0..1000).all(|_| zipf.rank(|| random.unit()) < count));
            }
        }
    }
}
