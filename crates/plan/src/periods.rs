//! Periods of a calendar: the days, weeks and months of a zone, whose clock changes.
//!
//! **Rule.** A period has a beginning by the local clock. It starts at the first instant at which the clock shows this
//! time or a later one, and ends where the next one starts. A period that has no instant then does not exist.
//!
//! So a clock that is set back begins no period twice, and one that skips midnight begins the day where it goes on.
//!
//! The zone's data is in the plan: what a zone means is fixed with the program, whatever a machine knows of it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The periods of a unit by the local clock of a zone, one after the other. Times are microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periods {
    /// The beginnings of periods by the local clock.
    pub unit: Unit,
    /// The zone of the local clock.
    pub zone: Zone,
}

/// The edge of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// The first instant of the period.
    Start,
    /// The first instant after the period.
    End,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Edge::Start => "start",
            Edge::End => "end",
        })
    }
}

/// The beginnings of periods by the local clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// At `origin` and each multiple of `length` before and after it.
    Span {
        /// At least 1.
        length: i64,
        /// The first beginning, from 0 to before the length.
        origin: i64,
    },
    /// Periods begin with the first of this number of months, counted from January 1970.
    Months(i64),
}

/// The local clock of a zone: how far it is ahead of UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// The offset before the first change: how far the clock is ahead of UTC, microseconds.
    pub offset: i64,
    /// The instants of its changes, ascending, and how far it is ahead from then on. The time that the clock shows just
    /// before a change ascends, too: a clock that is set back catches up before its next change.
    pub changes: Vec<(i64, i64)>,
}

/// The most months of a period.
const MONTHS_MAX: i64 = 12_000;
/// Microseconds of a day.
const DAY: i128 = 86_400_000_000;

impl Periods {
    /// Returns the end of the period that holds an instant; none beyond the end of time.
    pub fn end(&self, instant: i64) -> Option<i64> {
        let begins = self.unit.begins(self.zone.shown(instant));
        i64::try_from(self.zone.first(self.unit.next(begins))).ok()
    }

    /// Returns the start of the period that holds an instant, if it is not before all times.
    pub fn start(&self, instant: i64) -> i64 {
        let begins = self.unit.begins(self.zone.shown(instant));
        i64::try_from(self.zone.first(begins)).unwrap_or(i64::MIN)
    }
}

impl Periods {
    /// Returns the fault of the periods, and a hint, if they have one.
    pub(crate) fn fault(&self) -> Option<(String, String)> {
        let Periods { unit, zone } = self;
        let is_unit = match *unit {
            Unit::Span { length, origin } => (0..length).contains(&origin),
            Unit::Months(count) => (1..=MONTHS_MAX).contains(&count),
        };
        if !is_unit {
            let hint = format!("give a length with an origin from 0 to below it, or 1 to {MONTHS_MAX} months");
            return Some((format!("{unit:?} is no unit of a calendar"), hint));
        }
        zone.fault()
    }
}

impl Zone {
    /// Returns an error of the zone and a hint at what to give; none if the zone is whole.
    pub(crate) fn fault(&self) -> Option<(String, String)> {
        let message = || format!("the changes of the zone '{}' are not in order", self.name);
        let hint = "give each after the one before it, and a clock within a week of UTC";
        (!self.is_whole()).then(|| (message(), hint.to_owned()))
    }

    /// Returns the local time that the zone's clock shows at an instant.
    pub(crate) fn local(&self, instant: i64) -> i128 {
        i128::from(instant) + self.offset(self.changes.partition_point(|&(at, _)| at <= instant))
    }

    /// Returns the greatest time that the clock has shown up to an instant.
    fn shown(&self, instant: i64) -> i128 {
        let count = self.changes.partition_point(|&(at, _)| at <= instant);
        let now = i128::from(instant) + self.offset(count);
        if count == 0 { now } else { now.max(self.before(count - 1)) }
    }

