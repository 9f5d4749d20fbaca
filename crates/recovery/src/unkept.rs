//! The cost of a crash: how much there is since the last checkpoint, and whether that is enough for another one.
//!
//! A replay reads the epochs of the log, and runs them again, and no sink. So its time is at most about that of the stages of
//! these epochs, one after the other, and what it takes to read their events. A checkpoint that is due takes a while, and
//! until it is the newest a crash costs what its epochs took besides: as much as during the one before is left for it.

use crate::DurabilityOptions;

/// The time in which a replay reads an event, nanoseconds: of a simple event on a machine with other work to do.
const READ_TIME: u64 = 250;

/// The part of the greatest time of a replay from which on a checkpoint is due in any case, however long the last one took.
const PART_MIN: u64 = 4;

/// Totals of a state so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of the log.
    pub bytes: u64,
    /// The time that the stages of epochs took, nanoseconds.
    pub work: u64,
    /// The clock, nanoseconds.
    pub now: u64,
}

/// Amounts since the last checkpoint was due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unkept {
    events: u64,
    /// The clock when the first of these epochs was cut.
    since: Option<u64>,
    /// Totals when that checkpoint was due.
    before: Totals,
    /// A flag: whether that checkpoint was under way when it was looked at last.
    is_under_way: bool,
    /// The cost of the epochs that came while the last checkpoint was taken.
    during: u64,
}

impl Unkept {
    /// Counts the events of an epoch that was cut, or is run again.
    pub fn add(&mut self, events: u64) {
        self.events += events;
    }

    /// Returns whether a checkpoint is due with an epoch that was just cut, given whether none is under way.
    pub fn is_due(&mut self, options: &DurabilityOptions, now: Totals, is_free: bool) -> bool {
        assert!(self.before.bytes <= now.bytes && self.before.work <= now.work, "what there is only grows");
        let since = *self.since.get_or_insert(now.now);
        let cost = (now.work - self.before.work).saturating_add(self.events.saturating_mul(READ_TIME));
        if is_free && std::mem::take(&mut self.is_under_way) {
            self.during = cost;
        }
        let replay = options.checkpoint_replay.as_nanos() as u64;
        let left = replay.saturating_sub(self.during).max(replay / PART_MIN);
        let age = now.now.saturating_sub(since);
        is_free
            && (self.events >= options.checkpoint_events
                || now.bytes - self.before.bytes >= options.checkpoint_log_bytes
                || cost >= left
                || options.checkpoint_age.is_some_and(|most| u128::from(age) >= most.as_nanos()))
    }

    /// Begins anew, as a checkpoint is due.
    pub fn begin(&mut self, now: Totals) {
        *self = Unkept { before: now, is_under_way: true, during: self.during, ..Unkept::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn at(bytes: u64, work: u64, now: u64) -> Totals {
        Totals { bytes, work: work * SECOND, now: now * SECOND }
    }

    #[test]
    fn it_is_due_by_each_measure() {
        let options = DurabilityOptions {
            checkpoint_events: 100,
            checkpoint_log_bytes: 1_000,
            checkpoint_replay: Duration::from_secs(30),
            checkpoint_age: Some(Duration::from_secs(60)),
            ..DurabilityOptions::default()
        };
        let is_due = |events, totals| {
            let mut unkept = Unkept::default();
            unkept.begin(at(500, 10, 20));
            unkept.add(events);
            // The first epoch after it.
            assert!(!unkept.is_due(&options, at(500, 10, 100), true) || events >= 100);
            unkept.is_due(&options, totals, true)
        };
        assert!(!is_due(99, at(1_499, 39, 159)));
        assert!(is_due(100, at(500, 10, 100)));
        assert!(is_due(0, at(1_500, 10, 100)));
        assert!(is_due(0, at(500, 40, 100)));
        assert!(is_due(0, at(500, 10, 160)));
    }

    #[test]
    fn reading_events_again_has_a_cost() {
        let options = DurabilityOptions { checkpoint_events: u64::MAX, ..DurabilityOptions::default() };
        let mut unkept = Unkept::default();
        unkept.add(30 * SECOND / READ_TIME - 1);
        assert!(!unkept.is_due(&options, at(0, 0, 0), true));
        unkept.add(1);
        assert!(unkept.is_due(&options, at(0, 0, 0), true));
        unkept.add(u64::MAX / READ_TIME);
        assert!(unkept.is_due(&options, at(0, u64::MAX / SECOND, 0), true), "it does not overflow");
    }

    #[test]
    fn none_is_due_while_one_is_under_way_which_leaves_less_for_the_next() {
        let options = DurabilityOptions::default();
        let mut unkept = Unkept::default();
        assert!(!unkept.is_due(&options, at(0, 29, 29), true));
        assert!(unkept.is_due(&options, at(0, 30, 30), true));
        unkept.begin(at(0, 30, 30));
        assert!(!unkept.is_due(&options, at(0, 61, 61), false));
        // It took 12 seconds.
        let mut short = unkept.clone();
        assert!(!short.is_due(&options, at(0, 42, 42), true));
        assert!(!short.is_due(&options, at(0, 47, 47), true));
        assert!(short.is_due(&options, at(0, 48, 48), true), "18 s are left");
        // It took 31 seconds: a quarter is left for the next in any case.
        assert!(unkept.is_due(&options, at(0, 61, 61), true));
        unkept.begin(at(0, 61, 61));
        assert!(!unkept.is_due(&options, at(0, 62, 62), true), "it took one second");
        assert!(!unkept.is_due(&options, at(0, 89, 89), true));
        assert!(unkept.is_due(&options, at(0, 90, 90), true));
    }
}
