//! Runs applications: threads or steps, sources and sinks, options, counts.
//!
//! The stages of an epoch are functions of `tidemill-stages`; the log and checkpoints are those of `tidemill-recovery`.
//! Here [actors](tidemill_stages::actor) drive them: readers and the gate (`inputs`, `entrance`, `gather`, with a decider of
//! `decide` that says what the next epoch is), workers (`pipeline`), the committer (`commit`), the releaser (`release`). A `run` owns them all,
//! and drives them on threads or step by step. A `session` is a run to talk to.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agenda;
mod ahead;
mod commit;
mod convert;
mod cutter;
mod decide;
mod engine;
mod entrance;
mod first_calls;
mod gather;
mod idle;
mod inputs;
mod live;
mod options;
mod pace;
mod pipeline;
mod reader;
mod records;
mod release;
mod report;
mod run;
mod session;
mod splits;
mod summary;
mod watched;

pub use cutter::{Cutter, Gathering, Intake, LocalCutter, Taking};
pub use engine::{Engine, Request};
pub use live::{Contention, HotRow, Live, LiveEpoch};
pub use options::{EpochSize, Options};
pub use records::epoch_record_schema;
pub use run::{ActorName, Run};
pub use session::calls::{Answered, Procedure, Reply, ReplyTo, RequestKey, TakeOutcomes, Way, When};
pub use session::error::SessionError;
pub use session::follow::{Followed, Follower, Slow};
pub use session::link::SentSource;
pub use session::{
    Asked, AskedSavepoint, Calling, Flushed, Following, LateTable, MESSAGE_EVENTS_MAX, ReadsAt, SavepointMade, Session,
    TablesAt,
};
pub use summary::{
    FailedSummary, LatencySummary, LeftOutSummary, PolicySummary, SourceSummary, StageSummary, Summary,
    TransactionSummary, WorkerSummary,
};
pub use tidemill_durability::{Course, Head, NoPlace, Place, Position};
pub use tidemill_recovery::{
    BOUNDS, CheckpointVitals, Control, Durability, DurabilityOptions, DurabilitySummary, FarEvent, GateVitals,
    Happening, HeldTime, History, Incident, Incidents, JoinedSplit, KeyVitals, LogVitals, LoggedInput, MemorySummary,
    PastEpoch, PastSource, Proving, RecoveryProgress, Released, Reopen, RunError, SinkVitals, SourceAt, SplitVitals,
    Spread, SpreadAt, Stage, StartingPoint, StartingSource, Sync, Taken, Vitals, checkpoint_rows, open_rows,
    open_split, open_text, refuse_open, refuse_open_of, source_positions, state_rows,
};
pub use tidemill_schedule::{Policy, PolicyError, Scheme, SchemeError};
pub use tidemill_stages::access::read::Wish;
pub use tidemill_stages::access::scheduling::{FixedOn, Policies, Scheduling, SchedulingError};
pub use tidemill_stages::access::shape::EpochShape;
pub use tidemill_stages::actor::{Bell, Progress};
pub use tidemill_stages::digest::{EpochDigest, committed_streams};
pub use tidemill_stages::due::DueCut;
pub use tidemill_stages::environment::{Environment, Joined};
pub use tidemill_stages::finish::answers::{NotMade, Outcome};
pub use tidemill_stages::gate::{Cut, Gate, OpenBatch, Passed, SourcePosition, SplitMark};
pub use tidemill_stages::machine::Logging;
pub use tidemill_stages::tasks::UnderWay;
pub use tidemill_stages::time_of_day::{Known, LEAP_MAX, SHOWN_MIN, TimeOfDay};
pub use tidemill_state::memory::bind_to_node;
pub use watched::Watched;
