//! The marks of one split.

use super::SplitPlace;

/// The marks of one split.
///
/// # Invariant
///
/// The low mark never falls: it is the maximum over what the split has shown, less its lateness, and what was promised
/// of it. An event is late iff its time is below the mark before it.
#[derive(Clone, Debug)]
pub struct SplitMarks {
    /// The split.
    pub place: SplitPlace,
    /// The lateness of its events; none if they have no event time, but a counter.
    pub lateness: Option<i64>,
    /// A flag: whether its events are sent, and have anchored positions. Never with event time.
    pub is_sent: bool,
    /// The greatest time seen; without event time, the next counter value less one.
    pub greatest: Option<i64>,
    /// The mark with which it began, if it joined after something was shown. It shows no time itself.
    pub begin: Option<i64>,
    /// The greatest punctuation: nothing with a time below it comes any more.
    pub punctuated: Option<i64>,
    /// A flag: whether nothing more comes of it.
    pub ended: bool,
    /// A flag: whether this run takes nothing more of it; a later run may.
    pub paused: bool,
}

/// The marks of a split while the events of one batch are looked at, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    mark: i64,
    greatest: i64,
    lateness: i64,
}

impl Admission {
    /// Takes an event of a time. Returns the time at which it stands if it is late; a punctual one moves the mark.
    #[inline(always)]
    pub fn admit(&mut self, time: i64) -> Option<i64> {
        if time < self.mark {
            return Some(self.greatest.max(self.mark));
        }
        self.greatest = self.greatest.max(time);
        self.mark = self.mark.max(time.saturating_sub(self.lateness));
        None
    }
}

impl SplitMarks {
    /// Makes the marks of a split before its first input. `lateness`: none without event time.
    pub fn new(place: SplitPlace, lateness: Option<i64>) -> SplitMarks {
        SplitMarks {
            place,
            lateness,
            is_sent: false,
            greatest: None,
            begin: None,
            punctuated: None,
            ended: false,
            paused: false,
        }
    }

    /// Returns whether its events have event time.
    pub fn has_time(&self) -> bool {
        self.lateness.is_some()
    }

    /// Returns whether events of other splits may have to wait for events of this one.
    pub fn holds_back(&self) -> bool {
        !self.ended && !self.is_sent
    }

    /// Returns the greatest time that it has shown: that of an event, or of a punctuation.
    pub fn shown(&self) -> Option<i64> {
        self.greatest.max(self.punctuated)
    }

    /// Returns a lower bound on the times of events still to come; none before the first event or punctuation of a
    /// split with event time.
    pub fn low(&self) -> Option<i64> {
        match self.lateness {
            Some(lateness) => self.greatest.map(|greatest| greatest.saturating_sub(lateness)).max(self.promised()),
            None => Some(self.next_count()),
        }
    }

    /// Returns the greatest mark that does not follow from events.
    fn promised(&self) -> Option<i64> {
        self.begin.max(self.punctuated)
    }

    /// Promises that nothing with a time below comes any more.
    pub fn punctuate(&mut self, time: i64) {
        assert!(self.has_time(), "a punctuation is of a source with event time");
        self.punctuated = self.punctuated.max(Some(time));
    }

    /// Returns the counter of the next event of a split without event time.
    pub fn next_count(&self) -> i64 {
        self.greatest.map_or(0, |greatest| greatest + 1)
    }

    /// Counts events of a split without event time; returns the counter of the first.
    pub fn count(&mut self, events: usize) -> i64 {
        assert!(!self.has_time() && !self.is_sent, "events that are read without event time have a counter");
        let first = self.next_count();
        self.greatest = Some(first + events as i64 - 1);
        first
    }

    /// Takes times that are in order, if none of them is late; returns whether it has. Only the first can be late, since a
    /// mark follows the times from below where the lateness is not below zero.
    pub fn see_in_order(&mut self, times: &[i64]) -> bool {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return false };
        let is_punctual =
            self.lateness.is_some_and(|lateness| lateness >= 0) && self.low().is_none_or(|low| low <= first);
        let is_seen = is_punctual && times.is_sorted();
        if is_seen {
            self.greatest = self.greatest.max(Some(last));
        }
        is_seen
    }

    /// Returns the marks for the events of a batch.
    pub fn admission(&self) -> Admission {
        Admission {
            mark: self.low().unwrap_or(i64::MIN),
            greatest: self.greatest.unwrap_or(i64::MIN),
            lateness: self.lateness.expect("events with event time are late or punctual"),
        }
    }

    /// Takes over the marks after events of which at least one was punctual.
    pub fn admitted(&mut self, Admission { greatest, .. }: Admission) {
        assert!(Some(greatest) >= self.greatest, "the greatest time does not fall");
        self.greatest = Some(greatest);
    }

    /// Returns the time at which a bad record stands that comes now.
    pub fn stands(&self) -> i64 {
        // The mark is beyond the greatest time only where a lateness is below zero.
        let mark = self.low().filter(|_| self.lateness.is_some_and(|lateness| lateness < 0));
        self.greatest.max(self.promised()).max(mark).unwrap_or(i64::MIN)
    }

    /// Returns the time at which a bad record stands after an event of a time, given where it would stand before it.
    pub fn stands_after(&self, stands: i64, time: i64) -> i64 {
        match self.lateness.unwrap_or(0) {
            lateness @ ..0 if time >= stands => time.saturating_sub(lateness),
            ..0 => stands,
            _ => stands.max(time),
        }
    }
}
