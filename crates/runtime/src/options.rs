//! The options of a run.

use tidemill_stages::access::scheduling::Scheduling;

/// The rule by which an epoch is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochSize {
    /// An epoch is closed when the access stage would otherwise idle; at the latest at the number of events that
    /// [`Options::latency`] allows, and at [`Options::epoch_events_max`].
    #[default]
    Auto,
    /// At this many events; with fewer when input pauses or ends.
    Events(usize),
    /// An epoch is closed when its oldest event is this old, in nanoseconds; at the latest at
    /// [`Options::epoch_events_max`].
    Age(u64),
}

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most workers, each a thread, at least 1; 0 for one per processor. No more are started than the machine can
    /// run at once, unless [`Scheduling::FixedOn`] asks for them.
    pub workers: usize,
    /// The rule by which an epoch is closed.
    pub epoch: EpochSize,
    /// The scheduling of the access stage.
    pub scheduling: Scheduling,
    /// The maximum number of events of an epoch, except with [`EpochSize::Events`].
    pub epoch_events_max: usize,
    /// The maximum number of events of an epoch with [`EpochSize::Auto`] while all events are folded by groups: the
    /// more there are, the fewer rows are merged for each. With a limit of memory it is not used.
    pub folded_events_max: usize,
    /// The time that an event may wait for its epoch to close, nanoseconds.
    pub epoch_age_max: u64,
    /// The target for the 99th percentile of latency, nanoseconds: with [`EpochSize::Auto`] it controls the size of
    /// epochs.
    pub latency: u64,
    /// The maximum number of bytes that rows, the index of their keys and the checkpoint's index may take in memory;
    /// other rows are read from the state's newest checkpoint when they are needed. For durable runs only. None: all
    /// rows are in memory.
    pub memory: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 0,
            epoch: EpochSize::Auto,
            scheduling: Scheduling::Auto,
            epoch_events_max: 1 << 14,
            folded_events_max: 1 << 17,
            epoch_age_max: 10_000_000,
            latency: 10_000_000,
            memory: None,
        }
    }
}
