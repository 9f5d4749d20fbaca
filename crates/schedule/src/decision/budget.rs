//! What something may cost: a part of all time, by measurement.

/// Time that may be spent on something, and what was.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of all time.
    part: f64,
    spent_ns: f64,
}

impl Budget {
    /// This part of all time.
    pub fn new(part: f64) -> Budget {
        Budget { part, spent_ns: 0.0 }
    }

    /// So much was spent.
    pub fn spend(&mut self, ns: f64) {
        self.spent_ns += ns;
    }

    /// What may be spent now, after so much time, nanoseconds; below 0 where more was.
    pub fn left(&self, elapsed_ns: f64) -> f64 {
        self.part * elapsed_ns - self.spent_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_grows_with_time() {
        let mut budget = Budget::new(0.1);
        assert_eq!(budget.left(100.0), 10.0);
        budget.spend(15.0);
        assert_eq!(budget.left(100.0), -5.0);
        assert_eq!(budget.left(200.0), 5.0);
    }
}
