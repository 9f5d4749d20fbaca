//! Ticks and wakes: those up to the greatest shown time, and in a long gap between two shown times the first of them.

use std::collections::{BTreeMap, BTreeSet};
use tidemill_model::{KeyPart, Place, SerialPosition};

/// The most ticks of one declaration, and wakes of one key, that run after a shown time and up to the next.
pub const TIMERS_MAX: i64 = 10_000;

/// A declaration of ticks: at the origin, and at each multiple of the period from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// A time that has a tick.
    pub origin: i64,
    /// The distance of ticks, in units of time, positive.
    pub period: i64,
}

impl Every {
    /// Returns its least time from this on.
    fn least_from(self, from: i64) -> Option<i64> {
        let (from, origin) = (i128::from(from), i128::from(self.origin));
        let ahead = (origin - from).rem_euclid(i128::from(self.period));
        i64::try_from(from + ahead).ok()
    }

    /// Returns the number of its times that are after the first of these and up to the second.
    fn count(self, after: i64, through: i64) -> i128 {
        let index = |time: i64| (i128::from(time) - i128::from(self.origin)).div_euclid(i128::from(self.period));
        index(through) - index(after)
    }
}

/// Ticks that did not run, since there were too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The declaration.
    pub every: u32,
    /// The shown time before which they would have run.
    pub before: i64,
    /// The number of timers left out.
    pub count: u64,
}

/// The time at which a row wants to be woken, after the time at which it was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub at: i64,
}

type RowId = (u32, Vec<KeyPart>);

#[derive(Clone, Debug)]
pub(super) struct Timers {
    everies: Vec<Every>,
    wakes: BTreeMap<RowId, Wake>,
    /// The last wake of each row that ran, and how many did since the shown time before that, by row.
    ran: BTreeMap<RowId, (i64, i64)>,
}

impl Timers {
    pub fn new(everies: Vec<Every>) -> Self {
        assert!(everies.iter().all(|every| every.period > 0), "ticks go on");
        Timers { everies, wakes: BTreeMap::new(), ran: BTreeMap::new() }
    }

    /// Returns the first tick after what has passed.
    pub fn next_tick(&self, shown: &BTreeSet<i64>, passed: Option<&SerialPosition>) -> Option<SerialPosition> {
        let ticks = (0..).zip(&self.everies).filter_map(|(index, &every)| {
            let tick = |time| SerialPosition::new(time, Place::Tick { every: index });
            let from = match passed {
                None => i64::MIN,
                Some(passed) if *passed < tick(passed.time) => passed.time,
                Some(passed) => passed.time.checked_add(1)?,
            };
            tick_from(every, shown, from).map(tick)
        });
        ticks.min()
    }

    /// Returns the first wake.
    pub fn next_wake(&self, shown: &BTreeSet<i64>) -> Option<SerialPosition> {
        let wakes = self.wakes.iter().filter_map(|(row, wake)| {
            let time = self.due(shown, row, *wake)?;
            Some(SerialPosition::new(time, Place::Wake { table: row.0, key: row.1.clone() }))
        });
        wakes.min()
    }

    /// Returns the time of a wake; none before such a time is shown.
    fn due(&self, shown: &BTreeSet<i64>, row: &RowId, wake: Wake) -> Option<i64> {
        let time = wake.at;
        let next_shown = *shown.range(time..).next()?;
        match self.ran_before(shown, row, time) {
            TIMERS_MAX => next_shown.checked_add(1).filter(|&later| shown.range(later..).next().is_some()),
            _ => Some(time),
        }
    }

    /// Returns the number of wakes of a row that ran since the last shown time before this.
    fn ran_before(&self, shown: &BTreeSet<i64>, row: &RowId, time: i64) -> i64 {
        match self.ran.get(row) {
            Some(&(last, count)) if shown.range(last..time).next().is_none() => count,
            _ => 0,
        }
    }

    pub fn set_wake(&mut self, table: u32, key: Vec<KeyPart>, wake: Option<Wake>) {
        match wake {
            Some(wake) => drop(self.wakes.insert((table, key), wake)),
            None => drop(self.wakes.remove(&(table, key))),
        }
    }

    /// Clears a wake, which runs now.
    pub fn run_wake(&mut self, shown: &BTreeSet<i64>, position: &SerialPosition) {
        let Place::Wake { table, key } = &position.place else { unreachable!("the position of a wake") };
        let row = (*table, key.clone());
        let count = self.ran_before(shown, &row, position.time) + 1;
        assert!(count <= TIMERS_MAX, "a row is woken so often at the most");
        self.wakes.remove(&row).expect("a wake is set before it runs");
        self.ran.insert(row, (position.time, count));
    }

    /// Returns the timers that were left out, up to a time.
    pub fn left_out(&self, shown: &BTreeSet<i64>, through: i64) -> Vec<LeftOut> {
        let times: Vec<i64> = shown.range(..=through).copied().collect();
        let mut found = Vec::new();
        for gap in times.windows(2) {
            for (index, every) in (0..).zip(&self.everies) {
                let more = every.count(gap[0], gap[1]) - i128::from(TIMERS_MAX);
                if let Some(count) = u64::try_from(more).ok().filter(|&more| more > 0) {
                    found.push(LeftOut { every: index, before: gap[1], count });
                }
            }
        }
        found
    }
}

/// Returns the first tick from a time on, of those that are to run.
fn tick_from(every: Every, shown: &BTreeSet<i64>, from: i64) -> Option<i64> {
    let mut from = from.max(shown.first()?.checked_add(1)?);
    loop {
        let time = every.least_from(from)?;
        let next_shown = *shown.range(time..).next()?;
        let before = *shown.range(..time).next_back().expect("ticks begin after the first");
        if every.count(before, time) <= i128::from(TIMERS_MAX) {
            return Some(time);
        }
        from = next_shown.checked_add(1)?;
    }
}
