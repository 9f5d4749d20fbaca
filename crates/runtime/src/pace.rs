//! How many events an epoch may have where the user has not said: the more, the higher the throughput, up to where
//! results would come too late.
//!
//! **How.** Of each epoch that is done the oldest event's latency is known, from when there was room for it: where
//! input is ahead of the engine, smaller epochs would only make the queue longer. Above the target, the limit shrinks in
//! proportion, since latency under load is a number of epochs in flight times what one takes; well below it, and
//! where the limit was what closed the epoch, the limit grows by a quarter. An epoch that was gathered under an
//! earlier limit says nothing about the present one and is passed over.
//!
//! **Given up.** The latency of the oldest event of an epoch stands for the 99th percentile: it is a little more,
//! as most events of an epoch are younger.

/// Events of an epoch at the least: below, the costs of an epoch itself are what takes time.
const EVENTS_MIN: usize = 32;
/// How far below the target an epoch must be for the limit to grow.
const ROOM: f64 = 0.7;
const GROWTH: f64 = 1.25;
/// Where the limit goes when the target is missed: so far below it.
const AIM: f64 = 0.85;

/// The limit, as epochs come back.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Nanoseconds.
    target: u64,
    limit: usize,
    most: usize,
    /// Epochs up to this one were gathered under an earlier limit.
    changed: u64,
}

impl Pace {
    /// For a latency, nanoseconds; at most so many events.
    pub fn new(target: u64, most: usize) -> Self {
        Pace { target, limit: most, most, changed: 0 }
    }

    /// Events of the next epoch at the most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The results of an epoch of so many events are there, `latency` nanoseconds after the first of them arrived.
    /// `asked`: the number of the last epoch whose limit was asked for.
    pub fn done(&mut self, epoch: u64, events: usize, latency: u64, asked: u64) {
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
        self.limit = self.limit.max(EVENTS_MIN.min(self.most)).min(self.most);
        if self.limit != before {
            self.changed = asked;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A saturated pipeline with four epochs in flight, each event taking so long.
    fn settle(event_ns: f64, target: u64, most: usize) -> (usize, f64) {
        let mut pace = Pace::new(target, most);
        let latency = |events: usize| 4.0 * (50_000.0 + events as f64 * event_ns);
        for epoch in 1..2_000 {
            let events = pace.limit();
            pace.done(epoch, events, latency(events) as u64, epoch + 3);
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
        let mut pace = Pace::new(10_000_000, 1 << 14);
        (1..1_000).for_each(|epoch| pace.done(epoch, 5, 100_000, epoch));
        assert_eq!(pace.limit(), 1 << 14);
        let mut pace = Pace::new(1_000_000, 1 << 14);
        pace.done(1, 1 << 14, 4_000_000, 1);
        let shrunk = pace.limit();
        (2..1_000).for_each(|epoch| pace.done(epoch, 5, 100_000, epoch));
        assert_eq!(pace.limit(), shrunk);
    }
}
