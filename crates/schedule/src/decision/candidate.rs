//! A candidate for an epoch: a policy, and a number of workers.

use crate::policy::{Granularity, Policy};
use std::fmt;

/// A policy on a number of workers. Prints as `--scheduling` takes it: `transaction@4`, or `epoch`, which has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The policy.
    pub policy: Policy,
    /// The number of workers that take part in access.
    pub workers: u32,
}

impl Candidate {
    /// The serial loop.
    pub const SERIAL: Candidate = Candidate { policy: Policy::EPOCH, workers: 1 };

    /// Makes a policy on this many workers; the serial one on one.
    pub fn new(policy: Policy, workers: u32) -> Candidate {
        assert!(workers > 0, "a worker has to run the epoch");
        Candidate { policy, workers: if policy.granularity == Granularity::Epoch { 1 } else { workers } }
    }

    /// Returns whether the candidate is the serial loop.
    pub fn is_serial(self) -> bool {
        self.policy.granularity == Granularity::Epoch
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_serial() {
            true => self.policy.fmt(f),
            false => write!(f, "{}@{}", self.policy, self.workers),
        }
    }
}

/// Returns the numbers of workers to choose among for a policy that shares work: 2, 4, 8 and so on, and all there are.
pub fn numbers(workers: u32) -> Vec<u32> {
    let powers = (1..u32::BITS).map(|bit| 1 << bit).take_while(|&number| number < workers);
    powers.chain((workers > 1).then_some(workers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_double_up_to_all() {
        let all = [1, 2, 3, 4, 6, 16].map(numbers);
        assert_eq!(all, [vec![], vec![2], vec![2, 3], vec![2, 4], vec![2, 4, 6], vec![2, 4, 8, 16]]);
    }

    #[test]
    fn the_serial_loop_has_one_worker() {
        assert_eq!(Candidate::new(Policy::EPOCH, 8), Candidate::SERIAL);
        assert_eq!(Candidate::SERIAL.to_string(), "epoch");
        assert_eq!(Candidate::new(Policy::TRANSACTION, 8).to_string(), "transaction@8");
    }
}
