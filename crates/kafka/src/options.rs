//! The options of topics: `source` and `sink` make connections of them.

use crate::client::Cluster;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemill_io::InputEnd;

/// The kind of the specs of topics.
pub const KIND: &str = "kafka";

/// The form of the value of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A JSON object with the fields.
    #[default]
    Json,
    /// The one field that is no key, timestamp, header, partition or offset: its text or bytes.
    Raw,
}

/// The place at which the first run begins to read a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The first record that there is.
    #[default]
    Earliest,
    /// The records that come from then on.
    Latest,
    /// The first record whose timestamp is at or after this time, in microseconds since 1970.
    Time(i64),
}

/// A topic to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTopic {
    /// The topic.
    pub topic: String,
    /// Brokers to ask first: `host:port`, with commas between.
    pub servers: String,
    /// Settings of librdkafka by name; `env:NAME` stands for the value of an environment variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The form of values.
    #[serde(default)]
    pub format: Format,
    /// The field that has the record's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The field that has the record's timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The field that has the number of the record's partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The field that has the record's offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// Fields that have headers of the record: the name of the header, by field. Of several of a name, the last one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The place at which the first run begins.
    #[serde(default)]
    pub start: Start,
    /// The one partition to read, as one stream; all of them side by side if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<i32>,
    /// The meaning of the end of what is there.
    #[serde(default = "follow")]
    pub end: InputEnd,
}

fn follow() -> InputEnd {
    InputEnd::Follow
}

impl ReadTopic {
    /// Returns the brokers, and how to speak with them.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { servers: self.servers.clone(), settings: self.settings.clone() }
    }
}

/// A topic to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteTopic {
    /// The topic.
    pub topic: String,
    /// Brokers to ask first, as for [`ReadTopic`].
    pub servers: String,
    /// Settings of librdkafka, as for [`ReadTopic`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The form of values.
    #[serde(default)]
    pub format: Format,
    /// The field that is the record's key, too: records of one key are in one partition, in their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The field that is the record's timestamp, too, cut to milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Fields that are headers of the record, too: the name of the header, by field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The name of the output within its state; that of the topic unless given. No two sinks of a state share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A flag: whether a durable run writes in transactions. Without them records may be there twice after a crash.
    #[serde(default = "yes")]
    pub exactly_once: bool,
}

fn yes() -> bool {
    true
}

impl WriteTopic {
    /// Returns the brokers, and how to speak with them.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { servers: self.servers.clone(), settings: self.settings.clone() }
    }
}
