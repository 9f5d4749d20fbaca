//! Periods of a calendar: the beginnings by the local clock are walked one by one, and each is looked for in the
//! stretches of time between two changes of the clock.

use tidemill_plan::{Periods, Unit, Zone};

/// Returns the end of the period that holds an instant.
pub fn end(periods: &Periods, instant: i64) -> Option<i64> {
    around(periods, instant).1.try_into().ok()
}

/// Returns the start of the period that holds an instant.
pub fn start(periods: &Periods, instant: i64) -> i64 {
    around(periods, instant).0.try_into().unwrap_or(i64::MIN)
}

/// Returns the start and the end of the period that holds an instant.
fn around(Periods { unit, zone }: &Periods, instant: i64) -> (i128, i128) {
    let instant = i128::from(instant);
    let now = stretches(zone).into_iter().find(|stretch| instant < stretch.until).expect("the last one has no end");
    // The clock has shown the beginning of this one.
    let mut local = unit_of(*unit, instant + now.offset);
    let mut start = first(zone, local);
    loop {
        local = following(*unit, local);
        let next = first(zone, local);
        if next > instant {
            return (start, next);
        }
        start = next;
    }
}

/// A time in which the clock does not change.
struct Stretch {
    from: i128,
    until: i128,
    offset: i128,
}

fn stretches(zone: &Zone) -> Vec<Stretch> {
    let mut stretches = vec![Stretch { from: i128::MIN, until: i128::MAX, offset: zone.offset.into() }];
    for &(at, offset) in &zone.changes {
        stretches.last_mut().expect("there is one").until = at.into();
        stretches.push(Stretch { from: at.into(), until: i128::MAX, offset: offset.into() });
    }
    stretches
}

/// Returns the first instant at which the clock shows a time or a later one.
fn first(zone: &Zone, local: i128) -> i128 {
    let of = |stretch: Stretch| Some(stretch.from.max(local - stretch.offset)).filter(|at| *at < stretch.until);
    stretches(zone).into_iter().find_map(of).expect("the last one has no end")
}

/// Returns the beginning of the period of a local time.
fn unit_of(unit: Unit, local: i128) -> i128 {
    match unit {
        Unit::Span { length, origin } => {
            let (length, origin) = (i128::from(length), i128::from(origin));
            (local - origin).div_euclid(length) * length + origin
        }
        Unit::Months(count) => {
            let (mut begins, mut month) = (0, 0);
            while begins > local {
                month -= 1;
                begins -= length_of(month);
            }
            while begins + length_of(month) <= local {
                begins += length_of(month);
                month += 1;
            }
            while month % i128::from(count) != 0 {
                month -= 1;
                begins -= length_of(month);
            }
            begins
        }
    }
}

/// Returns the beginning of the period after one that begins at a local time.
fn following(unit: Unit, begins: i128) -> i128 {
    match unit {
        Unit::Span { length, .. } => begins + i128::from(length),
        Unit::Months(count) => {
            // No month is longer: it is in the next period.
            unit_of(unit, begins + i128::from(count) * 31 * DAY)
        }
    }
}

const DAY: i128 = 86_400_000_000;

/// Returns the length of a month, counted from January 1970.
fn length_of(month: i128) -> i128 {
    let year = 1970 + month.div_euclid(12);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month.rem_euclid(12) {
        1 if is_leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    days * DAY
}
