//! Alarms: what an operator is told once when it begins, and once when it is over. They know no clock and no run.

use std::collections::VecDeque;

/// A second of the run's clock, nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// The time over which rates are taken.
const RATE_SPAN: u64 = 10 * SECOND;
/// The fewest records that are many.
const RATE_MIN: u64 = 10;
/// The least share of records that is many: one of this number.
const RATE_SHARE: u64 = 100;
/// The distance to the clock at which a source still keeps up, microseconds.
const KEEPS_UP_MAX: i64 = 10_000_000;

/// The time when an operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The time for which a source stands still that holds others back, nanoseconds.
    pub stuck_min: u64,
    /// The distance by which a source is behind the clock that had kept up with it, microseconds.
    pub lag_max: i64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { stuck_min: 10 * SECOND, lag_max: 60_000_000 }
    }
}

/// A change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The alarm begins.
    Begins,
    /// The alarm is over, after this number of nanoseconds.
    Ends(u64),
    /// The alarm is as before.
    None,
}

/// An alarm about a condition: it lasts as long as the condition is seen, and a little longer.
#[derive(Clone, Debug, Default)]
pub struct Alarm {
    /// The time when it began, and when it was seen last.
    lasts: Option<(u64, u64)>,
}

impl Alarm {
    /// Notes whether the condition is seen now. The alarm is over when the condition was not seen for `calm`
    /// nanoseconds.
    pub fn see(&mut self, is_seen: bool, now: u64, calm: u64) -> Change {
        match (&mut self.lasts, is_seen) {
            (None, true) => {
                self.lasts = Some((now, now));
                Change::Begins
            }
            (Some((_, last)), true) => {
                *last = now;
                Change::None
            }
            (Some((since, last)), false) if now.saturating_sub(*last) >= calm => {
                let took = last.saturating_sub(*since);
                self.lasts = None;
                Change::Ends(took)
            }
            (_, false) => Change::None,
        }
    }
}

/// A source whose events wait for another one that stands still.
#[derive(Clone, Debug, Default)]
pub struct Stuck {
    /// The source that holds it back, that one's mark, and since when they are so.
    by: Option<(usize, Option<i64>, u64)>,
    alarm: Alarm,
}

impl Stuck {
    /// Notes which other source holds it back now, and that one's mark. Returns the change, and since when it is held back
    /// so.
    pub fn see(&mut self, by: Option<(usize, Option<i64>)>, now: u64, stuck_min: u64) -> (Change, u64) {
        self.by = match (by, self.by) {
            (Some((other, mark)), Some((before, its, since))) if (other, mark) == (before, its) => {
                Some((other, mark, since))
            }
            (Some((other, mark)), _) => Some((other, mark, now)),
            (None, _) => None,
        };
        let since = self.by.map_or(now, |(_, _, since)| since);
        let is_stuck = now.saturating_sub(since) >= stuck_min;
        (self.alarm.see(is_stuck, now, 0), since)
    }
}

/// The share of the last records that were of a kind.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    /// The time when it was looked at, with the records so far and those of the kind.
    seen: VecDeque<(u64, u64, u64)>,
    alarm: Alarm,
}

impl Rate {
    /// Notes the records so far, and those of the kind. Returns the change, and how many of how many they were lately.
    pub fn see(&mut self, of: u64, kind: u64, now: u64) -> (Change, u64, u64) {
        while self.seen.len() > 1 && now.saturating_sub(self.seen[1].0) >= RATE_SPAN {
            self.seen.pop_front();
        }
        let &(_, of_before, before) = self.seen.front().unwrap_or(&(now, 0, 0));
        self.seen.push_back((now, of, kind));
        let (of, kind) = (of.saturating_sub(of_before), kind.saturating_sub(before));
        let are_many = kind >= RATE_MIN && kind * RATE_SHARE > of;
        (self.alarm.see(are_many, now, RATE_SPAN), kind, of)
    }
}

