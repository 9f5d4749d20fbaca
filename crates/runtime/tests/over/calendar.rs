//! The meaning of a calendar's periods: a clock that is looked at instant by instant.

use tidemill_plan::{Periods, Unit, Zone};

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// The greatest distance of an instant from the start and end of its period, unless that is a month.
const FAR: i64 = 1_000;

/// End and start of the period that holds an instant, not far before 1970 or in January.
pub fn period(periods: &Periods, instant: i64) -> (i64, i64) {
    let Periods { unit, zone } = periods;
    let months = |count: i64| count * 30 * DAY + if count == 3 { 0 } else { DAY };
    let begins = |shown: i64| match *unit {
        Unit::Span { length, origin } => (shown - origin).div_euclid(length) * length + origin,
        // October to December have two days more than January to March.
        Unit::Months(count) if shown < 0 => -months(count) - if count == 3 { 2 * DAY } else { 0 },
        Unit::Months(_) => 0,
    };
    let near = Vec::from_iter(shown(zone, instant).into_iter().map(begins));
    let own = near[FAR as usize];
    let mut near = (instant - FAR..).zip(near);
    let (start, _) = near.find(|&(_, begins)| begins == own).expect("at the instant, if not before");
    let end = near.find(|&(_, begins)| begins != own).map(|(end, _)| end);
    let end = end.unwrap_or_else(|| match *unit {
        Unit::Months(count) => months(count) - offset(zone, 28 * DAY),
        Unit::Span { .. } => unreachable!("it is short"),
    });
    match unit {
        Unit::Months(_) if start == instant - FAR && own == 0 => (end, period(periods, FAR / 2).1),
        Unit::Months(_) if start == instant - FAR => (end, own - zone.offset),
        _ => (end, start),
    }
}

/// Returns the greatest time that the clock has shown, for each instant from far before one to far after it.
fn shown(zone: &Zone, instant: i64) -> Vec<i64> {
    let mut greatest = i64::MIN;
    let show = |instant: i64| {
        greatest = greatest.max(instant + offset(zone, instant));
        greatest
    };
    (instant - FAR..instant + FAR).map(show).collect()
}

fn offset(zone: &Zone, instant: i64) -> i64 {
    zone.changes.iter().rfind(|&&(at, _)| at <= instant).map_or(zone.offset, |&(_, offset)| offset)
}
