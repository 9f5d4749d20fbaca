//! Comparing the policies: what each is expected to take, which is the best, which is worth a probe.

use super::candidate::Candidate;
use super::known::{CHANGE, DOUBT, Known, TRAVEL_MAX, Typical};
use super::{COMPARING_NS, Choice, Decision, Load, REGRET_MAX, Reason, model};
use tidemill_txn::Survey;

/// Epochs of a probe at least and at most, and its time, nanoseconds: caches need some time to warm up, however short
/// epochs are.
const PROBE_EPOCHS: u32 = 2;
const PROBE_EPOCHS_MAX: u32 = 6;
const PROBE_NS: f64 = 2_000_000.0;
/// The least share of the time that a probe must promise to save.
const PROMISE_MIN: f64 = 0.06;
/// A policy is replaced by one that is better by this share.
const ADVANTAGE_MIN: f64 = 0.03;
/// The first rest of a policy that lost a probe, in epochs.
const REST_EPOCHS_MIN: f64 = 64.0;

/// The expected time per operation under a policy, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub candidate: Candidate,
    /// Access alone.
    pub access: f64,
    /// The pipeline.
    pub pipeline: f64,
    /// The pipeline at best, and at worst.
    hoped: f64,
    feared: f64,
}

/// A probe under way: chosen for some epochs, of which some are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    candidate: Candidate,
    /// Expected access time per operation.
    access: f64,
    chosen: u32,
    recorded: u32,
    /// The time for which it may go on after the least number of epochs, nanoseconds.
    left_ns: f64,
    regret_ns: f64,
}

impl Probe {
    fn goes_on(&self) -> bool {
        self.chosen < PROBE_EPOCHS || self.chosen < PROBE_EPOCHS_MAX && self.left_ns > 0.0
    }
}

impl Decision {
    /// Compares all policies: the best and the second best. A probe may begin.
    pub(super) fn compare(&mut self, survey: &Survey, load: &Load, count: f64) -> (Estimate, Estimate) {
        let estimates = self.estimates(survey, load, count);
        let (best, second) = self.best(&estimates);
        self.current = best.candidate;
        self.standing = Some((best, second));
        self.compares_at_ns = self.elapsed_ns + COMPARING_NS;
        if self.probe.is_none() {
            self.probe = self.next_probe(&estimates, &best, count);
            if let Some(known) = self.probe.and_then(|probe| self.known_mut(probe.candidate)) {
                known.begin_probe();
            }
        }
        (best, second)
    }

    fn estimates(&self, survey: &Survey, load: &Load, count: f64) -> Vec<Estimate> {
        let typical = Typical::of(&self.known);
        self.known.iter().map(|known| self.estimate(known, typical, survey, load, count)).collect()
    }

    fn estimate(&self, known: &Known, typical: Option<Typical>, survey: &Survey, load: &Load, count: f64) -> Estimate {
        let candidate = known.candidate;
        let pipeline = |access: f64| self.pipeline(candidate, access, load);
        if candidate.is_serial() {
            let (access, expected) = (load.access_ns, pipeline(load.access_ns));
            let hoped = match self.serial_epochs {
                // The time that units take in parallel, less the assumed travel of rows, which may be more.
                0 => pipeline((access - TRAVEL_MAX).max(access * (1.0 - DOUBT))),
                _ => expected,
            };
            let hoped = hoped.min(expected * (1.0 - CHANGE));
            return Estimate { candidate, access, pipeline: expected, hoped, feared: expected };
        }
        let expected = known.expected(typical);
        let parallel = Load { units_ns: (load.access_ns + expected.travel).max(1.0), ..*load };
        let predicted = model::predict(candidate, survey, &parallel, count) / count;
        assert!(predicted.is_finite() && predicted >= 0.0, "{candidate} is predicted to take {predicted} ns");
        // No policy shares out work better than evenly.
        let least_access = load.access_ns / f64::from(candidate.workers);
        Estimate {
            candidate,
            access: predicted * expected.ratio,
            pipeline: pipeline(predicted * expected.ratio),
            hoped: pipeline((predicted * expected.least).max(least_access)),
            feared: pipeline(predicted * expected.most),
        }
    }

