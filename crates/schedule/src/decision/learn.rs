//! Learning from finished epochs.

use super::candidate::Candidate;
use super::known::{Typical, WARM_UP};
use super::{Decision, EpochCost, Load, Model, Reason, SHARED_NS_MIN, model};

/// The weight that earlier epochs keep with each new one, in the share of aborts.
const DECAY: f64 = 0.75;

impl Decision {
    /// Learns from a finished epoch.
    pub fn record(&mut self, cost: EpochCost) {
        let EpochCost { choice, transactions, operations, access_ns, .. } = cost;
        let Some(candidate) = choice.candidate() else { return };
        let is_small = matches!(choice.reason, Reason::Small { .. }) && (access_ns as f64) < SHARED_NS_MIN;
        if self.workers < 2 || is_small || operations == 0 {
            return;
        }
        let count = f64::from(operations.max(1));
        let access = access_ns as f64 / count;
        self.others.add(cost.other_ns as f64 / count);
        let aborted = f64::from(cost.aborted) / f64::from(transactions.max(1));
        debug_assert!(aborted <= 1.0, "{} of {transactions} transactions aborted", cost.aborted);
        self.aborts = self.aborts * DECAY + aborted * (1.0 - DECAY);
        if self.model == Model::MorphStream {
            let units_ns = if cost.useful_ns > 0 { cost.useful_ns as f64 / count } else { access };
            return self.access.add(units_ns);
        }
        match candidate.is_serial() {
            true => self.follow_serially(access),
            false => self.follow_in_parallel(candidate, &cost),
        }
        let Some(load) = self.load() else { return };
        let taken = self.pipeline(candidate, access, &load) * count;
        self.elapsed_ns += taken;
        if self.survey.is_none() {
            return;
        }
        self.correct_prediction(candidate, &cost, &load);
        let regret = match choice.reason {
            Reason::Probe { instead_of_ns } => taken - instead_of_ns,
            // A wrong prediction costs what the second best would have saved.
            Reason::Cheaper { rejected_ns, .. } if self.is_new(candidate) => taken - rejected_ns,
            _ => 0.0,
        };
        self.regret.spend(regret.max(0.0));
        self.follow_probe(candidate, regret, taken);
    }

    /// Compares what a parallel epoch took to what the model predicts.
    fn correct_prediction(&mut self, candidate: Candidate, cost: &EpochCost, load: &Load) {
        let Some(survey) = self.survey.filter(|_| !candidate.is_serial()) else { return };
        let count = f64::from(cost.operations.max(1));
        let units_ns = if cost.useful_ns > 0 { cost.useful_ns as f64 / count } else { load.access_ns };
        let load = Load { units_ns, ..*load };
        let predicted = model::predict(candidate, &survey, &load, count);
        let typical = Typical::of(&self.known);
        if let Some(known) = self.known_mut(candidate) {
            known.learn(cost.access_ns as f64 / predicted.max(1.0), typical);
        }
    }

    /// Follows the cost of an operation by a serial epoch.
    fn follow_serially(&mut self, access_ns: f64) {
        self.serial_epochs = self.serial_epochs.saturating_add(1);
        let before = self.access.value();
        if self.serial_epochs > WARM_UP {
            return self.access.add(access_ns);
        }
        // The belief came from units and may be wrong, and the first serial epochs warm up caches. So the fastest of
        // them counts, and only when all took longer than believed is the loop believed to be slower.
        self.serial_least = self.serial_least.min(access_ns);
        if self.serial_epochs < WARM_UP && before.is_some_and(|before| self.serial_least > before) {
            return;
        }
        self.access.renew(self.serial_least);
        self.is_measured = true;
        let longer = self.access.value().zip(before).map_or(0.0, |(now, before)| now - before);
        self.known.iter_mut().for_each(|known| known.recalibrate(longer));
    }

    /// Follows the cost of an operation by the time that units took in parallel, where that is known.
    fn follow_in_parallel(&mut self, candidate: Candidate, cost: &EpochCost) {
        (self.serial_epochs, self.serial_least) = (0, f64::INFINITY);
        let Some(access) = self.access.value().filter(|_| cost.useful_ns > 0) else { return };
        let useful_ns = cost.useful_ns as f64 / f64::from(cost.operations.max(1));
        let Some(known) = self.known_mut(candidate) else { return };
        let serial_ns = known.serial_ns(useful_ns, access);
        let is_warm = known.samples >= WARM_UP;
        if is_warm {
            self.access.add(serial_ns);
        } else if !self.is_measured {
            self.access.set(serial_ns);
        }
        self.is_measured |= is_warm;
    }
}
