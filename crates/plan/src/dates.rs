//! The parts of dates and times: what a calendar and a clock of a zone show at an instant.

use crate::Zone;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidemill_model::civil::{civil_from_days, days_from_civil};

/// A part of what calendar and clock show. The calendar is the Gregorian one, also before it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatePart {
    /// The year; 0 is that before the year 1.
    Year,
    /// From 1.
    Month,
    /// The day of the month, from 1.
    Day,
    /// From 0, likewise below.
    Hour,
    /// The minute of the hour.
    Minute,
    /// The second of the minute.
    Second,
    /// The microsecond of the second.
    Microsecond,
    /// From Monday, 0, to Sunday, 6.
    Weekday,
    /// From Monday, 1, to Sunday, 7.
    IsoWeekday,
    /// The year that has the Thursday of the week.
    IsoYear,
    /// The week in that year, from 1.
    IsoWeek,
}

/// Microseconds of a day.
const DAY: i128 = tidemill_model::civil::DAY as i128;

impl DatePart {
    /// All of them.
    pub const ALL: [DatePart; 11] = [
        DatePart::Year,
        DatePart::Month,
        DatePart::Day,
        DatePart::Hour,
        DatePart::Minute,
        DatePart::Second,
        DatePart::Microsecond,
        DatePart::Weekday,
        DatePart::IsoWeekday,
        DatePart::IsoYear,
        DatePart::IsoWeek,
    ];

    /// The part at a time of the local clock, in microseconds since 1970.
    fn of(self, local: i128) -> i64 {
        let within = local.rem_euclid(DAY) as i64;
        let day = local.div_euclid(DAY) as i64;
        // 1970 began on a Thursday.
        let weekday = (day + 3).rem_euclid(7);
        let thursday = day - weekday + 3;
        match self {
            DatePart::Year => civil_from_days(day).0,
            DatePart::Month => civil_from_days(day).1,
            DatePart::Day => civil_from_days(day).2,
            DatePart::Hour => within / 3_600_000_000,
            DatePart::Minute => within / 60_000_000 % 60,
            DatePart::Second => within / 1_000_000 % 60,
            DatePart::Microsecond => within % 1_000_000,
            DatePart::Weekday => weekday,
            DatePart::IsoWeekday => weekday + 1,
            DatePart::IsoYear => civil_from_days(thursday).0,
            DatePart::IsoWeek => (thursday - days_from_civil(civil_from_days(thursday).0, 1, 1)) / 7 + 1,
        }
    }
}

impl Zone {
    /// A part of what calendar and clock show at an instant.
    pub fn part(&self, part: DatePart, instant: i64) -> i64 {
        part.of(self.local(instant))
    }
}

impl fmt::Display for DatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DatePart::Year => "year",
            DatePart::Month => "month",
            DatePart::Day => "day",
            DatePart::Hour => "hour",
            DatePart::Minute => "minute",
            DatePart::Second => "second",
            DatePart::Microsecond => "microsecond",
            DatePart::Weekday => "weekday()",
            DatePart::IsoWeekday => "isoweekday()",
            DatePart::IsoYear => "isocalendar().year",
            DatePart::IsoWeek => "isocalendar().week",
        })
    }
}
