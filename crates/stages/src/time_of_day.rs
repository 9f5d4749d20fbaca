//! The time of day as an application has it: from the machine's clock, which may be set, and may show a wrong time for a moment.
//!
//! # Invariant
//!
//! No time is believed that is more than [`LEAP_MAX`] after the one believed before and what has passed since, by a clock that
//! cannot be set, before the machine's clock has shown such times for [`SHOWN_MIN`]. The first time is believed, and so is
//! each that is earlier. A [`Steady`] time does not fall, and a minute is a leap for it.

/// The most that the machine's clock may leap ahead and still be believed at once, microseconds: a day.
pub const LEAP_MAX: i64 = 86_400_000_000;
/// The time for which the machine's clock must show such a leap before it is believed, nanoseconds: a minute.
pub const SHOWN_MIN: u64 = 60_000_000_000;

/// The most that the machine's clock may leap ahead of a steady time and still be believed at once, microseconds: a
/// minute.
const STEADY_LEAP_MAX: i64 = 60_000_000;

/// The time of day.
#[derive(Clone, Copy, Debug)]
pub struct TimeOfDay {
    leap_max: i64,
    /// The last reading that was believed.
    believed: Option<Reading>,
    /// The first reading of those that are not believed yet.
    doubted: Option<Reading>,
}

/// A reading of the machine's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Microseconds since 1970.
    time: i64,
    /// The moment of the reading, nanoseconds of a clock that cannot be set.
    at: u64,
}

/// The present knowledge of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The machine's clock is believed.
    Shown {
        /// Its time.
        time: i64,
        /// The size of its leap, microseconds, if that is more than [`LEAP_MAX`]: it was not believed before.
        leap: Option<i64>,
    },
    /// The machine's clock is not believed yet.
    Doubted {
        /// The time by what has passed since it was.
        passed: i64,
    },
}

impl Known {
    /// Returns the time.
    pub fn time(self) -> i64 {
        match self {
            Known::Shown { time, .. } | Known::Doubted { passed: time } => time,
        }
    }
}

impl Reading {
    /// Returns the time by what has passed since.
    fn passed(self, at: u64) -> i64 {
        let passed = i64::try_from(at.saturating_sub(self.at) / 1_000).unwrap_or(i64::MAX);
        self.time.saturating_add(passed)
    }
}

impl Default for TimeOfDay {
    fn default() -> TimeOfDay {
        TimeOfDay { leap_max: LEAP_MAX, believed: None, doubted: None }
    }
}

impl TimeOfDay {
    /// Takes a reading of the machine's clock, microseconds since 1970. `at`: nanoseconds of a clock that cannot be
    /// set.
    pub fn show(&mut self, time: i64, at: u64) -> Known {
        let shown = Reading { time, at };
        let passed = self.believed.map_or(time, |believed| believed.passed(at));
        if time <= passed.saturating_add(self.leap_max) {
            return self.believe(shown, None);
        }
        match self.doubted {
            // It goes on as it began.
            Some(first) if time.abs_diff(first.passed(at)) <= self.leap_max.unsigned_abs() => {
                if at.saturating_sub(first.at) >= SHOWN_MIN {
                    return self.believe(shown, Some(time.saturating_sub(passed)));
                }
            }
            _ => self.doubted = Some(shown),
        }
        Known::Doubted { passed }
    }

    fn believe(&mut self, shown: Reading, leap: Option<i64>) -> Known {
        *self = TimeOfDay { believed: Some(shown), doubted: None, ..*self };
        Known::Shown { time: shown.time, leap }
    }
}

/// A time for what is kept for so long and no longer: what has passed, however the machine's clock is set meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    clock: TimeOfDay,
    last: Option<Reading>,
}

impl Default for Steady {
    fn default() -> Steady {
        Steady { clock: TimeOfDay { leap_max: STEADY_LEAP_MAX, ..TimeOfDay::default() }, last: None }
    }
}

