//! A share of all time that may be spent on something.

/// Time that may be spent on something, and the time that was.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The share of all time.
    share: f64,
    spent_ns: f64,
}

impl Budget {
    /// Makes a budget of this share of all time.
    pub fn new(share: f64) -> Budget {
        Budget { share, spent_ns: 0.0 }
    }

    /// Takes note of time that was spent.
    pub fn spend(&mut self, ns: f64) {
        assert!(ns >= 0.0, "{ns} ns were spent: that would make the budget larger");
        self.spent_ns += ns;
    }

    /// Returns the time that may be spent now, nanoseconds, after `elapsed_ns` of all time; below 0 if more was spent.
    pub fn left(&self, elapsed_ns: f64) -> f64 {
        self.share * elapsed_ns - self.spent_ns
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
