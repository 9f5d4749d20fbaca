//! The pace controller: how many events an epoch may have if the user has not set it. More events give a higher
//! throughput, until results come too late.
//!
//! **How.** Controller input: the latency of each finished epoch's oldest event, measured from the time when the gate
//! had room for it, because if input is ahead of the engine, smaller epochs would only make the queue longer. Above the
//! target, the limit shrinks in proportion, because latency under load is the number of epochs in flight times the time
//! of one. Well below the target, if the limit was the reason to close the epoch, the limit grows by a quarter. An
//! epoch that was gathered under an earlier limit does not describe the current one and is ignored. The limit may grow
//! further while all events are folded by groups ([`tidemill_stages::prepare::fold`]): the more there are, the fewer
//! rows are merged for each.
//!
//! **Given up.** The latency of an epoch's oldest event is used for the 99th percentile: it is a little higher, because
//! most events of an epoch are younger.

/// The minimum number of events of an epoch: below it, the fixed costs of an epoch dominate.
const EVENTS_MIN: usize = 32;
/// The limit grows only if an epoch's latency is below this fraction of the target.
const ROOM: f64 = 0.7;
const GROWTH: f64 = 1.25;
/// The fraction of the target at which the new limit aims after a miss.
const AIM: f64 = 0.85;

/// The maximum number of events of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// The maximum if some events run transactions. The first epochs have no more.
    pub events: usize,
    /// The maximum if all events are folded.
    pub folded: usize,
}

/// The limit, updated as epochs finish.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The target latency, nanoseconds.
    target: u64,
    limit: usize,
    most: Most,
    /// Epochs up to this one were gathered under an earlier limit.
    changed: u64,
}

impl Pace {
    /// Makes a controller for a target latency, nanoseconds.
    pub fn new(target: u64, most: Most) -> Self {
        Pace { target, limit: most.events, most, changed: 0 }
    }

    /// Returns the maximum number of events of the next epoch.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Updates the limit after the results of an epoch are ready, `latency` nanoseconds after the arrival of its first
    /// event. `folded`: all of its events were. `asked`: the number of the last epoch whose limit was read.
    pub fn done(&mut self, epoch: u64, events: usize, folded: bool, latency: u64, asked: u64) {
        if epoch <= self.changed {
            return;
        }
        let before = self.limit;
        if latency > self.target {
            let scale = self.target as f64 / latency as f64 * AIM;
            self.limit = (events.min(before) as f64 * scale.max(0.25)) as usize;
        } else if events >= before && (latency as f64) < self.target as f64 * ROOM {
            self.limit = (before as f64 * GROWTH) as usize;
        }
        let most = if folded { self.most.folded } else { self.most.events };
        self.limit = self.limit.max(EVENTS_MIN.min(most)).min(most);
        if self.limit != before {
            self.changed = asked;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Most = Most { events: 1 << 14, folded: 1 << 14 };

    /// Returns the limit and latency that a saturated pipeline with four epochs in flight settles at, given the time
    /// per event.
    fn settle(event_ns: f64, target: u64, most: usize) -> (usize, f64) {
        let mut pace = Pace::new(target, Most { events: most, folded: most });
        let latency = |events: usize| 4.0 * (50_000.0 + events as f64 * event_ns);
        for epoch in 1..2_000 {
            let events = pace.limit();
            pace.done(epoch, events, false, latency(events) as u64, epoch + 3);
        }
        (pace.limit(), latency(pace.limit()))
    }

    #[test]
    fn cheap_events_fill_the_largest_epochs() {
        assert_eq!(settle(50.0, 10_000_000, 1 << 14).0, 1 << 14);
    }

    #[test]
    fn expensive_events_come_in_epochs_that_meet_the_target() {
        for event_ns in [500.0, 1_000.0, 5_000.0] {
            let (limit, latency) = settle(event_ns, 10_000_000, 1 << 14);
            assert!((5e6..=10e6).contains(&latency), "{limit} events, {latency} ns at {event_ns} an event");
        }
    }

    #[test]
    fn a_target_out_of_reach_ends_at_the_least() {
        assert_eq!(settle(100_000.0, 1_000_000, 1 << 14).0, EVENTS_MIN);
        assert_eq!(settle(100_000.0, 1_000_000, 10).0, 10);
    }

    #[test]
    fn small_epochs_under_light_load_do_not_move_the_limit() {
        let mut pace = Pace::new(10_000_000, FEW);
        (1..1_000).for_each(|epoch| pace.done(epoch, 5, false, 100_000, epoch));
        assert_eq!(pace.limit(), 1 << 14);
        let mut pace = Pace::new(1_000_000, FEW);
        pace.done(1, 1 << 14, false, 4_000_000, 1);
        let shrunk = pace.limit();
        (2..1_000).for_each(|epoch| pace.done(epoch, 5, false, 100_000, epoch));
        assert_eq!(pace.limit(), shrunk);
    }

    #[test]
    fn epochs_grow_further_while_all_events_are_folded() {
        let mut pace = Pace::new(10_000_000, Most { events: 1 << 14, folded: 1 << 17 });
        assert_eq!(pace.limit(), 1 << 14);
        (1..100).for_each(|epoch| pace.done(epoch, pace.limit(), true, 1_000_000, epoch));
        assert_eq!(pace.limit(), 1 << 17);
        pace.done(100, 1 << 17, false, 1_000_000, 100);
        assert_eq!(pace.limit(), 1 << 14);
    }
}
