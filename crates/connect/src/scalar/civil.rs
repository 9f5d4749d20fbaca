//! The proleptic Gregorian calendar in days since 1970-01-01.
//!
//! Years are counted from March, so that the leap day comes last, in eras of 400 years, which all
//! have the same length (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013).

/// Microseconds in a second.
pub(crate) const SECOND: i64 = 1_000_000;
/// Microseconds in a day.
pub(crate) const DAY: i64 = 86_400 * SECOND;

const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// The day number of a date. The date must exist.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// The year, month and day of a day number.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// How many days a month has.
pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_five_centuries_comes_back() {
        let mut expected = days_from_civil(1800, 1, 1);
        for year in 1800..2300 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    assert_eq!(days_from_civil(year, month, day), expected);
                    assert_eq!(civil_from_days(expected), (year, month, day));
                    expected += 1;
                }
            }
        }
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2013, 1, 1), 15_706);
        assert_eq!(civil_from_days(days_from_civil(0, 2, 29)), (0, 2, 29));
    }
}
