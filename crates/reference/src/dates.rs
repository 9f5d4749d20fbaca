//! Parts of dates: years are counted from 1970, and months within a year, one by one.

use tidemill_plan::{DatePart, Zone};

const DAY: i128 = 86_400_000_000;

/// A part of what calendar and clock of a zone show at an instant.
pub fn part(part: DatePart, zone: &Zone, instant: i64) -> i64 {
    let ahead = zone.changes.iter().rev().find(|(at, _)| *at <= instant).map_or(zone.offset, |(_, offset)| *offset);
    let local = i128::from(instant) + i128::from(ahead);
    let (day, within) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    // The day 4 was a Monday.
    let weekday = (day - 4).rem_euclid(7);
    let thursday = day - weekday + 3;
    let value = match part {
        DatePart::Year => year_of(day),
        DatePart::Month => month_and_day(day).0,
        DatePart::Day => month_and_day(day).1,
        DatePart::Hour => within / 3_600_000_000,
        DatePart::Minute => within % 3_600_000_000 / 60_000_000,
        DatePart::Second => within % 60_000_000 / 1_000_000,
        DatePart::Microsecond => within % 1_000_000,
        DatePart::Weekday => weekday,
        DatePart::IsoWeekday => weekday + 1,
        DatePart::IsoYear => year_of(thursday),
        DatePart::IsoWeek => (thursday - first_day(year_of(thursday))) / 7 + 1,
    };
    i64::try_from(value).expect("a part of a time fits")
}

/// The first day of a year, counted from 1970.
fn first_day(year: i128) -> i128 {
    let leap_days = |before: i128| before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    365 * (year - 1970) + leap_days(year - 1) - leap_days(1969)
}

fn year_of(day: i128) -> i128 {
    let mut year = 1970 + day.div_euclid(365);
    while first_day(year) > day {
        year -= 1;
    }
    while first_day(year + 1) <= day {
        year += 1;
    }
    year
}

fn month_and_day(day: i128) -> (i128, i128) {
    let year = year_of(day);
    let (mut month, mut rest) = (1, day - first_day(year));
    let is_leap = first_day(year + 1) - first_day(year) == 366;
    for length in [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if rest < length {
            break;
        }
        (month, rest) = (month + 1, rest - length);
    }
    (month, rest + 1)
}
