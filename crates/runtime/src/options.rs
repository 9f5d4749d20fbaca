//! What a run can be told.

use tidemill_stages::access::scheduling::Scheduling;

/// When the gate closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochSize {
    /// When the access stage would otherwise idle; at the latest at as many events as [`Options::latency`] allows,
    /// and at [`Options::epoch_events_max`].
    #[default]
    Auto,
    /// At this many events; with fewer when input pauses or ends.
    Events(usize),
    /// When the oldest event is this old, in nanoseconds; at the latest at
    /// [`Options::epoch_events_max`].
    Age(u64),
}

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that prepare, access and finish, at least 1; 0 for one per processor.
    pub workers: usize,
    /// When the gate closes.
    pub epoch: EpochSize,
    /// How the access stage is scheduled.
    pub scheduling: Scheduling,
    /// Events of an epoch at the most, but for [`EpochSize::Events`].
    pub epoch_events_max: usize,
    /// How long an event may wait for its epoch to close, nanoseconds.
    pub epoch_age_max: u64,
    /// What 99 of 100 events should wait for their results at the most, nanoseconds: the size of epochs follows it
    /// where it is [`EpochSize::Auto`].
    pub latency: u64,
    /// Bytes that rows, their keys' index and the checkpoint's may take in memory; the other rows are read from the
    /// state's newest checkpoint when they are needed. For durable runs only. None: all rows are in memory.
    pub memory: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 0,
            epoch: EpochSize::Auto,
            scheduling: Scheduling::Auto,
            epoch_events_max: 1 << 14,
            epoch_age_max: 10_000_000,
            latency: 10_000_000,
            memory: None,
        }
    }
}
