//! The `tidemill` command, above any way of loading an application.

mod epoch;
mod job;

pub use epoch::{EPOCH_AGE_MAX, EPOCH_EVENTS_MAX, parse_epoch};
pub use job::{Input, Job, JobError, Output, Ready, Unit, source_streams, table_schema};