    /// Returns the first instant at which the clock shows a time or a later one.
    fn first(&self, local: i128) -> i128 {
        let (mut low, mut high) = (0, self.changes.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.before(middle) < local { low = middle + 1 } else { high = middle }
        }
        let instant = local - self.offset(low);
        if low == 0 { instant } else { instant.max(self.changes[low - 1].0.into()) }
    }

    /// Returns the offset of the clock after this number of changes.
    fn offset(&self, count: usize) -> i128 {
        if count == 0 { self.offset.into() } else { self.changes[count - 1].1.into() }
    }

    /// Returns the last time that the clock shows before a change.
    fn before(&self, change: usize) -> i128 {
        i128::from(self.changes[change].0) - 1 + self.offset(change)
    }

    /// Returns whether the changes are in order, and the clock is never more than a week ahead or behind.
    fn is_whole(&self) -> bool {
        let mut offsets = self.changes.iter().map(|&(_, offset)| offset).chain([self.offset]);
        let in_order = |change: usize| {
            self.changes[change - 1].0 < self.changes[change].0 && self.before(change - 1) < self.before(change)
        };
        offsets.all(|offset| i128::from(offset).abs() <= 7 * DAY) && (1..self.changes.len()).all(in_order)
    }
}

impl Unit {
    /// Returns the beginning of the period of a local time.
    fn begins(self, local: i128) -> i128 {
        match self {
            Unit::Span { length, origin } => local - (local - i128::from(origin)).rem_euclid(length.into()),
            Unit::Months(count) => {
                let month = month_of(local.div_euclid(DAY));
                DAY * first_day(month - month.rem_euclid(count.into()))
            }
        }
    }

    /// Returns the beginning of the period after one that begins at a local time.
    fn next(self, begins: i128) -> i128 {
        match self {
            Unit::Span { length, .. } => begins + i128::from(length),
            Unit::Months(count) => {
                let month = month_of(begins.div_euclid(DAY));
                DAY * first_day(month + i128::from(count))
            }
        }
    }
}

/// The days from March 1st of the year 0 to 1970.
const TO_1970: i128 = 719_468;
/// The days of 400 years.
const ERA: i128 = 146_097;

/// Returns the months from January 1970 to that of a day, which is counted from 1970.
///
/// Years begin in March here, so that a leap day is the last of its year (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn month_of(day: i128) -> i128 {
    let (era, of_era) = ((day + TO_1970).div_euclid(ERA), (day + TO_1970).rem_euclid(ERA));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Months from March, of which five have 153 days.
    let month = (5 * of_year + 2) / 153;
    (400 * era + year - 1970) * 12 + month + 2
}