/// The distance by which a source is behind the clock.
#[derive(Clone, Debug, Default)]
pub struct Lag {
    /// A flag: whether it has kept up with the clock. What reads the past never does, and that is no alarm.
    has_kept_up: bool,
    alarm: Alarm,
}

impl Lag {
    /// Notes by how many microseconds the source is behind.
    pub fn see(&mut self, behind: Option<i64>, now: u64, lag_max: i64) -> Change {
        self.has_kept_up |= behind.is_some_and(|behind| behind.abs() <= KEEPS_UP_MAX);
        let lags = self.has_kept_up && behind.is_some_and(|behind| behind > lag_max);
        self.alarm.see(lags, now, SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: u64 = 10 * SECOND;
    const LAG_MAX: i64 = 60_000_000;

    #[test]
    fn an_alarm_is_told_when_it_begins_and_when_it_is_over() {
        let mut alarm = Alarm::default();
        let mut see = |is_seen, second| alarm.see(is_seen, second * SECOND, 10 * SECOND);
        assert_eq!([see(false, 0), see(true, 1), see(true, 2)], [Change::None, Change::Begins, Change::None]);
        // A short calm is no end.
        assert_eq!([see(false, 5), see(true, 6), see(false, 15)], [Change::None; 3]);
        assert_eq!([see(false, 16), see(false, 17)], [Change::Ends(5 * SECOND), Change::None]);
    }

    #[test]
    fn a_source_that_moves_is_not_stuck() {
        let mut stuck = Stuck::default();
        for second in 0..60 {
            let mark = Some(second as i64);
            assert_eq!(stuck.see(Some((1, mark)), second * SECOND, STUCK).0, Change::None, "{second}");
        }
        let mut see = |second| stuck.see(Some((1, Some(59))), second * SECOND, STUCK);
        assert_eq!(see(68), (Change::None, 59 * SECOND));
        assert_eq!(see(69), (Change::Begins, 59 * SECOND));
        assert_eq!(see(80), (Change::None, 59 * SECOND));
        assert_eq!(stuck.see(None, 81 * SECOND, STUCK).0, Change::Ends(11 * SECOND));
    }

    #[test]
    fn another_source_that_holds_back_is_another_beginning() {
        let mut stuck = Stuck::default();
        let mut see = |by, second| stuck.see(Some((by, None)), second * SECOND, STUCK).0;
        assert_eq!([see(1, 0), see(1, 10), see(2, 11)], [Change::None, Change::Begins, Change::Ends(0)]);
        assert_eq!([see(2, 20), see(2, 21)], [Change::None, Change::Begins]);
    }

    #[test]
    fn few_bad_records_are_no_alarm() {
        let mut rate = Rate::default();
        assert_eq!(rate.see(1_000, 9, 0).0, Change::None, "they are nine");
        assert_eq!(rate.see(2_000, 18, SECOND).0, Change::None, "they are less than one of a hundred");
        assert_eq!(rate.see(2_100, 40, 2 * SECOND), (Change::Begins, 31, 1_100));
        // Later none are bad: it is over once none was within the span, and the span again.
        let changes: Vec<Change> =
            (3..40).map(|second| rate.see(2_100 + second * 1_000, 40, second * SECOND).0).collect();
        let ends = changes.iter().filter(|change| matches!(change, Change::Ends(_))).count();
        assert_eq!((ends, changes.contains(&Change::Begins)), (1, false), "{changes:?}");
    }

    #[test]
    fn only_a_source_that_kept_up_lags() {
        let mut past = Lag::default();
        assert_eq!(past.see(Some(1_000 * LAG_MAX), 0, LAG_MAX), Change::None);
        let mut lag = Lag::default();
        assert_eq!(lag.see(Some(1_000_000), 0, LAG_MAX), Change::None);
        assert_eq!(lag.see(Some(LAG_MAX), SECOND, LAG_MAX), Change::None);
        assert_eq!(lag.see(Some(LAG_MAX + 1), 2 * SECOND, LAG_MAX), Change::Begins);
        assert_eq!(lag.see(Some(0), 4 * SECOND, LAG_MAX), Change::Ends(0));
    }
}