impl Steady {
    /// Returns the time when the machine's clock shows this one ([`TimeOfDay::show`]): not before `least`.
    pub fn show(&mut self, time: i64, at: u64, least: i64) -> i64 {
        // A clock that is set back is not followed, so it leads by nothing when it is set right again.
        let passed = self.last.map_or(i64::MIN, |last| last.passed(at));
        let time = self.clock.show(time.max(passed), at).time().max(passed).max(least);
        self.last = Some(Reading { time, at });
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const YEAR: i64 = 365 * LEAP_MAX;

    fn shown(time: i64) -> Known {
        Known::Shown { time, leap: None }
    }

    #[test]
    fn a_leap_for_a_second_is_not_believed() {
        let mut clock = TimeOfDay::default();
        assert_eq!(clock.show(7, 0), shown(7), "the first time is believed");
        assert_eq!(clock.show(100 * YEAR, SECOND), Known::Doubted { passed: 1_000_007 });
        assert_eq!(clock.show(2_000_007, 2 * SECOND), shown(2_000_007));
        // The next leap is another one, however long ago the first was.
        assert_eq!(clock.show(100 * YEAR, 90 * SECOND), Known::Doubted { passed: 90_000_007 });
    }

    #[test]
    fn a_leap_is_believed_after_a_minute_and_told_once() {
        let mut clock = TimeOfDay::default();
        clock.show(0, 0);
        for second in 1..61 {
            let time = YEAR + second * 1_000_000;
            assert_eq!(clock.show(time, second as u64 * SECOND), Known::Doubted { passed: second * 1_000_000 });
        }
        let time = YEAR + 61_000_000;
        assert_eq!(clock.show(time, 61 * SECOND), Known::Shown { time, leap: Some(YEAR) });
        assert_eq!(clock.show(time + 1, 61 * SECOND), shown(time + 1));
    }

    #[test]
    fn leaps_to_different_times_are_not_one() {
        let mut clock = TimeOfDay::default();
        clock.show(0, 0);
        for second in 1..200 {
            let time = if second % 2 == 0 { YEAR } else { 2 * YEAR };
            assert_eq!(clock.show(time, second * SECOND).time(), second as i64 * 1_000_000);
        }
    }

    #[test]
    fn steps_within_a_day_and_back_are_believed() {
        let mut clock = TimeOfDay::default();
        for (time, at) in
            [(0, 0), (LEAP_MAX, 0), (-YEAR, 1), (LEAP_MAX - YEAR, 1), (i64::MIN, 2), (i64::MIN + LEAP_MAX, 2)]
        {
            assert_eq!(clock.show(time, at), shown(time), "{time}");
        }
        // Time that has passed counts, also if nobody read the clock meanwhile.
        let (hours, nanoseconds) = (50 * 3_600_000_000, 50 * 3_600 * SECOND);
        let mut clock = TimeOfDay::default();
        clock.show(0, 3);
        assert_eq!(clock.show(hours + LEAP_MAX, 3 + nanoseconds), shown(hours + LEAP_MAX));
        assert!(matches!(clock.show(i64::MAX, 3 + nanoseconds), Known::Doubted { .. }), "and none overflows");
    }

    #[test]
    fn a_steady_time_goes_on_whatever_the_clock_shows() {
        const HOUR: i64 = 3_600_000_000;
        let mut steady = Steady::default();
        assert_eq!(steady.show(0, 0, i64::MIN), 0);
        for (second, shown) in [(1, 2 * HOUR), (2, -2 * HOUR), (3, -YEAR), (4, YEAR), (5, 5_000_000)] {
            assert_eq!(steady.show(shown, second * SECOND, i64::MIN), second as i64 * 1_000_000);
        }
        // It leads by less than a minute, and then it does so for a minute.
        assert_eq!(steady.show(50_000_000, 6 * SECOND, i64::MIN), 50_000_000);
        assert_eq!(steady.show(6_000_000 + HOUR, 6 * SECOND, i64::MIN), 50_000_000);
        assert_eq!(steady.show(66_000_000 + HOUR, 66 * SECOND, i64::MIN), 66_000_000 + HOUR);
        // An earlier run was there already.
        let mut steady = Steady::default();
        assert_eq!(steady.show(0, 0, HOUR), HOUR);
        assert_eq!(steady.show(1_000_000, SECOND, 0), HOUR + 1_000_000);
    }
}
