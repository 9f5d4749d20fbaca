//! The recent cost of a transaction of each input, estimated from the few transactions that are timed.

use crate::epoch::Sampled;
use crate::wiring::InputId;
use typed_index_collections::{TiSlice, TiVec};

/// The weight of all earlier epochs is multiplied by this with each new epoch.
const DECAY: f64 = 0.75;

/// Cost estimates, by input.
#[derive(Clone, Debug)]
pub struct Costs {
    time: TiVec<InputId, f64>,
    transactions: TiVec<InputId, f64>,
}

impl Costs {
    /// Estimates for `inputs` inputs, all unknown.
    pub fn new(inputs: usize) -> Self {
        let unknown: TiVec<InputId, f64> = vec![0.0; inputs].into();
        Costs { time: unknown.clone(), transactions: unknown }
    }

    /// Adds the samples of an epoch.
    pub fn add(&mut self, sampled: &TiSlice<InputId, Sampled>) {
        for (input, sampled) in sampled.iter_enumerated().filter(|(_, sampled)| sampled.transactions > 0.0) {
            self.time[input] = self.time[input] * DECAY + sampled.time as f64;
            self.transactions[input] = self.transactions[input] * DECAY + sampled.transactions;
        }
    }

    /// Returns the cost of a transaction in nanoseconds; for an input without samples, the mean over the other inputs.
    pub fn of(&self, input: InputId) -> f64 {
        let mean = |time: f64, transactions: f64| (transactions > 0.0).then(|| time / transactions);
        let own = mean(self.time[input], self.transactions[input]);
        let all = || mean(self.time.iter().sum(), self.transactions.iter().sum());
        own.or_else(all).unwrap_or(1.0).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_by_input_and_of_others_where_unknown() {
        let mut costs = Costs::new(3);
        assert_eq!(costs.of(InputId::from(0)), 1.0);
        let sampled =
            [Sampled { time: 100, transactions: 10.0 }, Sampled { time: 900, transactions: 10.0 }, Sampled::default()];
        costs.add(TiSlice::from_ref(&sampled));
        assert_eq!([0, 1, 2].map(|input| costs.of(InputId::from(input))), [10.0, 90.0, 50.0]);
    }
}
