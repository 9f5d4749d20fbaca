//! The proleptic Gregorian calendar in days since 1970-01-01, and instants as text.
//!
//! Years are counted from March, so that the leap day comes last, in eras of 400 years, which all
//! have the same length (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013).

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in a day.
pub const DAY: i64 = 86_400 * SECOND;

const ERA_DAYS: i64 = 146_097;
/// The days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Returns the day number of a date. The date must exist.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// Returns the year, month and day of a day number.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
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

/// Returns the number of days of a month.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// The first instant that RFC 3339, with its four-digit years, can write.
pub const TIME_MIN: i64 = -62_167_219_200 * SECOND;
/// The first instant after all that it can write.
pub const TIME_MAX: i64 = 253_402_300_800 * SECOND;

/// Returns whether [`push_time`] writes a date, or a plain integer for want of one.
pub fn is_civil(micros: i64) -> bool {
    (TIME_MIN..TIME_MAX).contains(&micros)
}

/// Appends an instant: RFC 3339 in UTC with six digits of fraction; the microseconds since 1970 as an integer where the
/// year has no four digits.
pub fn push_time(out: &mut Vec<u8>, micros: i64) {
    if !is_civil(micros) {
        return out.extend_from_slice(micros.to_string().as_bytes());
    }
    let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
    let micros = micros.rem_euclid(DAY);
    let seconds = micros / SECOND;
    let micros = micros % SECOND;
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let pairs = [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, seconds / 3600),
        (14, seconds / 60 % 60),
        (17, seconds % 60),
        (20, micros / 10_000),
        (22, micros / 100 % 100),
        (24, micros % 100),
    ];
    for (at, value) in pairs {
        text[at] += (value / 10) as u8;
        text[at + 1] += (value % 10) as u8;
    }
    out.extend_from_slice(&text);
}

/// Returns the text of an instant, as [`push_time`] writes it.
pub fn time_text(micros: i64) -> String {
    let mut text = Vec::new();
    push_time(&mut text, micros);
    String::from_utf8(text).expect("digits and signs")
}

/// Returns the text of a span: microseconds in the largest unit of which they are a whole number, as a program says
/// them.
pub fn span_text(micros: i64) -> String {
    const UNITS: [(&str, i64); 5] =
        [("d", DAY), ("h", 3_600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1_000)];
    let whole = UNITS.into_iter().find(|(_, unit)| micros != 0 && micros % unit == 0);
    let (unit, length) = whole.unwrap_or(("us", 1));
    format!("{}{unit}", micros / length)
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