    /// Returns the best and the second best at worst. The current policy stays unless another is clearly better.
    fn best(&self, estimates: &[Estimate]) -> (Estimate, Estimate) {
        let bound = |e: &Estimate| e.feared * if e.candidate == self.current { 1.0 - ADVANTAGE_MIN } else { 1.0 };
        let best = estimates.iter().min_by(|a, b| bound(a).total_cmp(&bound(b))).expect("there are policies");
        let others = estimates.iter().filter(|e| e.candidate != best.candidate);
        let second = others.min_by(|a, b| a.feared.total_cmp(&b.feared)).expect("there are several policies");
        (*best, *second)
    }

    /// Returns the policy that may be better than the best by most, if regret allows a probe of it.
    fn next_probe(&self, estimates: &[Estimate], best: &Estimate, count: f64) -> Option<Probe> {
        let awake = self.known.iter().zip(estimates).filter(|(known, _)| known.rests_until_ns <= self.elapsed_ns);
        let candidates = awake.map(|(_, estimate)| estimate).filter(|e| e.candidate != best.candidate);
        let candidate = candidates.min_by(|a, b| a.hoped.total_cmp(&b.hoped))?;
        let feared = candidate.feared - best.pipeline;
        let epochs = (PROBE_NS / (candidate.pipeline * count)).ceil() as u32;
        let epochs = epochs.clamp(PROBE_EPOCHS, PROBE_EPOCHS_MAX);
        let regret = f64::from(epochs) * feared.max(0.0) * count;
        let is_promising = candidate.hoped < best.pipeline * (1.0 - PROMISE_MIN);
        let elapsed = self.with_head_start(best.pipeline * count);
        (is_promising && regret <= self.regret.left(elapsed)).then_some(Probe {
            candidate: candidate.candidate,
            access: candidate.access,
            chosen: 0,
            recorded: 0,
            left_ns: PROBE_NS,
            regret_ns: 0.0,
        })
    }

    /// Returns the next epoch of the probe, if one is under way and needs it.
    pub(super) fn next_of_probe(&mut self, instead_of: &Estimate, count: f64) -> Option<Choice> {
        let probe = self.probe.as_mut().filter(|probe| probe.goes_on())?;
        probe.chosen += 1;
        probe.left_ns -= probe.access * count;
        let reason = Reason::Probe { instead_of_ns: instead_of.pipeline * count };
        Some(Choice { expected_ns: Some(probe.access * count), ..Choice::on(probe.candidate, reason) })
    }

    /// Takes note of a recorded epoch of a policy, perhaps one of the probe: ends the probe after its last.
    pub(super) fn follow_probe(&mut self, candidate: Candidate, regret: f64, epoch_ns: f64) {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.candidate == candidate) else { return };
        probe.regret_ns += regret.max(0.0);
        probe.recorded += 1;
        if probe.goes_on() || probe.recorded < probe.chosen {
            return;
        }
        let rest = (probe.regret_ns / REGRET_MAX).max(epoch_ns * REST_EPOCHS_MIN);
        let elapsed_ns = self.elapsed_ns;
        self.probe = None;
        // The result of the probe changes the comparison, so the next one is due at once.
        self.compares_at_ns = elapsed_ns;
        if let Some(known) = self.known_mut(candidate) {
            known.end_probe(elapsed_ns, rest);
        }
    }

    /// Returns whether so little is known of a policy that its choice was a guess. The cost of the loop is always
    /// known.
    pub(super) fn is_new(&self, candidate: Candidate) -> bool {
        let is_new = |known: &Known| known.candidate == candidate && known.samples <= PROBE_EPOCHS;
        !candidate.is_serial() && self.known.iter().any(is_new)
    }
}
