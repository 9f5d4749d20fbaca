//! The standing of the decision against the fixed policies: over the best of them at each point, and over that one
//! policy which is best over all points.
//!
//! The best policy at a point is the one with the least median of all that ran, so it is the luckiest of many, too. The
//! spreads of both say how much a ratio means.

use crate::rounds::{Point, Spread};
use crate::session::{Way, scheduling_name};
use std::collections::BTreeMap;
use std::fmt;
use tidemill_runtime::Scheduling;

/// At one point, with one number of workers or with several.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The seconds of the runs of each fixed policy.
    fixed: BTreeMap<String, Spread>,
    /// Seconds of those of the decision.
    auto: Spread,
}

impl Standing {
    /// Compares the ways with this many workers. None unless the decision ran beside fixed policies.
    pub fn of(point: &Point, workers: usize) -> Option<Standing> {
        let ways = || point.runs.iter().filter(|(way, _)| way.workers == workers);
        let fixed = ways().filter(|(way, _)| matches!(way.scheduling, Scheduling::Fixed(_)));
        let fixed = fixed.map(|(way, runs)| (scheduling_name(way.scheduling), Spread::of_runs(runs)));
        let auto = ways().find(|(way, _)| way.scheduling == Scheduling::Auto)?;
        Self::new(fixed.collect(), Spread::of_runs(&auto.1))
    }

    /// Compares all ways: the decision with most workers beside each pair of a fixed policy and a number of workers.
    pub fn of_pairs(point: &Point) -> Option<Standing> {
        let name = |way: &Way| match way.scheduling {
            Scheduling::Fixed(_) => Some(format!("{}@{}", scheduling_name(way.scheduling), way.workers)),
            Scheduling::FixedOn(_) => Some(format!("{} of {}", scheduling_name(way.scheduling), way.workers)),
            _ => None,
        };
        let fixed = point.runs.iter().filter_map(|(way, runs)| Some((name(way)?, Spread::of_runs(runs))));
        let auto = point.runs.iter().filter(|(way, _)| way.scheduling == Scheduling::Auto);
        let (_, auto) = auto.max_by_key(|(way, _)| way.workers)?;
        Self::new(fixed.collect(), Spread::of_runs(auto))
    }

    fn new(fixed: BTreeMap<String, Spread>, auto: Spread) -> Option<Standing> {
        (!fixed.is_empty()).then_some(Standing { fixed, auto })
    }

    /// Returns the policy with the least median.
    pub fn best(&self) -> (&str, Spread) {
        let best = self.fixed.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
        best.map(|(name, spread)| (name.as_str(), *spread)).expect("a fixed policy")
    }

    /// Returns the rate of the decision over that of the best policy.
    pub fn ratio(&self) -> f64 {
        self.best().1.median / self.auto.median
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, best) = self.best();
        let Spread { least, greatest, .. } = self.auto;
        write!(out, "auto {:.2} of {name}; auto took {least:.3} to {greatest:.3} s, ", self.ratio())?;
        write!(out, "{name} {:.3} to {:.3} s", best.least, best.greatest)
    }
}

/// The standings at all points.
#[derive(Clone, Debug, Default)]
pub struct Standings(Vec<Standing>);

impl Standings {
    /// Adds a point.
    pub fn add(&mut self, standing: Standing) {
        self.0.push(standing);
    }

    /// Returns whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the policy that is best over all points at which it ran, and its rate over that of the best at each, on
    /// geometric average. Only policies that ran at every point count.
    fn best_overall(&self) -> Option<(&str, f64)> {
        let names = self.0.first()?.fixed.keys();
        let everywhere = names.filter(|name| self.0.iter().all(|standing| standing.fixed.contains_key(*name)));
        let mean = |name: &str| {
            geometric(self.0.iter().map(|standing| standing.best().1.median / standing.fixed[name].median))
        };
        everywhere.map(|name| (name.as_str(), mean(name))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the geometric mean of the ratios, and the least of them.
    fn mean_and_worst(&self) -> Option<(f64, f64)> {
        let worst = self.0.iter().map(Standing::ratio).reduce(f64::min)?;
        Some((geometric(self.0.iter().map(Standing::ratio)), worst))
    }
}

impl fmt::Display for Standings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((mean, worst)) = self.mean_and_worst() else { return Ok(()) };
        write!(
            out,
            "{} points: auto over the best fixed policy at each {mean:.3} on geometric average, ",
            self.0.len()
        )?;
        write!(out, "{worst:.2} at the worst point")?;
        let Some((name, mean)) = self.best_overall() else { return Ok(()) };
        write!(out, "; the best policy for all points, {name}, {mean:.3} on average")
    }
}

fn geometric(ratios: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(fixed: &[(&str, [f64; 3])], auto: [f64; 3]) -> Standing {
        let fixed = fixed.iter().map(|(name, seconds)| ((*name).to_owned(), Spread::of(seconds)));
        Standing::new(fixed.collect(), Spread::of(&auto)).expect("a fixed policy")
    }

    /// Policies are compared by the medians of all runs, not by the luckiest run.
    #[test]
    fn the_best_policy_has_the_least_median() {
        let here = standing(&[("transaction", [0.5, 2.0, 2.1]), ("epoch", [1.9, 1.0, 1.1])], [1.0, 2.2, 9.0]);
        assert_eq!(here.best().0, "epoch");
        assert!((here.ratio() - 0.5).abs() < 1e-9, "{}", here.ratio());
        assert_eq!(here.to_string(), "auto 0.50 of epoch; auto took 1.000 to 9.000 s, epoch 1.000 to 1.900 s");
    }

    #[test]
    fn all_points_count_for_mean_worst_and_the_best_of_all() {
        let mut all = Standings::default();
        assert_eq!(all.to_string(), "");
        all.add(standing(&[("transaction", [1.0; 3]), ("epoch", [4.0; 3])], [1.0; 3]));
        all.add(standing(&[("transaction", [2.0; 3]), ("epoch", [1.0; 3])], [4.0; 3]));
        let (mean, worst) = all.mean_and_worst().expect("two points");
        assert!((mean - 0.5).abs() < 1e-9 && worst == 0.25, "{mean}, {worst}");
        let (name, mean) = all.best_overall().expect("a policy");
        assert_eq!(name, "transaction");
        assert!((mean - 0.5_f64.sqrt()).abs() < 1e-9);
    }
}
