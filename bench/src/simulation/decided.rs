//! The decision among policies, in the simulation: it is told what epochs take there, and chooses as it does in the engine.

use super::predicted::Predicted;
use tidemill_runtime::EpochShape;
use tidemill_schedule::{Candidate, Decision, EpochCost, Model, Policy, SurveyWanted};
use tidemill_txn::{AccessBuffer, Parameter, Survey, Surveyor, UseBuffer};

/// Epochs that run. The first ones are serial, to measure and to survey.
const EPOCHS: usize = 400;
/// The time that the survey takes for an operation, nanoseconds (`docs/performance.md`).
const SURVEY_NS: f64 = 100.0;

/// A decision's epochs, all of the same shape. It is told of no aborts.
pub struct Decided<'a> {
    /// The predicted times of the policies that it may choose.
    policies: &'a [(Policy, Predicted)],
    shape: &'a EpochShape,
}

impl<'a> Decided<'a> {
    /// Panics when a policy is chosen that is not among these.
    pub fn new(policies: &'a [(Policy, Predicted)], shape: &'a EpochShape) -> Self {
        Decided { policies, shape }
    }

    fn of(&self, policy: Policy) -> &Predicted {
        let found = self.policies.iter().find(|(other, _)| *other == policy);
        &found.unwrap_or_else(|| panic!("{policy} is chosen and not simulated")).1
    }

    /// Returns events per second over all epochs; and at the most, by the best of the policies in each.
    pub fn events_per_second(&self, workers: usize) -> (f64, f64) {
        let (transactions, operations) = (self.shape.transactions.len() as u32, self.shape.accesses.len() as u32);
        let serial = self.of(Policy::EPOCH);
        let mut decision = Decision::new(workers, Model::Measured, true);
        let mut taken = 0.0;
        for _ in 0..EPOCHS {
            if decision.wants_sample(transactions) {
                decision.sample(operations, serial.access(1) as u64, serial.stages(workers) as u64);
            }
            if let Some(SurveyWanted::Paths { operations: wanted }) = decision.wants_survey(operations) {
                let survey = self.survey(wanted, workers);
                let took = SURVEY_NS * f64::from(survey.chains.operations);
                decision.surveyed(survey, took as u64);
                taken += took;
            }
            let choice = decision.choose(operations);
            let Candidate { policy, workers: in_access } = choice.candidate().expect("each choice is a policy's");
            let model = self.of(policy);
            let access = model.access(in_access as usize);
            taken += model.pipeline(access, in_access as usize, workers);
            decision.record(EpochCost {
                choice,
                transactions,
                operations,
                aborted: 0,
                access_ns: access as u64,
                useful_ns: model.transactions().iter().sum::<f64>() as u64,
                other_ns: model.stages(workers) as u64,
            });
        }
        let bounds = self.policies.iter().map(|(_, model)| model.bound(workers));
        (serial.events() * EPOCHS as f64 / taken * 1e9, bounds.fold(0.0, f64::max))
    }

    /// Returns a survey of the first transactions, as many as have this many operations.
    fn survey(&self, operations: u32, workers: usize) -> Survey {
        let op_start = self.shape.accesses.accesses().op_start();
        let count = op_start.partition_point(|&start| start < operations).min(self.shape.transactions.len());
        let slots = op_start[count] as usize;
        let sample: AccessBuffer = self.shape.accesses.slice(0..count);
        let uses =
            UseBuffer { uses: self.shape.uses.uses[..slots].to_vec(), parts: self.shape.uses.parts[..count].to_vec() };
        let of_transaction = self.of(Policy::EPOCH).transactions();
        let is_within = |parameter: &&Parameter| (parameter.read.max(parameter.written) as usize) < slots;
        let parameters: Vec<Parameter> = self.shape.parameters.iter().filter(is_within).copied().collect();
        Surveyor::default()
            .survey(&sample, &uses, &parameters, workers, |transaction| of_transaction[transaction as usize])
    }
}
