//! The present level of a quantity, by its recent values, of which some are outliers.

/// A value that differs by this factor belongs to another workload, or is an outlier.
const DRIFT: f64 = 1.5;
/// The weight that earlier values keep with each new one.
const DECAY: f64 = 0.9;

/// An average of recent values, the last one weighing most.
///
/// A value far from the average may be an outlier (another process took the processor, perhaps for longer than an
/// epoch). Only after three in a row on the same side does the level change, and then at once, to their median.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    value: Option<f64>,
    odd: [f64; 2],
    odd_count: usize,
}

impl Level {
    /// Returns a level that is believed to be this.
    pub fn of(value: f64) -> Level {
        Level { value: Some(value), ..Level::default() }
    }

    /// Returns the level, once there was a value.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// Adds a value.
    pub fn add(&mut self, new: f64) {
        match self.value {
            Some(value) if self.is_far(new) => self.add_odd(value, new),
            Some(value) => self.set(value * DECAY + new * (1.0 - DECAY)),
            None => self.set(new),
        }
    }

    /// Replaces the level by a value, unless the value is far from it.
    pub fn renew(&mut self, new: f64) {
        if self.is_far(new) { self.add(new) } else { self.set(new) }
    }

    /// Ends a series of values: the last outliers count, of two the nearer.
    pub fn settle(&mut self) {
        let odd = self.odd[..self.odd_count].iter().copied();
        let nearer = |a: f64, b: f64| if self.distance(a) <= self.distance(b) { a } else { b };
        if let Some(nearest) = odd.reduce(nearer) {
            self.set(nearest);
        }
    }

    fn distance(&self, new: f64) -> f64 {
        self.value.map_or(0.0, |value| (new / value).ln().abs())
    }

    /// Replaces the level.
    pub fn set(&mut self, value: f64) {
        debug_assert!(value.is_finite(), "a level of {value}");
        *self = Level::of(value);
    }

    fn is_far(&self, new: f64) -> bool {
        self.distance(new) > DRIFT.ln()
    }

    fn add_odd(&mut self, value: f64, new: f64) {
        if self.odd_count > 0 && (self.odd[0] > value) != (new > value) {
            self.odd_count = 0;
        }
        if self.odd_count < 2 {
            self.odd[self.odd_count] = new;
            self.odd_count += 1;
            return;
        }
        let mut odd = [self.odd[0], self.odd[1], new];
        odd.sort_by(f64::total_cmp);
        self.set(odd[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: &[f64]) -> f64 {
        let mut level = Level::default();
        values.iter().for_each(|&value| level.add(value));
        level.value().expect("a value")
    }

    #[test]
    fn values_are_averaged_and_outliers_are_not() {
        assert_eq!(after(&[100.0]), 100.0);
        assert_eq!(after(&[100.0, 120.0]), 102.0);
        assert_eq!(after(&[100.0, 500.0, 400.0, 100.0]), 100.0);
        assert_eq!(after(&[100.0, 500.0, 10.0, 500.0, 10.0]), 100.0);
    }

    #[test]
    fn three_in_a_row_are_a_change() {
        assert_eq!(after(&[100.0, 900.0, 400.0, 500.0]), 500.0);
        assert_eq!(after(&[100.0, 10.0, 10.0, 20.0]), 10.0);
        let mut level = Level::default();
        level.set(100.0);
        level.renew(110.0);
        assert_eq!(level.value(), Some(110.0));
        level.renew(500.0);
        assert_eq!(level.value(), Some(110.0));
        level.add(400.0);
        level.settle();
        assert_eq!(level.value(), Some(400.0));
    }
}
