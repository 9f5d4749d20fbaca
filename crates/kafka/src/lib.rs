//! Topics of Apache Kafka as sources and as exactly-once sinks.
//!
//! [`Kafka`] is a [`Connector`]: its source reads a topic, each partition of which is a split with offsets of its own; its sink
//! writes a topic, in a transaction of Kafka for each commit of the run.
//!
//! # What a state relies on
//!
//! The events of a topic are logged by value, with the offset after them. So nothing is asked of the retention of the topic but
//! that it has what no run has taken; offsets that a group has committed are not looked at. What is missing when a run goes on is
//! an error that says which offsets are, and so is another record in the place of the last one that was taken: such a
//! topic was made anew.
//!
//! A sink marks each transaction with the epoch that it holds, in a record of the compacted topic [`PROGRESS_TOPIC`]: it is
//! visible with the output, or not at all. A run that goes on ends what its predecessor left open and shuts it out
//! (`init_transactions`), then reads the mark.
//!
//! # Edges
//!
//! All of librdkafka is behind `client`; no other module sees its errors.

mod client;
mod encode;
mod options;
mod partition;
mod progress;
mod record;
mod sink;
mod source;

pub use options::{Format, ReadTopic, Start, WriteTopic};
pub use progress::PROGRESS_TOPIC;

use options::KIND;
use tidemill_io::{Connector, SinkConnection, SourceConnection, Spec, SpecError};

/// Makes sources and sinks of topics.
pub struct Kafka;

impl Connector for Kafka {
    fn kind(&self) -> &str {
        KIND
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Ok(Box::new(spec.read::<ReadTopic>()?))
    }

    fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        Ok(Box::new(spec.read::<WriteTopic>()?))
    }
}
