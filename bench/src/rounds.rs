//! A point measured in rounds, the same for every way to run it.
//!
//! In each round runs the hand-written loop, then every way once. The way that runs first changes from round to round, so
//! that none always follows the loop. No way runs more often than another, and none drops out. The first round counts only
//! if its shortest run took as long as was asked for; otherwise it is repeated with more events.

use crate::median::median;
use crate::session::{Measured, Session, Way};
use crate::workloads::{Knobs, Workload};

/// A run gets more events than were just enough by this, since runs vary.
const MORE: f64 = 1.25;

/// The extent of the measurements at a point.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Rounds.
    pub rounds: usize,
    /// The least time that the shortest run of the first round takes, seconds.
    pub seconds_min: f64,
    /// Events of a run at most, however short it is.
    pub events_max: usize,
}

/// The measurements at a point.
pub struct Point {
    /// The workload with its input and an engine.
    pub session: Session,
    /// The knobs, with the number of events that made runs long enough.
    pub knobs: Knobs,
    /// The seconds of the loop, by round.
    pub loops: Vec<f64>,
    /// The runs of each way, one a round.
    pub runs: Vec<(Way, Vec<Measured>)>,
}

/// The least, the median and the greatest of several measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub greatest: f64,
}

impl Extent {
    /// Measures a point, beginning with as many events as the knobs say.
    pub fn measure(&self, workload: Workload, knobs: Knobs, ways: &[Way]) -> Point {
        let mut knobs = knobs;
        loop {
            let mut point = Point::new(workload, knobs, ways);
            point.run_round(0);
            let Some(events) = self.longer(knobs.events, point.shortest()) else {
                (1..self.rounds).for_each(|round| point.run_round(round));
                return point;
            };
            knobs.events = events;
        }
    }

    /// Returns the events of a run that is long enough, if the shortest took this time with these; none where it was
    /// long enough, or may not be longer.
    fn longer(&self, events: usize, shortest: f64) -> Option<usize> {
        let wanted = events as f64 * self.seconds_min / shortest * MORE;
        (shortest < self.seconds_min && events < self.events_max)
            .then(|| (wanted as usize).clamp(events + 1, self.events_max))
    }
}

impl Point {
    fn new(workload: Workload, knobs: Knobs, ways: &[Way]) -> Self {
        assert!(!ways.is_empty(), "a point without a way to run it");
        let runs = ways.iter().map(|&way| (way, Vec::new())).collect();
        Point { session: Session::new(workload, knobs), knobs, loops: Vec::new(), runs }
    }

    fn run_round(&mut self, round: usize) {
        self.loops.push(self.session.run_loop());
        let ways = order(self.runs.len(), round);
        self.session.warm_up(self.runs[ways[0]].0);
        for way in ways {
            let (way, runs) = &mut self.runs[way];
            runs.push(self.session.run(*way));
        }
        assert!(self.runs.iter().all(|(_, runs)| runs.len() == round + 1), "a way was left out of round {round}");
    }

    /// Returns the seconds of the shortest run so far.
    fn shortest(&self) -> f64 {
        let runs = self.runs.iter().flat_map(|(_, runs)| runs).map(|run| run.summary.seconds);
        runs.chain(self.loops.iter().copied()).fold(f64::INFINITY, f64::min)
    }
}

impl Spread {
    /// Returns the spread of measurements.
    pub fn of(values: &[f64]) -> Spread {
        let of = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick).expect("a measurement");
        Spread { least: of(f64::min), median: median(values), greatest: of(f64::max) }
    }

    /// Returns the spread of the seconds that runs took.
    pub fn of_runs(runs: &[Measured]) -> Spread {
        Spread::of(&runs.iter().map(|run| run.summary.seconds).collect::<Vec<_>>())
    }
}

/// Sorts runs by time: the middle one, and what all of them took.
pub fn middle(runs: &mut [Measured]) -> (&Measured, Spread) {
    runs.sort_by(|a, b| a.summary.seconds.total_cmp(&b.summary.seconds));
    let seconds = Spread::of_runs(runs);
    (&runs[runs.len() / 2], seconds)
}

/// Returns the ways in the order in which they run in a round, forwards and backwards in turn. Over as many rounds as
/// there are ways each is first once.
fn order(ways: usize, round: usize) -> Vec<usize> {
    let nth = |at: usize| if round.is_multiple_of(2) { round + at } else { round + ways * 2 - at };
    (0..ways).map(|at| nth(at) % ways).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_runtime::{Policy, Scheduling};

    #[test]
    fn every_way_runs_once_a_round_and_the_first_one_changes() {
        for ways in 1..25 {
            let orders: Vec<Vec<usize>> = (0..4).map(|round| order(ways, round)).collect();
            for order in &orders {
                let mut all = order.clone();
                all.sort_unstable();
                assert_eq!(all, (0..ways).collect::<Vec<_>>());
            }
            assert!(ways == 1 || orders.windows(2).all(|pair| pair[0][0] != pair[1][0]), "{ways} ways: {orders:?}");
        }
    }

    #[test]
    fn short_runs_get_more_events_up_to_the_most() {
        let extent = Extent { rounds: 1, seconds_min: 0.2, events_max: 10_000 };
        assert_eq!(extent.longer(1_000, 0.1), Some(2_500));
        assert_eq!(extent.longer(1_000, 0.01), Some(10_000));
        assert_eq!(extent.longer(1_000, 0.2), None);
        assert_eq!(extent.longer(10_000, 0.1), None);
    }

    #[test]
    fn all_ways_have_as_many_runs_which_are_long_enough() {
        let way = |scheduling| Way { scheduling, workers: 2 };
        let ways =
            [way(Scheduling::Fixed(Policy::EPOCH)), way(Scheduling::Fixed(Policy::TRANSACTION)), way(Scheduling::Auto)];
        let extent = Extent { rounds: 2, seconds_min: 0.01, events_max: 1_000_000 };
        let knobs = Knobs { rows: 100, work: 0, epoch: 64, events: 64, ..Workload::Ledger.defaults(1.0) };
        let point = extent.measure(Workload::Ledger, knobs, &ways);
        assert!(point.runs.iter().all(|(_, runs)| runs.len() == 2));
        assert_eq!(point.loops.len(), 2);
        let first = |(_, runs): &(Way, Vec<Measured>)| runs[0].summary.seconds;
        assert!(point.knobs.events > 64 && point.runs.iter().map(first).all(|seconds| seconds >= 0.01));
    }

    #[test]
    fn a_spread_is_of_all_measurements() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { least: 1.0, median: 2.0, greatest: 3.0 });
    }
}
