//! A split: what its inputs say about its mark, and where its records stand.

/// The origin of the times of a split's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The events bring their times, and are late by this much at the most.
    EventTime {
        /// The lateness, in units of time; below zero, as of a clock, the least distance of each time from the one
        /// before.
        lateness: i64,
    },
    /// The times are counted.
    Counter,
}

/// An input of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitInput {
    /// An event, with its time if the source declares one.
    Event(Option<i64>),
    /// A record that cannot be decoded.
    Bad,
    /// Nothing with a time below this comes any more. A raise for idleness is one.
    Punctuation(i64),
    /// The greatest lateness of events from here on.
    Lateness(i64),
    /// Nothing comes any more.
    End,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Punctual,
    Late,
    Bad,
}

/// A split after some of its inputs.
#[derive(Clone, Debug)]
pub(super) struct Split {
    clock: Clock,
    mark: i64,
    /// The greatest time of its events.
    greatest: Option<i64>,
    offset: u64,
    ended: bool,
}

impl Split {
    pub fn new(clock: Clock, mark: i64) -> Self {
        assert!(clock != Clock::Counter || mark >= 0, "counters begin at 0");
        Split { clock, mark, greatest: None, offset: 0, ended: false }
    }

    /// Returns the time below which nothing comes.
    pub fn mark(&self) -> i64 {
        self.mark
    }

    /// Returns the offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Takes an input; of a record returns the time that it stands at, and what it is.
    pub fn take(&mut self, input: SplitInput) -> Option<(i64, Kind)> {
        assert!(!self.ended, "a split that has ended takes nothing");
        match input {
            SplitInput::Event(time) => Some(self.event(time)),
            SplitInput::Bad => Some(self.aside(Kind::Bad)),
            SplitInput::Punctuation(time) => {
                self.mark = self.mark.max(time);
                None
            }
            SplitInput::Lateness(behind) => {
                if let Clock::EventTime { lateness } = &mut self.clock {
                    *lateness = behind;
                }
                None
            }
            SplitInput::End => {
                self.end();
                None
            }
        }
    }

    fn event(&mut self, time: Option<i64>) -> (i64, Kind) {
        let (time, mark) = match self.clock {
            Clock::Counter => {
                assert!(time.is_none(), "a source without event time");
                // After the last counter there is none, so it is given again; offsets still tell the events apart.
                (self.mark, self.mark.saturating_add(1))
            }
            Clock::EventTime { lateness } => {
                let time = time.expect("a source with event time");
                if time < self.mark {
                    return self.aside(Kind::Late);
                }
                (time, time.saturating_sub(lateness))
            }
        };
        self.offset += 1;
        self.mark = self.mark.max(mark);
        self.greatest = self.greatest.max(Some(time));
        (time, Kind::Punctual)
    }

    /// Counts a record that has no time, and returns it with the time that the split has come to.
    fn aside(&mut self, kind: Kind) -> (i64, Kind) {
        self.offset += 1;
        (self.greatest.map_or(self.mark, |greatest| greatest.max(self.mark)), kind)
    }
}