/// Returns the first day of a month, counted as above.
fn first_day(month: i128) -> i128 {
    let from_march = month - 2 + 1970 * 12;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * ERA + 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 - TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;
    const DAY: i64 = 24 * HOUR;

    fn days(offset: i64, changes: &[(i64, i64)]) -> Periods {
        let zone = Zone { name: "Here".into(), offset, changes: changes.to_vec() };
        assert!(zone.is_whole());
        Periods { unit: Unit::Span { length: DAY, origin: 0 }, zone }
    }

    /// Returns the periods that hold the instants from `from` to before `to`, hour by hour.
    fn held(periods: &Periods, from: i64, to: i64) -> Vec<(i64, i64)> {
        let mut held: Vec<_> = (from..to)
            .flat_map(|hour| [hour * HOUR, hour * HOUR + 1, hour * HOUR + HOUR - 1])
            .map(|instant| (periods.start(instant), periods.end(instant).expect("there is time after it"), instant))
            .inspect(|(start, end, instant)| assert!((start..end).contains(&instant), "{start} {instant} {end}"))
            .map(|(start, end, _)| (start / HOUR, end / HOUR))
            .collect();
        held.dedup();
        held
    }

    #[test]
    fn days_are_longer_and_shorter_where_the_clock_changes() {
        // An hour ahead; two hours from 02:00 of the second day on; one again from 03:00 of the fourth.
        let periods = days(HOUR, &[(25 * HOUR, 2 * HOUR), (73 * HOUR, HOUR)]);
        assert_eq!(held(&periods, 0, 95), [(-1, 23), (23, 46), (46, 70), (70, 95)]);
    }

    #[test]
    fn a_midnight_that_is_skipped_or_comes_twice_begins_one_day() {
        // At midnight it is one; at one it is midnight again; at midnight it is 23 again; a minute after it, too.
        assert_eq!(held(&days(0, &[(DAY, HOUR)]), 0, 48), [(0, 24), (24, 47), (47, 71)]);
        assert_eq!(held(&days(0, &[(25 * HOUR, -HOUR)]), 0, 49), [(0, 24), (24, 49)]);
        assert_eq!(held(&days(0, &[(DAY, -HOUR)]), 0, 49), [(0, 25), (25, 49)]);
        assert_eq!(held(&days(0, &[(DAY + 60_000_000, -HOUR)]), 0, 49), [(0, 24), (24, 49)]);
    }

    #[test]
    fn a_day_without_an_instant_is_none() {
        assert_eq!(held(&days(-10 * HOUR, &[(34 * HOUR, 14 * HOUR)]), 10, 58), [(10, 34), (34, 58)]);
        // More than one: the second of them is not begun before.
        assert_eq!(held(&days(0, &[(DAY, 60 * HOUR)]), 0, 48), [(0, 24), (24, 36), (36, 60)]);
    }

    #[test]
    fn months_have_the_days_that_they_have() {
        let zone = Zone { name: "UTC".into(), offset: 0, changes: vec![] };
        let of = |count| Periods { unit: Unit::Months(count), zone: zone.clone() };
        let (mut day, mut month) = (0, 0);
        for year in 1970..2401 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let quarters_start = day;
            for length in [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                for instant in [day * DAY, (day + length) * DAY - 1] {
                    assert_eq!((of(1).start(instant), of(1).end(instant)), (day * DAY, Some((day + length) * DAY)));
                    assert_eq!(of(12).start(instant), quarters_start * DAY);
                }
                assert_eq!(first_day(month), day.into());
                assert_eq!([day, day + length - 1].map(|day| month_of(day.into())), [month, month]);
                (day, month) = (day + length, month + 1);
            }
        }
        assert_eq!((of(3).start(-1), of(3).end(-1)), (-92 * DAY, Some(0)));
        assert_eq!((of(1).start(-31 * DAY - 1), of(1).end(-31 * DAY - 1)), (-61 * DAY, Some(-31 * DAY)));
    }

    #[test]
    fn periods_reach_to_both_ends_of_time() {
        let periods = days(HOUR, &[(5, -HOUR)]);
        assert_eq!(periods.end(i64::MAX), None);
        assert_eq!(periods.start(i64::MIN), i64::MIN);
        assert!(periods.end(i64::MIN).is_some() && periods.start(i64::MAX) > i64::MAX - DAY);
        let months = Periods { unit: Unit::Months(1), ..periods };
        assert_eq!((months.end(i64::MAX), months.start(i64::MIN)), (None, i64::MIN));
    }

    #[test]
    fn changes_are_in_order() {
        let is_whole =
            |offset, changes: &[(i64, i64)]| Zone { name: String::new(), offset, changes: changes.to_vec() }.is_whole();
        assert!(is_whole(0, &[(10, 5), (12, 3)]) && is_whole(0, &[(10, -5), (16, 3)]));
        assert!(!is_whole(0, &[(10, 5), (10, 3)]) && !is_whole(0, &[(10, -5), (15, 3)]));
        assert!(!is_whole(8 * DAY, &[]) && !is_whole(0, &[(1, i64::MIN)]));
    }
}
